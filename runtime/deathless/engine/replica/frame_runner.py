"""Runs a primary's frame, writes it, syncs it, and releases it at once where that may be.

    room? --> run --> write --> sync --> (may it be released at once, and is there no seal?) --yes--> released
     | no                                          | no
     '--> SpaceRefused                             '--> FrameSynced: the core proves and releases it

The order is that of I1: a look for the seal, which answers at once, follows the sync that it covers, and what is
confirmed is noted before it is shown. Replies of a plain frame are made ready before the sync, and everything else
about it is done once they have left: the caller waits for neither.

Guarantees: space is reserved before messages run (I6). Does not: decide when a frame is formed or released (core does).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from deathless.base.safeguards import Safeguards
from deathless.codec.frames import Frame, FrameKind, data_bytes
from deathless.core import effects as fx
from deathless.core import events as ev
from deathless.core.primary.suspicion import Runs, set_aside
from deathless.core.replica.replica import Replica
from deathless.engine.ports import Holder, LogStore
from deathless.engine.replica.met_times import MetTimes
from deathless.engine.replica.outside import Outside
from deathless.engine.replica.witness_keeper import WitnessKeeper
from deathless.engine.shard.shard import Executed, Shard
from deathless.execution.turn.running import Running


class Written(NamedTuple):
    """A frame that ran and stands in the log, and is not synced yet."""

    done: Executed
    frame: Frame
    raw: bytes
    run_s: float  # what running its messages took
    killers: list[bytes]  # handlers of what was parked in it


class Ran(NamedTuple):
    """What became of a frame."""

    event: ev.Event | None  # for the core; None: it was released
    effects: Sequence[fx.Effect] = ()  # what is to be done behind that
    proved_at: float | None = None  # when the look said that the lock is ours


class FrameRunner:
    """Of one engine, whose parts these are.

    Args:
        short_way: frames may be released at once: a look at the directory is what proves that we lead.
    """

    def __init__(
        self,
        *,
        core: Replica,
        shard: Shard,
        log: LogStore,
        outside: Outside,
        witness: WitnessKeeper,
        met: MetTimes,
        safeguards: Safeguards,
        short_way: bool,
    ) -> None:
        self.short_way = short_way
        self.met = met
        self._core = core
        self._shard = shard
        self._log = log
        self._outside = outside
        self._witness = witness
        self._safeguards = safeguards

    def run(self, wanted: fx.RunFrame, holder: Holder | None) -> Ran:
        """Run, write and sync a frame; released at once, nothing is left for the core but what `effects` says.

        Raises: whatever a broken invariant or the file system raises; the replica stops (I8).
        """
        # A plain frame was formed because it may be, and nothing came since.
        at_once = self.short_way and holder is not None and (wanted.plain or self._core.releases_at_once)
        written = self._write(wanted)
        if not isinstance(written, Written):
            return Ran(written)
        replies: dict[ev.Conn, list[bytes]] = {}
        plain = at_once and wanted.plain and written.done.plain
        if plain:
            replies = self._core.plain_replies(written.done.results)
        self._log.sync()
        if not at_once or holder is None or self._log.sealed(holder.epoch):
            return Ran(self._synced(written))
        if plain:
            self._witness.note(holder.epoch, written.frame.last_lsn, written.frame.chain)
            self._send(replies)
        event = self._synced(written)
        clock = self._outside.clock
        now = clock.now()
        out, effects = self._core.short_release(event, now, clock.wall_us(), plain=plain)
        if not plain:
            self._witness.note(holder.epoch, event.frame.last_lsn, event.frame.chain)
        self._send(out)
        return Ran(None, effects, now)

    def _send(self, out: dict[ev.Conn, list[bytes]]) -> None:
        send = self._outside.clients.send
        for conn, parts in out.items():
            send(conn, parts[0] if len(parts) == 1 else b"".join(parts))

    def _write(self, wanted: fx.RunFrame) -> Written | ev.SpaceRefused:
        """Run a frame's messages and write it; it is not synced yet."""
        runs, killers = wanted.runs, list[bytes]()
        room = self._reserve(runs)
        if room and wanted.try_out:
            runs, killers = self._without_killers(runs)
            room = self._reserve(runs)  # records that park carry more than what they park
        if not room:
            return ev.SpaceRefused(runs)
        clock, shard = self._outside.clock, self._shard
        first_lsn = shard.place.lsn + 1
        began = clock.now()
        done = shard.execute(runs)
        run_s = clock.now() - began
        frame, raw = self._log.append(
            FrameKind.DATA, done.payload, first_lsn=first_lsn, count=done.count, confirmed_lsn=wanted.confirmed_lsn
        )
        return Written(done, frame, raw, run_s, killers)

    def _synced(self, written: Written) -> ev.FrameSynced:
        """The frame that was written last is durable."""
        done, frame, raw, run_s, killers = written
        place = self._shard.place
        place.chain = frame.chain
        self.met.met(place.times.elapsed_us)
        roll, offset = self._log.last_place()
        return ev.FrameSynced(
            frame,
            raw,
            roll,
            offset,
            done.results,
            done.registered,
            place.times,
            done.sent,
            done.starts,
            done.stops,
            done.finished,
            done.spans,
            run_s,
            done.unknown,
            killers,
            done.inputs,
        )

    def _reserve(self, runs: Runs) -> bool:
        """Is there room for a frame of these?"""
        count = blob = 0
        for _, messages in runs:
            count += len(messages)
            blob += sum(map(len, messages))
        room = self._log.reserve(data_bytes(len(runs), count, blob))
        return room or not self._safeguards.reserve_before_run

    def _without_killers(self, runs: Runs) -> tuple[Runs, list[bytes]]:
        """Try a frame out until it survives; gives it with each message parked that a copy died of, and its handler.

        What is named a second time, although it was set aside, stays: it can't be left out of its frame.
        """
        killers: list[bytes] = []
        found: set[Running] = set()
        while (killer := self._outside.process.try_out(runs)) is not None and killer not in found:
            found.add(killer)
            of_stream = killer.session in self._shard.sessions.streams
            runs, method = set_aside(runs, killer.session, killer.seq, of_stream=of_stream)
            killers.append(method)
        return runs, killers
