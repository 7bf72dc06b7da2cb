"""Commands about a pipeline whose driver is played by the test: of `deathless`, and of `kubectl deathless`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from replica_set import ReplicaSet, wait_for
from test_plugin_operates import ingress_of
from tests.unit.deathless_operator.cli.plugin_world import SERVICES, api_server
from tests.unit.deathless_operator.cli.test_plugin_cluster import put_kubectl

from deathless.base.errors import InvalidArgument, PeerUnreachable
from deathless.cli.main import main
from deathless.pipelines.client import PipelineClient
from deathless.pipelines.ledger import Batch, DriverDeposed
from deathless.pipelines.rows import blocks_of
from deathless_operator.cli import plugin

CARRIERS = Path(__file__).parents[1] / "spark" / "carriers.py"


class Pipeline:
    """A pipeline with one query, whose rows go to the service `carriers`; flights that end with 13 are refused."""

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        for name in ("delays", "carriers"):
            (folder / name).mkdir()
        back = [{"name": "delays", "directory": str(folder / "delays" / "data")}]
        carriers = f"{CARRIERS}:carriers"
        self.carriers = ReplicaSet(folder / "carriers", replicas=1, service="carriers", module=carriers, peers=back)
        peers = [{"name": "carriers", "directory": str(self.carriers.directory)}]
        module = "deathless.pipelines.service:pipeline"
        self.delays = ReplicaSet(
            folder / "delays", replicas=1, service="delays", module=module, peers=peers, ingress_listen="127.0.0.1:0"
        )
        self._manifest = str(folder / "delays" / "r0.json")
        self._capsys = capsys

    def run(self, *arguments: str, code: int = 0) -> str:
        """Run a command; gives what it prints."""
        assert main(["pipelines", *arguments, "-f", self._manifest]) == code
        return self._capsys.readouterr().out

    def json(self, *arguments: str) -> Any:
        return json.loads(self.run(*arguments, "--json"))

    def kubectl(self, *arguments: str) -> Any:
        """Run a command of the plugin, inside `forwarded`."""
        self._capsys.readouterr()
        assert plugin.main(["pipelines", *arguments, "--json"]) == 0, self._capsys.readouterr().err
        return json.loads(self._capsys.readouterr().out)

    @contextmanager
    def forwarded(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
        """Have an API server that knows the pipeline, and a kubectl that forwards to its service."""
        ingress = wait_for(lambda: ingress_of(self.delays), "an ingress", self.delays.describe)
        code = f"import signal; print('Forwarding from {ingress} -> 8080', flush=True); signal.pause()"
        put_kubectl(folder, monkeypatch, code)
        monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
        with api_server(folder) as (server, kubeconfig):
            monkeypatch.setenv("KUBECONFIG", kubeconfig)
            spec = {"module": "m:m", "image": "i:1", "logStorage": {"claimName": "log"}, "tls": {"issuer": "Off"}}
            server.put(f"{SERVICES}/delays", spec=spec)
            server.put(f"{SERVICES.rpartition('/')[0]}/sparkpipelines/delays", spec={})
            yield

    def client(self) -> PipelineClient:
        return PipelineClient("delays", [f"dir:{self.delays.directory}"])


@pytest.fixture(name="pipeline")
def pipeline_of_this_test(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Iterator[Pipeline]:
    pipeline = Pipeline(tmp_path, capsys)
    with pipeline.carriers, pipeline.delays:
        pipeline.carriers.primary()
        pipeline.delays.primary()
        yield pipeline


def decide(client: PipelineClient, start: str, end: str, *flights: str) -> None:
    """Have the driver decide a batch of these flights."""
    number = client.drivers().number
    attempt = client.open("log", number).attempt + 1
    blocks = []
    rows = [("UA", {"flight": flight}) for flight in flights]
    for at, (count, data) in enumerate(blocks_of("carriers", "seen", "deadLetter", rows)):
        client.stage("log", number, attempt, str(at), count, data)
        blocks.append((str(at), count))
    client.commit("log", Batch(number, attempt, start, end, blocks, 0, "q", "v1"))


def test_what_is_refused_is_listed_sent_again_and_dropped(
    pipeline: Pipeline, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pipeline.client() as client:
        assert client.report("a", warm=True).result().drives
        client.declare(1, ["log"])
        decide(client, "", "p1", "1", "13", "2", "113")
        wait_for(lambda: client.show("log").applied + client.show("log").refusals == 4, "rows")
        shown = pipeline.json("show")
        assert (shown["drivers"]["agent"], shown["queries"]["log"]["applied"]) == ("a", 2)
        assert [each["row"]["arguments"] for each in pipeline.json("refused", "log")["refused"]] == [
            {"flight": "13"}, {"flight": "113"},
        ]  # fmt: skip
        assert "carriers.seen" in pipeline.run("refused", "log")
        assert pipeline.json("retry", "log") == {"sent": 2, "refusedAgain": [1, 2]}
        with pipeline.forwarded(tmp_path, monkeypatch):
            assert pipeline.kubectl("show", "delays") == pipeline.json("show")
            assert pipeline.kubectl("refused", "delays", "log") == pipeline.json("refused", "log")
            assert pipeline.kubectl("retry", "delays", "log") == {"sent": 2, "refusedAgain": [1, 2]}
            assert pipeline.kubectl("switchover", "delays") == {"done": "a hands over"}
            assert pipeline.kubectl("drop", "delays", "log", "1") == {"dropped": 1}
        assert pipeline.run("drop", "log", "2", "7") == "1 dropped\n"
        assert pipeline.run("refused", "log") == "no row is listed\n"
        assert "of which 0 are listed" in pipeline.run("show", "log")


def test_drivers_are_suspended_resumed_and_handed_over(pipeline: Pipeline) -> None:
    with pipeline.client() as client:
        assert client.report("a", warm=True).result().drives
        assert "number 1" in pipeline.run("show")
        pipeline.run("suspend")
        assert not client.report("a", warm=True).result().drives
        assert "suspended" in pipeline.run("show")
        pipeline.json("resume")
        assert client.report("a", warm=True).result().number == 2
        client.report("b", warm=True).result()
        assert pipeline.run("switchover") == "a hands over\n"
        client.report("a", warm=True).result()
        assert client.report("b", warm=True).result().drives
        assert "standby  a (warm)" in pipeline.run("show")


def test_a_query_is_resumed_and_its_table_adopted(pipeline: Pipeline) -> None:
    with pipeline.client() as client:
        assert client.report("a", warm=True).result().drives
        client.open("facts", 1)
        client.stop("facts", 1, "the table has 1 batches, and the pipeline has decided 2")
        assert "has decided 2" in pipeline.run("show", "facts")
        for words in (("show",), ("refused",), ("retry",), ("drop", "1"), ("resume",), ("adopt", "--why", "w")):
            pipeline.run(words[0], "fatcs", *words[1:], code=InvalidArgument.exit_code)
        pipeline.run("adopt", "facts", code=2)
        pipeline.run("adopt", "facts", "--why", " ", code=2)
        assert client.open("facts", 1).adopt == ""
        assert "goes on from here" in pipeline.run("adopt", "facts", "--why", "the backup has to do")
        pipeline.run("resume", "facts")
        assert (client.open("facts", 1).adopt, client.open("facts", 1).stopped) == ("the backup has to do", "")
        with pytest.raises(DriverDeposed):
            client.open("facts", 0)
    pipeline.delays.stop()
    pipeline.run("adopt", "facts", "--why", "because", code=PeerUnreachable.exit_code)
