"""What waits is counted to the byte."""

from deathless.foreign.rows import CALLERS, Given, What
from deathless.foreign.waiting import (
    ANSWER_BYTES,
    ITEM_BYTES,
    NAMED_MAX,
    ROWS_BYTES_MAX,
    ROWS_MAX,
    Impulses,
    Kept,
    Rows,
    Unlogged,
    group_behind,
    room_of,
    size_of,
)
from deathless.protocols.ambrosia.messages import SELF, Kind, Oversized, make_call, make_return

CALL = make_call(SELF, 1, Kind.FORK, b"abc")
ROOM = 1 << 20
LONG = Oversized(destination=SELF, kind=Kind.FORK, method=1, name="", sequence=0, size=1 << 30)


def test_rows_are_taken_in_their_order() -> None:
    """The next one that is wanted is behind all that came, also when none waits."""
    rows = Rows()
    assert rows.next == 1
    rows.add([(2, Given(What.ITEMS, b"two")), (5, Given(What.ITEMS, b"five"))])
    assert (rows.next, rows.bytes, rows.delivered) == (6, 7, 0)
    assert rows.take()[0] == 2
    assert rows.take()[1].items == b"five"
    assert (rows.next, rows.bytes, rows.delivered) == (6, 0, 5)
    rows.check_invariants()


def test_no_more_rows_are_wanted_when_there_are_many_or_large_ones() -> None:
    """Each by itself."""
    many, large = Rows(), Rows()
    many.add((each, Given(What.ITEMS, b"")) for each in range(1, ROWS_MAX))
    large.add([(1, Given(What.ITEMS, bytes(ROWS_BYTES_MAX - 1)))])
    assert [many.is_full, large.is_full] == [False, False]
    many.add([(ROWS_MAX, Given(What.ITEMS, b""))])
    large.add([(2, Given(What.ITEMS, b"x"))])
    assert [many.is_full, large.is_full] == [True, True]


def test_what_is_logged_is_not_counted_any_more() -> None:
    """What was too long counts for little: its arguments are not kept."""
    waiting = Unlogged()
    waiting.add("bank", 3, CALL)
    waiting.add("bank", 4, LONG)
    waiting.add(SELF, 1, CALL)
    assert size_of(LONG) == ITEM_BYTES
    assert waiting.bytes == 2 * size_of(CALL) + ITEM_BYTES
    waiting.logged("bank", 3)
    assert (waiting.bytes, waiting.targets()) == (size_of(CALL) + ITEM_BYTES, ["bank", SELF])
    waiting.logged("bank", 9)
    waiting.logged("nobody", 9)
    assert waiting.targets() == [SELF]
    waiting.logged("bank", 5)  # older news
    waiting.add("bank", 9, CALL)
    waiting.add("nobody", 10, CALL)
    assert waiting.targets() == [SELF, "nobody"], "what is emitted later than another one emitted it is logged"
    waiting.check_invariants()


def test_impulses_are_taken_in_groups_of_a_size_and_one_that_is_larger_alone() -> None:
    """In their order."""
    impulses = Impulses()
    numbered = [make_call(SELF, number, Kind.IMPULSE, b"abc") for number in range(3)]
    for each in (*numbered, make_call(SELF, 3, Kind.IMPULSE, bytes(1000))):
        impulses.add(each)
    assert impulses.bytes == 3 * size_of(numbered[0]) + ITEM_BYTES + 1000 + len(numbered[0].body) - 3
    taken = [[each.method for each in impulses.take(2 * size_of(CALL), ROOM, number)] for number in range(3)]
    assert taken == [[0, 1], [2], [3]]
    assert impulses.bytes == 0
    impulses.check_invariants()


def test_impulse_is_unlogged_until_its_row_is_logged() -> None:
    """An answer in its row, which the process beside the replica gives itself, is no impulse."""
    impulses = Impulses()
    rpcs = [make_call(SELF, 1, Kind.IMPULSE, b"%d" % each) for each in range(3)]
    for each in (rpcs[0], make_return(CALLERS, Kind.EXCEPTION, b"", name="", sequence=1), *rpcs[1:]):
        impulses.add(each)
    impulses.take(2 * size_of(rpcs[0]) + ITEM_BYTES, ROOM, 1)
    impulses.take(1000, ROOM, 2)
    unlogged = []
    for upto in range(3):
        impulses.logged(upto)
        unlogged.append(impulses.unlogged)
    assert unlogged == [3, 2, 0]


def test_items_of_one_size_are_counted_as_one_by_one() -> None:
    """Added together or singly, logged in parts, and logged by another one before they are emitted."""
    together, singly = Unlogged(), Unlogged()
    for waiting in (together, singly):
        waiting.logged("bank", 3)
    together.add_alike("bank", 1, [CALL] * 4)  # of which the log has three
    singly.add("bank", 4, CALL)
    for first, count in ((5, 40), (45, 1), (46, 100)):
        together.add_alike("bank", first, [CALL] * count)
        for position in range(first, first + count):
            singly.add("bank", position, CALL)
    for upto in (2, 4, 30, 45, 46, 145, 200):
        for waiting in (together, singly):
            waiting.logged("bank", upto)
            waiting.check_invariants()
        if upto > 3:
            assert together.bytes == singly.bytes == max(0, 145 - upto) * size_of(CALL)
            assert together.targets() == singly.targets() == (["bank"] if upto < 145 else [])


def test_targets_come_by_when_they_were_logged_last() -> None:
    waiting = Unlogged()
    for target, upto in (("bank", 1), ("till", 1), ("shop", 4), ("bank", 2), ("shop", 3)):
        waiting.logged(target, upto)
    assert waiting.recent(2) == ["shop", "bank"]
    assert waiting.recent(9) == ["shop", "bank", "till"]


def test_group_has_one_item_at_least_and_no_more_than_has_room() -> None:
    large = make_call(SELF, 1, Kind.FORK, bytes(1000))
    items = [CALL, CALL, large, CALL]
    most = 2 * size_of(CALL)
    ends = [group_behind(items, at, most, ROOM) for at in range(len(items))]
    assert ends == [2, 2, 3, 4]


def test_group_has_room_for_names_and_for_errors_in_the_place_of_calls() -> None:
    """A name of a character has up to four bytes."""
    named = make_call("\U0001f3e6" * 10, 1, Kind.ASYNC, b"abc", name="n", sequence=1)
    assert room_of(named) == ANSWER_BYTES + 2 * 40
    assert room_of(make_call("bank", 1, Kind.FORK, bytes(1000))) == size_of(CALL) + 997 + 4
    assert room_of(make_call("bank", 1, Kind.ASYNC, bytes(1000), name="n", sequence=1)) > 1000 + ITEM_BYTES
    ends = [group_behind([named] * 4, 0, ROOM, room) for room in (1, 2 * room_of(named) - 1, 2 * room_of(named))]
    assert ends == [1, 1, 2]


def told(what: What, target: str) -> Given:
    """A row without items."""
    return Given(what, b"", target)


def test_what_is_kept_is_a_problem_with_its_code_until_there_is_room() -> None:
    kept = Kept()
    assert kept.problem == ""
    for target in ("d", "b", "c", "a"):
        kept.take(told(What.HELD, target))
        kept.take(told(What.HELD, target))
    assert kept.problem.startswith("DL3122 what the program sends to a, b, c waits")
    assert "limits.targetsMax" in kept.problem
    kept.take(told(What.FULL, "a"))
    assert kept.full == {"a"} and "lanes that wait: 1" in kept.problem
    for target in ("a", "b", "c", "d"):
        kept.take(told(What.ROOM, target))
    assert (kept.problem, kept.full, kept.held) == ("", set(), {})


def test_however_many_services_can_not_be_sent_to_so_many_are_remembered() -> None:
    kept = Kept()
    for number in range(NAMED_MAX + 5):
        kept.take(told(What.HELD, f"bank/{number}"))
    assert len(kept.held) == NAMED_MAX
