"""Fields of the manifest: what fits, in the words of who writes it."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from deathless.base.manifest_parts import EtcdSpec, LogStorage, Resources, told
from deathless.base.schema_check import expected, find_problems


@pytest.mark.parametrize(
    ("kind", "value", "fits"),
    [
        (LogStorage, {"claimName": "shared-log"}, True),
        (LogStorage, {"claimName": "Shared"}, False),
        (LogStorage, {"size": "10Gi"}, True),
        (LogStorage, {"size": "10 GB"}, False),
        (LogStorage, {"subPath": "a/b"}, True),
        (LogStorage, {"subPath": "../b"}, False),
        (LogStorage, {"subPath": "/b"}, False),
        (EtcdSpec, {"prefix": "/a/b/"}, True),
        (EtcdSpec, {"prefix": "/a"}, False),
        (EtcdSpec, {"endpoints": ["https://etcd:2379"]}, True),
        (EtcdSpec, {"endpoints": ["etcd:2379"]}, False),
        (EtcdSpec, {"endpoints": ["http://e:1"] * 17}, False),
        (Resources, {"requests": {"cpu": 2, "memory": "1Gi"}}, True),
        (Resources, {"requests": {"cpu": "much"}}, False),
    ],
)
def test_field_takes_what_it_means(kind: type[msgspec.Struct], value: dict[str, Any], fits: bool) -> None:
    assert (find_problems(value, kind) == []) == fits
    if fits:
        msgspec.convert(value, kind)


def test_list_that_is_too_long_is_told_by_its_maximum() -> None:
    (problem,) = find_problems({"endpoints": ["http://e:1"] * 17}, EtcdSpec)
    assert (problem.path, problem.remedy) == (("endpoints",), "write a list of at most 16")


def test_explanation_is_not_what_a_mistake_is_answered_with() -> None:
    meta = told("Long words for kubectl explain.")
    assert meta.extra_json_schema == {"explain": "Long words for kubectl explain."}
    (problem,) = find_problems({"allowAnyFileSystem": "maybe"}, LogStorage)
    assert problem.remedy == "write true or false"
    assert expected(dict[str, str]) == "a mapping"
