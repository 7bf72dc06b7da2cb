"""`Ambrosia`: what it registers, what it says, and its exit codes."""

from __future__ import annotations

from pathlib import Path

import pytest

from deathless.cli.ambrosia.registrations import Replica, registration_of
from deathless.cli.ambrosia.tool import main

REGISTER = ("RegisterInstance", "-i=counter", "-rp=1000", "-sp=1001", "-l=/logs")


def test_instance_is_registered_and_one_line_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(tmp_path, [*REGISTER, "-cs=n", "-ps", "-lts=5", "-cv=3", "-uv=3"]) == 0
    told = capsys.readouterr().out
    assert told == "The instance counter is registered.\n"
    found = registration_of(tmp_path, "counter")
    assert (found.log, found.create_service, found.pause_at_start) == ("/logs", "N", True)
    assert (found.log_trigger_mb, found.version) == (5, 3)
    assert found.replicas == {0: Replica(receive_port=1000, send_port=1001)}


def test_log_is_beside_the_launchers_where_none_is_named(tmp_path: Path) -> None:
    assert main(tmp_path, REGISTER[:-1]) == 0
    assert registration_of(tmp_path, "counter").log == str(tmp_path / "AmbrosiaLogs")


def test_replica_is_added_and_shares_the_log(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    added = ("addreplica", "-r=1", "-i=counter", "-rp=2000", "-sp=2001")
    assert main(tmp_path, added) == 1
    assert "DL3106" in capsys.readouterr().err
    assert main(tmp_path, REGISTER) == 0
    assert main(tmp_path, [*added, "-l=/logs"]) == 0
    assert registration_of(tmp_path, "counter").replicas[1] == Replica(receive_port=2000, send_port=2001)
    assert main(tmp_path, [*added, "-l=/elsewhere"]) == 1
    assert "--log" in capsys.readouterr().err


def test_instance_that_is_registered_again_keeps_its_replicas_as_long_as_they_share_its_log(tmp_path: Path) -> None:
    """An upgrade registers it again, and its replicas are started behind that."""
    added = Replica(receive_port=2000, send_port=2001)
    assert main(tmp_path, REGISTER) == 0
    assert main(tmp_path, ["AddReplica", "-r=1", "-i=counter", "-rp=2000", "-sp=2001"]) == 0
    assert main(tmp_path, [*REGISTER, "-rp=1002", "-uv=1"]) == 0
    assert registration_of(tmp_path, "counter").replicas == {0: Replica(receive_port=1002, send_port=1001), 1: added}
    assert main(tmp_path, [*REGISTER, "-l=/elsewhere"]) == 0
    assert list(registration_of(tmp_path, "counter").replicas) == [0]
    next((tmp_path / "registrations").iterdir()).write_text("{")
    assert main(tmp_path, REGISTER) == 0


def test_version_to_go_over_to_is_registered_and_no_replica_is_added_for_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(tmp_path, [*REGISTER, "-cv=1", "-uv=2"]) == 0
    found = registration_of(tmp_path, "counter")
    assert (found.version, found.upgrade_version) == (1, 2)
    assert main(tmp_path, ["AddReplica", "-r=1", *REGISTER[1:], "-cv=1", "-uv=2"]) == 1
    assert "no replica is upgraded while others run" in capsys.readouterr().err
    assert registration_of(tmp_path, "counter") == found
    assert main(tmp_path, [*REGISTER, "-cv=2"]) == 0
    assert registration_of(tmp_path, "counter").upgrade_version == 2


@pytest.mark.parametrize("more", [["-npl"]])
def test_what_can_not_be_honoured_is_refused_and_nothing_is_written(
    tmp_path: Path, more: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(tmp_path, [*REGISTER, *more]) == 1
    assert "DL3105" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "more", [["-q"], ["-rp=0"], ["-sp=x"], ["-cs=B"], ["-i=No!"], ["-cv=-1"], ["-lts=much"], ["-cv=2", "-uv=1"]]
)
def test_arguments_that_are_wrong_give_the_reason_and_the_help(
    tmp_path: Path, more: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(tmp_path, [*REGISTER, *more]) == 1
    assert capsys.readouterr().out.startswith("Invalid arguments: ")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(("words", "code"), [([], 1), (["Help"], 0), (["-h"], 0), (["Frobnicate"], 1)])
def test_verbs_are_shown_where_none_is_given(
    tmp_path: Path, words: list[str], code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(tmp_path, words) == code
    assert "RegisterInstance" in capsys.readouterr().out


def test_help_of_a_verb_is_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(tmp_path, ["AddReplica", "--help"]) == 0
    assert "--replicaNum" in capsys.readouterr().out


DEBUG_HELP = """Usage: Ambrosia DebugInstance [OPTIONS]
Options:
  -i, --instanceName=VALUE    The instance name [REQUIRED].
  -rp, --receivePort=VALUE    The port that the coordinator receives from the program at [REQUIRED].
  -sp, --sendPort=VALUE       The port that the coordinator sends to the program at [REQUIRED].
  -l, --log=VALUE             The folder of the log.
  -c, --checkpoint=VALUE      The checkpoint to start from.
  -cv, --currentVersion=VALUE  The version of the program.
  -tu, --testingUpgrade       Test an upgrade.
  -h, --help                  Show this message and exit.
"""


@pytest.mark.parametrize("word", ["-h", "--help", "/h", "/HELP"])
def test_help_of_debugging_is_the_same_however_it_is_asked_for(
    tmp_path: Path, word: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(tmp_path, ["debuginstance", word]) == 0
    assert capsys.readouterr().out.split() == DEBUG_HELP.split()
