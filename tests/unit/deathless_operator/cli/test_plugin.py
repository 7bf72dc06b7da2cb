"""Each command of the plugin, against a small API server over real HTTP."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from tests.unit.deathless_operator.cli.plugin_world import (
    DRILLS,
    PODS,
    SERVICES,
    ApiServer,
    api_server,
    put_bank,
    put_pod,
    put_shards,
)

from deathless.base.errors import InvalidArgument, OutcomeUnknown
from deathless_operator.cli import plugin, plugin_cluster
from deathless_operator.cli.plugin_cluster import parse_arguments


@pytest.fixture(name="server")
def api_server_with_a_bank(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ApiServer]:
    with api_server(tmp_path) as (server, kubeconfig):
        monkeypatch.setenv("KUBECONFIG", kubeconfig)
        monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
        monkeypatch.setattr(plugin, "LOOK_S", 0.01)
        put_bank(server)
        yield server


def test_status_shows_who_leads(server: ApiServer, capsys: pytest.CaptureFixture[str]) -> None:
    assert plugin.main(["status", "bank"]) == 0
    shown = capsys.readouterr().out
    assert "bank-0 leads in epoch 4; 3 of 3 replicas are ready" in shown
    assert "bank-2" in shown


def test_status_of_all_services_is_a_table(server: ApiServer, capsys: pytest.CaptureFixture[str]) -> None:
    assert plugin.main(["status"]) == 0
    heading, row = capsys.readouterr().out.splitlines()
    assert heading.split() == ["SERVICE", "REPLICAS", "PRIMARY", "EPOCH", "READY", "OPERATOR"]
    assert row.split() == ["bank", "3/3", "bank-0", "4", "yes", "-"]


def test_status_as_json_is_json_alone(server: ApiServer, capsys: pytest.CaptureFixture[str]) -> None:
    assert plugin.main(["status", "bank", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["status"]["primary"] == "bank-0"


def test_status_of_a_service_that_is_not_ready_says_so(server: ApiServer, capsys: pytest.CaptureFixture[str]) -> None:
    put_bank(server, ready=False)
    assert plugin.main(["status", "bank"]) == 69
    assert "no primary" in capsys.readouterr().out


def test_service_that_is_not_there_is_an_error_with_a_remedy(
    server: ApiServer, capsys: pytest.CaptureFixture[str]
) -> None:
    assert plugin.main(["status", "shop", "--json"]) == 64
    told = json.loads(capsys.readouterr().err)["error"]
    assert (told["code"], told["exitCode"]) == ("DL3005", 64)
    assert plugin.main(["status", "shop"]) == 64
    assert "remedy" in capsys.readouterr().err


def test_switchover_deletes_the_primary_and_waits_for_another(
    server: ApiServer, capsys: pytest.CaptureFixture[str]
) -> None:
    def hand_over(method: str, path: str) -> None:
        if method == "DELETE":
            put_pod(server, 1, leads=True, epoch=5)

    server.hook = hand_over
    assert plugin.main(["switchover", "bank", "--json"]) == 0
    moved = json.loads(capsys.readouterr().out)
    assert (moved["before"], moved["after"], moved["epoch"]) == ("bank-0", "bank-1", 5)
    (deleted,) = [(path, body) for method, path, body in server.asked if method == "DELETE"]
    assert deleted[0] == f"{PODS}/bank-0"
    assert deleted[1]["preconditions"]["uid"] == "uid-bank-0"
    assert "gracePeriodSeconds" not in deleted[1]


@pytest.mark.parametrize(("words", "waited"), [([], "1.5 s"), (["--timeout", "1"], "1 s")])
def test_switchover_has_the_primarys_wait_for_activities_on_top_of_its_own_unless_it_is_told(
    server: ApiServer,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    words: list[str],
    waited: str,
) -> None:
    monkeypatch.setattr(plugin_cluster, "SWITCH_S", 0.5)
    server.objects[f"{SERVICES}/bank"]["spec"]["limits"] = {"handoverWaitS": 1.0}
    assert plugin.main(["switchover", "bank", *words]) == OutcomeUnknown.exit_code
    assert f"no other replica of bank led within {waited}" in capsys.readouterr().err


def test_switchover_with_nobody_to_take_over_is_refused(server: ApiServer, capsys: pytest.CaptureFixture[str]) -> None:
    for index in (1, 2):
        del server.objects[f"{PODS}/bank-{index}"]
    assert plugin.main(["switchover", "bank"]) == 64
    assert "nobody could take over" in capsys.readouterr().err
    assert not [method for method, _, _ in server.asked if method == "DELETE"]


def judge_drill(server: ApiServer, verdict: str) -> None:
    """Judge each drill at its second look."""

    def hook(method: str, path: str) -> None:
        if method == "GET" and path.startswith(f"{DRILLS}/") and path in server.objects:
            run = {"id": "r", "verdict": verdict, "reason": "NothingLost", "message": "as told", "callsSent": 9}
            server.objects[path]["status"] = {"last": run | {"callsAnswered": 9, "unavailableSeconds": 0.5}}

    server.hook = hook


@pytest.mark.parametrize(("verdict", "code"), [("Passed", 0), ("Failed", 1), ("Aborted", 1)])
def test_drill_is_made_followed_and_deleted(
    server: ApiServer, capsys: pytest.CaptureFixture[str], verdict: str, code: int
) -> None:
    judge_drill(server, verdict)
    assert plugin.main(["drill", "bank", "--fault", "Freeze", "--duration", "7"]) == code
    (made,) = [body for method, _, body in server.asked if method == "POST"]
    assert made["spec"]["fault"] == {"type": "Freeze", "role": "Primary", "durationSeconds": 7}
    assert made["spec"]["serviceRef"] == {"name": "bank"}
    shown = capsys.readouterr().out
    assert f"{verdict}: as told" in shown
    assert "9 of 9 calls answered, 0 lost" in shown
    assert not [path for path in server.objects if path.startswith(f"{DRILLS}/")]


def test_drill_may_be_kept_and_printed_as_json(server: ApiServer, capsys: pytest.CaptureFixture[str]) -> None:
    judge_drill(server, "Passed")
    assert plugin.main(["drill", "bank", "--keep", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["run"]["verdict"] == "Passed"
    assert f"{DRILLS}/{told['name']}" in server.objects


def test_drill_need_not_be_waited_for(server: ApiServer, capsys: pytest.CaptureFixture[str]) -> None:
    assert plugin.main(["drill", "bank", "--no-wait", "--json"]) == 0
    assert f"{DRILLS}/{json.loads(capsys.readouterr().out)['name']}" in server.objects


def test_every_command_has_help_and_those_that_tell_have_json() -> None:
    groups = {name: each for name, each in plugin.cli.commands.items() if isinstance(each, click.Group)}
    assert all(group.help for group in groups.values())
    inside = {f"{name} {inner}": each for name, group in groups.items() for inner, each in group.commands.items()}
    outside = {name: each for name, each in plugin.cli.commands.items() if name not in groups}
    for name, command in {**outside, **inside}.items():
        assert command.help and len(command.help) > 20, name
        options = {option for each in command.params for option in each.opts}
        # The words of a replica are lines of JSON by themselves; a completion script is for a shell.
        assert ("--json" in options) is (name not in {"logs", "completion"}), name
        for each in command.params:
            assert each.param_type_name == "argument" or getattr(each, "help", None), f"{name} {each.opts}"


@pytest.mark.parametrize(("words", "pod"), [([], "bank-0"), (["-r", "r2"], "bank-2"), (["-r", "bank-1"], "bank-1")])
def test_logs_hands_over_to_kubectl(
    server: ApiServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, words: list[str], pod: str
) -> None:
    kubectl = tmp_path / "kubectl"
    kubectl.write_text("")
    kubectl.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    ran: list[list[str]] = []
    monkeypatch.setattr(os, "execv", lambda _, arguments: ran.append(arguments))
    plugin.main(["logs", "bank", "--follow", *words])
    assert ran[0][:5] == [str(kubectl), "logs", "--namespace", "ns", pod]
    assert "--follow" in ran[0]


def test_status_shows_every_shard(server: ApiServer, capsys: pytest.CaptureFixture[str]) -> None:
    put_shards(server)
    assert plugin.main(["status", "bank"]) == 0
    shown = capsys.readouterr().out
    assert "bank: 2 of 2 shards led; 3 of 3 replicas are ready" in shown
    assert "bank-s1-0" in shown


def test_command_for_one_shard_asks_which(server: ApiServer, capsys: pytest.CaptureFixture[str]) -> None:
    put_shards(server)
    assert plugin.main(["switchover", "bank"]) == InvalidArgument.exit_code
    assert "add --shard 0 to 1" in capsys.readouterr().err
    assert plugin.main(["switchover", "bank", "--shard", "2"]) == InvalidArgument.exit_code

    def hand_over(method: str, path: str) -> None:
        if method == "DELETE":
            assert path == f"{PODS}/bank-s1-0"
            pod = server.objects[f"{PODS}/bank-s1-1"]["metadata"]
            pod["labels"]["deathless.dev/role"] = "primary"
            pod["annotations"]["deathless.dev/status"] = json.dumps({"role": "primary", "epoch": 8})

    server.hook = hand_over
    capsys.readouterr()
    assert plugin.main(["switchover", "bank", "--shard", "1", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["after"] == "bank-s1-1"


def test_services_complete_their_names(server: ApiServer, capsys: pytest.CaptureFixture[str]) -> None:
    assert plugin.complete(["status", "b"]) == 0
    assert capsys.readouterr().out.splitlines() == ["bank", ":4"]


def test_commands_complete_their_names(capsys: pytest.CaptureFixture[str]) -> None:
    plugin.complete(["swi"])
    assert capsys.readouterr().out.startswith("switchover")


def test_completion_without_a_cluster_offers_nothing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    monkeypatch.setenv("HOME", str(tmp_path))
    assert plugin.complete(["status", "b"]) == 0
    assert capsys.readouterr().out == ":4\n"


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_script_is_printed(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert plugin.main(["completion", shell]) == 0
    assert "_KUBECTL_DEATHLESS_COMPLETE" in capsys.readouterr().out


def test_arguments_are_json_or_texts() -> None:
    assert parse_arguments(("amount=5", "name=alice", "tags=[1]")) == {
        "amount": 5,
        "name": "alice",
        "tags": [1],
    }
    for wrong in (("amount",), ("a=1", "a=2"), ("1a=2",)):
        with pytest.raises(InvalidArgument):
            parse_arguments(wrong)
