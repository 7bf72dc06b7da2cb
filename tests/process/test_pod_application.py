"""A program in another language in pods: what it gets there, and that a pod without it is not ready."""

from __future__ import annotations

import json
import os
import re
import signal
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from cli_tool import ROOT
from replica_set import send_signal, wait_for
from test_pod_replica import PodSet

from deathless.base.foreign.binding import INPUTS, LIMITS, SERVICE_MODULE
from deathless.base.topics.settings import topic_configs
from deathless.shell.foreign.child import PASSED_ON
from deathless.shell.link.application_status import ApplicationStatus, read_statuses

PROGRAM = """\
import json, os, runpy, sys
from pathlib import Path
folder = Path({folder!r})
(folder / f"seen-{{os.environ['DEATHLESS_REPLICA']}}.json").write_text(
    json.dumps({{"environment": dict(os.environ), "arguments": sys.argv[1:], "uid": os.getuid()}})
)
if (folder / "broken").exists():
    raise SystemExit(3)
sys.argv = [{counter!r}]
runpy.run_path({counter!r}, run_name="__main__")
"""
OWN = {
    "DEATHLESS_INSTANCE", "DEATHLESS_MESSAGE_BYTES_MAX", "DEATHLESS_PURPOSE", "DEATHLESS_RECEIVE_PORT",
    "DEATHLESS_REPLICA", "DEATHLESS_SEND_PORT", "COLOUR",
}  # fmt: skip


class ProgramPods(PodSet):
    """Pods whose code is the example's counter, behind a script that notes what it was given."""

    def __init__(self, folder: Path) -> None:
        program = folder / "program.py"
        counter = str(ROOT / "examples" / "foreign" / "counter.py")
        program.write_text(PROGRAM.format(folder=str(folder), counter=counter))
        path = {"PYTHONPATH": str(ROOT / "runtime")} if "PYTHONPATH" in os.environ else {}
        binding = {
            "command": [sys.executable, str(program), "{replica}", "{receivePort}"],
            "instance": "ledger",
            "environment": {"COLOUR": "blue", **path},
        }
        topics = msgspec.to_builtins(topic_configs((INPUTS,), str(folder / "data")))
        super().__init__(folder, module=SERVICE_MODULE, binding=binding, drivers=topics, limits=LIMITS)

    def statuses(self) -> dict[str, ApplicationStatus]:
        """What is said of the programs, by replica."""
        return {each.replica: each for each in read_statuses(str(self.directory))}

    def whole(self) -> bool:
        """Are all pods ready?"""
        return all(self.probe(name, "readyz")[0] == 200 for name in self.names)


@pytest.fixture(name="pods")
def ready_pods(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ProgramPods]:
    """Three, all of them ready; their own environment has a secret."""
    monkeypatch.setenv("PASSWORD_OF_THE_POD", "secret")
    with ProgramPods(tmp_path) as pods:
        wait_for(pods.whole, "pods that are ready", pods.describe)
        yield pods


def test_program_of_a_pod_gets_its_variables_and_nothing_of_ours(pods: ProgramPods, tmp_path: Path) -> None:
    """Its ports are on the loopback, other ones for each replica; standing by, it is started as well."""
    for name in pods.names:
        seen = json.loads((tmp_path / f"seen-{name}.json").read_text())
        environment = seen["environment"]
        assert set(environment) <= OWN | set(PASSED_ON) | {"PYTHONPATH"}
        assert set(environment) >= OWN
        assert "secret" not in environment.values()
        assert seen["arguments"] == [name, environment["DEATHLESS_RECEIVE_PORT"]]
        assert (environment["DEATHLESS_REPLICA"], environment["DEATHLESS_PURPOSE"]) == (name, "serve")
        assert (environment["DEATHLESS_INSTANCE"], seen["uid"]) == ("ledger", os.getuid())


def test_pod_whose_program_ends_again_and_again_is_not_ready_and_its_metrics_say_so(
    pods: ProgramPods, tmp_path: Path
) -> None:
    """A program that starts again makes it ready; the others stay as they are."""
    follower = next(name for name, each in pods.statuses().items() if each.state == "following")
    (tmp_path / "broken").touch()
    assert send_signal(pods.statuses()[follower].pid, signal.SIGKILL)

    def why() -> str:
        status, body = pods.probe(follower, "readyz")
        text = str(body.get("why", ""))
        return text if status == 503 and text.startswith("program failing: DL3103") else ""

    wait_for(why, "a pod that is not ready", pods.describe)
    assert pods.probe(follower, "livez")[0] == 200, "the replica itself is alive"
    assert number(pods, follower, "failing") == 1 and number(pods, follower, "serving") == 0
    assert number(pods, follower, "starts_total") > 1
    others = [name for name in pods.names if name != follower]
    assert all(number(pods, name, "serving") == 1 for name in others)
    (tmp_path / "broken").unlink()
    wait_for(pods.whole, "pods that are ready again", pods.describe)
    assert number(pods, follower, "serving") == 1


def number(pods: ProgramPods, name: str, metric: str) -> float:
    """A number of a replica's program at its health port."""
    with urllib.request.urlopen(f"http://{pods.health(name)}/metrics", timeout=30) as answer:
        page = answer.read().decode()
    found = re.search(rf"^deathless_program_{metric}\{{[^}}]*\}} (\S+)$", page, re.MULTILINE)
    assert found, page
    return float(found[1])
