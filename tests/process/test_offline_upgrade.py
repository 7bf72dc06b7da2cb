"""`deathless upgrade --offline`: other code for a service of which every replica is stopped."""

from __future__ import annotations

import asyncio
import json
import signal
from pathlib import Path

import pytest
from cli_tool import Bank
from replica_set import DEADLINE_S, send_signal, wait_for
from test_live_upgrade import ACROSS, WAITING
from upgraded_bank import UpgradedBank, version_1, version_2

from deathless.base.errors import InvalidArgument, OtherSupervisor, UpgradeRefused
from deathless.shell.operate.upgrading import offline_upgrade
from deathless.shell.operate.upgrading.offline_upgrade import OfflineOutcome, look_offline, make_offline, outcome_of

TIMER = "await ctx.timer(after=timedelta(days=9)) or True"


def deposit(bank: Bank, amount: int, key: str = "k0") -> None:
    bank.run("call", "deposit", "--key", key, "--arg", f"amount={amount}", "--arg", f"tag=a.{amount}")


def amount(bank: Bank, key: str = "k0") -> int:
    return int(json.loads(bank.run("query", "look", "--key", key).stdout)["amount"])


def edit(bank: Bank, source: str) -> None:
    (bank.folder / "service.py").write_text(source)


def stopped(bank: UpgradedBank) -> UpgradedBank:
    """Deposit 5, and stop in order."""
    deposit(bank, 5)
    bank.down()
    return bank


def test_state_is_migrated_and_the_new_code_serves(tmp_path: Path) -> None:
    with UpgradedBank(tmp_path, replicas=2) as bank:
        edit(stopped(bank), version_2())
        bank.run("up", "service.yaml", code=78)
        before = bank.head()
        assert "nobody to ask" in bank.run("upgrade", "--offline", code=InvalidArgument.exit_code).stderr
        tried = bank.run("upgrade", "--offline", "--dry-run").stdout
        assert "version 1 to 2, 1 key are migrated" in tried
        assert "nothing was changed" in tried
        assert bank.head() == before
        told = bank.json("upgrade", "--offline", "--yes")
        assert told["upgraded"] is True
        assert [(each["generation"], each["keys"]) for each in told["shards"]] == [(2, 1)]
        bank.up()
        assert (bank.head().generation, amount(bank)) == (2, 500)
        deposit(bank, 7)
        bank.down()
        bank.up()
        assert amount(bank) == 1200
        report = bank.json("log", "verify")
        assert (report["problems"], report["executedFrom"] > 0) == ([], True)


def test_same_code_and_a_service_that_runs_are_not_upgraded(tmp_path: Path) -> None:
    with UpgradedBank(tmp_path, replicas=1) as bank:
        said = bank.run("upgrade", "--offline", "--yes", code=OtherSupervisor.exit_code).stderr
        assert "replica r0 is running" in said
        stopped(bank)
        said = bank.run("upgrade", "--offline", "--yes", code=InvalidArgument.exit_code).stderr
        assert "nothing to upgrade" in said
        said = bank.run("adopt", "--code", "--yes", code=InvalidArgument.exit_code).stderr
        assert "`deathless upgrade --offline`" in said, "what the former command is now"
        said = bank.run("upgrade", "--dry-run", code=InvalidArgument.exit_code).stderr
        assert "are for --offline" in said


def test_every_shard_is_looked_at_before_one_is_changed(tmp_path: Path) -> None:
    with UpgradedBank(tmp_path, replicas=1, shards=2) as bank:
        for number in range(4):
            deposit(bank, 5, f"k{number}")
        bank.down()
        to = bank.code("v2", version_2())
        one = bank.json("upgrade", "--offline", "--yes", "--to", to, "--shard", "0")
        assert [(each["shard"], each["generation"]) for each in one["shards"]] == [(0, 2)]
        told = bank.json("upgrade", "--offline", "--yes", "--to", to)
        assert [(each["shard"], each["generation"]) for each in told["shards"]] == [(1, 2)], "what is left"
        said = bank.run("upgrade", "--offline", "--yes", "--to", to, code=InvalidArgument.exit_code).stderr
        assert "nothing to upgrade" in said
        edit(bank, version_2())
        bank.up()
        assert [amount(bank, f"k{number}") for number in range(4)] == [500] * 4


@pytest.mark.parametrize(
    ("source", "said"),
    [
        (
            version_2(WAITING, migration=False).replace("def bonus(", "def first(", 1),
            "FieldDropped: Account.balance (int) of version 1 is not in version 2",
        ),
        (
            version_1(WAITING).replace("    balance: int = 0", "    balance: str = ''"),
            "FieldTypeChanged: Account.balance",
        ),
        (version_1(), "HandlerGone: handler hold of version 1 is not in"),
        (version_1(WAITING.replace("await ctx.promise(bool)", TIMER)), "InFlightDiffers: hold asks for a timer"),
    ],
    ids=["field dropped", "other type", "handler gone", "asks for something else"],
)
def test_what_does_not_fit_is_refused_by_name_and_the_former_code_goes_on(
    tmp_path: Path, source: str, said: str
) -> None:
    with UpgradedBank(tmp_path, replicas=1, source=version_1(WAITING)) as bank:
        bank.start("call", "hold", "--key", "held", "--timeout", f"{3 * DEADLINE_S:g}")
        wait_for(lambda: bank.json("invocations", "list")["invocations"], "an invocation that waits", bank.told)
        before = stopped(bank).head()
        edit(bank, source)
        refused = bank.run("upgrade", "--offline", "--yes", code=UpgradeRefused.exit_code).stderr
        assert "error DL1023 UpgradeRefused" in refused
        assert said in refused
        assert bank.head() == before
        edit(bank, version_1(WAITING))
        bank.up()
        assert amount(bank) == 5
        assert [each["misfit"] for each in bank.json("invocations", "list")["invocations"]] == [""]


def test_way_back_needs_the_code_that_serves(tmp_path: Path) -> None:
    with UpgradedBank(tmp_path, replicas=1) as bank:
        edit(stopped(bank), version_2())
        bank.run("upgrade", "--offline", "--yes")
        edit(bank, version_1())
        said = bank.run("upgrade", "--offline", "--yes", code=UpgradeRefused.exit_code).stderr
        assert "upgrade back-out" in said


def test_handlers_that_wait_go_on_in_the_new_code(tmp_path: Path) -> None:
    with UpgradedBank(tmp_path, replicas=1, source=version_1(ACROSS.format(version=1))) as bank:
        patient = ("--timeout", f"{3 * DEADLINE_S:g}")
        bank.start("call", "wait_gate", "--key", "gated", "--arg", f"folder={tmp_path}", *patient)
        wait_for(lambda: bank.json("invocations", "list")["count"] == 1, "it waits", bank.told)
        stopped(bank)
        edit(bank, version_2(ACROSS.format(version=2)))
        bank.run("upgrade", "--offline", "--yes")
        bank.up()
        (waiting,) = bank.json("invocations", "list")["invocations"]
        (tmp_path / "go").touch()
        assert bank.json("invocations", "wait", str(waiting["invocation"]))["result"] == "open, by version 2"


def test_log_behind_the_checkpoint_is_run_by_the_former_code_first(tmp_path: Path) -> None:
    """The remedy that is named can be followed."""
    with UpgradedBank(tmp_path, replicas=1) as bank:
        deposit(bank, 5)
        for pid in bank.supervisors().values():
            send_signal(pid, signal.SIGKILL)
        wait_for(lambda: not bank.supervisors(), "all are dead")
        edit(bank, version_2())
        refused = bank.run("upgrade", "--offline", "--yes", code=InvalidArgument.exit_code).stderr
        assert "deathless up --kept-code --detach" in refused
        bank.run("up", "--kept-code", "--detach", "service.yaml")
        bank.down()
        bank.run("upgrade", "--offline", "--yes")
        bank.up()
        assert amount(bank) == 500


def test_upgrade_that_dies_before_its_commit_leaves_the_former_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def die(*_: object) -> None:
        raise OSError("killed before head was set")

    async def make(to: str) -> OfflineOutcome:
        plan = await look_offline(bank.config(), to)
        await make_offline(plan)
        return outcome_of(plan)

    with UpgradedBank(tmp_path, replicas=1) as bank:
        to = str(bank.folder / bank.code("v2", version_2()))
        before = stopped(bank).head()
        with monkeypatch.context() as patch:
            patch.setattr(offline_upgrade, "_commit", die)
            with pytest.raises(OSError, match="killed"):
                asyncio.run(make(to))
        assert bank.head() == before
        bank.up()
        assert amount(bank) == 5
        deposit(bank, 7)
        bank.down()
        assert asyncio.run(make(to)).generation == 2
        edit(bank, version_2())
        bank.up()
        assert amount(bank) == 1200
