"""The machine of a language binding: one process of an application, from its connection to its end.

Why it exists: it is the other end of the AMBROSIA client protocol, for applications in Python and for tests of the
coordinator. It follows the protocol's page alone; only how a call that is awaited and its answer look on the
wire comes from elsewhere, since the page leaves it out.

    phase       what it means                                    what may come       what the application may do
    FRESH       connected                                        11, 8               attach
    STARTING    11 came first: this is the first start           -                   initial, then save
    RESTORING   a checkpoint comes in                            its bytes           -
    REPLAYING   the past is repeated                             9, 0, 5, 13, 2, 12, fork, call, answer, attach
                                                                 10, 11, 15
    PRIMARY     normal processing                                9, 0, 5, 13, 2      the same, impulse, ask for a save
    SAVING      2, 10 or 11 came: the state as it is now is due  -                   save; the rest as before

Use: give what the socket brings to `receive`, and call `next_event` until it gives None; send what `outgoing` gives.
Before the state is saved, `outgoing` has everything that was emitted before, so the checkpoint stands behind it.

Guarantees: events come in order; none comes while a checkpoint is being restored or saved, but those of the checkpoint
itself. An impulse before this process is primary raises NotAllowedNow. Two or more RPCs leave as one batch.
Does not: IO; keep the application's state; give any output twice (the application emits again on replay, and its
coordinator sorts that out). Imports base.
"""

from __future__ import annotations

import enum
from collections import deque
from typing import Final, NamedTuple

from deathless.protocols.ambrosia_binding.checksum import xxh64
from deathless.protocols.ambrosia_binding.encoding import (
    RECORD_HEAD,
    RPCS,
    Answer,
    Call,
    CallType,
    Outcome,
    Scanner,
    Tag,
    arrived,
    message,
    messages_of,
    number,
    outgoing_answer,
    outgoing_call,
)
from deathless.protocols.ambrosia_binding.errors import CoordinatorWrong, NotAllowedNow

RECORD_BYTES_MAX: Final = 256 << 20  # one record is held in memory
ONE_MESSAGE: Final = -1  # sequence of a record that was never logged
A_CHECKPOINT: Final = -2


class Phase(enum.Enum):
    """Where the process stands; see the module."""

    FRESH = enum.auto()
    STARTING = enum.auto()
    RESTORING = enum.auto()
    REPLAYING = enum.auto()
    PRIMARY = enum.auto()
    SAVING = enum.auto()


class FirstStart(NamedTuple):
    """There is no state yet: call `initial`, then `begin_save`."""


class RestoreBegins(NamedTuple):
    """State of so many bytes follows."""

    length: int


class RestorePart(NamedTuple):
    """Some of it."""

    data: bytes


class RestoreEnds(NamedTuple):
    """That was all."""


class SaveDue(NamedTuple):
    """Call `begin_save` with the state as it is now."""


class BecamePrimary(NamedTuple):
    """From now on impulses may be sent."""


class UpgradeNow(NamedTuple):
    """Go over to the new code, and convert the state; `SaveDue` follows unless this is a test."""

    test: bool


class InitialCame(NamedTuple):
    """What `initial` was given comes back."""

    data: bytes


Event = (
    FirstStart
    | RestoreBegins
    | RestorePart
    | RestoreEnds
    | SaveDue
    | BecamePrimary
    | UpgradeNow
    | InitialCame
    | Call
    | Answer
)


class Binding:
    """One process.

    Args:
        name: of this instance, which answers are sent to.
        verify: compare the check bytes of records.
    """

    __slots__ = (
        "_attached",
        "_began",
        "_buffer",
        "_committer",
        "_due",
        "_initial_due",
        "_name",
        "_next_record",
        "_out",
        "_restoring",
        "_rpcs",
        "_saving",
        "_verify",
        "phase",
        "primary",
    )

    def __init__(self, name: str, *, verify: bool = True) -> None:
        self.phase = Phase.FRESH
        self.primary = False
        self._name = name
        self._verify = verify
        self._buffer = bytearray()
        self._due: deque[tuple[Tag, bytes]] = deque()  # messages of the present record
        self._out: list[bytes] = []
        self._rpcs: list[bytes] = []  # that were emitted since `outgoing`
        self._attached: set[str] = set()
        self._committer: int | None = None
        self._next_record: int | None = None
        self._began = False  # a logged message came
        self._restoring = 0  # bytes of the checkpoint that are still to come
        self._saving = -1  # bytes of our checkpoint that are still to be given; -1: it has not begun
        self._initial_due = False

    # ------------------------------------------------------------ what comes in

    def receive(self, data: bytes) -> None:
        """Take bytes of the socket."""
        self._buffer += data

    def next_event(self) -> Event | None:
        """Give what is to be done next; None: more bytes are needed, or the application has to save its state first.

        Raises: CoordinatorWrong.
        """
        if self.phase is Phase.RESTORING:
            return self._restore()
        if self.phase in {Phase.SAVING, Phase.STARTING}:
            return None
        while not self._due:
            if not self._record():
                return None
        return self._event(*self._due.popleft())

    def _restore(self) -> Event | None:
        if not self._restoring:
            self.phase = Phase.REPLAYING
            return RestoreEnds()
        part = bytes(self._buffer[: self._restoring])
        del self._buffer[: len(part)]
        self._restoring -= len(part)
        return RestorePart(part) if part else None

    def _record(self) -> bool:
        """Take the next record apart, if it is whole."""
        if len(self._buffer) < RECORD_HEAD.size:
            return False
        committer, size, check, sequence = RECORD_HEAD.unpack_from(self._buffer)
        if not RECORD_HEAD.size <= size <= RECORD_BYTES_MAX:
            raise CoordinatorWrong(f"a record of {size} bytes")
        if len(self._buffer) < size:
            return False
        payload = bytes(self._buffer[RECORD_HEAD.size : size])
        del self._buffer[:size]
        self._judge(committer, sequence)
        if self._verify and sequence != A_CHECKPOINT and xxh64(payload) != check:
            raise CoordinatorWrong(f"the check bytes of record {sequence} are not those of its {len(payload)} bytes")
        found = list(messages_of(payload))
        control = any(tag in _CONTROL for tag, _ in found)
        if found and control != (sequence == ONE_MESSAGE):
            raise CoordinatorWrong(f"record {sequence} holds {[tag.name for tag, _ in found]}")
        if (sequence == A_CHECKPOINT or Tag.CHECKPOINT in dict(found)) and (
            sequence != A_CHECKPOINT or [tag for tag, _ in found] != [Tag.CHECKPOINT]
        ):
            raise CoordinatorWrong(f"record {sequence} holds {[tag.name for tag, _ in found]}")
        self._due.extend(found)
        return True

    def _judge(self, committer: int, sequence: int) -> None:
        if self._committer not in {None, committer}:
            raise CoordinatorWrong(f"the committer id was {self._committer}, and is {committer}")
        self._committer = committer
        if sequence < A_CHECKPOINT:
            raise CoordinatorWrong(f"a record with sequence {sequence}")
        if sequence >= 0:
            if self._next_record not in {None, sequence}:
                raise CoordinatorWrong(f"record {sequence} comes, {self._next_record} is next")
            self._next_record = sequence + 1
            self._began = True

    def _event(self, tag: Tag, data: bytes) -> Event:
        if tag not in _MAY_COME[self.phase]:
            raise CoordinatorWrong(f"{tag.name} in phase {self.phase.name}")
        if tag in RPCS:
            return arrived(data)
        if tag is Tag.INITIAL_MESSAGE:
            return InitialCame(data)
        if tag is not Tag.CHECKPOINT and data:
            raise CoordinatorWrong(f"{tag.name} with {len(data)} bytes of data")
        match tag:
            case Tag.CHECKPOINT:
                scanner = Scanner(data)
                self._restoring, self.phase = scanner.long(), Phase.RESTORING
                if self._restoring < 0 or not scanner.ended:
                    raise CoordinatorWrong(f"a checkpoint of {self._restoring} bytes")
                return RestoreBegins(self._restoring)
            case Tag.TAKE_BECOMING_PRIMARY_CHECKPOINT if self.phase is Phase.FRESH:
                self._initial_due, self.phase, self._next_record = True, Phase.STARTING, 0
                return FirstStart()
            case Tag.TAKE_BECOMING_PRIMARY_CHECKPOINT:
                self._lead()
                self.phase = Phase.SAVING
                return SaveDue()
            case Tag.BECOMING_PRIMARY:
                self._lead()
                return BecamePrimary()
            case Tag.UPGRADE_TAKE_CHECKPOINT:
                self._lead()
                self._due.appendleft((Tag.TAKE_CHECKPOINT, b""))
                return UpgradeNow(test=False)
            case Tag.UPGRADE_SERVICE:
                if self._began:
                    raise CoordinatorWrong("an upgrade is tested before the past is repeated, not within")
                return UpgradeNow(test=True)
            case _:
                self.phase = Phase.SAVING
                return SaveDue()

    def _lead(self) -> None:
        self.primary, self.phase = True, Phase.PRIMARY

    # ------------------------------------------------------------ what the application does

    def initial(self, data: bytes) -> None:
        """Say what the first message is to be, at the first start. Raises: NotAllowedNow."""
        if not self._initial_due:
            raise NotAllowedNow(f"an InitialMessage in phase {self.phase.name}")
        self._initial_due = False
        self._out.append(message(Tag.INITIAL_MESSAGE, data))
        self.phase = Phase.SAVING

    def attach(self, to: str) -> None:
        """Say that calls to another instance will come; calls do so by themselves."""
        if to and to != self._name and to not in self._attached:
            self._not_within_save()
            self._attached.add(to)
            self._flush()
            self._out.append(message(Tag.ATTACH_TO, bytes(to, "utf-8")))

    def fork(self, method: int, arguments: bytes, *, to: str = "") -> None:
        """Call a method without an answer. Raises: NotAllowedNow."""
        self._emit(to, Call(method, CallType.FORKED, arguments))

    def call(self, method: int, arguments: bytes, *, to: str = "", number_of_call: int) -> None:
        """Call a method whose answer comes as Answer with the same number. Raises: NotAllowedNow."""
        self._emit(to, Call(method, CallType.AWAITED, arguments, self._name, number_of_call))

    def answer(self, call: Call, outcome: Outcome, payload: bytes = b"") -> None:
        """Answer a call that is awaited. Raises: NotAllowedNow."""
        self._emit(call.answer_to, Answer(outcome, self._name, call.number, payload))

    def impulse(self, method: int, arguments: bytes, *, to: str = "") -> None:
        """Bring something in from outside. Raises: NotAllowedNow: this process is not primary."""
        if not self.primary:
            raise NotAllowedNow("an impulse of a process that is not primary")
        self._send(to, outgoing_call(self._to(to), Call(method, CallType.IMPULSE, arguments)))

    def ask_save(self) -> None:
        """Have the coordinator ask for a checkpoint soon. Raises: NotAllowedNow."""
        if not self.primary:
            raise NotAllowedNow("only a primary asks for a checkpoint")
        self._not_within_save()
        self._flush()
        self._out.append(message(Tag.TAKE_CHECKPOINT))

    def begin_save(self, length: int) -> None:
        """Begin to save the state, which has so many bytes. Raises: NotAllowedNow."""
        if self.phase is not Phase.SAVING or self._saving >= 0:
            raise NotAllowedNow(f"a checkpoint in phase {self.phase.name}")
        self._flush()
        self._out.append(message(Tag.CHECKPOINT, number(length)))
        self._saving = length
        self._end_save()

    def save(self, data: bytes) -> None:
        """Give some of it. Raises: NotAllowedNow: more than `begin_save` said."""
        if len(data) > self._saving:
            raise NotAllowedNow(f"{len(data)} bytes of a checkpoint, {max(self._saving, 0)} are left")
        self._out.append(data)
        self._saving -= len(data)
        self._end_save()

    def outgoing(self) -> bytes:
        """Give what is to be sent now, and forget it."""
        self._flush()
        data = b"".join(self._out)
        self._out.clear()
        return data

    def _emit(self, to: str, item: Call | Answer) -> None:
        if not self._began:
            raise NotAllowedNow("an RPC before the first message: it would depend on nothing that is logged")
        to = self._to(to)
        self._send(to, outgoing_call(to, item) if isinstance(item, Call) else outgoing_answer(to, item))

    def _to(self, name: str) -> str:
        return "" if name == self._name else name

    def _send(self, to: str, encoded: bytes) -> None:
        self._not_within_save()
        self.attach(to)
        self._rpcs.append(encoded)

    def _not_within_save(self) -> None:
        if self._saving >= 0:
            raise NotAllowedNow(f"{self._saving} bytes of the checkpoint have to be sent before anything else")

    def _end_save(self) -> None:
        if self._saving == 0:
            self._saving = -1
            self.primary = self.primary or self._next_record == 0  # the first start
            self.phase = Phase.PRIMARY if self.primary else Phase.REPLAYING

    def _flush(self) -> None:
        if len(self._rpcs) > 1:
            self._out.append(message(Tag.RPC_BATCH, number(len(self._rpcs)), *self._rpcs))
        else:
            self._out += self._rpcs
        self._rpcs.clear()


_CONTROL: Final = {
    Tag.TAKE_CHECKPOINT,
    Tag.UPGRADE_TAKE_CHECKPOINT,
    Tag.TAKE_BECOMING_PRIMARY_CHECKPOINT,
    Tag.UPGRADE_SERVICE,
    Tag.BECOMING_PRIMARY,
}
_NORMAL: Final = {*RPCS, Tag.INITIAL_MESSAGE, Tag.TAKE_CHECKPOINT}
_MAY_COME: Final = {
    Phase.FRESH: {Tag.TAKE_BECOMING_PRIMARY_CHECKPOINT, Tag.CHECKPOINT},
    Phase.REPLAYING: _NORMAL | _CONTROL,
    Phase.PRIMARY: _NORMAL,
}
