"""The coordinator's machine: every state times everything that may be ordered or sent, and each rule by itself."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from deathless.base.errors import Internal
from deathless.protocols.ambrosia import events as on
from deathless.protocols.ambrosia.bounds import Bounds
from deathless.protocols.ambrosia.events import Effect, Event, Socket
from deathless.protocols.ambrosia.items import EMPTY, OTHERS, bytes_of, chain_of, shape_of
from deathless.protocols.ambrosia.lanes import Compare, Difference, Expectation, Lane, What
from deathless.protocols.ambrosia.machine import ApplicationMachine
from deathless.protocols.ambrosia.messages import SELF, Kind, Oversized, Rpc, make_call
from deathless.protocols.ambrosia.states import APPLICATION, ORDERS, Answer, Order, Sent, State
from deathless.protocols.ambrosia_binding.encoding import Call, CallType, Tag, message, number, outgoing_call

BOUNDS = Bounds(message_bytes_max=2000, targets_max=1, held_bytes_max=300)


def fork(text: str = "x", to: str = "") -> bytes:
    return outgoing_call(to, Call(1, CallType.FORKED, text.encode()))


def impulse(text: str = "i", to: str = "") -> bytes:
    return outgoing_call(to, Call(1, CallType.IMPULSE, text.encode()))


INPUT = make_call("", 1, Kind.FORK, b"in")
SENT: dict[Sent, bytes] = {
    Sent.ATTACH: message(Tag.ATTACH_TO, b"bank"),
    Sent.OUTPUT: fork(),
    Sent.IMPULSE: impulse(),
    Sent.ASK_CHECKPOINT: message(Tag.TAKE_CHECKPOINT),
    Sent.INITIAL: message(Tag.INITIAL_MESSAGE, b"hello"),
    Sent.CHECKPOINT: message(Tag.CHECKPOINT, number(3)),
}
ORDERED: dict[Order, Event] = {
    Order.BEGIN: on.Begin(),
    Order.LOAD: on.Load(length=3, lsn=0, records=1),
    Order.DELIVER: on.Deliver(lsn=9, rpcs=(INPUT,)),
    Order.TAKE_CHECKPOINT: on.TakeCheckpoint(),
    Order.LEAD: on.Lead(),
    Order.LEAD_WITH_CHECKPOINT: on.Lead(with_checkpoint=True),
    Order.TEST_UPGRADE: on.TestUpgrade(),
    Order.HOLD_OUTPUTS: on.HoldOutputs(),
    Order.UPGRADE: on.Upgrade(),
    Order.COMMIT: on.Commit(),
}


class Driver:
    """A machine, and what it did."""

    def __init__(self, policy: Compare = Compare.BYTES, *, stop: bool = True, bounds: Bounds = BOUNDS) -> None:
        self.machine = ApplicationMachine(name="me", committer=7, policy=policy, stop_at_difference=stop, bounds=bounds)
        self.effects: list[Effect] = []

    def do(self, *steps: Event | bytes) -> list[Effect]:
        last: list[Effect] = []
        for step in steps:
            last = self.machine.handle(on.BytesReceived(data=step) if isinstance(step, bytes) else step)
            self.effects += last
            self.machine.check_invariants()
        return last

    @property
    def error(self) -> str:
        ends = [effect for effect in self.effects if isinstance(effect, on.End)]
        return str(ends[0].error) if ends else ""


OPEN = (on.SocketOpened(socket=Socket.RECEIVE), on.SocketOpened(socket=Socket.SEND))
LOADED = (*OPEN, ORDERED[Order.LOAD], on.LoadPart(data=b"abc"))
FOLLOWING = (*LOADED, on.Confirmed(lsn=5), on.Deliver(lsn=1, rpcs=(INPUT,)))
LEADING = (*FOLLOWING, on.Lead())
PATHS: dict[State, tuple[Event | bytes, ...]] = {
    State.CONNECTING: OPEN[:1],
    State.WAITING: OPEN,
    State.STARTING: (*OPEN, on.Begin()),
    State.INITIALIZING: (*OPEN, on.Begin(), SENT[Sent.INITIAL]),
    State.LOADING: LOADED[:-1],
    State.FOLLOWING: FOLLOWING,
    State.TESTING: (*LOADED, on.TestUpgrade(), on.Confirmed(lsn=5), on.Deliver(lsn=1, rpcs=(INPUT,))),
    State.TESTING_SNAPSHOT: (
        *LOADED,
        on.TestUpgrade(),
        on.Confirmed(lsn=5),
        on.Deliver(lsn=1, rpcs=(INPUT,)),
        on.TakeCheckpoint(),
    ),
    State.SNAPSHOT: (*FOLLOWING, on.TakeCheckpoint()),
    State.LEADING: LEADING,
    State.LEADING_SNAPSHOT: (*LEADING, on.TakeCheckpoint()),
    State.SWITCHING: (*FOLLOWING, on.Upgrade()),
    State.SWITCHED: (*FOLLOWING, on.Upgrade(), message(Tag.CHECKPOINT, number(0))),
    State.GONE: (*OPEN, on.Stop()),
}


def in_state(state: State) -> Driver:
    driver = Driver()
    driver.do(*PATHS[state])
    assert driver.machine.state is state
    driver.effects.clear()
    return driver


@pytest.mark.parametrize("sent", Sent)
@pytest.mark.parametrize("state", State)
def test_what_an_application_sends_is_judged_by_the_table(state: State, sent: Sent) -> None:
    driver = in_state(state)
    driver.do(SENT[sent])
    answer = APPLICATION[state].get(sent)
    if state is State.GONE:
        assert driver.effects == []
    elif answer is None:
        assert driver.machine.state is State.GONE
        assert len(driver.effects) == 1 and f"in state {state.name}, where it is not allowed" in driver.error
    else:
        assert driver.error == ""
        nothing = answer is Answer.DROPPED or (state.name.startswith("SWITCH") and sent in {Sent.OUTPUT, Sent.IMPULSE})
        assert (driver.effects == []) == nothing


@pytest.mark.parametrize("order", Order)
@pytest.mark.parametrize("state", State)
def test_what_is_ordered_is_judged_by_the_table(state: State, order: Order) -> None:
    driver = in_state(state)
    driver.do(on.Confirmed(lsn=9))
    if state is State.GONE:
        assert driver.do(ORDERED[order]) == []
    elif order in ORDERS[state] and not (state is State.FOLLOWING and order is Order.TEST_UPGRADE):
        driver.do(ORDERED[order])
        assert driver.machine.state is ORDERS[state][order]
    else:
        with pytest.raises(Internal):
            driver.do(ORDERED[order])


def test_the_table_says_what_is_known_of_the_protocol() -> None:
    # The page: an impulse during recovery is a violation; so is everything but AttachTo before there is state.
    early = {State.CONNECTING, State.WAITING, State.LOADING}
    replaying = {State.FOLLOWING, State.TESTING, State.TESTING_SNAPSHOT, State.SNAPSHOT}
    leading = {State.LEADING, State.LEADING_SNAPSHOT, State.SWITCHING, State.SWITCHED}
    for state in early:
        assert set(APPLICATION[state]) == {Sent.ATTACH}
    for state in replaying:
        assert Sent.IMPULSE not in APPLICATION[state]
        assert APPLICATION[state][Sent.ASK_CHECKPOINT] is Answer.DROPPED
    for state in leading:
        assert APPLICATION[state][Sent.IMPULSE] is Answer.TAKEN
    assert {state for state in State if Sent.INITIAL in APPLICATION[state]} == {State.STARTING}
    assert {state for state in State if Order.DELIVER in ORDERS[state]} == {
        State.FOLLOWING,
        State.TESTING,
        State.LEADING,
    }


def test_sockets_come_in_the_order_of_the_protocol() -> None:
    with pytest.raises(Internal):
        Driver().do(OPEN[1])
    with pytest.raises(Internal):
        Driver().do(OPEN[0], OPEN[0])
    with pytest.raises(Internal):
        Driver().do(b"\0")


@pytest.mark.parametrize("socket", Socket)
@pytest.mark.parametrize("state", [state for state in State if state is not State.GONE])
def test_one_socket_that_ends_ends_the_application(state: State, socket: Socket) -> None:
    driver = in_state(state)
    assert driver.do(on.SocketEnded(socket=socket)) == [on.End(error=None)]
    assert driver.do(fork(), on.Lead(), on.Confirmed(lsn=3)) == []


def test_half_a_message_of_an_application_that_is_gone_counts_nothing() -> None:
    whole = fork("a") + fork("b")
    for cut in range(len(fork("a")), len(whole)):
        driver = in_state(State.FOLLOWING)
        effects = driver.do(whole[:cut], on.SocketEnded(socket=Socket.RECEIVE))
        assert [effect for effect in driver.effects if isinstance(effect, on.Emitted)] == driver.effects[:1]
        assert effects == [on.End(error=None)]


def test_nothing_is_delivered_before_it_is_confirmed() -> None:
    driver = in_state(State.FOLLOWING)
    with pytest.raises(Internal, match="5 is confirmed"):
        driver.do(on.Deliver(lsn=6, rpcs=(INPUT,)))
    assert driver.machine.state is State.FOLLOWING


def test_a_record_holds_one_message_or_a_batch() -> None:
    driver = in_state(State.LEADING)
    [one] = driver.do(on.Deliver(lsn=2, rpcs=(INPUT,)))
    [two] = driver.do(on.Deliver(lsn=5, rpcs=(INPUT, INPUT)))
    assert isinstance(one, on.Send) and isinstance(two, on.Send)
    assert (one.data[25], two.data[25]) == (0, 5)
    with pytest.raises(Internal, match="without messages"):
        driver.do(on.Deliver(lsn=6, rpcs=()))
    with pytest.raises(Internal, match="INITIAL is the first record"):
        driver.do(on.DeliverInitial(lsn=6, data=b""))


def test_the_first_record_of_a_service_is_its_initial() -> None:
    driver = Driver()
    driver.do(*PATHS[State.INITIALIZING], SENT[Sent.CHECKPOINT] + b"abc", on.Confirmed(lsn=2))
    with pytest.raises(Internal, match="calls before INITIAL"):
        driver.do(on.Deliver(lsn=1, rpcs=(INPUT,)))
    [initial] = driver.do(on.DeliverInitial(lsn=1, data=b"hello"))
    assert isinstance(initial, on.Send) and initial.data[16:].hex() == "00" * 8 + "0c09" + b"hello".hex()
    assert len(driver.do(on.Deliver(lsn=2, rpcs=(INPUT,)))) == 1


def test_an_rpc_before_the_first_record_ends_the_application_and_an_impulse_does_not() -> None:
    driver = Driver()
    driver.do(*LOADED)
    assert driver.do(fork()) != [] and "a FORK before the first record" in driver.error
    driver = Driver()
    driver.do(*LOADED, on.Lead())
    assert isinstance(driver.do(impulse())[0], on.ImpulseEmitted)


def test_a_call_to_its_own_name_is_one_to_itself() -> None:
    driver = in_state(State.LEADING)
    targets = [effect.target for effect in driver.do(fork() + fork(to="me")) if isinstance(effect, on.Emitted)]
    assert targets == [SELF, SELF]
    assert driver.machine.lane("me") is driver.machine.lane(SELF)
    assert driver.do(message(Tag.ATTACH_TO, b"me"), message(Tag.ATTACH_TO, b"")) == []


def test_an_output_that_is_too_long_keeps_its_position_and_is_told() -> None:
    driver = in_state(State.LEADING)
    emitted, refused, after = driver.do(fork("x" * 5000, "bank") + fork("y", "bank"))
    assert isinstance(emitted, on.Emitted) and isinstance(emitted.item, Oversized) and emitted.position == 1
    assert isinstance(refused, on.OutputRefused) and "5009 bytes, at most 2000" in refused.reason
    assert isinstance(after, on.Emitted) and after.position == 2
    [refused] = driver.do(impulse("x" * 5000))
    assert isinstance(refused, on.OutputRefused) and refused.position == 0


def test_targets_beyond_the_maximum_share_a_lane() -> None:
    driver = in_state(State.LEADING)
    driver.do(fork("x", "bank"))
    for position, target in enumerate(("shop", "till", OTHERS, "shop"), 1):
        [emitted] = driver.do(fork("x", target))
        assert isinstance(emitted, on.Emitted)
        assert (emitted.target, emitted.position, emitted.item.destination) == (OTHERS, position, target)
    [emitted] = driver.do(fork("x", "bank"))
    assert isinstance(emitted, on.Emitted) and emitted.position == 2


def expected(*texts: str) -> Expectation:
    chain = EMPTY
    for text in texts:
        chain = chain_of(chain, bytes_of(make_call("", 1, Kind.FORK, text.encode())))
    return Expectation(len(texts), chain, shape_of(make_call("", 1, Kind.FORK, b"")))


@pytest.mark.parametrize("told", [on.Expected, on.EffectKnown, on.Welcomed])
def test_other_outputs_than_known_end_the_application(told: Callable[..., Event]) -> None:
    driver = in_state(State.FOLLOWING)
    driver.do(told(target="bank", known=expected("a", "b")), fork("a", "bank"), fork("x", "bank"))
    assert "output 2 to bank is not what it was: the bytes differ" in driver.error
    assert [effect for effect in driver.effects if isinstance(effect, on.Differs)] != []
    assert [e.position for e in driver.effects if isinstance(e, on.Emitted)] in ([], [1])


def test_nothing_behind_what_ended_an_application_counts() -> None:
    driver = in_state(State.FOLLOWING)
    driver.do(on.Expected(target="bank", known=expected("a")))
    effects = driver.do(fork("x", "bank") + fork("y", "bank") + SENT[Sent.ATTACH])
    assert [type(effect) for effect in effects] == [on.Differs, on.End]
    driver = in_state(State.FOLLOWING)
    assert [type(effect) for effect in driver.do(impulse() + impulse() + fork())] == [on.End]


def test_other_outputs_than_known_hold_their_lane_alone_where_that_is_the_policy() -> None:
    driver = Driver(stop=False)
    driver.do(*FOLLOWING, on.Expected(target="bank", known=expected("a")))
    assert [type(effect) for effect in driver.do(fork("x", "bank"), fork("y", "bank"))] == []
    assert driver.machine.lane("bank").fatal
    assert len(driver.do(fork("z"))) == 1
    assert driver.machine.state is State.FOLLOWING


def test_bytes_that_differ_are_told_where_shapes_are_compared() -> None:
    driver = Driver(Compare.SHAPE)
    driver.do(*FOLLOWING, on.EffectKnown(target="bank", known=expected("a")))
    assert driver.do(fork("x", "bank")) == [
        on.Differs(difference=Difference(target="bank", position=1, what=What.BYTES, fatal=False))
    ]


def test_what_had_its_effect_is_not_handed_out_again() -> None:
    driver = in_state(State.FOLLOWING)
    driver.do(on.EffectKnown(target="bank", known=expected("a", "b")))
    assert driver.do(fork("a", "bank") + fork("b", "bank")) == []
    [effect] = driver.do(fork("c", "bank"))
    assert isinstance(effect, on.Emitted) and effect.position == 3


@pytest.mark.parametrize("order", [on.TakeCheckpoint(), on.Upgrade(), on.Lead(with_checkpoint=True)])
@pytest.mark.parametrize("stop", [True, False])
def test_a_checkpoint_before_what_is_known_is_refused(order: Event, stop: bool) -> None:
    driver = Driver(stop=stop)
    logged = expected("a", "b")._replace(lsn=1)
    driver.do(*FOLLOWING, on.Expected(target="bank", known=logged), order, fork("a", "bank"))
    driver.do(SENT[Sent.CHECKPOINT])
    assert "output 2 to bank is not what it was: fewer outputs on replay" in driver.error
    assert not [effect for effect in driver.effects if isinstance(effect, on.CheckpointBegan)]


def test_what_is_logged_behind_a_checkpoint_is_not_asked_of_it() -> None:
    driver = in_state(State.SNAPSHOT)
    logged = expected("a")._replace(lsn=2)
    driver.do(on.Expected(target="bank", known=logged))
    [began] = driver.do(SENT[Sent.CHECKPOINT])
    assert isinstance(began, on.CheckpointBegan)
    assert began.lanes[0].expected == (logged,)


def test_a_checkpoint_names_what_was_given_and_emitted_before_it_and_nothing_behind() -> None:
    driver = in_state(State.FOLLOWING)
    driver.do(on.Deliver(lsn=4, rpcs=(INPUT, INPUT)), fork("a", "bank"), on.TakeCheckpoint(), fork("b", "bank"))
    [began] = driver.do(SENT[Sent.CHECKPOINT])
    assert isinstance(began, on.CheckpointBegan)
    assert (began.length, began.lsn, began.records) == (3, 4, 3)
    assert [kept.item.body[-1:] for kept in began.lanes[0].kept if isinstance(kept.item, Rpc)] == [b"a", b"b"]
    part, ended, emitted = driver.do(b"xyz" + fork("c", "bank"))
    assert (part, ended) == (on.CheckpointPart(data=b"xyz"), on.CheckpointEnded())
    assert isinstance(emitted, on.Emitted) and emitted.position == 3
    again = Driver()
    load = on.Load(length=3, lsn=began.lsn, records=began.records, lanes=began.lanes)
    again.do(*OPEN, load, on.LoadPart(data=b"xyz"), on.Confirmed(lsn=9), on.Deliver(lsn=9, rpcs=(INPUT,)))
    [emitted] = again.do(fork("c", "bank"))
    assert isinstance(emitted, on.Emitted) and emitted.position == 3
    assert [position for position, _ in again.machine.lane("bank").kept_from(1)] == [1, 2, 3]


def test_more_of_a_checkpoint_than_it_has_is_refused() -> None:
    driver = in_state(State.LOADING)
    with pytest.raises(Internal, match="more of a checkpoint"):
        driver.do(on.LoadPart(data=b"abcd"))
    assert driver.do(on.LoadPart(data=b"ab")) == [on.Send(data=b"ab")]
    assert driver.do(on.LoadPart(data=b"c")) == [on.Send(data=b"c"), on.Loaded()]


def test_a_checkpoint_passes_both_ways_with_flat_memory() -> None:
    length, piece = 256 << 20, bytes(1 << 20)
    machine = ApplicationMachine(name="me", committer=7)
    for event in (*OPEN, on.Load(length=length, lsn=1, records=1)):
        machine.handle(event)
    tracemalloc.start()
    try:
        for _ in range(length // len(piece)):
            machine.handle(on.LoadPart(data=piece))
        machine.handle(on.TakeCheckpoint())
        machine.handle(on.BytesReceived(data=message(Tag.CHECKPOINT, number(length))))
        for _ in range(length // len(piece)):
            machine.handle(on.BytesReceived(data=piece))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 8 << 20
    assert machine.state is State.FOLLOWING


def test_what_is_emitted_during_an_upgrade_is_held_until_it_is_committed() -> None:
    driver = in_state(State.FOLLOWING)
    driver.do(on.HoldOutputs(), on.Deliver(lsn=7, rpcs=(INPUT,)))  # 5 is confirmed
    assert driver.do(fork("old", "bank"), on.Upgrade(), impulse("new")) == []
    reads = [driver.machine.may_read]
    driver.do(SENT[Sent.CHECKPOINT] + b"abc")
    with pytest.raises(Internal, match="delivered unconfirmed"):
        driver.do(on.Commit())
    assert driver.do(fork("x" * 400, "bank")) == []
    reads.append(driver.machine.may_read)
    driver.do(on.Confirmed(lsn=7))
    first, second, third = driver.do(on.Commit())
    assert isinstance(first, on.Emitted) and isinstance(second, on.ImpulseEmitted) and isinstance(third, on.Emitted)
    assert driver.machine.state is State.LEADING
    assert [*reads, driver.machine.may_read] == [True, False, True]


def test_an_upgrade_that_is_called_off_lets_nothing_leave() -> None:
    driver = in_state(State.SWITCHING)
    assert driver.do(fork("a"), impulse("b"), on.Stop()) == [on.End(error=None)]
    assert [type(effect) for effect in driver.effects] == [on.End]


def test_a_checkpoint_is_loaded_before_anything_is_known() -> None:
    driver = in_state(State.WAITING)
    with pytest.raises(Internal, match="behind what is known"):
        driver.do(on.Expected(target="bank", known=expected("a")), ORDERED[Order.LOAD])


def test_what_was_held_and_had_its_effect_meanwhile_stays() -> None:
    driver = in_state(State.FOLLOWING)
    driver.do(on.HoldOutputs(), fork("a", "bank"), on.Upgrade(), message(Tag.CHECKPOINT, number(0)))
    driver.do(fork("b", "bank"), on.EffectKnown(target="bank", known=expected("a")))
    [emitted] = driver.do(on.Commit())
    assert isinstance(emitted, on.Emitted) and emitted.position == 2


@pytest.mark.parametrize("told", [on.Expected, on.EffectKnown])
def test_what_an_unconfirmed_log_knows_of_outputs_is_not_told(told: Callable[..., Event]) -> None:
    driver = in_state(State.FOLLOWING)
    with pytest.raises(Internal, match="known by lsn 6, and 5 is confirmed"):
        driver.do(told(target="bank", known=expected("a")._replace(lsn=6)))
    driver.do(told(target="bank", known=expected("a")._replace(lsn=5)))


def test_nobody_leads_while_outputs_are_held() -> None:
    driver = in_state(State.FOLLOWING)
    with pytest.raises(Internal, match="while outputs are held"):
        driver.do(on.HoldOutputs(), on.Lead())


def test_an_upgrade_is_tested_before_the_log_alone() -> None:
    with pytest.raises(Internal, match="before anything is replayed"):
        in_state(State.FOLLOWING).do(on.TestUpgrade())


def test_a_receivers_connection_opens_and_closes_its_lane() -> None:
    driver = in_state(State.LEADING)
    driver.do(fork("a", "bank"), on.Welcomed(target="bank", known=None))
    assert driver.machine.lane("bank").release_from == 1
    driver.do(on.Parted(target="bank"))
    assert driver.machine.lane("bank").release_from is None


@given(st.sampled_from(list(PATHS)), st.lists(st.one_of(st.sampled_from(list(SENT.values())), st.binary(max_size=9))))
def test_whatever_an_application_sends_it_is_served_or_ended(state: State, pieces: list[bytes]) -> None:
    driver = in_state(state)
    driver.do(*pieces)
    assert len([effect for effect in driver.effects if isinstance(effect, on.End)]) <= 1
    assert (driver.error != "") == (driver.machine.state is State.GONE and state is not State.GONE)


class _Anything(RuleBasedStateMachine):
    """Orders and bytes in any order: an order that is not allowed changes nothing, and invariants hold."""

    def __init__(self) -> None:
        super().__init__()
        self.driver = Driver()
        self.lsn = 0

    @rule(event=st.sampled_from([*OPEN, *ORDERED.values(), on.LoadPart(data=b"abc"), on.Parted(target="bank")]))
    def order(self, event: Event) -> None:
        before = self.driver.machine.state
        try:
            self.driver.do(event)
        except Internal:
            assert self.driver.machine.state is before

    @rule(data=st.one_of(st.sampled_from([*SENT.values(), b"abc", fork("a", "bank")]), st.binary(max_size=5)))
    def send(self, data: bytes) -> None:
        if self.driver.machine.state is not State.CONNECTING:
            self.driver.do(data)

    @rule(lsn=st.integers(1, 20))
    def confirm(self, lsn: int) -> None:
        self.driver.do(on.Confirmed(lsn=lsn))

    @invariant()
    def is_whole(self) -> None:
        self.driver.machine.check_invariants()


def test_any_orders_and_any_bytes_leave_a_machine_whole() -> None:
    run_state_machine_as_test(_Anything)


def one_by_one(effects: list[Effect]) -> list[Effect]:
    """The same effects where nothing is told together."""
    found: list[Effect] = []
    for effect in effects:
        if isinstance(effect, on.ForksEmitted):
            for position, item in enumerate(effect.items, effect.position):
                found.append(on.Emitted(target=effect.target, position=position, item=item))
        else:
            found.append(effect)
    return found


def emitted_as(data: bytes, cut: int, known: tuple[Event, ...], *, together: bool) -> tuple[str, object]:
    """What a machine does with bytes in pieces, once this is known; and its lanes then."""
    machine = ApplicationMachine(name="me", committer=7, bounds=BOUNDS, together=together)
    for step in (*LEADING, *known):
        machine.handle(step)
    pieces = [on.BytesReceived(data=data[at : at + cut]) for at in range(0, len(data), cut)]
    effects = [each for piece in pieces for each in machine.handle(piece)]
    return repr(one_by_one(effects)), [machine.lane(target).snapshot() for target in ("bank", SELF)]


def known_at(position: int, *, right: bool) -> on.EffectKnown:
    """What the log has of the lane of the bank."""
    chain = EMPTY
    for _ in range(position):
        chain = chain_of(chain, bytes_of(make_call("bank", 1, Kind.FORK, b"x")))
    return on.EffectKnown(target="bank", known=Expectation(position, chain if right else bytes(8), lsn=1))


@pytest.mark.parametrize(
    "known",
    [(), (known_at(1, right=True),), (known_at(300, right=True),), (known_at(300, right=False),)],
    ids=["nothing", "the first", "one in the middle", "another one"],
)
def test_forks_that_are_alike_do_what_they_do_one_by_one(known: tuple[Event, ...]) -> None:
    """Also where one of them is compared with the log, has had its effect, or is not what it was."""
    data = (fork(to="bank") * 500 + fork() * 100) * 2
    singly = emitted_as(data, 1, known, together=False)
    assert emitted_as(data, len(data), known, together=False) == singly
    assert emitted_as(data, len(data), known, together=True) == singly
    assert emitted_as(data, 700, known, together=True) == singly


def test_forks_that_are_compared_with_nothing_hide_a_difference(monkeypatch: pytest.MonkeyPatch) -> None:
    """So they are taken together only where nothing is known of them."""
    monkeypatch.setattr(Lane, "may_take", lambda *_: True)
    data = fork(to="bank") * 500
    effects, _ = emitted_as(data, len(data), (known_at(300, right=False),), together=True)
    assert "Differs" not in effects


def test_forks_to_targets_beyond_the_maximum_go_one_by_one() -> None:
    """They share a lane, whose chain holds their destinations; a target is admitted once."""
    data = fork(to="bank") * 300 + fork(to="shop") * 300 + fork(to="$others") * 300 + fork(to="bank") * 300
    found = []
    for cut, together in ((1, False), (len(data), True), (900, True)):
        machine = ApplicationMachine(name="me", committer=7, bounds=BOUNDS, together=together)
        for step in (*LEADING, *(on.BytesReceived(data=data[at : at + cut]) for at in range(0, len(data), cut))):
            machine.handle(step)
        found.append([machine.lane(target).snapshot() for target in ("bank", "shop", OTHERS)])
        assert [each.emitted for each in found[-1]] == [600, 0, 600]
    assert found[0] == found[1] == found[2]


def test_forks_before_the_first_record_end_the_application_together_too() -> None:
    """And behind that nothing of them counts."""
    driver = Driver()
    driver.do(*LOADED, fork(to="bank") * 500)
    assert "before the first record" in driver.error
    assert driver.machine.state is State.GONE
    held = in_state(State.SWITCHED)
    assert held.do(fork(to="bank") * 50) == [] and not held.machine.may_read
