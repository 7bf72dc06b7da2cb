"""Tells the API server how a driver is: its agent's pod has a label for Services, and an annotation for the operator.

It has a thread of its own: an API server that is away for however long delays no report of the agent.

Guarantees: what is told last is what comes to stand there, nothing in between need be. Does not: tell anything that
decisions about batches hang on. Imports shell.pod.
"""

from __future__ import annotations

import http.client
import logging
import threading
import time
from collections.abc import Callable, Mapping
from typing import Final, Protocol

import msgspec

from deathless.base.backoff import next_pause
from deathless.base.pipelines.agents import AgentStatus
from deathless.shell.pod.kubernetes_api import ApiError

ROLE_LABEL: Final = "deathless.dev/role"
STATUS_ANNOTATION: Final = "deathless.dev/status"
DRIVER: Final = "driver"
RETRY_MIN_S, RETRY_MAX_S = 0.1, 5.0
_FAILURES: Final = (ApiError, OSError, http.client.HTTPException, msgspec.MsgspecError, ValueError)
_LOG: Final = logging.getLogger("deathless.agent")


class Pods(Protocol):
    """What of the API server is needed (`shell.pod.kubernetes_api.Api`)."""

    def patch_pod(self, name: str, patch: Mapping[str, object]) -> object:
        """Merge a patch into a pod."""

    def close(self) -> None:
        """Drop the connection."""


def patch_of(status: AgentStatus) -> dict[str, object]:
    """Give the patch that tells a status: who drives has a label, which nobody else has."""
    label = DRIVER if status.role == "driver" else None
    told = msgspec.json.encode(status).decode()
    return {"metadata": {"labels": {ROLE_LABEL: label}, "annotations": {STATUS_ANNOTATION: told}}}


class Announcing:
    """Tells one pod's status.

    Args:
        api: the API server.
        pod: our pod's name.
        sleep: pauses for so many seconds.
    """

    def __init__(self, api: Pods, pod: str, sleep: Callable[[float], object] = time.sleep) -> None:
        self._api = api
        self._pod = pod
        self._sleep = sleep
        self._changed = threading.Condition()
        self._newest: AgentStatus | None = None

    def tell(self, status: AgentStatus) -> None:
        """Have it told as soon as that is possible, in place of what was not told yet."""
        with self._changed:
            self._newest = status
            self._changed.notify_all()

    def run(self) -> None:
        """Tell what changes, for ever."""
        while True:
            self.step()

    def step(self) -> None:
        """Wait for something to tell, and tell it; the newest there is, however often that takes."""
        with self._changed:
            self._changed.wait_for(lambda: self._newest is not None)
        pause = RETRY_MIN_S
        while True:
            with self._changed:
                status = self._newest
            assert status is not None, "it is taken by this thread alone"
            try:
                self._api.patch_pod(self._pod, patch_of(status))
            except _FAILURES as error:
                _LOG.warning("not announced", extra={"why": str(error), "again_in_s": pause})
                self._api.close()
                self._sleep(pause)
                pause = next_pause(pause, first_s=RETRY_MIN_S, most_s=RETRY_MAX_S)
                continue
            with self._changed:
                if self._newest is status:
                    self._newest = None
                    return
