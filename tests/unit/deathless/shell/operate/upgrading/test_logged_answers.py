"""What holds an upgrade back of what was logged, and what does not; real logs: tests/process/test_pod_upgrade.py."""

from __future__ import annotations

import asyncio

import pytest

from deathless.base.config import ReplicaConfig, UpgradeConfig
from deathless.base.errors import CorruptCheckpoint, DeathlessError, Diverged, InvalidArgument, UpgradeRefused
from deathless.shell.operate.replay import NOT_COMPARED, ReplayEnded, ReplayOrder, ReplayResult
from deathless.shell.operate.upgrading import logged_answers
from deathless.shell.operate.upgrading.logged_answers import RECENT, RUN_S, TURNS_S, compare_with_log

CONFIG = ReplicaConfig(service="bank", module="bank:bank", directory="/none", replica="r0")
UPGRADE = UpgradeConfig(id="ab" * 16, from_generation=1, from_fingerprint="aa" * 16, from_version=3)
RESULT = ReplayResult(
    started_at=5, base=5, lsn=25, messages=20, keys=1, chain="", digest="", time_us=0, seconds=0.1, notes=["held: x"]
)


def compared(monkeypatch: pytest.MonkeyPatch, outcome: ReplayResult | DeathlessError | None) -> str:
    """Compare where the run has this outcome; None: it has no end."""

    async def replay(_: ReplicaConfig, order: ReplayOrder) -> ReplayResult:
        assert (order.written_by, order.recent, order.declared_from) == (bytes.fromhex("aa" * 16), RECENT, 3)
        assert (order.seconds, order.turns_s) == (RUN_S, TURNS_S)
        if outcome is None:
            await asyncio.Event().wait()
        if isinstance(outcome, DeathlessError):
            raise outcome
        assert outcome is not None
        return outcome

    monkeypatch.setattr(logged_answers, "replay", replay)
    return asyncio.run(compare_with_log(CONFIG, UPGRADE))


def test_the_first_difference_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UpgradeRefused, match=r"AnswerDiffers: .*lsn 7 gave another state or reply") as found:
        compared(monkeypatch, Diverged("lsn 7 gave another state or reply"))
    assert "declare it with changes(changed=...)" in found.value.advice
    assert "`kubectl deathless upgrade bank --go`" in found.value.advice


def test_code_that_ends_its_process_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UpgradeRefused, match=r"^DL1023 ProcessEnds: .*ended with status -9"):
        compared(monkeypatch, ReplayEnded("the process that ran the log ended with status -9"))


def test_what_is_the_same_is_counted_and_a_declared_change_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    assert compared(monkeypatch, RESULT) == "20 messages of the log give the same states and replies"
    RESULT.notes.append("the run ends at lsn 26, where deposit does what is declared as changed (reply: more)")
    RESULT.notes.append(f"{NOT_COMPARED} later asks for a timer")
    assert compared(monkeypatch, RESULT).endswith(f"; {RESULT.notes[-2]}; {RESULT.notes[-1]}")


@pytest.mark.parametrize(
    ("outcome", "said"),
    [
        (
            InvalidArgument("there is no checkpoint"),
            "can't be run again now, and is not compared: there is no checkpoint",
        ),
        (CorruptCheckpoint("c: damaged"), "is not compared: c: damaged"),
        (None, "was not run again within 0.01 s, and is not compared"),
    ],
)
def test_log_that_can_not_be_run_now_holds_nothing_back(
    monkeypatch: pytest.MonkeyPatch, outcome: DeathlessError | None, said: str
) -> None:
    monkeypatch.setattr(logged_answers, "WAIT_S", 0.01 if outcome is None else 60.0)
    assert said in compared(monkeypatch, outcome)
