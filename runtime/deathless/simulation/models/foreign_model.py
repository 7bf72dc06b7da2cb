"""Every interleaving of an application that emits late, its log, its receiver, and a takeover.

Why it exists: an application in another process gets inputs once they are logged and emits outputs when it likes; its
outputs are not logged, they are emitted again on replay (design 0030). Whether a receiver gets each of them once, and
never a mixture of two runs, depends on what is compared when, on what a checkpoint counts, and on what is delivered.
This model walks all interleavings, for the rules that we prescribe and for readings that look just as good.

The machines. A leads. It writes inputs, proves that it has no successor, delivers, and sends what its application
emits, item after item, to a receiver R, which logs and later confirms them. A confirmation is logged (a trim). S takes
over once A is dead or deposed: a standby that has been following, or a process that starts from a checkpoint. Inputs
come from a client that sends each until it is in the log of whoever leads.

    process   the log as it sees it; how much of that is confirmed, and handled; what its application has emitted
    chain     is modelled as the items themselves: equal chains are equal items

An append is durable at once (``takeover_model`` has the rest). What the log knows of outputs is known as soon as it is
confirmed, however far behind the application is.

The faults. A dies, or is deposed and goes on until it looks: what it writes then is seen by nobody.

What must hold: see ``Violation``. What it does NOT model: time, several targets, shapes, several takeovers.

Imports ``foreign_rules``. Pure.
"""

from collections.abc import Iterator
from enum import StrEnum
from typing import NamedTuple

from deathless.simulation.models.foreign_rules import Application, Impulse, Rules, Successor, Welcome, Witness

Items = tuple[str, ...]
IMPULSE = "J"


class Violation(StrEnum):
    """What must never be."""

    DIFFERS = "the receiver has what no one run gives"
    LOST = "nothing more can happen, nobody has stopped, and the receiver lacks something"
    STALL = "the application is deterministic, and somebody has stopped or waits for ever"


class Trim(NamedTuple):
    """An entry of the log: the receiver has confirmed these items."""

    confirmed: Items


Log = tuple[str | Trim, ...]
"""Inputs "1", "2" ..., impulses and trims."""


class Status(StrEnum):
    """What a process does."""

    LEADS = "leads"
    FOLLOWS = "follows"
    DEPOSED = "deposed"
    ENDED = "ended"
    STOPPED = "stopped with an error"


class Process(NamedTuple):
    """A coordinator and its application."""

    name: str
    status: Status
    log: Log = ()
    # Entries of `log`, from its beginning.
    confirmed: int = 0
    handled: int = 0
    # What the application has emitted to R, in all of its runs.
    emitted: Items = ()
    # Items up to this position are not kept, whether or not R has them.
    missing: int = 0
    # What R said that it has, at the connection; None: there is none.
    told: Items | None = None
    # Position that was sent last.
    sent: int = 0

    @property
    def trimmed(self) -> Items:
        """What the log says that R has confirmed."""
        trims = [entry.confirmed for entry in self.log[: self.confirmed] if isinstance(entry, Trim)]
        return trims[-1] if trims else ()

    @property
    def impulses(self) -> int:
        """Impulses that are confirmed, and so may go out."""
        return self.log[: self.confirmed].count(IMPULSE)


class Receiver(NamedTuple):
    """R: what it has of both lanes, how much of the first is confirmed, and whom it hears."""

    logged: Items = ()
    confirmed: int = 0
    impulses: int = 0
    hears: str = "A"


class Checkpoint(NamedTuple):
    """What a successor may start from."""

    handled: int = 0
    emitted: Items = ()
    missing: int = 0


class State(NamedTuple):
    """All of it."""

    log: Log
    # As far as it was proved.
    confirmed: int
    first: Process
    successor: Process
    receiver: Receiver
    checkpoint: Checkpoint = Checkpoint()
    impulse_was: bool = False


Step = tuple[str, State]


class ForeignModel:
    """The model of one reading, for ``explorer.explore``."""

    def __init__(self, rules: Rules) -> None:
        """Args: rules: the reading and the bounds. Raises nothing."""
        self._rules = rules

    def initial(self) -> State:
        """Return the state in which A leads an empty log, connected to R."""
        first = Process("A", Status.LEADS, told=())
        return State((), 0, first, Process("S", Status.FOLLOWS), Receiver())

    # ---- what must hold

    def fault(self, state: State) -> str:
        """Return which violation this state shows, or an empty string."""
        runs = self._runs(state.log)
        has = state.receiver.logged
        if self._rules.impulse is Impulse.IN_ONE_COUNT:  # one that was not logged may be lost, nothing else
            has = tuple(item for item in has if item != IMPULSE)
        if self._rules.application is Application.CLOCK and self._rules.witness is Witness.NEVER:
            # Whoever reads a clock may say two times, but each output once and in order.
            has, runs = tuple(item.rstrip("*") for item in has), runs[:1]
        if not any(has == run[: len(has)] for run in runs):
            return f"{Violation.DIFFERS}: {state.receiver.logged}, {runs}"
        if state.receiver.impulses > state.log.count(IMPULSE):
            return f"{Violation.DIFFERS}: an impulse that is not logged"
        if self._goes_on(state) or state.successor.status is Status.FOLLOWS:
            return ""
        if state.successor.status is Status.STOPPED:
            return f"{Violation.STALL}: {has}" if self._rules.application is Application.SAME else ""
        whole = any(has == run for run in runs) and state.receiver.impulses == state.log.count(IMPULSE)
        return "" if whole else f"{Violation.LOST}: {state.receiver.logged}, {runs}"

    def _goes_on(self, state: State) -> bool:
        """Return whether more than a fault can happen."""
        return any(not label.startswith("A is") for label, _ in self.steps(state))

    def _runs(self, log: Log) -> list[Items]:
        """Return what the log makes the application of each process emit."""
        names = ("A",) if self._rules.application is Application.SAME else ("A", "S")
        return [tuple(item for entry in log for item in self._emits(name, entry)) for name in names]

    def _emits(self, name: str, entry: str | Trim) -> Items:
        if isinstance(entry, Trim) or entry == IMPULSE:
            return ()
        if name != "A" and self._rules.application is Application.FEWER and entry == "1":
            return ()
        return (f"o{entry}*" if name != "A" and self._rules.application is Application.CLOCK else f"o{entry}",)

    # ---- steps

    def steps(self, state: State) -> Iterator[Step]:
        """Yield every step of each process, of R, and of what may go wrong."""
        for process in (state.first, state.successor):
            for label, after in self._act(state, process):
                yield f"{process.name} {label}", after
        receiver = state.receiver
        if receiver.confirmed < len(receiver.logged):
            yield "R confirms", state._replace(receiver=receiver._replace(confirmed=len(receiver.logged)))
        yield from self._checkpoints(state)
        if state.first.status is Status.LEADS:
            yield "A is dead", _put(state, state.first._replace(status=Status.ENDED))
            yield "A is deposed, and does not know", _put(state, state.first._replace(status=Status.DEPOSED))
        elif state.successor.status is Status.FOLLOWS:
            yield "S takes over", _put(state, self._successor(state))._replace(confirmed=len(state.log))

    def _successor(self, state: State) -> Process:
        process = state.successor
        if self._rules.successor is Successor.COLD:
            kept = state.checkpoint
            process = process._replace(handled=kept.handled, emitted=kept.emitted, missing=kept.missing)
        return process._replace(status=Status.LEADS, log=state.log, confirmed=len(state.log))

    def _checkpoints(self, state: State) -> Iterator[Step]:
        """Yield the next checkpoint of a follower whose application is deterministic."""
        at = state.checkpoint.handled + 1
        if self._rules.successor is not Successor.COLD or at > state.confirmed:
            return
        [emitted] = self._runs(state.log[:at])[:1]
        counted = emitted if self._rules.count_at_message else state.checkpoint.emitted
        missing = 0 if self._rules.output_in_checkpoint else len(counted)
        yield f"a checkpoint behind {at} entries", state._replace(checkpoint=Checkpoint(at, counted, missing))

    def _act(self, state: State, process: Process) -> Iterator[Step]:
        rules = self._rules
        if process.status is Status.FOLLOWS and rules.successor is Successor.STANDBY:
            process = process._replace(log=state.log, confirmed=state.confirmed)
            yield from self._handle(state, process, process.confirmed)
        if process.status not in {Status.LEADS, Status.DEPOSED}:
            return
        yield from self._write(state, process)
        yield from self._handle(state, process, process.confirmed if rules.deliver_confirmed else len(process.log))
        if state.receiver.hears != process.name and (process.status is Status.LEADS or not rules.fences):
            if process.told is None:
                yield from self._connect(state, process)
            elif rules.fences:
                return
        if process.told is not None and (state.receiver.hears == process.name or not rules.fences):
            yield from self._send(state, process)

    def _write(self, state: State, process: Process) -> Iterator[Step]:
        """Yield what grows the log, and the proof."""
        leads = process.status is Status.LEADS

        def append(entry: str | Trim) -> State:
            log = (*process.log, entry)
            return _put(state, process._replace(log=log))._replace(log=log if leads else state.log)

        todo = [str(number) for number in range(1, self._rules.inputs + 1) if str(number) not in process.log]
        if todo:
            yield f"writes input {todo[0]}", append(todo[0])
        if process.confirmed < len(process.log):
            if leads:
                proved = process._replace(confirmed=len(process.log))
                known = [entry.confirmed for entry in process.log[process.confirmed :] if isinstance(entry, Trim)]
                yield "proves", self._judge(_put(state, proved)._replace(confirmed=len(process.log)), proved, known)
            else:
                yield "looks, and finds itself deposed", _put(state, process._replace(status=Status.ENDED))
        if not state.impulse_was and self._rules.impulse is Impulse.LOGGED_FIRST:
            yield "logs an impulse", append(IMPULSE)._replace(impulse_was=True)
        if not state.impulse_was and self._rules.impulse is Impulse.IN_ONE_COUNT:
            emitted = process._replace(emitted=(*process.emitted, IMPULSE))
            yield "emits an impulse", _put(state, emitted)._replace(impulse_was=True)
        has = state.receiver.logged[: state.receiver.confirmed]
        if leads and has and process.told is not None and not any(isinstance(entry, Trim) for entry in process.log):
            yield "logs a trim", append(Trim(has))

    def _handle(self, state: State, process: Process, limit: int) -> Iterator[Step]:
        if process.handled >= limit:
            return
        entry = process.log[process.handled]
        emitted = (*process.emitted, *self._emits(process.name, entry))
        after = process._replace(handled=process.handled + 1, emitted=emitted)
        known = [process.trimmed] if process.trimmed else []
        if process.told:
            known.append(process.told)
        yield f"handles entry {process.handled + 1}", self._judge(_put(state, after), after, known)

    def _judge(self, state: State, process: Process, known: list[Items]) -> State:
        """Stop the process if its application emitted something else than is known."""
        if self._rules.witness is Witness.NEVER:
            return state
        for items in known:
            may_compare = self._rules.trim_has_chain or items is process.told
            if self._rules.witness is Witness.ON_FORGETTING and items is process.told:
                continue
            if may_compare and len(process.emitted) >= len(items) and process.emitted[: len(items)] != items:
                return _put(state, process._replace(status=Status.STOPPED))
        return state

    def _connect(self, state: State, process: Process) -> Iterator[Step]:
        receiver = state.receiver
        if self._rules.welcome is Welcome.ALL_ADMITTED and receiver.confirmed < len(receiver.logged):
            return
        told = receiver.logged[: receiver.confirmed]
        after = process._replace(told=told, sent=len(told))
        if not self._rules.waits_behind and len(after.emitted) < len(told):
            after = after._replace(status=Status.STOPPED)
        connected = _put(state, after)._replace(receiver=receiver._replace(hears=process.name))
        yield "connects to R", self._judge(connected, after, [told])

    def _send(self, state: State, process: Process) -> Iterator[Step]:
        """Yield the next item of each lane, and the comparison of what is to be forgotten."""
        receiver, position = state.receiver, process.sent + 1
        assert process.told is not None
        kept = position > process.missing
        behind = self._rules.witness is Witness.BEFORE_FIRST_BYTE and len(process.emitted) < len(process.told)
        if position <= len(process.emitted) and kept and not behind:
            item = process.emitted[position - 1]
            logged = (*receiver.logged, item) if position == len(receiver.logged) + 1 else receiver.logged
            after = _put(state, process._replace(sent=position))
            if position <= len(receiver.logged) + 1:
                yield f"sends {item} at {position}", after._replace(receiver=receiver._replace(logged=logged))
        if receiver.impulses < process.impulses:
            yield "sends the impulse", state._replace(receiver=receiver._replace(impulses=receiver.impulses + 1))
        has = receiver.logged[: receiver.confirmed]
        if self._rules.witness is Witness.ON_FORGETTING and process.emitted[: len(has)] != has[: len(process.emitted)]:
            yield "forgets, and finds a difference", _put(state, process._replace(status=Status.STOPPED))


def _put(state: State, process: Process) -> State:
    return state._replace(first=process) if process.name == "A" else state._replace(successor=process)
