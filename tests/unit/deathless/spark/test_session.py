"""What a user may set of Spark, and what is set whatever the user says."""

from pathlib import Path

import pytest

from deathless.base.errors import InvalidArgument, SparkMissing
from deathless.spark import session
from deathless.spark.session import DEFAULTS, OURS, check, configuration


def test_users_change_defaults() -> None:
    """And add what we do not know."""
    found = configuration({"spark.master": "local[4]", "spark.x": "y"})
    assert found == {**DEFAULTS, **OURS, "spark.master": "local[4]", "spark.x": "y"}


def test_what_exactness_and_speed_need_is_not_theirs() -> None:
    """The same value is no contradiction."""
    configuration({"spark.speculation": "false"})
    with pytest.raises(InvalidArgument, match=r"spark\.speculation is false in a pipeline"):
        configuration({"spark.speculation": "true"})


@pytest.mark.parametrize(
    ("version", "told"), [("", "there is no Java"), ("11.0.2", "there is Java 11"), ("17.0.1", "")]
)
def test_what_spark_needs_is_told_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str, told: str
) -> None:
    monkeypatch.setattr(session, "find_spec", lambda _name: object())
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    if version:
        (tmp_path / "bin").mkdir()
        java = tmp_path / "bin" / "java"
        java.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\n")
        java.chmod(0o755)
    if not told:
        return check()
    with pytest.raises(SparkMissing, match=told):
        check()
    monkeypatch.setattr(session, "find_spec", lambda _name: None)
    with pytest.raises(SparkMissing, match="PySpark"):
        check()
    return None
