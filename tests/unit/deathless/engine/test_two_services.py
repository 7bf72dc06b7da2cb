"""Two services that wait for each other: every message has effect once, whatever is restored, taken over or repeated.

The handlers are real ones, the links between the services are drawn: messages go over in any pieces, own work runs at
any time, a replica is loaded from a checkpoint anywhere, and a follower becomes the primary anywhere (I2, I3, I5, I6).
"""

from __future__ import annotations

from datetime import timedelta

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.deathless.engine.shard.test_messaging import Pair, copy_of, reloaded

from deathless.base.errors import Diverged
from deathless.base.limits import Limits
from deathless.base.times import Times
from deathless.codec.frames import Run
from deathless.codec.messages import Kind, decode, encode, encode_register, encode_time
from deathless.codec.peer_messages import (
    SELF,
    SELF_SESSION,
    Adopt,
    PeerHello,
    Reference,
    Request,
    Target,
    Trim,
    decode_body,
    encode_record,
    encode_request,
    encode_response,
)
from deathless.codec.wire import ReplyError, Status, accepted_invocation, decode_struct, ok_reply
from deathless.engine.shard.assembly import open_shard
from deathless.engine.shard.shard import Shard
from deathless.execution.author.service import Service
from deathless.execution.turn.context import Context

SECOND = 1_000_000
LIMITS = Limits()


class Count(msgspec.Struct):
    """State of every key of both services."""

    taken: int = 0
    done: int = 0


shop = Service("shop", state=Count)
bank = Service("bank", state=Count)


@shop.handler
async def order(cart: Count, ctx: Context, n: int) -> int:
    """Pay, wait, tell the shop's own total."""
    cart.taken += n
    paid = await ctx.call("bank", "till", "pay", {"n": n}, result=int)
    await ctx.timer(after=timedelta(seconds=n))
    ctx.fork("shop", "total", "add", {"n": n})
    cart.done += n
    return paid


@shop.handler
def add(total: Count, ctx: Context, n: int) -> None:
    """Count what was paid."""
    total.done += n


@shop.handler
async def limit(cart: Count, ctx: Context) -> int:
    """Asked by the bank while it works on a payment."""
    cart.taken += 1
    return cart.taken


@bank.handler
async def pay(till: Count, ctx: Context, n: int) -> int:
    """Ask back, then book."""
    await ctx.call("shop", "limits", "limit", result=int)
    till.done += n
    return till.done


clinic = Service("clinic", state=Count)
drawn: list[int] = []


@clinic.handler
async def treat(patient: Count, ctx: Context) -> int:
    """Wait, then look at what no log knows."""
    await ctx.timer(after=timedelta(seconds=1))
    drawn.append(0)
    patient.taken = len(drawn)
    ctx.fork("bank", "till", "pay", {"n": 1})
    await ctx.timer(after=timedelta(seconds=1))
    return 0


class Side:
    """One service, and what it knows of the other."""

    def __init__(self, service: Service) -> None:
        self.service = service
        self.pair = Pair(self.make)
        self.sent = 0

    def make(self) -> Shard:
        return open_shard(self.service, LIMITS, bytes(32))

    @property
    def now(self) -> Shard:
        return self.pair.primary

    @property
    def target(self) -> Target:
        return Target(self.service.name, 0)

    def own_work(self, count: int) -> bool:
        """Run up to `count` of our own messages."""
        outbox = self.now.outbox
        messages = outbox.messages_from(SELF, outbox.first_position(SELF), 1 << 20)[:count]
        if messages:
            self.pair.say(SELF_SESSION, *messages)
        return bool(messages)

    def takes_from(self, other: Side, count: int, *, again: int = 0) -> bool:
        """Take up to `count` messages of the other one's outbox, as this side's session says; drop repetitions."""
        hello = PeerHello(other.service.name, 0, bytes(16), 1)
        peer = self.now.peers.find(hello)
        session = self.pair.peer(hello) if peer is None else peer.session
        known = self.now.sessions.get(session)
        assert known is not None
        outbox, position = other.now.outbox, max(1, known.next_seq - again)
        first = max(position, outbox.first_position(self.target))
        messages = outbox.messages_from(self.target, first, 1 << 20)[: count + again]
        fresh = messages[known.next_seq - first :]
        if fresh:
            self.pair.say(session, *fresh)
        return bool(fresh)

    def tells_confirmed(self, other: Side) -> None:
        """What this side has taken the other one forgets."""
        peer = self.now.peers.get(other.target)
        session = self.now.sessions.get(0 if peer is None else peer.session)
        if session is not None:
            other.pair.records(encode_record(Trim(self.service.name, 0, session.next_seq - 1)))

    def time(self, seconds: int) -> None:
        self.pair.records(encode_time(Times.at(self.now.place.time_us + seconds * SECOND)))

    def loaded(self) -> None:
        """A replica comes back from a checkpoint."""
        self.pair.follower = reloaded(self.now, self.make)
        assert copy_of(self.pair.follower) == copy_of(self.now)

    def taken_over(self) -> None:
        """The follower leads; what led before is gone, and a fresh replica follows."""
        self.pair.primary = self.pair.follower
        self.loaded()


class World:
    """Both, and the clients of the shop."""

    def __init__(self) -> None:
        self.shop, self.bank = Side(shop), Side(bank)
        self.shop.pair.records(encode_register(bytes(16)))
        self.client = self.shop.now.place.lsn
        self.orders: dict[int, int] = {}  # by invocation

    def order(self, n: int) -> None:
        args = msgspec.msgpack.encode({"n": n})
        message = encode(Kind.CALL, method=b"order", key=b"cart%d" % (n % 2), args=args)
        (result,) = self.shop.pair.say(self.client, message).results
        invocation = accepted_invocation(result.replies[0])
        assert invocation is not None
        self.orders[invocation] = n

    def step(self, what: str, side: bool, count: int) -> None:
        one, other = (self.shop, self.bank) if side else (self.bank, self.shop)
        match what:
            case "order":
                self.order(count)
            case "own":
                one.own_work(count)
            case "link":
                one.takes_from(other, count, again=count - 1)
            case "trim":
                one.tells_confirmed(other)
            case "time":
                one.time(count)
            case "load":
                one.loaded()
            case _:
                one.taken_over()

    def settle(self) -> None:
        """Let everything that is on its way arrive."""
        for _ in range(200):
            moved = [
                self.shop.own_work(9), self.bank.own_work(9),
                self.shop.takes_from(self.bank, 9), self.bank.takes_from(self.shop, 9),
            ]  # fmt: skip
            if not any(moved):
                if not self.shop.now.place.due.first_us:
                    return
                self.shop.time(9)
        raise AssertionError("it never ends")

    def count(self, side: Side, key: bytes) -> Count:
        encoded = side.now.executor.state().get(key)
        return Count() if encoded is None else msgspec.msgpack.decode(encoded, type=Count)


STEPS = st.tuples(
    st.sampled_from(["order", "own", "link", "link", "trim", "time", "load", "take over"]),
    st.booleans(),
    st.integers(1, 3),
)


@settings(deadline=None)
@given(st.lists(STEPS, max_size=30))
def test_every_message_between_two_services_has_effect_once(steps: list[tuple[str, bool, int]]) -> None:
    world = World()
    world.order(1)
    for step in steps:
        world.step(*step)
    world.settle()
    wanted = sum(world.orders.values())
    assert world.count(world.bank, b"till").done == wanted
    assert world.count(world.shop, b"total").done == wanted
    assert world.count(world.shop, b"limits").taken == len(world.orders)
    replies = [world.shop.now.results.get(invocation) for invocation in world.orders]
    assert None not in replies
    paid = sorted(msgspec.msgpack.decode(reply[1:], type=int) for reply in replies if reply is not None)
    assert paid[-1] == wanted
    assert len(set(paid)) == len(paid), "each order was booked by itself"
    assert replies[0] is not None
    assert replies[0].startswith(ok_reply(b""))


def test_i3_a_service_created_anew_is_told_no_reply_to_what_the_one_before_it_asked() -> None:
    world = World()
    for n in (1, 2, 3):
        world.order(n)
    assert world.bank.takes_from(world.shop, 9)
    anew = PeerHello("shop", 0, bytes(16), 2)
    world.bank.pair.records(encode_record(Adopt(anew.service, anew.shard, anew.service_id, anew.incarnation)))
    peer = world.bank.now.peers.find(anew)
    assert peer is not None
    outbox = world.bank.now.outbox
    asked = [decode(message) for message in outbox.messages_from(world.shop.target, 1, 1 << 20)]
    assert [message.kind for message in asked] == [Kind.REQUEST], "what waited for the key runs, and asks the new one"
    caller = decode_body(Request, asked[0].idempotency_key)
    reply = encode_response(Reference(caller.invocation, caller.operation), ok_reply(b"\x01"))
    mine = encode_request(Request(2, 1), method=b"pay", key=b"till", args=msgspec.msgpack.encode({"n": 5}))
    world.bank.pair.say(peer.session, mine, reply)
    assert world.count(world.bank, b"till").done == 2
    world.bank.loaded()


def test_i6_a_turn_behind_an_await_that_is_not_deterministic_is_named_by_handler_and_key() -> None:
    side = Side(clinic)
    side.pair.records(encode_register(bytes(16)))
    side.pair.say(1, encode(Kind.CALL, method=b"treat", key=b"alice", args=b"\x80"))
    _, frame = side.pair.frame((Run(0, 0, 0, 1), (encode_time(Times.at(SECOND)),)))
    with pytest.raises(Diverged, match=r"lsn 3: handler 'treat' for key 'alice' gave another state or reply"):
        side.pair.follower.apply(frame)


def test_i6_a_checkpoint_whose_handler_does_something_else_when_it_runs_again_is_not_loaded() -> None:
    side = Side(clinic)
    side.pair.records(encode_register(bytes(16)))
    side.pair.say(1, encode(Kind.CALL, method=b"treat", key=b"alice", args=b"\x80"))
    side.pair.frame((Run(0, 0, 0, 1), (encode_time(Times.at(SECOND)),)))
    with pytest.raises(Diverged, match="'treat' for key 'alice'"):
        side.loaded()


# ---- how many services are sent to ---------------------------------------------------------------------------------

crier = Service("crier", state=Count)


@crier.handler
def tell(key: Count, ctx: Context, names: list[str]) -> int:
    """Send to each of the services named."""
    key.taken += 1
    for name in names:
        ctx.fork(name, "k", "hear")
    return key.taken


@crier.handler
async def tell_later(key: Count, ctx: Context, first: list[str], then: list[str]) -> int:
    """Send to some, wait, send to others."""
    tell(key, ctx, first)
    await ctx.timer(after=timedelta(seconds=1))
    return tell(key, ctx, then)


class Crier:
    """A service that may send to two others."""

    def __init__(self) -> None:
        self.pair = Pair(self.make)
        self.session = self.pair.client()

    def make(self) -> Shard:
        return open_shard(crier, Limits(targets_max=2), bytes(32))

    def tell(self, *calls: list[str]) -> list[str]:
        """Call in one run; gives what the replies say."""
        arguments = [msgspec.msgpack.encode({"names": names}) for names in calls]
        messages = [encode(Kind.CALL, method=b"tell", key=b"k", args=args) for args in arguments]
        (result,) = self.pair.say(self.session, *messages).results
        return [said(reply) for reply in result.replies]

    def later(self, key: bytes, first: list[str], then: list[str]) -> int:
        args = msgspec.msgpack.encode({"first": first, "then": then})
        (result,) = self.pair.say(self.session, encode(Kind.CALL, method=b"tell_later", key=key, args=args)).results
        invocation = accepted_invocation(result.replies[0])
        assert invocation is not None
        return invocation

    def result(self, invocation: int) -> str:
        """Let a second pass; gives what the invocation gave."""
        self.pair.records(encode_time(Times.at(self.pair.primary.place.time_us + SECOND)))
        reply = self.pair.primary.results.get(invocation)
        assert reply is not None
        return said(reply)

    def targets(self) -> list[str]:
        return [target.service for target in self.pair.primary.outbox.targets()]


def said(reply: bytes) -> str:
    if reply[0] == Status.OK:
        return str(msgspec.msgpack.decode(reply[1:]))
    failed = decode_struct(ReplyError, reply[1:])
    return f"{failed.type} {failed.text}"


REFUSED = "TooLarge sent to 'c', besides 2 other services (limits.targets_max)"


def test_i10_a_turn_that_would_send_to_one_more_service_than_may_be_fails_and_nothing_of_it_is_kept() -> None:
    service = Crier()
    assert service.tell(["a"], ["b", "c", "a"], ["b", "crier"], ["c"], ["a"]) == ["1", REFUSED, "2", REFUSED, "3"]
    assert service.targets() == ["", "a", "b"]
    assert service.tell(["d"], ["b"]) == [REFUSED.replace("'c'", "'d'"), "4"]
    service.pair.primary, service.pair.follower = (reloaded(service.pair.primary, service.make) for _ in range(2))
    assert service.tell(["c"], ["b"]) == [REFUSED, "5"]


def test_i10_an_invocation_whose_turn_would_ends_with_that_and_its_key_is_free() -> None:
    service = Crier()
    invocation = service.later(b"k", ["a"], ["b", "c"])
    assert service.result(invocation) == REFUSED
    assert service.targets() == ["a"]
    assert service.tell(["b"]) == ["2"]


def test_a_turn_that_runs_again_for_a_checkpoint_is_not_refused_for_those_that_came_after_it() -> None:
    service = Crier()
    waiting = service.later(b"other", ["a"], ["b"])
    service.pair.peer(PeerHello("a", 0, bytes(16), 1))
    service.pair.records(encode_record(Adopt("a", 0, bytes(16), 2)))  # created anew: nothing is known of it
    assert service.tell(["b"], ["c"], ["d"]) == ["1", "2", REFUSED.replace("'c'", "'d'")]
    service.pair.primary, service.pair.follower = (reloaded(service.pair.primary, service.make) for _ in range(2))
    assert service.result(waiting) == "2"
    assert service.targets() == ["b", "c"]
    fresh = service.later(b"other", ["b"], ["d"])
    assert service.result(fresh) == REFUSED.replace("'c'", "'d'")
