"""Errors of sinks are found where all errors are."""

from __future__ import annotations

import pytest

from deathless.base import errors
from deathless.base.error_tree.sinks import SinkRowRefused, SinkTaken


@pytest.mark.parametrize("kind", [SinkRowRefused, SinkTaken])
def test_errors_have_a_code_and_a_remedy(kind: type[errors.Invalid]) -> None:
    assert getattr(errors, kind.__name__) is kind
    assert kind.code.startswith("DL307")
    assert kind.remedy
