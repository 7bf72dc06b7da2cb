"""`kubectl deathless adopt` against a small API server."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.unit.deathless_operator.cli.plugin_world import PODS, SERVICES, ApiServer, api_server, put_bank
from tests.unit.deathless_operator.cli.test_plugin_cluster import put_kubectl
from tests.unit.deathless_operator.plan.plan_world import running

from deathless_operator.cli import plugin, plugin_adopt, plugin_cluster
from deathless_operator.model import names
from deathless_operator.plan.service.pods import adopting

SETS = "/apis/apps/v1/namespaces/ns/statefulsets"


class Kubelet:
    """Ends each pod that adopts, and remembers what it was to run."""

    def __init__(self, server: ApiServer) -> None:
        self.server = server
        self.ran: list[dict[str, Any]] = []
        self.exit_code = 0

    def __call__(self, method: str, path: str) -> None:
        pod = self.server.objects.get(path)
        if method != "GET" or not path.endswith("-adopt") or pod is None or "status" in pod:
            return
        self.ran.append(pod["spec"])
        ended = {"exitCode": self.exit_code, "message": "what it said"}
        pod["status"] = {
            "phase": "Failed" if self.exit_code else "Succeeded",
            "containerStatuses": [{"name": "replica", "state": {"terminated": ended}}],
        }


@pytest.fixture(name="kubelet")
def suspended_bank(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Kubelet]:
    with api_server(tmp_path) as (server, kubeconfig):
        monkeypatch.setenv("KUBECONFIG", kubeconfig)
        monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
        monkeypatch.setenv("PATH", "")  # no kubectl: what the pod ended with is told
        monkeypatch.setattr(plugin_adopt, "LOOK_S", 0.01)
        put_bank(server)
        found = running().children["StatefulSet", "bank"]
        server.put(f"{SETS}/bank", spec=found["spec"], metadata={"annotations": found["metadata"]["annotations"]})
        kubelet = Kubelet(server)
        server.hook = kubelet
        yield kubelet


def suspend(server: ApiServer, **spec: object) -> None:
    server.objects[f"{SERVICES}/bank"]["spec"] |= {"suspend": True} | spec
    for path in [path for path in server.objects if path.startswith(f"{PODS}/bank-")]:
        del server.objects[path]


@pytest.mark.parametrize(
    ("code", "shown"),
    [
        ("print('what it printed')", "what it printed"),
        ("import sys; sys.exit('no such pod')", "what it said"),
        ("import os\nwhile True: os.write(1, b'x' * 4096)", "x" * plugin_cluster.SAID_BYTES_MAX),
    ],
)
def test_words_of_the_pod_are_read_by_kubectl_up_to_a_limit(
    kubelet: Kubelet,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    code: str,
    shown: str,
) -> None:
    put_kubectl(tmp_path, monkeypatch, code)
    suspend(kubelet.server)
    assert plugin.main(["adopt", "bank", "--yes"]) == 0
    assert capsys.readouterr().out == f"{shown}\n"


def test_service_that_is_not_suspended_is_refused_with_the_command_that_suspends_it(
    kubelet: Kubelet, capsys: pytest.CaptureFixture[str]
) -> None:
    assert plugin.main(["adopt", "bank", "--yes"]) == 64
    told = capsys.readouterr().err
    assert "kubectl -n ns patch deathlessservice bank --type merge -p" in told
    assert kubelet.ran == []


def test_log_is_adopted_in_a_pod_with_the_replicas_image_volumes_and_settings(
    kubelet: Kubelet, capsys: pytest.CaptureFixture[str]
) -> None:
    suspend(kubelet.server)
    assert plugin.main(["adopt", "bank", "--yes"]) == 0
    assert capsys.readouterr().out == "what it said\n"
    (spec,) = kubelet.ran
    template = kubelet.server.objects[f"{SETS}/bank"]["spec"]["template"]["spec"]
    replica = template["containers"][0]
    (program,) = spec["containers"]
    assert program["command"] == ["deathless", "adopt", "-f", "/etc/deathless/replica.json", "--yes"]
    assert {key: program[key] for key in ("image", "volumeMounts", "env", "securityContext")} == {
        key: replica[key] for key in ("image", "volumeMounts", "env", "securityContext")
    }
    assert spec["volumes"] == template["volumes"]
    assert "readinessProbe" not in program
    assert (spec["restartPolicy"], spec["automountServiceAccountToken"]) == ("Never", False)
    assert f"{PODS}/bank-adopt" not in kubelet.server.objects, "it is taken away"


def test_pod_that_adopts_is_found_by_no_service_and_taken_for_no_replica(kubelet: Kubelet) -> None:
    suspend(kubelet.server)
    plugin.main(["adopt", "bank", "--yes"])
    made = next(body for method, path, body in kubelet.server.asked if (method, path) == ("POST", PODS))
    labels = made["metadata"]["labels"]
    assert not names.selector("bank").items() <= labels.items()
    assert labels[names.LABEL_PURPOSE] == "adopt"


def test_without_a_word_nothing_is_done_but_a_look(kubelet: Kubelet, capsys: pytest.CaptureFixture[str]) -> None:
    suspend(kubelet.server)
    assert plugin.main(["adopt", "bank"]) == 64
    assert [spec["containers"][0]["command"][-1] for spec in kubelet.ran] == ["--dry-run"]
    assert plugin.main(["adopt", "bank", "--dry-run"]) == 0
    assert len(kubelet.ran) == 2


def test_service_that_goes_on_while_a_person_is_asked_is_not_adopted(
    kubelet: Kubelet, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def confirmed(*_: object, **__: object) -> bool:
        suspend(kubelet.server, suspend=False)
        return True

    monkeypatch.setattr(sys.stdin, "isatty", lambda: True)
    monkeypatch.setattr("click.confirm", confirmed)
    suspend(kubelet.server)
    assert plugin.main(["adopt", "bank"]) == 64
    assert "bank is not suspended" in capsys.readouterr().err
    assert [spec["containers"][0]["command"][-1] for spec in kubelet.ran] == ["--dry-run"]


def test_service_that_goes_on_before_the_pod_is_there_to_be_seen_is_not_adopted(
    kubelet: Kubelet, capsys: pytest.CaptureFixture[str]
) -> None:
    def go_on(method: str, path: str) -> None:
        if (method, path) == ("POST", PODS):
            suspend(kubelet.server, suspend=False)
        kubelet(method, path)

    kubelet.server.hook = go_on
    suspend(kubelet.server)
    assert plugin.main(["adopt", "bank", "--yes"]) == 64
    assert "bank is not suspended" in capsys.readouterr().err
    assert kubelet.ran == []
    assert f"{PODS}/bank-adopt" not in kubelet.server.objects, "it is taken away"


def test_pod_ends_by_itself_where_the_command_is_killed(kubelet: Kubelet) -> None:
    suspend(kubelet.server)
    assert plugin.main(["adopt", "bank", "--yes", "--timeout", "90.5"]) == 0
    assert kubelet.ran[0]["activeDeadlineSeconds"] == 91


def test_operator_sees_the_pod_and_starts_no_replica_beside_it(kubelet: Kubelet) -> None:
    suspend(kubelet.server)
    assert plugin.main(["adopt", "bank", "--yes"]) == 0
    made = next(body for method, path, body in kubelet.server.asked if (method, path) == ("POST", PODS))
    world = running()
    assert adopting(world.snapshot()) == []
    world.make_pod("bank-adopt", {"metadata": made["metadata"], "spec": {}})
    assert adopting(world.snapshot()) == ["bank-adopt"]
    assert made["metadata"]["labels"][names.LABEL_SERVICE] == "bank", "by which the operator lists pods"


def test_refusal_of_the_program_is_the_commands_own(kubelet: Kubelet, capsys: pytest.CaptureFixture[str]) -> None:
    suspend(kubelet.server)
    kubelet.exit_code = 65
    assert plugin.main(["adopt", "bank", "--restored", "--yes"]) == 65
    assert "what it said" in capsys.readouterr().err
    assert "--restored" in kubelet.ran[0]["containers"][0]["command"]


def test_code_is_upgraded_to_and_not_adopted(kubelet: Kubelet, capsys: pytest.CaptureFixture[str]) -> None:
    suspend(kubelet.server)
    assert plugin.main(["adopt", "bank", "--code", "--yes"]) == 64
    assert "`kubectl deathless upgrade --offline`" in capsys.readouterr().err
    assert plugin.main(["upgrade", "bank", "--offline", "--go"]) == 64
    assert plugin.main(["upgrade", "bank", "--yes"]) == 64
    assert kubelet.ran == []


def test_code_that_was_upgraded_to_offline_is_noted_for_the_operator(kubelet: Kubelet) -> None:
    suspend(kubelet.server, image="bank:other")
    assert plugin.main(["upgrade", "bank", "--offline", "--yes"]) == 64, "nobody has looked into the image yet"
    told = {"exitCode": 0, "message": json.dumps({"fingerprint": "bb" * 16})}
    kubelet.server.put(
        f"{PODS}/bank-check-1",
        metadata={"labels": {"deathless.dev/service": "bank", "deathless.dev/purpose": "check"}},
        status={"phase": "Succeeded", "containerStatuses": [{"name": "check", "state": {"terminated": told}}]},
    )
    assert plugin.main(["upgrade", "bank", "--offline", "--yes"]) == 0
    command = kubelet.ran[-1]["containers"][0]["command"]
    assert (command[:2], command[-2:]) == (["deathless", "upgrade"], ["--offline", "--yes"])
    assert kubelet.ran[-1]["containers"][0]["image"] == "bank:other"
    assert kubelet.server.objects[f"{SERVICES}/bank"]["metadata"]["annotations"] == {
        names.ADOPTED_CODE_ANNOTATION: "bb" * 16
    }


def test_operator_takes_the_code_that_was_upgraded_to_offline() -> None:
    world = running()
    world.edit(image="bank:other", upgradePolicy="Manual")
    world.settle()
    assert world.condition("UpgradeRequired")["status"] == "True"
    world.edit(suspend=True)
    world.settle()
    world.annotations[names.ADOPTED_CODE_ANNOTATION] = world.log_code = "bb" * 16
    world.edit(suspend=False)
    world.settle()
    assert (world.status["image"], world.condition("Ready")["status"]) == ("bank:other", "True")


def test_code_that_was_upgraded_to_offline_once_is_not_taken_for_what_serves_since() -> None:
    world = running({"upgradePolicy": "Manual"})
    world.annotations[names.ADOPTED_CODE_ANNOTATION] = "bb" * 16  # of long ago
    world.edit(image="bank:other")
    world.settle()
    assert (world.condition("UpgradeRequired")["status"], world.status["image"]) == ("True", "bank:1")
