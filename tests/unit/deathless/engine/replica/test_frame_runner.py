"""The short way of a call does what the long way does, at the same bytes, and only where nothing else is to be done."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.deathless.core.primary_world import batch, call
from tests.unit.deathless.engine.replica_world import Node, World

from deathless.base.errors import Deposed, OutOfSpace
from deathless.base.safeguards import Safeguards
from deathless.codec.session_proof import nonce_of
from deathless.codec.wire import Registered, Type, decode_struct, encode_batch
from deathless.core import events as ev
from deathless.core.primary.handover import Stage
from deathless.core.replica.replica import Replica
from deathless.engine.log.overview import frames_of
from deathless.engine.log.route import listed_segments
from deathless.engine.shard.shard import Executed
from deathless.simulation.models.log_driver import SERVICE_ID

CONNS = [ev.Conn(number) for number in (1, 2, 3)]


class Pair:
    """One world twice, with calls that may take the short way and without."""

    def __init__(self, **settings: Any) -> None:
        self.worlds = [World(), World()]
        self.nodes = [
            world.primary(short_way=short, **settings) for world, short in zip(self.worlds, (True, False), strict=True)
        ]
        self.short = 0
        core, counted = self.nodes[0].engine.core, self

        def release(*args: Any, **how: Any) -> Any:
            counted.short += how["plain"]
            return Replica.short_release(core, *args, **how)

        core.short_release = release  # type: ignore[method-assign]  # counted
        self.sessions = [self.register(conn) for conn in CONNS]
        self.short = 0

    def both(self, act: Callable[[Node], None]) -> None:
        """Do it in both, and compare all that left."""
        for node in self.nodes:
            act(node)
        one, other = self.nodes
        assert one.sent == other.sent
        assert one.noted == other.noted
        assert one.stopped == other.stopped

    def register(self, conn: ev.Conn) -> int:
        secret = b"secret of %d" % conn

        def register(node: Node) -> None:
            node.engine.core.owners.opened(conn, secret, "")
            node.intake.packets(conn, [(Type.REGISTER, nonce_of(secret))])
            node.intake.drained()

        self.both(register)
        told = [body for to, kind, body in self.nodes[0].sent if kind == Type.REGISTERED and to == conn]
        return decode_struct(Registered, told[-1]).session

    def send(self, *batches: tuple[int, int, int, int]) -> None:
        """Batches of one turn of the loop: (which session, first seq, count, acknowledged through)."""

        def send(node: Node) -> None:
            for which, first, count, acked in batches:
                messages = [call(b"%d of %d" % (seq, which)) for seq in range(first, first + count)]
                found = batch(self.sessions[which], first, messages, acked)
                body = encode_batch(found.run, found.ends, found.blob)[5:]
                node.intake.packets(CONNS[which], [(Type.BATCH, body)])
            node.intake.drained()

        self.both(send)

    def wait(self, seconds: float) -> None:
        """Let time pass."""
        for world in self.worlds:
            world.now += seconds
        self.both(lambda node: node.engine.post(ev.TimerFired()))

    def check(self) -> None:
        """Compare what both hold and have written."""
        held = [
            node.engine.shard.snapshot(
                service="bank", service_id=SERVICE_ID, incarnation=7, epoch=1, fingerprint=bytes(16)
            )
            for node in self.nodes
        ]
        assert held[0] == held[1]
        logs = [
            [scanned.raw for epoch, roll in listed_segments(fs) for scanned in frames_of(fs, epoch, roll)]
            for fs in (world.disk.view("reader") for world in self.worlds)
        ]
        assert logs[0] == logs[1]
        assert primary_of(self.nodes[0]) == primary_of(self.nodes[1])
        for node in self.nodes:
            assert node.engine.core.primary is not None
            node.engine.core.primary.check_invariants()
            assert node.engine.core.deadline() == self.nodes[1].engine.core.deadline()


def primary_of(node: Node) -> dict[str, object]:
    """What a primary keeps that is plain data, its admission's included."""
    primary = node.engine.core.primary
    assert primary is not None
    kept: dict[str, object] = {}
    for part in (primary, primary.admission):
        for name, value in vars(part).items():
            if isinstance(value, int | float | str | bytes | tuple | dict) or value is None:
                kept[f"{type(part).__name__}.{name}"] = value
    kept["counters"] = primary.counters
    return kept


def test_calls_of_one_and_of_several_clients_go_the_short_way_and_leave_what_the_long_one_leaves() -> None:
    pair = Pair()
    for seq in range(1, 6):
        pair.send((0, seq, 1, seq - 1))
    pair.send((0, 6, 1, 5), (1, 1, 3, 0), (2, 1, 1, 0))
    pair.send((1, 4, 2, 3), (1, 6, 1, 3))
    assert pair.short == 7
    pair.check()


operations = st.one_of(
    st.tuples(
        st.just("send"),
        st.lists(st.tuples(st.integers(0, 2), st.integers(-2, 1), st.integers(0, 3), st.integers(-2, 0)), max_size=4),
    ),
    st.tuples(st.just("wait"), st.floats(0.0005, 0.2)),
)


@settings(max_examples=60, deadline=None)
@given(st.lists(operations, max_size=12))
def test_whatever_clients_send_both_ways_give_the_same(drawn: list[Any]) -> None:
    pair = Pair()
    next_seq = [1, 1, 1]
    for kind, value in drawn:
        if kind == "wait":
            pair.wait(value)
            continue
        sent = []
        for which, off, count, behind in value:
            first = max(1, next_seq[which] + off)
            if first == next_seq[which]:
                next_seq[which] += count
            sent.append((which, first, count, max(0, first - 1 + behind)))
        pair.send(*sent)
    pair.check()


def test_i1_seal_that_is_linked_during_the_sync_lets_nothing_leave() -> None:
    """The look for the seal comes after the sync that it covers: a successor that came meanwhile is seen."""
    pair = Pair()
    node = pair.nodes[0]
    seal_during_sync(node)
    sent = len(node.sent)
    send_one(node, pair.sessions[0])
    assert [kind for _, kind, _ in node.sent[sent:] if kind == Type.REPLIES] == []
    assert isinstance(node.error(), Deposed)


def test_without_the_look_behind_the_sync_a_frame_leaves_that_a_successor_may_not_have() -> None:
    pair = Pair()
    node = pair.nodes[0]
    node.log.sealed = lambda epoch: False  # type: ignore[method-assign]  # the look is left out
    seal_during_sync(node)
    sent = len(node.sent)
    send_one(node, pair.sessions[0])
    assert [kind for _, kind, _ in node.sent[sent:]] == [Type.REPLIES]


def seal_during_sync(node: Node) -> None:
    """A successor takes the epoch while the next frame is being synced."""
    sync = node.log.sync

    def synced() -> None:
        sync()
        assert node.engine.holder is not None
        epoch = node.engine.holder.epoch
        node.log.link_seals(epoch, epoch)

    node.log.sync = synced  # just then


def send_one(node: Node, session: int) -> None:
    found = batch(session, 1, [call(b"one")])
    node.intake.packets(CONNS[0], [(Type.BATCH, encode_batch(found.run, found.ends, found.blob)[5:])])
    node.intake.drained()


def test_confirmed_place_is_noted_before_a_reply_leaves() -> None:
    pair = Pair()
    node = pair.nodes[0]
    sent = len(node.sent)
    send_one(node, pair.sessions[0])
    assert node.noted[-1][0] == sent
    assert pair.short == 1


def test_full_disk_refuses_what_would_have_gone_the_short_way() -> None:
    pair = Pair()
    node = pair.nodes[0]
    node.log.reserve = lambda size: False  # no room
    send_one(node, pair.sessions[0])
    told = [body for _, kind, body in node.sent if kind == Type.BATCH_REFUSED]
    assert OutOfSpace.code.encode() in told[-1]


FLAGS: list[tuple[str, Callable[[Any], object]]] = [
    ("a proof is under way", lambda p: setattr(p, "_proof", object())),
    ("a successor is spoken of", lambda p: setattr(p, "_doubted", True)),
    ("a collection is owed", lambda p: setattr(p, "_collect_below", 1)),
    ("sockets are read first", lambda p: setattr(p, "_listen_since", 0.0)),
    ("it lets go", lambda p: setattr(p.departure, "stage", Stage.WAITING)),
    ("a query is under way", lambda p: setattr(p._queries, "_under_way", 1)),
    ("a message has killed", lambda p: p._deaths.update({(5, 5): 1})),
    ("frames are tried out", lambda p: setattr(p._suspicion, "_until", 1e9)),
    ("a handler has killed", lambda p: p._suspicion._handlers.update({b"x": 1e9})),
    ("a record waits", lambda p: p.messaging.records.add(b"x" * 20)),
    ("something follows from a record", lambda p: p.messaging.records._synced.append((1 << 60, []))),
    ("a turn is to be set aside", lambda p: p.messaging._killers.append(7)),
    ("a peer has confirmed", lambda p: p.messaging.outreach._trims.update({None: 1})),
    ("a peer claims", lambda p: setattr(p.messaging.outreach, "doubted", True)),
    ("a result is owed", lambda p: p.messaging.attached._unknown.append(None)),
    ("activities are held", lambda p: setattr(p.messaging.activities, "holding", True)),
    ("the log is full", lambda p: setattr(p.admission, "full", True)),
    ("a batch is pending", lambda p: p.admission.record(b"x" * 20)),
    ("an acknowledgement waits", lambda p: p.admission._acks.update({5: 1})),
    ("something is unconfirmed", lambda p: p.admission._next.update({5: 1})),
    ("a registration is under way", lambda p: p.admission._registering.update({b"": None})),
    ("a refusal is held", lambda p: p.admission._held.append((1 << 60, None))),
    ("a follower lags", lambda p: setattr(p.admission, "_lag", lambda: 1 << 60)),
    ("the outbox is full", lambda p: setattr(p.admission, "_outbox_bytes", lambda: 1 << 60)),
]


@pytest.mark.parametrize(("name", "raise_flag"), FLAGS, ids=[name for name, _ in FLAGS])
def test_each_flag_keeps_calls_from_the_short_way(name: str, raise_flag: Callable[[Any], object]) -> None:
    pair = Pair()
    node = pair.nodes[0]
    primary = node.engine.core.primary
    assert primary is not None
    found = [(CONNS[0], batch(pair.sessions[0], 1, [call(b"one")]))]
    raise_flag(primary)
    assert primary.short_frame(found, node.world.now, 1) is None


def test_replica_that_hears_of_a_successor_or_stops_takes_the_long_way() -> None:
    pair = Pair()
    node = pair.nodes[0]
    core = node.engine.core
    found = [(CONNS[0], batch(pair.sessions[0], 1, [call(b"one")]))]
    for name, value in (("_hearsay_proof", 3), ("_stopping", True)):
        before = getattr(core, name)
        setattr(core, name, value)
        assert core.short_frame(found, node.world.now, 1) is None
        setattr(core, name, before)
    assert core.short_frame(found, node.world.now, 1) is not None


@pytest.mark.parametrize("off", [field.name for field in fields(Safeguards)])
def test_with_a_safeguard_left_out_every_frame_takes_the_long_way(off: str) -> None:
    pair = Pair(safeguards=Safeguards(**{off: False}))
    pair.send((0, 1, 1, 0))
    assert pair.short == 0


def test_frame_that_gives_more_than_replies_is_not_plain() -> None:
    plain = Executed(b"", 0, [], [])
    assert plain.plain
    for name in ("registered", "sent", "starts", "stops", "finished", "spans", "unknown"):
        more: Any = {name: [1]}
        assert not replace(plain, **more).plain
