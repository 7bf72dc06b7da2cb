"""A SparkPipeline on one machine, whose drivers are scripts here: its processes begin, end and recover together."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from cli_tool import Bank, read_until
from replica_set import DEADLINE_S, send_signal, wait_for
from tests.unit.deathless.shell.api_server import api_server

from deathless.base.errors import SparkMissing
from deathless.base.pipelines.agents import AgentConfig
from deathless.pipelines.client import PipelineClient
from deathless.shell.operate.agents import DriverView, look_at_drivers, running_agents

MANIFEST = """\
apiVersion: deathless.dev/v1alpha1
kind: SparkPipeline
metadata: {name: bank}
spec:
  module: delays.py:build
  replicas: 2
  drivers: {replicas: 2}
"""
# The module of drivers is another program here: it is warm at once, and computes a batch when it is to drive.
CUSTOMIZED = """
import os, socket, sys
if "deathless.spark.driver" in sys.orig_argv:
    from deathless.spark.line import Ended, Fact, Line, Order
    line = Line(socket.socket(fileno=int(sys.orig_argv[sys.orig_argv.index("--control") + 1])), Order)
    line.send(Fact(ui="http://127.0.0.1:4040"))
    line.send(Fact(warm=True))
    try:
        while True:
            for order in line.receive(60.0):
                line.send(Fact(decided=1))
    except Ended:
        os._exit(0)
"""


class Pipeline(Bank):
    """A pipeline whose name is that of the bank, in whose place it stands."""

    def write_manifest(self, replicas: int, more: str = "") -> None:
        """See Bank."""
        self.manifest.write_text(MANIFEST + more)
        (self.folder / "delays.py").write_text("def build(spark): ...\n")

    def __exit__(self, *ended: Any) -> None:  # noqa: PYI036  as Bank has them
        agents = running_agents(self.directory)
        super().__exit__(*ended)
        for pid in agents.values():
            send_signal(pid, signal.SIGKILL)

    def drivers(self) -> list[DriverView]:
        """As their agents tell."""
        return look_at_drivers(self.directory)

    def driving(self) -> DriverView | None:
        """The one that drives, if there is just one and the other one waits."""
        found = {each.role: each for each in self.drivers()}
        return found["driver"] if found.keys() == {"driver", "warm"} else None

    def wait_for_both(self, above: int = 0) -> DriverView:
        """Wait until one drives under a number above this, and the other one is warm; gives the first."""
        wait_for(lambda: (one := self.driving()) is not None and one.number > above, f"drivers, {self.drivers()}")
        found = self.driving()
        assert found is not None
        with PipelineClient("bank", [f"dir:{self.directory}"]) as client:
            wait_for(lambda: sum(each.warm for each in client.drivers().agents.values()) > 1, "what agents report")
        return found


@pytest.fixture
def pipeline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Pipeline]:
    around = tmp_path / "around"
    (around / "pyspark").mkdir(parents=True)
    (around / "pyspark" / "__init__.py").touch()
    (around / "sitecustomize.py").write_text(CUSTOMIZED)
    (around / "bin").mkdir()
    java = around / "bin" / "java"
    java.write_text("#!/bin/sh\necho 'openjdk version \"17.0.1\"' >&2\n")
    java.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(around))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(around), os.environ.get("PYTHONPATH", "")]))
    with Pipeline(tmp_path / "pipeline") as made:
        yield made


def test_up_starts_drivers_beside_the_replicas_and_down_ends_them(pipeline: Pipeline) -> None:
    pipeline.up()
    drives = pipeline.wait_for_both()
    told = pipeline.json("status")
    assert [each["name"] for each in told["drivers"]] == ["d0", "d1"]
    assert {each["ui"] for each in told["drivers"]} == {"http://127.0.0.1:4040"}
    assert {os.readlink(f"/proc/{each['driverPid']}/cwd") for each in told["drivers"]} == {str(pipeline.folder)}
    shown = pipeline.run("status").stdout
    assert f"{drives.name} drives, number {drives.number}, 1 warm" in shown
    assert "http://127.0.0.1:4040" in shown
    assert pipeline.json("pipelines", "show")["drivers"]["agent"] == drives.agent
    found = pipeline.drivers()
    output = pipeline.run("down").stdout
    assert output.index("d1") < output.index("r0"), "agents are stopped first"
    assert running_agents(pipeline.directory) == {}
    assert pipeline.supervisors() == {}
    assert not any(Path(f"/proc/{each.driver_pid}").exists() for each in found)


def test_whatever_is_killed_comes_back_and_an_interruption_ends_all(pipeline: Pipeline) -> None:
    up = pipeline.start("up")
    read_until(up, "is primary")
    drives = pipeline.wait_for_both()
    send_signal(drives.driver_pid, signal.SIGKILL)
    after = pipeline.wait_for_both(drives.number)
    assert after.name != drives.name, "the other one was warm"
    send_signal(after.agent_pid, signal.SIGKILL)
    last = pipeline.wait_for_both(after.number)
    assert last.name == drives.name
    assert running_agents(pipeline.directory)[after.name] != after.agent_pid, "its agent was started again"
    before = pipeline.supervisors()
    send_signal(before["r0"], signal.SIGKILL)
    wait_for(lambda: pipeline.supervisors().get("r0") not in (None, before["r0"]), "r0 again")
    assert pipeline.wait_for_both().driver_pid == last.driver_pid, "a replica's death costs no driver its place"
    up.send_signal(signal.SIGINT)
    output, errors = up.communicate(timeout=DEADLINE_S)
    assert (up.returncode, errors) == (0, "")
    assert output.count("stopped (process") == 4
    assert (running_agents(pipeline.directory), pipeline.supervisors()) == ({}, {})


def test_killing_up_kills_no_driver_and_a_new_one_finds_them(pipeline: Pipeline) -> None:
    up = pipeline.start("up")
    read_until(up, "is primary")
    pipeline.wait_for_both()
    up.kill()
    up.wait(DEADLINE_S)
    before = running_agents(pipeline.directory)
    again = pipeline.start("up", "--json")
    told = [json.loads(line) for line in read_until(again, "status")]
    found = {each["replica"]: each["pid"] for each in told if each["event"] == "found running"}
    assert found == {**before, **pipeline.supervisors()}
    with contextlib.suppress(subprocess.TimeoutExpired):
        again.terminate()
        again.communicate(timeout=DEADLINE_S)
    assert running_agents(pipeline.directory) == {}


def test_a_second_agent_of_one_folder_is_refused(pipeline: Pipeline) -> None:
    pipeline.up()
    pipeline.wait_for_both()
    config = pipeline.directory / "agents" / "d0" / "config.json"
    command = [sys.executable, "-m", "deathless.spark.host", str(config)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_S, check=False)
    assert done.returncode != 0
    assert "another agent runs" in done.stderr
    pipeline.down()


def test_without_spark_nothing_is_started(pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", "/nowhere")
    assert SparkMissing.code in pipeline.run("up", "--detach", code=SparkMissing.exit_code).stderr
    assert pipeline.supervisors() == {}
    assert "no driver can run here" in pipeline.run("check", "--no-run").stdout


def test_an_agent_in_a_pod_finds_its_service_by_address_and_tells_the_api_server(
    pipeline: Pipeline, tmp_path: Path
) -> None:
    pipeline.up()
    pipeline.wait_for_both()
    addresses = tuple(filter(None, (each["client"] for each in pipeline.json("status")["replicas"])))
    config = AgentConfig(pipeline="bank", name="pod", module="delays.py:build", addresses=addresses)
    with api_server(tmp_path) as server:
        server.put("bank-drivers-0")
        place = server.place
        told = {
            "KUBERNETES_SERVICE_HOST": place.host,
            "KUBERNETES_SERVICE_PORT": str(place.port),
            "POD_NAMESPACE": place.namespace,
            "POD_NAME": "bank-drivers-0",
            "DEATHLESS_TOKEN_FILE": place.token_file,
            "DEATHLESS_CA_FILE": place.ca_file,
            "DEATHLESS_AGENT_CONFIG": msgspec.json.encode(config).decode(),
            "TMPDIR": str(tmp_path),
        }
        agent = subprocess.Popen(
            [sys.executable, "-m", "deathless.spark.host"], cwd=pipeline.folder, env={**os.environ, **told}
        )
        try:

            def role() -> str:
                metadata: Any = server.pods["bank-drivers-0"]["metadata"]
                status = (metadata.get("annotations") or {}).get("deathless.dev/status", "{}")
                return str(json.loads(status).get("role", ""))

            wait_for(lambda: role() == "warm", "its word")
            assert (tmp_path / "agent" / "ready").exists()
        finally:
            agent.terminate()
            assert agent.wait(DEADLINE_S) == 0
    pipeline.down()
