"""What an operator accepted by `deathless adopt`, as every replica reads it at its start: `adopted.json`.

Guarantees: absent means nothing was accepted; a file that can't be read refuses the start. Does not: decide or
explain (shell.operate.adoption does). May import engine (ports) and base.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import msgspec

from deathless.base.errors import HalfCopy, StorageFailed
from deathless.base.storage import storage_error
from deathless.codec.untrusted import read_json
from deathless.engine.ports import ServiceRecord
from deathless.shell.disk.durable import replace_file
from deathless.shell.disk.small_files import read_small

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
    service_id: bytes = b""  # instead of the one it was created with; empty: that one
    incarnation: int = 0  # instead of the one it was created with; 0: that one
    former: list[int] = []  # incarnations that were given up: what was confirmed in them does not count any more
    former_services: list[bytes] = []  # ids that cuts up to `through_epoch` may name beside
    hold_outside: bool = False  # what goes to peers and drivers, and activities, wait until an operator lets them go
    forked_with: list[str] = []  # services that were forked together with this one: they are not outside

    @property
    def code_pairs(self) -> frozenset[tuple[bytes, int]]:
        """As the engine takes them."""
        return frozenset((each.fingerprint, each.lsn) for each in self.code)

    def apply(self, record: ServiceRecord) -> ServiceRecord:
        """Give the service with the id, the incarnation and the fence that count now."""
        return msgspec.structs.replace(
            record,
            service_id=self.service_id or record.service_id,
            incarnation=self.incarnation or record.incarnation,
            fence=self.fence or record.fence,
        )

    @property
    def former_incarnations(self) -> frozenset[int]:
        """As the engine takes them."""
        return frozenset(self.former)


def read_adoption(directory: str) -> Adoption:
    """Give what was accepted in a directory; nothing, if `adopt` never ran.

    Raises: HalfCopy when the file can't be read; what the storage says (`base.storage`).
    """
    path = Path(directory) / FILE
    try:
        return read_json(read_small(path), Adoption)
    except FileNotFoundError:
        return Adoption()
    except OSError as error:
        raise storage_error(error) or HalfCopy(f"{path}: {error}", remedy="restore the file from a copy") from None
    except msgspec.MsgspecError as error:
        raise HalfCopy(f"{path}: {error}", remedy="restore the file from a copy") from None


def write_adoption(directory: str, adoption: Adoption) -> None:
    """Write it durably."""
    replace_file(Path(directory) / FILE, msgspec.json.format(msgspec.json.encode(adoption), indent=2))


def let_outside_go(directory: str) -> bool:
    """Have a directory's adoption hold nothing that goes to the outside; tells whether it did.

    Raises: as `read_adoption`; what the storage says, and then it may hold it still.
    """
    adoption = read_adoption(directory)
    if not adoption.hold_outside:
        return False
    adoption.hold_outside = False
    try:
        write_adoption(directory, adoption)
    except OSError as error:
        raise storage_error(error) or StorageFailed(f"{FILE}: {error}") from None
    return True
