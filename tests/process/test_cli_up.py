"""`deathless up` and `down`: its death kills nothing, a later one finds everything, stopping is orderly."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
from pathlib import Path

from cli_tool import Bank, read_until
from replica_set import DEADLINE_S, wait_for

from deathless.base.errors import InvalidConfig, InvalidManifest, OtherSupervisor, PortTaken, UpgradeRequired


def deposit(bank: Bank, amount: int) -> int:
    """Put money into one account; gives its balance."""
    return int(bank.run("call", "deposit", "--key", "alice", "--arg", f"amount={amount}").stdout)


def test_state_is_there_after_an_orderly_stop_and_a_new_start(tmp_path: Path) -> None:
    with Bank(tmp_path) as bank:
        up = bank.start("up", "service.yaml")
        read_until(up, "is primary")
        assert deposit(bank, 5) == 5
        up.send_signal(signal.SIGINT)
        output, errors = up.communicate(timeout=DEADLINE_S)
        assert (up.returncode, errors) == (0, "")
        assert output.count("stopped (process") == 3
        assert bank.supervisors() == {}
        bank.up()
        assert deposit(bank, 1) == 6
        bank.down()
        assert bank.supervisors() == {}


def test_killing_up_kills_nothing_and_a_new_one_finds_the_replicas(tmp_path: Path) -> None:
    with Bank(tmp_path) as bank:
        up = bank.start("up", "service.yaml")
        read_until(up, "is primary")
        before = bank.supervisors()
        up.kill()
        up.wait(DEADLINE_S)
        assert deposit(bank, 5) == 5
        again = bank.start("up", "service.yaml", "--json")
        found = [json.loads(line) for line in read_until(again, "status")]
        assert {each["replica"]: each["pid"] for each in found if each["event"] == "found running"} == before
        assert bank.supervisors() == before
        again.terminate()
        again.communicate(timeout=DEADLINE_S)
        assert again.returncode == 0
        assert bank.supervisors() == {}


def test_interrupting_an_up_that_found_the_replicas_leaves_them_and_says_so(tmp_path: Path) -> None:
    with Bank(tmp_path, replicas=2) as bank:
        bank.up()
        before = bank.supervisors()
        looker = bank.start("up", "service.yaml")
        told = read_until(looker, "is primary")
        assert any("Ctrl-C leaves them running, `deathless down` stops them" in line for line in told)
        looker.send_signal(signal.SIGINT)
        output, errors = looker.communicate(timeout=DEADLINE_S)
        assert (looker.returncode, errors) == (0, "")
        assert output.count("left running (process") == 2
        assert bank.supervisors() == before
        assert deposit(bank, 5) == 5
        bank.down()
        assert bank.supervisors() == {}


def test_detached_up_returns_when_http_listens_too(tmp_path: Path) -> None:
    with Bank(tmp_path, replicas=2, more="  ingress: {port: 0}\n") as bank:
        bank.up()
        doors = [bank.directory / "replicas" / name / "ingress.address" for name in ("r0", "r1")]
        for door in doors:
            host, port = door.read_text().strip().rsplit(":", 1)
            socket.create_connection((host, int(port))).close()


def test_dead_supervisor_is_started_again(tmp_path: Path) -> None:
    with Bank(tmp_path) as bank:
        up = bank.start("up", "service.yaml")
        read_until(up, "is primary")
        before = bank.supervisors()
        os.kill(before["r1"], signal.SIGKILL)
        read_until(up, "r1  ended")
        wait_for(lambda: bank.supervisors().get("r1", before["r1"]) != before["r1"], "a new supervisor")
        assert deposit(bank, 5) == 5
        assert {name: pid for name, pid in bank.supervisors().items() if name != "r1"} == {
            name: pid for name, pid in before.items() if name != "r1"
        }


def test_second_interruption_ends_everything_at_once_and_loses_nothing(tmp_path: Path) -> None:
    with Bank(tmp_path) as bank:
        up = bank.start("up", "service.yaml")
        read_until(up, "is primary")
        assert deposit(bank, 5) == 5
        for pid in bank.supervisors().values():
            os.kill(pid, signal.SIGSTOP)
        up.send_signal(signal.SIGINT)
        read_until(up, "stopping")
        up.send_signal(signal.SIGINT)
        up.communicate(timeout=DEADLINE_S)
        assert bank.supervisors() == {}
        bank.up()
        assert deposit(bank, 1) == 6


def test_hang_up_of_the_terminal_leaves_the_service_running(tmp_path: Path) -> None:
    with Bank(tmp_path, replicas=1) as bank:
        up = bank.start("up", "service.yaml")
        read_until(up, "is primary")
        up.send_signal(signal.SIGHUP)
        up.communicate(timeout=DEADLINE_S)
        assert up.returncode == 0
        assert list(bank.supervisors()) == ["r0"]
        assert deposit(bank, 5) == 5


def test_reader_that_leaves_does_not_stop_the_service(tmp_path: Path) -> None:
    with Bank(tmp_path, replicas=1) as bank:
        up = bank.start("up", "service.yaml", "--logs", "debug")
        read_until(up, "started (process")
        assert up.stdout is not None
        up.stdout.close()
        wait_for(lambda: bank.json("status", code=None)["primary"], "a primary")
        assert deposit(bank, 5) == 5
        assert up.poll() is None


def test_pipe_that_nobody_reads_does_not_stop_who_looks_after_the_replicas(tmp_path: Path) -> None:
    with Bank(tmp_path) as bank:
        up = bank.start("up", "service.yaml", "--json")
        wait_for(lambda: bank.json("status", code=None)["primary"], "a primary")
        pipe = os.open(f"/proc/{up.pid}/fd/1", os.O_WRONLY | os.O_NONBLOCK)
        with contextlib.suppress(BlockingIOError):
            while True:
                os.write(pipe, b"\n" * 512)
        os.close(pipe)
        for _ in range(2):
            before = bank.supervisors()
            os.kill(before["r1"], signal.SIGKILL)
            wait_for(lambda: bank.supervisors().get("r1", before["r1"]) != before["r1"], "a new supervisor")  # noqa: B023
        assert up.stdout is not None
        with contextlib.suppress(BlockingIOError):
            os.set_blocking(up.stdout.fileno(), False)
            while os.read(up.stdout.fileno(), 65536):
                pass
        os.set_blocking(up.stdout.fileno(), True)
        os.kill(bank.supervisors()["r1"], signal.SIGKILL)
        assert json.loads(read_until(up, '"dropped"')[-1])["bytes"] > 0


def test_taken_port_is_told_and_nothing_is_started(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with Bank(tmp_path, replicas=1, more=f"  ingress: {{port: {port}}}\n") as bank:
            done = bank.run("up", "service.yaml", code=PortTaken.exit_code)
            assert "error DL3011 PortTaken" in done.stderr
            assert bank.supervisors() == {}


def test_second_up_is_refused_and_names_the_first(tmp_path: Path) -> None:
    with Bank(tmp_path, replicas=1) as bank:
        up = bank.start("up", "service.yaml")
        read_until(up, "is primary")
        done = bank.run("up", "service.yaml", code=OtherSupervisor.exit_code)
        assert "error DL2002" in done.stderr
        assert str(up.pid) in done.stderr


def test_down_stops_an_up_in_the_foreground_as_well(tmp_path: Path) -> None:
    with Bank(tmp_path, replicas=1) as bank:
        up = bank.start("up", "service.yaml")
        read_until(up, "is primary")
        bank.down()
        up.communicate(timeout=DEADLINE_S)
        assert (up.returncode, bank.supervisors()) == (0, {})
        assert "nothing runs" in bank.run("down").stdout


def test_changed_code_is_refused_with_the_reason_and_its_exit_code(tmp_path: Path) -> None:
    with Bank(tmp_path) as bank:
        bank.up()
        deposit(bank, 5)
        bank.down()
        with (bank.folder / "service.py").open("a") as file:
            file.write("\nCHANGED = True\n")
        done = bank.run("up", "service.yaml", code=UpgradeRequired.exit_code)
        assert "error DL4009 UpgradeRequired" in done.stderr
        assert "service changed (file service.py)" in done.stderr, "it says what differs"
        assert bank.supervisors() == {}


def test_replica_that_runs_keeps_its_settings_and_up_says_so(tmp_path: Path) -> None:
    with Bank(tmp_path, replicas=1) as bank:
        bank.up()
        bank.write_manifest(1, "  logLevel: debug\n")
        assert "it keeps its old settings until it is stopped" in bank.run("up", "--detach", "service.yaml").stdout


def test_service_whose_code_cant_be_loaded_is_told(tmp_path: Path) -> None:
    with Bank(tmp_path) as bank:
        (bank.folder / "service.py").write_text("import nowhere_to_be_found\n")
        done = bank.run("up", "service.yaml", code=InvalidConfig.exit_code)
        assert "error DL3013 InvalidService" in done.stderr
        assert "nowhere_to_be_found" in done.stderr


def test_broken_manifest_starts_nothing(tmp_path: Path) -> None:
    with Bank(tmp_path, more="  replicaz: 1\n  fence: no\n") as bank:
        done = bank.run("up", "service.yaml", code=InvalidManifest.exit_code)
        assert "service.yaml:7:13: spec.replicaz: is no field here; did you mean replicas?" in done.stderr
        assert "service.yaml:8:10: spec.fence: no is false to some readers" in done.stderr
        assert not bank.directory.exists()
