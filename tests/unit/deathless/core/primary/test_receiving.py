"""Who sends to a primary: registered first, refused when another, fenced before the newer is told from where (I3)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from deathless.base.errors import Deposed, HistoryDiffers, InvalidArgument, NotPrimary, Overloaded, PeerReplaced
from deathless.base.limits import Limits
from deathless.base.safeguards import ALL_SAFEGUARDS, Safeguards
from deathless.codec.messages import Kind, decode
from deathless.codec.peer_history import NOTHING, UNKNOWN
from deathless.codec.peer_messages import Adopt, PeerHello, Target, decode_body
from deathless.codec.wire import PacketReader, PeerIntroduction, PeerWelcome, Refused, Type, decode_struct
from deathless.core import effects as fx
from deathless.core.events import Conn
from deathless.core.primary.own_records import OwnRecords
from deathless.core.primary.receiving import COMPLAINT_CHARS_MAX, REFUSALS_MAX, Peering
from deathless.core.tables.peer_table import PeerTable

A = PeerHello("a", 0, b"a" * 16, 1)
A_ANEW = PeerHello("a", 0, b"n" * 16, 1)
TARGET = Target("a", 0)
OLD, NEW = Conn(1), Conn(2)


class Door:
    """A peering, its table and records."""

    def __init__(self, *known: PeerHello, safeguards: Safeguards = ALL_SAFEGUARDS, peers_max: int = 10) -> None:
        self.peers = PeerTable(Limits(peers_max=peers_max))
        self.lsn = 0
        for hello in known:
            self.lsn += 1
            self.peers.introduce(hello, self.lsn)
        self.records = OwnRecords()
        self.routes: list[tuple[int, Conn]] = []
        self.peering = Peering(
            peers=self.peers, records=self.records, safeguards=safeguards, stands=self.stands, welcome=self.welcome
        )
        self.position = 5
        self.history = UNKNOWN

    def stands(self, _session: int) -> tuple[int, bytes]:
        return self.position, self.history

    def welcome(self, session: int, conn: Conn) -> tuple[int, bytes]:
        self.routes.append((session, conn))
        return self.stands(session)

    def hello(self, conn: Conn, hello: PeerHello = A, epoch: int = 1, **said: Any) -> list[str]:
        return self.said(self.peering.hello_received(conn, PeerIntroduction(hello, epoch, **said), self.lsn))

    def run_record(self) -> None:
        """The record that waits is run, and its frame synced."""
        ((_, (message,)),) = self.records.take(1, 1000)
        decoded = decode(message)
        assert decoded.kind == Kind.PEER
        self.peers.introduce(decode_body(PeerHello, decoded.args), self.lsn + 1)
        self.records.frame_synced(self.lsn + 1)

    def confirm(self) -> list[str]:
        self.lsn += 1
        return self.said(self.records.frame_confirmed(self.lsn))

    def said(self, effects: Sequence[fx.Effect]) -> list[str]:
        self.peering.check_invariants()
        words: list[str] = []
        for effect in effects:
            if isinstance(effect, fx.Disconnect):
                words.append(f"{effect.conn} ends")
                continue
            assert isinstance(effect, fx.Send)
            for kind, body in PacketReader(1000).feed(effect.data):
                if kind == Type.PEER_WELCOME:
                    told = decode_struct(PeerWelcome, body)
                    words.append(f"{effect.conn} welcome {told.session} {told.next_position}")
                else:
                    assert kind == Type.PEER_REFUSED
                    words.append(f"{effect.conn} refused {decode_struct(Refused, body).code}")
        return words


def test_a_known_peer_is_welcomed_at_once() -> None:
    door = Door(A)
    assert door.hello(NEW) == ["2 welcome 1 5"]
    assert door.routes == [(1, NEW)]
    assert door.peering.connected() == [TARGET]
    door.peering.connection_lost(OLD)
    assert door.peering.connected() == [TARGET]
    door.peering.connection_lost(NEW)
    assert door.peering.connected() == []


def test_an_unknown_peer_is_welcomed_once_its_record_is_confirmed() -> None:
    door = Door()
    assert door.hello(NEW) == []
    door.run_record()
    assert door.hello(NEW) == []  # known, but nothing of it may be told yet
    assert door.confirm() == ["2 welcome 1 5"]


def test_the_newest_connection_gets_the_answer() -> None:
    door = Door()
    assert door.hello(OLD) == []
    assert door.hello(NEW) == ["1 ends"]
    door.run_record()
    assert door.confirm() == ["2 welcome 1 5"]


def test_nobody_is_answered_who_is_gone() -> None:
    door = Door()
    door.hello(OLD)
    door.peering.connection_lost(OLD)
    door.run_record()
    assert door.confirm() == []


def test_an_older_connection_ends_before_the_newer_is_told_from_where() -> None:
    door = Door(A)
    door.hello(OLD)
    assert door.hello(NEW, epoch=2) == ["1 ends", "2 welcome 1 5"]
    assert door.hello(NEW, epoch=2) == ["2 welcome 1 5"]


def test_without_that_the_older_one_stays() -> None:
    door = Door(A, safeguards=Safeguards(fence_peer_connections=False))
    door.hello(OLD)
    assert door.hello(NEW, epoch=2) == ["2 welcome 1 5"]


def test_a_lower_epoch_than_was_seen_is_refused() -> None:
    door = Door(A)
    door.hello(NEW, epoch=3)
    assert door.hello(OLD, epoch=2) == [f"1 refused {Deposed.code}"]
    assert door.peering.refused()[TARGET].startswith(Deposed.code)
    assert door.hello(NEW, epoch=3) == ["2 welcome 1 5"]
    assert door.peering.refused() == {}


def test_another_incarnation_is_refused_and_shown_until_it_is_adopted() -> None:
    door = Door(A)
    door.hello(OLD)
    assert door.hello(NEW, A_ANEW) == [f"2 refused {PeerReplaced.code}"]
    assert door.peering.refused().keys() == {TARGET}
    door.peers.adopt(Adopt("a", 0, A_ANEW.service_id, 1), 9)
    assert door.hello(NEW, A_ANEW) == [f"2 refused {Overloaded.code}"]  # no proof covers the adoption yet
    assert door.said(door.peering.adopted(TARGET, anew=False)) == ["1 ends"]
    assert door.said(door.peering.adopted(TARGET, anew=False)) == []
    door.lsn = 9
    assert door.hello(NEW, A_ANEW) == ["2 welcome 9 5"]
    assert door.said(door.peering.adopted(TARGET, anew=False)) == []
    assert door.peering.refused() == {}


def test_two_that_call_themselves_the_same_are_not_introduced_at_once() -> None:
    door = Door()
    door.hello(OLD)
    assert door.hello(NEW, A_ANEW) == [f"2 refused {Overloaded.code}"]


def test_a_record_that_changed_nothing_ends_in_a_refusal() -> None:
    door = Door(peers_max=1)
    door.hello(NEW)
    door.peers.introduce(PeerHello("other", 0, b"o" * 16, 1), 1)
    door.run_record()
    assert door.confirm() == [f"2 refused {Overloaded.code}"]


def test_a_record_that_another_record_made_meaningless_ends_in_a_refusal() -> None:
    door = Door()
    door.hello(NEW)
    door.run_record()
    door.peers.adopt(Adopt("a", 0, A_ANEW.service_id, 1), 2)
    assert door.confirm() == [f"2 refused {PeerReplaced.code}"]


def test_a_primary_that_lets_go_sends_peers_away() -> None:
    door = Door(A)
    assert door.said(door.peering.leaving(NEW)) == [f"2 refused {NotPrimary.code}"]


def test_refusals_are_kept_up_to_a_maximum() -> None:
    door = Door(A, peers_max=1)
    for number in range(REFUSALS_MAX + 2):
        door.hello(NEW, PeerHello(f"p{number}", 0, bytes(16), 1))
    assert len(door.peering.refused()) == REFUSALS_MAX
    assert Target("p0", 0) not in door.peering.refused()


def test_no_more_are_introduced_at_a_time_than_there_is_room_for() -> None:
    door = Door(peers_max=1)
    assert door.hello(NEW) == []
    assert door.hello(OLD, PeerHello("other", 0, b"o" * 16, 1)) == [f"1 refused {Overloaded.code}"]


# ---- histories -----------------------------------------------------------------------------------------------------


def test_a_sender_with_another_history_at_our_position_is_refused_and_takes_nobodys_place() -> None:
    door = Door(A)
    door.history = NOTHING
    door.hello(OLD, first=5, history=NOTHING)
    said = door.hello(NEW, epoch=9, first=5, history=b"x" * 16)
    assert said == [f"2 refused {HistoryDiffers.code}"]
    assert door.peering.connected() == [TARGET], "the connection of before stands"
    assert HistoryDiffers.code in door.peering.refused()[TARGET]
    assert door.peering.differing() == {TARGET}
    assert door.hello(NEW, epoch=2, first=5, history=NOTHING) != said, "and the refused one's epoch does not count"
    assert door.peering.differing() == {TARGET}, "operators see it until messages are taken in again"
    door.position += 1
    assert (door.peering.refused(), door.peering.differing()) == ({}, set())


@pytest.mark.parametrize(
    ("ours", "said"),
    [
        (UNKNOWN, {"first": 5, "history": b"x" * 16}),
        (NOTHING, {"first": 5, "history": UNKNOWN}),
        (NOTHING, {"first": 3, "history": b"x" * 16}),  # the sender compares, which has the messages in between
    ],
)
def test_what_can_not_be_compared_here_is_welcomed_with_our_history(ours: bytes, said: dict[str, Any]) -> None:
    door = Door(A)
    door.history = ours
    (send,) = door.peering.hello_received(NEW, PeerIntroduction(A, 1, **said), door.lsn)
    assert isinstance(send, fx.Send)
    ((kind, body),) = PacketReader(1 << 10).feed(send.data)
    assert (kind, decode_struct(PeerWelcome, body)) == (Type.PEER_WELCOME, PeerWelcome(1, 5, ours))


def test_without_peer_history_a_sender_with_another_history_is_welcomed() -> None:
    door = Door(A, safeguards=Safeguards(peer_history=False))
    door.history = NOTHING
    assert door.hello(NEW, first=5, history=b"x" * 16) != []
    assert door.peering.differing() == set()


def test_a_sender_that_complains_is_told_where_we_stand_and_leaves_the_place_to_the_true_one() -> None:
    door = Door(A)
    door.history = NOTHING
    door.hello(OLD, epoch=3)
    door.hello(NEW, epoch=9)  # a copy, whose epochs went on by themselves; its history shows only to itself
    routes = list(door.routes)
    (told,) = door.hello(NEW, epoch=9, complaint="DL4012 it is not what was sent from here" + "!" * 5000)
    assert told.startswith("2 welcome")
    assert door.routes == routes, "nothing is taken in on that connection that was not before"
    assert len(door.peering.refused()[TARGET]) == COMPLAINT_CHARS_MAX
    assert door.peering.differing() == {TARGET}
    assert door.hello(OLD, epoch=3)[-1].startswith("1 welcome"), "the original's lower epoch is good again"


@pytest.mark.parametrize("name", ["../other", "/tmp/other", "a/0", "A", "a\nb", ""])
def test_a_peer_is_refused_whose_name_no_service_may_have_for_its_answers_go_where_the_name_leads(name: str) -> None:
    door = Door()
    assert door.hello(NEW, hello=PeerHello(name, 0, b"a" * 16, 1)) == [f"2 refused {InvalidArgument.code}"]
    assert not door.records.waiting
    assert door.peering.connected() == []


def test_a_new_primary_of_ours_knows_no_epoch_so_a_switchover_lets_an_original_in_whose_copy_led_later() -> None:
    door = Door(A)
    door.hello(NEW, epoch=7)
    door.peering.connection_lost(NEW)
    assert door.hello(OLD, epoch=3) == [f"1 refused {Deposed.code}"], "the copy is gone, its epoch is remembered"
    assert Door(A).hello(OLD, epoch=3)[-1].startswith("1 welcome")


def test_a_peer_that_is_adopted_anew_is_let_go_so_that_it_comes_back_with_its_new_session() -> None:
    door = Door(A)
    door.hello(OLD)
    assert door.said(door.peering.adopted(TARGET, anew=False)) == []
    assert door.said(door.peering.adopted(TARGET, anew=True)) != []
    assert door.peering.connected() == []
