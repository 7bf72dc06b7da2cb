"""`deathless adopt`: what refuses to start goes on after an operator's word, and nothing is lost by it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from cli_tool import Bank
from etcd_fake import FakeMember, FakeStore
from etcd_server import wait_until

from deathless.base.errors import (
    ForeignDirectory,
    HalfCopy,
    InvalidArgument,
    OtherSupervisor,
    StoreOlderThanLog,
    UpgradeRefused,
)


def deposit(bank: Bank, amount: int) -> int:
    """Put money into one account; gives its balance."""
    return int(bank.run("call", "deposit", "--key", "alice", "--arg", f"amount={amount}").stdout)


def reign(bank: Bank, amount: int) -> int:
    """Start, put money in, stop in order; gives the balance."""
    bank.up()
    balance = deposit(bank, amount)
    bank.down()
    return balance


def change_code(bank: Bank) -> None:
    """Make a deposit count double from now on."""
    source = bank.folder / "service.py"
    source.write_text(source.read_text().replace("account.balance += amount", "account.balance += 2 * amount"))


WAITS = """

@bank.handler
async def wait_for_word(account: Account, ctx: Context) -> int:
    return account.balance + await ctx.promise(int)


@bank.handler
def bonus(account: Account, ctx: Context) -> int:
    account.balance += 1000
    return account.balance
"""


@contextmanager
def etcd() -> Iterator[tuple[FakeStore, str]]:
    """A stand-in for etcd in a thread of its own; gives its keys and the line of the manifest."""
    started, stop = threading.Event(), threading.Event()
    store = FakeStore()
    urls: list[str] = []

    async def serve() -> None:
        async with FakeMember(store) as member:
            urls.append(member.url)
            started.set()
            await asyncio.to_thread(stop.wait)

    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    started.wait()
    try:
        yield store, f"  lock: {{type: etcd, etcd: {{endpoints: ['{urls[0]}']}}}}\n"
    finally:
        stop.set()
        thread.join()


def test_nothing_to_adopt_is_said(tmp_path: Path) -> None:
    with Bank(tmp_path, replicas=1) as bank:
        bank.run("adopt", "--yes", code=InvalidArgument.exit_code)
        assert reign(bank, 5) == 5
        assert bank.run("adopt", "--yes").stdout == "nothing differs: there is nothing to adopt\n"
        assert not (bank.directory / "adopted.json").exists()


def test_running_service_is_not_adopted(tmp_path: Path) -> None:
    with Bank(tmp_path, replicas=1) as bank:
        bank.up()
        assert "replica r0 is running" in bank.run("adopt", "--yes", code=OtherSupervisor.exit_code).stderr


def test_other_code_goes_on_where_a_checkpoint_stands_at_the_end(tmp_path: Path) -> None:
    with Bank(tmp_path) as bank:
        assert reign(bank, 5) == 5
        change_code(bank)
        bank.run("up", "service.yaml", code=78)
        assert "nobody to ask" in bank.run("adopt", "--code", code=InvalidArgument.exit_code).stderr
        assert "written by other code" in bank.run("adopt", "--code", "--dry-run").stdout
        bank.run("up", "service.yaml", code=78)
        assert bank.json("adopt", "--code", "--yes")["adopted"] is True
        assert reign(bank, 5) == 15
        report = bank.json("log", "verify")
        assert report["problems"] == []
        assert report["executedFrom"] > 0
        assert reign(bank, 1) == 17


def test_handler_that_other_code_lacks_is_held_with_its_key_until_the_code_is_back(tmp_path: Path) -> None:
    with Bank(tmp_path, replicas=1) as bank:
        source = bank.folder / "service.py"
        without = source.read_text()
        source.write_text(without + WAITS)
        bank.up()
        assert deposit(bank, 5) == 5
        bank.start("call", "wait_for_word", "--key", "alice")
        wait_until(lambda: bank.json("invocations", "list")["count"] == 1, "the handler waits")
        bank.start("call", "bonus", "--key", "alice")
        wait_until(lambda: bank.json("invocations", "list")["count"] == 2, "the message waits")
        bank.down()

        source.write_text(without)
        assert bank.json("adopt", "--code", "--yes")["adopted"] is True
        bank.up()
        assert int(bank.run("call", "deposit", "--key", "bob", "--arg", "amount=7").stdout) == 7
        held, waiting = bank.json("invocations", "list")["invocations"]
        assert held["misfit"].startswith("HandlerGone: wait_for_word (lsn ")
        assert waiting["misfit"] == ""
        assert "held, HandlerGone: wait_for_word" in bank.run("invocations", "list").stdout
        bank.down()
        bank.up()  # from a checkpoint of this code
        assert bank.json("invocations", "list")["invocations"][0]["misfit"] == held["misfit"]
        bank.down()

        source.write_text(without + WAITS)
        assert bank.json("adopt", "--code", "--yes")["adopted"] is True
        bank.up()
        assert [one["misfit"] for one in bank.json("invocations", "list")["invocations"]] == ["", ""]
        bank.run("invocations", "resume", str(held["invocation"]), "--value", "37")
        assert bank.json("invocations", "wait", str(held["invocation"]))["result"] == 42
        assert bank.json("invocations", "wait", str(waiting["invocation"]))["result"] == 1005


def test_message_whose_handler_other_code_lacks_is_answered_when_its_turn_comes(tmp_path: Path) -> None:
    with Bank(tmp_path, replicas=1) as bank:
        source = bank.folder / "service.py"
        without = source.read_text()
        source.write_text(without + WAITS)
        bank.up()
        bank.start("call", "wait_for_word", "--key", "alice")
        wait_until(lambda: bank.json("invocations", "list")["count"] == 1, "the handler waits")
        bank.start("call", "bonus", "--key", "alice")
        wait_until(lambda: bank.json("invocations", "list")["count"] == 2, "the message waits")
        bank.down()

        source.write_text(without)
        assert bank.json("adopt", "--code", "--yes")["adopted"] is True
        bank.up()
        held, waiting = (str(one["invocation"]) for one in bank.json("invocations", "list")["invocations"])
        bank.run("invocations", "cancel", held)
        assert "DL3019" in bank.run("invocations", "wait", held, code=None).stderr
        assert "DL3024" in bank.run("invocations", "wait", waiting, code=None).stderr
        assert deposit(bank, 5) == 5
        bank.down()
        assert bank.json("log", "verify")["problems"] == []


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ("    balance: int = 0", "    saldo: int = 0", "FieldDropped: Account.balance (int)"),
        ("    balance: int = 0", "    balance: str = ''", "FieldTypeChanged: Account.balance"),
        (
            'Service("bank", state=Account)',
            'Service("bank", state=Account, version=2)',
            "nothing is migrated by adopting",
        ),
    ],
    ids=["renamed field", "other type", "other version"],
)
def test_code_that_would_lose_what_is_stored_is_not_adopted(before: str, after: str, said: str, tmp_path: Path) -> None:
    with Bank(tmp_path, replicas=1) as bank:
        assert reign(bank, 5) == 5
        source = bank.folder / "service.py"
        text = source.read_text()
        assert before in text
        source.write_text(text.replace(before, after).replace(".balance", ".saldo" if "saldo" in after else ".balance"))
        files = {path: path.read_bytes() for path in bank.directory.rglob("adopted.json")}
        done = bank.run("adopt", "--code", "--yes", code=UpgradeRefused.exit_code)
        assert said in done.stderr
        assert "up --kept-code" in done.stderr
        assert {path: path.read_bytes() for path in bank.directory.rglob("adopted.json")} == files
        source.write_text(text)
        assert reign(bank, 1) == 6


def test_other_code_is_not_adopted_without_that_checkpoint(tmp_path: Path) -> None:
    with Bank(tmp_path, replicas=1) as bank:
        assert reign(bank, 5) == 5
        for path in (bank.directory / "checkpoints").glob("*.ckpt*"):
            path.unlink()
        change_code(bank)
        done = bank.run("adopt", "--code", "--yes", code=InvalidArgument.exit_code)
        assert "only the code that wrote" in done.stderr


def test_same_code_needs_no_adoption(tmp_path: Path) -> None:
    with Bank(tmp_path, replicas=1) as bank:
        assert reign(bank, 5) == 5
        bank.run("adopt", "--code", "--yes", code=InvalidArgument.exit_code)


def test_service_moves_from_the_directory_lock_to_etcd(tmp_path: Path) -> None:
    with etcd() as (_, lock), Bank(tmp_path) as bank:
        assert reign(bank, 5) == 5
        assert reign(bank, 1) == 6
        bank.write_manifest(3, lock)
        done = bank.run("up", "service.yaml", code=HalfCopy.exit_code)
        assert "error DL4007" in done.stderr
        told = bank.json("adopt", "--yes")
        assert len(told["differences"]) >= 2
        assert reign(bank, 1) == 7
        assert reign(bank, 1) == 8
        assert bank.json("log", "verify")["problems"] == []
        bank.write_manifest(3)
        assert bank.run("up", "service.yaml", code=ForeignDirectory.exit_code).stderr.startswith("error DL4005")


def test_etcd_restored_from_a_backup_is_brought_up_to_the_log(tmp_path: Path) -> None:
    with etcd() as (store, lock), Bank(tmp_path, more=lock) as bank:
        assert reign(bank, 5) == 5
        backup = store.snapshot()
        assert reign(bank, 1) == 6
        assert reign(bank, 1) == 7
        store.restore(backup)
        done = bank.run("up", "service.yaml", code=StoreOlderThanLog.exit_code)
        assert "error DL4006" in done.stderr
        assert "store is older than the log" in bank.run("adopt", "--dry-run").stdout
        bank.run("adopt", "--yes")
        assert reign(bank, 1) == 8
        assert bank.json("log", "verify")["problems"] == []


def test_lost_etcd_is_restored_from_the_directory_but_not_without_the_seeds(tmp_path: Path) -> None:
    with etcd() as (store, lock), Bank(tmp_path, more=lock) as bank:
        empty = store.snapshot()
        assert reign(bank, 5) == 5
        store.restore(empty)
        assert "the lock store knows no service" in bank.run("adopt", "--yes", "--json").stdout
        assert reign(bank, 1) == 6
        store.restore(empty)
        (bank.directory / "service.json").unlink()
        done = bank.run("adopt", "--yes", code=HalfCopy.exit_code)
        assert "restore the lock store from a backup" in done.stderr
