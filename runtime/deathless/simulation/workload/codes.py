"""The two codes of a simulated service, and how a state of one becomes a state of the other.

Why: an upgrade changes what a state's bytes mean, so that a replica which runs the wrong code, or the right code on a
state of the other, gives other bytes than the log says. The first code keeps a number in `number`, the second one in
`amount`; callers notice nothing. Services that call each other have handlers that wait, and these go on only by the
same handlers: their second code differs in nothing but what the log calls it.

On the way back the second code makes the first one's state, as its author declares it; the first code knows nothing of
the second one.

Guarantees: a state migrated there and back has the same bytes. Does not: know clusters. May import execution and
below, lab.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Final

import msgspec

from deathless.base.limits import Limits
from deathless.execution.author.migration import Migration
from deathless.execution.author.service import Service
from deathless.execution.migration.state import Migrator, migrate_all
from deathless.execution.turn.context import Context
from deathless.simulation.workload.lab import HOOKS, SERVICE_NAME, Cell, NoFundsError, lab


class RenamedCell(msgspec.Struct):
    """State of a key, as the second code keeps it."""

    amount: int = 0
    text: str | None = None
    tags: list[str] = []


lab_2: Final = Service(SERVICE_NAME, state=RenamedCell, version=2)


@lab_2.migrate(from_=1)
def _up(old: Cell, _m: Migration) -> RenamedCell:
    return RenamedCell(old.number, old.text, old.tags)


@lab_2.migrate(from_=2, to=1)
def _down(new: RenamedCell, _m: Migration) -> Cell:
    return Cell(new.amount, new.text, new.tags)


@lab_2.handler
def deposit(cell: RenamedCell, _ctx: Context, amount: int, tag: str) -> int:
    """Pay in; gives the new balance."""
    HOOKS.on_turn(tag, Cell(cell.amount, cell.text, cell.tags))
    cell.amount += amount
    cell.tags.append(tag)
    return cell.amount


@lab_2.handler(keys=("source", "target"))
def transfer(cells: Mapping[str, RenamedCell], _ctx: Context, source: str, target: str, amount: int, tag: str) -> None:
    """Move between two accounts, or refuse."""
    if cells[source].amount < amount:
        raise NoFundsError(f"{source} holds {cells[source].amount}")
    cells[source].amount -= amount
    cells[target].amount += amount
    cells[source].tags.append(tag)


@lab_2.handler
def write(cell: RenamedCell, _ctx: Context, value: str, tag: str) -> None:
    """Set a register."""
    cell.text = value
    cell.tags.append(tag)


@lab_2.handler
def cas(cell: RenamedCell, _ctx: Context, old: str, new: str, tag: str) -> int:
    """Set a register if it holds `old`; gives 1 or 0."""
    cell.tags.append(tag)
    if cell.text != old:
        return 0
    cell.text = new
    return 1


@lab_2.query
def number(cell: RenamedCell) -> int:
    """Give a balance or a total."""
    return cell.amount


@lab_2.query
def text(cell: RenamedCell) -> str | None:
    """Give a register's value."""
    return cell.text


@dataclass(frozen=True, slots=True)
class LabCode:
    """One code.

    Attributes:
        version: what its author calls it.
        definition: its handlers.
        fingerprint: what the log calls it.
        migrate: gives the state of every key as this code keeps it, from what it is given.
    """

    version: int
    definition: Service
    fingerprint: bytes
    migrate: Callable[[Mapping[bytes, bytes]], dict[bytes, bytes]]


def carried(before: LabCode, to: LabCode, state: Mapping[bytes, bytes], *, lower: bool = True) -> dict[bytes, bytes]:
    """Give the state of every key as `to` keeps it, from what the code of before kept.

    Args:
        before: the code that served.
        to: the code that is to serve.
        state: of every key.
        lower: have an older code given its own shapes, which the code that served makes.
    """
    ours, theirs = before.definition, to.definition
    if lower and ours.version > theirs.version:
        state, misfits = migrate_all(state, Migrator(ours, None, time_us=0, limits=Limits(), target=theirs.version))
        assert not misfits, misfits
    return to.migrate(state)


def _as_first(state: Mapping[bytes, bytes]) -> dict[bytes, bytes]:
    """Read what is there with the first code's type: of another shape nothing is found."""
    held = {key: msgspec.msgpack.decode(data, type=Cell) for key, data in state.items()}
    return {key: msgspec.msgpack.encode(each) for key, each in held.items()}


def _to_second(state: Mapping[bytes, bytes]) -> dict[bytes, bytes]:
    old = {key: msgspec.msgpack.decode(data, type=Cell) for key, data in state.items()}
    return {key: msgspec.msgpack.encode(RenamedCell(each.number, each.text, each.tags)) for key, each in old.items()}


FIRST_CODE: Final = LabCode(1, lab, bytes(range(16)), _as_first)
SECOND_CODE: Final = LabCode(2, lab_2, bytes(range(16, 32)), _to_second)


def codes_of(definition: Service) -> tuple[LabCode, LabCode]:
    """Give the codes of the service that begins with this definition; each is upgraded to the other."""
    if definition is lab:
        return FIRST_CODE, SECOND_CODE
    first = replace(FIRST_CODE, definition=definition, migrate=dict)
    return first, replace(first, version=SECOND_CODE.version, fingerprint=SECOND_CODE.fingerprint)
