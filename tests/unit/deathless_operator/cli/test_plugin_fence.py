"""Fencing and pausing by the plugin: it is done when replicas and the operator say so, not when it is asked for."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.unit.deathless_operator.cli.plugin_world import (
    PODS,
    SERVICES,
    ApiServer,
    api_server,
    put_bank,
    put_shards,
)

from deathless.base.errors import InvalidArgument, OutcomeUnknown, UnknownService
from deathless_operator.cli import plugin, plugin_fence

BANK = f"{SERVICES}/bank"


@pytest.fixture(name="server")
def api_server_with_a_bank(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ApiServer]:
    with api_server(tmp_path) as (server, kubeconfig):
        monkeypatch.setenv("KUBECONFIG", kubeconfig)
        monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
        monkeypatch.setattr(plugin_fence, "LOOK_S", 0.01)
        put_bank(server)
        yield server


def noted(server: ApiServer) -> dict[str, str]:
    found: dict[str, str] = server.objects[BANK]["metadata"].get("annotations", {})
    return found


def role(server: ApiServer, pod: str) -> str:
    said: str = json.loads(server.objects[f"{PODS}/{pod}"]["metadata"]["annotations"]["deathless.dev/status"])["role"]
    return said


def obey(server: ApiServer, *, after: int = 1, deaf: str = "") -> None:
    """Do as the operator and the replicas do, but for the one that hears nothing, once it was looked so often."""
    looks = 0

    def hook(method: str, path: str) -> None:
        nonlocal looks
        looks += method == "GET" and path in {PODS, BANK}
        if looks <= after:
            return
        paused = noted(server).get("deathless.dev/paused") == "true"
        conditions = [one for one in server.objects[BANK]["status"]["conditions"] if one["type"] != "Paused"]
        told = {"type": "Paused", "status": str(paused), "reason": "X", "message": ""}
        server.objects[BANK]["status"]["conditions"] = [*conditions, told]
        fenced = noted(server).get("deathless.dev/fenced", "").split(",")
        for at, pod in server.objects.items():
            if not at.startswith(PODS) or paused or pod["metadata"]["name"] == deaf:
                continue
            labels = pod["metadata"]["labels"]
            replica, shard = labels["deathless.dev/replica"], labels.get("deathless.dev/shard")
            called = replica if shard is None else f"{shard}/{replica}"
            stopped = called in fenced or "*" in fenced
            said = {"role": "fenced" if stopped else "standby", "epoch": 4}
            pod["metadata"]["annotations"]["deathless.dev/status"] = json.dumps(said)

    server.hook = hook


def test_fencing_adds_up_and_is_taken_back(server: ApiServer) -> None:
    obey(server)
    for words, left, stopped in (
        (["fence", "bank", "r1"], "r1", {"bank-1"}),
        (["fence", "bank", "r0"], "r0,r1", {"bank-0", "bank-1"}),
        (["unfence", "bank", "r1"], "r0", {"bank-0"}),
        (["fence", "bank"], "*", {"bank-0", "bank-1", "bank-2"}),
        (["unfence", "bank"], None, set()),
    ):
        assert plugin.main(words) == 0
        assert noted(server).get("deathless.dev/fenced") == left
        assert {f"bank-{i}" for i in range(3) if role(server, f"bank-{i}") == "fenced"} == stopped


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["fence", "bank", "r1"], {"name": "bank", "fenced": ["r1"]}),
        (["fence", "bank"], {"name": "bank", "fenced": ["*"]}),
        (["unfence", "bank"], {"name": "bank", "fenced": []}),
        (["pause", "bank"], {"name": "bank", "paused": True}),
        (["resume", "bank"], {"name": "bank", "paused": False}),
    ],
)
def test_what_was_done_is_json_where_it_is_asked_for(
    server: ApiServer, capsys: pytest.CaptureFixture[str], words: list[str], told: dict[str, object]
) -> None:
    obey(server, after=4)
    assert plugin.main([*words, "--json"]) == 0
    printed = capsys.readouterr()
    assert json.loads(printed.out) == told
    assert ("waiting for" in printed.err) is (words[0] != "unfence"), "nobody is fenced: there is nothing to wait for"


def test_replica_that_does_not_stop_is_waited_for_and_named_and_what_was_asked_stays(
    server: ApiServer, capsys: pytest.CaptureFixture[str]
) -> None:
    obey(server, deaf="bank-1")
    assert plugin.main(["fence", "bank", "--timeout", "1"]) == OutcomeUnknown.exit_code
    said = capsys.readouterr().err
    assert "waited 1 s for bank-1 to stop" in said
    assert "it stays asked for" in said
    assert noted(server)["deathless.dev/fenced"] == "*"


def test_replica_that_was_not_named_or_does_not_run_is_not_waited_for(server: ApiServer) -> None:
    obey(server, deaf="bank-1")
    assert plugin.main(["fence", "bank", "r0", "r2"]) == 0
    server.objects[f"{PODS}/bank-1"]["status"]["phase"] = "Pending"
    assert plugin.main(["fence", "bank"]) == 0


@pytest.mark.parametrize("words", [["pause", "bank"], ["resume", "bank"]])
def test_operator_that_says_nothing_is_waited_for_and_named(
    server: ApiServer, capsys: pytest.CaptureFixture[str], words: list[str]
) -> None:
    assert plugin.main([*words, "--timeout", "1"]) == OutcomeUnknown.exit_code
    assert "waited 1 s for the operator" in capsys.readouterr().err
    assert noted(server) == ({"deathless.dev/paused": "true"} if words[0] == "pause" else {})


@pytest.mark.parametrize("words", [["fence", "bank"], ["unfence", "bank"], ["pause", "bank"], ["resume", "bank"]])
def test_nothing_is_waited_for_where_that_is_said(
    server: ApiServer, capsys: pytest.CaptureFixture[str], words: list[str]
) -> None:
    assert plugin.main([*words, "--no-wait"]) == 0
    assert not capsys.readouterr().err


def test_service_that_is_paused_is_not_fenced_but_by_a_word(
    server: ApiServer, capsys: pytest.CaptureFixture[str]
) -> None:
    obey(server)
    assert plugin.main(["pause", "bank"]) == 0
    for words in (["fence", "bank"], ["unfence", "bank"]):
        assert plugin.main(words) == InvalidArgument.exit_code
        assert "kubectl deathless resume bank" in capsys.readouterr().err
    assert noted(server) == {"deathless.dev/paused": "true"}
    assert plugin.main(["fence", "bank", "--no-wait"]) == 0
    assert plugin.main(["resume", "bank"]) == 0
    assert noted(server) == {"deathless.dev/fenced": "*"}


def test_service_that_goes_meanwhile_is_not_waited_for(server: ApiServer) -> None:
    def gone(method: str, path: str) -> None:
        if method == "GET" and path == PODS:
            server.objects.pop(BANK, None)

    server.hook = gone
    assert plugin.main(["fence", "bank"]) == UnknownService.exit_code


def test_one_of_all_fenced_cannot_be_unfenced(server: ApiServer) -> None:
    obey(server)
    assert plugin.main(["fence", "bank"]) == 0
    assert plugin.main(["unfence", "bank", "r1"]) == InvalidArgument.exit_code
    assert noted(server)["deathless.dev/fenced"] == "*"


def test_replicas_of_shards_are_fenced_by_their_names(server: ApiServer, capsys: pytest.CaptureFixture[str]) -> None:
    put_shards(server)
    obey(server, after=3)
    for wrong in ("r0", "2/r0", "1/x"):
        assert plugin.main(["fence", "bank", wrong]) == InvalidArgument.exit_code
    assert "0/r0" in capsys.readouterr().err
    assert plugin.main(["fence", "bank", "1/r0"]) == 0
    assert noted(server)["deathless.dev/fenced"] == "1/r0"
    assert role(server, "bank-s1-0") == "fenced"
    assert role(server, "bank-0") == "standby"
