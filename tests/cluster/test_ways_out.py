"""The ways out that conditions and pages prescribe, walked as they are written, on a real cluster."""

from __future__ import annotations

import shutil

import pytest
from lab.cluster.machine import run
from tests.cluster.installed import NAMESPACE, OTHER_IMAGE, Lab, Ledger
from tests.cluster.pages import block, walk
from tests.cluster.under_load import called, wait_pods

pytestmark = [pytest.mark.cluster, pytest.mark.usefixtures("deathless")]

CONDITIONS = "runbooks/conditions.md"
LOCK_STORE = "kubernetes/lock-store.md"


def etcdctl(cluster: Lab, *words: str) -> str:
    """Ask a member of the lock store, as the pages do."""
    return cluster.kubectl("-n", NAMESPACE, "exec", "deathless-lock-store-0", "--", "etcdctl", *words)


def test_health_of_the_lock_store_is_shown(cluster: Lab) -> None:
    said = walk(cluster, block(LOCK_STORE, "Health"))
    assert said.count("is healthy") == 3


def test_log_whose_lock_store_forgot_it_is_adopted(cluster: Lab) -> None:
    with Ledger(cluster, "forgotten") as ledger:
        with called(ledger):
            ledger.wait_ready()
        ledger.apply(suspend=True)
        wait_pods(ledger, 0)
        etcdctl(cluster, "del", "--prefix", f"/deathless/{ledger.namespace}/ledger/")
        ledger.apply(suspend=False)
        ledger.wait_condition("StorageReady", "False", "HalfCopy")
        walk(cluster, block(CONDITIONS, "StoreOlderThanLog"), NS=ledger.namespace, SERVICE=ledger.name)
        ledger.wait_ready()


def test_other_code_is_adopted_where_the_old_one_stopped(cluster: Lab) -> None:
    with Ledger(cluster, "adopted", upgradePolicy="Manual") as ledger:
        with called(ledger):
            ledger.wait_ready()
        ledger.apply(image=OTHER_IMAGE)
        ledger.wait_told("Ready", "False", "OtherFingerprint")
        walk(cluster, block(CONDITIONS, "OtherFingerprint"), NS=ledger.namespace, SERVICE=ledger.name)
        ledger.wait_ready()
        assert ledger.get()["status"]["image"] == OTHER_IMAGE


def test_log_that_was_put_back_from_a_backup_is_adopted(cluster: Lab) -> None:
    with Ledger(cluster, "backup") as ledger:
        folder = cluster.shared_folder(ledger.volume)
        with called(ledger):
            ledger.wait_ready()
        ledger.apply(suspend=True)
        wait_pods(ledger, 0)
        copy = folder.with_name(f"{folder.name}-copy")
        run("cp", "-a", folder, copy)  # with owners, as a snapshot has them
        try:
            ledger.apply(suspend=False)
            ledger.wait_ready()
            with called(ledger) as callers:
                callers.wait_more()
            ledger.apply(suspend=True)
            wait_pods(ledger, 0)
            for path in list(folder.iterdir()):
                shutil.rmtree(path) if path.is_dir() else path.unlink()
            run("cp", "-a", f"{copy}/.", folder)
            ledger.apply(suspend=False)
            ledger.wait_condition("StorageReady", "False", "LogTruncated")
            walk(cluster, block(CONDITIONS, "LogTruncated"), NS=ledger.namespace, SERVICE=ledger.name)
            ledger.wait_told("Ready", "False", "OutsideHeld")
            walk(cluster, block(CONDITIONS, "OutsideHeld"), NS=ledger.namespace, SERVICE=ledger.name)
            ledger.wait_ready()
        finally:
            shutil.rmtree(copy, ignore_errors=True)
