"""What a replica refuses to start with: a clear error, a fitting exit code, nothing touched."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from replica_set import DEADLINE_S, Load, ReplicaSet, check_exactly_once, wait_for

from deathless.base import errors
from deathless.codec.frames import BLOCK, parse_segment_name


def run_supervisor(replicas: ReplicaSet, name: str, **changes: object) -> subprocess.CompletedProcess[bytes]:
    """Run one supervisor to its end."""
    config = msgspec.structs.replace(replicas.config(name), **changes)
    path = replicas.folder / f"{name}.other.json"
    path.write_bytes(msgspec.json.encode(config))
    command = [sys.executable, "-m", "deathless.shell.supervisor.supervisor", str(path)]
    return subprocess.run(command, capture_output=True, timeout=DEADLINE_S, check=False)


def assert_refused(done: subprocess.CompletedProcess[bytes], error: type[errors.DeathlessError], *words: str) -> None:
    """The exit code and the code are the error's, and the text names what is wrong."""
    text = done.stderr.decode()
    assert done.returncode == error.exit_code, text
    assert error.code in text
    for word in words:
        assert word in text
    assert "Traceback" not in text


def condition_of(replicas: ReplicaSet, name: str, code: str) -> None:
    """Wait until a replica tells that it stays stopped for this reason."""
    wait_for(lambda: replicas.status().get(name, {}).get("condition") == code, f"condition {code}", replicas.describe)


def test_second_supervisor_of_a_replica_is_refused(tmp_path: Path) -> None:
    with ReplicaSet(tmp_path, replicas=1) as replicas:
        replicas.primary()
        assert_refused(run_supervisor(replicas, "r0"), errors.OtherSupervisor, str(replicas.processes["r0"].pid))


def test_directory_of_another_service_is_refused(tmp_path: Path) -> None:
    with ReplicaSet(tmp_path, replicas=1) as replicas:
        replicas.primary()
        done = run_supervisor(replicas, "r1", service="other")
        assert_refused(done, errors.ForeignDirectory, "'ledger'", "'other'")


def test_other_fence_is_refused_until_adopted(tmp_path: Path) -> None:
    with ReplicaSet(tmp_path, replicas=1) as replicas:
        replicas.primary()
        assert_refused(run_supervisor(replicas, "r1", fence="etcd"), errors.ForeignDirectory, "adopt")


def test_port_that_is_taken_is_named(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        done = run_supervisor(ReplicaSet(tmp_path, replicas=1), "r0", control_listen=address)
    assert_refused(done, errors.PortTaken, address)


@pytest.mark.parametrize(
    ("field", "value"), [("control_listen", "nowhere"), ("limits", {"frame_bytes_max": -1}), ("log_level", "loud")]
)
def test_setting_out_of_range_is_named(tmp_path: Path, field: str, value: object) -> None:
    replicas = ReplicaSet(tmp_path, replicas=1)
    done = run_supervisor(replicas, "r0", **{field: value})
    assert_refused(done, errors.InvalidConfig)


def test_half_a_copy_is_no_first_start(tmp_path: Path) -> None:
    with ReplicaSet(tmp_path, replicas=1) as replicas:
        with Load(replicas) as load:
            load.wait_more()
        replicas.stop()
        shutil.rmtree(replicas.directory / "lock")
        assert_refused(run_supervisor(replicas, "r0"), errors.HalfCopy)


def test_missing_log_is_an_error_not_an_empty_service(tmp_path: Path) -> None:
    with ReplicaSet(tmp_path, replicas=1) as replicas:
        with Load(replicas) as load:
            load.wait_more()
        replicas.stop()
        shutil.rmtree(replicas.directory / "log")
        shutil.rmtree(replicas.directory / "checkpoints")
        replicas.start("r0")
        condition_of(replicas, "r0", errors.LogTruncated.code)


def test_one_flipped_bit_in_the_middle_of_the_log_is_named(tmp_path: Path) -> None:
    with ReplicaSet(tmp_path, replicas=1) as replicas:
        with Load(replicas) as load:
            load.wait_more()
        replicas.stop()
        shutil.rmtree(replicas.directory / "checkpoints")
        segment = next(p for p in sorted((replicas.directory / "log").iterdir()) if parse_segment_name(p.name))
        data = bytearray(segment.read_bytes())
        data[3 * BLOCK + 200] ^= 1
        segment.write_bytes(data)
        replicas.start("r0")
        condition_of(replicas, "r0", errors.CorruptFrame.code)
        assert segment.name in (tmp_path / "r0.log").read_text()


def test_service_that_can_not_be_imported_is_named(tmp_path: Path) -> None:
    module = tmp_path / "broken.py"
    module.write_text("import nowhere_at_all\n")
    with ReplicaSet(tmp_path, replicas=1, module=f"{module}:ledger") as replicas:
        condition_of(replicas, "r0", errors.InvalidService.code)
        assert "nowhere_at_all" in (tmp_path / "r0.log").read_text()


def test_changed_code_is_refused_instead_of_replayed(tmp_path: Path) -> None:
    module = tmp_path / "ledger.py"
    shutil.copy(Path(__file__).with_name("ledger.py"), module)
    with ReplicaSet(tmp_path, replicas=1, module=f"{module}:ledger") as replicas:
        with Load(replicas) as load:
            load.wait_more()
        replicas.stop()
        module.write_text(module.read_text().replace("notes.tags.append(tag)", "notes.tags.insert(0, tag)"))
        replicas.start("r0")
        condition_of(replicas, "r0", errors.UpgradeRequired.code)


def test_i6_replica_with_other_limits_of_what_is_replicated_is_refused(tmp_path: Path) -> None:
    with ReplicaSet(tmp_path, replicas=1) as replicas:
        replicas.primary()
        replicas._settings["limits"] = {"sessions_max": 50}
        replicas.start("r1")
        condition_of(replicas, "r1", errors.UpgradeRequired.code)
        replicas._settings["limits"] = {"connections_max": 50}
        replicas.start("r2")
        wait_for(lambda: replicas.status().get("r2", {}).get("role") == "checkpointer", "r2", replicas.describe)


@pytest.mark.parametrize("after", ["at once", "as a primary", "under load"])
def test_sigterm_at_any_time_ends_in_order_and_keeps_the_state(tmp_path: Path, after: str) -> None:
    with ReplicaSet(tmp_path) as replicas:
        if after == "at once":
            wait_for((tmp_path / "data" / "replicas").exists, "a start")
            assert set(replicas.stop().values()) <= {0, -signal.SIGTERM}
            for name in replicas.names:
                replicas.start(name)
        replicas.primary()
        with Load(replicas) as load:
            load.wait_more()
            if after != "at once":
                name = replicas.primary()
                os.kill(replicas.processes[name].pid, signal.SIGTERM)
                assert replicas.processes[name].wait(DEADLINE_S) == 0
                replicas.primary(besides=name)
                load.wait_more()
        check_exactly_once(load, replicas)
