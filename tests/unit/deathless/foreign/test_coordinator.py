"""What an application emits has its effect once, whichever process dies and whatever its replacement does."""

from __future__ import annotations

import random
import tracemalloc
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial

import pytest
from tests.unit.deathless.foreign.world import NEXT, Node, Program, World, booked

from deathless.base.errors import ApplicationStateMissing, DeathlessError, LaneUnknown, ProgramVersionDiffers
from deathless.codec.generations import NEWEST, Level
from deathless.foreign import service
from deathless.foreign.coordinator import HELD, Action, Coordinator, Leading, Versions, _run
from deathless.foreign.rows import CALLERS, Emitted, Given, What, decode_given, encode_items
from deathless.foreign.service import Application, application
from deathless.foreign.streams import Stream
from deathless.foreign.waiting import Unlogged
from deathless.protocols.ambrosia import events as on
from deathless.protocols.ambrosia.bounds import Bounds
from deathless.protocols.ambrosia.errors import ProtocolViolated
from deathless.protocols.ambrosia.items import OTHERS
from deathless.protocols.ambrosia.lanes import Compare, Difference, Expectation, Lane
from deathless.protocols.ambrosia.lanes import What as Wrong
from deathless.protocols.ambrosia.messages import SELF, Kind, Oversized, Rpc, make_call
from deathless.protocols.ambrosia.runs import HEAD_BYTES, pack
from deathless.protocols.ambrosia.states import State
from deathless.sdk import Context

CALLS = (Kind.ASYNC, Kind.FORK)


def call(world: World, value: int) -> None:
    """A caller's call, which wants an answer."""
    state = world.log.state
    state.calls += 1
    state.waiting[state.calls] = f"p{state.calls}"
    item = make_call(SELF, 5, Kind.ASYNC, b"%d" % value, name=CALLERS, sequence=state.calls)
    if state.begun:
        world.log.rows.append(Given(What.ITEMS, encode_items([item])))
    else:
        state.early.append(encode_items([item]))


def run(world: World, steps: int = 40_000) -> list[int]:
    """Have callers call while processes die, until all is answered; gives what the calls asked for."""
    values = [world.chance.randrange(5) for _ in range(12)]
    left = list(values)
    for _ in range(steps):
        if left and world.chance.random() < 0.02:
            call(world, left.pop())
        if world.kills < 8 and world.chance.random() < 0.004:
            world.kill()
        world.step()
        if not left and len(world.log.answers) == len(values) and len(world.log.sent) == sum(values):
            break
    return values


def wanted(values: Sequence[int]) -> list[int]:
    """What the bank gets of calls."""
    return sorted(each for value in values for each in range(1, value + 1))


@pytest.mark.parametrize("seed", range(60))
def test_every_call_is_answered_once_and_every_output_left_once(seed: int) -> None:
    """With kills, with leaders that do not know that they are none any more, and with applications that lag."""
    world = World(seed)
    values = run(world)
    assert len(world.log.answers) == len(values)
    assert sorted(map(int, world.log.sent)) == wanted(values)
    assert [row.what for row in world.log.rows].count(What.INITIAL) == 1


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """A service that took no run is asked again by the next but one."""
    monkeypatch.setattr(service, "SINGLY", 1)


def run_with_ledger(seed: int, level: int = NEWEST) -> World:
    """As `run`, with a program that forks to a ledger and calls it between, and a ledger that may not take runs."""
    world = World(seed, ledger=True)
    world.log.level = level
    values = run(world, 12_000)
    for _ in range(4000):
        world.step()
    assert sorted(map(int, world.log.sent)) == wanted(values)
    return world


def in_order(world: World) -> list[bytes]:
    """What the ledger is to get of what the program was given, in this order."""
    given = [item for row in world.log.rows if row.what == What.ITEMS for item in decode_given(row.items)]
    return [message for item in given if item.kind in CALLS for message in booked(int(item.arguments or b"0"))]


@pytest.mark.usefixtures("soon")
@pytest.mark.parametrize("seed", range(30))
def test_runs_come_once_and_in_order_beside_calls(seed: int) -> None:
    """Whoever is killed, and whether the other service takes runs just then."""
    world = run_with_ledger(seed)
    assert world.log.ledger == in_order(world) != []


@pytest.mark.usefixtures("soon")
@pytest.mark.parametrize("seed", range(10))
def test_runs_that_go_in_several_turns_come_once_and_in_order(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """One message in each turn, beside runs that are taken or not, and calls."""
    monkeypatch.setattr(service, "SINGLY_FORKS", 1)
    world = run_with_ledger(seed)
    assert world.log.ledger == in_order(world) != []


@pytest.mark.parametrize("seed", range(10))
def test_no_row_holds_a_run_where_the_log_is_of_a_level_without_them(seed: int) -> None:
    """A replica beside the primary, of an older build, could not read it; what is sent comes as well."""
    world = run_with_ledger(seed, Level.FIRST)
    assert Counter(world.log.ledger) == Counter(in_order(world)) != Counter()


def test_a_run_is_met_by_an_older_replica_unless_the_level_is_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Stream, "level", NEWEST)
    with pytest.raises(AssertionError, match="older replica"):
        run_with_ledger(1, Level.FIRST)


def one_of(seeds: int) -> bool:
    """Whether with some seed the ledger gets something else."""
    worlds = map(run_with_ledger, range(seeds))
    return any(world.log.ledger != in_order(world) for world in worlds)


@pytest.mark.usefixtures("soon")
def test_call_that_does_not_wait_behind_runs_overtakes_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """So whatever goes to a service waits behind a run that is on its way there."""

    def at_once(held: Application, ctx: Context, target: str, number: int) -> None:
        if held.outgoing[number].count:
            wait(held, ctx, target, number)
        else:
            ctx.fork(application.name, "", "relay", {"number": number})

    wait = service._wait_to_leave
    monkeypatch.setattr(service, "_wait_to_leave", at_once)
    assert one_of(30)


def test_run_that_is_not_taken_is_lost_unless_it_goes_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """The other service may be older than ours."""
    monkeypatch.setattr(service, "_send_singly", lambda *_: None)
    with pytest.raises(AssertionError):
        one_of(30)


@pytest.mark.parametrize(("room", "rows"), [(70, 50), (100, 25), (1 << 20, 1)])
def test_forks_go_in_rows_that_have_room_for_them(room: int, rows: int) -> None:
    """A run has no more than a row of the log may."""
    forks: list[Rpc | Oversized] = [make_call("bank", 1, Kind.FORK, b"%16d" % at) for at in range(100)]
    found: list[list[Rpc | Oversized]] = []
    while len(forks) > len(found) * 100 // rows:
        found.append(_run(forks, len(found) * 100 // rows, room))
    assert [each for group in found for each in group] == forks
    assert {len(group) for group in found} == {100 // rows}
    assert all(len(pack(group)) <= room + HEAD_BYTES for group in found)


def test_fork_that_stands_alone_is_no_run() -> None:
    """Nor is anything else, which ends a run."""
    fork, asked = make_call("bank", 1, Kind.FORK, b"x"), make_call("bank", 1, Kind.ASYNC, b"x", name="n", sequence=1)
    assert [_run([asked, fork, asked, fork, fork], at, 1000) for at in range(4)] == [[], [], [], [fork, fork]]
    assert _run([fork, fork], 0, 1) == []


@pytest.fixture
def cramped(monkeypatch: pytest.MonkeyPatch) -> None:
    """Room for hardly anything: one item that is not logged, and one row."""
    monkeypatch.setattr("deathless.foreign.coordinator.UNLOGGED_BYTES_MAX", 1)
    monkeypatch.setattr("deathless.foreign.waiting.ROWS_BYTES_MAX", 1)


def ended(seed: int) -> bool:
    """Whether all calls are answered and everything left, once."""
    world = World(seed)
    values = run(world)
    return len(world.log.answers) == len(values) and sorted(map(int, world.log.sent)) == wanted(values)


@pytest.mark.usefixtures("cramped")
@pytest.mark.parametrize("seed", range(30))
def test_calls_end_however_much_they_emit(seed: int) -> None:
    """Each call emits more than there is room for, also when replicas are behind, and change roles."""
    assert ended(seed)


@pytest.mark.usefixtures("cramped")
def test_without_the_logs_word_what_was_emitted_is_in_the_way_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows that would say so come only behind those that wait for room."""
    monkeypatch.setattr(Unlogged, "logged", lambda *_: None)
    assert not all(ended(seed) for seed in range(5))


@pytest.mark.parametrize("seed", range(20))
def test_targets_that_share_a_lane_get_everything_once(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The bank and the callers, of whom one alone has a lane of its own."""
    monkeypatch.setattr("tests.unit.deathless.foreign.world.Bounds", partial(Bounds, targets_max=1))
    world = World(seed)
    values = run(world)
    assert len(world.log.answers) == len(values)
    assert sorted(map(int, world.log.sent)) == wanted(values)
    assert any(row.target == OTHERS for row in world.log.rows)


def rows_of_lanes(world: World) -> Counter[str]:
    """How many rows of each lane the log has."""
    return Counter(row.target for row in world.log.rows if row.upto)


@pytest.mark.parametrize("seed", range(5))
def test_lane_that_is_told_to_wait_holds_no_other_one_and_loses_nothing(seed: int) -> None:
    """The service keeps too much of it; callers are answered meanwhile, and the operator is told."""
    world = World(seed, replicas=1)
    while not world.log.state.begun:
        world.step()
    world.log.rows.append(Given(What.FULL, encode_items([]), "bank/alice"))
    for value in (3, 2):
        call(world, value)
    while len(world.log.answers) < 2:
        world.step()
    for _ in range(500):
        world.step()
    assert (world.log.sent, rows_of_lanes(world)["bank/alice"]) == ([], 0)
    assert rows_of_lanes(world)[SELF] > 0
    assert world.nodes[0].coordinator.problem.startswith("DL3122")
    world.log.rows.append(Given(What.ROOM, encode_items([]), "bank/alice"))
    while len(world.log.sent) < 5:
        world.step()
    assert sorted(map(int, world.log.sent)) == [1, 1, 2, 2, 3]
    assert world.nodes[0].coordinator.problem == ""


def led_with(patch: pytest.MonkeyPatch | None) -> set[int]:
    """How many rows the program was given when it was told to lead, in worlds in which 30 were there before."""
    found: set[int] = set()
    for seed in range(5):
        world = World(seed, replicas=1)
        while not world.log.state.begun:
            world.step()
        for _ in range(30):
            call(world, 0)
        there = len(world.log.rows)
        node = world.nodes[0] = world.newest = Node(world.log, world.chance)
        node.lead()
        if patch is not None:
            node.coordinator.leading.since = 0
        while not node.coordinator.leading.told:
            world.step()
        found.add(there - node.coordinator.delivered)
    return found


def test_program_leads_once_it_was_given_what_was_there_at_the_takeover(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its impulses would come of an older state otherwise, as the twin shows."""
    assert max(led_with(None)) <= 0
    assert max(led_with(monkeypatch)) > 0


def breaks(seeds: int = 200) -> bool:
    """Whether some seed loses or doubles something, or ends an application that did nothing wrong."""
    for seed in range(seeds):
        world = World(seed)
        try:
            values = run(world, 8_000)
        except (AssertionError, DeathlessError):
            return True
        if Counter(map(int, world.log.sent)) - Counter(wanted(values)):
            return True
    return False


def test_items_that_are_sent_whatever_the_log_has_are_doubled(monkeypatch: pytest.MonkeyPatch) -> None:
    """So the log's word is waited for, and a lane's positions are the ids of its stream."""

    def anew(self: Stream, number: int, row: Emitted, note: bytes = b"") -> None:
        offer(self, self.next_id, row, note)

    offer = Stream.offer
    monkeypatch.setattr(Stream, "offer", anew)
    monkeypatch.setattr(Lane, "release_from", property(lambda self: self.floor + 1))
    assert breaks()


def test_first_message_that_is_logged_before_its_checkpoint_leaves_nothing_to_go_on_from(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """So it waits until that is durable."""

    def early(self: Coordinator, effects: object, now: float) -> list[Action]:
        self.plan.first_is_kept = True
        return took(self, effects, now)  # type: ignore[arg-type]

    took = Coordinator.took
    monkeypatch.setattr(Coordinator, "took", early)
    assert breaks()


def clock(chance: random.Random) -> Callable[[Program, int], bytes]:
    """An output that is another one at each run."""
    return lambda _program, value: b"%d" % (value + 1000 * chance.randrange(1, 9))


def leads_and_emits(wrong: Callable[[Program, int], bytes], policy: Compare = Compare.BYTES) -> tuple[World, Node]:
    """A first leader's outputs are logged; then a process with another program leads."""
    world = World(1, replicas=1)
    while not world.log.state.begun:
        world.step()
    call(world, 3)
    while len(world.log.sent) < 3:
        world.step()
    assert sorted(map(int, world.log.sent)) == [1, 2, 3]
    node = world.nodes[0] = Node(world.log, world.chance, Program(wrong), policy)
    node.lead()
    call(world, 2)
    steps(node, 3000)
    return world, node


def steps(node: Node, count: int) -> None:
    """Let a process do so much, or until it ends."""
    for _ in range(count):
        node.step()
        if node.error is not None:
            break


def test_output_that_differs_on_replay_ends_the_application_before_it_leaves() -> None:
    """It is named with its lane and position."""
    world, node = leads_and_emits(clock(random.Random(1)))
    assert isinstance(node.error, ProtocolViolated)
    assert "bank/alice" in str(node.error)
    assert sorted(map(int, world.log.sent)) == [1, 2, 3]
    assert node.coordinator.counts.differences == 1
    assert "bank/alice" in node.coordinator.counts.difference


def test_differences_that_are_counted_are_not_kept() -> None:
    """A program that has a clock in what it sends would fill the memory of each replica that follows."""
    _, node = leads_and_emits(clock(random.Random(1)), Compare.SHAPE)
    before = node.coordinator.counts.differences
    tracemalloc.start()
    for position in range(5000):
        found = Difference(target="bank", position=position, what=Wrong.BYTES, fatal=False)
        node.coordinator.took([on.Differs(difference=found)], 0.0)
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert node.coordinator.counts.differences == before + 5000
    assert held < 5000 * 16


def test_arguments_that_differ_are_counted_where_shapes_alone_are_compared() -> None:
    """What was sent stays sent, and what comes behind it leaves."""
    world, node = leads_and_emits(clock(random.Random(1)), Compare.SHAPE)
    assert node.error is None
    assert node.coordinator.counts.differences > 0
    sent = list(map(int, world.log.sent))
    assert (sorted(sent[:3]), [each % 1000 for each in sent[3:]]) == ([1, 2, 3], [2, 1])


def test_shape_that_the_log_does_not_tell_leaves_any_difference_fatal(monkeypatch: pytest.MonkeyPatch) -> None:
    """The twin of the test above."""
    monkeypatch.setattr("deathless.foreign.coordinator.shape_of", lambda _: b"")
    _, node = leads_and_emits(clock(random.Random(1)), Compare.SHAPE)
    assert isinstance(node.error, ProtocolViolated)


def test_output_that_differs_leaves_where_nobody_compares(monkeypatch: pytest.MonkeyPatch) -> None:
    """The twin of the test above."""
    monkeypatch.setattr(Lane, "_compare", lambda self, known, chain, shape: self.part() or opened(self, known))
    world, node = leads_and_emits(clock(random.Random(1)))
    assert node.error is None
    assert any(int(each) > 1000 for each in world.log.sent)


def opened(lane: Lane, known: Expectation) -> list[Difference]:
    """Take the receiver's word without a look."""
    lane._receiver, lane._open = known, True
    return []


def test_lane_whose_row_was_refused_is_not_gone_on_with() -> None:
    """What the log knows of it is the chain of the refused row."""
    world = World(1, replicas=1)
    while not world.log.state.begun:
        world.step()
    call(world, 3)
    while not world.log.sent:
        world.step()
    for stream in world.log.streams.values():
        if stream[1]:
            stream[1] = (99).to_bytes(8, "big") + stream[1][8:]
    world.nodes[0] = node = Node(world.log, world.chance)
    node.lead()
    with pytest.raises(LaneUnknown, match="its row up to 99 was refused"):
        steps(node, 3000)


def test_program_of_a_copy_works_and_leads_once_it_may_reach_the_outside() -> None:
    """What it sends is logged before that as well."""
    world = World(3, replicas=1)
    while not world.log.checkpoints:
        world.step()
    world.nodes[0] = node = Node(world.log, world.chance)
    node.coordinator.leading.outside_held = True
    node.lead()
    call(world, 4)
    steps(node, 6000)
    assert world.log.sent
    assert [node.machine.state] == [State.FOLLOWING]
    assert node.coordinator.problem == HELD
    node.coordinator.leading.outside_held = False
    node.do(node.coordinator.due(0.0))
    assert node.machine.state is State.LEADING
    assert node.coordinator.problem == ""


def test_row_is_asked_for_once_where_none_stands_in_this_incarnation() -> None:
    """Where the rows begin is known by the first of them."""
    world = World(3, replicas=1)
    while not world.log.rows:
        world.step()
    node = Node(world.log, world.chance)
    node.do(node.coordinator.ask_for_row(0.0))  # nobody told yet what the log has
    node.lead()
    before = len(world.log.rows)
    for _ in range(200):
        node.do(node.coordinator.ask_for_row(0.0))
        node._to_primary()
        node._from_primary()
    assert len(world.log.rows) == before + 1
    assert decode_given(world.log.rows[-1].items) == ()


def test_missing_checkpoint_is_no_first_start() -> None:
    """The log has the application's first message, so somebody removed the folder."""
    world = World(1, replicas=1)
    while not world.log.state.begun:
        world.step()
    world.log.checkpoints.clear()
    world.nodes[0] = node = Node(world.log, world.chance)
    node.lead()
    with pytest.raises(ApplicationStateMissing, match="no checkpoint"):
        steps(node, 1000)


VALUES = (3, 2, 4, 4)


def upgraded(world: World) -> bool:
    """Whether the state that counts is of the next version."""
    return world.log.checkpoints[max(world.log.checkpoints)][0].version == 1


def go_over(seed: int, *, kill_behind: int) -> World:
    """Calls come while an application goes over, and its process dies after so many steps; then another one goes on."""
    world = World(seed, replicas=1)
    world.nodes[0] = Node(world.log, world.chance, versions=Versions(0))
    world.nodes[0].lead()
    for value in (3, 2):
        call(world, value)
    while len(world.log.answers) < 2:
        world.step()
    versions = Versions(0, 1)
    for calls, steps_left in ((3, kill_behind), (4, 20_000)):
        node = world.nodes[0] = Node(world.log, world.chance, versions=versions)
        node.lead()
        call(world, 4)
        for _ in range(steps_left):
            world.step()
            assert upgraded(world) or max(map(int, world.log.sent)) < NEXT, (
                "it left before the former version had ended"
            )
            if len(world.log.answers) == calls and len(world.log.sent) == sum(VALUES[:calls]) + 1 and upgraded(world):
                break
        versions = Versions(1) if upgraded(world) else Versions(0, 1)
    return world


@pytest.mark.parametrize("seed", range(40))
def test_application_goes_over_once_and_nothing_is_lost_or_doubled(seed: int) -> None:
    """Wherever its process dies: what its former version sent for a row, its next one does not send again."""
    world = go_over(seed, kill_behind=5 * seed)
    assert upgraded(world)
    assert len(world.log.answers) == 4
    sent = list(map(int, world.log.sent))
    assert sorted(each % NEXT for each in sent) == [0, *wanted(VALUES)]
    later = [each >= NEXT for each in sent]
    assert later == sorted(later), "the former version went on behind the next one"


def test_what_it_sends_before_that_is_durable_would_be_there_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    """The twin of the test above: outputs of the next version leave while the former one may go on."""
    monkeypatch.setattr(Leading, "may_send", True)

    def all_of_them() -> None:
        for seed in range(60):
            go_over(seed, kill_behind=20_000)

    with pytest.raises(AssertionError, match="it left before"):
        all_of_them()


@pytest.mark.parametrize("versions", [Versions(0), Versions(0, 1), Versions(2)])
def test_application_of_another_version_is_refused(versions: Versions) -> None:
    """Also one that would go over to the version that there is."""
    world = go_over(1, kill_behind=20_000)
    node = Node(world.log, world.chance, versions=versions)
    with pytest.raises(ProgramVersionDiffers, match=f"Expected {versions.now} was: 1"):
        steps(node, 1000)
