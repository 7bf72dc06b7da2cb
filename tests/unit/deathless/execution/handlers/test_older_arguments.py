"""Arguments that older versions send are taken behind the cut, and nothing of them is read as a default."""

from __future__ import annotations

import datetime as dt
from typing import Any

import msgspec
import pytest
from tests.unit.deathless.execution.executor_bench import Bench, error, value
from tests.unit.deathless.execution.messaging_bench import Hub

from deathless import Context, Service, Struct
from deathless.codec.messages import Kind, encode
from deathless.codec.peer_messages import Sender, Target, encode_body
from deathless.execution.invocations.journal import SuspendedMessage, decode_record

PARTNER = Target("partner", 0)


class Account(Struct):
    """State."""

    cents: int = 0


class OldMoney(Struct):
    """Money as version 1 had it."""

    amount: float


class Money(Struct):
    """Money as it is now; a decoder that passes over `amount` reads nothing at all."""

    cents: int = 0


class PaidV1(Struct):
    """Arguments of version 1."""

    money: OldMoney
    note: str = ""


class PaidV2(Struct):
    """Arguments of version 2."""

    pence: int


def bank_of_version_1() -> Service:
    service = Service("bank", state=Account)

    @service.handler
    def pay(account: Account, ctx: Context, money: OldMoney, note: str = "") -> int:
        account.cents += round(100 * money.amount)
        return account.cents

    return service


def bank() -> Service:
    """Version 3, which takes arguments of all versions."""
    service = Service("bank", state=Account, version=3)

    @service.handler
    def pay(account: Account, ctx: Context, money: Money, by: str = "") -> int:
        account.cents += money.cents
        return account.cents

    @service.accepts("pay", from_=1, args=PaidV1)
    def pay_v1(old: PaidV1) -> dict[str, object]:
        if old.money.amount < 0:
            raise ValueError("nothing was ever paid back")
        by: object = 7 if old.note == "odd" else old.note
        return {"money": Money(round(100 * old.money.amount)), "by": by}

    @service.accepts("pay", from_=2, args=PaidV2)
    def pay_v2(old: PaidV2) -> dict[str, object]:
        return {"money": Money(old.pence)}

    @service.handler
    async def hold(account: Account, ctx: Context) -> int:
        await ctx.timer(after=dt.timedelta(seconds=1))
        return account.cents

    return service


def fork(**arguments: object) -> bytes:
    """Give a message of a peer that still has older code."""
    encoded = msgspec.msgpack.encode(arguments)
    return encode(Kind.FORK, method=b"pay", key=b"a", idempotency_key=encode_body(Sender()), args=encoded)


def test_each_form_reaches_the_handler_as_what_it_means() -> None:
    bench = Bench(bank())
    forms: list[dict[str, object]] = [{"money": {"amount": 1.5}}, {"pence": 20}, {"money": {"cents": 3}, "by": "ann"}]
    assert [bench.call("pay", **form) for form in forms] == [150, 170, 173]


def test_arguments_of_no_form_are_refused_by_the_present_types() -> None:
    failed = Bench(bank()).fail("pay", pounds=1)
    assert (failed.type, "pounds" in failed.text) == ("InvalidArgument", True)


def test_what_only_the_present_types_can_read_is_read_by_them() -> None:
    """A caller that knows more than this code is passed over, as without older forms."""
    assert Bench(bank()).call("pay", money={"cents": 4, "currency": "CHF"}) == 4


def test_without_older_forms_what_was_paid_would_be_read_as_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("deathless.execution.executor.older_forms", lambda service, spec: None)
    assert Bench(bank()).call("pay", money={"amount": 1.5}) == 0


@pytest.mark.parametrize(
    ("form", "kind", "text"),
    [
        ({"money": {"amount": -1.0}}, "ValueError", "nothing was ever paid back"),
        ({"money": {"amount": 1.0}, "note": "odd"}, "Unfit", "pay_v1"),
    ],
)
def test_function_that_raises_or_gives_no_arguments_fails_this_call_alone(
    form: dict[str, Any], kind: str, text: str
) -> None:
    bench = Bench(bank())
    failed = error(bench.send("pay", **form))
    assert (failed.type, text in failed.text) == (kind, True)
    assert bench.call("pay", pence=1) == 1, "nothing of it was kept"


def test_what_waits_for_its_key_is_kept_in_the_present_form() -> None:
    """The next upgrade takes it for what this version wrote."""
    hub = Hub(bank())
    hub.begin("hold")
    hub.receive(fork(money={"amount": 2.0}), peer=PARTNER)
    waiting = [each for each in map(decode_record, hub.executor.suspended()) if isinstance(each, SuspendedMessage)]
    assert [msgspec.msgpack.decode(each.received.arguments) for each in waiting] == [
        {"money": {"cents": 200}, "by": ""}
    ]
    hub.restart()
    hub.tick()
    assert hub.value_of() == {"cents": 200}


def test_message_of_a_peer_in_an_older_form_is_run() -> None:
    hub = Hub(bank())
    hub.receive(fork(pence=5), peer=PARTNER)
    assert hub.value_of() == {"cents": 5}


@pytest.mark.parametrize("form", [{"money": {"amount": 1.5}}, {"note": "x", "money": {"amount": 1.5}}])
def test_call_that_the_former_code_answered_is_known_again(form: dict[str, Any]) -> None:
    former = Bench(bank_of_version_1())
    reply = former.send("pay", "a", b"order-7", **form)
    bench = Bench(bank())
    bench.keys.replies = dict(former.keys.replies)
    assert bench.send("pay", "a", b"order-7", **form) == reply
    other = bench.send("pay", "a", b"order-7", money={"amount": 2.5})
    assert other == b"\x01refused", "another request under its key"


def test_call_in_an_older_form_that_is_repeated_has_the_first_answer() -> None:
    bench = Bench(bank())
    replies = [bench.send("pay", "a", b"order-8", pence=7) for _ in range(2)]
    assert [value(reply) for reply in replies] == [7, 7]
