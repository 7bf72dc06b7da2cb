"""The outbox against a plain list: positions, trimming, streaming and snapshots (I2, I3)."""

from __future__ import annotations

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from deathless.codec.peer_messages import SELF, Target
from deathless.codec.snapshot import OutboxRecord
from deathless.core import outbox as outbox_module
from deathless.core.outbox import Outbox

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
    assert copy == [OutboxRecord("shop", 0, 1, [b"a"])]
    other = Outbox()
    other.restore(copy)
    other.append(SHOP, b"c")
    assert copy == [OutboxRecord("shop", 0, 1, [b"a"])]


def test_a_snapshot_with_a_position_below_one_is_not_restored() -> None:
    with pytest.raises(AssertionError):
        Outbox().restore([OutboxRecord("shop", 0, 0, [])])


TARGETS = st.sampled_from([SELF, BANK, SHOP, Target("shop", 1)])


class Outboxes(RuleBasedStateMachine):
    """The outbox against, per to, the list of all messages and how many of them are forgotten."""

    def __init__(self) -> None:
        super().__init__()
        self.patch = pytest.MonkeyPatch()
        self.patch.setattr(outbox_module, "COMPACT_COUNT", 3)
        self.outbox = Outbox()
        self.naive: dict[Target, tuple[list[bytes], int]] = {}

    def teardown(self) -> None:
        self.patch.undo()

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

    @rule()
    def restored(self) -> None:
        records = self.outbox.snapshot()
        self.outbox = Outbox()
        self.outbox.restore(records)

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
        assert self.outbox.snapshot() == [
            OutboxRecord(*target, gone + 1, held[gone:]) for target, (held, gone) in sorted(self.naive.items())
        ]
        for target, (held, gone) in self.naive.items():
            assert (self.outbox.first_position(target), self.outbox.next_position(target)) == (gone + 1, len(held) + 1)


TestOutboxes = Outboxes.TestCase
