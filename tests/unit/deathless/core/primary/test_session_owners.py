"""A session is spoken in by who registered it: the table of bindings, and the admission that asks it."""

from __future__ import annotations

import pytest
from tests.unit.deathless.core.primary_world import SECRET, SMALL, World

from deathless.base.errors import NotYourSession
from deathless.base.safeguards import ALL_SAFEGUARDS, Safeguards
from deathless.codec.messages import HEADER_BYTES
from deathless.codec.session_proof import named_nonce, nonce_of
from deathless.codec.wire import Type
from deathless.core import effects as fx
from deathless.core import events as ev
from deathless.core.primary.session_owners import SessionOwners, Standing, proves
from deathless.core.tables.sessions import SessionTable

A, B, THIEF = ev.Conn(1), ev.Conn(2), ev.Conn(7)
OWNER_OFF = Safeguards(session_owner=False)
NEWEST_OFF = Safeguards(newest_session_connection=False)


def owners_and_session(
    safeguards: Safeguards = ALL_SAFEGUARDS, name: str = ""
) -> tuple[SessionOwners, int, SessionTable]:
    table = SessionTable(SMALL)
    table.register(ev_session := 5, named_nonce(nonce_of(SECRET), name), 0)  # type: ignore[arg-type]  # a SessionId
    return SessionOwners(safeguards), ev_session, table


# ---- the bindings ------------------------------------------------------------------------------------------------


def test_who_shows_the_secret_speaks_and_nobody_else() -> None:
    owners, number, table = owners_and_session()
    session = table.get(number)
    assert session is not None
    owners.opened(A, SECRET, "")
    owners.opened(B, b"another", "")
    owners.opened(THIEF, nonce_of(SECRET), "")  # what the log holds is not the secret
    assert owners.standing(A, session) is Standing.OWNER
    assert owners.standing(B, session) is Standing.STRANGER
    assert owners.standing(THIEF, session) is Standing.STRANGER
    assert owners.standing(ev.Conn(99), session) is Standing.STRANGER
    owners.lost(A)
    assert owners.standing(A, session) is Standing.STRANGER


def test_newest_connection_speaks_alone_and_the_older_one_is_named() -> None:
    owners, number, table = owners_and_session()
    session = table.get(number)
    assert session is not None
    owners.opened(A, SECRET, "")
    owners.opened(B, SECRET, "")
    assert owners.bind(A, number) is None
    assert owners.bind(A, number) is None
    assert owners.bind(B, number) == A
    assert owners.standing(A, session) is Standing.FORMER
    owners.check_invariants()
    owners.lost(A)
    assert owners.standing(B, session) is Standing.OWNER
    owners.lost(B)
    owners.check_invariants()


def test_connection_that_registers_anew_speaks_in_its_new_session() -> None:
    owners, _, _ = owners_and_session()
    assert owners.bind(A, 5) is None
    assert owners.bind(A, 9) is None
    owners.check_invariants()
    assert owners.bind(B, 5) is None, "nobody was left in it"


@pytest.mark.parametrize(("name", "shown", "good"), [("", "", True), ("alice", "alice", True), ("", "alice", True),
                                                     ("alice", "", False), ("alice", "bob", False)])  # fmt: skip
def test_session_of_a_certificate_needs_its_name_too(name: str, shown: str, good: bool) -> None:
    """A session that was registered without a certificate stays its owner's when certificates are asked for."""
    owners, number, table = owners_and_session(name=name)
    session = table.get(number)
    assert session is not None
    owners.opened(A, SECRET, shown)
    assert (owners.standing(A, session) is Standing.OWNER) is good
    assert proves(SECRET, shown, session.nonce) is good
    assert not proves(b"", shown, session.nonce)


def ran(world: World) -> list[bytes]:
    """Arguments of the messages that ran."""
    return [message[HEADER_BYTES:] for message in world.executor.ran]


# ---- admission -----------------------------------------------------------------------------------------------------


def test_thief_neither_sends_nor_acknowledges_nor_hears_in_another_s_session() -> None:
    world = World()
    session = world.register()
    world.send(session, 1, b"mine")
    world.settle()
    world.send(session, 2, b"stolen", conn=THIEF)
    world.send(session, 1, b"what was said?", conn=THIEF)
    world.send(session, 2, acked=1, conn=THIEF)  # an acknowledgement alone: it would drop the owner's reply
    world.settle()
    assert [refused.code for refused in world.refusals()] == [NotYourSession.code] * 3
    assert set(world.to(THIEF)) == {Type.BATCH_REFUSED}
    assert world.sessions.replies_from(session, 1, 1)[0] == [1]
    world.send(session, 2, b"mine too")
    world.settle()
    assert world.replies(session) == [(1, b"mine"), (2, b"mine too")]
    assert ran(world) == [b"mine", b"mine too"]


def test_without_session_owner_a_thief_s_message_takes_the_place_of_the_owner_s() -> None:
    world = World(safeguards=OWNER_OFF)
    session = world.register()
    world.send(session, 1, b"mine")
    world.settle()
    world.send(session, 2, b"stolen", conn=THIEF)
    world.settle()
    world.send(session, 2, b"mine too")
    world.settle()
    assert ran(world) == [b"mine", b"stolen"], "the owner's message was swallowed"


def test_owner_comes_back_on_another_connection_and_the_one_before_ends() -> None:
    world = World()
    session = world.register()
    world.show(1)
    world.show(2)
    world.send(session, 1, b"a", conn=1)
    world.send(session, 1, b"a", b"b", conn=2)
    assert [effect for effect in world.todo if isinstance(effect, fx.Disconnect)] == [fx.Disconnect(A)]
    world.send(session, 3, b"late", conn=1)
    world.settle()
    assert ran(world) == [b"a", b"b"]
    assert world.refusals() == [], "its packets are the same client's, who would take a refusal for its own"


def test_without_newest_session_connection_two_copies_of_a_client_answer_for_each_other() -> None:
    def both(safeguards: Safeguards) -> list[bytes]:
        world = World(safeguards=safeguards)
        session = world.register()
        world.show(1)
        world.show(2)
        world.send(session, 1, b"of the second copy", conn=2)
        world.send(session, 2, b"of the first copy", conn=1)
        world.settle()
        return ran(world)

    assert both(ALL_SAFEGUARDS) == [b"of the second copy"]
    assert both(NEWEST_OFF) == [b"of the second copy", b"of the first copy"]


def test_registration_repeated_by_who_read_the_log_binds_nothing() -> None:
    world = World()
    session = world.register()
    assert world.register(conn=THIEF) == session, "the number is no secret"
    world.send(session, 1, b"stolen", conn=THIEF)
    world.send(session, 1, b"mine")
    world.settle()
    assert ran(world) == [b"mine"]


def test_registration_under_way_is_taken_over_by_who_shows_the_secret_alone() -> None:
    world = World()
    nonce = nonce_of(SECRET)
    world.do(world.primary.register_received(A, nonce))
    world.do(world.primary.register_received(THIEF, nonce))
    world.show(2)
    world.do(world.primary.register_received(B, nonce))
    world.settle()
    assert (world.to(A), world.to(B), world.to(THIEF)) == ([], [Type.REGISTERED], [])
    world.send(1, 1, b"mine", conn=B)
    world.settle()
    assert ran(world) == [b"mine"]


def test_registration_whose_connection_ended_waits_for_who_shows_the_secret() -> None:
    world = World()
    world.do(world.primary.register_received(A, nonce_of(SECRET)))
    world.do(world.primary.connection_lost(A, world.now, world.wall_us))
    world.settle()
    world.send(1, 1, b"nobody's", conn=A)
    world.show(2)
    world.send(1, 1, b"mine", conn=B)
    world.settle()
    assert ran(world) == [b"mine"]


def test_client_of_before_goes_on_on_its_first_connection_and_is_refused_on_another() -> None:
    """It drew the nonce itself and shows no secret; refused, it gives the session up."""
    world = World()
    session = world.register(nonce=bytes(range(16)))
    world.send(session, 1, b"a")
    world.settle()
    world.send(session, 2, b"b", conn=2)
    world.settle()
    assert ran(world) == [b"a"]
    assert [refused.code for refused in world.refusals()] == [NotYourSession.code]


def test_session_of_a_certificate_is_logged_bound_to_its_name_and_answered_with_what_was_sent() -> None:
    world = World()
    world.show(1, name="alice")
    session = world.register()
    known = world.sessions.get(session)
    assert known is not None
    assert known.nonce == named_nonce(nonce_of(SECRET), "alice")
    world.show(2, name="bob")
    world.send(session, 1, b"bob's", conn=2)
    world.send(session, 1, b"hers", conn=1)
    world.settle()
    assert ran(world) == [b"hers"]
