"""Sources of a manifest: checked by kind, the same for laptops and pods, and refused where pods can't read them."""

from __future__ import annotations

import msgspec
import pytest

from deathless.base.config import SourceConfig
from deathless.base.manifest import Manifest, ignored_locally, relation_problems, replica_configs
from deathless.base.source_kinds.settings import Source, local_sources, source_configs

GIVEN: dict[str, object] = {
    "name": "flights",
    "kind": "files",
    "input": "flights",
    "key": "value.origin",
    "options": {"folder": "in"},
}


def source(**changes: object) -> Source:
    return msgspec.convert(GIVEN | changes, Source)


def manifest(*sources: dict[str, object], **spec: object) -> Manifest:
    whole = {
        "apiVersion": "deathless.dev/v1alpha1",
        "kind": "DeathlessService",
        "metadata": {"name": "airports"},
        "spec": {"module": "m:a", "sources": list(sources), **spec},
    }
    return msgspec.convert(whole, Manifest)


def test_sources_reach_every_replica_of_every_shard() -> None:
    whole = manifest(GIVEN | {"onRefusal": "deadLetter"}, shards=2)
    assert relation_problems(whole) == []
    for config in replica_configs(whole, module="m:a", directory="/d", token="", folder="/x"):
        assert config.sources == (
            SourceConfig(
                name="flights", kind="files", input="flights", key="value.origin", on_refusal="deadLetter",
                options={"folder": "in"}, folder="/x",
            ),
        )  # fmt: skip


def test_two_sources_of_a_name_and_keys_that_records_have_not_are_refused() -> None:
    found = relation_problems(manifest(GIVEN, GIVEN | {"key": "key"}))
    assert [problem.what for problem in found] == [
        "is also the name of another source",
        "is of records with keys, and files have none",
    ]


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"kind": "kite"}, "kind"),
        ({"key": "origin"}, "key"),
        ({"key": "value."}, "key"),
        ({"onRefusal": "drop"}, "on"),
    ],
)
def test_what_no_source_can_have_is_refused(changes: dict[str, object], field: str) -> None:
    with pytest.raises(msgspec.ValidationError, match=field):
        source(**changes)


def test_secrets_are_of_clusters_where_files_can_not_be_read() -> None:
    with_secret = source(secretRef={"name": "in"})
    assert source_configs([with_secret], "/x")[0].folder == "/x"
    assert source_configs([with_secret], "/x", "/secrets")[0].folder == "/secrets/flights"
    assert "spec.sources[].secretRef" in ignored_locally(manifest(GIVEN | {"secretRef": {"name": "in"}}))
    ((at, kind, why),) = local_sources([with_secret])
    assert (at, kind) == (0, "files")
    assert "share no folder" in why
