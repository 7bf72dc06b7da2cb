"""Whatever comes: turns are atomic, batches do not matter, and a restored executor goes on as if nothing was."""

from typing import NamedTuple

import msgspec
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.deathless.execution.executor_bench import Bench

from deathless.base.limits import Limits
from deathless.codec.messages import Kind, encode
from deathless.execution.author.service import Service
from deathless.execution.turn.context import Context


class Account(msgspec.Struct):
    balance: int = 0
    text: str = ""


bank = Service("bank", state=Account)


@bank.handler
def deposit(account: Account, ctx: Context, amount: int, note: str = "") -> int:
    account.balance += amount
    account.text = f"{ctx.random.random()} {ctx.lsn} {ctx.now_us}"
    if amount < 0:
        raise ValueError(f"{amount} {note}")
    return account.balance


@bank.handler(keys=("source", "target"))
def transfer(accounts: dict[str, Account], ctx: Context, source: str, target: str, amount: int) -> None:
    accounts[source].balance -= amount
    if accounts[source].balance < 0:
        raise ValueError(source)
    accounts[target].balance += amount


@bank.handler
def grow(account: Account, ctx: Context, size: int) -> None:
    account.text = "x" * size
    account.balance += 1


class Step(NamedTuple):
    method: str
    key: str
    arguments: dict[str, object]
    idempotency_key: bytes = b""

    def encoded(self) -> bytes:
        return encode(
            Kind.CALL,
            method=self.method.encode(),
            key=self.key.encode(),
            idempotency_key=self.idempotency_key,
            args=msgspec.msgpack.encode(self.arguments),
        )


KEYS = st.sampled_from(["a", "b", "zoë"])
IDEMPOTENCY = st.sampled_from([b"", b"", b"k1", b"k2"])
AMOUNTS = st.integers(-3, 20)
STEPS = st.one_of(
    st.builds(lambda key, amount, i: Step("deposit", key, {"amount": amount}, i), KEYS, AMOUNTS, IDEMPOTENCY),
    st.builds(
        lambda one, two, amount: Step("transfer", one, {"source": one, "target": two, "amount": amount}),
        KEYS, KEYS, st.integers(0, 20),
    ),
    st.builds(lambda key, size: Step("grow", key, {"size": size}), KEYS, st.sampled_from([3, 300, 20_000, 50_000])),
    st.builds(lambda key: Step("nope", key, {}), KEYS),
    st.builds(lambda key: Step("deposit", key, {"amount": "x"}), KEYS),
).map(Step.encoded)  # fmt: skip
MESSAGES = st.lists(st.one_of(STEPS, STEPS, STEPS, st.binary(max_size=40)), max_size=30)
LIMITS = Limits(entity_bytes_max=30_000)


@given(MESSAGES, st.lists(st.integers(1, 8), min_size=1))
def test_how_messages_are_cut_into_batches_does_not_matter(messages: list[bytes], sizes: list[int]) -> None:
    whole, cut = Bench(bank, LIMITS), Bench(bank, LIMITS)
    replies, digests = whole.executor.execute(1, 1, 1, 7, messages)
    got: tuple[list[bytes], list[int]] = ([], [])
    at = 0
    while at < len(messages):
        size = sizes[at % len(sizes)]
        part = cut.executor.execute(1, 1 + at, 1 + at, 7, messages[at : at + size])
        got[0].extend(part[0])
        got[1].extend(part[1])
        at += size
    assert got == (replies, digests)
    assert cut.executor.state() == whole.executor.state()
    assert cut.executor.rolling_update() == whole.executor.rolling_update()


@given(MESSAGES, st.integers(0, 30))
def test_restored_executor_goes_on_as_if_it_had_never_stopped(messages: list[bytes], at: int) -> None:
    whole, restored = Bench(bank, LIMITS), Bench(bank, LIMITS)
    whole.run(messages[:at])
    restored.executor.restore(dict(whole.executor.state()))
    restored.keys.replies = dict(whole.keys.replies)
    whole.executor.rolling_update()
    first = whole.executor.execute(1, 1, at + 1, 7, messages[at:])
    assert restored.executor.execute(1, 1, at + 1, 7, messages[at:]) == first
    assert restored.executor.state() == whole.executor.state()
    assert restored.executor.rolling_update() == whole.executor.rolling_update()


@given(MESSAGES)
def test_turn_that_fails_changes_nothing(messages: list[bytes]) -> None:
    bench = Bench(bank, LIMITS)
    for message in messages:
        before = dict(bench.executor.state())
        reply = bench.run([message])[0]
        if reply[0] != 0:
            assert bench.executor.state() == before


@given(MESSAGES)
def test_transfers_make_and_lose_nothing(messages: list[bytes]) -> None:
    bench = Bench(bank, LIMITS)
    bench.run(messages)
    before = sum(balances(bench))
    for source in "ab":
        for amount in (0, 1, 7):
            bench.send("transfer", "", source=source, target="c", amount=amount)
            assert sum(balances(bench)) == before


def balances(bench: Bench) -> list[int]:
    return [msgspec.msgpack.decode(encoded, type=Account).balance for encoded in bench.executor.state().values()]


def test_more_messages_than_one_fold_give_what_single_ones_give() -> None:
    messages = [Step("deposit", str(n % 7), {"amount": n % 5 - 1}).encoded() for n in range(1000)]
    whole, single = Bench(bank), Bench(bank)
    digests = whole.executor.execute(1, 1, 1, 7, messages)
    one_by_one = [single.executor.execute(1, n + 1, n + 1, 7, [message]) for n, message in enumerate(messages)]
    assert digests[0] == [replies[0] for replies, _ in one_by_one]
    assert digests[1] == [column[0] for _, column in one_by_one]
    assert whole.executor.rolling_update() == single.executor.rolling_update()
