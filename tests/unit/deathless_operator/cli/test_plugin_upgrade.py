"""`kubectl deathless upgrade` against a small API server."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.unit.deathless_operator.cli.plugin_world import PODS, SERVICES, ApiServer, api_server, put_bank

from deathless_operator.cli import plugin
from deathless_operator.cli.plugin_upgrade import live_upgrades
from deathless_operator.cluster.errors import NotFound
from deathless_operator.model import names

SETS = "/apis/apps/v1/namespaces/ns/statefulsets"
OTHER = "bb" * 16


@pytest.fixture(name="server")
def bank(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ApiServer]:
    with api_server(tmp_path) as (server, kubeconfig):
        monkeypatch.setenv("KUBECONFIG", kubeconfig)
        monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
        put_bank(server)
        found = server.objects[f"{SERVICES}/bank"]
        found["spec"] |= {"image": "bank:2", "upgradePolicy": "Manual"}
        found["status"] |= {"image": "bank:1", "module": "bank:bank", "fingerprint": "aa" * 16}
        yield server


def put_ended(server: ApiServer, name: str, purpose: str, message: str, code: int = 0) -> None:
    """Store a pod that has ended."""
    labels = {names.LABEL_SERVICE: "bank", names.LABEL_PURPOSE: purpose}
    ended = {"exitCode": code, "message": message}
    status = {"phase": "Failed", "containerStatuses": [{"name": purpose, "state": {"terminated": ended}}]}
    metadata = {"labels": labels, "annotations": {names.ATTEMPT_ANNOTATION: "2"}}
    server.put(f"{PODS}/{name}", metadata=metadata, spec={}, status=status)


def told(server: ApiServer, capsys: pytest.CaptureFixture[str], *words: str) -> Any:
    """What the command prints as JSON."""
    assert plugin.main(["upgrade", "bank", "--json", *words]) == 0
    return json.loads(capsys.readouterr().out)


def test_command_shows_what_would_be_upgraded_to(server: ApiServer, capsys: pytest.CaptureFixture[str]) -> None:
    put_ended(server, "bank-check-1", "check", json.dumps({"fingerprint": OTHER}))
    put_ended(server, "bank-upgrade-1", "upgrade", "DL1022 called off\n", 75)
    found = told(server, capsys)
    assert (found["image"], found["wantedImage"], found["wantedFingerprint"]) == ("bank:1", "bank:2", OTHER)
    assert (found["policy"], found["askedFor"]) == ("Manual", False)
    (driver,) = found["drivers"]
    assert (driver["pod"], driver["attempt"], driver["message"]) == ("bank-upgrade-1", "2", "DL1022 called off")
    assert plugin.main(["upgrade", "bank"]) == 0
    shown = capsys.readouterr().out
    assert f"wanted  bank:2 bank:bank ({OTHER[:12]}), policy Manual" in shown
    assert "attempt 2, Failed DL1022 called off" in shown
    assert not [asked for asked in server.asked if asked[0] == "PATCH"]


def test_go_writes_the_word_for_that_code(server: ApiServer, capsys: pytest.CaptureFixture[str]) -> None:
    put_ended(server, "bank-check-1", "check", json.dumps({"fingerprint": OTHER}))
    assert plugin.main(["upgrade", "bank", "--go"]) == 0
    assert "without --go shows how far it is" in capsys.readouterr().out
    assert server.objects[f"{SERVICES}/bank"]["metadata"]["annotations"] == {names.UPGRADE_ANNOTATION: OTHER}
    assert told(server, capsys)["askedFor"] is True


@pytest.mark.parametrize(
    "note", ["", "{", json.dumps({"image": "x", "module": "y", "fingerprint": "z", "replicas": 3})]
)
def test_go_without_other_code_is_refused(server: ApiServer, capsys: pytest.CaptureFixture[str], note: str) -> None:
    server.put(f"{SETS}/bank", metadata={"annotations": {names.UPGRADING_TO_ANNOTATION: note}})
    put_ended(server, "bank-check-1", "check", "DL3013 no such module", 78)
    assert plugin.main(["upgrade", "bank", "--go"]) == 64
    assert "wait until UpgradeRequired is True" in capsys.readouterr().err
    assert plugin.main(["upgrade", "bank"]) == 0
    assert "wanted  the code that serves" in capsys.readouterr().out


def test_code_of_an_upgrade_under_way_is_known_without_its_check_pod(
    server: ApiServer, capsys: pytest.CaptureFixture[str]
) -> None:
    note = {"image": "bank:2", "module": "bank:bank", "fingerprint": OTHER, "replicas": 3}
    server.put(f"{SETS}/bank", metadata={"annotations": {names.UPGRADING_TO_ANNOTATION: json.dumps(note)}})
    server.objects[f"{SERVICES}/bank"]["status"]["conditions"].append(
        {"type": "Progressing", "status": "True", "reason": "Upgrading", "message": "pods start"}
    )
    assert told(server, capsys)["wantedFingerprint"] == OTHER
    assert plugin.main(["upgrade", "bank"]) == 0
    assert "Upgrading: pods start" in capsys.readouterr().out


def test_service_whose_spec_can_not_be_read_shows_what_serves(
    server: ApiServer, capsys: pytest.CaptureFixture[str]
) -> None:
    server.objects[f"{SERVICES}/bank"]["spec"] = {"replicas": "many"}
    found = told(server, capsys)
    assert (found["wantedImage"], found["policy"], found["fingerprint"]) == ("", "", "aa" * 16)


UPGRADES = "/apis/deathless.dev/v1alpha1/namespaces/ns/liveupgrades"


def put_upgrade(server: ApiServer, name: str, phase: str, at: int, service: str = "bank") -> None:
    """Store a LiveUpgrade."""
    server.put(
        f"{UPGRADES}/{name}",
        metadata={"creationTimestamp": f"2027-01-01T00:00:{at:02d}Z"},
        spec={"serviceRef": {"name": service}, "to": {"image": f"bank:{name}"}},
        status={"phase": phase, "message": f"so far: {phase}"},
    )


def test_live_upgrades_are_shown(server: ApiServer, capsys: pytest.CaptureFixture[str]) -> None:
    put_upgrade(server, "second", "Ready", 2)
    put_upgrade(server, "first", "Succeeded", 1)
    put_upgrade(server, "other", "Ready", 1, service="till")
    assert [each["name"] for each in told(server, capsys)["liveUpgrades"]] == ["first", "second"]
    assert plugin.main(["upgrade", "bank"]) == 0
    assert "LiveUpgrade second to bank:second, action Go: Ready so far: Ready" in capsys.readouterr().out


def test_there_are_no_live_upgrades_where_their_kind_is_not_served() -> None:
    class Missing:
        namespace = "ns"

        @property
        def api(self) -> Missing:
            return self

        async def list(self, *_: object) -> list[object]:
            raise NotFound("there is no such kind", status=404, reason="NotFound")

    assert asyncio.run(live_upgrades(Missing(), "bank")) == []  # type: ignore[arg-type]  # as far as it is asked


@pytest.mark.parametrize(("action", "which"), [("Hold", "second"), ("Abort", "second"), ("BackOut", "second")])
def test_action_is_for_the_one_that_is_under_way(
    server: ApiServer, capsys: pytest.CaptureFixture[str], action: str, which: str
) -> None:
    put_upgrade(server, "first", "Succeeded", 1)
    put_upgrade(server, "second", "Ready", 2)
    put_upgrade(server, "third", "Pending", 3)
    found = told(server, capsys, "--action", action)
    assert [each["action"] for each in found["liveUpgrades"]] == [
        action if each["name"] == which else "Go" for each in found["liveUpgrades"]
    ]
    assert server.objects[f"{UPGRADES}/{which}"]["metadata"]["annotations"] == {names.ACTION_ANNOTATION: action}


def test_back_out_is_for_the_last_one_that_was_made(server: ApiServer, capsys: pytest.CaptureFixture[str]) -> None:
    put_upgrade(server, "first", "Succeeded", 1)
    put_upgrade(server, "second", "Succeeded", 2)
    put_upgrade(server, "third", "BackedOut", 3)
    told(server, capsys, "--action", "BackOut")
    assert server.objects[f"{UPGRADES}/second"]["metadata"]["annotations"] == {names.ACTION_ANNOTATION: "BackOut"}


@pytest.mark.parametrize("words", [("--action", "Go"), ("--action", "Hold", "--go")])
def test_action_without_a_live_upgrade_is_refused(
    server: ApiServer, capsys: pytest.CaptureFixture[str], words: tuple[str, ...]
) -> None:
    put_upgrade(server, "first", "Succeeded", 1)
    assert plugin.main(["upgrade", "bank", *words]) == 64
    assert "LiveUpgrade" in capsys.readouterr().err
    assert not [asked for asked in server.asked if asked[0] == "PATCH"]
