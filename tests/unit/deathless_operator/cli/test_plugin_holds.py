"""`kubectl deathless fence`, `unfence`, `pause` and `resume` against a small API server, and who obeys there."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.unit.deathless_operator.cli.plugin_world import PODS, SERVICES, ApiServer, api_server, put_bank, put_shards

from deathless.base.errors import InvalidArgument, OutcomeUnknown
from deathless_operator.cli import plugin, plugin_holds
from deathless_operator.cli.plugin_holds import serves_on, stays_away
from deathless_operator.model import names
from deathless_operator.plan.snapshot import Announcement, PodView

BANK = f"{SERVICES}/bank"


class Obeying:
    """The operator and the replicas: with each look at the service one of them does its next step."""

    def __init__(self, server: ApiServer) -> None:
        self.server = server
        self.operates = True
        self.deaf: set[str] = set()  # replicas' pods that do not do as they are marked
        self.looks = 0

    def __call__(self, method: str, path: str) -> None:
        if (method, path) != ("GET", BANK):
            return
        self.looks += 1
        noted = marks_of(self.server.objects[BANK])
        if not self.operates:
            return
        paused = "True" if noted.get(names.PAUSED_ANNOTATION) == "true" else "False"
        told = {"type": "Paused", "status": paused, "reason": "X", "message": "", "lastTransitionTime": ""}
        self.server.objects[BANK]["status"]["conditions"] = [told]
        if paused == "True":
            return
        wanted = noted.get(names.FENCED_ANNOTATION, "").split(",")
        for pod in self.pods():
            labels, marks = pod["metadata"]["labels"], marks_of(pod)
            shard = labels.get("deathless.dev/shard")
            name = f"{shard}/{labels[names.LABEL_REPLICA]}" if shard else labels[names.LABEL_REPLICA]
            fenced = "*" in wanted or name in wanted
            if fenced != (marks.get(names.FENCED_ANNOTATION) == "true"):
                marks.pop(names.FENCED_ANNOTATION, None)
                marks |= {names.FENCED_ANNOTATION: "true"} if fenced else {}
                return
            if pod["metadata"]["name"] not in self.deaf and fenced != (role(pod) == "fenced"):
                stand(pod, "fenced" if fenced else "standby")
                return

    def pods(self) -> list[dict[str, Any]]:
        """Return the replicas' pods."""
        return [found for path, found in self.server.objects.items() if path.startswith(f"{PODS}/")]

    def roles(self) -> list[str]:
        """Return what replicas say that they are."""
        return [role(pod) for pod in self.pods()]


def marks_of(found: dict[str, Any]) -> dict[str, str]:
    noted: dict[str, str] = found["metadata"].setdefault("annotations", {})
    return noted


def role(pod: dict[str, Any]) -> str:
    return str(json.loads(marks_of(pod)[names.STATUS_ANNOTATION])["role"])


def stand(pod: dict[str, Any], role: str) -> None:
    """Have a replica say that it is something else."""
    told = json.loads(marks_of(pod)[names.STATUS_ANNOTATION])
    marks_of(pod)[names.STATUS_ANNOTATION] = json.dumps(told | {"role": role})
    pod["status"]["conditions"] = [{"type": "Ready", "status": "False" if role == "fenced" else "True"}]


def noted(server: ApiServer) -> dict[str, str]:
    return marks_of(server.objects[BANK])


@pytest.fixture(name="obeying")
def bank_whose_replicas_obey(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Obeying]:
    with api_server(tmp_path) as (server, kubeconfig):
        monkeypatch.setenv("KUBECONFIG", kubeconfig)
        monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
        monkeypatch.setattr(plugin_holds, "LOOK_S", 0.01)
        put_bank(server)
        obeying = Obeying(server)
        server.hook = obeying
        yield obeying


def test_fencing_adds_up_and_is_taken_back_and_is_so_when_the_command_ends(obeying: Obeying) -> None:
    for words, left, roles in (
        (["fence", "bank", "r1"], "r1", ["primary", "fenced", "standby"]),
        (["fence", "bank", "r0"], "r0,r1", ["fenced", "fenced", "standby"]),
        (["unfence", "bank", "r1"], "r0", ["fenced", "standby", "standby"]),
        (["fence", "bank"], "*", ["fenced", "fenced", "fenced"]),
        (["unfence", "bank"], None, ["standby", "standby", "standby"]),
    ):
        assert plugin.main(words) == 0
        assert noted(obeying.server).get(names.FENCED_ANNOTATION) == left
        assert obeying.roles() == roles


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
@pytest.mark.parametrize("more", [[], ["--no-wait"]])
def test_what_was_done_is_json_where_it_is_asked_for(
    obeying: Obeying, capsys: pytest.CaptureFixture[str], words: list[str], told: dict[str, object], more: list[str]
) -> None:
    assert plugin.main([*words, "--json", *more]) == 0
    assert json.loads(capsys.readouterr().out) == told


@pytest.mark.parametrize(
    "words", [["fence", "bank", "r1"], ["unfence", "bank", "r1"], ["pause", "bank"], ["resume", "bank"]]
)
def test_it_need_not_be_waited_for(obeying: Obeying, capsys: pytest.CaptureFixture[str], words: list[str]) -> None:
    obeying.operates = False
    assert plugin.main([*words, "--no-wait"]) == 0
    assert capsys.readouterr().out.startswith("bank: asked for: ")


def test_replica_that_does_not_obey_is_named_and_it_stays_asked_for(
    obeying: Obeying, capsys: pytest.CaptureFixture[str]
) -> None:
    obeying.deaf = {"bank-1"}
    assert plugin.main(["fence", "bank", "r0"]) == 0
    capsys.readouterr()
    assert plugin.main(["fence", "bank", "r0", "r1", "--timeout", "1", "--json"]) == OutcomeUnknown.exit_code == 75
    printed = capsys.readouterr()
    told = json.loads(printed.err)["error"]
    assert (printed.out, told["code"]) == ("", OutcomeUnknown.code)
    assert "bank-1 has not stopped yet (it is standby), after 1 s. It stays asked for" in told["what"]
    assert "bank-0" not in told["what"]
    assert "kubectl deathless unfence bank" in told["remedy"]
    assert noted(obeying.server)[names.FENCED_ANNOTATION] == "r0,r1"


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["fence", "bank", "r1"], "bank-1 is not marked by the operator yet"),
        (["pause", "bank"], "the operator has not told yet that it leaves it alone"),
        (["resume", "bank"], "the operator has not told yet that it looks after it again"),
    ],
)
def test_without_an_operator_time_runs_out(
    obeying: Obeying, capsys: pytest.CaptureFixture[str], words: list[str], told: str
) -> None:
    obeying.operates = False
    before = {"type": "Paused", "status": "True" if words == ["resume", "bank"] else "False", "reason": "X"}
    obeying.server.objects[BANK]["status"]["conditions"] = [before | {"message": "", "lastTransitionTime": ""}]
    assert plugin.main([*words, "--timeout", "1"]) == 75
    shown = capsys.readouterr()
    assert told in shown.err
    assert "does the operator run?" in shown.err
    assert shown.out == ""


@pytest.mark.parametrize("role", ["fenced", "dead"])
def test_replica_that_can_not_serve_is_told_with_its_own_words(
    obeying: Obeying, capsys: pytest.CaptureFixture[str], role: str
) -> None:
    assert plugin.main(["fence", "bank", "r1"]) == 0
    obeying.deaf = {"bank-1"}
    pod = obeying.server.objects[f"{PODS}/bank-1"]
    told = {"role": role, "condition": "DL4005", "text": "DL4005 another log"}
    marks_of(pod)[names.STATUS_ANNOTATION] = json.dumps(told)
    assert plugin.main(["unfence", "bank", "r1", "--timeout", "1"]) == 75
    assert "bank-1 is not ready yet: DL4005 another log" in capsys.readouterr().err


def test_replica_that_is_ready_by_what_its_node_saw_before_is_not_said_to_serve(obeying: Obeying) -> None:
    assert plugin.main(["fence", "bank", "r1"]) == 0
    obeying.deaf = {"bank-1"}
    obeying.server.objects[f"{PODS}/bank-1"]["status"]["conditions"] = [{"type": "Ready", "status": "True"}]
    assert plugin.main(["unfence", "bank", "--timeout", "1"]) == 75


@pytest.mark.parametrize("command", ["fence", "unfence"])
def test_pod_that_is_gone_is_waited_for_to_come_back(
    obeying: Obeying, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    del obeying.server.objects[f"{PODS}/bank-1"]
    assert plugin.main([command, "bank", "r1", "--timeout", "1"]) == 75
    assert "r1 has no pod" in capsys.readouterr().err
    obeying.server.objects[BANK]["spec"]["suspend"] = True  # then none comes back
    assert plugin.main([command, "bank", "r1"]) == 0


@pytest.mark.parametrize("left", [serves_on, stays_away])
def test_pod_that_is_ending_does_not_count(left: Callable[[PodView], str]) -> None:
    told = Announcement(role="fenced" if left is serves_on else "standby")
    marks = {names.FENCED_ANNOTATION: "true"} if left is serves_on else {}
    pod = PodView(name="bank-1", uid="u", ready=left is stays_away, announced=told, annotations=marks)
    assert left(pod) == ""
    assert left(replace(pod, deleted_at=1.0)) == "bank-1 is ending"


def test_fence_of_a_primary_has_its_wait_for_activities_on_top(
    obeying: Obeying, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plugin_holds, "SWITCH_S", 0.5)
    obeying.server.objects[BANK]["spec"]["limits"] = {"handoverWaitS": 1.0}
    obeying.deaf = {"bank-0"}
    assert plugin.main(["fence", "bank", "r0"]) == 75
    assert "bank-0 has not stopped yet (it is primary), after 1.5 s" in capsys.readouterr().err


def test_wait_is_told_of_once_it_lasts(
    obeying: Obeying, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plugin_holds, "SAY_S", 0.0)
    assert plugin.main(["fence", "bank", "r1", "--json"]) == 0
    printed = capsys.readouterr()
    assert printed.err.splitlines() == ["waiting: bank-1 has not stopped yet (it is standby)"]
    assert json.loads(printed.out)["fenced"] == ["r1"]


@pytest.mark.parametrize("command", ["fence", "unfence"])
def test_paused_service_is_not_waited_for_in_vain(
    obeying: Obeying, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    if command == "unfence":
        assert plugin.main(["fence", "bank", "r1"]) == 0
    assert plugin.main(["pause", "bank"]) == 0
    assert plugin.main([command, "bank", "r1"]) == 75
    assert "kubectl deathless resume bank" in capsys.readouterr().err
    assert noted(obeying.server).get(names.FENCED_ANNOTATION) == ("r1" if command == "fence" else None)


def test_only_those_that_were_fenced_are_waited_for_to_serve(obeying: Obeying) -> None:
    assert plugin.main(["fence", "bank", "r1"]) == 0
    stand(obeying.server.objects[f"{PODS}/bank-2"], "dead")
    obeying.server.objects[f"{PODS}/bank-2"]["status"]["conditions"] = []
    assert plugin.main(["unfence", "bank"]) == 0
    assert obeying.roles() == ["primary", "standby", "dead"]


def test_one_of_all_fenced_cannot_be_unfenced(obeying: Obeying) -> None:
    plugin.main(["fence", "bank"])
    assert plugin.main(["unfence", "bank", "r1"]) == 64
    assert noted(obeying.server)[names.FENCED_ANNOTATION] == "*"


def test_paused_service_is_resumed(obeying: Obeying) -> None:
    assert plugin.main(["pause", "bank"]) == 0
    assert noted(obeying.server) == {names.PAUSED_ANNOTATION: "true"}
    assert obeying.server.objects[BANK]["status"]["conditions"][0]["status"] == "True"
    assert plugin.main(["resume", "bank"]) == 0
    assert noted(obeying.server) == {}
    assert obeying.server.objects[BANK]["status"]["conditions"][0]["status"] == "False"


@pytest.mark.parametrize("wrong", ["r7", "bank-1", "0/r1"])
def test_name_that_would_fence_nobody_is_refused(
    obeying: Obeying, capsys: pytest.CaptureFixture[str], wrong: str
) -> None:
    assert plugin.main(["fence", "bank", wrong]) == InvalidArgument.exit_code
    assert "they are called r0, r1, r2" in capsys.readouterr().err
    assert noted(obeying.server) == {}


def test_replicas_of_shards_are_fenced_by_their_names(obeying: Obeying, capsys: pytest.CaptureFixture[str]) -> None:
    put_shards(obeying.server)
    for wrong in ("r0", "2/r0", "1/x"):
        assert plugin.main(["fence", "bank", wrong]) == InvalidArgument.exit_code
    assert "0/r0" in capsys.readouterr().err
    assert plugin.main(["fence", "bank", "1/r0"]) == 0
    assert noted(obeying.server)[names.FENCED_ANNOTATION] == "1/r0"
    assert obeying.roles() == ["primary", "standby", "standby", "fenced", "standby"]
