"""A lock store that is registered is accepted by manifest and CRD, and opened like any; nothing else is touched."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from deathless.base.errors import InvalidConfig
from deathless.base.lock_stores import LOCK_STORES, SEAL, STORE, LockStore, lock_store, register

ROOT = Path(__file__).resolve().parents[4]
MANIFEST = """\
apiVersion: deathless.dev/v1alpha1
kind: DeathlessService
metadata: {name: bank}
spec:
  module: bank:service
  lock: {type: toy}
"""
USE = """\
import asyncio, json, sys, tests.samples.toy_lock_store
from deathless.base.manifest import fence_of, replica_configs
from deathless.shell.directory.identity import prepare
from deathless.shell.lock_stores.inspection import inspect
from deathless.shell.lock_stores.opening import open_lock
from deathless.shell.disk.filesystem import RealFileSystem
from deathless.shell.operate.manifest_file import read_manifest
from deathless_operator.model.crd import DEFINITIONS, make_crd

folder = sys.argv[1]
manifest = read_manifest(folder + "/service.yaml").manifest
config = replica_configs(manifest, module="m:a", directory=folder + "/data", token="")[0]

async def use():
    record = await prepare(config)
    async with open_lock(config, RealFileSystem(config.directory), "worker") as lock:
        holder = await lock.take("r0", b"n" * 16, await lock.view())
        await lock.set_head(holder)
        owns = await lock.owns(holder)
    seen = (await inspect(config)).view
    return {"fence": record.fence, "owns": owns, "epoch": seen.epoch, "head": seen.head, "holder": seen.holder.replica}

told = asyncio.run(use())
told["lock"] = config.lock
told["crd"] = [json.dumps(make_crd(each)) for each in DEFINITIONS if each.kind == "DeathlessService"]
print(json.dumps(told))
"""


def used(folder: Path, program: str) -> dict[str, Any]:
    """What a process of its own printed, in which the toy store was registered first."""
    done = subprocess.run(
        [sys.executable, "-c", program, str(folder)], cwd=ROOT, capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_a_service_is_prepared_taken_and_looked_at_on_a_lock_store_that_was_only_registered(tmp_path: Path) -> None:
    (tmp_path / "service.yaml").write_text(MANIFEST)
    told = used(tmp_path, USE)
    assert (told["lock"], told["fence"]) == ("toy", STORE)
    assert (told["owns"], told["epoch"], told["head"], told["holder"]) == (True, 1, 1, "r0")
    assert '["directory", "etcd", "toy"]' in told["crd"][0]


def test_stores_there_are_and_their_fences() -> None:
    assert {name: (store.fence, store.in_directory) for name, store in LOCK_STORES.items()} == {
        "directory": (SEAL, True),
        "etcd": (STORE, False),
    }


def test_unknown_store_is_told_with_those_there_are() -> None:
    with pytest.raises(InvalidConfig, match="'toy' is not directory or etcd"):
        lock_store("toy")


def test_seals_are_no_fence_of_a_store_elsewhere_and_names_are_given_once() -> None:
    with pytest.raises(AssertionError, match="seals"):
        register(LockStore(name="far", fence=SEAL, in_directory=False, opener="m:f", looker="m:f"))
    with pytest.raises(AssertionError, match="etcd"):
        register(LOCK_STORES["etcd"])
    assert [*LOCK_STORES] == ["directory", "etcd"]
