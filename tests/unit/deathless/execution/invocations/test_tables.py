"""Who is where."""

from deathless.base.times import Times
from deathless.codec.peer_messages import Target
from deathless.execution.invocations.journal import CLIENT, REQUEST, Origin, Received, SuspendedMessage, SuspendedReply
from deathless.execution.invocations.tables import Tables


def message(number: int, key: bytes = b"a") -> SuspendedMessage:
    return SuspendedMessage(number, Received(Origin(REQUEST, "svc", 0, 7, number), "m", key, b"\x80"), key, 5)


def test_queue_is_in_the_order_of_the_log_however_messages_came() -> None:
    tables = Tables()
    for number in (5, 3, 9):
        tables.put(message(number))
    tables.put(message(1, b"b"))
    order = []
    while (first := tables.first(b"a")) is not None:
        order.append(first.id)
        tables.take(first)
    assert order == [3, 5, 9]
    assert tables.first(b"a") is None
    assert list(tables.queues) == [b"b"]


def test_message_behind_others_leaves_its_queue() -> None:
    tables = Tables()
    for number in (1, 2, 3):
        tables.put(message(number))
    tables.take(message(2))
    assert [record.id for record in tables.queues[b"a"].values()] == [1, 3]
    assert 2 not in tables


def test_message_that_waits_is_found_by_its_id() -> None:
    tables = Tables()
    tables.put(message(5))
    tables.put(message(6))
    assert tables.waiting(6) == message(6)
    assert tables.waiting(7) is None
    assert 5 in tables
    assert 7 not in tables
    assert len(tables) == 2


def test_only_callers_that_wait_are_noted() -> None:
    tables = Tables()
    tables.note_caller(Origin(CLIENT), 3)
    tables.note_caller(Origin(REQUEST, "svc", 1, 7, 2), 4)
    caller = Target("svc", 1)
    assert tables.works_for(caller, 7, 2) == 4
    assert tables.works_for(Target("", 0), 0, 0) is None
    tables.forget_caller(Origin(REQUEST, "svc", 1, 7, 2))
    assert tables.works_for(caller, 7, 2) is None


def test_records_and_views_are_in_the_order_of_ids() -> None:
    tables = Tables()
    tables.put(message(9))
    tables.owed[4] = SuspendedReply(4, Origin(CLIENT), "later", b"k", 5)
    tables.put(message(2, b"b"))
    assert [view.invocation for view in tables.views(0, 9)] == [2, 4, 9]
    assert [view.invocation for view in tables.views(3, 1)] == [4]
    assert len(tables.suspended({})) == 3


def test_nothing_is_due_where_nothing_waits() -> None:
    tables = Tables()
    assert tables.due().first_us == 0
    assert tables.take_due(Times.at(99)) == []
    assert tables.activities() == []
