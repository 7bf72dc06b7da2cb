"""Pods that run a service's log again while it serves: what they say to whoever reads their termination messages."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from pod_bank import PodBank
from replica_set import DEADLINE_S
from upgraded_bank import Callers, version_1, version_2

from deathless.base.errors import Diverged, InvalidArgument, InvalidService, UpgradeRequired


def replayed(bank: PodBank, image: str, *more: str, code: int = 0) -> str:
    """Run the pod of a Replay to its end; gives its termination message."""
    words = ["replay", "-f", str(bank.folder / image / "replica.json"), "--quiet"]
    words += ["--termination-file", str(bank.word("replay")), *more]
    bank.container("replay", image, "replay", words)
    found = bank.containers["replay"].wait(2 * DEADLINE_S)
    assert found == code, bank.told()
    return bank.word("replay").read_text()


def wrong(source: str) -> str:
    """The same interface, and other answers."""
    changed = source.replace("account.balance += amount", "account.balance += amount + 1")
    assert changed != source
    return changed


def test_replay_says_what_it_ran_and_where_it_differs_first(tmp_path: Path) -> None:
    with PodBank(tmp_path, replicas=2) as bank:
        with Callers(bank) as callers:
            callers.wait_more()
            told: dict[str, Any] = json.loads(replayed(bank, "v1", "--from", "oldest"))
        assert told["messages"] == told["lsn"] > 0
        assert told["digest"] and "difference" not in told
        upto = json.loads(replayed(bank, "v1", "--from", "0", "--to", "3"))
        assert (upto["lsn"], upto["messages"]) == (3, 3)
        bank.image("other", wrong(version_1()))
        found = json.loads(replayed(bank, "other", "--from", "oldest", "--any-code", code=Diverged.exit_code))
        difference = found["difference"]
        assert found["messages"] == difference["lsn"] - 1
        assert difference["handler"] == "deposit" and difference["key"]
        assert difference["text"].startswith(f"lsn {difference['lsn']}")
        error = replayed(bank, "v1", "--to", "99999999", code=InvalidArgument.exit_code)
        assert error.startswith(f"{InvalidArgument.code} ")


DIFFERS = 78


def rehearsed(bank: PodBank, image: str, *more: str, code: int = 0) -> str:
    """Run the pod of a Rehearsal of another image to its end; gives its termination message."""
    bank.formers.setdefault("rehearsal", "v1")
    if not bank.runs("rehearsal former"):
        bank.start_former("rehearsal")
    words = ["upgrade", "rehearse", "-f", str(bank.folder / "v1" / "replica.json")]
    words += ["--former", str(bank.scratch("rehearsal") / "former.sock")]
    words += ["--termination-file", str(bank.word("rehearsal")), *more]
    bank.container("rehearsal", image, "rehearsal", words)
    found = bank.containers["rehearsal"].wait(2 * DEADLINE_S)
    assert found == code, bank.told()
    return bank.word("rehearsal").read_text()


def test_former_image_and_another_one_run_the_log_side_by_side(tmp_path: Path) -> None:
    with PodBank(tmp_path, replicas=2) as bank:
        bank.image("same", version_1())
        bank.image("wrong", wrong(version_1()))
        bank.image("next", version_2())
        with Callers(bank) as callers:
            callers.wait_more()
            told: dict[str, Any] = json.loads(rehearsed(bank, "same"))
            assert (told["passed"], told["sameCode"], told["differences"]) == (True, True, [])
            assert told["messages"] == told["lsn"] > 0
            assert {each["handler"] for each in told["coverage"]} >= {"deposit"}
            found = json.loads(rehearsed(bank, "wrong", "--messages", "5", code=DIFFERS))
            assert (found["passed"], found["sameCode"]) == (False, False)
            assert found["messages"] >= 5
            assert found["differences"][0]["handler"] == "deposit"
            further = json.loads(rehearsed(bank, "next"))
            assert (further["fromVersion"], further["toVersion"], further["passed"]) == (1, 2, True)
            assert "bonus" in further["notCovered"]
            callers.wait_more()
        left = [path.name for path in bank.scratch("rehearsal").iterdir()]
        assert left == ["former.sock"], "nothing else stays"


def test_rehearsal_that_can_not_be_run_says_why(tmp_path: Path) -> None:
    with PodBank(tmp_path, replicas=2) as bank:
        bank.image("broken", "raise RuntimeError('not today')")
        with Callers(bank) as callers:
            callers.wait_more()
        told = rehearsed(bank, "broken", code=InvalidService.exit_code)
        assert told.startswith(f"{InvalidService.code} ") and "not today" in told
        bank.kill("rehearsal former")
        bank.formers["rehearsal"] = "other"
        bank.image("other", version_2())
        bank.start_former("rehearsal")
        words = rehearsed(bank, "v1", "--side-by-side", code=UpgradeRequired.exit_code)
        assert words.startswith(f"{UpgradeRequired.code} "), "the container's image is not what wrote the log"


def test_a_pod_follows_the_log_as_it_grows(tmp_path: Path) -> None:
    with PodBank(tmp_path, replicas=2) as bank:
        bank.image("next", version_2())
        with Callers(bank) as callers:
            callers.wait_more()
            told: dict[str, Any] = json.loads(rehearsed(bank, "next", "--follow", "3"))
            callers.wait_more()
        assert (told["passed"], told["fromVersion"], told["toVersion"]) == (True, 1, 2)
        followed = told["followed"]
        assert followed["compared"] == followed["messages"] > 0
        assert "ended" not in followed
