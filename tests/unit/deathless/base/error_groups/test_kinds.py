"""The kinds of errors are the same classes wherever they are imported from."""

from __future__ import annotations

from deathless.base import errors
from deathless.base.error_groups import kinds, topics


def test_errors_has_all_kinds_and_the_errors_of_topics() -> None:
    for module in (kinds, topics):
        for name, each in vars(module).items():
            if isinstance(each, type) and issubclass(each, errors.DeathlessError):
                assert vars(errors)[name] is each


def test_advice_follows_the_message() -> None:
    assert str(kinds.Invalid("wrong")) == "DL0000 wrong"
    assert str(topics.TopicGap("wrong", remedy="mend it")) == "DL3066 wrong (mend it)"
