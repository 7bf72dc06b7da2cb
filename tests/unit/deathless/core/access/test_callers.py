"""What is decided about callers: whose a token is, who may call, and how a connection is judged."""

from __future__ import annotations

import pytest

from deathless.base.errors import CallerNotAllowed, NotAuthenticated
from deathless.base.identities import Identity, read_identity
from deathless.base.limits import CALLER_TOKEN_BYTES_MAX, CALLER_TOKENS_MAX
from deathless.core.access.callers import TokenTable, Way, check_allowed, check_size, way_in

OLD, NEW = b"alice-token-of-may", b"alice-token-of-june"


def identity(service: str, role: str) -> Identity:
    found = read_identity([f"spiffe://cluster.local/ns/shop/service/{service}/{role}"])
    assert found is not None
    return found


BANK = identity("bank", "replica")


def test_several_tokens_of_a_caller_are_good_together() -> None:
    table = TokenTable({"alice": OLD + b"\n" + NEW + b"\r\n\n", "bob": b"bob-token-of-today"})
    assert [table.find(each) for each in (OLD, NEW, b"bob-token-of-today")] == ["alice", "alice", "bob"]
    assert len(table) == 3
    assert not table.problems


@pytest.mark.parametrize("shown", [b"", b"x", OLD[:-1], OLD + b"x", b"\xff" * 20])
def test_what_is_no_token_is_nobodys(shown: bytes) -> None:
    assert TokenTable({"alice": OLD}).find(shown) is None


def test_token_of_a_bad_size_is_left_out_and_told_without_a_word_of_it() -> None:
    table = TokenTable({"alice": b"too-short", "bob": b"b" * (CALLER_TOKEN_BYTES_MAX + 1), "carl": b"c" * 16})
    assert [table.find(each) for each in (b"too-short", b"c" * 16)] == [None, "carl"]
    assert len(table.problems) == 2
    assert "too-short" not in str(table.problems)


def test_tokens_have_a_maximum() -> None:
    many = b"\n".join(b"token-of-somebody-%06d" % number for number in range(CALLER_TOKENS_MAX + 1))
    table = TokenTable({"alice": many})
    assert len(table) == CALLER_TOKENS_MAX
    assert len(table.problems) == 1


def test_token_must_come_and_be_of_a_bearable_size() -> None:
    check_size(b"x" * CALLER_TOKEN_BYTES_MAX)
    for shown in (b"", b"x" * (CALLER_TOKEN_BYTES_MAX + 1)):
        with pytest.raises(NotAuthenticated):
            check_size(shown)


def test_names_that_may_call() -> None:
    check_allowed("alice", ())
    check_allowed("alice", ("bob", "alice"))
    with pytest.raises(CallerNotAllowed, match="alice"):
        check_allowed("alice", ("bob",))


@pytest.mark.parametrize("kind", ["client", "peer", "tool", "follower", "supervisor", "", "CLIENT"])
def test_whoever_shows_the_services_own_token_is_judged_as_ever(kind: str) -> None:
    assert way_in(kind, own=None, shown=None, token_known=True) is Way.TABLE


@pytest.mark.parametrize(
    ("kind", "own", "shown", "way"),
    [
        ("client", None, None, Way.CALLER),
        ("peer", None, None, Way.NONE),
        ("tool", None, None, Way.NONE),
        ("follower", None, None, Way.NONE),
        ("client", BANK, None, Way.CALLER),
        ("client", BANK, BANK, Way.TABLE),  # the ingress beside a replica
        ("client", BANK, identity("bank", "operator"), Way.TABLE),
        ("client", BANK, identity("bank", "client"), Way.CALLER),  # a certificate is no token
        ("client", BANK, identity("shop", "replica"), Way.CALLER),
        ("peer", BANK, identity("shop", "replica"), Way.TABLE),
        ("peer", BANK, None, Way.TABLE),  # which refuses it
        ("tool", BANK, identity("shop", "client"), Way.TABLE),
    ],
)
def test_connection_is_judged_by_kind_and_certificate(
    kind: str, own: Identity | None, shown: Identity | None, way: Way
) -> None:
    assert way_in(kind, own=own, shown=shown, token_known=False) is way
