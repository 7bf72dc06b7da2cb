"""Both ends of a sink in a small world: a runtime with notes, a participant with storage, and deaths of both.

What happens next is said by a `Tape`: bytes arrive in pieces and late, the storage and the log answer late, a vote is
to abort now and then, connections are cut, the participant dies (what it had not prepared is gone), the runtime is
taken over while the one before goes on for a while. When the tape is at its end the world heals, and all has to be
committed within so many rounds.

Checked at each step: what is committed is a beginning of the output, so nothing is lost, doubled or out of order; what
the runtime is told is done is committed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from tests.unit.deathless.protocols.connector.source_world import Tape, Violated, tape_of

from deathless.base.errors import DeathlessError
from deathless.protocols.connector import sink_coordinator, sink_participant
from deathless.protocols.connector.events import BytesReceived, Close, ConnectionLost, ConnectionOpened, Send
from deathless.protocols.connector.frames import StreamId
from deathless.protocols.connector.sink_events import (
    AbortVoted,
    AdmitInstance,
    BlockPlanned,
    DataOffered,
    DecisionConfirmed,
    InstanceAdmitted,
    ListWanted,
    Prepare,
    Prepared,
    ResolutionRefused,
    Resolve,
    Resolved,
    ResolveDoubt,
    SinkReady,
    StillUncommitted,
    TransactionsDone,
    Voted,
    VoteOverdue,
    WriteData,
)

S: Final = StreamId(1)
OUTPUT: Final = bytes(range(60))
ROUNDS_MAX: Final = 600


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """What the log says of the newest block."""

    done: int = 0  # bytes that are known to be committed
    end: int = 0  # of the planned block; not above `done`: none is planned
    attempt: int = 0
    decided: bool = False  # it is to be committed

    @property
    def transaction(self) -> bytes:
        return b"%d-%d:%d" % (self.done, self.end, self.attempt)


class Storage:
    """What a participant keeps; only `pending` is lost when it dies."""

    def __init__(self) -> None:
        self.committed = b""
        self.prepared: dict[bytes, bytes] = {}
        self.finished: dict[bytes, bool] = {}
        self.pending = b""


class Link:
    """One connection: both machines, and what is on its way. Its runtime is the one of this epoch."""

    def __init__(self, world: World, epoch: int) -> None:
        self.epoch = epoch
        self.coordinator: Any = world.coordinator_class(program="deathless", instance="shop-0")
        self.participant: Any = world.participant_class()
        self.up = bytearray()
        self.down = bytearray()
        self.asked: deque[Any] = deque()  # of the storage
        self.notes: deque[tuple[Note, Any]] = deque()  # to be confirmed, and what to say then
        self.offset = 0  # of the block's next byte
        self.end = 0
        self.cut = False
        self.gone = False  # the participant's end is


class World:
    """See the module."""

    def __init__(
        self, tape: Tape, *, coordinator_class: Any = None, participant_class: Any = None, leaders_only: bool = True
    ) -> None:
        self.leaders_only = leaders_only  # only a runtime that still leads concludes from what is not listed
        self.coordinator_class = coordinator_class or sink_coordinator.SinkCoordinator
        self.participant_class = participant_class or sink_participant.SinkParticipant
        self.tape = tape
        self.storage = Storage()
        self.note = Note()
        self.epoch = 1
        self.links: list[Link] = []
        self.aborts = 0

    @property
    def current(self) -> Link | None:
        """The connection of the runtime that leads."""
        last = self.links[-1] if self.links else None
        return last if last is not None and not last.cut and last.epoch == self.epoch else None

    # ---- the runtime -------------------------------------------------------------------------------------

    def connect(self) -> None:
        if self.current is None:
            self.links.append(Link(self, self.epoch))
            self.to_coordinator(self.links[-1], ConnectionOpened())

    def to_coordinator(self, link: Link, event: Any) -> None:
        if link.cut:
            return
        for effect in link.coordinator.handle(event):
            match effect:
                case Send(data=data):
                    link.up += data
                case Close(code=code, text=text):
                    if code:
                        raise Violated(f"the participant did {text}")
                    link.cut = True
                case ResolveDoubt(transactions=transactions):
                    for each in transactions:
                        commit = self.note.decided and each == self.note.transaction
                        self.wish(link, self.note, DecisionConfirmed(transaction=each, commit=commit))
                case SinkReady():
                    self.ready(link)
                case Voted(transaction=transaction, commit=commit):
                    wanted = replace(self.note, decided=commit)
                    self.wish(link, wanted, DecisionConfirmed(transaction=transaction, commit=commit))
                case TransactionsDone(outcomes=outcomes):
                    self.done(link, outcomes)
                case StillUncommitted():
                    self.to_coordinator(link, ListWanted())

    def wish(self, link: Link, note: Note, then: Any) -> None:
        """Have a note confirmed; only the runtime that leads succeeds."""
        link.notes.append((note, then))

    def done(self, link: Link, outcomes: Mapping[bytes, bool]) -> None:
        note = self.note
        own = link.epoch == self.epoch and note.decided and outcomes.get(note.transaction)
        if own and len(self.storage.committed) < note.end:
            raise Violated(f"{note.transaction!r} is called done and is not committed")

    def ready(self, link: Link) -> None:
        if (
            self.leaders_only and link.epoch != self.epoch
        ):  # its list may be older than the note that it would hold it against
            link.cut = True
            return
        note = self.note
        if note.decided:  # and not listed: so it is committed
            if len(self.storage.committed) < note.end:
                raise Violated(f"{note.transaction!r} is taken for committed and is not")
            note = Note(done=note.end)
        end = note.end if note.end > note.done else min(len(OUTPUT), note.done + 1 + self.tape.draw(9))
        if end > note.done:
            wanted = Note(done=note.done, end=end, attempt=self.note.attempt + 1)
            plan = BlockPlanned(transaction=wanted.transaction, start=wanted.done, end=end)
            self.wish(link, wanted, plan)

    def confirm_note(self, link: Link) -> None:
        if not link.notes:
            return
        wanted, then = link.notes.popleft()
        if link.epoch != self.epoch or link.cut:
            link.cut = True  # deposed: it has no say any more
            return
        self.note = wanted
        if isinstance(then, BlockPlanned):
            link.offset, link.end = then.start, then.end
        self.to_coordinator(link, then)

    def offer(self, link: Link) -> None:
        if link.coordinator.state.name == "WRITING":
            size = 1 + self.tape.draw(4)
            payload = OUTPUT[link.offset : min(link.end, link.offset + size)]
            link.offset += len(payload)
            self.to_coordinator(link, DataOffered(payloads=[payload]))

    # ---- the participant ---------------------------------------------------------------------------------

    def to_participant(self, link: Link, event: Any) -> None:
        if link.gone:
            return
        for effect in link.participant.handle(event):
            match effect:
                case Send(data=data):
                    link.down += data
                case Close(code=code, text=text):
                    if code:
                        raise Violated(f"the coordinator did {text}")
                    link.gone = True
                case _:
                    link.asked.append(effect)

    def store(self, link: Link) -> None:
        """The storage does what it was asked next."""
        if not link.asked or link.gone:
            return
        storage = self.storage
        match link.asked.popleft():
            case AdmitInstance():
                for other in self.links:
                    if other is not link:
                        self.to_participant(other, ConnectionLost())
                storage.pending = b""
                doubt = frozenset(storage.prepared)
                self.to_participant(link, InstanceAdmitted(committed={S: len(storage.committed)}, in_doubt=doubt))
            case WriteData(offset=offset, payloads=payloads):
                if offset != len(storage.committed) + len(storage.pending):
                    raise Violated(f"bytes at {offset} do not follow those before")
                storage.pending += b"".join(payloads)
            case AbortVoted():
                storage.pending = b""
            case Prepare(transaction=transaction):
                commit = self.tape.draw(5) != 1
                if commit:
                    storage.prepared[transaction] = storage.pending
                else:
                    self.aborts += 1
                storage.pending = b""
                self.to_participant(link, Prepared(transaction=transaction, commit=commit))
            case Resolve(transaction=transaction, commit=commit):
                self.to_participant(link, self.resolve(transaction, commit))

    def resolve(self, transaction: bytes, commit: bool) -> Resolved | ResolutionRefused:
        storage = self.storage
        found = storage.prepared.pop(transaction, None)
        if found is None and commit and not storage.finished.get(transaction):
            return ResolutionRefused(transaction=transaction, text="it was never prepared")
        if found is not None:
            storage.finished[transaction] = commit
            storage.committed += found if commit else b""
            if not OUTPUT.startswith(storage.committed):
                raise Violated(f"{storage.committed.hex()} is committed")
        return Resolved(transaction=transaction, committed={S: len(storage.committed)})

    # ---- what happens ------------------------------------------------------------------------------------

    def deliver_up(self, link: Link, count: int) -> None:
        if link.up and link.participant.wants_bytes and not link.gone:
            data = bytes(link.up[:count])
            del link.up[:count]
            self.to_participant(link, BytesReceived(data=data))
        elif link.cut and not link.up:
            self.to_participant(link, ConnectionLost())

    def deliver_down(self, link: Link, count: int) -> None:
        if link.down:
            data = bytes(link.down[:count])
            del link.down[:count]
            self.to_coordinator(link, BytesReceived(data=data))
        elif link.gone:
            link.cut = True

    def die(self) -> None:
        """The participant dies: its connections, and what it had not prepared."""
        self.storage.pending = b""
        for link in self.links:
            link.gone = True
            link.asked.clear()

    def step(self) -> None:
        """One thing happens."""
        draw = self.tape.draw
        link = self.links[-1 - draw(min(len(self.links), 1 + 2 * draw(2)))] if self.links else None
        action = draw(40)
        if link is None or action < 3:
            self.connect()
        elif action < 11:
            self.deliver_up(link, 1 + draw(90))
        elif action < 19:
            self.deliver_down(link, 1 + draw(60))
        elif action < 26:
            self.store(link)
        elif action < 32:
            self.confirm_note(link)
        elif action < 38:
            self.offer(link)
        else:
            self.break_something(link, draw(12))

    def break_something(self, link: Link, how: int) -> None:
        if how == 1:
            link.cut = True
        elif how == 2:
            self.die()
        elif how == 3:
            self.epoch += 1
        elif how == 4 and link.coordinator.state.name == "VOTING":
            self.to_coordinator(link, VoteOverdue())

    def heal(self) -> None:
        """All goes well from now on. Raises: Violated when it does not come to its end."""
        for _ in range(ROUNDS_MAX):
            self.connect()
            for link in self.links:
                for _ in range(6):
                    self.deliver_up(link, 1 << 20)
                    self.store(link)
                    self.deliver_down(link, 1 << 20)
                    self.confirm_note(link)
                    self.offer(link)
            if self.storage.committed == OUTPUT:
                return
        raise Violated(f"stands still at {len(self.storage.committed)} of {len(OUTPUT)} bytes")

    def run(self) -> None:
        """Play the tape, heal, and check. Raises: Violated."""
        while not self.tape.over:
            self.step()
        self.heal()


def first_violation(seeds: Sequence[int], **options: Any) -> str:
    """What the first seed that shows something shows; empty: none does."""
    for seed in seeds:
        try:
            World(tape_of(seed), **options).run()
        except (AssertionError, DeathlessError) as error:
            return f"seed {seed}: {error}"
    return ""
