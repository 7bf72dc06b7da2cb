"""`ImmortalCoordinator`: what it is started with, what it refuses, and what it says."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.unit.deathless.foreign.recorded import checkpoint

from deathless.base.errors import DeathlessError, InstanceNotRegistered, InstanceThere, OriginalArgumentRefused
from deathless.cli.ambrosia.arguments import COORDINATOR, WrongArguments, parse
from deathless.cli.ambrosia.coordinator import Replicating, main, prepare, write_config_of
from deathless.cli.ambrosia.registrations import DATA, registration_of
from deathless.cli.ambrosia.tool import main as tool
from deathless.shell.link.application_status import ApplicationStatus, forget_status, write_status
from deathless.shell.link.config_file import config_path, read_config


@pytest.fixture(name="home")
def home_with_an_instance(tmp_path: Path) -> Path:
    """A folder of launchers in which an instance with two replicas is registered, and another one."""
    words = ["-i=Counter", f"-l={tmp_path / 'logs'}"]
    assert tool(tmp_path, ["RegisterInstance", *words, "-rp=1000", "-sp=1001", "-lts=5"]) == 0
    assert tool(tmp_path, ["AddReplica", *words, "-r=1", "-rp=2000", "-sp=2001"]) == 0
    assert tool(tmp_path, ["RegisterInstance", "-i=other", "-rp=3000", "-sp=3001", f"-l={tmp_path / 'b'}"]) == 0
    return tmp_path


def asked(*words: str) -> dict[str, str]:
    return parse(["-i=Counter", "-p=1500", *words], COORDINATOR)


def test_replica_gets_its_ports_its_log_and_the_instances_elsewhere(home: Path) -> None:
    _, config = prepare(home, asked("-r=1"))
    assert config.binding is not None
    assert (config.replica, config.client_listen) == ("r1", "127.0.0.1:1500")
    assert (config.binding.command, config.binding.instance) == ((), "Counter")
    assert (config.binding.receive_port, config.binding.send_port) == (2000, 2001)
    assert (config.binding.compare, config.binding.checkpoint_bytes) == ("Shape", 5 << 20)
    assert config.binding.connect_s == 0
    assert Path(config.directory).parent == home / "logs" / DATA
    assert [(peer.name, peer.directory) for peer in config.peers] == [("other", str(home / "b" / DATA / "other"))]
    write_config_of(config)
    assert read_config(str(config_path(config.directory, "r1"))) == config


def test_command_line_goes_before_what_was_registered(home: Path) -> None:
    _, config = prepare(home, asked("-rp=7", "-sp=8", f"-l={home / 'c'}", "-lts=0", "-aa", "-lst=files"))
    assert config.binding is not None
    assert (config.binding.receive_port, config.binding.send_port) == (7, 8)
    assert config.binding.checkpoint_bytes == 1 << 40
    assert config.directory.startswith(str(home / "c"))


@pytest.mark.parametrize(
    ("words", "kind", "named"),
    [
        (["-r=2"], InstanceNotRegistered, "replica 2"),
        (["-i=nobody"], InstanceNotRegistered, "nobody"),
        (["-lst=blobs"], OriginalArgumentRefused, "logStorageType"),
        (["-ip=10.0.0.1"], OriginalArgumentRefused, "IPAddr"),
    ],
)
def test_what_is_not_there_or_can_not_be_is_refused_by_name(
    home: Path, words: list[str], kind: type[DeathlessError], named: str
) -> None:
    with pytest.raises(kind, match=named):
        prepare(home, asked(*words))


def test_port_and_instance_are_required(home: Path) -> None:
    with pytest.raises(WrongArguments, match="port is required"):
        prepare(home, {"instanceName": "Counter"})


@pytest.mark.parametrize(
    ("create", "there", "refused"), [("Y", True, True), ("Y", False, False), ("N", False, True), ("N", True, False)]
)
def test_log_is_created_or_recovered_as_was_registered(home: Path, create: str, there: bool, refused: bool) -> None:
    words = ["-i=Counter", f"-l={home / 'logs'}", "-rp=1000", "-sp=1001", f"-cs={create}"]
    assert tool(home, ["RegisterInstance", *words]) == 0
    if there:
        registration_of(home, "Counter").directory.mkdir(parents=True)
    if refused:
        with pytest.raises(InstanceThere):
            prepare(home, asked())
    else:
        prepare(home, asked())


def test_errors_end_it_with_1_before_anything_is_started(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(home, ["-i=Counter"]) == 1
    assert capsys.readouterr().out.startswith("Invalid arguments: port is required.")
    assert main(home, ["-i=Counter", "-p=0", "-an=x"]) == 1
    assert "DL3105" in capsys.readouterr().err
    assert not (home / "logs").exists()


def test_lines_are_said_once_and_those_of_an_earlier_life_never(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _, config = prepare(home, asked())
    write_config_of(config)
    (Path(config.directory) / "application").mkdir()

    def says(state: str) -> None:
        write_status(config.directory, ApplicationStatus(replica="r0", state=state))

    says("leading")
    forget_status(config.directory, "r0")
    replica = Replicating(config)
    assert replica._look() is None
    for state in ("connecting", "connecting", "following", "leading", "leading", "ended"):
        says(state)
        assert replica._look() is not None
    assert capsys.readouterr().out == "Ready ...\nI'm a secondary\nNOW I'm Primary\n"


def test_replica_that_runs_already_is_not_run_twice(
    home: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("deathless.cli.ambrosia.coordinator.running_supervisor", lambda _: 7)
    assert main(home, ["-i=Counter", "-p=0"]) == 1
    told = capsys.readouterr().out
    assert told.startswith("FATAL ERROR 0: another coordinator runs replica r0")
    assert told.endswith("KILLING WORKER:\n")


@pytest.mark.parametrize(("words", "version", "following"), [(["-cv=3"], 3, -1), (["-cv=3", "-uv=4"], 3, 4)])
def test_replica_is_told_which_versions_its_program_has(
    home: Path, words: list[str], version: int, following: int
) -> None:
    assert tool(home, ["RegisterInstance", "-i=Counter", f"-l={home / 'logs'}", "-rp=1", "-sp=2", *words]) == 0
    _, config = prepare(home, asked())
    assert config.binding is not None
    assert (config.binding.version, config.binding.next_version) == (version, following)
    assert config.binding.checkpoints_kept == 0


@pytest.mark.parametrize("words", [["-cv=0"], ["-cv=0", "-uv=1"], ["-cv=1", "-uv=2"], ["-cv=3"]])
def test_version_that_the_state_is_not_of_is_refused_before_anything_is_started(
    home: Path, words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert tool(home, ["RegisterInstance", "-i=Counter", f"-l={home / 'logs'}", "-rp=1", "-sp=2", *words]) == 0
    directory = registration_of(home, "Counter").directory
    directory.mkdir(parents=True)
    checkpoint(directory, 0, b"", version=0)
    checkpoint(directory, 4, b"", version=1)
    capsys.readouterr()
    if "-cv=1" in words:
        prepare(home, asked())
        return
    assert main(home, ["-i=Counter", "-p=0"]) == 1
    told = capsys.readouterr().out
    assert told.startswith(f"FATAL ERROR 1: Version mismatch on process start: Expected {words[0][4:]} was: 1")
    assert told.endswith("KILLING WORKER:\n")
    assert not (directory / "replicas").exists()
