"""An instance is forgotten, and its log is not."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from deathless.base.errors import InstanceNotRegistered, OtherSupervisor
from deathless.cli.ambrosia.deregistering import main
from deathless.cli.ambrosia.registrations import Registration, Replica, register, registration_of
from deathless.shell.disk.holders import take

FOUND = Registration(instance="counter", log="", replicas={0: Replica(receive_port=1000, send_port=1001)})


def test_registration_is_gone_and_the_log_stays(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Once; who has no such instance is told."""
    register(tmp_path, Registration(instance="counter", log=str(tmp_path / "logs"), replicas=FOUND.replicas))
    log = tmp_path / "logs" / ".deathless" / "counter" / "log"
    log.mkdir(parents=True)
    assert main(tmp_path, ["counter"]) == 0
    assert capsys.readouterr().out == f"The instance counter is deregistered. Its log stays in {log.parent}.\n"
    assert log.is_dir()
    with pytest.raises(InstanceNotRegistered):
        registration_of(tmp_path, "counter")
    assert main(tmp_path, ["counter"]) == 1
    assert InstanceNotRegistered.code in capsys.readouterr().err


@pytest.mark.parametrize(("words", "code"), [([], 1), (["a", "b"], 1), (["/help"], 0)])
def test_one_name_is_what_it_takes(
    words: list[str], code: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(tmp_path, words) == code
    assert capsys.readouterr().out == "Usage: UnsafeDeregisterInstance NAME\n"


def test_instance_whose_coordinator_runs_is_not_forgotten(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    running = Registration(instance="counter", log=str(tmp_path / "logs"), replicas=FOUND.replicas)
    register(tmp_path, running)
    replica = running.directory / "replicas" / "r1"
    replica.mkdir(parents=True)
    with (replica / "supervisor.lock").open("w") as lock:
        lock.write(f"{os.getpid()}\n")
        lock.flush()
        take(lock.fileno())
        assert main(tmp_path, ["counter"]) == 1
    assert OtherSupervisor.code in capsys.readouterr().err
    assert registration_of(tmp_path, "counter") == running
