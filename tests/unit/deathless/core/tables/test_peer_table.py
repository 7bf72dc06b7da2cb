"""Peers: the first is registered, the same is found, another incarnation is refused until it is adopted (I3)."""

from __future__ import annotations

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from deathless.base.errors import DeathlessError, InvalidArgument, Overloaded, PeerReplaced
from deathless.base.ids import SessionId
from deathless.base.limits import Limits
from deathless.codec.peer_messages import Adopt, PeerHello, Target
from deathless.codec.snapshot import PeerRecord
from deathless.core.tables.peer_table import Peer, PeerTable

LIMITS = Limits(peers_max=2)
ID = bytes(range(16))
SHOP = Target("shop", 0)
HELLO = PeerHello("shop", 0, ID, 77)
OTHERS = [PeerHello("shop", 0, ID, 78), PeerHello("shop", 0, bytes(16), 77)]


def table_of(*hellos: PeerHello) -> PeerTable:
    table = PeerTable(LIMITS)
    for lsn, hello in enumerate(hellos, 1):
        table.introduce(hello, lsn)
    return table


def adopt(hello: PeerHello) -> Adopt:
    return Adopt(hello.service, hello.shard, hello.service_id, hello.incarnation)


def test_the_first_observation_registers_a_peer_and_the_same_is_found_again() -> None:
    table = PeerTable(LIMITS)
    assert (table.find(HELLO), table.refusal(HELLO), table.get(SHOP), table.target_of(5)) == (None, None, None, None)
    assert table.introduce(HELLO, 5) == 5
    assert table.introduce(HELLO, 9) == 5, "two connections may have brought the record twice"
    assert table.find(HELLO) == table.get(SHOP) == Peer(SHOP, ID, 77, SessionId(5))
    assert (table.target_of(5), table.target_of(9), len(table)) == (SHOP, None, 1)


@pytest.mark.parametrize("other", OTHERS)
def test_i3_a_peer_that_was_created_anew_is_refused_and_changes_nothing(other: PeerHello) -> None:
    table = table_of(HELLO)
    assert isinstance(table.refusal(other), PeerReplaced)
    assert table.find(other) is None
    assert table.introduce(other, 9) is None
    assert table.snapshot() == table_of(HELLO).snapshot()


@pytest.mark.parametrize("other", OTHERS)
def test_an_adopted_peer_has_a_new_session_and_the_one_before_it_is_refused(other: PeerHello) -> None:
    table = table_of(HELLO)
    assert (
        table.adopt(adopt(other), 9)
        == table.find(other)
        == Peer(SHOP, other.service_id, other.incarnation, SessionId(9))
    )
    assert (table.target_of(1), table.target_of(9)) == (None, SHOP)
    assert isinstance(table.refusal(HELLO), PeerReplaced)


def test_adopting_the_peer_that_is_known_changes_nothing() -> None:
    table = table_of(HELLO)
    assert table.adopt(adopt(HELLO), 9) is None
    assert table.target_of(1) == SHOP


def test_a_peer_can_be_adopted_before_it_was_seen() -> None:
    table = PeerTable(LIMITS)
    assert table.adopt(adopt(HELLO), 9) == Peer(SHOP, ID, 77, SessionId(9))
    assert table.introduce(HELLO, 12) == 9


def test_i10_peers_have_a_maximum_and_known_ones_are_still_found() -> None:
    table = table_of(HELLO, PeerHello("bank", 0, ID, 1))
    late = PeerHello("late", 0, ID, 1)
    refusal = table.refusal(late)
    assert isinstance(refusal, Overloaded)
    assert "peers_max = 2" in refusal.message
    assert (table.introduce(late, 9), table.adopt(adopt(late), 10), len(table)) == (None, None, 2)
    assert table.introduce(HELLO, 11) == 1


def test_a_peer_without_a_name_would_be_taken_for_ourselves() -> None:
    nobody = PeerHello("", 0, ID, 1)
    table = PeerTable(LIMITS)
    assert isinstance(table.refusal(nobody), InvalidArgument)
    assert table.introduce(nobody, 1) is None


def test_peers_are_listed_by_name_and_shard() -> None:
    table = table_of(HELLO, PeerHello("bank", 3, ID, 1))
    assert [peer.target for peer in table.peers()] == [Target("bank", 3), SHOP]


@pytest.mark.parametrize(
    "records",
    [
        [PeerRecord("a", 0, ID, 1, 5), PeerRecord("b", 0, ID, 1, 5)],
        [PeerRecord("", 0, ID, 1, 5)],
        [PeerRecord("a", 0, ID, 1, 0)],
    ],
)
def test_a_snapshot_that_breaks_an_invariant_is_not_restored(records: list[PeerRecord]) -> None:
    with pytest.raises(AssertionError):
        PeerTable(LIMITS).restore(records)


HELLOS = st.builds(
    PeerHello, st.sampled_from(["a", "b", "c"]), st.integers(0, 1), st.sampled_from([ID, bytes(16)]), st.integers(1, 2)
)


class Peers(RuleBasedStateMachine):
    """The table against a plain dict of hellos and sessions."""

    def __init__(self) -> None:
        super().__init__()
        self.table = PeerTable(LIMITS)
        self.naive: dict[Target, tuple[PeerHello, int]] = {}
        self.lsn = 0

    @rule(hello=HELLOS)
    def introduced(self, hello: PeerHello) -> None:
        self.lsn += 1
        target = Target(hello.service, hello.shard)
        refusal: type[DeathlessError] | None = None
        if target in self.naive:
            refusal = None if self.naive[target][0] == hello else PeerReplaced
        elif len(self.naive) == 2:
            refusal = Overloaded
        else:
            self.naive[target] = hello, self.lsn
        expected = self.naive[target][1] if refusal is None else None
        found = self.table.refusal(hello)
        assert (None if found is None else type(found)) is refusal
        assert self.table.introduce(hello, self.lsn) == expected

    @rule(hello=HELLOS)
    def adopted(self, hello: PeerHello) -> None:
        self.lsn += 1
        target = Target(hello.service, hello.shard)
        changes = self.naive[target][0] != hello if target in self.naive else len(self.naive) < 2
        if changes:
            self.naive[target] = hello, self.lsn
        peer = self.table.adopt(adopt(hello), self.lsn)
        assert (peer is not None and peer.session == self.lsn) == changes

    @rule()
    def restored(self) -> None:
        records = self.table.snapshot()
        self.table = PeerTable(LIMITS)
        self.table.restore(records)

    @invariant()
    def tables_are_equal(self) -> None:
        self.table.check_invariants()
        assert self.table.snapshot() == [
            PeerRecord(*target, hello.service_id, hello.incarnation, session)
            for target, (hello, session) in sorted(self.naive.items())
        ]


TestPeers = Peers.TestCase
