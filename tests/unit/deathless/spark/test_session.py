"""What a user may set of Spark, and what is set whatever the user says."""

import pytest

from deathless.base.errors import InvalidArgument
from deathless.spark.session import DEFAULTS, OURS, configuration


def test_users_change_defaults() -> None:
    """And add what we do not know."""
    found = configuration({"spark.master": "local[4]", "spark.x": "y"})
    assert found == {**DEFAULTS, **OURS, "spark.master": "local[4]", "spark.x": "y"}


def test_what_exactness_and_speed_need_is_not_theirs() -> None:
    """The same value is no contradiction."""
    configuration({"spark.speculation": "false"})
    with pytest.raises(InvalidArgument, match=r"spark\.speculation is false in a pipeline"):
        configuration({"spark.speculation": "true"})
