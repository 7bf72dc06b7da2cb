"""Who waits for results: answered with the recorded reply once its frame is confirmed, never from a guess (I1, I5)."""

from __future__ import annotations

from collections.abc import Sequence

from deathless.base.errors import InvocationUnknown
from deathless.base.limits import Limits
from deathless.codec.wire import PacketReader, ReplyError, Type, decode_results, decode_struct
from deathless.core import effects as fx
from deathless.core.events import Conn
from deathless.core.primary.attached import Attached
from deathless.core.tables.results import Results

ONE, TWO = Conn(1), Conn(2)


class Desk:
    """Those who wait, and what runs."""

    def __init__(self, *running: int, at_most: int = 100) -> None:
        limits = Limits(waiting_results_max=at_most)
        self.running = set(running)
        self.results = Results(limits)
        self.attached = Attached(results=self.results, holds=self.running.__contains__, limits=limits)

    def ask(
        self, conn: Conn, ids: Sequence[int], invocations: Sequence[int], synced: int = 0
    ) -> list[tuple[int, bytes]]:
        effects = self.attached.received(conn, ids, invocations, synced)
        self.attached.check_invariants()
        told: list[tuple[int, bytes]] = []
        for effect in effects:
            assert isinstance(effect, fx.Send)
            assert effect.conn == conn
            told += unpacked(effect.data)
        return told

    def end(self, invocation: int, reply: bytes) -> None:
        """A frame runs in which it ends."""
        self.running.discard(invocation)
        self.results.add(invocation, reply, 0)
        self.attached.frame_synced([(invocation, reply)])

    def confirm(self, *finished: tuple[int, bytes]) -> dict[Conn, list[tuple[int, bytes]]]:
        out: dict[Conn, list[bytes]] = {}
        self.attached.frame_confirmed(finished, out)
        self.attached.check_invariants()
        return {conn: [each for part in parts for each in unpacked(part)] for conn, parts in out.items()}

    def prove(self, synced: int) -> dict[Conn, list[tuple[int, bytes]]]:
        """A proof begins now and is answered."""
        proved = self.attached.take(synced)
        self.attached.check_invariants()
        out: dict[Conn, list[bytes]] = {}
        self.attached.release(proved, out)
        self.attached.check_invariants()
        return {conn: [each for part in parts for each in unpacked(part)] for conn, parts in out.items()}


def unpacked(data: bytes) -> list[tuple[int, bytes]]:
    found: list[tuple[int, bytes]] = []
    for kind, body in PacketReader(10_000).feed(data):
        assert kind == Type.RESULTS
        found += zip(*decode_results(body), strict=True)
    return found


def test_a_result_that_is_there_is_told_at_once() -> None:
    desk = Desk()
    desk.end(5, b"\x00five")
    desk.confirm((5, b"\x00five"))
    assert desk.ask(ONE, [1], [5]) == [(1, b"\x00five")]
    assert desk.ask(ONE, [2, 3], [5, 5]) == [(2, b"\x00five"), (3, b"\x00five")]


def test_a_result_waits_for_the_proof_of_its_frame() -> None:
    desk = Desk(5)
    assert desk.ask(ONE, [1], [5]) == []
    desk.end(5, b"\x00five")
    assert desk.ask(TWO, [9], [5]) == []
    assert desk.confirm((5, b"\x00five")) == {ONE: [(1, b"\x00five")], TWO: [(9, b"\x00five")]}
    assert desk.confirm((5, b"\x00five")) == {}


def test_asking_again_waits_once() -> None:
    desk = Desk(5, 6)
    desk.ask(ONE, [1, 2], [5, 6])
    desk.ask(ONE, [1, 2], [5, 6])
    assert desk.confirm((5, b"\x00x"), (6, b"\x00y")) == {ONE: [(1, b"\x00x"), (2, b"\x00y")]}


def test_that_nobody_knows_it_is_said_after_a_proof_that_covers_what_was_seen() -> None:
    desk = Desk()
    assert desk.ask(ONE, [1], [5], synced=7) == []
    assert desk.prove(6) == {}
    assert desk.ask(TWO, [2], [5], synced=6) == []
    assert list(desk.prove(6)) == [TWO]
    ((number, reply),) = desk.prove(7)[ONE]
    assert number == 1
    assert reply[0] == 1
    assert decode_struct(ReplyError, reply[1:]).code == InvocationUnknown.code
    assert desk.prove(7) == {}


def test_who_is_gone_is_told_nothing() -> None:
    desk = Desk(5, 6)
    desk.ask(ONE, [1, 2], [5, 6])
    desk.ask(TWO, [1], [5])
    desk.attached.connection_lost(ONE)
    desk.attached.check_invariants()
    assert desk.confirm((5, b"\x00x"), (6, b"\x00y")) == {TWO: [(1, b"\x00x")]}


def test_one_more_than_the_maximum_is_dropped_and_may_ask_again() -> None:
    desk = Desk(5, 6, at_most=1)
    desk.ask(ONE, [1, 2, 3], [5, 6, 99])
    assert desk.confirm((5, b"\x00x"), (6, b"\x00y")) == {ONE: [(1, b"\x00x")]}
    desk.ask(ONE, [2], [99])
    assert list(desk.prove(0)) == [ONE]


def test_while_a_frame_is_on_its_way_to_the_log_nothing_is_told_of_what_it_may_have_given() -> None:
    desk = Desk()
    desk.results.add(5, b"\x00five", 0)  # it ran, and the core has not heard of it
    assert desk.attached.received(ONE, [1, 2], [5, 6], 7, writing=True) == []
    assert desk.prove(7) == {}
    told = desk.prove(8)[ONE]
    assert told[0] == (1, b"\x00five")
    assert told[1][0] == 2
    assert told[1][1][0] == 1
