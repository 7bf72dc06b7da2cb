"""What turns wrote, on its way into the digests."""

import hashlib
from zlib import crc32

from deathless.execution.turn.written import Written


def whole(data: bytes) -> bytes:
    return hashlib.blake2b(data, digest_size=32).digest()


def test_digests_are_over_what_was_written_however_it_came() -> None:
    digests: list[int] = []
    written = Written()
    written.hand_in([b"a", b"bc"], digests)
    written.hand_in([b"d"], digests)
    assert written.rolling_update() == whole(b"abcd")
    assert digests == [crc32(b"a"), crc32(b"bc"), crc32(b"d")]


def test_record_adds_to_what_stands_before_it() -> None:
    written = Written()
    written.hand_in([b"a"], [])
    written.add(b"b")
    written.add(b"")
    written.hand_in([b"c"], [])
    assert written.rolling_update() == whole(b"abc")
    assert written.rolling_update() == whole(b"")
