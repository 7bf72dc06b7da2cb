"""The tables of forbidden names."""

import pytest

from deathless.execution.check.rules import BANS, find_ban


@pytest.mark.parametrize(
    ("name", "rule"),
    [
        ("time.time", "clock"),
        ("time.localtime", "zone"),
        ("os.environ.get", "environment"),
        ("os.urandom", "random"),
        ("os.path.exists", "file"),
        ("builtins.id", "identity"),
        ("threading.Thread.start", "thread"),
    ],
)
def test_longest_name_that_fits_says_which_rule(name: str, rule: str) -> None:
    ban = find_ban(name)
    assert ban is not None
    assert ban.rule == rule


@pytest.mark.parametrize(
    "name", ["os.path.join", "datetime.datetime", "builtins.len", "uuid.UUID", "json.dumps", "timely"]
)
def test_other_names_may_be_used(name: str) -> None:
    assert find_ban(name) is None


def test_every_ban_says_why() -> None:
    assert all(ban is None or (ban.rule and ban.why) for ban in BANS.values())
