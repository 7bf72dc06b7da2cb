"""A lock store with settings is its own module: manifest, CRD and config have them as soon as it is registered."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from deathless.base.config import ReplicaConfig
from deathless.base.errors import InvalidArgument
from deathless.base.lock_stores import STORE, LockStore, register, with_fields
from deathless.base.lock_stores.settings import LockSettings
from deathless.base.manifest_fields import Part

ROOT = Path(__file__).resolve().parents[5]
MANIFEST = """\
apiVersion: deathless.dev/v1alpha1
kind: DeathlessService
metadata: {name: bank}
spec:
  module: bank:service
  lock: LOCK
"""
BEGIN = """\
import asyncio, json, sys, tests.samples.folder_lock_store
import msgspec
from deathless.base.config import ReplicaConfig
from deathless.base.errors import InvalidArgument
from deathless.base.errors import DeathlessError
from deathless.base.manifest import replica_configs
from deathless.shell.operate.manifest_file import read_manifest
folder = sys.argv[1]
"""
READ = (
    BEGIN
    + """\
try:
    found = read_manifest(folder + "/service.yaml")
    config = replica_configs(found.manifest, module="m:a", directory=folder + "/data", token="")[0]
    told = {"config": msgspec.to_builtins(config), "notes": found.notes}
except DeathlessError as error:
    told = {"error": str(error)}
print(json.dumps(told))
"""
)
OPEN = (
    BEGIN
    + """\
from deathless.shell.directory.identity import prepare
from deathless.shell.disk.filesystem import RealFileSystem
from deathless.shell.lock_stores.inspection import inspect
from deathless.shell.lock_stores.opening import open_lock

manifest = read_manifest(folder + "/service.yaml").manifest
made = replica_configs(manifest, module="m:a", directory=folder + "/data", token="")[0]
config = msgspec.json.decode(msgspec.json.encode(made), type=ReplicaConfig)

async def use():
    record = await prepare(config)
    async with open_lock(config, RealFileSystem(config.directory), "worker") as lock:
        holder = await lock.take("r0", b"n" * 16, await lock.view())
        owns = await lock.owns(holder)
    return {"fence": record.fence, "owns": owns, "holder": (await inspect(config)).view.holder.replica}

print(json.dumps(asyncio.run(use())))
"""
)
ERASE = (
    BEGIN
    + """\
import contextlib, io
from deathless.cli.main import main

said = io.StringIO()
with contextlib.redirect_stderr(said):
    code = main(["erase", "--yes", "-f", folder + "/service.yaml"])
print(json.dumps({"code": code, "said": said.getvalue()}))
"""
)
CLUSTER = """\
import json, tests.samples.folder_lock_store
from deathless_operator.model.crd import SERVICE, make_schema
from deathless_operator.model.service import read_spec

def problems(lock):
    return read_spec({"spec": {"module": "m:a", "image": "i", "logStorage": {"size": "9Gi"}, "lock": lock}})[1]

spec = make_schema(SERVICE)["properties"]["spec"]
print(json.dumps({
    "lock": spec["properties"]["lock"]["properties"],
    "rules": {rule["rule"]: rule["message"] for rule in spec["x-kubernetes-validations"]},
    "named": problems({"type": "folder", "folder": {"path": "/x"}}),
    "given": problems({"folder": {"path": "/x"}}),
}))
"""


def told_by(program: str, folder: Path, lock: str = "") -> dict[str, Any]:
    """What a process of its own printed, in which the store was registered first."""
    (folder / "service.yaml").write_text(MANIFEST.replace("LOCK", lock))
    command = [sys.executable, "-c", program, str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_settings_reach_the_config_of_a_replica(tmp_path: Path) -> None:
    (tmp_path / "key").touch()
    told = told_by(READ, tmp_path, "{type: folder, folder: {path: /x, keyFile: key, depthMax: 2}}")
    assert (told["config"]["lock"], told["config"]["fence"]) == ("folder", STORE)
    assert told["config"]["folder"] == {"path": "/x/locks", "keyFile": f"{tmp_path}/key"}
    assert told["config"]["etcd"] is None
    assert told["notes"] == ["spec.lock.folder.depthMax has no effect on this machine"]


@pytest.mark.parametrize(
    ("lock", "wrong"),
    [
        ("{type: folder, folder: {path: /x, paht: /y}}", "spec.lock.folder.paht: is no field here; did you mean path?"),
        ("{type: folder, folder: {path: /, depthMax: 10}}", "spec.lock.folder.depthMax: is the number 10; write"),
        ("{type: folder, folder: {}}", "spec.lock.folder: path is missing; add path: a text"),
        ("{type: folder}", "spec.lock: folder is missing; add folder, and there add path: a text"),
        ("{type: folder, folder: {path: x}}", "spec.lock.folder.path: is relative; begin it with a /"),
        ("{type: folder, folder: {path: /x, keyFile: k}}", "spec.lock.folder.keyFile: there is no file"),
        ("{type: etcd, folder: {path: /x}}", "spec.lock.folder: is given, but lock.type is etcd; write type: folder"),
        ("{type: folder, folder: {path: /x}, etcd: {}}", "spec.lock.etcd: is given, but lock.type is folder"),
        ("{type: fodler}", "write one of directory, etcd, folder"),
    ],
)
def test_mistake_in_settings_is_told_by_its_field(lock: str, wrong: str, tmp_path: Path) -> None:
    assert wrong in told_by(READ, tmp_path, lock)["error"]


def test_settings_without_a_type_have_no_effect(tmp_path: Path) -> None:
    told = told_by(READ, tmp_path, "{folder: {path: /x}}")
    assert told["config"]["lock"] == "directory" and told["config"]["folder"] is None
    assert told["notes"] == ["spec.lock.folder has no effect on this machine"]


def test_opener_is_told_the_settings(tmp_path: Path) -> None:
    (tmp_path / "locks").mkdir()
    told = told_by(OPEN, tmp_path, f"{{type: folder, folder: {{path: {tmp_path}}}}}")
    assert told == {"fence": STORE, "owns": True, "holder": "r0"}
    assert (tmp_path / "locks" / "lock" / "epoch.1").exists()


def test_store_that_can_not_be_erased_by_command_is_told_and_not_taken_for_another(tmp_path: Path) -> None:
    told = told_by(ERASE, tmp_path, "{type: folder, folder: {path: /x}}")
    assert told["code"] == InvalidArgument.exit_code
    assert "lock folder is not erased by this command" in told["said"]


def test_definition_of_the_resource_has_the_settings_and_a_cluster_refuses_them(tmp_path: Path) -> None:
    told = told_by(CLUSTER, tmp_path)
    folder = told["lock"]["folder"]
    assert told["lock"]["type"]["enum"] == ["directory", "etcd", "folder"]
    assert (folder["description"], folder["required"]) == ("Which folder has the locks.", ["path"])
    assert folder["properties"]["keyFile"]["description"] == "File with a key; if empty, none."
    assert (folder["properties"]["depthMax"]["maximum"], folder["nullable"]) == (9, True)
    assert told["rules"]["!has(self.lock) || self.lock.folder.path != ''"] == "path is empty"
    assert "lock.folder is for one machine" in told["rules"]["!(has(self.lock) && has(self.lock.folder))"]
    assert told["named"] == ["spec.lock.type: is folder; a cluster elects through etcd"]
    assert told["given"] == ["spec.lock.folder: is given, but lock.type is etcd; write type: folder"]


def test_store_that_leaves_all_out_needs_nothing() -> None:
    empty = LockSettings()
    assert empty.config() is empty and empty.with_files(lambda at, named, what: named) is empty
    assert (empty.problems(), empty.ignored_locally(), empty.cluster_problems(), empty.secrets()) == ([], (), [], ())


def test_registration_that_could_give_no_field_is_refused() -> None:
    with pytest.raises(AssertionError, match="name of a field"):
        register(LockStore(name="far-away", fence=STORE, in_directory=False, opener="m:f", looker="m:f"))
    with pytest.raises(AssertionError, match="makes its config from settings"):
        register(LockStore(name="far", fence=STORE, in_directory=False, opener="m:f", looker="m:f", config=Part))
    assert ReplicaConfig.__struct_fields__, "it is loaded"
    with pytest.raises(AssertionError, match="is made, without its field"):
        register(LockStore(name="late", fence=STORE, in_directory=False, opener="m:f", looker="m:f", settings="m:S"))

    class Taken(Part, frozen=True):
        tls: str = ""

    with pytest.raises(AssertionError, match="can't be called tls"):
        with_fields(Taken, {"tls": int})
