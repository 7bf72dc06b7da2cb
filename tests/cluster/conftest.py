"""The running cluster that tests of this folder share, with the image of this very tree in its nodes.

Why: a cluster costs a quarter of a minute and an image ten seconds, so one of each serves a whole run. A cluster that
was up before stays up, which is how one works on a test: `make cluster-up` once, then pytest as often as needed.

Guarantees: the image is built from the tree as it is now. Where this machine can run no cluster the tests are left
out with one line that says why. Two runs never share the cluster: the second ends at once and says so.
"""

from __future__ import annotations

import re
import subprocess
import sys
import uuid
from collections.abc import Generator, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from lab import kubernetes
from lab.cluster.bare import BareCluster
from lab.cluster.cluster import NoNetem
from lab.cluster.kind import KindCluster
from lab.cluster.machine import ROOT, InUse, sole_use
from lab.cluster.provider import NoCluster, choose
from tests.cluster.installed import CALM, NAMESPACE, Ledger, build_images, install_for_tests

IMAGE = "docker.io/library/deathless:0.1.0"
"""Our image, as the chart names it."""


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call() -> Generator[None]:
    """Leave out what this machine's kernel can't do."""
    try:
        return (yield)
    except NoNetem as none:
        pytest.skip(str(none))


@pytest.fixture(scope="session")
def alone() -> Iterator[None]:
    """No other run of these tests shares the cluster; one that finds it taken ends with a line."""
    with ExitStack() as held:
        try:
            held.enter_context(sole_use("cluster tests"))
        except InUse as used:
            pytest.exit(str(used), returncode=1)
        yield


@pytest.fixture(scope="session")
def cluster(alone: None) -> Iterator[BareCluster | KindCluster]:
    """A running cluster; one that this run started is ended with it."""
    try:
        found = choose()
    except NoCluster as none:
        pytest.skip(str(none))
    was_running = found.running()
    try:
        if not was_running:
            found.up()
        yield found
    except kubernetes.GoMissing as none:
        pytest.skip(str(none))
    finally:
        found.hang_up()
        if not was_running:
            found.down()


@pytest.fixture(scope="session")
def bare(cluster: BareCluster | KindCluster) -> BareCluster:
    """The cluster, where its nodes are namespaces of this machine, whose file systems a test can make and break."""
    if not isinstance(cluster, BareCluster):
        pytest.skip("nodes of kind are containers: no file system of theirs can be made and broken from here")
    return cluster


@pytest.fixture(scope="session")
def image(cluster: BareCluster | KindCluster) -> str:
    """The name of our image, built now and loaded into every node."""
    done = subprocess.run(
        [sys.executable, ROOT / "tools" / "image.py", "--tag", IMAGE],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode == 3:
        pytest.skip(done.stdout.strip())
    assert done.returncode == 0, done.stderr
    cluster.load_image(Path(done.stdout.strip()))
    return IMAGE


@pytest.fixture
def namespace(cluster: BareCluster | KindCluster, request: pytest.FixtureRequest) -> Iterator[str]:
    """A namespace for one test, gone afterwards with all that is in it."""
    words = re.sub(r"[^a-z0-9]+", "-", request.node.name.removeprefix("test_").lower())
    with cluster.namespace(f"{words[:40].strip('-')}-{uuid.uuid4().hex[:6]}") as name:
        yield name


@pytest.fixture(scope="session")
def deathless(cluster: BareCluster | KindCluster, image: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Operator and lock store, installed by helm; images of two versions of a service."""
    for archive in build_images(tmp_path_factory.mktemp("images"))[1:]:
        cluster.load_image(archive)
    install_for_tests(cluster)
    cluster.kubectl("-n", NAMESPACE, "rollout", "restart", "deployment/deathless-operator")  # the image is of now
    cluster.wait_rolled_out(NAMESPACE, "deployment/deathless-operator")


@pytest.fixture(scope="module")
def settled(cluster: BareCluster | KindCluster, deathless: None) -> Iterator[Ledger]:
    """A service that is Ready and that its tests leave so."""
    with Ledger(cluster, "settled") as ledger:
        ledger.wait_ready()
        yield ledger


@pytest.fixture(scope="module")
def calm(cluster: BareCluster | KindCluster, deathless: None) -> Iterator[Ledger]:
    """The same for tests that count failed calls or takeovers: no replica is replaced for being silent for a moment."""
    with Ledger(cluster, "calm", limits=CALM) as ledger:
        ledger.wait_ready()
        yield ledger
