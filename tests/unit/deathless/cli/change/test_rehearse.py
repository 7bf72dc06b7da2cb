"""`deathless upgrade rehearse` and `shadow`: what is asked for, what ends it, and what is told."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner, Result

from deathless.base.errors import InvalidArgument
from deathless.cli.change import rehearse as module
from deathless.execution.rehearsal.findings import Difference
from deathless.shell.operate.upgrading.live_log import Followed
from deathless.shell.operate.upgrading.rehearsal import NEWEST, Rehearsed, Window

Ran = Callable[..., Result]


def rehearsed(**fields: Any) -> Rehearsed:
    return Rehearsed(from_version=1, to_version=2, lsn=9, messages=9, **fields)


@pytest.fixture
def windows(monkeypatch: pytest.MonkeyPatch) -> list[Window]:
    """What was asked for, of a run that finds nothing; with an outcome in front, that one."""
    noted: list[Any] = [rehearsed()]

    def run(found: object, to: str, window: Window, former: str, *, as_json: bool) -> Rehearsed:
        noted.append(window)
        outcome: Rehearsed = noted[0]
        return outcome

    monkeypatch.setattr(module, "target", lambda *_, **__: SimpleNamespace())
    monkeypatch.setattr(module, "_rehearse", run)
    return noted


def ran(command: Any, *more: str, errors: bool = False) -> Result:
    return CliRunner().invoke(command, ["--to", "v2.py:bank", *more], standalone_mode=False, catch_exceptions=errors)


def test_shadow_begins_at_the_newest_checkpoint_and_follows_for_a_minute(windows: list[Any]) -> None:
    assert ran(module.shadow).return_value == 0
    assert ran(module.shadow, "--seconds", "5", "--from", "3").return_value == 0
    assert [each.start for each in windows[1:]] == [NEWEST, 3]
    assert [each.following.seconds for each in windows[1:]] == [60.0, 5.0]


def test_rehearsal_ends_where_the_log_does_unless_it_is_to_follow(windows: list[Any]) -> None:
    ran(module.rehearse)
    ran(module.rehearse, "--follow", "300")
    ran(module.rehearse, "--side-by-side")
    assert [each.side_by_side for each in windows[1:]] == [False, False, True]
    assert windows[1].following is None
    assert windows[2].following.seconds == 300.0
    with pytest.raises(InvalidArgument, match="--follow goes on"):
        ran(module.rehearse, "--follow", "300", "--messages", "5")


def test_how_much_of_the_growing_log_was_compared_is_told(windows: list[Any]) -> None:
    windows[0] = rehearsed(followed=Followed(seconds=60.04, caught_up=True, messages=400, compared=399, behind_max=20))
    told = ran(module.shadow).stdout
    assert "followed: 60.0 s, 399 of 400 messages compared (99 %); at most 20 messages behind\n" in told
    found = json.loads(ran(module.shadow, "--json").stdout)["followed"]
    assert (found["complete"], found["messages"], found["compared"], found["behind"]) == (True, 400, 399, 1)


def test_what_came_of_each_shard_is_told(windows: list[Any]) -> None:
    parts = [rehearsed(shard=0, of=3), rehearsed(shard=1, of=3, differences=[DIFFERS])]
    windows[0] = rehearsed(of=3, shards=parts, differences=[DIFFERS])
    told = ran(module.rehearse).stdout.splitlines()
    assert [each.split(" (")[0] for each in told[-4:]] == [
        "shard 0: passed", "shard 1: differs: 1 thing to see to", "not rehearsed: shard 2 of 3",
        "differs: 1 thing to see to",
    ]  # fmt: skip
    found = json.loads(ran(module.rehearse, "--json").stdout)
    assert (found["passed"], found["of"]) == (False, 3)
    assert [(each["shard"], each["passed"]) for each in found["shards"]] == [(0, True), (1, False)]
    windows[0] = rehearsed(shard=1, of=3)
    assert "not rehearsed: shard 0, 2 of 3\n" in ran(module.rehearse).stdout
    assert json.loads(ran(module.rehearse, "--json").stdout)["shard"] == 1


ENDED = Followed(seconds=1.0, caught_up=True, ended="other code serves behind lsn 9")
DIFFERS = Difference("ReplyDiffers", "deposit", 7)


def test_what_ends_it_early_is_no_verdict(windows: list[Any], tmp_path: Path) -> None:
    windows[0] = rehearsed(followed=ENDED)
    for command, more in ((module.shadow, ()), (module.rehearse, ("--termination-file", str(tmp_path / "word")))):
        with pytest.raises(InvalidArgument, match="other code serves behind lsn 9; nothing differs up to lsn 9"):
            ran(command, *more)
    assert (tmp_path / "word").read_text().startswith(f"{InvalidArgument.code} other code serves")


def test_what_differs_is_a_verdict_whatever_ends_it(windows: list[Any], tmp_path: Path) -> None:
    windows[0] = rehearsed(followed=ENDED, differences=[DIFFERS])
    done = ran(module.rehearse, "--termination-file", str(tmp_path / "word"))
    assert done.return_value == module.EXIT_DIFFERS
    assert json.loads((tmp_path / "word").read_text())["passed"] is False


def test_who_interrupts_it_gets_a_verdict(windows: list[Any]) -> None:
    windows[0] = rehearsed(followed=Followed(seconds=1.0, interrupted=True, ended="it was interrupted"))
    done = ran(module.shadow)
    assert done.return_value == 0
    assert "followed: it had not caught up with the log; it was interrupted" in done.stdout


def test_the_first_ctrl_c_ends_the_following_and_the_next_one_the_command() -> None:
    before = signal.getsignal(signal.SIGINT)
    with module._following(5.0) as following:
        assert following is not None and not following.stopped()
        signal.raise_signal(signal.SIGINT)
        assert following.stopped()
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is before


def test_what_is_not_followed_leaves_ctrl_c_alone() -> None:
    before = signal.getsignal(signal.SIGINT)
    with module._following(None) as following:
        assert following is None
        assert signal.getsignal(signal.SIGINT) is before
