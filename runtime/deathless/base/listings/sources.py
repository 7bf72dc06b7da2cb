"""What operators are shown of sources: their streams, and rows that were refused.

The entries of streams are those of the page `/-/sources` and of `deathless sources list --json`; `shell.link` makes
them. Those of refused rows are what a primary answers to `streams`.

Guarantees: the same columns and words for `deathless` and `kubectl deathless`. Does not: print, or ask anybody.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from typing import Final

import msgspec

from deathless.base.listings.texts import show_time

NO_SOURCES: Final = "the service has no sources"
NONE_REFUSED: Final = "no row was refused"
COLUMNS: Final = ("source", "stream", "input", "state", "taken in", "behind", "problem")
REFUSED_COLUMNS: Final = ("shard", "lsn", "stream", "row", "stands", "refused at", "why", "what it was")
STREAMS_SHOWN_MAX: Final = 1000  # streams in one answer of a primary, be it of all sources or of one
PROBLEM_MAX: Final = 100  # characters in a table
WHY_MAX: Final = 80
RETRY, SKIP = "retry-input", "skip-input"  # orders; `codec.peer_messages` has the same
RUN, DROP, FORGET = "run-input", "drop-input", "forget-stream"  # likewise


class Refused(msgspec.Struct, rename="camel"):
    """A refused input; fields as `shell.worker.streams` gives them."""

    lsn: int
    stream: int
    session: int
    seq: int
    id: int  # -1: a row that had waited for its key
    at_us: int
    code: str
    why: str
    key: str
    row: str
    stands: bool
    shard: int = 0  # whose log has it
    kept: bool = False  # the row itself, so that it can be run again


class StreamOfShard(msgspec.Struct, rename="camel"):
    """A stream as one shard's log has it."""

    stream: int
    session: int
    taken_in: int
    on_refusal: str
    refused: int
    stands: bool
    shard: int = 0


class Streams(msgspec.Struct):
    """What the logs of one shard, or of several, have of a source."""

    streams: list[StreamOfShard]
    refused: list[Refused]
    standing: list[Refused]
    count: int  # of refused inputs that are listed, also of those that are not shown here
    more: bool  # there are refused inputs behind the last one that is shown

    def rows(self, stream: int | None) -> list[Refused]:
        """Give what was refused, that at which streams stand first.

        Args:
            stream: of this one alone; None: of all.
        """
        return [each for each in (*self.standing, *self.refused) if stream in (None, each.stream)]

    def untried(self, tried: Container[int], stream: int | None) -> list[Refused]:
        """Give at what streams stand that were not told to go on yet.

        Args:
            tried: sessions of those that were.
            stream: of this one alone; None: of all.
        """
        return [each for each in self.standing if each.session not in tried and stream in (None, each.stream)]


class Ran(msgspec.Struct):
    """What an order to run a refused row again came to; fields as the primary answers."""

    done: bool = True
    code: str = ""  # with which it was refused again
    why: str = ""


class Replayed(msgspec.Struct, rename="camel"):
    """What became of refused rows that were run again."""

    ran: int = 0
    refused_again: list[int] = []  # lsns, each of its shard
    why: list[str] = []  # the reasons of now, in the same order

    def again(self, lsn: int, code: str, why: str) -> None:
        """Note that a row was refused again."""
        self.refused_again.append(lsn)
        self.why.append(f"{code} {why}")

    def told(self, name: str) -> dict[str, object]:
        """Give it for programs."""
        return {"source": name, "ran": self.ran, "refusedAgain": self.refused_again, "why": self.why}

    def lines(self) -> list[str]:
        """Say which rows were refused again, and why."""
        both = zip(self.refused_again, self.why, strict=True)
        return [f"lsn {lsn} is refused again: {why}" for lsn, why in both]


def stream_rows(entries: Iterable[Mapping[str, object]]) -> list[Sequence[object]]:
    """Give the rows of a table of streams."""
    return [
        (each["source"], each["stream"], each["input"], each["state"], each["takenIn"], each["behind"],
         str(each["problem"])[:PROBLEM_MAX])
        for each in entries
    ]  # fmt: skip


def refused_rows(refused: Iterable[Refused]) -> list[Sequence[object]]:
    """Give the rows of a table of refused inputs."""
    return [
        (each.shard, each.lsn, each.stream, each.id if each.id >= 0 else "late", "yes" if each.stands else "",
         show_time(each.at_us), f"{each.code} {each.why}"[:WHY_MAX], each.row[:WHY_MAX])
        for each in refused
    ]  # fmt: skip


def of_shard(told: Streams, shard: int) -> Streams:
    """Give the same with the shard noted whose log has it."""
    for stream in told.streams:
        stream.shard = shard
    for each in (*told.refused, *told.standing):
        each.shard = shard
    return told


def more_refused(told: Streams) -> str:
    """Say how to see the refused inputs behind those that were shown."""
    last = told.refused[-1]
    return f"shard {last.shard} has more of them: --from {last.lsn + 1} shows those that follow"


def chosen(told: Streams, stream: int | None, lsns: Iterable[int]) -> list[Refused]:
    """Give what of one answer is to be run again, or discarded.

    Args:
        told: the answer.
        stream: of this one alone; None: of all.
        lsns: those named; none: each of which the row is kept.
    """
    named = set(lsns)
    return [
        each for each in told.refused if stream in (None, each.stream) and (each.lsn in named if named else each.kept)
    ]


def replayed(name: str, done: Replayed) -> str:
    """Say what became of refused rows that were run again."""
    return f"source {name}: {done.ran} taken in, {len(done.refused_again)} refused again"


def discarded(name: str, count: int) -> str:
    """Say that refused rows are listed no more."""
    return f"source {name}: {count} discarded"


def meaning(name: str, streams: Iterable[StreamOfShard]) -> list[str]:
    """Say what it would mean that streams are forgotten."""
    return [
        f"source {name}, stream {each.stream}, shard {each.shard}: it is not known any more that rows up to "
        f"{each.taken_in} were taken in; opened again, it begins at its first row, and they are taken in once more"
        for each in streams
    ]


def forgotten(name: str, each: StreamOfShard) -> str:
    """Say that a stream is forgotten."""
    return f"source {name}, stream {each.stream}, shard {each.shard}: forgotten"


def gone_on(name: str, each: Refused, order: str) -> str:
    """Say that a stream goes on.

    Args:
        name: of the source.
        each: at which the stream stood.
        order: RETRY or SKIP.
    """
    which = f"row {each.id}" if each.id != -1 else "a row that had waited"
    what = "is tried again" if order == RETRY else "is passed over"
    return f"source {name}, stream {each.stream}, shard {each.shard}: {which} {what}"


def gone_on_told(name: str, done: Iterable[Refused], order: str) -> dict[str, object]:
    """Give the same of all rows, for programs."""
    rows = [{"shard": each.shard, "stream": each.stream, "row": each.id} for each in done]
    return {"source": name, "done": order.removesuffix("-input"), "rows": rows}
