"""What callers, the application and other services give each other through the service of an application."""

import pytest

from deathless.base.errors import HandlerFailed
from deathless.foreign.rows import CALLERS, INPUT, Emitted, Given, What, decode_given, encode_emitted, encode_items
from deathless.foreign.service import application, call, inputs
from deathless.protocols.ambrosia.messages import SELF, Kind, Oversized, Rpc, make_call, make_return
from deathless.protocols.ambrosia.runs import forks_of, pack
from deathless.sdk import CallRefused, Context, Service, Struct, field
from deathless.testing import Environment, kill_everywhere
from deathless.testing.environment import DISK


class Bank(Struct):
    """Who was paid."""

    paid: int = 0


bank = Service("bank", state=Bank)


@bank.handler(name="call")
def answered(state: Bank, ctx: Context, method: int, args: bytes) -> bytes | None:
    """Pay; method 9 refuses, 8 gives nothing."""
    if method == 9:
        raise CallRefused("no money")
    state.paid += 1
    return None if method == 8 else ctx.key.encode() + args


@bank.handler(name="send")
def told(state: Bank, ctx: Context, method: int, args: bytes) -> None:
    """Pay."""
    state.paid += method


def feed(env: Environment, *rows: Emitted) -> None:
    """Bring what an application sent."""
    env.service(application).feed(INPUT, [encode_emitted(row) for row in rows])


def given(env: Environment) -> list[Given]:
    """What the application gets."""
    return [each.row for each in env.rows(inputs)]


def items(env: Environment) -> list[Rpc]:
    """Calls and returns that it gets."""
    return [item for row in given(env) if row.what == What.ITEMS for item in decode_given(row.items)]


def begin(env: Environment) -> None:
    """Have the application begin."""
    feed(env, Emitted(What.INITIAL, b"first"))


def lane(target: str, upto: int, *sent: Rpc | Oversized) -> Emitted:
    """A row of a lane."""
    return Emitted(What.ITEMS, encode_items(sent), target, upto, b"12345678", b"87654321")


def test_what_callers_want_comes_behind_the_applications_first_message() -> None:
    """In order, however early they were."""
    with Environment(application) as env:
        env.service(application)[""].send(1, b"a")
        env.service(application)[""].send(2, b"b")
        assert given(env) == []
        begin(env)
        env.service(application)[""].send(3, b"c")
        assert given(env)[0] == Given(What.INITIAL, b"first")
        assert [(each.kind, each.method, each.arguments) for each in items(env)] == [
            (Kind.FORK, 1, b"a"),
            (Kind.FORK, 2, b"b"),
            (Kind.FORK, 3, b"c"),
        ]
        begin(env)  # said once more by a successor, which changes nothing
        assert len(given(env)) == 4


@pytest.mark.parametrize(
    ("kind", "payload", "answer"),
    [
        (Kind.VALUE, b"7", b"7"),
        (Kind.VALUE, b"", b""),
        (Kind.VOID, b"", None),
        (Kind.EXCEPTION, b"too poor", "too poor"),
    ],
)
def test_caller_gets_what_the_application_returned(kind: Kind, payload: bytes, answer: bytes | str | None) -> None:
    """A value, nothing, or an error."""
    with Environment(application) as env:
        begin(env)
        asked = env.service(application)[""].start(call, 5, b"x")
        (item,) = items(env)
        assert (item.kind, item.method, item.name, item.arguments) == (Kind.ASYNC, 5, CALLERS, b"x")
        returned = make_return(CALLERS, kind, payload, name="", sequence=item.sequence)
        feed(env, lane(CALLERS, 1, returned), lane(CALLERS, 2, returned))  # the second has nobody who waits
        if isinstance(answer, str):
            with pytest.raises(HandlerFailed, match=answer):
                asked.result()
        else:
            assert asked.result() == answer
        shown = env.service(application)[""].show()
        assert (shown.begun, shown.calls, shown.waiting, shown.strangers) == (True, 1, 0, 1)


def too_long(kind: Kind, sequence: int) -> Oversized:
    """A message that was too long."""
    return Oversized(destination="", kind=kind, method=1, name="", sequence=sequence, size=1 << 30)


def test_whoever_waits_for_a_message_that_was_too_long_is_told() -> None:
    """The caller of the application, the application that called another service or itself; others do not wait."""
    with Environment(application, bank) as env:
        begin(env)
        asked = env.service(application)[""].start(call, 5, b"x")
        (item,) = items(env)
        feed(env, lane(CALLERS, 1, too_long(Kind.VALUE, item.sequence)))
        with pytest.raises(HandlerFailed, match="1073741824 bytes, which is too long"):
            asked.result()
        feed(env, lane("bank/alice", 1, too_long(Kind.ASYNC, 7)), lane(SELF, 1, too_long(Kind.ASYNC, 8)))
        returned = items(env)[1:]
        assert [(each.kind, each.name, each.sequence) for each in returned] == [
            (Kind.EXCEPTION, "bank/alice", 7),
            (Kind.EXCEPTION, SELF, 8),
        ]
        feed(env, lane("bank/alice", 2, too_long(Kind.FORK, 0)), lane(SELF, 2, too_long(Kind.FORK, 0)))
        shown = env.service(application)[""].show()
        assert (shown.too_long, shown.sent, shown.waiting, len(items(env))) == (5, 0, 0, 3)


def test_call_to_itself_is_what_it_gets_next_with_where_its_lane_is() -> None:
    """So all replicas see how far the lane is."""
    with Environment(application) as env:
        begin(env)
        feed(env, lane(SELF, 2, make_call(SELF, 1, Kind.FORK, b"a"), make_call(SELF, 2, Kind.FORK, b"b")))
        row = given(env)[-1]
        assert (row.target, row.upto, row.chain, row.shape) == (SELF, 2, b"12345678", b"87654321")
        assert [each.arguments for each in decode_given(row.items)] == [b"a", b"b"]


def test_other_services_are_called_once_and_their_answers_come_back() -> None:
    """Values, nothing and errors, by the sequence of the application."""
    with Environment(application, bank) as env:
        begin(env)
        feed(
            env,
            lane(
                "bank/alice",
                4,
                make_call("bank/alice", 3, Kind.FORK, b""),
                make_call("bank/alice", 7, Kind.ASYNC, b"!", name="", sequence=70),
                make_call("bank/alice", 8, Kind.ASYNC, b"", name="", sequence=80),
                make_call("bank/alice", 9, Kind.ASYNC, b"", name="", sequence=90),
            ),
        )
        env.advance(seconds=1)
        assert env.service(bank)["alice"].state.paid == 5
        back = {each.sequence: (each.kind, each.name, each.arguments) for each in items(env)}
        assert back[70] == (Kind.VALUE, "bank/alice", b"alice!")
        assert back[80] == (Kind.VOID, "bank/alice", b"")
        assert back[90][0] is Kind.EXCEPTION
        assert b"no money" in back[90][2]
        assert env.service(application)[""].state.outgoing == {}
        env.service(application)[""].relay(1)  # somebody else calls it
        assert env.service(bank)["alice"].state.paid == 5


def test_call_to_what_is_no_service_is_counted_or_answered_with_an_error() -> None:
    """One that wants no answer is counted alone."""
    with Environment(application) as env:
        begin(env)
        forked, called = make_call("No!", 3, Kind.FORK, b""), make_call("No!", 3, Kind.ASYNC, b"", name="", sequence=7)
        feed(env, lane("No!", 2, forked, called))
        env.advance(seconds=1)
        (back,) = items(env)
        assert (back.kind, back.sequence) == (Kind.EXCEPTION, 7)
        shown = env.service(application)[""].show()
        assert (shown.sent, shown.unsent) == (2, 1)


def run_of(target: str, upto: int, *sent: Rpc) -> Emitted:
    """A row of a lane that holds a run."""
    return Emitted(What.ITEMS, pack(sent), target, upto, b"12345678", b"87654321")


def sent_to(taker: str) -> list[Rpc]:
    """Forks with arguments of their own."""
    return [make_call(taker, at, Kind.FORK, b"%d" % at) for at in range(1, 6)]


def test_run_comes_back_to_the_program_itself_as_one_row() -> None:
    """With where its lane is."""
    with Environment(application) as env:
        begin(env)
        feed(env, run_of(SELF, 5, *sent_to(SELF)))
        row = given(env)[-1]
        assert row == Given(What.ITEMS, pack(sent_to(SELF)), SELF, 5, b"12345678", b"87654321")
        assert items(env) == sent_to(SELF)


class Taken(Struct):
    """What came, and of it as runs."""

    got: list[bytes] = field(default_factory=list)
    runs: int = 0


taker = Service("taker", state=Taken, single=True)


@taker.handler(name="send_run")
def taken_whole(state: Taken, ctx: Context, run: bytes) -> int:
    """Take a run."""
    state.runs += 1
    state.got += [each.arguments for each in forks_of(run)]
    return len(forks_of(run))


@taker.handler(name="send")
def taken_singly(state: Taken, ctx: Context, method: int, args: bytes) -> None:
    """Take one."""
    state.got.append(args)


@taker.handler(name="call")
def taken_and_answered(state: Taken, ctx: Context, method: int, args: bytes) -> bytes:
    """Take one, and answer."""
    state.got.append(args)
    return args


untaking = Service("untaking", state=Bank, single=True)


@untaking.handler(name="send")
def untaken(state: Bank, ctx: Context, method: int, args: bytes) -> None:
    """Pay."""
    state.paid += method


def test_run_leaves_whole_and_in_order_with_what_is_sent_otherwise() -> None:
    """Runs that wait behind one that is on its way leave as one."""
    with Environment(application, taker) as env:
        begin(env)
        rows = [run_of("taker", 5 * at, *sent_to("taker")) for at in range(1, 4)]
        asked = make_call("taker", 9, Kind.ASYNC, b"9", name="", sequence=90)
        alone = make_call("taker", 9, Kind.FORK, b"8")
        feed(env, *rows, lane("taker", 17, asked, alone), run_of("taker", 22, *sent_to("taker")))
        env.advance(seconds=1)
        state = env.service(taker)[""].state
        each = [b"1", b"2", b"3", b"4", b"5"]
        assert state.got == [*each * 3, b"9", b"8", *each]
        assert 2 <= state.runs < 4
        assert [(row.target, row.upto) for row in given(env) if row.upto][-1] == ("taker", 22)
        assert [(back.sequence, back.arguments) for back in items(env)] == [(90, b"9")]
        shown = env.service(application)[""].show()
        assert (shown.sent, shown.unsent, env.service(application)[""].state.outgoing) == (22, 0, {})


def test_run_goes_one_by_one_to_a_service_that_takes_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """To a key, too, which no program has; it is asked again later, and calls of a name that is no service count."""
    monkeypatch.setattr("deathless.foreign.service.SINGLY", 1)
    with Environment(application, bank, taker, untaking) as env:
        begin(env)
        for at in range(1, 4):
            for target in ("bank/bob", "taker/alice", "untaking", "No!"):
                feed(env, run_of(target, 5 * at, *sent_to(target)))
            env.advance(seconds=1)
        assert env.service(bank)["bob"].state.paid == env.service(untaking)[""].state.paid == 3 * 15
        assert env.service(taker)[""].state.got == [b"1", b"2", b"3", b"4", b"5"] * 3
        assert env.service(taker)[""].state.runs == 0
        assert env.service(application)[""].show().unsent == 15


@pytest.mark.parametrize("target", ["bank/bob", "untaking"])
def test_however_many_messages_a_run_has_each_goes_to_a_service_that_takes_none(target: str) -> None:
    """More than one turn may send, whether it is the run that is not taken or a later one, and what comes behind."""
    many = DISK.operations_max + 50
    with Environment(application, bank, untaking, check=False) as env:
        begin(env)
        fork = make_call(target, 1, Kind.FORK, b"")
        feed(env, *(run_of(target, many * at, *[fork] * many) for at in (1, 2)), lane(target, 2 * many + 1, fork))
        env.advance(seconds=1)
        paid = env.service(bank)["bob"].state.paid + env.service(untaking)[""].state.paid
        shown = env.service(application)[""].show()
        assert (paid, shown.unsent, env.service(application)[""].state.outgoing) == (2 * many + 1, 0, {})


older = Service("older", state=Taken, single=True)
older.handler(name="send")(taken_singly)


@pytest.mark.parametrize("away", [taker, older], ids=["takes-runs", "takes-none"])
def test_what_waits_for_a_service_that_is_away_is_kept_by_the_outbox(
    away: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That is bounded, and holds callers back; the state is in memory and in each checkpoint. All comes in order."""
    monkeypatch.setattr("deathless.foreign.service.WAITING_MAX", 8)
    sent = [b"%d" % number for number in range(200)]
    with Environment(application, away) as env:
        begin(env)
        env.stop(away)
        for at in range(0, len(sent), 2):
            pair = [make_call(away.name, 1, Kind.FORK, each) for each in sent[at : at + 2]]
            feed(env, run_of(away.name, at + 2, *pair))
        state = env.service(application)[""].state
        assert len(state.outgoing) == len(state.leaving[away.name].waiting) <= 8
        env.start(away)
        env.advance(seconds=1)
        assert env.service(away)[""].state.got == sent
        assert env.service(application)[""].state.outgoing == {}


def test_call_behind_many_runs_to_a_service_that_is_away_leaves_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("deathless.foreign.service.WAITING_MAX", 2)
    with Environment(application, taker) as env:
        begin(env)
        env.stop(taker)
        for at in range(1, 30):
            asked = make_call("taker", 9, Kind.ASYNC, b"call %d" % at, name="", sequence=at)
            feed(env, run_of("taker", 6 * at, *sent_to("taker")), lane("taker", 6 * at + 1, asked))
        assert len(env.service(application)[""].state.outgoing) <= 2
        env.start(taker)
        env.advance(seconds=1)
        each = [b"1", b"2", b"3", b"4", b"5"]
        assert env.service(taker)[""].state.got == [it for at in range(1, 30) for it in (*each, b"call %d" % at)]
        assert len(items(env)) == 29


def test_leaving_by_another_ones_order_changes_nothing() -> None:
    """Every number that somebody may think of."""
    with Environment(application, taker) as env:
        begin(env)
        feed(env, *(run_of("taker", 5 * at, *sent_to("taker")) for at in (1, 2)))
        for turn in range(-4, 5):
            env.service(application)[""].leave("taker", turn)
            env.service(application)[""].leave("bank", turn)
        env.advance(seconds=1)
        assert env.service(taker)[""].state.got == [b"1", b"2", b"3", b"4", b"5"] * 2


def test_run_from_another_service_is_taken_whole_or_refused() -> None:
    """Also before the program has begun; what is no run reaches nobody."""
    with Environment(application) as env:
        run = pack(sent_to(SELF))
        assert env.service(application)[""].send_run(run) == 5
        begin(env)
        assert env.service(application)[""].send_run(run) == 5
        assert items(env) == sent_to(SELF) * 2
        with pytest.raises(CallRefused, match="no fork"):
            env.service(application)[""].send_run(run[:-1])
        assert len(given(env)) == 3


def test_impulse_goes_where_it_says() -> None:
    """It is of no lane, so no position is told."""
    with Environment(application, bank) as env:
        begin(env)
        sent = [make_call(SELF, 1, Kind.IMPULSE, b"a"), make_call("bank/bob", 5, Kind.IMPULSE, b"")]
        feed(env, Emitted(What.ITEMS, encode_items(sent, with_destination=True)))
        env.advance(seconds=1)
        assert [(each.kind, each.arguments) for each in items(env)] == [(Kind.IMPULSE, b"a")]
        assert given(env)[-1].upto == 0
        assert env.service(bank)["bob"].state.paid == 5


def test_a_kill_anywhere_changes_nothing() -> None:
    """Not what the application gets, nor what others got of it."""

    def scenario(env: Environment) -> object:
        begin(env)
        feed(env, lane("bank/a", 1, make_call("bank/a", 7, Kind.ASYNC, b"!", name="", sequence=1)))
        feed(env, *(run_of(target, 5, *sent_to(target)) for target in ("taker", "untaking")))
        env.service(application)[""].send(1, b"x")
        env.advance(seconds=1)
        taken = env.service(taker)[""].state.got, env.service(untaking)[""].state.paid
        return [(each.kind, each.arguments) for each in items(env)], env.service(bank)["a"].state.paid, taken

    # How many runs leave as one depends on when answers come.
    kill_everywhere(scenario, application, bank, taker, untaking, outcome=lambda _, found: found)
