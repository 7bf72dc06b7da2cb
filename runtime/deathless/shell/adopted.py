"""What an operator accepted by `deathless adopt`, as every replica reads it at its start: `adopted.json`.

Guarantees: absent means nothing was accepted; a file that can't be read refuses the start. Does not: decide or
explain (shell.adoption does). May import engine (ports) and base.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

import msgspec

from deathless.base.errors import HalfCopy
from deathless.engine.ports import ServiceRecord

FILE: Final = "adopted.json"


class AdoptedCode(msgspec.Struct, frozen=True, rename="camel"):
    """Other code's state, accepted at one place."""

    fingerprint: bytes
    lsn: int


class Adoption(msgspec.Struct, kw_only=True, rename="camel"):
    """All that was accepted so far."""

    code: list[AdoptedCode] = []
    through_epoch: int = 0  # cuts up to it may name another store, fence or incarnation
    fence: str = ""  # instead of the one the service was created with; empty: that one

    @property
    def code_pairs(self) -> frozenset[tuple[bytes, int]]:
        """As the engine takes them."""
        return frozenset((each.fingerprint, each.lsn) for each in self.code)

    def apply(self, record: ServiceRecord) -> ServiceRecord:
        """Give the service with the fence that counts now."""
        return msgspec.structs.replace(record, fence=self.fence) if self.fence else record


def read_adoption(directory: str) -> Adoption:
    """Give what was accepted in a directory; nothing, if `adopt` never ran.

    Raises: HalfCopy when the file can't be read.
    """
    path = Path(directory) / FILE
    try:
        return msgspec.json.decode(path.read_bytes(), type=Adoption)
    except FileNotFoundError:
        return Adoption()
    except (OSError, UnicodeDecodeError, msgspec.MsgspecError) as error:
        raise HalfCopy(f"{path}: {error}", remedy="restore the file from a copy") from None


def write_adoption(directory: str, adoption: Adoption) -> None:
    """Write it durably."""
    path = Path(directory) / FILE
    temporary = path.with_name(f".{FILE}.{os.getpid()}")
    with temporary.open("wb") as file:
        file.write(msgspec.json.format(msgspec.json.encode(adoption), indent=2))
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
    folder = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
