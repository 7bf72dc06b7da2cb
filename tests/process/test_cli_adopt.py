"""`deathless adopt`: what refuses to start goes on after an operator's word, and nothing is lost by it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from cli_tool import Bank
from etcd_fake import FakeMember, FakeStore

from deathless.base.errors import (
    ForeignDirectory,
    HalfCopy,
    InvalidArgument,
    OtherSupervisor,
    StoreOlderThanLog,
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
