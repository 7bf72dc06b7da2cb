"""The two containers of a Rehearsal's pod, and what its last words mean."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.unit.deathless_operator.plan.plan_world import World

from deathless.execution.interface.misfit import Misfit
from deathless.execution.rehearsal.findings import Coverage, Difference
from deathless.shell.operate.pod_outcome import leave_outcome, of_rehearsal
from deathless.shell.operate.upgrading.live_log import Followed
from deathless.shell.operate.upgrading.rehearsal import Rehearsed
from deathless_operator.model import names
from deathless_operator.model.rehearsal import FollowedLog, RehearsalResult
from deathless_operator.plan.log_runs.reading import read_rehearsal
from deathless_operator.plan.log_runs.rehearsals import inconclusive, judge_rehearsal, rehearsal_pod
from deathless_operator.plan.log_runs.tool import Judged
from deathless_operator.plan.tool_pods import template_of

DIFFERS = 78


def pod(**spec: Any) -> Any:
    """The pod's spec, for the replicas of a service that runs."""
    world = World()
    world.settle()
    found = world.stateful_set()
    assert found is not None
    whole = {"serviceRef": {"name": "bank"}, "image": "bank:2", **spec}
    rehearsal = read_rehearsal({"metadata": {}, "spec": whole})
    assert rehearsal.spec is not None
    return rehearsal_pod(template_of(found), rehearsal.spec)


def mounts(container: Any) -> dict[str, bool]:
    """The volumes that a container mounts, and whether it only reads each."""
    return {each["name"]: each.get("readOnly", False) for each in container["volumeMounts"]}


def test_each_code_runs_in_its_own_image_and_reads_the_log() -> None:
    found = pod()
    (program,), (former,) = found["containers"], found["initContainers"]
    assert (program["image"], former["image"], former["restartPolicy"]) == ("bank:2", "bank:1", "Always")
    assert former["command"] == ["deathless", "former", "--listen", names.FORMER_SOCKET, "-f", CONFIG]
    assert program["command"][:7] == ["deathless", "upgrade", "rehearse", "-f", CONFIG, "--former", names.FORMER_SOCKET]
    assert {each["name"]: each.get("value") for each in program["env"]}["POD_IMAGE"] == "bank:2"
    assert mounts(former) == {"deathless-config": True, "deathless-log": True, "deathless-run": False}
    assert mounts(program) == {**mounts(former), "deathless-lock-tls": True}
    (scratch,) = (each for each in found["volumes"] if each["name"] == "deathless-run")
    assert scratch["emptyDir"] == {}, "it has to hold the whole state"
    assert (found["automountServiceAccountToken"], found["restartPolicy"]) == (False, "Never")


CONFIG = "/etc/deathless/replica.json"


def test_what_is_asked_for_is_what_is_run() -> None:
    found = pod(module="bank2:bank", fromLsn=5, messages=100, resources={"limits": {"memory": "4Gi"}})
    (program,), (former,) = found["containers"], found["initContainers"]
    assert program["command"][-6:] == ["--to", "bank2:bank", "--from", "5", "--messages", "100"]
    assert program["resources"]["limits"] == former["resources"]["limits"] == {"memory": "4Gi"}
    assert found["activeDeadlineSeconds"] == 21600


def test_log_is_followed_where_that_is_asked_for() -> None:
    (program,) = pod(followSeconds=300)["containers"]
    assert program["command"][-2:] == ["--follow", "300"]


def judged(folder: Path, rehearsed: Rehearsed) -> Judged:
    """What is made of what the pod of this release leaves."""
    leave_outcome(str(folder / "word"), of_rehearsal(rehearsed))
    return judge_rehearsal((folder / "word").read_text(), 0 if rehearsed.passed else DIFFERS)


def run(**fields: Any) -> Rehearsed:
    """A rehearsal of two handlers, one of which was met."""
    coverage = [Coverage("deposit", turns=8, left_out=1), Coverage("bonus")]
    return Rehearsed(from_version=1, to_version=2, messages=9, lsn=12, coverage=coverage, **fields)


def test_run_without_a_difference_has_passed(tmp_path: Path) -> None:
    meant = Difference("ReplyDiffers", "deposit", 7, "a", "1", "2", declared="a fee")
    found = judged(tmp_path, run(differences=[meant], fingerprint="ab" * 16, by_digests=True))
    result = found.fields["result"]
    assert isinstance(result, RehearsalResult)
    assert (found.phase, found.reason, found.fields["verdict"]) == ("Succeeded", "Rehearsed", "Passed")
    assert "not covered: bonus" in found.message
    assert [(each.handler, each.turns, each.left_out) for each in result.coverage] == [("deposit", 8, 1)]
    assert (result.messages, result.lsn, result.not_covered) == (9, 12, ("bonus",))
    assert result.differences[0].declared == "a fee"
    assert (result.fingerprint, result.by_digests) == ("ab" * 16, True)


def test_shard_that_was_rehearsed_is_told_where_there_are_several(tmp_path: Path) -> None:
    assert "this is shard 1 of 3, and no other was rehearsed by it" in judged(tmp_path, run(shard=1, of=3)).message
    assert "shard" not in judged(tmp_path, run()).message


def test_how_much_of_a_growing_log_was_compared_is_told(tmp_path: Path) -> None:
    followed = Followed(seconds=300.1, caught_up=True, from_lsn=2, messages=8, compared=7, behind_max=3)
    found = judged(tmp_path, run(followed=followed))
    result = found.fields["result"]
    assert isinstance(result, RehearsalResult)
    assert result.followed == FollowedLog(seconds=300.1, messages=8, compared=7, behind_max=3)
    assert "7 of the 8 that came in 300 s are among them" in found.message
    assert found.fields["verdict"] == "Passed"


def test_difference_and_misfit_are_told_by_name(tmp_path: Path) -> None:
    differs = Difference("ReplyDiffers", "deposit", 7, "a", "1", "2", count=3)
    found = judged(tmp_path, run(differences=[differs]))
    assert (found.phase, found.reason, found.fields["verdict"]) == ("Failed", "CodeDiffers", "Failed")
    assert found.message == "ReplyDiffers: deposit, 3 times"
    result = found.fields["result"]
    assert isinstance(result, RehearsalResult)
    assert (result.differences[0].count, result.differences[0].lsn, result.differences[0].key) == (3, 7, "a")
    misfit = judged(tmp_path, run(misfits=[Misfit("FieldDropped", "Account.tags", "tags is gone")]))
    assert (misfit.reason, misfit.message) == ("DoesNotFit", "FieldDropped: tags is gone")


@pytest.mark.parametrize(
    ("message", "code"),
    [
        ("DL4009 other code", 78),
        ("", 137),
        ('{"passed":true,"messages":1}', 1),
        ('{"passed":false,"messages":1}', 0),
        ('{"passed":true,"messages":-1}', 0),
        ('{"passed":true,"messages":1,"followed":{"compared":-1}}', 0),
        ('{"passed":true,"messages":1,"coverage":[{"handler":"a","turns":-1}]}', 0),
        ("[" * 5000, 1),
        ("\ud800", 1),
    ],
)
def test_run_that_says_something_else_came_to_no_verdict(message: str, code: int) -> None:
    found = judge_rehearsal(message, code)
    assert (found.phase, found.reason, dict(found.fields)) == ("Failed", "RunFailed", {"verdict": "Inconclusive"})
    assert found.message


def test_run_that_was_lost_came_to_no_verdict() -> None:
    found = inconclusive(Judged(phase="Failed", reason="PodLost", message="gone"))
    assert (found.reason, found.fields["verdict"]) == ("PodLost", "Inconclusive")
