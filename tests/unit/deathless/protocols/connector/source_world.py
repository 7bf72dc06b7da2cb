"""Both ends of a source in a small world: one program that sends, many connections, one primary that is taken over.

What happens next is said by numbers (a `Tape`), so hypothesis can shrink it and a seed can repeat it: bytes arrive in
pieces and late, connections are cut while their worker's end goes on, messages stand between a worker's end and the
primary, the primary confirms by and by and is taken over with any part of what is not confirmed. When the tape is at
its end the world heals, and all has to come to an end within so many rounds.

Checked at each step: what is acknowledged to the program is confirmed, and so is an end. Checked at the end: each
stream was taken in once, whole, in order, with one end. Each switch of `Rules` leaves out a rule of the primary.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from deathless.base.errors import DeathlessError
from deathless.protocols.connector import source_client, source_worker
from deathless.protocols.connector.events import BytesReceived, Close, ConnectionLost, ConnectionOpened, Send
from deathless.protocols.connector.frames import NO_POSITION, Ack, Message, MessageId, StreamId, encode
from deathless.protocols.connector.source_events import (
    Acknowledged,
    AcknowledgementDue,
    AskStream,
    CreditsHeld,
    EndConfirmed,
    EndOffered,
    ForwardEnd,
    ForwardMessages,
    MessagesConfirmed,
    MessagesOffered,
    MessagesSettled,
    StreamAdmitted,
    StreamEnded,
    StreamFenced,
    StreamLost,
    StreamOpened,
    StreamResumed,
    StreamWanted,
)

STREAMS: Final = (StreamId(1), StreamId(2))
ITEMS: Final = {  # ids grow with gaps, and begin at 0 or later
    StreamId(1): tuple(MessageId(each) for each in (0, 1, 2, 5, 6, 9, 12, 13)),
    StreamId(2): tuple(MessageId(each) for each in (3, 4, 8, 20)),
}
END: Final = "end"
MARK: Final = "mark"
CREDITS: Final = 4
ROUNDS_MAX: Final = 400
Entry = MessageId | str


class Violated(AssertionError):
    """Something was lost, doubled, out of order, or stands still."""


class Tape:
    """Numbers that say what happens; 0 once they are used up."""

    def __init__(self, numbers: Iterable[int]) -> None:
        self._numbers = deque(numbers)

    @property
    def over(self) -> bool:
        return not self._numbers

    def draw(self, below: int) -> int:
        return self._numbers.popleft() % below if self._numbers and below else 0


def tape_of(seed: int, length: int = 1500) -> Tape:
    """A tape that a seed gives."""
    chance = random.Random(seed)
    return Tape(chance.randrange(1 << 16) for _ in range(length))


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """What the primary keeps to; a test leaves one out."""

    by_id: bool = True  # admitted is what is above the last admitted id; else: all
    by_position: bool = False  # admitted is what has the next position, which the gate gives
    fence: bool = True  # older connections of a stream end before the newest is welcomed
    welcome_confirmed: bool = True  # a newcomer waits until all that was admitted is confirmed
    ended_once: bool = True  # an end without a message since the last one is no new end


@dataclass(slots=True)
class Log:
    """One stream at the primary."""

    entries: list[Entry] = field(default_factory=list)
    confirmed: int = 0
    owner: int = 0
    waiting: tuple[int, bool] | None = None  # connection, whether it had the stream before
    welcomed: bool = False  # the owner has been, by this primary

    def last(self, count: int) -> MessageId | None:
        """The last id among the first entries."""
        return max((each for each in self.entries[:count] if isinstance(each, int)), default=None)

    @property
    def ended(self) -> bool:
        return bool(self.entries) and self.entries[-1] == END


class Connection:
    """One connection: both machines, and all that is on its way between them and the primary."""

    def __init__(self, world: World, number: int) -> None:
        self.number = number
        self.client: Any = world.client_class(program="test", instance="one")
        self.worker: Any = world.worker_class(credits=CREDITS)
        self.up = bytearray()
        self.down = bytearray()
        self.inbox: deque[tuple[str, StreamId, Any]] = deque()  # for the primary
        self.outbox: deque[Any] = deque()  # of the primary
        self.next_position: dict[StreamId, int] = {}
        self.cut = False  # the program does not know it any more
        self.ended = False  # the worker's end is gone


class World:
    """See the module."""

    def __init__(
        self, tape: Tape, *, rules: Rules = Rules(), worker_class: Any = None, client_class: Any = None
    ) -> None:
        self.worker_class = worker_class or source_worker.SourceWorker
        self.client_class = client_class or source_client.SourceClient
        self.tape = tape
        self.rules = rules
        self.logs = {stream: Log() for stream in STREAMS}
        self.connections: list[Connection] = []
        self.current: Connection | None = None
        self.forgotten: dict[StreamId, MessageId] = {}
        self.next_item = dict.fromkeys(STREAMS, 0)
        self.done: set[StreamId] = set()

    # ---- the program -------------------------------------------------------------------------------------

    def program(self) -> None:
        """Connect, open a stream, send some of it, or end it."""
        here = self.current
        if here is None:
            here = self.current = Connection(self, len(self.connections) + 1)
            self.connections.append(here)
            self.to_client(here, ConnectionOpened())
            return
        stream = STREAMS[self.tape.draw(len(STREAMS))]
        for each in (stream, *STREAMS) if self.tape.over else (stream,):
            self.push(here, each)

    def push(self, here: Connection, stream: StreamId) -> None:
        client, known = here.client, self.forgotten.get(stream)
        state = client.stream_state(stream).name
        if state in ("UNKNOWN", "CLOSED") and stream not in self.done and client.credits:
            self.to_client(here, StreamWanted(stream=stream, name=b"s", last=known, forgotten=known))
        elif state == "OPEN":
            begin = self.next_item[stream]
            some = ITEMS[stream][begin : begin + min(client.credits, 1 + self.tape.draw(3))]
            if some:
                self.next_item[stream] = begin + len(some)
                messages = [Message(stream, each, 0, b"k", b"%d" % each) for each in some]
                self.to_client(here, MessagesOffered(messages=messages))
            elif begin == len(ITEMS[stream]):
                self.to_client(here, EndOffered(stream=stream))

    def to_client(self, here: Connection, event: Any) -> None:
        for effect in here.client.handle(event):
            match effect:
                case Send(data=data):
                    here.up += data
                case Close(code=code, text=text):
                    if code == "DL3003" or "was confirmed" in text:
                        raise Violated(text)
                    here.cut = True
                    self.current = None
                case StreamOpened(stream=stream, last=last):
                    self.next_item[stream] = sum(last is not None and each <= last for each in ITEMS[stream])
                case Acknowledged(stream=stream, last=last):
                    self.forgotten[stream] = max(last, self.forgotten.get(stream, last))
                    self.check_confirmed(stream, last)
                case StreamEnded(stream=stream):
                    self.done.add(stream)
                    log = self.logs[stream]
                    if END not in log.entries[: log.confirmed]:
                        raise Violated(f"stream {stream}: its end is acknowledged and not confirmed")

    def check_confirmed(self, stream: StreamId, last: MessageId) -> None:
        log = self.logs[stream]
        missing = {each for each in ITEMS[stream] if each <= last} - set(log.entries[: log.confirmed])
        if missing:
            raise Violated(f"stream {stream}: {sorted(missing)} are acknowledged and not confirmed")

    # ---- the gate ----------------------------------------------------------------------------------------

    def to_worker(self, here: Connection, event: Any) -> None:
        if here.ended:
            return
        for effect in here.worker.handle(event):
            match effect:
                case Send(data=data):
                    here.down += data
                case Close():
                    here.ended = True
                case AskStream(stream=stream):
                    here.inbox.append(("ask", stream, False))
                case ForwardMessages(stream=stream, messages=messages):
                    for each in messages:
                        here.inbox.append(("message", stream, (self.position(here, stream), each.id)))
                case ForwardEnd(stream=stream):
                    here.inbox.append(("end", stream, (self.position(here, stream), END)))

    def position(self, here: Connection, stream: StreamId) -> int:
        """The next one of the stream, as a gate would give it."""
        given = here.next_position.get(stream, 0)
        here.next_position[stream] = given + 1
        return given

    def tell(self, here: Connection) -> None:
        """The gate hears the next word of the primary."""
        if here.outbox:
            event = here.outbox.popleft()
            if isinstance(event, StreamAdmitted | StreamResumed):
                here.next_position[event.stream] = self.logs[event.stream].confirmed
            self.to_worker(here, event)

    # ---- the primary -------------------------------------------------------------------------------------

    def take(self, here: Connection) -> None:
        """The primary takes one word of a connection."""
        if not here.inbox:
            return
        kind, stream, value = here.inbox.popleft()
        log = self.logs[stream]
        if kind == "ask":
            self.ask(here, stream, log, value)
        elif log.welcomed and (log.owner == here.number or not self.rules.fence):
            self.admit(here, stream, log, *value)

    def ask(self, here: Connection, stream: StreamId, log: Log, resume: bool) -> None:
        if resume and log.owner != here.number and self.rules.fence:
            here.outbox.append(StreamFenced(stream=stream))
            return
        if log.owner not in (0, here.number) and self.rules.fence:
            self.connections[log.owner - 1].outbox.append(StreamFenced(stream=stream))
        log.owner = here.number
        log.waiting = here.number, resume
        log.welcomed = False
        self.welcome(stream, log)

    def welcome(self, stream: StreamId, log: Log) -> None:
        if log.waiting is None or (self.rules.welcome_confirmed and log.confirmed < len(log.entries)):
            return
        number, resume = log.waiting
        last, ended = log.last(log.confirmed), log.ended and log.confirmed == len(log.entries)
        kind = StreamResumed if resume else StreamAdmitted
        self.connections[number - 1].outbox.append(kind(stream=stream, last=last, ended=ended))
        log.waiting = None
        log.welcomed = True

    def admit(self, here: Connection, stream: StreamId, log: Log, position: int, entry: Entry) -> None:
        if self.rules.by_position:
            new = position == len(log.entries)
        elif entry == MARK:
            new = False
        elif entry == END:
            new = not (log.ended and self.rules.ended_once)
        else:
            last = log.last(len(log.entries))
            new = not self.rules.by_id or last is None or int(entry) > last
        if new:
            log.entries.append(entry)
        elif entry == END and log.confirmed == len(log.entries):
            here.outbox.append(EndConfirmed(stream=stream))

    def confirm(self, stream: StreamId, count: int) -> None:
        log = self.logs[stream]
        before = log.confirmed
        log.confirmed = min(len(log.entries), before + count)
        here = self.connections[log.owner - 1] if log.owner else None
        if here is not None and log.welcomed:
            for at in range(before, log.confirmed):
                if log.entries[at] == END:
                    here.outbox.append(EndConfirmed(stream=stream))
                elif (last := log.last(at + 1)) is not None:
                    if self.tape.draw(2):
                        here.outbox.append(MessagesSettled(stream=stream, through=last))
                    here.outbox.append(MessagesConfirmed(stream=stream, through=last))
        self.welcome(stream, log)

    def take_over(self) -> None:
        """Another primary: what is not confirmed is lost from some place on, and so is all that was on its way."""
        for log in self.logs.values():
            kept = log.confirmed + self.tape.draw(len(log.entries) - log.confirmed + 1)
            log.entries = log.entries[:kept]
            log.waiting = None
            log.welcomed = False
        for here in self.connections:
            here.inbox.clear()
            here.outbox.clear()
            for stream in STREAMS if not here.ended else ():
                state = here.worker.stream_state(stream).name
                if state in ("OPEN", "ENDING"):
                    self.to_worker(here, StreamLost(stream=stream))
                    here.inbox.append(("ask", stream, True))
                elif state == "ASKED":
                    here.inbox.append(("ask", stream, False))

    # ---- what happens ------------------------------------------------------------------------------------

    def deliver_up(self, here: Connection, count: int) -> None:
        if here.up and here.worker.wants_bytes:
            data = bytes(here.up[:count])
            del here.up[:count]
            self.to_worker(here, BytesReceived(data=data))

    def deliver_down(self, here: Connection, count: int) -> None:
        if here.cut:
            return
        if here.down:
            data = bytes(here.down[:count])
            del here.down[:count]
            self.to_client(here, BytesReceived(data=data))
        elif here.ended:
            self.lose(here)

    def lose(self, here: Connection) -> None:
        """The program's end of a connection is gone; the worker's end may hear of it much later."""
        here.cut = True
        here.client.handle(ConnectionLost())
        if self.current is here:
            self.current = None

    def step(self) -> None:
        """One thing happens."""
        draw = self.tape.draw
        alive = [each for each in self.connections if not (each.cut and each.ended)]
        here = alive[-1 - draw(min(len(alive), 1 + 2 * draw(2)))] if alive else None
        action = draw(40)
        if here is None or action < 8:
            self.program()
        elif action < 14:
            self.deliver_up(here, 1 + draw(90))
        elif action < 19:
            self.deliver_down(here, 1 + draw(60))
        elif action < 25:
            self.take(here)
        elif action < 28:
            self.confirm(STREAMS[draw(2)], 1 + draw(3))
        elif action < 34:
            self.tell(here)
        elif action < 36:
            self.acknowledge(here, idle=draw(4) == 1)
        elif action < 38:
            self.to_worker(here, CreditsHeld(held=draw(4) == 1))
        elif action < 39:
            stream = STREAMS[draw(2)]
            here.inbox.append(("mark", stream, (self.position(here, stream), MARK)))
        else:
            self.break_something(here, draw(8))

    def acknowledge(self, here: Connection, *, idle: bool) -> None:
        """The worker acknowledges; now and then also streams of which nothing is processed, as existing ones do."""
        self.to_worker(here, AcknowledgementDue())
        for stream, log in self.logs.items() if idle and not here.ended else ():
            if here.worker.stream_state(stream).name == "OPEN" and log.last(log.confirmed) is None:
                here.down += encode(Ack(0, ((stream, NO_POSITION),)))

    def break_something(self, here: Connection, how: int) -> None:
        if how in (1, 2):
            self.lose(here)
        elif how == 3 and here.cut:
            self.to_worker(here, ConnectionLost())
        elif how == 4:
            self.take_over()

    def heal(self) -> None:
        """All goes well from now on. Raises: Violated when it does not come to its end."""
        for _ in range(ROUNDS_MAX):
            self.program()
            for here in self.connections:
                if here.cut:
                    self.to_worker(here, ConnectionLost())
                for _ in range(8):
                    self.deliver_up(here, 1 << 20)
                    self.take(here)
                    for stream in STREAMS:
                        self.confirm(stream, 100)
                    self.tell(here)
                self.to_worker(here, CreditsHeld(held=False))
                self.to_worker(here, AcknowledgementDue())
                self.deliver_down(here, 1 << 20)
            if self.done == set(STREAMS):
                return
        raise Violated(f"stands still: {sorted(set(STREAMS) - self.done)} never ended")

    def run(self) -> None:
        """Play the tape, heal, and check. Raises: Violated."""
        while not self.tape.over:
            self.step()
        self.heal()
        for stream, log in self.logs.items():
            found = [each for each in log.entries if each != MARK]
            if found != [*ITEMS[stream], END]:
                raise Violated(f"stream {stream}: {found}")


def first_violation(seeds: Sequence[int], told: str = "", **options: Any) -> str:
    """What the first seed that shows something shows, with these words in it; empty: none does."""
    for seed in seeds:
        try:
            World(tape_of(seed), **options).run()
        except (AssertionError, DeathlessError) as error:
            if told in str(error):
                return f"seed {seed}: {error}"
    return ""
