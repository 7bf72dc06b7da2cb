"""The page of the first service, typed as it stands, but for what only a laptop with Docker has.

Its cluster, its images and its installation are the lab's. The service's code, its Dockerfile, its manifest and every
command from there on are taken from the page.
"""

from __future__ import annotations

import os
import re
import select
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from lab.cluster.bare import BareCluster
from lab.cluster.machine import ROOT, CommandFailed, run, wait_until
from tests.cluster.installed import Lab, volume

pytestmark = [pytest.mark.cluster, pytest.mark.usefixtures("deathless")]
PAGE = (ROOT / "docs" / "kubernetes" / "first-service.md").read_text()
IMAGE = "docker.io/library/bank:1"
WITHIN_S = 180.0
ATTEMPT_S = 30.0
"""A call, or a way to a pod, that takes longer is given up and tried again."""


def file_of(name: str) -> str:
    """The file that the page shows under its name."""
    found = re.search(rf"^`{re.escape(name)}`:\n\n```\w+\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    assert found is not None, name
    return found[1]


def block(beginning: str) -> str:
    """The one block of commands that begins so."""
    blocks = [textwrap.dedent(each) for each in re.findall(r"(?:^    .*\n|^\n)+", PAGE, re.MULTILINE)]
    found = [each.strip() for each in blocks if each.strip().startswith(beginning)]
    assert len(found) == 1, beginning
    return found[0]


class Shell:
    """A user's shell, in a namespace of the cluster."""

    def __init__(self, cluster: Lab, namespace: str, folder: Path) -> None:
        settings = folder / "config"
        shutil.copy(cluster.kubeconfig, settings)
        self._kubectl = cluster.binaries["kubectl"]
        programs = f"{self._kubectl.parent}:/usr/local/bin:/usr/bin:/bin"
        self._environment = {"KUBECONFIG": str(settings), "PATH": programs, "HOME": str(folder)}
        self.type(f"kubectl config set-context --current --namespace={namespace}")

    def type(self, commands: str, *, timeout_s: float = WITHIN_S) -> str:
        """Run lines; gives what they print. Raises: CommandFailed."""
        return run("bash", "-euc", commands, environment=self._environment, timeout_s=timeout_s)

    @contextmanager
    def forwarded(self, command: str) -> Iterator[str]:
        """`kubectl port-forward` of the page beside the block, from any port; gives 127.0.0.1:PORT."""
        words = command.removesuffix("&").replace("8080:", ":")
        with subprocess.Popen(
            ["bash", "-euc", f"exec {words}"], env=os.environ | self._environment, stdout=subprocess.PIPE, text=True
        ) as process:
            try:
                assert process.stdout is not None
                said, _, _ = select.select([process.stdout], [], [], ATTEMPT_S)
                found = re.search(r"127\.0\.0\.1:\d+", process.stdout.readline()) if said else None
                if found is None:
                    raise CommandFailed(words, process.poll(), "no port was opened")
                yield found[0]
            finally:
                process.kill()


@pytest.fixture
def shell(bare: BareCluster, namespace: str, tmp_path: Path) -> Iterator[Shell]:
    """A shell, and the volume that kind would make for the page's claim."""
    shared = bare.shared_folder(f"{namespace}-first")
    source = {"hostPath": {"path": f"/srv/shared/{shared.name}", "type": "Directory"}}
    made = volume(f"{namespace}-first", namespace, source)
    made["spec"] |= {
        "claimRef": {"namespace": namespace, "name": "bank-volume"},
        "accessModes": ["ReadWriteOnce"],
    }
    bare.apply(made)
    try:
        yield Shell(bare, namespace, tmp_path)
    finally:
        try:
            bare.kubectl("-n", namespace, "delete", "dls", "--all", "--timeout=180s", timeout_s=190)
        finally:
            try:
                bare.kubectl("delete", "pv", f"{namespace}-first", "--wait=false")
            finally:
                shutil.rmtree(shared, ignore_errors=True)


def test_page_of_the_first_service_works_as_it_stands(cluster: Lab, shell: Shell, tmp_path: Path) -> None:
    code = tmp_path / "bank"
    code.mkdir()
    (code / "bank.py").write_text(file_of("bank/bank.py"))
    (code / "Dockerfile").write_text(file_of("bank/Dockerfile"))
    archive = tmp_path / "bank.tar"
    build = (sys.executable, str(ROOT / "tools" / "image.py"), "--tag", IMAGE, "--output", str(archive))
    run(*build, "--file", code / "Dockerfile", code, timeout_s=600)
    cluster.load_image(archive)

    assert "bank" in shell.type(block("kubectl apply -f - <<EOF"), timeout_s=330)  # the page waits for 300 s

    forward, deposit, balance = block("kubectl port-forward service/bank").splitlines()
    kill, look, after = block("kubectl delete pod").splitlines()
    again = block("curl --json")

    def answers(line: str) -> bool:
        """As the page says: a call is sent again after a 503, the forwarding started again when its pod was the one."""
        try:
            with shell.forwarded(forward) as address:
                return shell.type(line.replace("127.0.0.1:8080", address), timeout_s=ATTEMPT_S).strip() == "5"
        except CommandFailed:
            return False

    def wait_five(line: str) -> None:
        wait_until(lambda: answers(line), f"5 is the answer to {line}", within_s=WITHIN_S)

    for line in (deposit, balance):
        wait_five(line)
    shell.type(kill)
    assert "bank-" in shell.type(look)
    for line in (after, again, after):
        wait_five(line)
