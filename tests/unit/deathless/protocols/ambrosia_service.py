"""A replicated service around both ends of the AMBROSIA client protocol: a fake log, a receiver, kills at any moment.

Why it exists: each end has tests of its own; what nobody may lose or get twice shows only where both talk through cuts
and restarts. An application over the reference binding runs behind a coordinator's machine, twice: one process leads,
one follows. Everything between them is a list of bytes that is moved in pieces, and every step is drawn by its caller.

The owner here does what an engine does with the machine: it logs, confirms, delivers what is confirmed, tells what the
log and the receiver know, sends what a lane releases, keeps checkpoints and takes over. What the application must have
emitted is a function of the log alone (`expected`), computed without either end.

Does not: model time, partitions, or a deposed primary (`deathless.simulation.models.foreign_model` does).
"""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from deathless.protocols.ambrosia import events as on
from deathless.protocols.ambrosia.events import Effect, Event, Socket
from deathless.protocols.ambrosia.items import EMPTY, bytes_of, chain_of, shape_of
from deathless.protocols.ambrosia.lanes import Compare, Difference, Expectation, LaneState
from deathless.protocols.ambrosia.machine import ApplicationMachine
from deathless.protocols.ambrosia.messages import SELF, Kind, Rpc, make_call, make_return
from deathless.protocols.ambrosia.states import State
from deathless.protocols.ambrosia_binding import binding as bound
from deathless.protocols.ambrosia_binding.binding import Binding
from deathless.protocols.ambrosia_binding.encoding import Call, CallType, Outcome

BANK = "bank"
FROM_CLIENT, CONTINUED, PUSHED = 1, 2, 3  # methods of the application
PIECE_BYTES = 700
TO_SELF, TO_BANK, TWICE = 1, 2, 4  # bits of an input: what it makes the application emit


class Ledger:
    """The application's code and state: every input changes the state, and what is emitted depends on both.

    Args:
        fault: "fewer" leaves out every third output to the bank, "clock" puts something else into it.
    """

    def __init__(self, fault: str = "") -> None:
        self.count, self.total, self.fault = 0, "", fault
        self.version = 1
        self.outputs: list[bytes] = []  # to the bank, all of them, in this run and those that it goes on from

    def handle(self, method: int, arguments: bytes) -> Iterator[tuple[str, int, bytes]]:
        """Take an input, and give (target, method, arguments) of what it makes us emit."""
        self.count += 1
        self.total = hashlib.sha256(f"{self.total}{method}".encode() + arguments).hexdigest()
        what = arguments[0] if arguments else 0
        if what & TO_SELF:
            yield "", CONTINUED, bytes([what & ~TO_SELF]) + arguments[1:]
        for number in range(bool(what & TO_BANK) + bool(what & TWICE)):
            if self.fault == "fewer" and self.count % 3 == 0:
                continue
            when = "later" if self.fault == "clock" else "v2" * (self.version - 1)
            yield BANK, FROM_CLIENT, f"{number}:{self.total[:20]}{when}".encode()

    def save(self) -> bytes:
        """Give the state, padded so that it goes in pieces."""
        return json.dumps([self.version, self.count, self.total, [each.hex() for each in self.outputs]]).encode()

    def load(self, data: bytes) -> None:
        """Go on from a state."""
        self.version, self.count, self.total, outputs = json.loads(data)
        self.outputs = [bytes.fromhex(output) for output in outputs]


class Application:
    """One process of the application, over the binding."""

    def __init__(self, fault: str = "") -> None:
        self.binding = Binding("me")
        self.ledger = Ledger(fault)
        self.loading = bytearray()

    def run(self, data: bytes) -> bytes:
        """Take bytes, do what they ask for, and give what is to be sent."""
        self.binding.receive(data)
        while (event := self.binding.next_event()) is not None:
            self.take(event)
        return self.binding.outgoing()

    def take(self, event: bound.Event) -> None:
        """Do what an event asks for."""
        match event:
            case bound.FirstStart():
                self.binding.initial(bytes([TO_SELF | TO_BANK]))
                self.save()
            case bound.RestoreBegins():
                self.loading.clear()
            case bound.RestorePart():
                self.loading += event.data
            case bound.RestoreEnds():
                self.ledger.load(bytes(self.loading))
            case bound.SaveDue():
                self.save()
            case bound.UpgradeNow():
                self.ledger.version = 2
                self.binding.impulse(PUSHED, b"\x02of the new code")
            case bound.InitialCame():
                self.handle(0, event.data)
            case Call():
                self.handle(event.method, event.arguments)
                if event.type is CallType.AWAITED:
                    self.binding.answer(event, Outcome.VALUE, event.arguments)
                    answer = make_return(BANK, Kind.VALUE, event.arguments, name="me", sequence=event.number)
                    self.ledger.outputs.append(bytes_of(answer))
            case _:
                pass

    def handle(self, method: int, arguments: bytes) -> None:
        """Take an input."""
        for to, called, given in self.ledger.handle(method, arguments):
            self.binding.fork(called, given, to=to)
            if to:
                self.ledger.outputs.append(bytes_of(make_call(to, called, Kind.FORK, given)))

    def save(self) -> None:
        """Send the state in pieces."""
        state = self.ledger.save()
        self.binding.begin_save(len(state))
        for at in range(0, len(state), PIECE_BYTES):
            self.binding.save(state[at : at + PIECE_BYTES])


class Entry(NamedTuple):
    """One entry of the log: an input that is delivered, something that is known of outputs, or both."""

    rpc: Rpc | None = None
    initial: bytes | None = None
    target: str = ""  # `known` is of this lane
    known: Expectation | None = None


class Kept(NamedTuple):
    """A checkpoint."""

    lsn: int
    records: int
    lanes: tuple[LaneState, ...]
    state: bytes


class Chain:
    """The items of a lane as a log or a receiver has them."""

    def __init__(self) -> None:
        self.items: list[Rpc] = []
        self.chain = EMPTY

    def add(self, item: Rpc) -> Expectation:
        """Take the next item."""
        self.items.append(item)
        self.chain = chain_of(self.chain, bytes_of(item))
        return self.known

    @property
    def known(self) -> Expectation:
        """What is known of it at its end."""
        return Expectation(len(self.items), self.chain, shape_of(self.items[-1]))


class Process:
    """A coordinator's machine and the application behind it."""

    def __init__(self, service: Service, fault: str) -> None:
        self.service = service
        self.machine = ApplicationMachine(name="me", committer=7, policy=service.policy)
        self.application = Application(fault)
        self.to_application, self.to_machine = bytearray(), bytearray()
        self.read = 0  # entries of the log whose knowledge was told
        self.delivered = 0  # entries that were delivered, or need not be
        self.sent = 0  # position of what was sent to the bank last
        self.begun: on.CheckpointBegan | None = None
        self.state = bytearray()
        self.initial: bytes | None = None
        self.open = False  # the bank knows this process
        self.loaded = Ledger()  # what the application was given to begin with
        self.order(on.SocketOpened(socket=Socket.RECEIVE))
        self.order(on.SocketOpened(socket=Socket.SEND))

    @property
    def alive(self) -> bool:
        """Whether it was not ended."""
        return self.machine.state is not State.GONE

    @property
    def leads(self) -> bool:
        """Whether its application was told to."""
        return self.machine.state in {State.LEADING, State.LEADING_SNAPSHOT}

    @property
    def outputs(self) -> list[bytes]:
        """What the application emitted to the bank, in this run and those that it goes on from."""
        begins = self.application.binding.phase in {bound.Phase.FRESH, bound.Phase.RESTORING}
        return self.loaded.outputs if begins else self.application.ledger.outputs

    def order(self, event: Event) -> None:
        """Tell the machine, and do what it wants."""
        for effect in self.machine.handle(event):
            self.do(effect)
        self.machine.check_invariants()

    def do(self, effect: Effect) -> None:
        """Carry out one effect."""
        match effect:
            case on.Send():
                self.to_application += effect.data
            case on.InitialMade():
                self.initial = effect.data
            case on.CheckpointBegan():
                self.begun = effect
                self.state.clear()
            case on.CheckpointPart():
                self.state += effect.data
            case on.CheckpointEnded():
                assert self.begun is not None and len(self.state) == self.begun.length
                self.service.keep(Kept(self.begun.lsn, self.begun.records, self.begun.lanes, bytes(self.state)))
            case on.ImpulseEmitted():
                assert self.leads
                self.service.log.append(Entry(rpc=effect.rpc))
            case on.Differs():
                self.service.differences.append(effect.difference)
            case on.End():
                self.service.errors.append(str(effect.error))
            case on.Loaded() | on.Attach() | on.Emitted() | on.CheckpointWanted() | on.OutputRefused():
                pass  # outputs are taken from their lanes

    def move(self, size: int, *, back: bool) -> None:
        """Move so many bytes one way."""
        if back:
            data, self.to_machine = bytes(self.to_machine[:size]), self.to_machine[size:]
            self.order(on.BytesReceived(data=data))
        else:
            data, self.to_application = bytes(self.to_application[:size]), self.to_application[size:]
            self.to_machine += self.application.run(data)

    def hear(self) -> None:
        """Tell what the log knows of outputs; it runs ahead of delivery."""
        if self.machine.state is State.WAITING:
            return
        self.order(on.Confirmed(lsn=self.service.confirmed))
        while self.read < (len(self.service.log) if self.service.tells_early else self.service.confirmed):
            entry = self.service.log[self.read]
            self.read += 1
            if entry.known is not None:
                self.order(on.EffectKnown(target=entry.target, known=entry.known._replace(lsn=self.read)))

    def deliver(self, count: int) -> None:
        """Deliver at most so many confirmed inputs, as one record."""
        self.hear()
        if not self.machine.may_deliver:
            return
        rpcs: list[Rpc] = []
        end = len(self.service.log) if self.service.delivers_early else self.service.confirmed
        while self.delivered < end and len(rpcs) < count:
            entry = self.service.log[self.delivered]
            if entry.initial is not None:
                if rpcs:
                    break
                self.delivered += 1
                self.order(on.DeliverInitial(lsn=self.delivered, data=entry.initial))
                return
            self.delivered += 1
            rpcs += [entry.rpc] if entry.rpc is not None else []
        if rpcs:
            self.order(on.Deliver(lsn=self.delivered, rpcs=tuple(rpcs)))

    def load(self, kept: Kept) -> None:
        """Recover from a checkpoint."""
        self.read = self.delivered = kept.lsn
        self.loaded.load(kept.state)
        self.order(on.Load(length=len(kept.state), lsn=kept.lsn, records=kept.records, lanes=kept.lanes))
        for at in range(0, len(kept.state), PIECE_BYTES):
            self.order(on.LoadPart(data=kept.state[at : at + PIECE_BYTES]))


class Service:
    """Two processes, a log, and the bank.

    Args:
        policy: for outputs that differ.
        fault: of every process of the application but the first.
        delivers_early: an owner that delivers what is not confirmed.
        tells_early: an owner that tells what the log knows of outputs before that is confirmed.
    """

    def __init__(
        self,
        policy: Compare = Compare.BYTES,
        fault: str = "",
        *,
        delivers_early: bool = False,
        tells_early: bool = False,
    ) -> None:
        self.policy, self.fault = policy, fault
        self.delivers_early, self.tells_early = delivers_early, tells_early
        self.log: list[Entry] = []
        self.confirmed = 0
        self.checkpoint: Kept | None = None
        self.selves, self.bank = Chain(), Chain()
        self.differences: list[Difference] = []
        self.errors: list[str] = []
        self.mixed: list[str] = []
        self.takeovers = 0
        self.processes = [Process(self, ""), Process(self, fault)]
        self.primary = self.processes[0]
        self.primary.order(on.Begin())

    @property
    def stopped(self) -> bool:
        """Whether a difference or error has ended a process."""
        return any(error != "None" for error in self.errors)

    def keep(self, kept: Kept) -> None:
        """A checkpoint is whole."""
        if self.checkpoint is None or kept.lsn >= self.checkpoint.lsn:
            self.checkpoint = kept

    # ------------------------------------------------------------ steps

    def follow(self) -> None:
        """A process that has just started recovers, once there is something to recover."""
        for process in self.processes:
            if process.machine.state is State.WAITING and self.log and self.checkpoint:
                process.load(self.checkpoint)

    def begin_log(self) -> None:
        """What the application said first becomes the first entry, behind its first checkpoint."""
        if self.primary.leads and not self.log and self.primary.initial is not None:
            self.log.append(Entry(initial=self.primary.initial))

    def call(self, what: int) -> None:
        """A client sends an input."""
        if self.log and self.primary.leads:
            kind = Kind.ASYNC if what & 32 else Kind.FORK
            rpc = make_call(SELF, FROM_CLIENT, kind, bytes([what & 7, what]), name=BANK, sequence=what)
            self.log.append(Entry(rpc=rpc))

    def push(self, what: int) -> None:
        """Something outside makes the primary's application send an impulse."""
        binding = self.primary.application.binding
        if binding.primary and self.log and self.primary.leads:
            binding.impulse(PUSHED, bytes([what & 7, what]))
            self.primary.to_machine += binding.outgoing()

    def log_self(self) -> None:
        """The primary logs what its application sent to itself."""
        if self.primary.leads and self.log:
            lane = self.primary.machine.lane(SELF)
            for position, item in list(lane.kept_from(len(self.selves.items) + 1)):
                if position == len(self.selves.items) + 1 and isinstance(item, Rpc) and not lane.fatal:
                    self.log.append(Entry(rpc=item, target=SELF, known=self.selves.add(item)))
            self.primary.hear()

    def confirm(self) -> None:
        """Everything logged is durable, and its primary was not deposed."""
        self.confirmed = len(self.log)
        self.primary.order(on.Confirmed(lsn=self.confirmed))

    def send(self, count: int) -> None:
        """The primary connects to the bank, or sends it something."""
        process = self.primary
        if not process.leads:
            return
        lane = process.machine.lane(BANK)
        if not process.open:
            process.open, process.sent = True, len(self.bank.items)
            process.order(on.Welcomed(target=BANK, known=self.bank.known if self.bank.items else None))
            return
        first = lane.release_from
        if first is None:
            return
        for position, item in list(lane.kept_from(max(first, process.sent + 1)))[:count]:
            assert isinstance(item, Rpc)
            had = len(self.bank.items)
            if position != had + 1 or process.outputs[:had] != texts(self.bank.items):
                self.mixed.append(f"position {position} was sent to a bank that has {had}, and they are no one run")
                return
            self.bank.add(item)
            process.sent = position

    def trim(self) -> None:
        """The primary logs what the bank has."""
        if self.primary.leads and self.primary.open and self.bank.items and self.log:
            self.log.append(Entry(target=BANK, known=self.bank.known))

    def take_checkpoint(self, process: Process) -> None:
        """A checkpoint is due."""
        if process.delivered and process.machine.state in {State.FOLLOWING, State.LEADING}:
            process.order(on.TakeCheckpoint())

    def kill(self, index: int, *, tail_survives: bool) -> None:
        """A process dies with its coordinator; if it led, the other takes over."""
        dead = self.processes[index]
        dead.order(on.SocketEnded(socket=Socket.SEND))
        self.processes[index] = Process(self, self.fault)
        if dead is self.primary:
            self.take_over(1 - index, tail_survives=tail_survives)

    def take_over(self, index: int, *, tail_survives: bool) -> None:
        """A process becomes primary; what was not confirmed may be gone."""
        self.takeovers += 1
        if not tail_survives:
            del self.log[self.confirmed :]
            self.selves = Chain()
            for entry in self.log:
                if entry.target == SELF and entry.known is not None and entry.rpc is not None:
                    self.selves.add(entry.rpc)
        self.confirmed = len(self.log)
        process = self.primary = self.processes[index]
        if not self.log:
            if process.machine.state is not State.WAITING:
                process = self.primary = self.processes[index] = Process(self, self.fault)
            process.order(on.Begin())

    def lead(self) -> None:
        """A process that took over is told so, once everything of before is delivered."""
        process = self.primary
        if not process.leads and self.log and process.machine.state is State.FOLLOWING:
            process.hear()
            while process.delivered < self.confirmed:
                process.deliver(3)
            process.order(on.Lead())

    def step(self, chance: random.Random) -> None:
        """Do one thing."""
        process = chance.choice(self.processes)
        size = chance.choice([1, 7, 40, 400, 100_000])
        what = chance.randrange(64)
        match chance.randrange(20):
            case 0 | 1 | 2 | 3:
                process.move(size, back=False)
            case 4 | 5 | 6 | 7:
                process.move(size, back=True)
            case 8 | 9:
                process.deliver(1 + what % 5)
            case 10 | 11:
                self.call(what)
            case 12:
                self.push(what)
            case 13:
                self.log_self()
            case 14:
                self.confirm()
            case 15:
                self.send(1 + what % 3)
            case 16:
                self.trim() if what % 2 else self.send(9)
            case 17:
                if what < 40:
                    self.take_checkpoint(process)
            case 18:
                if what < 8:
                    self.kill(self.processes.index(process), tail_survives=bool(what % 2))
            case _:
                self.begin_log()
                self.lead()
                self.follow()

    def run(self, seed: int, steps: int = 500) -> None:
        """Do many things, then let everything come to rest."""
        chance = random.Random(seed)
        for _ in range(steps):
            if self.stopped or self.mixed:
                return
            self.step(chance)
        self.settle()

    def settle(self) -> None:
        """No more inputs or kills: everything that is on its way arrives."""
        for _ in range(60):
            before = (len(self.log), self.confirmed, len(self.bank.items))
            for process in self.processes:
                for _ in range(4):
                    process.move(1 << 20, back=False)
                    process.move(1 << 20, back=True)
            self.begin_log()
            self.lead()
            self.follow()
            self.log_self()
            self.confirm()
            for process in self.processes:
                for _ in range(100):
                    process.deliver(100)
            self.send(1000)
            if self.stopped or (before == (len(self.log), self.confirmed, len(self.bank.items)) and self.at_rest):
                return

    @property
    def at_rest(self) -> bool:
        """Whether nothing is on its way."""
        return not any(process.to_application or process.to_machine for process in self.processes)

    # ------------------------------------------------------------ verdict

    def faults(self, upgraded_at: int = -1) -> list[str]:
        """What must never be, whatever happened before; of an application that differs, what must not even then.

        Args:
            upgraded_at: the new code handled the log from here on; -1: there was no upgrade.
        """
        found = list(self.mixed)
        if self.fault:
            return found
        selves, bank, ledger = expected(self.log, upgraded_at)
        if texts(self.bank.items) != bank[: len(self.bank.items)]:
            found.append(f"the bank has {texts(self.bank.items)}, the log gives {bank}")
        if texts(self.selves.items) != selves[: len(self.selves.items)]:
            found.append(f"logged to itself {texts(self.selves.items)}, the log gives {selves}")
        if self.differences or self.stopped:
            return found
        if (len(self.bank.items), len(self.selves.items)) != (len(bank), len(selves)):
            found.append(f"lost: {len(self.bank.items)} of {len(bank)}, {len(self.selves.items)} of {len(selves)}")
        for process in self.processes:
            state = process.application.ledger.save()
            if process.delivered == len(self.log) and state != ledger.save():
                found.append(f"diverged: {state[:80]!r}, {ledger.save()[:80]!r}")
        return found


def texts(items: Iterable[Rpc]) -> list[bytes]:
    """What items say, but for who they are for."""
    return [bytes_of(item) for item in items]


def expected(log: Iterable[Entry], upgraded_at: int = -1) -> tuple[list[bytes], list[bytes], Ledger]:
    """What the application emits to itself and to the bank, and its state, as a function of the log."""
    ledger, selves = Ledger(), list[bytes]()
    for index, entry in enumerate(log):
        if index == upgraded_at:
            ledger.version = 2
        if entry.initial is not None:
            method, arguments = 0, entry.initial
        elif entry.rpc is not None:
            method, arguments = entry.rpc.method, entry.rpc.arguments
        else:
            continue
        for to, called, given in ledger.handle(method, arguments):
            item = make_call(to, called, Kind.FORK, given)
            (ledger.outputs if to else selves).append(bytes_of(item))
        if entry.rpc is not None and entry.rpc.kind is Kind.ASYNC:
            rpc = entry.rpc
            answer = make_return(rpc.name, Kind.VALUE, rpc.arguments, name="me", sequence=rpc.sequence)
            ledger.outputs.append(bytes_of(answer))
    return selves, ledger.outputs, ledger
