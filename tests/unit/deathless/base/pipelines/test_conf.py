"""What a manifest may set of Spark."""

from __future__ import annotations

import pytest

from deathless.base.pipelines.conf import FIXED, refused


def test_what_spark_offers_else_is_the_users() -> None:
    assert list(refused({"spark.sql.shuffle.partitions": "8", "spark.speculation": "false"})) == []


def test_what_exactness_needs_is_fixed() -> None:
    for name in FIXED:
        [found] = refused({name: "another"})
        assert (found.name, found.value, found.remedy) == (name, "another", "leave it out")


def test_what_has_a_field_of_its_own_is_set_there() -> None:
    [found] = refused({"spark.master": "local[4]"})
    assert found.remedy == "set spec.drivers.cores instead"


@pytest.mark.parametrize(
    ("name", "secret"),
    [
        ("spark.hadoop.fs.s3a.secret.key", True),
        ("spark.hadoop.fs.s3a.session.token", True),
        ("spark.hadoop.fs.azure.account.key.store.dfs.core.windows.net", True),
        ("spark.ssl.keyPassword", True),
        ("spark.authenticate.secret", True),
        ("spark.authenticate.secret.file", False),
        ("spark.hadoop.fs.s3a.aws.credentials.provider", False),
        ("spark.sql.shuffle.partitions", False),
        ("spark.redaction.regex", False),
    ],
)
def test_secrets_are_refused_and_not_told(name: str, secret: bool) -> None:
    """Whoever may read the manifest, the pod or its processes would read them."""
    found = list(refused({name: "s3cr3t"}))
    assert bool(found) is secret
    assert "s3cr3t" not in str(found)


def test_what_no_pipeline_can_work_with_is_refused_with_its_reason() -> None:
    found = list(refused({"spark.remote": "sc://x", "spark.dynamicAllocation.enabled": "true", "sql.x": "y"}))
    assert ["driver" in each.what for each in found] == [True, True, False]
    assert found[2].remedy == "write spark.<name>"
