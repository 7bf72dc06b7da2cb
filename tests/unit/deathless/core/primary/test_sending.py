"""What a primary sends to peers: from where they ask, never unconfirmed, within the window, for ever."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from deathless.base.limits import Limits
from deathless.base.safeguards import ALL_SAFEGUARDS, Safeguards
from deathless.codec.messages import Kind, decode
from deathless.codec.peer_history import NOTHING, UNKNOWN, extended
from deathless.codec.peer_messages import SELF, Adopt, PeerHello, Target, Trim, decode_body
from deathless.codec.wire import PacketReader, PeerIntroduction, Type, decode_batch
from deathless.core import effects as fx
from deathless.core.primary.admission import cut_messages
from deathless.core.primary.sending import FLIGHT_MESSAGES_MAX, STALL_MAX_S, STALL_S, TRIM_S, Outreach, Stage
from deathless.core.tables.outbox import Outbox
from deathless.core.tables.peer_table import PeerTable

B = Target("b", 0)
C = Target("c", 0)
US = PeerHello("a", 0, b"a" * 16, 1)
SMALL = Limits(peer_window_bytes_max=10, message_bytes_max=6, frame_bytes_max=10, segment_bytes_max=20)


class Desk:
    """An outreach, the tables it reads, and what it said."""

    def __init__(
        self, *messages: bytes, limits: Limits = SMALL, safeguards: Safeguards = ALL_SAFEGUARDS, trimmed: int = 0
    ) -> None:
        self.now = 100.0
        self.outbox = Outbox()
        self.peers = PeerTable(limits)
        self.keep(*messages)
        self.outbox.trim(B, trimmed)
        self.outreach = Outreach(outbox=self.outbox, peers=self.peers, limits=limits, safeguards=safeguards)

    def keep(self, *messages: bytes, target: Target = B) -> None:
        """A turn sent these; no proof covers them yet."""
        for message in messages:
            self.outbox.append(target, message)

    def confirm(self, target: Target = B, upto: int | None = None) -> Sequence[fx.Effect]:
        """A proof covers everything, or up to a next position."""
        upto = self.outbox.next_position(target) if upto is None else upto
        return self.checked(self.outreach.frame_confirmed([(target, upto)], self.now))

    def ready(self, next_position: int, target: Target = B, history: bytes = UNKNOWN) -> Sequence[fx.Effect]:
        return self.checked(self.outreach.ready(target, 7, next_position, self.now, history))

    def proved(self) -> None:
        """The fence is asked, and knows of no successor."""
        self.outreach.proof_began()
        self.outreach.proved()

    def problem(self, target: Target = B) -> str:
        return next(view.problem for view in self.outreach.views() if view.target == target)

    def complaint(self, target: Target = B) -> str:
        return self.outreach.introduction(target, US, 1).complaint

    def committed(self, through: int, target: Target = B) -> Sequence[fx.Effect]:
        return self.checked(self.outreach.committed(target, through, self.now))

    def fire(self, after_s: float) -> Sequence[fx.Effect]:
        self.now += after_s
        return self.checked(self.outreach.timer_fired(self.now))

    def checked(self, effects: Sequence[fx.Effect]) -> Sequence[fx.Effect]:
        self.outreach.check_invariants()
        return effects

    def stage(self, target: Target = B) -> Stage:
        return next(view.stage for view in self.outreach.views() if view.target == target)

    def trims(self, count: int = 10) -> list[tuple[str, int]]:
        found = [decode(message) for message in self.outreach.take_trims(count)]
        assert all(each.kind == Kind.TRIM for each in found)
        bodies = [decode_body(Trim, each.args) for each in found]
        return [(body.service, body.through) for body in bodies]


def sent(effects: Sequence[fx.Effect], target: Target = B) -> list[tuple[int, list[bytes]]]:
    """(first position, messages) of each packet."""
    found: list[tuple[int, list[bytes]]] = []
    for effect in effects:
        assert isinstance(effect, fx.SendPeer), effect
        assert effect.target == target
        for kind, body in PacketReader(1 << 20).feed(effect.data):
            assert kind == Type.BATCH
            batch = decode_batch(body)
            assert batch.run.session == 7
            assert batch.run.acked == 0
            found.append((batch.run.first_seq, cut_messages(batch)))
    return found


# ---- finding peers -----------------------------------------------------------------------------------------------


def test_a_new_primary_looks_for_everybody_it_owes_something() -> None:
    desk = Desk(b"m")
    desk.keep(b"x", target=SELF)
    desk.keep(b"y", target=C)
    desk.outbox.trim(C, 1)
    assert Outreach(outbox=desk.outbox, peers=desk.peers, limits=SMALL, safeguards=ALL_SAFEGUARDS).begin() == [
        fx.DialPeer(B)
    ]


def test_the_first_message_to_a_peer_has_it_looked_for() -> None:
    desk = Desk()
    desk.keep(b"m")
    desk.keep(b"x", target=SELF)
    assert desk.confirm() == [fx.DialPeer(B)]
    assert desk.confirm(SELF) == []
    assert desk.stage() is Stage.WAITING
    assert desk.confirm() == []
    assert sent(desk.ready(1)) == [(1, [b"m"])]


def test_events_of_targets_that_nobody_asked_for_change_nothing() -> None:
    desk = Desk()
    assert desk.ready(1, C) == []
    assert desk.committed(1, C) == []
    desk.outreach.lost(C)
    assert desk.outreach.views() == []
    assert desk.outreach.deadline() is None


# ---- streaming ---------------------------------------------------------------------------------------------------


def begun(*messages: bytes, safeguards: Safeguards = ALL_SAFEGUARDS, limits: Limits = SMALL, trimmed: int = 0) -> Desk:
    desk = Desk(*messages, safeguards=safeguards, limits=limits, trimmed=trimmed)
    assert desk.outreach.begin() == ([fx.DialPeer(B)] if len(messages) > trimmed else [])
    return desk


def test_the_peer_says_from_where_and_what_it_has_is_trimmed() -> None:
    desk = begun(b"a", b"b", b"c")
    assert sent(desk.ready(3)) == [(3, [b"c"])]
    assert not desk.outreach.trims_due(desk.now)
    assert desk.outreach.trim_deadline == desk.now + TRIM_S
    desk.now += TRIM_S
    assert desk.outreach.trims_due(desk.now)
    assert desk.trims() == [("b", 2)]
    assert not desk.outreach.trims_due(desk.now)
    desk.outreach.frame_synced()
    assert desk.trims() == []


def test_who_introduces_us_says_what_we_keep_also_when_that_is_not_logged_yet() -> None:
    desk = begun(b"a", b"b", b"c", b"d")
    assert desk.outreach.first_kept(B) == 1
    desk.ready(2)
    assert desk.outreach.first_kept(B) == 2
    desk.trims()
    assert desk.outreach.first_kept(B) == 2
    desk.committed(3)
    assert desk.outreach.first_kept(B) == 4, "a receiver without memory must not begin lower"


def test_nothing_leaves_before_its_frame_is_confirmed() -> None:
    desk = begun(b"a")
    desk.keep(b"b")
    assert sent(desk.ready(1)) == [(1, [b"a"])]
    assert desk.committed(1) == []
    assert sent(desk.confirm()) == [(2, [b"b"])]


def test_without_that_a_message_leaves_that_a_successor_may_not_have() -> None:
    desk = begun(b"a", safeguards=Safeguards(send_confirmed_only=False))
    desk.keep(b"b")
    assert sent(desk.ready(1)) == [(1, [b"a", b"b"])]


def test_the_window_bounds_what_is_under_way_and_opens_as_the_peer_confirms() -> None:
    desk = begun(b"aaaa", b"bbbb", b"cccc", b"ddd")
    assert sent(desk.ready(1)) == [(1, [b"aaaa"]), (2, [b"bbbb"])]
    assert desk.committed(0) == []
    assert sent(desk.committed(1)) == [(3, [b"cccc"])]
    assert sent(desk.committed(3)) == [(4, [b"ddd"])]
    assert desk.committed(4) == []
    assert desk.outreach.deadline() is None


def test_a_full_window_sends_nothing() -> None:
    desk = begun(b"aaaaa", b"bbbbb", b"c")
    assert sent(desk.ready(1)) == [(1, [b"aaaaa"]), (2, [b"bbbbb"])]
    assert desk.confirm() == []


def test_a_large_message_goes_alone() -> None:
    desk = begun(b"a", b"b" * 20)
    assert sent(desk.ready(1)) == [(1, [b"a"])]
    assert sent(desk.committed(1)) == [(2, [b"b" * 20])]


def test_no_more_messages_are_under_way_than_their_maximum() -> None:
    desk = begun(*[b""] * (FLIGHT_MESSAGES_MAX + 2))
    assert [len(messages) for _, messages in sent(desk.ready(1))] == [FLIGHT_MESSAGES_MAX]
    assert sent(desk.committed(1)) == [(FLIGHT_MESSAGES_MAX + 1, [b""])]


def test_a_commit_of_what_the_predecessor_sent_moves_the_cursor() -> None:
    desk = begun(b"aaaa", b"bbbb", b"cccc", b"dddd")
    assert sent(desk.ready(1)) == [(1, [b"aaaa"]), (2, [b"bbbb"])]
    assert sent(desk.committed(3)) == [(4, [b"dddd"])]


def test_a_lost_connection_begins_again_from_where_the_peer_says() -> None:
    desk = begun(b"a", b"b")
    assert sent(desk.ready(1)) == [(1, [b"a", b"b"])]
    desk.outreach.lost(B)
    assert desk.stage() is Stage.WAITING
    assert desk.committed(2) == []
    assert desk.confirm() == []
    desk.outreach.lost(B)
    assert sent(desk.ready(1)) == [(1, [b"a", b"b"])]


def test_one_peer_that_takes_nothing_holds_back_nobody_else() -> None:
    desk = begun(b"a" * 10, b"b")
    assert sent(desk.ready(1)) == [(1, [b"a" * 10])]
    desk.keep(b"x", target=C)
    assert desk.confirm(C) == [fx.DialPeer(C)]
    assert sent(desk.ready(1, C), C) == [(1, [b"x"])]


# ---- positions that make no sense --------------------------------------------------------------------------------


def test_a_peer_that_lost_what_it_confirmed_is_told_to_operators_and_tried_again_for_ever() -> None:
    desk = begun(b"a", b"b", b"c", trimmed=2)
    pause = STALL_S
    for _ in range(5):
        assert desk.ready(2) == [fx.DropPeer(B)]
        assert desk.stage() is Stage.RESTING
        (view,) = desk.outreach.views()
        assert "DL4010" in view.problem
        assert view.kept == 1
        assert desk.ready(3) == []  # late, of the connection that was dropped
        assert desk.outreach.deadline() == desk.now + pause
        assert desk.fire(pause / 2) == []
        assert desk.fire(pause / 2) == [fx.DialPeer(B)]
        pause = min(2 * pause, STALL_MAX_S)
    assert "DL4010" in desk.complaint(), "its own operators hear of it too"
    assert desk.ready(3) == [fx.DropPeer(B)]
    assert desk.complaint() == ""
    assert desk.fire(0) == [fx.DialPeer(B)]
    assert sent(desk.ready(3)) == [(3, [b"c"])]
    assert desk.outreach.views()[0].problem == ""


# ---- histories -----------------------------------------------------------------------------------------------------


def test_what_we_say_on_connecting_is_the_history_before_the_first_message_that_is_kept() -> None:
    desk = begun(b"a", b"b", b"c", trimmed=2)
    said = desk.outreach.introduction(B, US, 4)
    assert said == PeerIntroduction(US, 4, 3, extended(NOTHING, [b"a", b"b"]), "")
    desk.ready(3)
    desk.committed(3)  # not logged yet
    assert desk.outreach.introduction(B, US, 4).history == extended(NOTHING, [b"a", b"b", b"c"])


@pytest.mark.parametrize("position", [1, 2, 3])
def test_a_peer_with_our_history_is_sent_what_follows(position: int) -> None:
    messages = [b"a", b"b", b"c"]
    desk = begun(*messages)
    behind = extended(NOTHING, messages[: position - 1])
    assert sent(desk.ready(position, history=behind)) == [(position, messages[position - 1 :])]


def test_a_peer_with_another_history_is_sent_nothing_until_it_is_adopted() -> None:
    desk = begun(b"a", b"b", b"c")
    other = extended(NOTHING, [b"a", b"x"])
    for _ in range(3):
        assert desk.ready(3, history=other) == [fx.DropPeer(B)]
        assert "DL4012" in desk.problem()
        assert "DL4012" in desk.complaint()
        assert desk.outreach.differing() == {B}
        assert fx.DialPeer(B) in desk.fire(STALL_MAX_S)
    desk.outreach.adopt_ordered(B)
    assert (desk.outreach.differing(), desk.problem(), desk.complaint()) == (set(), "", "")


def test_without_peer_history_messages_are_sent_that_the_peer_swallows() -> None:
    desk = begun(b"a", b"b", b"c", safeguards=Safeguards(peer_history=False))
    assert sent(desk.ready(3, history=extended(NOTHING, [b"a", b"x"]))) == [(3, [b"c"])]


def test_a_peer_that_is_ahead_of_a_proved_primary_shows_that_we_were_put_back() -> None:
    desk = begun(b"a")
    assert desk.ready(9) == [fx.DropPeer(B)]
    assert desk.outreach.doubted
    assert "DL4012" not in desk.problem(), "a successor of ours may have sent them"
    desk.outreach.proved()  # of a question asked before the peer was heard
    assert "DL4012" not in desk.problem()
    desk.proved()
    assert "DL4012" in desk.problem()
    assert "DL4012" in desk.complaint()
    desk.keep(b"b")
    assert desk.confirm() == [], "nothing more is sent to it"


def test_a_commit_of_what_a_proved_primary_never_sent_shows_the_same() -> None:
    desk = begun(b"a")
    desk.ready(1)
    assert desk.committed(5) == [fx.DropPeer(B)]
    desk.proved()
    assert "DL4012" in desk.problem()


def test_without_peer_history_a_peer_that_is_ahead_is_only_tried_again() -> None:
    desk = begun(b"a", safeguards=Safeguards(peer_history=False))
    desk.ready(9)
    desk.proved()
    assert "DL4012" not in desk.problem()


def test_a_peer_that_has_our_history_again_is_greeted_without_complaint_before_anything_is_sent() -> None:
    desk = begun(b"a", b"b")
    desk.ready(2, history=extended(NOTHING, [b"x"]))
    desk.fire(STALL_MAX_S)
    good = extended(NOTHING, [b"a"])
    assert desk.ready(2, history=good) == [fx.DropPeer(B)]
    assert desk.fire(0) == [fx.DialPeer(B)]
    assert sent(desk.ready(2, history=good)) == [(2, [b"b"])]


def test_a_commit_that_is_not_logged_yet_counts_against_a_peer_that_goes_back() -> None:
    desk = begun(b"a", b"b")
    desk.ready(1)
    desk.committed(2)
    desk.outreach.lost(B)
    assert desk.ready(1) == [fx.DropPeer(B)]
    assert desk.trims() == [("b", 2)]
    desk.fire(STALL_S)
    assert desk.ready(2) == [fx.DropPeer(B)]


def test_a_peer_that_has_heard_of_a_successor_makes_us_ask_the_fence() -> None:
    desk = begun(b"a")
    desk.keep(b"b")
    assert desk.ready(3) == [fx.DropPeer(B)]
    assert desk.outreach.doubted


def test_a_commit_of_what_we_never_confirmed_makes_us_ask_the_fence_too() -> None:
    desk = begun(b"a")
    desk.keep(b"b")
    desk.ready(1)
    assert desk.committed(2) == [fx.DropPeer(B)]
    assert desk.outreach.doubted
    assert desk.trims() == []


def test_a_peer_that_confirms_nothing_is_connected_anew() -> None:
    desk = begun(b"a", b"b")
    desk.ready(1)
    assert desk.outreach.deadline() == desk.now + STALL_S
    assert desk.fire(STALL_S) == [fx.DropPeer(B), fx.DialPeer(B)]
    assert desk.stage() is Stage.WAITING
    assert "confirmed nothing" in desk.outreach.views()[0].problem
    assert sent(desk.ready(1)) == [(1, [b"a", b"b"])]
    assert desk.fire(STALL_S) == []
    assert desk.fire(STALL_S) == [fx.DropPeer(B), fx.DialPeer(B)]
    desk.ready(1)
    desk.committed(1)
    assert desk.outreach.deadline() == desk.now + STALL_S


# ---- trims -------------------------------------------------------------------------------------------------------


def test_one_trim_per_target_and_frame() -> None:
    desk = begun(b"a", b"b")
    desk.keep(b"x", target=C)
    desk.confirm(C)
    desk.ready(1)
    desk.ready(1, C)
    desk.committed(1)
    desk.committed(2)
    desk.committed(1, C)
    assert desk.trims(1) == [("b", 2)]
    desk.outreach.frame_synced()
    assert desk.outreach.trim_deadline is not None
    assert desk.trims() == [("c", 1)]


def test_a_trim_that_found_no_room_is_logged_later_at_its_highest() -> None:
    desk = begun(b"a", b"b")
    desk.ready(1)
    desk.committed(1)
    assert desk.trims() == [("b", 1)]
    desk.committed(2)
    desk.outreach.frame_refused(desk.now)
    assert desk.trims() == [("b", 2)]


# ---- a peer that was created anew --------------------------------------------------------------------------------


def replaced(desk: Desk, lsn: int, incarnation: int) -> None:
    """The ADOPT record runs."""
    desk.peers.adopt(Adopt("b", 0, bytes(16), incarnation), lsn)
    desk.outbox.reset(B)


def test_an_adopted_peer_gets_everything_from_position_one_and_nothing_of_before() -> None:
    desk = Desk(b"a", b"b", trimmed=1)
    desk.peers.introduce(PeerHello("b", 0, bytes(16), 1), 3)
    desk.outreach.begin()
    desk.ready(2)
    desk.committed(2)
    assert desk.outreach._trims == {B: 2}
    assert desk.outreach.adopt_ordered(B) == [fx.DropPeer(B)]
    assert desk.outreach.adopting(B)
    assert desk.outreach.trim_deadline is None  # a trim of the old numbering would forget what is new
    assert desk.ready(3) == []
    assert desk.committed(2) == []
    replaced(desk, 9, 2)
    desk.keep(b"new")
    assert desk.outreach.adopted(B) == [fx.DialPeer(B)]
    assert desk.confirm() == []
    assert sent(desk.ready(1)) == [(1, [b"new"])]


def test_an_adopt_that_changes_nothing_goes_on_where_it_was() -> None:
    desk = Desk(b"a", b"b", trimmed=1)
    desk.peers.introduce(PeerHello("b", 0, bytes(16), 1), 3)
    desk.outreach.begin()
    assert desk.outreach.adopt_ordered(B) == [fx.DropPeer(B)]
    assert desk.outreach.adopted(B) == [fx.DialPeer(B)]
    assert sent(desk.ready(2)) == [(2, [b"b"])]


def test_adopting_a_peer_that_is_sent_nothing_dials_nobody() -> None:
    desk = Desk()
    assert desk.outreach.adopt_ordered(B) == []
    replaced(desk, 9, 2)
    assert desk.outreach.adopted(B) == []
    desk.keep(b"first")
    assert desk.confirm() == [fx.DialPeer(B)]


def test_trims_of_others_go_on_while_a_peer_is_adopted() -> None:
    desk = begun(b"a")
    desk.keep(b"x", target=C)
    desk.confirm(C)
    desk.ready(1)
    desk.ready(1, C)
    desk.committed(1)
    desk.committed(1, C)
    desk.outreach.adopt_ordered(B)
    assert desk.outreach.trim_deadline is not None
    assert desk.trims() == [("c", 1)]


def test_a_trim_of_the_old_numbering_that_found_no_room_is_not_logged_behind_the_adoption() -> None:
    desk = begun(b"a", b"b")
    desk.ready(1)
    desk.committed(1)
    assert desk.trims() == [("b", 1)]
    desk.outreach.adopt_ordered(B)
    desk.outreach.frame_refused(desk.now)
    assert desk.outreach.trim_deadline is None


def test_the_first_message_to_a_peer_that_is_being_adopted_waits_for_the_adoption() -> None:
    desk = Desk()
    desk.outreach.adopt_ordered(B)
    desk.keep(b"m")
    assert desk.confirm() == []
    assert desk.stage() is Stage.ADOPTING
    assert desk.outreach.adopted(B) == [fx.DialPeer(B)]
    assert sent(desk.ready(1)) == [(1, [b"m"])]
