"""Records of an upgrade: their bytes stay, the first generation writes none of them, and strange bodies are refused."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from deathless.base.errors import CorruptFrame
from deathless.codec import messages
from deathless.codec.generations import FIRST, Generation, Upgraded, decode_upgraded, encode_of, encode_upgraded
from deathless.codec.messages import Kind

RECORD = Upgraded(2, 9, bytes(range(16)), 1, b"a" * 16, 2, b"b" * 16, 1_700_000_000_000_000)


def test_the_bytes_of_an_upgraded_record_are_those_of_today(golden: Callable[[str, bytes], None]) -> None:
    data = encode_upgraded(RECORD)
    golden("message_upgraded", data)
    found = messages.decode(data)
    assert found.kind == Kind.UPGRADED
    assert decode_upgraded(found.args) == RECORD


@pytest.mark.parametrize("body", [b"", b"\xc0", b"\x91\x02", b"\x9a" + b"\xa0" * 10])
def test_a_body_that_is_none_is_refused(body: bytes) -> None:
    with pytest.raises(CorruptFrame, match="record of an upgrade"):
        decode_upgraded(body)


def test_what_is_of_the_first_generation_has_the_bytes_of_older_versions() -> None:
    assert encode_of(RECORD, FIRST) != encode_of(RECORD, Generation(2, 1, bytes(16)))
    assert len(encode_of(RECORD, FIRST)) < len(encode_of(RECORD, Generation(2, 1, bytes(16))))
