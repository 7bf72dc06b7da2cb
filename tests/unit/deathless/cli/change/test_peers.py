"""`deathless peers`: what is shown of other services, and how one that was created anew is adopted."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import msgspec
import pytest

from deathless.base.config import ReplicaConfig
from deathless.base.errors import InvalidArgument
from deathless.cli import primary
from deathless.cli.main import main
from deathless.shell.directory.identity import prepare
from deathless.shell.link.config_file import config_path
from deathless.shell.operate.target import Target

MANIFEST = (
    "apiVersion: deathless.dev/v1alpha1\nkind: DeathlessService\nmetadata: {name: shop}\nspec: {module: 'pkg.m:a'}\n"
)
STOCK = {
    "service": "stock", "shard": 0, "connected": True, "address": "127.0.0.1:1", "sent": 9, "lag": 2, "received": 7,
    "incarnation": 1, "serviceId": "ab" * 16, "problem": "",
    "driver": False, "idle": False, "lastProblem": "", "errors": 0, "heldBack": "", "awayS": None,
}  # fmt: skip
MAIL = {**STOCK, "service": "mail", "connected": False, "problem": "nobody answers"}
LEDGER = {**STOCK, "service": "ledger", "connected": False, "driver": True, "idle": True, "lastProblem": "it was away"}


class Asked(list[tuple[str, dict[str, str]]]):
    """A primary that answers with its peers, and what it was asked."""

    peers: list[dict[str, object]]

    async def __call__(self, found: Target, command: str, arguments: dict[str, str] | None = None) -> dict[str, object]:
        assert found.config.service == "shop"
        self.append((command, arguments or {}))
        return {"peers": self.peers}


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Asked:
    """The primary of a service whose manifest is in the working folder."""
    (tmp_path / "service.yaml").write_text(MANIFEST)
    monkeypatch.chdir(tmp_path)
    fake = Asked()
    fake.peers = [STOCK, MAIL]
    monkeypatch.setattr(primary, "ask_primary", fake)
    return fake


def test_peers_are_a_table(asked: Asked, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["peers", "list"]) == 0
    head, stock, mail = capsys.readouterr().out.splitlines()
    assert head.split() == ["SERVICE", "CONNECTED", "SENT", "LAG", "RECEIVED", "HELD", "BACK", "PROBLEM"]
    assert stock.split() == ["stock", "yes", "9", "2", "7", "-", "-"]
    assert mail.endswith("nobody answers")
    assert asked == [("peers", {})]


def test_a_driver_with_nothing_to_do_is_idle_and_no_problem(asked: Asked, capsys: pytest.CaptureFixture[str]) -> None:
    asked.peers = [LEDGER]
    assert main(["peers", "list"]) == 0
    assert capsys.readouterr().out.splitlines()[1].split() == ["ledger", "idle", "9", "2", "7", "-", "-"]


def test_a_replica_of_an_earlier_version_says_less(asked: Asked, capsys: pytest.CaptureFixture[str]) -> None:
    asked.peers = [{name: STOCK[name] for name in list(STOCK)[:10]}]
    assert main(["peers", "list"]) == 0
    assert capsys.readouterr().out.splitlines()[1].split() == ["stock", "yes", "9", "2", "7", "-", "-"]


def test_peers_are_json_for_programs(asked: Asked, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["peers", "list", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"peers": asked.peers}


def test_which_of_our_shards_knows_them_is_said_where_there_are_several(
    asked: Asked, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "service.yaml").write_text(MANIFEST.replace("{module", "{shards: 2, module"))
    assert main(["peers", "list", "--json", "--shard", "1"]) == 0
    assert json.loads(capsys.readouterr().out) == {"peers": asked.peers, "ownShard": 1}
    identity = ["--service-id", "cd" * 16, "--incarnation", "3", "--yes"]
    assert main(["peers", "adopt", "stock/3", *identity, "--json", "--shard", "1"]) == 0
    told = {"adopted": "stock/3", "serviceId": "cd" * 16, "incarnation": 3, "ownShard": 1}
    assert json.loads(capsys.readouterr().out) == told


def test_that_there_are_no_peers_is_said(asked: Asked, capsys: pytest.CaptureFixture[str]) -> None:
    asked.peers = []
    assert main(["peers", "list"]) == 0
    assert capsys.readouterr().out == "this service has sent to nobody and heard from nobody\n"


def test_a_peer_is_adopted_as_who_it_is_said_to_be(asked: Asked, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["peers", "adopt", "stock", "--service-id", "cd" * 16, "--incarnation", "3", "--yes"]) == 0
    assert asked == [("adopt-peer", {"service": "stock", "service_id": "cd" * 16, "incarnation": "3"})]
    assert capsys.readouterr().out == "stock is adopted as cdcdcdcd/3\n"


def test_a_peer_is_adopted_as_who_its_folder_says_it_is(
    asked: Asked, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    directory = tmp_path / ".deathless" / "stock"
    config = ReplicaConfig(service="stock", module="m:a", directory=str(directory), replica="r0")
    config_path(directory, "r0").parent.mkdir(parents=True)
    config_path(directory, "r0").write_bytes(msgspec.json.encode(config))
    record = asyncio.run(prepare(config))
    assert main(["peers", "adopt", "stock", "--yes", "--json"]) == 0
    identity = {"serviceId": record.service_id.hex(), "incarnation": record.incarnation}
    assert json.loads(capsys.readouterr().out) == {"adopted": "stock", **identity}
    assert asked[0][1]["service_id"] == record.service_id.hex()


@pytest.mark.parametrize(
    "arguments",
    [
        ["--service-id", "cd" * 16, "--yes"],
        ["--incarnation", "3", "--yes"],
        ["--service-id", "cd" * 16, "--incarnation", "3", "--json"],
        ["--yes"],
    ],
    ids=["no incarnation", "no id", "no word", "no folder"],
)
def test_what_can_not_be_adopted_is_not_sent(
    asked: Asked, arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["peers", "adopt", "stock", *arguments]) == InvalidArgument.exit_code
    assert InvalidArgument.code in capsys.readouterr().err
    assert asked == []


def test_a_peer_that_is_reached_by_addresses_has_no_folder_to_look_into(
    asked: Asked, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "service.yaml").write_text(
        MANIFEST.replace("'pkg.m:a'}", "'pkg.m:a', peers: [{name: stock, addresses: ['a:1']}]}")
    )
    assert main(["peers", "adopt", "stock", "--yes"]) == InvalidArgument.exit_code
    assert "--service-id" in capsys.readouterr().err
    assert asked == []


def test_shards_of_a_peer_are_told_apart_and_adopted_by_themselves(
    asked: Asked, capsys: pytest.CaptureFixture[str]
) -> None:
    (one, *_) = asked.peers
    asked.peers = [{**one, "service": "stock", "shard": shard} for shard in (0, 1)] + [{**one, "service": "mail"}]
    assert main(["peers", "list"]) == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()[1:]] == ["stock/0", "stock/1", "mail"]
    assert main(["peers", "adopt", "stock/1", "--service-id", "cd" * 16, "--incarnation", "3", "--yes"]) == 0
    adopted = {"service": "stock", "service_id": "cd" * 16, "incarnation": "3", "shard": "1"}
    assert asked[-1] == ("adopt-peer", adopted)
    assert main(["peers", "adopt", "stock/x", "--yes"]) == InvalidArgument.exit_code
