"""A program in another language as the pods of a service: called all the time while something is broken.

Each call adds one byte, under an Idempotency-Key of its own, until it is answered. In the end the program's total is
the number of calls: one less is a call that was lost, one more is one that was done twice.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import shutil
import sys
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from lab.cluster.machine import ROOT, run
from lab.go_programs import built
from tests.cluster.front_door import DEADLINE_S, PAUSE_S, Callers
from tests.cluster.installed import CALM, Lab, Ledger
from tests.cluster.test_plugin_on_the_cluster import told
from tests.cluster.under_load import wait_epoch, wait_whole

from deathless.base.foreign.binding import SERVICE_MODULE

pytestmark = [pytest.mark.cluster, pytest.mark.usefixtures("deathless")]

IMAGE = "docker.io/library/deathless-counter:1"
PROGRAM = "/app/counter"
ADD = 1
ONE, NOTHING = base64.b64encode(b"x").decode(), ""
NO_GO = "the program of the cluster test is left out: no go compiler on the search path"


def build_image(folder: Path) -> Path:
    """Build the example's counter as a static binary into our image; gives a docker archive."""
    program = built("counter", *sorted((ROOT / "examples" / "foreign" / "go").glob("*.go")))
    if program is None:
        pytest.skip(NO_GO)
    context = folder / "counter"
    context.mkdir()
    shutil.copy(program, context / "counter")
    (context / "Dockerfile").write_text(
        f"FROM docker.io/library/deathless:0.1.0\nCOPY --chmod=0755 counter {PROGRAM}\n"
    )
    build = (sys.executable, str(ROOT / "tools" / "image.py"))
    output = context / "image.tar"
    run(*build, "--tag", IMAGE, "--output", output, "--file", context / "Dockerfile", context, timeout_s=600)
    return output


class ProgramCallers(Callers):
    """Callers of the program: each call adds one byte."""

    async def _until_answered(self, session: aiohttp.ClientSession, tag: str, key: str) -> None:
        identity = str(uuid.uuid4())
        while await self._add(session, ONE, identity) < 0:  # noqa: ASYNC110  nobody tells when a door is open again
            await asyncio.sleep(PAUSE_S)

    async def _add(self, session: aiohttp.ClientSession, data: str, identity: str) -> int:
        """Add bytes; gives the total, or -1 where there was no good answer."""
        began = time.monotonic()
        try:
            async with session.post(
                self._door.url("-", "call"),
                json={"method": ADD, "args": data},
                headers={"Idempotency-Key": identity},
                server_hostname=self._door.server_name or None,
            ) as response:
                text = await response.text()
                if response.status == 200:
                    return int.from_bytes(base64.b64decode(await response.json()), "little")
                self._failed(response.status, f"{response.status} {text[:200]}", began)
                assert response.status in {429, 502, 503, 504, 507}, text
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            self._failed(error, f"{type(error).__name__}: {error}", began)
        return -1

    def check_exactly_once(self) -> None:
        """The total is the number of calls. Ask after `stop`."""
        assert asyncio.run(self._total()) == len(self.answered) == len(self.sent)

    async def _total(self) -> int:
        end = time.monotonic() + DEADLINE_S
        async with self.session() as session:
            while time.monotonic() < end:
                with contextlib.suppress(aiohttp.ClientError):
                    if (found := await self._add(session, NOTHING, str(uuid.uuid4()))) >= 0:
                        return found
                await asyncio.sleep(PAUSE_S)
        raise AssertionError("the total is not answered")


@pytest.fixture(name="counter", scope="module")
def counting(cluster: Lab, deathless: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ledger]:
    """Three pods with the program, Ready."""
    cluster.load_image(build_image(tmp_path_factory.mktemp("program")))
    spec: dict[str, Any] = {
        "image": IMAGE,
        "module": SERVICE_MODULE,
        "binding": {"command": [PROGRAM], "checkpointEveryRows": 200},
    }
    with Ledger(cluster, "program", limits=CALM, **spec) as ledger:
        ledger.wait_ready()
        yield ledger


def test_program_in_pods_loses_and_doubles_nothing_whatever_is_broken(counter: Ledger) -> None:
    """The program is killed, the leader's pod deleted, the checkpointer's process killed, the leader's node frozen."""
    cluster = counter.cluster
    wait_whole(counter)
    with ProgramCallers(counter.door()) as callers:
        callers.wait_more()
        cluster.kill_process(counter.primary(), PROGRAM)
        callers.wait_more()
        counter.wait_condition("ProgramReady", "True", "ProgramServes")

        epoch, old = counter.epoch(), counter.primary()
        cluster.delete_pod(old, grace_s=0)
        wait_epoch(counter, epoch)
        callers.wait_more()

        wait_whole(counter)
        checkpointer = next(pod for pod in counter.pods() if pod.labels.get("deathless.dev/role") == "checkpointer")
        cluster.kill_process(checkpointer, "deathless.foreign.host")
        callers.wait_more()

        wait_whole(counter)
        old = counter.primary()
        with cluster.frozen_node(old.node):
            counter.wait_other_primary(old)
            callers.wait_more()
        callers.wait_more()
    callers.check_exactly_once()


def test_program_in_pods_that_hands_over_refuses_no_call(counter: Ledger) -> None:
    """By a switchover that was asked for, to a replica whose program runs already."""
    counter.wait_ready()
    wait_whole(counter)
    old = counter.primary()
    with ProgramCallers(counter.door(), patient=True) as callers:
        callers.wait_more()
        moved = told(counter, "switchover", counter.name, "--timeout", "120", timeout_s=180)
        assert (moved["before"], moved["after"] != old.name) == (old.name, True)
        callers.wait_more()
    assert not callers.failures, callers.failures[:5]
