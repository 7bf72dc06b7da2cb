"""Looks at the pods of a service while it takes over.

Guarantees: a look asks the API server anew. Does not: change anything.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable
from typing import Final

from lab.cluster.cluster import Pod
from lab.cluster.machine import CommandFailed
from tests.cluster.installed import Lab

PAUSE_S: Final = 0.25  # between two looks: a look takes the processors from the takeover it waits for
WITHIN_S: Final = 120.0


class Look:
    """An administrator's eyes.

    Args:
        cluster: whose pods.
        namespace: of the pods.
        selector: their labels.
    """

    def __init__(self, cluster: Lab, namespace: str, selector: str) -> None:
        self._cluster = cluster
        self._namespace = namespace
        self._selector = selector

    def pods(self) -> list[Pod]:
        """The pods as they are now. Raises: CommandFailed."""
        return self._cluster.pods(self._namespace, self._selector)

    def epoch(self) -> int:
        """The highest epoch that pods announce."""
        told = [json.loads(pod.annotations.get("deathless.dev/status", "{}")) for pod in self.pods()]
        return max((int(one.get("epoch", 0)) for one in told), default=0)

    def wait(self, condition: Callable[[], bool], what: str) -> None:
        """Wait for something. Raises: AssertionError when it takes too long."""
        end = time.monotonic() + WITHIN_S
        while True:
            with contextlib.suppress(CommandFailed, ValueError):
                if condition():
                    return
            assert time.monotonic() < end, f"not within {WITHIN_S:g} s: {what}"
            time.sleep(PAUSE_S)
