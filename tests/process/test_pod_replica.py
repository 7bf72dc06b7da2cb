"""`deathless replica` as pods run it: by environment and shared config, killed, stopped, refused, two of one name."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path

import msgspec
import pytest
from replica_set import ALL, DEADLINE_S, ReplicaSet, called, judge, send_signal, wait_for

from deathless.base.config import ReplicaConfig
from deathless.core.supervisor.detection import Report
from deathless.shell.directory.members import read_members


class PodSet(ReplicaSet):
    """Replicas started as pods of a StatefulSet start them, all on this machine."""

    def __init__(self, folder: Path, **settings: object) -> None:
        super().__init__(folder)
        ports = ("client_listen", "replication_listen", "control_listen", "ingress_listen", "health_listen")
        own = {"announce_kubernetes": False, "termination_file": str(folder / "word")}
        self._settings |= dict.fromkeys(ports, "127.0.0.1:0") | own | settings
        self.uids = dict.fromkeys(self.names, "a")

    def config(self, name: str) -> ReplicaConfig:
        """See the base class."""
        config = super().config(name)
        return msgspec.structs.replace(config, instance=getattr(self, "uids", {}).get(name, ""))

    def start(self, name: str) -> None:
        """Start a pod's process."""
        shared = msgspec.to_builtins(super().config(name))
        for field in ("replica", "instance", "advertise_host"):
            del shared[field]
        path = self.folder / "shared.json"
        path.write_text(json.dumps(shared))
        pod = {"POD_NAME": f"ledger-{name[1:]}", "POD_UID": self.uids[name], "POD_IP": "127.0.0.1"}
        plain = {name: value for name, value in os.environ.items() if name not in ("HOME", "USER", "LOGNAME")}
        with (self.folder / f"{name}.log").open("ab") as log:
            self.processes[name] = subprocess.Popen(
                [sys.executable, "-m", "deathless.cli.main", "replica", "--config", str(path)],
                stdout=log,
                stderr=log,
                env={**plain, **pod, "POD_NAMESPACE": "default"},
                cwd="/",
            )

    def health(self, name: str) -> str:
        """Address of a replica's health port, as its log tells it."""
        for line in (self.folder / f"{name}.log").read_text().splitlines()[::-1]:
            if '"health port"' in line:
                return str(json.loads(line)["address"])
        return ""

    def probe(self, name: str, page: str) -> tuple[int, dict[str, object]]:
        """Ask a health port; 0: nobody answers."""
        try:
            with urllib.request.urlopen(f"http://{self.health(name)}/{page}", timeout=5) as answer:
                return answer.status, json.loads(answer.read())
        except urllib.error.HTTPError as error:
            return error.code, json.loads(error.read())
        except OSError:
            return 0, {}


def test_pods_serve_are_probed_and_survive_kills(tmp_path: Path) -> None:
    with PodSet(tmp_path) as pods:
        with called(pods) as load:
            for name in pods.names:
                wait_for(lambda name=name: pods.probe(name, "readyz")[0] == 200, f"{name} ready", pods.describe)  # type: ignore[misc]  # mypy does not know a default's type here
            old = pods.primary()
            pods.kill_worker(old)
            pods.primary(besides=old)
            load.wait_more()
            assert pods.probe(old, "livez")[0] == 200
        assert set(pods.stop().values()) == {0}


def test_containers_that_a_kubelet_starts_again_in_their_pods_serve_and_are_the_same_instances(tmp_path: Path) -> None:
    """A node's kubelet, or its memory, ends all containers; each comes back in the pod that it was in."""
    with PodSet(tmp_path) as pods:
        with called(pods) as load:
            pods.wait_roles(**ALL)
            before = {name: member(pods, name) for name in pods.names}
            for _ in range(2):
                for name in pods.names:
                    pods.processes[name].kill()
                for name in pods.names:
                    pods.processes[name].wait()
                    pods.start(name)
                pods.wait_roles(**ALL)
                load.wait_more()
            assert {name: member(pods, name) for name in pods.names} == before
        assert not (tmp_path / "word").read_text()
        judge(pods, load.history)


def test_pod_that_refuses_after_its_start_stays_up_not_ready_and_leaves_its_reason(tmp_path: Path) -> None:
    with PodSet(tmp_path, module="nothing_there:at_all") as pods:
        status, body = wait_for(lambda: refusal(pods), "a refusal", pods.describe)
        assert (status, "DL3013" in str(body["why"])) == (503, True)
        # All three leave their word in one file here, and each empties it as it starts.
        word = tmp_path / "word"
        wait_for(lambda: word.read_text().startswith("DL3013 ") or None, "its reason", pods.describe)
        assert pods.probe("r0", "livez")[0] == 200
        assert pods.processes["r0"].poll() is None


def refusal(pods: PodSet) -> tuple[int, dict[str, object]] | None:
    """What r0's readiness says once it has refused."""
    found = pods.probe("r0", "readyz")
    return found if str(found[1].get("why", "")).startswith("refused") else None


@pytest.mark.parametrize(
    ("settings", "code", "text"),
    [
        ({"lock": "paper"}, 78, "DL3001"),
        ({"directory": "/proc/nothing"}, 78, "DL3001"),
        ({"directory": "/sys/nothing"}, 77, "DL3012"),
    ],
)
def test_pod_that_can_not_start_ends_with_its_code_and_leaves_its_reason(
    tmp_path: Path, settings: dict[str, object], code: int, text: str
) -> None:
    pods = PodSet(tmp_path, **settings)
    pods.start("r0")
    assert pods.processes["r0"].wait(DEADLINE_S) == code
    assert (tmp_path / "word").read_text().startswith(f"{text} ")


def test_old_and_new_pod_of_one_replica_lose_and_double_nothing(tmp_path: Path) -> None:
    """A primary's pod is frozen, its replacement starts, the old one thaws under load and steps aside."""
    with PodSet(tmp_path) as pods:
        with called(pods) as load:
            name = pods.primary()
            old = pods.processes[name]
            worker = pods.signal_worker(name, signal.SIGSTOP)
            os.kill(old.pid, signal.SIGSTOP)
            pods.primary(besides=name)
            load.wait_more()
            pods.uids[name] = "b"
            pods.start(name)
            wait_for(lambda: member(pods, name) == ("b", 2), "the new pod's announcement", pods.describe)
            pods.wait_roles(**ALL)
            load.wait_more()
            for pid in (old.pid, worker):
                send_signal(pid, signal.SIGCONT)
            try:
                wait_for(lambda: "DL2002" in (tmp_path / "word").read_text(), "the old pod steps aside", pods.describe)
                load.wait_more(60)
                assert old.poll() is None, "it stays up, for an operator to see why"
                assert member(pods, name) == ("b", 2)
                pods.wait_roles(**ALL)
                pods.kill_worker(pods.primary())
                load.wait_more()
            finally:
                old.kill()
                old.wait()
        judge(pods, load.history)


def test_pod_that_hands_over_goes_once_its_successor_leads(tmp_path: Path) -> None:
    with PodSet(tmp_path) as pods:
        with called(pods) as load:
            old = pods.primary()
            pods.processes[old].terminate()
            assert pods.processes[old].wait(DEADLINE_S) == 0
            assert '"the successor leads"' in (tmp_path / f"{old}.log").read_text()
            load.wait_more()
        # The last one has nobody to wait for.
        assert set(pods.stop().values()) == {0}


def member(pods: PodSet, name: str) -> tuple[str, int]:
    """Which instance of a replica has announced itself."""
    found = read_members(str(pods.directory)).get(name)
    return (found.instance, found.generation) if found is not None else ("", 0)


def test_reports_without_instances_are_read_as_before() -> None:
    known = msgspec.msgpack.encode(["r0", "running", "standby", 1, 2])
    assert msgspec.msgpack.decode(known, type=Report).generation == 0
