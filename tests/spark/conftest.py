"""What tests with Spark need: PySpark on the module path, which `make spark` puts there, and what it warns of."""

import pytest

pytest.importorskip("pyspark", reason="Spark is not there: `make spark` installs it beside the environment")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Let PySpark warn of what is its own."""
    for item in items:
        if "tests/spark/" in item.nodeid:
            item.add_marker(pytest.mark.filterwarnings("default"))
