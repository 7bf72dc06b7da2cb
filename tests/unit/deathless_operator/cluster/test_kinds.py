"""Paths of objects."""

from __future__ import annotations

import pytest

from deathless_operator.cluster import kinds


def test_path_follows_group_and_scope() -> None:
    assert kinds.POD.path("shop", "bank-0") == "/api/v1/namespaces/shop/pods/bank-0"
    assert kinds.POD.path(None) == "/api/v1/pods"
    assert kinds.NODE.path(None, "n1") == "/api/v1/nodes/n1"
    assert (
        kinds.SERVICE.path("shop", "bank", "status")
        == "/apis/deathless.dev/v1alpha1/namespaces/shop/deathlessservices/bank/status"
    )


def test_name_cannot_leave_its_place_in_the_path() -> None:
    assert "/../" not in kinds.POD.path("shop", "../../nodes")


def test_object_of_a_namespace_is_never_named_without_it() -> None:
    with pytest.raises(AssertionError):
        kinds.POD.path(None, "bank-0")


@pytest.mark.parametrize("kind", kinds.ALL)
def test_each_kind_is_found_by_its_manifest(kind: kinds.Kind) -> None:
    assert kinds.kind_of({"apiVersion": kind.api_version, "kind": kind.kind}) is kind


def test_unknown_kind_is_a_bug() -> None:
    with pytest.raises(KeyError):
        kinds.kind_of({"apiVersion": "v1", "kind": "PersistentVolume"})
