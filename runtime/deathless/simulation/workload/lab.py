"""The service that simulated clusters run: what the workload asks for, and what a poisonous message does.

Why its own: the state of a key keeps the tag of every change that was applied to it, so the recovered state itself
says what was done, once or twice or never (checkers.exactly_once). A scenario can hang a hook on every turn: it may
block, kill the process, or make this replica compute something else than the others.

Guarantees: handlers are functions of state and arguments, unless a hook is set. Does not: know clusters. May import
execution and below, workload, checkers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

import msgspec

from deathless.base.errors import Invalid, Parked, SessionExpired
from deathless.codec.messages import Kind, encode
from deathless.codec.wire import ReplyError, Status
from deathless.execution.author.service import Service
from deathless.execution.turn.context import Context
from deathless.simulation.checkers.history import Value
from deathless.simulation.checkers.models import FUNDS
from deathless.simulation.workload.workload import Request

SERVICE_NAME: Final = "lab"
FUNDS_CODE: Final = "LAB01"
NEVER_RUN: Final[tuple[Value, ...]] = (("error", SessionExpired.code), ("error", Parked.code))
"""Results of messages that are in the log and had no turn: the session ended before it, or the message is parked."""


class Cell(msgspec.Struct):
    """State of a key."""

    number: int = 0  # balance of an account, total of a counter
    text: str | None = None  # value of a register
    tags: list[str] = []  # changes applied, in order


class _AnyCell(Cell):
    """As this code or the second one keeps it (codes)."""

    amount: int = 0

    def cell(self) -> Cell:
        return Cell(self.number + self.amount, self.text, self.tags)


class NoFundsError(Invalid):
    """The source account holds less than is to be moved."""

    code = FUNDS_CODE


class Hooks:
    """What a scenario hangs on the turns of all replicas; one per interpreter, reset by each cluster."""

    def __init__(self) -> None:
        self.on_turn: Callable[[str, Cell], None] = _no_hook  # (tag, state) before the change

    def reset(self) -> None:
        """Forget every hook."""
        self.on_turn = _no_hook


def _no_hook(_tag: str, _cell: Cell) -> None:
    """Handlers do what they say."""


HOOKS: Final = Hooks()
lab: Final = Service(SERVICE_NAME, state=Cell)


@lab.handler
def deposit(cell: Cell, _ctx: Context, amount: int, tag: str) -> int:
    """Pay in; gives the new balance."""
    HOOKS.on_turn(tag, cell)
    cell.number += amount
    cell.tags.append(tag)
    return cell.number


@lab.handler(keys=("source", "target"))
def transfer(cells: Mapping[str, Cell], _ctx: Context, source: str, target: str, amount: int, tag: str) -> None:
    """Move between two accounts, or refuse."""
    HOOKS.on_turn(tag, cells[source])
    if cells[source].number < amount:
        raise NoFundsError(f"{source} holds {cells[source].number}")
    cells[source].number -= amount
    cells[target].number += amount
    cells[source].tags.append(tag)


@lab.handler
def write(cell: Cell, _ctx: Context, value: str, tag: str) -> None:
    """Set a register."""
    HOOKS.on_turn(tag, cell)
    cell.text = value
    cell.tags.append(tag)


@lab.handler
def cas(cell: Cell, _ctx: Context, old: str, new: str, tag: str) -> int:
    """Set a register if it holds `old`; gives 1 or 0."""
    HOOKS.on_turn(tag, cell)
    cell.tags.append(tag)
    if cell.text != old:
        return 0
    cell.text = new
    return 1


@lab.query
def number(cell: Cell) -> int:
    """Give a balance or a total."""
    return cell.number


@lab.query
def text(cell: Cell) -> str | None:
    """Give a register's value."""
    return cell.text


class _Arguments(msgspec.Struct):
    """What is looked at of a logged message's arguments."""

    tag: str = ""


_encode: Final = msgspec.msgpack.Encoder().encode
_decode_tag: Final = msgspec.msgpack.Decoder(_Arguments).decode
_METHODS: Final = {"deposit": b"deposit", "add": b"deposit", "transfer": b"transfer", "write": b"write", "cas": b"cas"}
_QUERIES: Final = {"bank": b"number", "counter": b"number", "register": b"text"}


def encode_request(request: Request) -> bytes:
    """Give the bytes of the CALL message of a request."""
    if request.is_read:
        return encode(Kind.CALL, method=_QUERIES[request.model], key=request.keys[0].encode(), args=_encode({}))
    arguments: dict[str, Value] = {"tag": request.tag}
    if request.action == "transfer":
        arguments |= {"source": request.keys[0], "target": request.keys[1], "amount": request.argument}
    elif request.action == "write":
        arguments["value"] = request.argument
    elif request.action == "cas":
        assert isinstance(request.argument, tuple)
        arguments["old"], arguments["new"] = request.argument
    else:
        arguments["amount"] = request.argument
    return encode(
        Kind.CALL,
        method=_METHODS[request.action],
        key=request.keys[0].encode(),
        idempotency_key=request.idempotency_key,
        args=_encode(arguments),
    )


def decode_result(reply: bytes) -> Value:
    """Give the result a reply carries, as the models name it; an error is ("error", its code)."""
    if reply[0] == Status.OK:
        return msgspec.msgpack.decode(reply[1:], type=int | str | None)
    error = msgspec.msgpack.decode(reply[1:], type=ReplyError)
    return FUNDS if error.code == FUNDS_CODE else ("error", error.code)


def tag_of(arguments: bytes) -> str:
    """Give the tag in a logged message's arguments."""
    return _decode_tag(arguments).tag


def cells_of(state: Mapping[bytes, bytes]) -> dict[str, Cell]:
    """Decode the state of every key, whichever code keeps it."""
    return {key.decode(): msgspec.msgpack.decode(data, type=_AnyCell).cell() for key, data in sorted(state.items())}
