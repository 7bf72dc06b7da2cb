"""A service, its log and its replicas, for tests of coordinators: every step is drawn, and any process may die at any.

The service's turns are the real ones; its log takes rows of streams by their ids, as a primary does.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Generator
from typing import Any

from deathless.base.errors import CallFailed, StreamFenced
from deathless.base.foreign.binding import SOURCE
from deathless.codec.generations import NEWEST, Level
from deathless.codec.messages import Message, decode
from deathless.codec.streams.packets import StreamCommit, StreamHello, StreamRefused, StreamWelcome, decode_stream_batch
from deathless.codec.streams.records import note_of, seq_of
from deathless.codec.streams.rows import decode_row
from deathless.codec.wire import Type, decode_batch, decode_struct, struct_packet
from deathless.foreign.checkpoint_plan import Every
from deathless.foreign.checkpoints import Head
from deathless.foreign.coordinator import (
    Action,
    BeginFile,
    Coordinator,
    EndFile,
    LoadBlob,
    Owned,
    Packets,
    Tell,
    Versions,
    WriteFile,
)
from deathless.foreign.rows import Given, decode_emitted
from deathless.foreign.service import Application, application, emitted, leave, look, relay
from deathless.foreign.skips import Skip
from deathless.protocols.ambrosia import events as on
from deathless.protocols.ambrosia.bounds import Bounds
from deathless.protocols.ambrosia.lanes import Compare
from deathless.protocols.ambrosia.machine import ApplicationMachine
from deathless.protocols.ambrosia.runs import count_of, forks_of, is_run
from deathless.protocols.ambrosia_binding.binding import (
    Binding,
    FirstStart,
    Phase,
    RestorePart,
    SaveDue,
    UpgradeNow,
)
from deathless.protocols.ambrosia_binding.encoding import Answer, Call, Outcome

OWNED = Owned("ab" * 16, 7)
PREFIX = 5  # of a packet: size and type
NEXT = 1000
FORMS = (b"s", b"t")


async def looked(*state: Any, **arguments: Any) -> None:
    """A later turn looks whether something was sent."""
    look(*state, **arguments)


SELF_SENT: dict[str, Any] = {"relay": relay, "leave": leave, "look": looked}


class Later:
    """What a turn waits for."""

    def __init__(self, *, ever: bool = True) -> None:
        self._ever = ever

    def __await__(self) -> Generator[bool, None, None]:
        yield self._ever


class Turn:
    """The context of a turn: what it publishes, sends and completes."""

    def __init__(self, log: Log) -> None:
        self._log = log

    def emit(self, _topic: object, row: Given) -> None:
        """Publish."""
        self._log.rows.append(row)

    def fork(self, service: str, _key: str, method: str, arguments: dict[str, Any]) -> None:
        """Another service is called, or our own in a later turn."""
        if service == application.name:
            self._log.own.append(SELF_SENT[method](self._log.state, self, **arguments))
        else:
            self._log.arrive(service, arguments["args"])

    async def call(self, service: str, _key: str, method: str, arguments: dict[str, Any]) -> object:
        """Another service is called, and its answer waited for; that of `call` never comes."""
        if method == "send_run" and not self._log.takes_runs():
            await Later()
            raise CallFailed("no such handler", failure_code="DL3017")
        for each in forks_of(arguments["run"]) if method == "send_run" else ():
            self._log.arrive(service, each.arguments)
        if method == "call":
            self._log.arrive(service, arguments["args"])
            await Later(ever=False)
        await Later()
        return count_of(arguments["run"])

    def complete(self, promise: str, value: object) -> None:
        """A caller gets its answer."""
        assert promise not in self._log.answers
        self._log.answers[promise] = value


class Log:
    """What is confirmed: the service's state, the rows of its topic, how far streams are, and the shared folder.

    Args:
        chance: draws when turns come that the service gives itself, and whether others take runs; None: at once, none.
    """

    def __init__(self, chance: random.Random | None = None) -> None:
        self.own: deque[Any] = deque()  # turns that the service gave itself
        self.ledger: list[bytes] = []  # what this other service got
        self._waiting: list[Any] = []  # turns that wait for an answer
        self._chance = chance
        self.state = Application()
        self.rows: list[Given] = []
        self.sent: list[bytes] = []
        self.answers: dict[str, object] = {}
        self.checkpoints: dict[int, tuple[Head, bytes]] = {}
        self.level: int = NEWEST  # of the log; a replica beside the primary reads nothing of a later one
        self.streams: dict[int, list[Any]] = {}  # next seq, note, nonces of its owners by term

    def arrive(self, service: str, message: bytes) -> None:
        """Another service gets a message."""
        (self.ledger if service == "ledger" else self.sent).append(message)

    def takes_runs(self) -> bool:
        """Whether another service takes a run just now."""
        return self._chance is not None and self._chance.random() < 0.8

    def go_on(self) -> None:
        """Have the service run a turn that it gave itself, or one whose answer is there; or nothing."""
        if self.own and (not self._waiting or self._chance is None or self._chance.random() < 0.5):
            self._run(self.own.popleft())
        elif self._waiting:
            self._run(self._waiting.pop(0))

    def _run(self, turn: Any) -> None:
        try:
            if turn.send(None):
                self._waiting.append(turn)
        except StopIteration:
            pass

    def packet(self, kind: int, body: bytes) -> list[bytes]:
        """Take a packet of an application's owner; gives the answers."""
        if kind == Type.STREAM_HELLO:
            return [self._hello(decode_struct(StreamHello, body))]
        batch = decode_batch(body)
        number = batch.run.session
        stream = self.streams[number]
        term = decode_stream_batch(body).term
        if term != len(stream[2]):
            return [_fenced(number, stream[2][term - 1])]
        start = 0
        for at in range(batch.run.count):
            end = int.from_bytes(batch.ends[4 * at : 4 * at + 4], "little")
            raw, start = bytes(batch.blob[start:end]), end
            seq = batch.run.first_seq + at
            follows = batch.run.acked if at == 0 else seq - 1
            if follows + 1 != stream[0] and (follows >= stream[0] or seq < stream[0]):
                continue
            stream[0], stream[1] = seq + 1, note_of(raw) or stream[1]
            message: Message = decode(raw)
            row = decode_emitted(decode_row(message.args).row)
            assert self.level >= Level.RUNS or not is_run(row.items), "an older replica can't read this row"
            emitted(self.state, Turn(self), row)  # type: ignore[arg-type]
            while self._chance is None and (self.own or self._waiting):
                self.go_on()
        return [struct_packet(Type.STREAM_COMMIT, StreamCommit(number, stream[0], False))]

    def _hello(self, hello: StreamHello) -> bytes:
        stream = self.streams.setdefault(hello.stream, [seq_of(0), b"", []])
        if hello.resume and hello.nonce != stream[2][-1]:
            return _fenced(hello.stream, hello.nonce)
        stream[2].append(hello.nonce)
        return struct_packet(
            Type.STREAM_WELCOME,
            StreamWelcome(
                hello.source,
                hello.stream,
                hello.nonce,
                hello.stream,
                len(stream[2]),
                stream[0],
                ended=False,
                note=stream[1],
                level=self.level,
            ),
        )


def _fenced(number: int, nonce: bytes) -> bytes:
    refused = StreamRefused(SOURCE, number, nonce, StreamFenced.code, "another owner has it", -1)
    return struct_packet(Type.STREAM_REFUSED, refused)


def booked(value: int) -> list[bytes]:
    """What the ledger gets of one call: forks, and in their middle sometimes a call."""
    return [b"%s %d of %d" % (b"call" if value == at == 2 else b"fork", at, value) for at in range(1, 2 * value + 1)]


class Program:
    """An application: adds up what it is sent, calls itself and a bank, and answers.

    Its next version tells the bank `more`, at once as well, and has a state that begins with another letter.
    """

    def __init__(
        self,
        wrong: Callable[[Program, int], bytes] | None = None,
        *,
        ledger: bool = False,
        version: int = 0,
        more: int = NEXT,
    ) -> None:
        self._more = more
        self._ledger = ledger
        self.version = version
        self.binding = Binding("counter")
        self.total = 0
        self._saved = bytearray()
        self._wrong = wrong

    def run(self) -> None:
        """Take what came."""
        while (event := self.binding.next_event()) is not None:
            match event:
                case FirstStart():
                    self.binding.initial(b"begin")
                    self._save()
                case RestorePart():
                    self._saved += event.data
                    assert self._saved[:1] == FORMS[self.version], "a state of another version"
                    self.total = int(self._saved[1:] or b"0")
                case UpgradeNow():
                    self.version += 1
                    if self._more:
                        self.binding.fork(2, b"%d" % self._more, to="bank/alice")
                case SaveDue():
                    self._save()
                case Call():
                    self._handle(event)
                case Answer():
                    self.total += int(event.payload or b"0")
                case _:
                    pass

    def _handle(self, call: Call) -> None:
        value = int(call.arguments or b"0")
        self.total += value
        if value > 0:
            self.binding.fork(1, b"%d" % (value - 1))
            told = b"%d" % (value + self._more * self.version) if self._wrong is None else self._wrong(self, value)
            self.binding.fork(2, told, to="bank/alice")
        for message in booked(value) if self._ledger else ():
            if message.startswith(b"call"):
                self.binding.call(3, message, to="ledger", number_of_call=self.total)
            else:
                self.binding.fork(3, message, to="ledger")
        if call.number:
            self.binding.answer(call, Outcome.VALUE, b"%d" % value)

    def _save(self) -> None:
        state = FORMS[self.version] + b"%d" % self.total
        self.binding.begin_save(len(state))
        self.binding.save(state)
        assert self.binding.phase is not Phase.SAVING


class Node:
    """One replica's process of the application, and its coordinator."""

    def __init__(
        self,
        log: Log,
        chance: random.Random,
        program: Program | None = None,
        policy: Compare = Compare.BYTES,
        skips: dict[int, Skip] | None = None,
        versions: Versions = Versions(),  # noqa: B008  it never changes
    ) -> None:
        self.machine = ApplicationMachine(name="counter", committer=1, policy=policy, bounds=Bounds(), together=True)
        self.coordinator = Coordinator(
            self.machine, OWNED, lambda: chance.randbytes(16), Every(6, 1 << 20), skips, versions
        )
        self.program = program or Program(version=max(versions.now, 0))
        self.leads = False
        self.error: object = None
        self._log = log
        self._chance = chance
        self._in = bytearray()  # on its way to the application
        self._out = bytearray()  # on its way from it
        self._packets: list[bytes] = []  # to the primary
        self._answers: list[bytes] = []
        self._file: list[Any] = []
        self.do([Tell(on.SocketOpened(socket=on.Socket.RECEIVE)), Tell(on.SocketOpened(socket=on.Socket.SEND))])

    def do(self, actions: list[Action]) -> None:
        """Carry actions out, in order."""
        queue = list(actions)
        while queue:
            match queue.pop(0):
                case Tell(event):
                    queue += self._take(self.machine.handle(event))
                case LoadBlob():
                    queue += self._take(self.machine.handle(on.LoadPart(data=self._file[1])))
                case Packets(packets):
                    self._packets += packets
                case BeginFile(head):
                    self._file = [head, b""]
                case WriteFile(data):
                    self._file[1] += data
                case EndFile(goes_over=True):
                    head, blob = self._file
                    self._log.checkpoints[head.position] = (head, blob)
                    queue += self.coordinator.went_over()
                case EndFile():
                    head, blob = self._file
                    first = self._log.checkpoints.setdefault(head.position, (head, blob))
                    assert first[1] == blob, "two states at one position"
                    queue += self.coordinator.kept(head.position, 0.0)
        self.coordinator.check_invariants()

    def _take(self, effects: list[on.Effect]) -> list[Action]:
        for effect in effects:
            match effect:
                case on.Send():
                    self._in += effect.data
                case on.End():
                    self.error = effect.error or "gone"
        return self.coordinator.took(effects, 0.0)

    def step(self) -> None:
        """Let one thing happen."""
        self._chance.choice(
            [self._look, self._read, self._to_program, self._from_program, self._to_primary, self._from_primary]
        )()

    def _look(self) -> None:
        if self.coordinator.delivered == 0 and self.machine.state.name == "WAITING":
            found = self._log.checkpoints.get(max(self._log.checkpoints, default=-1))
            if found is not None:
                self._file = list(found)
                self.do(self.coordinator.found(found[0], 0.0))
            else:
                self.do(self.coordinator.nothing_found())

    def _read(self) -> None:
        first = self.coordinator.next_row
        if first and first <= len(self._log.rows):
            until = self._chance.randint(first, len(self._log.rows))
            self.do(self.coordinator.rows([(at, self._log.rows[at - 1]) for at in range(first, until + 1)], 0.0))

    def _to_program(self) -> None:
        some = self._chance.randint(0, len(self._in))
        self.program.binding.receive(bytes(self._in[:some]))
        del self._in[:some]
        self.program.run()
        self._out += self.program.binding.outgoing()

    def _from_program(self) -> None:
        some = self._chance.randint(0, len(self._out))
        data = bytes(self._out[:some])
        del self._out[:some]
        self.do([Tell(on.BytesReceived(data=data))])

    def _to_primary(self) -> None:
        if self._packets:
            raw = self._packets.pop(0)
            self._answers += self._log.packet(raw[PREFIX - 1], raw[PREFIX:])

    def _from_primary(self) -> None:
        if self._answers:
            raw = self._answers.pop(0)
            self.do(self.coordinator.received(raw[PREFIX - 1], raw[PREFIX:], 0.0))

    def lead(self) -> None:
        """Its replica becomes the primary."""
        self.leads = True
        self.do(self.coordinator.leads(len(self._log.rows) + 1, 0.0))
        self.do(self.coordinator.connected())


class World:
    """Replicas of one service, one of which leads."""

    def __init__(self, seed: int, replicas: int = 3, *, ledger: bool = False) -> None:
        self.chance = random.Random(seed)
        self._ledger = ledger
        self.log = Log(self.chance if ledger else None)
        self.nodes = [self._node() for _ in range(replicas)]
        self.newest = self.nodes[0]  # whose replica is the primary
        self.newest.lead()
        self.kills = 0

    def _node(self) -> Node:
        return Node(self.log, self.chance, Program(ledger=self._ledger))

    def step(self) -> None:
        """Let one process do one thing; one that is fenced or wrong begins anew."""
        if self._ledger and self.chance.random() < 0.2:
            self.log.go_on()
        at = self.chance.randrange(len(self.nodes))
        node = self.nodes[at]
        node.step()
        assert node.error is None, node.error
        if node.coordinator.is_fenced:
            self.nodes[at] = self._node()
            if node is self.newest:  # one that was frozen took a stream; its replica leads all the same
                self.newest = self.nodes[at]
                self.newest.lead()

    def kill(self) -> None:
        """End the leader's process, or have another one lead while it lives on and does not know."""
        self.kills += 1
        leaders = [at for at, node in enumerate(self.nodes) if node.leads]
        if self.chance.random() < 0.7:
            for at in leaders:
                self.nodes[at] = self._node()
        follower = self.chance.choice([node for node in self.nodes if not node.leads] or [None])
        if follower is None:
            at = self.chance.randrange(len(self.nodes))
            self.nodes[at] = follower = self._node()
        self.newest = follower
        follower.lead()
