"""Whom a certificate names: one URI, read back as it was written; anything else names nobody."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deathless.base.identities import ROLES, URI_CHARS_MAX, Identity, read_identity

NAME = st.from_regex(r"[a-z0-9]([-a-z0-9]{0,20}[a-z0-9])?", fullmatch=True)
IDENTITIES = st.builds(Identity, trust_domain=NAME, namespace=NAME, service=NAME, role=st.sampled_from(ROLES))


@given(IDENTITIES)
def test_identity_reads_back_as_it_was_written(identity: Identity) -> None:
    assert read_identity([identity.uri]) == identity
    assert str(identity) == identity.uri


@given(IDENTITIES, IDENTITIES)
def test_service_is_trust_domain_namespace_and_name(one: Identity, other: Identity) -> None:
    def parts(identity: Identity) -> tuple[str, str, str]:
        return identity.trust_domain, identity.namespace, identity.service

    assert one.is_of_service(other) is (parts(one) == parts(other))


@pytest.mark.parametrize(
    "uris",
    [
        [],
        ["spiffe://cluster.local/ns/a/service/b/replica"] * 2,
        ["https://cluster.local/ns/a/service/b/replica"],
        ["spiffe://cluster.local/ns/a/service/b"],
        ["spiffe://cluster.local/ns/a/service/b/admin"],
        ["spiffe://cluster.local/ns/a/service/b/replica/"],
        ["spiffe://cluster.local/ns/a/service/b/replica\n"],
        ["spiffe://cluster.local/ns//service/b/replica"],
        ["spiffe://cluster.local/ns/a/service/b%2Fc/replica"],
        ["spiffe://Cluster.local/ns/a/service/b/replica"],
        ["spiffe://user@cluster.local/ns/a/service/b/replica"],
        ["spiffe://cluster.local:443/ns/a/service/b/replica"],
        [f"spiffe://cluster.local/ns/a/service/{'b' * URI_CHARS_MAX}/replica"],
    ],
)
def test_anything_else_names_nobody(uris: list[str]) -> None:
    assert read_identity(uris) is None
