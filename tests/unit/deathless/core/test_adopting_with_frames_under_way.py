"""An operator adopts a peer while frames with messages to it, or a trim of it, are on their way (I1, I2)."""

from __future__ import annotations

from tests.unit.deathless.core.primary.test_sending import B, Desk, replaced, sent

from deathless.codec.peer_messages import PeerHello
from deathless.core import effects as fx
from deathless.core.primary.sending import Stage


def test_i1_messages_of_an_older_frame_that_is_confirmed_meanwhile_dial_nobody() -> None:
    desk = Desk()
    desk.keep(b"old", b"old2")  # a frame that no proof covers; nothing was sent to this peer before
    desk.outreach.adopt_ordered(B)
    assert desk.confirm(upto=3) == []
    assert desk.stage() is Stage.ADOPTING
    replaced(desk, 9, 2)
    desk.keep(b"new")  # behind the ADOPT record, without a proof
    assert desk.ready(1) == []
    assert desk.outreach.adopted(B) == [fx.DialPeer(B)]
    assert desk.ready(1) == []
    assert sent(desk.confirm()) == [(1, [b"new"])]


def test_i1_the_same_goes_out_where_the_adopt_changed_nothing() -> None:
    desk = Desk()
    desk.peers.introduce(PeerHello("b", 0, bytes(16), 1), 3)
    desk.keep(b"old")
    desk.outreach.adopt_ordered(B)
    desk.confirm()
    assert desk.outreach.adopted(B) == [fx.DialPeer(B)]
    assert sent(desk.ready(1)) == [(1, [b"old"])]


def test_a_trim_of_the_old_numbering_that_found_no_room_is_not_logged_behind_the_adopt() -> None:
    desk = Desk(b"a", b"b")
    desk.peers.introduce(PeerHello("b", 0, bytes(16), 1), 3)
    desk.outreach.begin()
    desk.ready(1)
    desk.committed(2)
    assert desk.trims() == [("b", 2)]  # in the frame on its way
    desk.outreach.adopt_ordered(B)
    desk.outreach.frame_refused(desk.now)
    assert desk.outreach.trim_deadline is None, "or time records follow each other until the record is confirmed"
    replaced(desk, 9, 2)
    desk.keep(b"new")
    desk.outreach.adopted(B)
    assert desk.trims() == [], "it would forget what the new one never got"
    desk.confirm()
    assert sent(desk.ready(1)) == [(1, [b"new"])]
