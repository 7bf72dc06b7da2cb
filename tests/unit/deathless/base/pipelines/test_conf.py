"""What a manifest may set of Spark."""

from __future__ import annotations

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


def test_what_no_pipeline_can_work_with_is_refused_with_its_reason() -> None:
    found = list(refused({"spark.remote": "sc://x", "spark.dynamicAllocation.enabled": "true", "sql.x": "y"}))
    assert ["driver" in each.what for each in found] == [True, True, False]
    assert found[2].remedy == "write spark.<name>"
