"""What the pod of a Replay is told, and what its last words mean."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from deathless.shell.operate.pod_outcome import leave_outcome, of_difference, of_replay
from deathless.shell.operate.replay import LogDiffers, ReplayResult
from deathless_operator.model.drill import ServiceRef
from deathless_operator.model.replay import ReplayResult as Told
from deathless_operator.model.replay import ReplaySpec
from deathless_operator.model.values import JsonObject, objects
from deathless_operator.plan.log_runs.replays import judge_replay, replay_pod

TEMPLATE: JsonObject = {"containers": [{"name": "replica", "image": "bank:1"}], "volumes": []}


def words(spec: ReplaySpec) -> list[str]:
    """The command of the pod's container."""
    (program,) = objects(replay_pod(TEMPLATE, spec), "containers")
    command = program["command"]
    assert isinstance(command, list)
    return [str(each) for each in command]


def test_all_of_the_log_is_run_unless_a_part_is_named() -> None:
    bank = ServiceRef(name="bank")
    assert words(ReplaySpec(service_ref=bank))[-2:] == ["--from", "oldest"]
    assert words(ReplaySpec(service_ref=bank, from_lsn=0, to_lsn=9))[-4:] == ["--from", "0", "--to", "9"]


def written(path: Path, outcome: msgspec.Struct) -> str:
    """What the pod of this release leaves."""
    leave_outcome(str(path), outcome)
    return path.read_text()


def test_run_without_a_difference_has_succeeded(tmp_path: Path) -> None:
    result = ReplayResult(
        started_at=3, base=3, lsn=9, messages=6, keys=2, chain="aa", digest="bb", time_us=1, seconds=1
    )
    judged = judge_replay(written(tmp_path / "word", of_replay(result)), 0)
    assert (judged.phase, judged.reason) == ("Succeeded", "Replayed")
    assert judged.fields["result"] == Told(messages=6, started_at=3, lsn=9, keys=2, digest="bb", seconds=1)


def test_difference_is_told_with_its_place(tmp_path: Path) -> None:
    error = LogDiffers("lsn 7 gave another state or reply")
    error.lsn, error.handler, error.key, error.messages = 7, "deposit", "alice", 6
    judged = judge_replay(written(tmp_path / "word", of_difference(error)), error.exit_code)
    result = judged.fields["result"]
    assert isinstance(result, Told) and result.first_difference is not None
    assert (judged.phase, judged.reason, result.messages) == ("Failed", "LogDiffers", 6)
    assert (result.first_difference.lsn, result.first_difference.handler) == (7, "deposit")
    assert "deposit" in judged.message and "DL4008" in judged.message


@pytest.mark.parametrize(
    ("message", "code", "told"),
    [
        ("DL4009 the log is of other code", 78, "DL4009 the log is of other code"),
        ("", 137, "exit code 137"),
        ('{"messages":3}', 1, '{"messages":3}'),
        ('{"messages":-3}', 0, '{"messages":-3}'),
        ('{"messages":99999999999999999999}', 0, "99999999999999999999"),
        ('{"messages":3,"seconds":1e300}', 0, "1e300"),
        ('{"messages":3,"difference":{"lsn":1}}', 0, '{"messages":3'),
        ("\ud800", 1, "\ud800"),
        ("[" * 5000, 1, "[" * 2000),
    ],
)
def test_whatever_else_it_says_is_told_as_it_stands(message: str, code: int, told: str) -> None:
    judged = judge_replay(message, code)
    assert (judged.phase, judged.reason, judged.fields) == ("Failed", "RunFailed", {})
    assert told in judged.message
