"""Pods that run a service's log again while it serves: what they say to whoever reads their termination messages."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from pod_bank import PodBank
from replica_set import DEADLINE_S
from upgraded_bank import Callers, version_1

from deathless.base.errors import Diverged, InvalidArgument


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
