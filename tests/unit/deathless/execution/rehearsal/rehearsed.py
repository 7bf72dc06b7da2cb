"""A bank in many versions, a log of the first one, and what a rehearsal of another one on that log says.

log = Log(bank())
log.call("deposit", "alice", amount=5.0)
log.found(bank(fee=0.02)) -> {"ReplyDiffers:deposit", "StateDiffers:deposit"}
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any, NamedTuple

import msgspec

from deathless import CallRefused, Context, Map, Service, Struct
from deathless.base.errors import Diverged
from deathless.base.ids import ChainHash, Epoch, Incarnation, Lsn
from deathless.base.limits import Limits
from deathless.base.times import BUILT_US, Times
from deathless.codec.frames import Frame, FrameKind, Run
from deathless.codec.messages import Kind, encode, encode_time
from deathless.codec.peer_messages import SELF, SELF_SESSION, Order, Outcome, encode_record
from deathless.codec.snapshot import Snapshot
from deathless.codec.wire import ok_reply
from deathless.engine.shard.assembly import open_shard
from deathless.engine.shard.shard import Executed, Shard
from deathless.execution.executor import HandlerExecutor
from deathless.execution.interface.interface import decode_interface, encode_interface, interface_of
from deathless.execution.rehearsal.findings import Difference
from deathless.execution.rehearsal.judge import Judge
from deathless.execution.rehearsal.recorder import Recorder
from deathless.execution.rehearsal.steps import decode_trace, encode_did, encode_trace
from deathless.execution.rehearsal.undigested import Undigested, undigested_in
from deathless.execution.snapshot_migration import Migrated, migrate_snapshot

LIMITS = Limits()
SEED = bytes(range(32))
MINUTE = 60_000_000
pack = msgspec.msgpack.encode


class Account(Struct):
    """State of the first version."""

    balance: float = 0.0
    items: Map[str, int] = msgspec.field(default_factory=Map)


class Cents(Struct):
    """State of the second one."""

    cents: float = 0.0
    items: Map[str, int] = msgspec.field(default_factory=Map)


class Given(Struct):
    """Arguments of `put`."""

    name: str


class Receipt(Struct):
    """A result."""

    balance: float


class LongReceipt(Struct):
    """The same with a field more."""

    balance: float
    currency: str = "EUR"


def bank(version: int = 1, **changes: Any) -> Service:
    """Give a version of the bank; `changes` say what is other than in the first one."""
    told = {
        "state": Account,
        "field": "balance",
        "unit": 1,
        "receipt": Receipt,
        "fee": 0.01,
        "digits": 2,
        "refusal": "not enough",
        "forks": ("log", "audit"),
        "calls": ("bob", "carol"),
        "wait": timedelta(minutes=5),
        "charge": "charge",
        "bonus": 1.0,
        "marks": lambda: "",
        "item": 1,
        "depth": 0,
        "names": {},
        "without": (),
        **changes,
    }
    service = Service("bank", state=told["state"], version=version)
    add_handlers(service, told)
    return service


def add_handlers(service: Service, told: dict[str, Any]) -> None:
    """Register what the bank has."""
    field, unit, receipt = told["field"], told["unit"], told["receipt"]

    def charge(cents: int) -> str:
        return str(cents)

    def deposit(account: Any, ctx: Context, amount: float) -> Any:
        fee = round(told["fee"] * amount, told["digits"])
        setattr(account, field, getattr(account, field) + round(unit * (amount - fee), 2))
        return receipt(round(getattr(account, field) / unit, 2))

    def withdraw(account: Any, ctx: Context, amount: float) -> None:
        def deeper(levels: int) -> int:
            return deeper(levels - 1) if levels else 0

        deeper(told["depth"])
        if amount * unit > getattr(account, field):
            raise CallRefused(told["refusal"])
        setattr(account, field, getattr(account, field) - amount * unit)

    def bonus(account: Any, ctx: Context, amount: float = told["bonus"]) -> str:
        setattr(account, field, getattr(account, field) + amount * unit)
        for each in told["forks"]:
            ctx.fork(each, "x", "note", {"amount": amount})
        return str(told["marks"]())

    def put(account: Any, ctx: Context, name: str) -> int:
        account.items[name] = account.items.get(name, 0) + told["item"]
        return 0

    async def transfer(account: Any, ctx: Context, amount: float) -> str:
        setattr(account, field, getattr(account, field) - amount * unit)
        for each in told["calls"]:
            await ctx.call("bank", each, told["names"].get("deposit", "deposit"), {"amount": amount}, result=receipt)
        await ctx.run(charge, int(100 * amount))
        await ctx.timer(after=told["wait"])
        return "done"

    async def approve(account: Any, ctx: Context) -> str:
        told_by = await ctx.promise(str)
        setattr(account, field, getattr(account, field) + unit)
        return told_by

    async def watch(account: Any, ctx: Context) -> str:
        await ctx.timer(after=told["wait"])
        setattr(account, field, getattr(account, field) + 2 * unit)
        return "watched"

    async def chain(account: Any, ctx: Context, links: int) -> int:
        await ctx.timer(after=told["wait"])
        if links > 0:
            ctx.continue_with("chain", {"links": links - 1})
        return links

    def ask(account: Any, ctx: Context) -> str:
        ctx.reply_later()
        return ""

    def complete(account: Any, ctx: Context, promise: str) -> None:
        ctx.complete(promise, "yes")

    def move(accounts: Any, ctx: Context, source: str, target: str) -> None:
        setattr(accounts[source], field, getattr(accounts[source], field) - unit)
        setattr(accounts[target], field, getattr(accounts[target], field) + unit)

    deposit.__annotations__["return"] = receipt
    state: Any = told["state"]
    move.__annotations__["accounts"] = dict[str, state]
    service.activity(name=told["charge"])(charge)
    handlers: list[Callable[..., object]] = [
        deposit, withdraw, bonus, put, transfer, approve, watch, chain, ask, complete
    ]  # fmt: skip
    for function in handlers:
        function.__annotations__["account"] = told["state"]
        if function.__name__ not in told["without"] and (function is not put or hasattr(told["state"](), "items")):
            name = told["names"].get(function.__name__, function.__name__)
            service.handler(name=name, shared=function is watch)(function)
    service.handler(keys=("source", "target"))(move)


class Found(NamedTuple):
    """What a rehearsal said."""

    differences: list[Difference]
    misfits: list[str]  # words, of the beginning or the end
    turns: dict[str, int]  # compared, by handler
    left_out: dict[str, int]  # likewise, not compared
    prints: list[bytes]  # of what the new code did, step by step

    @property
    def words(self) -> set[str]:
        """Kind and handler of all that nobody declared."""
        return {f"{each.kind}:{each.handler}" for each in self.differences if not each.declared}

    @property
    def declared(self) -> set[str]:
        """Of what somebody did."""
        return {f"{each.kind}:{each.handler}" for each in self.differences if each.declared}


class Log:
    """What a code is told, and what it does.

    Args:
        service: the former code.
    """

    def __init__(self, service: Service) -> None:
        self.service = service
        self.shard = open_shard(service, LIMITS, SEED, make=Recorder)
        assert isinstance(self.shard.executor, Recorder)
        self.recorder = self.shard.executor
        self.now_us = BUILT_US
        self.seq = 0
        self._payloads: list[tuple[int, bytes]] = []  # of the log's frames, each with its number of messages
        self.start = self.snapshot()
        self._record(encode_time(Times.at(self.now_us)))
        self._record(encode(Kind.REGISTER, args=bytes(16)))
        self.session = int(self.shard.place.lsn)

    def snapshot(self) -> Snapshot:
        """All that it holds."""
        return self.shard.snapshot(service="bank", service_id=bytes(16), incarnation=0, epoch=1, fingerprint=bytes(16))

    def begin_with(self, state: dict[bytes, bytes]) -> None:
        """A rehearsal begins with these entries."""
        self.shard.restore(dataclasses.replace(self.snapshot(), state=state))
        self.begin_here()

    def begin_here(self) -> None:
        """A rehearsal begins with what it holds now."""
        self.recorder.taken()
        self._payloads = []
        self.start = self.snapshot()

    def _execute(self, run: Run, message: bytes) -> Executed:
        done = self.shard.execute([(run, [message])])
        self._payloads.append((done.count, done.payload))
        return done

    def call(self, method: str, key: str = "alice", idempotency_key: bytes = b"", /, **arguments: object) -> bytes:
        """A client calls; what the service then sends to itself is delivered."""
        self.seq += 1
        message = encode(
            Kind.CALL, method=method.encode(), key=key.encode(), idempotency_key=idempotency_key, args=pack(arguments)
        )
        done = self._execute(Run(self.session, self.seq, 0, 1), message)
        self.deliver()
        return bytes(done.results[0].replies[0])

    def deliver(self) -> None:
        """Deliver what the service sends to itself."""
        outbox = self.shard.outbox
        while messages := outbox.messages_from(SELF, first := outbox.first_position(SELF), 1):
            self._execute(Run(SELF_SESSION, first, 0, 1), *messages)

    def passes(self, us: int) -> None:
        """Time passes."""
        self.now_us += us
        self._record(encode_time(Times.at(self.now_us)))
        self.deliver()

    def charged(self) -> None:
        """The activities that run have ended well."""
        for start in self.recorder.activities():
            reply = ok_reply(pack("paid"))
            self._record(encode_record(Outcome(start.invocation, start.operation, start.attempt, reply)))
        self.deliver()

    def order(self, command: str, invocation: int) -> None:
        """An operator orders something."""
        value = ok_reply(pack("by hand")) if command == "resume" else b""
        self._record(encode_record(Order(command, invocation, 0, value)))
        self.deliver()

    def _record(self, message: bytes) -> None:
        self._execute(Run(0, 0, 0, 1), message)

    def migrated(self, new: Service, snapshot: Snapshot) -> Migrated:
        """What the upgrade would make of it."""
        before = decode_interface(encode_interface(interface_of(self.service, LIMITS)))
        return migrate_snapshot(snapshot, new, before, limits=LIMITS, seed=SEED, time_us=BUILT_US)

    def same_by_digests(self, new: Service, make: type[HandlerExecutor] = Undigested) -> bool:
        """Does a code that takes all states as they are give the log's digests, and do these say all of it?"""
        migrated = self.migrated(new, self.start)
        if migrated.misfits or not migrated.compatible:
            return False
        shard = open_shard(new, LIMITS, SEED, make=make)
        shard.restore(migrated.snapshot, same_code=False)
        try:
            self.replayed(shard)
        except Diverged:
            return False
        return not undigested_in(shard.executor)

    def replayed(self, shard: Shard) -> None:
        """Have another shard run the log. Raises: Diverged."""
        for count, payload in self._payloads:
            place = shard.place
            numbers = (FrameKind.DATA, Epoch(1), Lsn(place.lsn + 1), Lsn(0), count, Incarnation(1))
            shard.apply(Frame(*numbers, ChainHash(place.chain), ChainHash(place.chain), 0, payload))

    def found(self, new: Service, **settings: Any) -> Found:
        """Rehearse a code."""
        migrated = self.migrated(new, self.start)
        if migrated.misfits and migrated.snapshot is self.start:
            return Found([], [each.word for each in migrated.misfits], {}, {}, [])
        before = interface_of(self.service, LIMITS)
        judge = Judge(new, before, self.start, migrated, limits=LIMITS, seed=SEED, time_us=BUILT_US, **settings)
        taken = decode_trace(encode_trace(self.recorder.taken()))
        self.recorder._taken = list(taken)  # another code may be rehearsed on the same
        prints = []
        for step, did in taken:
            run = judge.step(step, did)
            prints.append(b"" if run is None else encode_did(run))
        misfits = [*migrated.misfits, *judge.finish(self.migrated(new, self.snapshot()))]
        return Found(
            judge.differences,
            sorted({each.word for each in misfits}),
            {each.handler: each.turns for each in judge.coverage if each.turns},
            {each.handler: each.left_out for each in judge.coverage if each.left_out},
            prints,
        )


def clock() -> str:
    """What a handler must not read."""
    return str(time.perf_counter_ns())
