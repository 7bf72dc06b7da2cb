"""Rows of decided batches reach their service once, in order, whichever process is killed and wherever."""

from collections.abc import Iterator
from datetime import timedelta

import pytest

from deathless.base.errors import HandlerFailed, InvalidArgument, PeerReplaced
from deathless.base.limits import Limits
from deathless.pipelines.ledger import Batch, Block
from deathless.pipelines.rows import Policy, Row, blocks_of
from deathless.pipelines.service import DRIVERS, WINDOW, Held, apply, pipeline
from deathless.sdk import CallRefused, Context, Service, Struct, field
from deathless.testing import Environment, kill_everywhere


class Carrier(Struct):
    """What was late."""

    minutes: list[int] = field(default_factory=list)


carriers = Service("carriers", state=Carrier)


@carriers.handler
def late(carrier: Carrier, ctx: Context, minutes: int) -> None:
    """Note a delay."""
    if minutes < 0:
        raise CallRefused("a delay is not negative")
    carrier.minutes.append(minutes)


slow = Service("carriers", state=Carrier)


@slow.handler(name="late")
async def slowly(carrier: Carrier, ctx: Context, minutes: int) -> None:
    """Note a delay, the first one after a while; before that negative ones are refused."""
    if minutes < 0 and not carrier.minutes:
        raise CallRefused("not yet")
    if not minutes:
        await ctx.timer(after=timedelta(seconds=5))
    carrier.minutes.append(minutes)


def assign(env: Environment, number: int) -> None:
    """Have an agent drive, and drive again, until its assignment has the number."""
    drivers = env.service(pipeline)[DRIVERS]
    while (told := drivers.report("a", True)).number < number:
        drivers.resign("a", told.number, True, True)


def send(env: Environment, start: str, end: str, rows: list[Row], policy: Policy = "stop", number: int = 1) -> bool:
    """Stage and decide a batch, as a driver does."""
    query = env.service(pipeline)["alarms"]
    assign(env, number)
    opened = query.open(number)
    blocks = []
    for at, (count, data) in enumerate(blocks_of("carriers", "late", policy, rows)):
        query.stage(number, opened.attempt + 1, str(at), count, data)
        blocks.append((str(at), count))
    decided: bool = query.commit(Batch(number, opened.attempt + 1, start, end, blocks, 0, "q", "v1"))
    return decided


def held(env: Environment) -> Held:
    """State of the query."""
    state: Held = env.service(pipeline)["alarms"].state
    return state


def test_rows_of_a_batch_reach_the_handlers_of_their_keys() -> None:
    """In the order of the batch, and nothing is kept of them."""
    with Environment(pipeline, carriers) as env:
        assert send(env, "", "a", [("UA", {"minutes": n}) for n in range(600)] + [("DL", {"minutes": 1})])
        assert send(env, "a", "b", [("UA", {"minutes": 600})])
        env.advance(seconds=1)
        assert env.service(carriers)["UA"].state.minutes == list(range(601))
        assert env.service(carriers)["DL"].state.minutes == [1]
        shown = env.service(pipeline)["alarms"].show()
        assert (shown.applied, shown.waiting_rows, shown.held_bytes, shown.refusals) == (602, 0, 0, 0)
        assert (shown.tip.position, shown.tip.rows) == ("b", 1)


def test_a_kill_anywhere_changes_nothing() -> None:
    """Two batches, the second of which is sent twice by a driver that has not heard of its decision."""

    def work(env: Environment) -> list[bool]:
        told = [send(env, "", "a", [("UA", {"minutes": 1}), ("DL", {"minutes": 2})])]
        told += [send(env, "a", "b", [("UA", {"minutes": n})], number=n) for n in (2, 3)]
        env.advance(seconds=1)
        return told

    def outcome(env: Environment, result: list[bool]) -> object:
        delays = [env.service(carriers)[key].state.minutes for key in ("UA", "DL")]
        return result, delays, held(env).applied, held(env).size

    report = kill_everywhere(work, pipeline, carriers, outcome=outcome)
    assert report.outcome == ([True, True, False], [[1, 2], [2]], 3, 0)
    assert len(report.points) > 20


def test_a_refused_row_stops_its_query_until_somebody_resumes_it() -> None:
    """The row is listed, the rows sent with it are not lost, and those behind it wait."""
    with Environment(pipeline, carriers) as env:
        rows: list[Row] = [("UA", {"minutes": n}) for n in (1, -1, 2)]
        send(env, "", "a", rows + [("UA", {"minutes": 3})] * 300)
        env.advance(seconds=1)
        query = env.service(pipeline)["alarms"]
        assert "a delay is not negative" in held(env).stopped
        assert query.show().waiting_rows == 53
        [refused] = query.show_refused(0, 10)
        assert (refused.id, refused.row.key, refused.row.arguments) == (1, "UA", {"minutes": -1})
        with pytest.raises(HandlerFailed, match="a delay is not negative"):
            send(env, "a", "b", [])
        query.resume()
        env.advance(seconds=1)
        assert env.service(carriers)["UA"].state.minutes == [1, 2] + [3] * 300
        assert query.show().waiting_rows == 0


def test_what_says_nothing_of_the_row_stops_the_query_whatever_its_policy_is() -> None:
    """A service that was created anew would have all rows skipped, one after the other."""

    def replaced() -> None:
        raise PeerReplaced("it was created anew")

    with Environment(pipeline) as env:
        taken = env.peer("carriers", late=lambda minutes: replaced() if minutes == 1 else None)
        send(env, "", "a", [("UA", {"minutes": n}) for n in (0, 1, 2)] + [("UA", {"minutes": 3})] * 300, "skip")
        env.advance(seconds=1)
        assert "it was created anew" in held(env).stopped
        assert [each.row.arguments for each in env.service(pipeline)["alarms"].show_refused(0, 10)] == [{"minutes": 1}]
        assert len(taken.calls("late")) == 250
        env.service(pipeline)["alarms"].resume()
        env.advance(seconds=1)
        assert (len(taken.calls("late")), held(env).applied) == (303, 302)


def test_row_for_which_there_was_no_room_is_not_overtaken_by_rows_of_its_key() -> None:
    """It is sent again, while rows of its key wait and those of other keys do not."""
    held_by: list[str] = []
    busy = Service("carriers", state=Carrier)

    @busy.handler(name="late")
    async def hold(carrier: Carrier, ctx: Context, minutes: int) -> None:
        if minutes == -1:
            freed = ctx.promise(bool)
            held_by[:] = [freed.id]
            await freed
        if minutes == 7:
            ctx.complete(held_by[0], True)
        carrier.minutes.append(minutes)

    with Environment(pipeline, busy, limits=Limits(key_queue_max=1)) as env:
        others = [env.service(busy)["UA"].start(hold, minutes) for minutes in (-1, -2)]  # the second has the queue
        rows: list[Row] = [("UA", {"minutes": n}) for n in range(3)]
        send(env, "", "a", [rows[0], ("DL", {"minutes": 7}), *rows[1:]])
        assert [each.result() for each in others] == [None, None]
        assert env.service(busy)["UA"].state.minutes == [-1, -2], "the first row was refused"
        env.advance(seconds=5)
        assert env.service(busy)["UA"].state.minutes == [-1, -2, 0, 1, 2]
        assert (held(env).applied, held(env).refusals, held(env).stopped) == (4, 0, "")


class Never:
    """What is never answered."""

    def __await__(self) -> Iterator[None]:
        yield


class Asked:
    """A turn that notes what it asks for."""

    def __init__(self) -> None:
        self.calls: list[object] = []

    def call(self, _service: str, _key: str, _method: str, arguments: dict[str, object]) -> Never:
        """See Context."""
        self.calls.append(arguments["minutes"])
        return Never()


@pytest.mark.parametrize(("in_order", "asked"), [(False, [1, 2, 3]), (True, [1, 3])])
def test_apply_of_an_earlier_version_asks_for_what_it_had_asked_for(in_order: bool, asked: list[int]) -> None:
    """At an upgrade it is run again, and would not fit if it asked for anything else."""
    rows: list[Row] = [("UA", {"minutes": 1}), ("UA", {"minutes": 2}), ("DL", {"minutes": 3})]
    [(count, data)] = blocks_of("carriers", "late", "stop", rows)
    query, turn = Held(decided=[Block("b", count, len(data))]), Asked()
    query.blocks["b"] = data
    begun = apply(query, turn, *[True] * in_order)  # type: ignore[arg-type]
    begun.send(None)
    begun.close()
    assert turn.calls == asked


def test_refused_rows_can_be_sent_again_or_let_go() -> None:
    """With `deadLetter` the query goes on meanwhile; what is refused again stays listed."""
    with Environment(pipeline, carriers) as env:
        send(env, "", "a", [("UA", {"minutes": n}) for n in (-1, -2, 3)], "deadLetter")
        env.advance(seconds=1)
        query = env.service(pipeline)["alarms"]
        assert env.service(carriers)["UA"].state.minutes == [3]
        assert [each.id for each in query.show_refused(0, 10)] == [1, 2]
        assert [each.id for each in query.show_refused(1, 10)] == [2]
        assert query.retry_refused([1, 7]) == [1]
        assert query.drop_refused([1, 7]) == 1
        assert [each.id for each in query.show_refused(0, 10)] == [2]


def test_long_rows_that_were_refused_are_listed_part_by_part() -> None:
    """All of them together are more than one answer may have; each answer has one at least, the last one has none."""
    picky = Service("carriers", state=Carrier)

    @picky.handler(name="late")
    def refuse(carrier: Carrier, ctx: Context, text: str) -> None:
        raise CallRefused("no")

    with Environment(pipeline, picky) as env:
        long: list[Row] = [("UA", {"text": "x" * 250_000}) for _ in range(20)]
        send(env, "", "a", [*long, ("UA", {"text": "short"})], "deadLetter")
        env.advance(seconds=1)
        found: list[int] = []
        while page := env.service(pipeline)["alarms"].show_refused(found[-1] if found else 0, 250):
            assert len(page) < 6
            found += [each.id for each in page]
        assert found == list(range(1, 22))


def test_rows_are_sent_again_between_rows_that_are_applied() -> None:
    """Not when no more come: rows of a busy query may come for ever."""
    with Environment(pipeline, slow) as env:
        send(env, "", "a", [("UA", {"minutes": -1})], "deadLetter")
        env.advance(seconds=1)
        query = env.service(pipeline)["alarms"]
        send(env, "a", "b", [("UA", {"minutes": n}) for n in range(3 * WINDOW)])
        assert held(env).decided, "they are being applied"
        assert query.send_again([1, 7]) == []
        env.advance(seconds=1)
        assert env.service(slow)["UA"].state.minutes == [*range(WINDOW), -1, *range(WINDOW, 3 * WINDOW)]
        assert (held(env).again, query.show().refused, query.show().applied) == ([], 0, 3 * WINDOW + 1)


def test_a_row_that_is_refused_again_stays_listed_whoever_is_killed() -> None:
    """And one that passes was sent again once, however often that was ordered."""

    def work(env: Environment) -> list[list[int]]:
        send(env, "", "a", [("UA", {"minutes": n}) for n in (-1, 5)], "deadLetter")
        return [env.service(pipeline)["alarms"].send_again([1, 2])]

    def outcome(env: Environment, result: list[list[int]]) -> object:
        return result, env.service(carriers)["UA"].state.minutes, held(env).again, held(env).refusals

    report = kill_everywhere(work, pipeline, carriers, outcome=outcome)
    assert report.outcome == ([[1]], [5], [], 1)


def test_a_query_that_its_driver_gave_up_applies_what_was_decided_once_it_is_resumed() -> None:
    """Nothing of a decided batch is let go."""
    with Environment(pipeline, carriers) as env:
        query = env.service(pipeline)["alarms"]
        assign(env, 1)
        query.open(1)
        query.stop(1, "no such column")
        with pytest.raises(HandlerFailed, match="no such column"):
            send(env, "", "a", [])
        query.resume()
        assert send(env, "", "a", [("UA", {"minutes": 1})])


def test_a_block_that_holds_no_rows_is_refused_when_it_is_staged() -> None:
    """Once its batch is decided nobody could mend it, and its query would stand still."""
    with Environment(pipeline, carriers) as env:
        query = env.service(pipeline)["alarms"]
        [(_, data)] = blocks_of("carriers", "late", "stop", [("UA", {"minutes": 1})])
        assign(env, 1)
        query.open(1)
        with pytest.raises(InvalidArgument, match="holds no rows"):
            query.stage(1, 1, "0", 1, data[:-1])
        with pytest.raises(HandlerFailed, match="holds 1 rows, not 2"):
            query.stage(1, 1, "0", 2, data)
        query.stage(1, 1, "0", 1, data)


def test_nobody_shuts_out_drivers_by_a_number_that_was_never_given() -> None:
    """Neither by opening a query with it nor by what follows; the driver that is assigned goes on."""
    with Environment(pipeline, carriers) as env:
        assert send(env, "", "a", [("UA", {"minutes": 1})])
        query = env.service(pipeline)["alarms"]
        with pytest.raises(HandlerFailed, match="driver 4611686018427387904 was never assigned; the newest is 1"):
            query.open(1 << 62)
        with pytest.raises(HandlerFailed, match="driver 2 has not opened the query, whose driver is 1"):
            query.stop(2, "mine")
        assert send(env, "a", "b", [("UA", {"minutes": 2})])


def test_batches_of_a_table_are_planned_decided_and_adopted() -> None:
    """A driver that opens the query is told of the batch that its store may have, and of what an operator wants."""
    with Environment(pipeline, carriers) as env:
        assign(env, 1)
        query = env.service(pipeline)["facts"]
        batch = Batch(1, 0, "", "a", [], 0, "q", "v1", rows=3)
        assert query.open(1).planned is None
        assert query.plan(batch)
        assert (query.open(1).planned, query.open(1).batches) == (batch, 0)
        assert query.commit(batch)
        query.adopt("it was restored")
        opened = query.open(1)
        assert (opened.planned, opened.batches, opened.adopt) == (None, 1, "it was restored")
        query.adopt("")
        assert (query.open(1).adopt, query.show().batches) == ("", 1)


def test_drivers_and_queries_have_keys_of_their_own() -> None:
    """A handler of the one is refused on the key of the other."""
    with Environment(pipeline, carriers) as env:
        assert env.service(pipeline)[DRIVERS].report("a", True).drives
        env.service(pipeline)[DRIVERS].declare(1, ["alarms"])
        assert env.service(pipeline)[DRIVERS].show_drivers().queries == ["alarms"]
        env.service(pipeline)[DRIVERS].resign("a", 1, True, False)
        env.service(pipeline)[DRIVERS].suspend(True)
        assert env.service(pipeline)[DRIVERS].show_drivers().suspended
        assert env.service(pipeline)[DRIVERS].hand_over() == ""
        with pytest.raises(HandlerFailed, match="name of a query"):
            env.service(pipeline)[DRIVERS].open(1)
        with pytest.raises(HandlerFailed, match=r"key '\.'"):
            env.service(pipeline)["alarms"].report("a", True)
