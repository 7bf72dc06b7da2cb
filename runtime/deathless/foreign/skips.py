"""Messages that an operator has a program never get, since each of its processes ends by them.

    <shard directory>/application/skip-<position, 20 digits>     JSON, linked whole under its name, and never changed

A skip is a part of what the program gets, as the topic is: every process of it, a replay too, gets the row without what
is skipped. So it is made only while no process lives that got past the row, and no checkpoint stands behind it
(`deathless ambrosia skip` looks). A process reads what is skipped when it starts.

A service that was restored, copied or forked gets other rows at the same positions, so a skip is of one incarnation.
What was skipped in another one is not skipped: the program ends by that message again, which does less harm than to
leave out one that nobody looked at.

A caller that waits for a skipped call is answered with an error by whichever program leads; one that hears it twice
changes nothing.

Guarantees: a skip is there whole or not at all, durable once `add` returns. Does not: look who is past a row. Imports
the engine's port, codec, protocols and this package.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from typing import Final

import msgspec

from deathless.base.errors import CorruptFrame, InvalidArgument
from deathless.base.foreign.binding import FOLDER
from deathless.codec.untrusted import read_json
from deathless.engine.ports import FileSystem
from deathless.foreign.rows import CALLERS, Given, What, decode_given, encode_items
from deathless.protocols.ambrosia.messages import Kind, Rpc, make_return

PREFIX: Final = f"{FOLDER}/skip-"
PARTIAL: Final = f"{FOLDER}/partial-skip"
SKIP_BYTES_MAX: Final = 1 << 20
TEXT: Final = b"an operator had the program skip the call, since it ended by it"


class Skip(msgspec.Struct, frozen=True, kw_only=True):
    """What is skipped of one row.

    Attributes:
        position: of the row.
        items: the places of its messages, from 0 on, that are skipped; empty: all.
        waiting: numbers of the callers' calls among them that want an answer.
        incarnation: of the service whose row it is; 0: of the one that reads it.
        at_us: when this was decided, microseconds of the wall clock.
    """

    position: int
    incarnation: int = 0
    items: tuple[int, ...] = ()
    waiting: tuple[int, ...] = ()
    at_us: int = 0


class Skips:
    """Those of one service.

    Args:
        files: whose root is the shard's directory.
    """

    def __init__(self, files: FileSystem) -> None:
        self._files = files

    def read(self, incarnation: int | None = None) -> dict[int, Skip]:
        """Give those of one incarnation of the service, or all, by position. Raises: CorruptFrame, OSError."""
        try:
            names = self._files.listing(FOLDER)
        except FileNotFoundError:
            return {}
        found = (self._read(f"{FOLDER}/{name}") for name in sorted(names) if f"{FOLDER}/{name}".startswith(PREFIX))
        return {each.position: each for each in found if incarnation is None or each.incarnation in (0, incarnation)}

    def add(self, skip: Skip) -> None:
        """Have this skipped. Raises: InvalidArgument: something of the row is skipped already; OSError."""
        files = self._files
        if PARTIAL.rpartition("/")[2] in files.listing(FOLDER):  # of one that was killed
            files.unlink(PARTIAL)
        handle = files.create(PARTIAL)
        try:
            files.write(handle, 0, msgspec.json.encode(skip))
            files.sync(handle)
            files.link(PARTIAL, _name(skip.position))
        except FileExistsError:
            if self._read(_name(skip.position)).incarnation in (0, skip.incarnation):
                raise InvalidArgument(
                    f"of the row at position {skip.position} something is skipped already",
                    remedy="`deathless ambrosia skip` without a position lists what is skipped",
                ) from None
            files.rename(PARTIAL, _name(skip.position))
        finally:
            files.close(handle)
            with contextlib.suppress(FileNotFoundError):
                files.unlink(PARTIAL)
        files.sync_folder(FOLDER)

    def _read(self, name: str) -> Skip:
        handle = self._files.open(name)
        try:
            data = self._files.read(handle, 0, SKIP_BYTES_MAX)
        finally:
            self._files.close(handle)
        try:
            return read_json(data, Skip)
        except msgspec.MsgspecError as error:
            raise CorruptFrame(f"{name}: {error}") from None


def _name(position: int) -> str:
    return f"{PREFIX}{position:020}"


def skip_of(position: int, row: Given, item: int | None, incarnation: int, at_us: int | None = None) -> Skip:
    """Give what to skip of a row.

    Args:
        position: of the row.
        row: that one.
        incarnation: of the service.
        item: the place of one message in it, from 0 on; None: all.
        at_us: when it is decided, microseconds of the wall clock; None: now.

    Raises: InvalidArgument: there is nothing of the kind in it.
    """
    if row.what == What.INITIAL:
        raise InvalidArgument(
            f"the row at position {position} is the program's own first message", remedy="a program is nothing without"
        )
    items = decode_given(row.items)
    if not items or (item is not None and item >= len(items)):
        raise InvalidArgument(
            f"the row at position {position} holds {len(items)} messages", remedy="count them from 0 on, with --item"
        )
    skipped = items if item is None else items[item : item + 1]
    waiting = tuple(each.sequence for each in skipped if each.kind is Kind.ASYNC and each.name == CALLERS)
    decided = time.time_ns() // 1000 if at_us is None else at_us
    one = () if item is None else (item,)
    return Skip(position=position, incarnation=incarnation, items=one, waiting=waiting, at_us=decided)


def without(row: Given, skip: Skip) -> Given:
    """Give a row without what is skipped of it; how far its lane is it tells all the same."""
    items = decode_given(row.items) if skip.items else ()
    kept = [each for at, each in enumerate(items) if at not in skip.items]
    return msgspec.structs.replace(row, items=encode_items(kept))


def answers(skip: Skip) -> Iterator[Rpc]:
    """Give what callers get in the place of an answer of the program."""
    for sequence in skip.waiting:
        yield make_return(CALLERS, Kind.EXCEPTION, TEXT, name="", sequence=sequence)
