"""The client's machine under hand-made events, and under faults at random: every call once, in order, answered."""

from __future__ import annotations

import random
from collections.abc import Sequence

from client_net import Net, message
from hypothesis import given
from hypothesis import strategies as st

from deathless.codec.session_proof import nonce_of
from deathless.codec.wire import (
    BatchRefused,
    Registered,
    ReplyError,
    Role,
    RoleAt,
    Type,
    Welcome,
    encode_queries,
    encode_replies,
    ok_reply,
    packet,
    struct_packet,
)
from deathless.core.client.events import (
    AddressesFound,
    BytesReceived,
    CallsSubmitted,
    CloseRequested,
    CompleteCalls,
    Dial,
    LinkId,
    LinkLost,
    LinkOpened,
    QueriesSubmitted,
    Send,
)
from deathless.core.client.link import (
    SUSPECT_S,
)
from deathless.core.client.machine import ClientMachine

OK = {name: ok_reply(name.encode()) for name in "abcdefgh"}


# ---- small cases by hand ---------------------------------------------------------------------------------------


def machine_() -> ClientMachine[str]:
    return ClientMachine(service="bank", name="c", jitter=lambda: 0.0, secret=lambda: bytes(16))


def greeted(role: str = "primary", epoch: int = 1) -> tuple[ClientMachine[str], LinkId]:
    """A machine whose first link was welcomed."""
    machine = machine_()
    dialed = machine.handle(AddressesFound(addresses=("p", "s")), 0.0)
    link = next(effect.link for effect in dialed if isinstance(effect, Dial))
    machine.handle(LinkOpened(link=link), 0.0)
    welcome = Welcome(1, "bank", "r0", role, epoch, 5, "", 0, 1000, 100)
    machine.handle(BytesReceived(link=link, data=struct_packet(Type.WELCOME, welcome)), 0.0)
    return machine, link


def sends(effects: Sequence[object]) -> bytes:
    return b"".join(effect.data for effect in effects if isinstance(effect, Send))


def test_events_of_links_that_are_gone_change_nothing() -> None:
    machine, _ = greeted()
    for event in (
        LinkOpened(link=LinkId(99)),
        LinkLost(link=LinkId(99), reason=""),
        BytesReceived(link=LinkId(99), data=b"x"),
    ):
        assert machine.handle(event, 0.0) == []
    machine.check_invariants()


def test_link_that_opens_twice_greets_once() -> None:
    machine, link = greeted()
    assert machine.handle(LinkOpened(link=link), 0.0) == []


def test_same_role_told_again_does_not_send_everything_again() -> None:
    machine, link = greeted()
    machine.handle(
        BytesReceived(link=link, data=struct_packet(Type.REGISTERED, Registered(nonce_of(bytes(16)), 9))), 0.0
    )
    machine.handle(CallsSubmitted(messages=[message("a")], waiters=["a"]), 0.0)
    role = struct_packet(Type.ROLE, Role("primary", 1, "p"))
    assert machine.handle(BytesReceived(link=link, data=role), 0.0) == []


def test_time_goes_on_by_our_own_clock_from_what_a_primary_told_last() -> None:
    machine, link = greeted()
    assert machine.time_us(0.0) is None
    told = struct_packet(Type.ROLE, RoleAt("primary", 1, "p", 5_000_000))
    machine.handle(BytesReceived(link=link, data=told), 10.0)
    assert machine.time_us(12.5) == 7_500_000
    machine.handle(BytesReceived(link=link, data=struct_packet(Type.ROLE, Role("standby", 2, "z"))), 20.0)
    assert machine.time_us(20.0) == 15_000_000


def test_registration_of_another_nonce_is_not_ours() -> None:
    machine, link = greeted()
    machine.handle(BytesReceived(link=link, data=struct_packet(Type.REGISTERED, Registered(b"x" * 16, 9))), 0.0)
    assert machine.session == 0


def test_refusal_of_another_session_is_not_ours() -> None:
    machine, link = greeted()
    refused = struct_packet(Type.BATCH_REFUSED, BatchRefused(77, 1, "DL3009", "", -1))
    assert machine.handle(BytesReceived(link=link, data=refused), 0.0) == []


def test_calls_and_packets_of_an_unknown_type_are_passed_over() -> None:
    machine, link = greeted()
    assert machine.handle(BytesReceived(link=link, data=packet(200, b"new")), 0.0) == []
    assert machine.handle(CallsSubmitted(messages=[], waiters=[]), 0.0) == []


def test_standby_at_hand_told_of_a_primary_twice_dials_it_once() -> None:
    machine, link = greeted("standby", 1)
    role = struct_packet(Type.ROLE, Role("standby", 2, "z"))
    dials = [e for e in machine.handle(BytesReceived(link=link, data=role + role), 0.0) if isinstance(e, Dial)]
    assert [dial.address for dial in dials] == ["z"]


def test_answers_and_replies_of_a_probe_wait_until_it_leads() -> None:
    net = Net("p", "s").start()
    net.replicas["p"].freeze()
    net.call("a")
    net.advance(SUSPECT_S + 0.01)
    probe = next(link for link, name in net.links.items() if name == "s")
    net.tell(BytesReceived(link=probe, data=encode_queries([1], [OK["a"]], stale=False, answers=True)))
    net.tell(BytesReceived(link=probe, data=encode_replies(100, [1], [OK["a"]])))
    assert net.done == {}


def test_hint_to_the_replica_being_dialed_keeps_that_attempt() -> None:
    machine, link = greeted("standby", 1)
    address = "s"  # the other candidate, dialed at once
    role = struct_packet(Type.ROLE, Role("standby", 2, address))
    effects = machine.handle(BytesReceived(link=link, data=role), 0.0)
    assert not any(isinstance(effect, Dial) for effect in effects)


def test_unreadable_error_in_an_answer_ends_the_connection() -> None:
    machine, link = greeted()
    machine.handle(QueriesSubmitted(messages=[b"q"], waiters=["q"], stale=False), 0.0)
    data = encode_queries([1], [b"\x01junk"], stale=False, answers=True)
    machine.handle(BytesReceived(link=link, data=data), 0.0)
    assert ReplyError.__name__ in machine.last_problem


def test_equal_histories_give_equal_effects() -> None:
    def run() -> list[str]:
        net = Net("p", "s", "t", jitter=random.Random(3).random)
        net.start()
        net.call("a", "b")
        net.replicas["p"].freeze()
        net.call("c")
        net.advance(1.0)
        net.kill("p")
        net.lead("t", 2)
        net.advance(1.0)
        assert net.done.keys() == {"a", "b", "c"}
        return net.trace

    assert run() == run()


def test_completion_is_per_batch_not_per_call() -> None:
    machine, link = greeted()
    machine.handle(
        BytesReceived(link=link, data=struct_packet(Type.REGISTERED, Registered(nonce_of(bytes(16)), 9))), 0.0
    )
    machine.handle(CallsSubmitted(messages=[b"m"] * 3, waiters=["a", "b", "c"]), 0.0)
    replies = encode_replies(9, [1, 2, 3], [b"\0"] * 3)
    effects = machine.handle(BytesReceived(link=link, data=replies), 0.0)
    assert effects == [CompleteCalls(waiters=["a", "b", "c"], replies=[b"\0"] * 3)]


# ---- everything at random --------------------------------------------------------------------------------------


class Chaos:
    """Takeovers, freezes, cuts, refusals and lost connections, then peace."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.net = Net("r0", "r1", "r2", jitter=self.chance.random)
        self.epoch = 1
        self.calls = 0
        self.leader = "r0"

    def step(self) -> None:
        net, chance = self.net, self.chance
        name = chance.choice(list(net.replicas))
        replica = net.replicas[name]
        action = chance.randrange(12)
        if action <= 4:
            texts = [f"{self.calls + i}" for i in range(chance.randint(1, 6))]
            self.calls += len(texts)
            net.call(*texts)
        elif action == 5:
            net.query(f"q{self.calls}", stale=chance.random() < 0.5)
            self.calls += 1
        elif action == 6:
            net.kill(name)
        elif action == 7:
            net.down.discard(name)
        elif action == 8:
            replica.freeze() if replica.held is None else replica.thaw()
        elif action == 9:
            net.replicas[self.leader].refusals = [(chance.choice(["DL1002", "DL1003"]), chance.randint(0, 300))]
        elif action == 10:
            replica.muted, replica.dropping = chance.random() < 0.5, chance.random() < 0.3
        else:
            self.take_over()
        net.advance(chance.random() * chance.choice([0.01, 0.2, 1.0]))

    def take_over(self) -> None:
        up = [n for n, r in self.net.replicas.items() if n not in self.net.down and r.held is None]
        if up:
            self.leader = self.chance.choice(up)
            self.epoch += 1
            # A frozen or dead predecessor is deposed: what it still holds never reaches the log (I2).
            old = [r for n, r in self.net.replicas.items() if r.role == "primary" and n != self.leader]
            for replica in old:
                replica.role = "standby"
            self.net.lead(self.leader, self.epoch)

    def heal(self) -> None:
        net = self.net
        net.down.clear()
        for replica in net.replicas.values():
            replica.muted = replica.dropping = False
            replica.refusals.clear()
            if replica.held is not None:
                replica.thaw()
        self.take_over()
        net.advance(60.0)


@given(st.integers(0, 2**32))
def test_after_any_faults_every_call_is_applied_once_in_order_and_answered(seed: int) -> None:
    chaos = Chaos(seed)
    chaos.net.start()
    for _ in range(60):
        chaos.step()
    chaos.heal()
    net = chaos.net
    assert net.failed == {}
    assert sorted(net.done) == sorted({*net.texts(), *(name for name in net.done if name.startswith("q"))})
    assert net.texts() == sorted(set(net.texts()), key=int), "once each, in the order of submission"
    assert len(net.done) == chaos.calls or all(name in net.done for name in net.texts())
    assert net.machine.window.in_flight == 0
    assert net.machine.window.queued == 0
    assert len(net.machine.queries) == 0


def test_close_acknowledges_replies_that_nothing_else_acknowledged() -> None:
    net = Net("p").start()
    net.call("a")
    net.tell(CloseRequested())
    assert net.replicas["p"].acks == [0, 1]
