"""The outbox against a plain list: positions, trimming, streaming and snapshots (I2, I3)."""

from __future__ import annotations

import errno
from collections.abc import Callable
from weakref import WeakSet

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from msgspec import structs

from deathless.base.errors import Internal
from deathless.codec.peer_history import NOTHING, UNKNOWN, extended
from deathless.codec.peer_messages import SELF, Target
from deathless.codec.snapshot import OutboxRecord
from deathless.core.tables import outbox as outbox_module
from deathless.core.tables.outbox import Outbox
from deathless.core.tables.spool import Stored

SHOP, BANK = Target("shop", 0), Target("bank", 0)


def filled(*messages: bytes, target: Target = SHOP) -> Outbox:
    outbox = Outbox()
    for message in messages:
        outbox.append(target, message)
    return outbox


def test_positions_of_each_target_count_from_one() -> None:
    outbox = Outbox()
    assert [outbox.append(SHOP, b"a"), outbox.append(BANK, b"b"), outbox.append(SHOP, b"c")] == [1, 1, 2]
    assert outbox.targets() == [BANK, SHOP]
    assert (outbox.first_position(SHOP), outbox.next_position(SHOP)) == (1, 3)


def test_it_tells_who_was_ever_sent_to_and_does_not_count_ourselves_among_others() -> None:
    outbox = filled(b"a")
    outbox.append(SELF, b"b")
    outbox.trim(SHOP, 1)
    assert (outbox.others, outbox.knows(SHOP), outbox.knows(BANK)) == (1, True, False)


def test_a_target_that_was_never_sent_to_begins_at_one_and_holds_nothing() -> None:
    outbox = Outbox()
    assert (outbox.first_position(SHOP), outbox.next_position(SHOP), outbox.messages_from(SHOP, 1, 9)) == (1, 1, [])
    assert (outbox.trim(SHOP, 5), outbox.reset(SHOP), outbox.targets(), outbox.bytes) == (0, 0, [], 0)


def test_a_message_is_kept_until_it_is_confirmed_and_its_position_is_never_given_again() -> None:
    outbox = filled(b"one", b"two", b"three")
    assert outbox.trim(SHOP, 2) == 2
    assert outbox.messages_from(SHOP, 3, 99) == [b"three"]
    assert (outbox.trim(SHOP, 2), outbox.bytes) == (0, 5)
    assert outbox.trim(SHOP, 99) == 1, "no more than there is"
    assert (outbox.first_position(SHOP), outbox.append(SHOP, b"four"), outbox.targets()) == (4, 4, [SHOP])


def test_as_many_messages_as_fit_are_given_and_a_long_one_goes_alone() -> None:
    outbox = filled(b"aa", b"bb", b"c" * 9, b"d")
    assert outbox.messages_from(SHOP, 1, 4) == [b"aa", b"bb"]
    assert outbox.messages_from(SHOP, 3, 4) == [b"c" * 9]
    assert outbox.messages_from(SHOP, 2, 99) == [b"bb", b"c" * 9, b"d"]
    assert outbox.messages_from(SHOP, 5, 4) == []


@pytest.mark.parametrize("position", [0, 1, 4])
def test_a_position_that_is_trimmed_or_not_yet_given_is_our_bug(position: int) -> None:
    outbox = filled(b"a", b"b")
    outbox.trim(SHOP, 1)
    with pytest.raises(AssertionError, match=f"no position {position}"):
        outbox.messages_from(SHOP, position, 9)
    with pytest.raises(AssertionError, match="no position 2"):
        outbox.messages_from(BANK, 2, 9)


def test_a_target_that_was_created_anew_begins_at_one_again() -> None:
    outbox = filled(b"a", b"bb")
    outbox.append(SELF, b"mine")
    assert outbox.reset(SHOP) == 2
    assert (outbox.next_position(SHOP), outbox.targets(), outbox.bytes) == (1, [SELF], 4)


def test_a_long_list_lets_forgotten_messages_go_in_bulk() -> None:
    outbox = filled(*[b"x"] * (3 * outbox_module.COMPACT_COUNT))
    for through in range(1, 3 * outbox_module.COMPACT_COUNT, 7):
        outbox.trim(SHOP, through)
        held = len(outbox._queues[SHOP].messages)
        assert held <= max(2 * outbox.bytes, outbox.bytes + outbox_module.COMPACT_COUNT)
    outbox.check_invariants()


def test_a_copy_does_not_change_with_the_outbox() -> None:
    outbox = filled(b"a")
    copy = outbox.snapshot()
    outbox.append(SHOP, b"b")
    outbox.trim(SHOP, 1)
    assert copy == [OutboxRecord("shop", 0, 1, [b"a"], NOTHING)]
    other = Outbox()
    other.restore(copy)
    other.append(SHOP, b"c")
    assert copy == [OutboxRecord("shop", 0, 1, [b"a"], NOTHING)]


def test_history_of_what_was_sent_before_any_was_kept_stays_unknown() -> None:
    outbox = Outbox()
    outbox.restore([OutboxRecord("shop", 0, 3, [b"c"]), OutboxRecord("", 0, 1, [b"own"])])
    outbox.append(SHOP, b"d")
    assert outbox.history_before(SHOP, 5) == UNKNOWN
    outbox.trim(SHOP, 4)
    assert outbox.history_before(SHOP, 5) == UNKNOWN
    assert outbox.history_before(SELF, 2) == UNKNOWN, "we need not compare with ourselves"
    assert outbox.history_before(BANK, 1) == NOTHING
    outbox.reset(SHOP)
    outbox.append(SHOP, b"anew")
    assert outbox.history_before(SHOP, 2) == extended(NOTHING, [b"anew"])


def test_a_snapshot_with_a_position_below_one_is_not_restored() -> None:
    with pytest.raises(AssertionError):
        Outbox().restore([OutboxRecord("shop", 0, 0, [])])


class Book:
    """A piece in memory that can be made unreadable, or changed."""

    def __init__(self, data: bytes, shelf: Shelf) -> None:
        self.data = data
        self.shelf = shelf

    def read(self) -> bytes:
        self.shelf.reads += 1
        return self.shelf.spoil(self.data)


class Shelf:
    """A spool in memory that knows which of its pieces are still referred to."""

    def __init__(self) -> None:
        self.full = False
        self.asked = self.reads = 0
        self.spoil: Callable[[bytes], bytes] = lambda data: data
        self.books: WeakSet[Book] = WeakSet()

    def append(self, data: bytes) -> Book | None:
        self.asked += 1
        if self.full:
            return None
        book = Book(data, self)
        self.books.add(book)
        return book


def plain(records: list[OutboxRecord]) -> list[OutboxRecord]:
    return [OutboxRecord(each.service, each.shard, each.first_position, list(each.messages)) for each in records]


@pytest.fixture(autouse=True)
def short_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outbox_module, "RUN_BYTES", 3)


def spilled(shelf: Shelf, *messages: bytes, memory: int = 4) -> Outbox:
    outbox = Outbox(shelf, memory)
    for message in messages:
        outbox.append(SHOP, message)
    outbox.check_invariants()
    return outbox


def test_what_memory_does_not_hold_stands_in_the_spool_and_nobody_sees_it() -> None:
    shelf = Shelf()
    outbox = spilled(shelf, b"aaa", b"bbb", b"ccc", b"ddd")
    assert (outbox.bytes, outbox.memory_bytes, len(shelf.books)) == (12, 3, 3)
    assert outbox.messages_from(SHOP, 1, 99) == [b"aaa", b"bbb", b"ccc", b"ddd"]
    assert outbox.messages_from(SHOP, 2, 6) == [b"bbb", b"ccc"]
    assert outbox.messages_from(SHOP, 3, 1) == [b"ccc"]
    assert (outbox.trim(SHOP, 2), outbox.bytes, len(shelf.books)) == (2, 6, 1)
    assert outbox.trim(SHOP, 4) == 2
    assert (outbox.bytes, outbox.memory_bytes, len(shelf.books)) == (0, 0, 0)


def test_who_has_most_in_memory_gives_its_oldest_first() -> None:
    shelf = Shelf()
    outbox = Outbox(shelf, 8)
    outbox.append(BANK, b"bb")
    outbox.extend(SHOP, [b"aaaaa", b"a"])
    outbox.append(BANK, b"b")
    assert [type(each.messages) for each in outbox.snapshot()] == [list, Stored]
    assert (outbox.messages_from(BANK, 1, 9), outbox.memory_bytes) == ([b"bb", b"b"], 4)


def test_a_run_of_which_a_part_is_confirmed_stays_until_its_last_message_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outbox_module, "RUN_BYTES", 2)
    shelf = Shelf()
    outbox = Outbox(shelf, 1)
    outbox.extend(SHOP, [b"a", b"b", b"c"])
    assert (len(shelf.books), outbox.memory_bytes) == (1, 1)
    assert (outbox.trim(SHOP, 1), outbox.bytes, len(shelf.books)) == (1, 2, 1)
    assert outbox.messages_from(SHOP, 2, 9) == [b"b", b"c"]
    outbox.check_invariants()
    assert (outbox.trim(SHOP, 2), outbox.bytes, len(shelf.books)) == (1, 1, 0)


def test_what_a_copy_holds_stays_in_the_spool_for_as_long_as_the_copy() -> None:
    shelf = Shelf()
    outbox = spilled(shelf, b"aaa", b"bbb", b"ccc")
    outbox.trim(SHOP, 1)
    copy = outbox.snapshot()
    outbox.trim(SHOP, 3)
    assert len(shelf.books) == 1
    assert len(copy[0].messages) == 2
    assert [list(copy[0].messages) for _ in range(2)] == [[b"bbb", b"ccc"]] * 2
    del copy
    assert not shelf.books


def refused_by_a_full_shelf(monkeypatch: pytest.MonkeyPatch) -> tuple[Shelf, Outbox]:
    """Two messages, 6 bytes, whose spool took nothing; it is asked again after 3."""
    monkeypatch.setattr(outbox_module, "RETRY_COUNT", 3)
    shelf = Shelf()
    shelf.full = True
    return shelf, spilled(shelf, b"aaa", b"bbb")


def test_i10_a_spool_that_takes_nothing_leaves_messages_in_memory_and_is_asked_again_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shelf, outbox = refused_by_a_full_shelf(monkeypatch)
    assert (outbox.refused, outbox.memory_bytes, shelf.asked) == (True, 6, 1)
    shelf.full = False
    outbox.append(SHOP, b"c")
    outbox.append(SHOP, b"d")
    assert (outbox.refused, shelf.asked) == (True, 1), "not at each message"
    outbox.append(SHOP, b"e")
    assert (outbox.refused, outbox.memory_bytes) == (False, 3)
    assert outbox.messages_from(SHOP, 1, 99) == [b"aaa", b"bbb", b"c", b"d", b"e"]


def test_i10_a_spool_that_takes_messages_again_is_found_also_while_no_turn_may_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shelf, outbox = refused_by_a_full_shelf(monkeypatch)
    shelf.full = False
    assert [outbox.relieve() for _ in range(3)] == [6, 6, 3]
    assert (outbox.refused, outbox.relieve()) == (False, 3)


def test_runs_that_are_read_stay_in_memory_a_few_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outbox_module, "LOADED_MAX", 2)
    shelf = Shelf()
    outbox = spilled(shelf, *[b"xxx"] * 5)
    assert [outbox.messages_from(SHOP, 1, 1) for _ in range(3)] == [[b"xxx"]] * 3
    assert shelf.reads == 2, "the second one to see that it does not fit"
    outbox.messages_from(SHOP, 1, 99)
    assert (shelf.reads, len(outbox._loaded)) == (4, 2)
    outbox.check_invariants()


def changed(data: bytes) -> bytes:
    return bytes([data[0] ^ 1]) + data[1:]


@pytest.mark.parametrize("spoil", [changed, lambda data: data[:-1], lambda data: data[:-1] + b"X", lambda _: b""])
def test_i8_bytes_that_changed_are_never_taken_for_messages(spoil: Callable[[bytes], bytes]) -> None:
    shelf = Shelf()
    outbox = spilled(shelf, b"aaa", b"bbb")
    copy = outbox.snapshot()
    shelf.spoil = spoil
    with pytest.raises(Internal, match="do not read back"):
        outbox.messages_from(SHOP, 1, 9)
    with pytest.raises(Internal, match="do not read back"):
        list(copy[0].messages)


def test_i8_a_read_that_fails_is_an_error_of_ours() -> None:
    def fail(_: bytes) -> bytes:
        raise OSError(errno.EIO, "no")

    shelf = Shelf()
    outbox = spilled(shelf, b"aaa", b"bbb")
    shelf.spoil = fail
    with pytest.raises(Internal, match=r"can not be read: .*no"):
        outbox.messages_from(SHOP, 1, 9)


TARGETS = st.sampled_from([SELF, BANK, SHOP, Target("shop", 1)])


class Outboxes(RuleBasedStateMachine):
    """The outbox against, per to, the list of all messages and how many of them are forgotten.

    With little memory, so that messages stand in a spool, which takes nothing now and then.
    """

    def __init__(self) -> None:
        super().__init__()
        self.patch = pytest.MonkeyPatch()
        for name, small in (("COMPACT_COUNT", 3), ("RUN_BYTES", 10), ("LOADED_MAX", 2), ("RETRY_COUNT", 3)):
            self.patch.setattr(outbox_module, name, small)
        self.spool: Shelf | None = None
        self.memory = 1 << 20
        self.outbox = Outbox()
        self.naive: dict[Target, tuple[list[bytes], int]] = {}

    def teardown(self) -> None:
        self.patch.undo()

    @initialize(memory=st.sampled_from([None, 1, 5, 12, 40]))
    def born(self, memory: int | None) -> None:
        if memory is not None:
            self.spool, self.memory = Shelf(), memory
        self.outbox = Outbox(self.spool, self.memory)

    @precondition(lambda self: self.spool is not None)
    @rule(full=st.booleans())
    def room_changes(self, full: bool) -> None:
        assert self.spool is not None
        self.spool.full = full

    @rule(to=TARGETS, messages=st.lists(st.binary(max_size=6), max_size=6))
    def sent(self, to: Target, messages: list[bytes]) -> None:
        for message in messages:
            held, _ = self.naive.setdefault(to, ([], 0))
            held.append(message)
            assert self.outbox.append(to, message) == len(held)

    @rule(to=TARGETS, through=st.integers(0, 20))
    def confirmed(self, to: Target, through: int) -> None:
        held, gone = self.naive.get(to, ([], 0))
        now = max(gone, min(through, len(held)))
        assert self.outbox.trim(to, through) == now - gone
        if to in self.naive:
            self.naive[to] = held, now

    @rule(to=TARGETS)
    def created_anew(self, to: Target) -> None:
        held, gone = self.naive.pop(to, ([], 0))
        assert self.outbox.reset(to) == len(held) - gone

    @rule(spills=st.booleans(), memory=st.sampled_from([1, 12]), in_file=st.booleans())
    def restored(self, spills: bool, memory: int, in_file: bool) -> None:
        records = self.outbox.snapshot()
        if in_file:
            loader = Outbox(self.spool, memory)
            for record in records:
                loader.begin(Target(record.service, record.shard), record.first_position)
                for message in record.messages:
                    loader.extend(Target(record.service, record.shard), [message])
            found = {(r.service, r.shard): r.history for r in records}
            records = [structs.replace(r, history=found[r.service, r.shard]) for r in loader.snapshot()]
        self.outbox = Outbox(self.spool if spills else None, memory)
        self.memory = memory
        self.outbox.restore(records)

    @rule(to=TARGETS)
    def copied_and_changed(self, to: Target) -> None:
        copy, expected = self.outbox.snapshot(), self.expected()
        self.outbox.reset(to)
        assert plain(copy) == expected
        self.outbox.restore(copy)

    @rule(to=TARGETS, ahead=st.integers(0, 9), bytes_max=st.integers(0, 20))
    def streamed(self, to: Target, ahead: int, bytes_max: int) -> None:
        held, gone = self.naive.get(to, ([], 0))
        at = min(gone + ahead, len(held))
        given = self.outbox.messages_from(to, at + 1, bytes_max)
        assert given == held[at : at + len(given)]
        assert len(given) <= 1 or sum(map(len, given)) <= bytes_max
        following = at + len(given)
        assert following == len(held) or (given and sum(map(len, held[at : following + 1])) > bytes_max)

    @invariant()
    def outboxes_are_equal(self) -> None:
        self.outbox.check_invariants()
        assert self.outbox.targets() == sorted(self.naive)
        assert self.outbox.bytes == sum(len(m) for held, gone in self.naive.values() for m in held[gone:])
        assert plain(self.outbox.snapshot()) == self.expected()
        if self.spool is not None and self.outbox._spool is not None and not self.outbox.refused:
            assert self.outbox.memory_bytes <= self.memory
        for target, (held, gone) in self.naive.items():
            assert (self.outbox.first_position(target), self.outbox.next_position(target)) == (gone + 1, len(held) + 1)
            for behind in range(gone, len(held) + 1) if target != SELF else ():
                assert self.outbox.history_before(target, behind + 1) == extended(NOTHING, held[:behind])

    def expected(self) -> list[OutboxRecord]:
        return [OutboxRecord(*target, gone + 1, held[gone:]) for target, (held, gone) in sorted(self.naive.items())]


TestOutboxes = Outboxes.TestCase
TestOutboxes.settings = settings(deadline=None)
