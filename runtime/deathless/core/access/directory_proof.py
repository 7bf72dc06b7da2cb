"""The proof that both ends of a connection stand in the same directory: what is shown, and who may do without.

A name, an address and a number are carried along by a copy of the directory, and a clone of its blocks keeps inodes as
well. What neither has is a file that was written after it was made. So whoever is asked writes a secret into members/
once somebody has connected, and both show that they know it:

    asker     HELLO with a word of its own, 32 hexadecimal digits
    answerer  writes a secret; CHALLENGE with the file's name, a nonce, and a hash of word and nonce keyed by the secret
    asker     reads the file in its own directory and compares; PROOF with another such hash
    answerer  compares, and only then takes in what comes on the connection

Each end has drawn one of the two random values, so that nothing of an earlier connection can be shown again. Where
certificates name the service and the role of both ends (core.access.authorisation) nothing of this is asked.

A build from before this sends no word. Its replicas are let in for as long as members/ announces them as such builds;
what a supervisor reports must then be what stands there of it. A tool without a word is refused.

Guarantees: a secret never leaves the directory. Does not: files, connections. Imports codec and base.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Sequence
from typing import Final

from deathless.base.errors import OtherDirectory, TooLarge
from deathless.codec.wire import PREFIX_BYTES, Hello, Type

KINDS: Final = frozenset({"supervisor", "follower", "tool"})
"""What connects in order to give orders, to report, or to have the whole log."""
REPLICAS: Final = frozenset({"supervisor", "follower"})
SECRET_BYTES: Final = 32
NONCE_BYTES: Final = 16
KEPT_BYTES_MAX: Final = 1 << 20
"""Of packets that come before the proof, each with its prefix: empty ones fill a memory, too."""
_WORD: Final = re.compile(r"[0-9a-f]{32}")
_FILE: Final = re.compile(r"\.proof\.[0-9a-f]{32}")


class BeforeProof:
    """What comes on a connection before it is shown where the asker stands: nothing of it is taken in until then."""

    def __init__(self) -> None:
        self._packets: list[tuple[int, bytes]] = []
        self._bytes = 0

    def keep(self, packets: Sequence[tuple[int, bytes]]) -> tuple[bytes, list[tuple[int, bytes]]] | None:
        """Keep packets up to the proof.

        Returns: what the proof shows, and what came behind it; None: no proof came yet.

        Raises: TooLarge above KEPT_BYTES_MAX.
        """
        for at, (kind, body) in enumerate(packets):
            if kind == Type.PROOF:
                return body, list(packets[at + 1 :])
            self._bytes += PREFIX_BYTES + len(body)
            if self._bytes > KEPT_BYTES_MAX:
                raise TooLarge(f"more than {KEPT_BYTES_MAX} bytes before it was shown in which directory they begin")
            self._packets.append((kind, body))
        return None

    def release(self) -> list[tuple[int, bytes]]:
        """Give what was kept, once."""
        kept, self._packets = self._packets, []
        return kept


def is_word(word: str) -> bool:
    """Is this a word of an asker?"""
    return _WORD.fullmatch(word) is not None


def is_file_name(name: str) -> bool:
    """May this name a file of a proof? No other file is ever read because another process names it."""
    return _FILE.fullmatch(name) is not None


def answerer_shows(secret: bytes, word: str, nonce: bytes) -> bytes:
    """Give what shows that the answerer knows the secret."""
    return _hash(secret, b"answerer", word, nonce)


def asker_shows(secret: bytes, word: str, nonce: bytes) -> bytes:
    """Give what shows that the asker knows it."""
    return _hash(secret, b"asker", word, nonce)


def agrees(shown: bytes, expected: bytes) -> bool:
    """Compare in constant time."""
    return hmac.compare_digest(shown, expected)


def answer_of(secret: bytes | None, word: str, nonce: bytes, shown: bytes) -> bytes | None:
    """Give what an asker shows to who knows the secret that stands in its own directory.

    Args:
        secret: what stands there under the name it was told; None: nothing does.
        word: the asker's own.
        nonce: of the CHALLENGE.
        shown: in the CHALLENGE.

    Returns: None: who answers knows another secret, or none, so it stands in another directory.
    """
    if secret is None or not agrees(shown, answerer_shows(secret, word, nonce)):
        return None
    return asker_shows(secret, word, nonce)


def check_answer(hello: Hello, secret: bytes | None, nonce: bytes, shown: bytes) -> None:
    """Look at what an asker shows. Raises: OtherDirectory.

    Args:
        hello: its own.
        secret: the answerer's; None: it has told of none yet.
        nonce: of its CHALLENGE.
        shown: what came back.
    """
    if secret is None or not agrees(shown, asker_shows(secret, hello.proof, nonce)):
        raise OtherDirectory(f"{hello.kind} {hello.name!r} does not stand in this directory")


def refusal_without_word(kind: str, name: str, *, announced: bool, shows: bool) -> OtherDirectory | None:
    """Say why somebody who shows nothing is not let in; None: a replica of a build from before the proof is.

    Args:
        kind: as HELLO says it, one of KINDS.
        name: as HELLO says it.
        announced: members/ names this replica.
        shows: and it is announced as of a build that shows where it stands.
    """
    if kind in REPLICAS and announced and not shows:
        return None
    return OtherDirectory(
        f"{kind} {name!r} did not show that it stands in the directory of this service",
        remedy="use the version of `deathless` that the replicas run, in the directory of the service",
    )


def _hash(secret: bytes, side: bytes, word: str, nonce: bytes) -> bytes:
    return hashlib.blake2b(side + word.encode() + nonce, key=secret, digest_size=32).digest()
