"""What a shared directory holds beside log and lock: who announced itself, where it was written, and secrets of proofs.

Twin of the shell's members, place and proof; what they mean is core's.

    copied by files   what it holds is carried along, in other inodes
    copied by blocks  an image, a snapshot of a volume: the inodes are carried along, too

Guarantees: a secret that is written after a copy was made stands in one of the two alone. Does not: hold log or lock
(disk.py does). May import core and below.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Final, Protocol

from deathless.base.errors import CopiedDirectory, OtherDirectory
from deathless.base.safeguards import Safeguards
from deathless.codec.wire import Challenge, Hello
from deathless.core.access.directory_proof import (
    KINDS,
    NONCE_BYTES,
    SECRET_BYTES,
    answer_of,
    answerer_shows,
    check_answer,
    is_file_name,
    is_word,
    refusal_without_word,
)
from deathless.core.access.place import Place, Spot, fits, is_copy

SECRETS_KEPT: Final = 64  # the oldest file is taken away first


class Stands(Protocol):
    """What a process gets of the directory it stands in."""

    machine: str  # ours, in the network

    def door(self, role: str) -> Door:
        """What asks whoever connects to one of our processes."""
        ...

    def asker(self, role: str) -> Asker | None:
        """What one connection that a process of ours opens shows; None: nothing."""
        ...

    def let_in(self, machine: str, kind: str) -> None:
        """Whoever connects was let in: evidence for the verdict."""
        ...


class SimDirectory:
    """One directory.

    Args:
        path: where it is.
        chance: of secrets and words alone, so that asking for proofs shifts nothing else.
        asks: its processes have whoever connects show where it stands.
        safeguards: all on, but in tests.
    """

    def __init__(self, path: str, chance: random.Random, *, asks: bool, safeguards: Safeguards) -> None:
        self.path = path
        self.chance = chance
        self.asks = asks
        self.safeguards = safeguards
        self.members: dict[str, str] = {}  # replica that has announced itself -> its control address
        self.place: Place | None = None
        self.secrets: dict[str, bytes] = {}  # by file, oldest first
        self._file, self._folder = Spot(1, ""), Spot(2, "")

    def copied(self, path: str, chance: random.Random, *, by_blocks: bool) -> SimDirectory:
        """Give a copy of it, at another path."""
        copy = SimDirectory(path, chance, asks=self.asks, safeguards=self.safeguards)
        copy.members, copy.place, copy.secrets = dict(self.members), self.place, dict(self.secrets)
        if not by_blocks:
            copy._file, copy._folder = Spot(self._file.inode + 2, ""), Spot(self._folder.inode + 2, "")
        return copy

    def keep_place(self) -> None:
        """Write where this is at the first start. Raises: CopiedDirectory."""
        place = self.place
        if place is None:
            self.place = Place(self.chance.randbytes(16).hex(), self.path, "", self._file, self._folder)
        elif self.safeguards.check_place and not self._fits(place):
            raise CopiedDirectory(f"{self.path} is a copy of {place.path}")

    def _fits(self, place: Place) -> bool:
        return fits(place, self._file, self._folder) or not is_copy(place, self.path, numbered=True)

    def write_secret(self) -> tuple[str, bytes]:
        """Write a secret that nobody has seen before; gives its file and itself."""
        file = f".proof.{self.chance.randbytes(16).hex()}"
        secret = self.secrets[file] = self.chance.randbytes(SECRET_BYTES)
        while len(self.secrets) > SECRETS_KEPT:
            del self.secrets[next(iter(self.secrets))]
        return file, secret


class Door:
    """Asks whoever connects to one process.

    Args:
        directory: where the process stands.
        usable: can it write there now?
    """

    def __init__(self, directory: SimDirectory, usable: Callable[[], bool]) -> None:
        self._directory = directory
        self._usable = usable
        self._newest: tuple[str, bytes] | None = None  # serves while no other can be written

    def asks(self, kind: str) -> bool:
        """Is whoever connects as this asked?"""
        return self._directory.asks and kind in KINDS and self._directory.safeguards.same_directory

    def ask(self, hello: Hello) -> Asked:
        """Ask one. Raises: OtherDirectory."""
        if self._usable():
            self._newest = self._directory.write_secret()
        if self._newest is None or not is_word(hello.proof):
            refusal = refusal_without_word(hello.kind, hello.name, announced=True, shows=True)
            assert refusal is not None
            raise refusal
        return Asked(hello, *self._newest, self._directory.chance.randbytes(NONCE_BYTES))


class Asked:
    """One connection that was asked, until it has shown where it stands."""

    def __init__(self, hello: Hello, file: str, secret: bytes, nonce: bytes) -> None:
        self.hello = hello
        self.challenge = Challenge(file, nonce, answerer_shows(secret, hello.proof, nonce))
        self._secret = secret

    def shown(self, shown: bytes) -> None:
        """Take what it shows. Raises: OtherDirectory."""
        check_answer(self.hello, self._secret, self.challenge.nonce, shown)


class Asker:
    """What one connection that a process opens shows of where that stands.

    Args:
        directory: where the process stands.
        usable: can it read there now?
    """

    def __init__(self, directory: SimDirectory, usable: Callable[[], bool]) -> None:
        self.word = directory.chance.randbytes(NONCE_BYTES).hex()
        self._directory = directory
        self._usable = usable

    def look(self, challenge: Challenge) -> bytes | None:
        """Give what to show; None: the secret does not stand here, or not yet."""
        known = self._directory.secrets if self._usable() and is_file_name(challenge.file) else {}
        return answer_of(known.get(challenge.file), self.word, challenge.nonce, challenge.shown)

    def refusal(self) -> OtherDirectory:
        """Say that who answers stands elsewhere."""
        return OtherDirectory(f"the other end is not in {self._directory.path}")
