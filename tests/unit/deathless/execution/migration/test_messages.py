"""Messages that wait: by which type their arguments are read, and what is told of those that have no place."""

from __future__ import annotations

from typing import Any

import msgspec

from deathless import Context, Service, Struct
from deathless.base.ids import ChainHash, Digest, Epoch, Fingerprint, Incarnation, Lsn
from deathless.base.limits import Limits
from deathless.base.times import Times
from deathless.codec.messages import Kind, encode
from deathless.codec.snapshot import OutboxRecord, ParkedRecord, Snapshot
from deathless.execution.interface.comparison import Use
from deathless.execution.interface.interface import interface_hash, interface_of
from deathless.execution.invocations.journal import (
    Origin,
    PendingActivity,
    Received,
    SuspendedInvocation,
    SuspendedLooks,
    SuspendedMessage,
    encode_record,
)
from deathless.execution.migration.ahead import Known
from deathless.execution.migration.messages import Fitted, Waiting, fit_messages, under_way_in, waiting_in

pack = msgspec.msgpack.encode


class Account(Struct):
    balance: float = 0.0


class Money(Struct):
    amount: float = 0.0


class Cents(Struct):
    cents: int = 0


class DepositV1(Struct):
    money: Money


def old() -> Service:
    made = Service("bank", state=Account)

    @made.handler
    def deposit(account: Account, ctx: Context, money: Money) -> None: ...

    return made


def new(*, accepts: bool = True) -> Service:
    made = Service("bank", state=Account, version=2)

    @made.handler
    def deposit(account: Account, ctx: Context, money: Cents) -> None: ...

    if accepts:

        @made.accepts("deposit", from_=1, args=DepositV1)
        def deposit_v1(old: DepositV1) -> dict[str, object]:
            if old.money.amount < 0:
                raise ValueError("nobody owes us")
            return {"money": Cents(round(100 * old.money.amount))}

    return made


BEFORE = interface_of(old(), Limits())
OLD_ARGUMENTS = pack({"money": {"amount": 10.0}})


def waiting(arguments: bytes = OLD_ARGUMENTS, *, method: str = "deposit", interface: bytes = b"") -> Waiting:
    return Waiting("lsn 14", method, b"alice", arguments, interface)


def test_arguments_of_the_old_version_pass_through_its_function() -> None:
    fitted, misfits, _ = fit_messages([waiting()], new(), BEFORE)
    assert (fitted, misfits) == ([Fitted("deposit", b"alice", pack({"money": {"cents": 1000}}))], [])


def test_without_a_function_the_old_amount_is_not_read_as_nothing() -> None:
    fitted, [misfit], _ = fit_messages([waiting()], new(accepts=False), BEFORE)
    assert fitted == [None]
    assert misfit.text == (
        "ArgumentTypeChanged: arguments of deposit of version 1 do not fit: Cents has no field `amount`, "
        "1 message waits (it is lsn 14, key alice); write accepts('deposit', from_=1, args=...)"
    )


def test_the_interface_of_a_message_decides_and_no_second_type_is_tried() -> None:
    made = new()
    after = interface_of(made, Limits())
    known = {interface_hash(after): after, interface_hash(BEFORE): BEFORE}
    cents = pack({"money": {"cents": 5}})
    as_new = waiting(cents, interface=interface_hash(after))
    assert fit_messages([as_new], made, BEFORE, known)[0] == [Fitted("deposit", b"alice", cents)]
    for arguments, interface in ((cents, interface_hash(BEFORE)), (OLD_ARGUMENTS, interface_hash(after))):
        fitted, misfits, _ = fit_messages([waiting(arguments, interface=interface)], made, BEFORE, known)
        assert (fitted, [each.word for each in misfits]) == ([None], ["ArgumentTypeChanged"])
    _, misfits, _ = fit_messages([waiting(interface=b"x" * 16)], made, BEFORE, known)
    assert [each.word for each in misfits] == ["InterfaceUnknown"]


def test_what_a_function_does_wrong_is_told() -> None:
    made = new(accepts=False)

    @made.accepts("deposit", from_=1, args=DepositV1)
    def deposit_v1(old: DepositV1) -> dict[str, object]:
        return {"money": 5}

    assert [each.word for each in fit_messages([waiting()], made, BEFORE)[1]] == ["AcceptUnfit"]
    owed = waiting(pack({"money": {"amount": -1.0}}))
    [raised] = fit_messages([owed], new(), BEFORE)[1]
    assert (raised.word, "ValueError: nobody owes us" in raised.what) == ("AcceptRaised", True)


def test_parked_messages_and_those_that_may_fail_are_notes() -> None:
    gone = waiting(pack({}), method="bonus")
    parked = msgspec.structs.replace(gone, parked=True)
    _, misfits, notes = fit_messages([gone, parked], new(), BEFORE)
    assert ([each.count for each in misfits], [each.count for each in notes]) == ([1], [1])
    made = new()
    made.changes(from_=1, removed={"bonus": "fail"})
    _, misfits, notes = fit_messages([gone], made, BEFORE)
    assert ([each.word for each in misfits], [each.word for each in notes]) == ([], ["HandlerGone"])


def test_handlers_that_every_service_has_are_left_alone() -> None:
    probe = waiting(pack({"series": "a", "number": 1}), method="deathless.probe")
    assert fit_messages([probe], new(), BEFORE)[0] == [Fitted(probe.method, probe.key, probe.arguments)]


def suspended(lsn: int, activities: list[PendingActivity]) -> SuspendedInvocation:
    received = Received(Origin(0), "transfer", b"bob", pack({}))
    return SuspendedInvocation(lsn, received, lsn, 0, 0, 0, 0, None, [], [], activities, b"", 0)


def snapshot(*invocations: Any) -> Snapshot:
    call = encode(Kind.CALL, method=b"deposit", key=b"alice", args=OLD_ARGUMENTS)
    return Snapshot(
        service="bank",
        service_id=bytes(16),
        incarnation=Incarnation(1),
        epoch=Epoch(1),
        lsn=Lsn(9),
        chain=ChainHash(bytes(16)),
        digest=Digest(bytes(16)),
        times=Times.at(1),
        fingerprint=Fingerprint(bytes(16)),
        state={},
        invocations=[encode_record(each) for each in invocations],
        parked=[ParkedRecord(3, 1, 1, call), ParkedRecord(4, 1, 2, b"broken")],
        outbox=[
            OutboxRecord("", 0, 7, [encode(Kind.FORK, method=b"bonus", key=b"c"), encode(Kind.RESPONSE)]),
            OutboxRecord("shop", 0, 1, [call]),
        ],
    )


def test_what_waits_in_a_checkpoint_is_found_wherever_it_is() -> None:
    queued = SuspendedMessage(5, Received(Origin(0), "deposit", b"bob", pack({})), b"bob", 0)
    looks = SuspendedLooks(suspended(6, []), [])
    held = snapshot(queued, looks)
    assert [(each.place, each.method, each.parked) for each in waiting_in(held)] == [
        ("lsn 5", "deposit", False), ("parked at lsn 3", "deposit", True),
        ("position 7 of our own outbox", "bonus", False),
    ]  # fmt: skip
    under_way = under_way_in(held)
    assert under_way.handlers == {
        "deposit": Use(1, "lsn 5"), "bonus": Use(1, "position 7 of our own outbox"), "transfer": Use(1, "lsn 6"),
    }  # fmt: skip
    assert under_way.activities == {}


def test_handlers_that_were_found_to_fit_ahead_count_as_those_that_are_looked_at_now() -> None:
    waits = [("transfer", 6), ("saga", 7), ("transfer", 8), ("carried", 9)]
    known = [Known(id_, method, b"k", False, b"") for method, id_ in waits]
    found = under_way_in(snapshot(suspended(10, [])), ["carried"], known)
    both = {"transfer": Use(3, "lsn 6"), "saga": Use(1, "lsn 7"), "bonus": Use(1, "position 7 of our own outbox")}
    assert (found.handlers, found.activities) == (both, {})
    pending = [Known(6, "transfer", b"k", True, b""), *known[1:]]
    assert under_way_in(snapshot(), ["carried"], pending).activities is None
    assert under_way_in(snapshot(), ["transfer", "carried"], pending).activities == {}


def test_an_activity_that_is_pending_may_be_any() -> None:
    assert under_way_in(snapshot(suspended(6, [PendingActivity(1, 1, False, 0)]))).activities is None


def test_the_key_of_a_message_is_the_one_of_now() -> None:
    made = new()

    @made.migrate_key(from_=1)
    def key(old: str) -> str:
        return old.upper()

    assert fit_messages([waiting()], made, BEFORE)[0][0] == Fitted(
        "deposit", b"ALICE", pack({"money": {"cents": 1000}})
    )
