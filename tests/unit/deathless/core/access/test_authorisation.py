"""Every port, kind and relation: what the table allows, and that it allows nothing else."""

from __future__ import annotations

import itertools

import pytest

from deathless.base.errors import Forbidden, Unauthorized
from deathless.base.identities import ROLES, AllowedService, Identity, Role
from deathless.codec.wire import Type
from deathless.core.access.authorisation import ALLOWED, ASKED, Caller, Port, check_types, refusal, relation

KINDS = ("client", "peer", "tool", "follower", "supervisor", "call", "operate", "probe", "unknown")


def who(role: Role, service: str = "bank", namespace: str = "shop", domain: str = "cluster.local") -> Identity:
    return Identity(trust_domain=domain, namespace=namespace, service=service, role=role)


OWN = who("replica")
EXPECTED = {
    ("client", "client"): {"own replica", "own client", "own operator"},
    ("client", "peer"): {"own replica", "neighbour"},
    ("client", "tool"): {"own replica", "own operator"},
    ("replication", "follower"): {"own replica"},
    ("control", "supervisor"): {"own replica"},
    ("control", "tool"): {"own replica", "own operator"},
    ("http", "call"): {"own replica", "own client", "own operator"},
    ("http", "operate"): {"own replica", "own operator"},
}
HOLDERS = {
    "own replica": who("replica"),
    "own client": who("client"),
    "own operator": who("operator"),
    "neighbour": who("replica", "orders"),
    "neighbour's client": who("client", "orders"),
    "neighbour's operator": who("operator", "orders"),
    "other namespace": who("replica", "bank", "other"),
    "other namespace's client": who("client", "bank", "other"),
    "other namespace's operator": who("operator", "bank", "other"),
    "other installation": who("replica", domain="example.org"),
}


@pytest.mark.parametrize(("port", "kind"), list(itertools.product(Port, KINDS)))
def test_each_port_lets_in_whom_the_table_names_and_nobody_else(port: Port, kind: str) -> None:
    let_in = {name for name, shown in HOLDERS.items() if refusal(OWN, shown, port, kind) is None}
    expected = set(HOLDERS) if (port, kind) == ("health", "probe") else EXPECTED.get((port.value, kind), set())
    assert let_in == expected


@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize("name", ["orders", ""])
def test_named_service_may_send_and_call_and_no_more(role: Role, name: str) -> None:
    named = [AllowedService(namespace="other", name=name)]
    shown = who(role, "orders", "other")
    let_in = {
        (port.value, kind)
        for port, kind in itertools.product(Port, KINDS)
        if refusal(OWN, shown, port, kind, named=named) is None
    } - {("health", "probe")}
    calls = {("client", "client"), ("http", "call")}
    assert let_in == {"replica": calls | {("client", "peer")}, "client": calls, "operator": set()}[role]


def test_naming_services_leaves_the_namespace_out_unless_it_is_named() -> None:
    named = [AllowedService(namespace="other", name="orders")]
    assert relation(OWN, who("replica", "orders"), named) is Caller.STRANGER
    assert relation(OWN, who("replica", "orders", "other"), named) is Caller.NAMED_REPLICA
    assert relation(OWN, who("replica", "ledger", "other"), named) is Caller.STRANGER
    assert relation(OWN, who("replica", "orders", "other", "example.org"), named) is Caller.STRANGER


@pytest.mark.parametrize(("port", "kind"), list(ALLOWED))
def test_without_a_certificate_only_callers_come_in_and_only_where_none_is_asked_for(port: Port, kind: str) -> None:
    open_to_all = (port, kind) == (Port.HEALTH, "probe")
    assert (refusal(OWN, None, port, kind) is None) is open_to_all
    callers = kind in ("client", "call") or open_to_all
    assert (refusal(OWN, None, port, kind, certified=False) is None) is callers


def test_port_whose_certificate_names_nobody_has_nothing_to_compare_with() -> None:
    assert all(refusal(None, shown, port, kind) is None for shown in (None, OWN) for port, kind in ALLOWED)


def test_refusal_names_field_value_and_remedy() -> None:
    refused = refusal(OWN, who("client", "orders", "other"), Port.CLIENT, "client")
    assert isinstance(refused, Forbidden)
    assert "spiffe://cluster.local/ns/other/service/orders/client" in refused.message
    assert "client port of shop/bank" in refused.message
    assert "spec.ingress.allowServices" in refused.advice
    own_client = refusal(OWN, who("client"), Port.CONTROL, "tool")
    assert own_client is not None
    assert "operator" in own_client.advice
    stranger = refusal(OWN, who("replica", "orders", "other"), Port.REPLICATION, "follower")
    assert stranger is not None
    assert "shop/bank" in stranger.advice
    nobody = refusal(OWN, None, Port.CLIENT, "client")
    assert isinstance(nobody, Unauthorized)
    assert "bank-client-tls" in nobody.advice


@pytest.mark.parametrize("kind", [*ASKED, "unknown"])
def test_each_kind_sends_its_own_packets_alone(kind: str) -> None:
    allowed = ASKED.get(kind, frozenset())
    check_types(kind, allowed)
    for each in {*Type} - allowed:
        with pytest.raises(Forbidden, match=each.name):
            check_types(kind, [*allowed, each])
    with pytest.raises(Forbidden, match="250"):
        check_types(kind, [250])
