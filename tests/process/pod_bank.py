"""The bank of `upgraded_bank` in pods: images as folders, containers as processes, all on this machine.

    with PodBank(tmp_path) as bank, Callers(bank) as callers:
        bank.roll_out("v2", version_2())       # pods bank-3 and bank-4 of the new image, the former one beside each
        bank.drive("v2").wait()

An image is a folder with the module `service`, in which its processes run; a pod has a folder for temporary files,
which its containers share. A kubelet is played by the tests: what ends stays ended until it is started again.

Guarantees: whatever is left running at the end is ended, by its id alone. Does not: sleep for a guessed time.
"""

from __future__ import annotations

import json
import os
import subprocess
import urllib.error
import urllib.request
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import msgspec
from cli_tool import PROGRAM
from replica_set import DEADLINE_S, wait_for
from upgraded_bank import UpgradedBank, version_1

from deathless.base.config import ReplicaConfig
from deathless.base.errors import DeathlessError
from deathless.shell.operate.status import ReplicaView
from deathless.shell.pod.pod_config import read_plain_config

OLD = ("r0", "r1", "r2")
NEW = ("r3", "r4")
Process = subprocess.Popen[bytes]


class PodBank(UpgradedBank):
    """Pods that run version 1 of the bank.

    Args:
        source: of that version.
        replicas: how many.
    """

    def __init__(self, folder: Path, *, source: str = "", replicas: int = 3) -> None:
        super().__init__(folder)
        self.names = [f"r{number}" for number in range(replicas)]
        self.images: dict[str, str] = {}  # by the name of a replica
        self.formers: dict[str, str] = {}  # likewise: the image in its container `former`
        self.containers: dict[str, Process] = {}  # by "r3", "r3 former", "drive"
        self.image("v1", source or version_1())

    def __enter__(self) -> Self:
        for name in self.names:
            self.start_pod(name, "v1")
        self.wait_roles(1, *self.names)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            error.add_note(self.told())
        for process in self.containers.values():
            process.kill()
            process.wait()

    # ---- images and pods -----------------------------------------------------------------------------------------

    def image(self, name: str, source: str) -> None:
        """Make an image, with its ConfigMap beside it."""
        folder = self.folder / name
        folder.mkdir()
        (folder / "service.py").write_text(source)
        (folder / "replica.json").write_text(json.dumps(self.shared()))

    def shared(self, **more: object) -> dict[str, object]:
        """Give what the replicas share."""
        ports = dict.fromkeys(("client_listen", "replication_listen", "control_listen", "health_listen"), "127.0.0.1:0")
        own = {"announce_kubernetes": False, "ingress_listen": "", "directory": str(self.directory)}
        return {"service": "bank", "module": "service:bank", **ports, **own, **more}

    def start_pod(self, name: str, image: str, former: str = "") -> None:
        """Start a pod, or its replica's container again.

        Args:
            name: of its replica.
            image: of the container.
            former: image of the container `former`; empty: there is none.
        """
        self.images[name], self.formers[name] = image, former
        scratch = self.scratch(name)
        scratch.mkdir(exist_ok=True)
        more = {"former": str(scratch / "former.sock")} if former else {}
        path = self.folder / f"{name}.json"
        path.write_text(json.dumps(self.shared(termination_file=str(self.word(name)), **more)))
        if former and not self.runs(f"{name} former"):
            self.start_former(name)
        pod = {"POD_NAME": f"bank-{name[1:]}", "POD_UID": f"uid-{name}", "POD_IP": "127.0.0.1"}
        self.container(name, image, name, ["replica", "--config", str(path)], **pod, POD_NAMESPACE="default")

    def start_former(self, name: str) -> None:
        """Start the container `former` of a pod, or start it again."""
        image, path = self.formers[name], str(self.scratch(name) / "former.sock")
        config = str(self.folder / image / "replica.json")
        self.container(f"{name} former", image, name, ["former", "--listen", path, "-f", config])

    def start_again(self, name: str) -> None:
        """Do as a kubelet does with the container of a replica."""
        self.start_pod(name, self.images[name], self.formers[name])

    def roll_out(self, image: str, source: str, *names: str, former: str = "v1") -> None:
        """Make an image, and the pods that upgrade to it."""
        self.image(image, source)
        for name in names or NEW:
            self.start_pod(name, image, former)

    def drive(self, image: str, *more: str, names: tuple[str, ...] = NEW) -> Process:
        """Start the pod that leads through the upgrade."""
        self.word("drive").write_text("")
        words = ["upgrade", "drive", "-f", str(self.folder / image / "replica.json"), "--upgraders", ",".join(names)]
        words += ["--termination-file", str(self.word("drive")), "--timeout", f"{DEADLINE_S:g}", *more]
        self.container("drive", image, "drive", words)
        return self.containers["drive"]

    def drive_to(self, image: str, *more: str, code: int = 0, names: tuple[str, ...] = NEW) -> str:
        """Lead through the upgrade to its end; gives the termination message."""
        found = self.drive(image, *more, names=names).wait(2 * DEADLINE_S)
        assert found == code, f"{found}: {self.word('drive').read_text()}\n{self.log('drive')}"
        return self.word("drive").read_text()

    def driven(self, image: str, *more: str, names: tuple[str, ...] = NEW) -> dict[str, Any]:
        """Lead through the upgrade to its good end; gives its outcome."""
        found = json.loads(self.drive_to(image, *more, names=names))
        assert isinstance(found, dict)
        return found

    def container(self, key: str, image: str, pod: str, words: list[str], **variables: str) -> None:
        """Start a process of a pod."""
        folder, scratch = self.folder / image, self.scratch(pod)
        scratch.mkdir(exist_ok=True)
        environment = {**os.environ, "TMPDIR": str(scratch), **variables}
        with (self.folder / f"{key}.log").open("ab") as log:
            self.containers[key] = subprocess.Popen(
                [*PROGRAM, *words], cwd=folder, env=environment, stdout=log, stderr=log, stdin=subprocess.DEVNULL
            )

    def kill(self, key: str) -> None:
        """kill -9 of a container, and all in it."""
        self.containers[key].kill()
        self.containers[key].wait()

    def runs(self, key: str) -> bool:
        """Is this container there?"""
        return key in self.containers and self.containers[key].poll() is None

    # ---- looking -------------------------------------------------------------------------------------------------

    def scratch(self, name: str) -> Path:
        """Folder for temporary files of a pod."""
        return self.folder / f"{name}.tmp"

    def word(self, name: str) -> Path:
        """Termination message of a container."""
        return self.folder / f"{name}.word"

    def log(self, key: str) -> str:
        """Everything a container has said."""
        path = self.folder / f"{key}.log"
        return path.read_text() if path.exists() else ""

    def config(self, shard: int = 0) -> ReplicaConfig:
        """See the base class."""
        del shard
        return read_plain_config(str(self.folder / "v1" / "replica.json"))

    def until_driven(self, phase: str) -> None:
        """Wait until the pod that drives has said that it is in a phase, or has ended."""
        wait_for(lambda: f"\n{phase} " in f"\n{self.log('drive')}" or not self.runs("drive"), phase, self.told)

    def of(self, name: str) -> ReplicaView | None:
        """How a replica is."""
        return self.view().of(name)

    def wait_roles(self, primaries: int, *names: str) -> None:
        """Wait until these replicas run, and so many of them lead."""

        def look() -> bool:
            views = [self.of(name) for name in names]
            roles = [view.role for view in views if view is not None and view.state == "running"]
            followers = [role for role in roles if role in ("standby", "checkpointer")]
            return roles.count("primary") == primaries and len(followers) == len(names) - primaries

        wait_for(look, f"{names} that run", self.told)

    def wait_upgraders(self, *names: str) -> None:
        """Wait until these follow by the former code."""

        def look() -> bool:
            views = [self.of(name) for name in names or NEW]
            return all(view is not None and view.role == "upgrader" for view in views)

        wait_for(look, "upgraders", self.told)

    def told(self, shard: int = 0) -> str:
        """See the base class."""
        del shard
        try:
            lines = [f"{r.replica} {r.role} {r.state} {r.epoch} {r.lsn} {r.condition}" for r in self.view().replicas]
        except (DeathlessError, OSError) as error:
            lines = [f"no view: {error}"]
        for key in self.containers:
            lines += [f"--- {key}", *(line[:400] for line in self.log(key).splitlines()[-12:])]
        return "\n".join(lines)

    def probe(self, name: str, page: str) -> tuple[int, dict[str, Any]]:
        """Ask a health port; 0: nobody answers."""
        address = ""
        for line in self.log(name).splitlines():
            if '"health port"' in line:
                address = json.loads(line)["address"]
        try:
            with urllib.request.urlopen(f"http://{address}/{page}", timeout=5) as answer:
                return answer.status, msgspec.json.decode(answer.read())
        except urllib.error.HTTPError as error:
            return error.code, msgspec.json.decode(error.read())
        except (OSError, ValueError):
            return 0, {}

    def wait_probe(self, name: str, status: int, why: str = "") -> None:
        """Wait until a pod is ready (200), or is not for a reason."""

        def look() -> bool:
            found, said = self.probe(name, "readyz")
            return found == status and why in str(said.get("why", ""))

        wait_for(look, f"{name} {status} {why}", self.told)
