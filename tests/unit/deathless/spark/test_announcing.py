"""What an agent tells the API server of its pod: the newest status, however often that takes."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

from deathless.base.pipelines.agents import AgentStatus
from deathless.shell.pod.kubernetes_api import ApiError
from deathless.spark.announcing import ROLE_LABEL, STATUS_ANNOTATION, Announcing, patch_of
from deathless_operator.model import names


def status(role: Any, number: int = 0) -> AgentStatus:
    return AgentStatus(pid=1, agent="a", role=role, number=number)


class Pods:
    """An API server that refuses as often as it is told to."""

    def __init__(self, refusals: int = 0) -> None:
        self.refusals = refusals
        self.patches: list[Mapping[str, object]] = []
        self.closed = 0

    def patch_pod(self, name: str, patch: Mapping[str, object]) -> object:
        assert name == "delays-drivers-0"
        if self.refusals:
            self.refusals -= 1
            raise ApiError(500, "later")
        self.patches.append(patch)
        return {}

    def close(self) -> None:
        self.closed += 1


def test_who_drives_has_the_label_and_nobody_else() -> None:
    metadata: Any = patch_of(status("driver", 4))["metadata"]
    assert metadata["labels"] == {ROLE_LABEL: "driver"}
    assert '"number":4' in metadata["annotations"][STATUS_ANNOTATION]
    waits: Any = patch_of(status("warm"))["metadata"]
    assert waits["labels"] == {ROLE_LABEL: None}, "it is taken away"


def test_names_are_those_that_the_operator_reads() -> None:
    assert (ROLE_LABEL, STATUS_ANNOTATION) == (names.LABEL_ROLE, names.STATUS_ANNOTATION)


def test_a_refusal_is_asked_for_again_with_growing_pauses() -> None:
    pods, pauses = Pods(refusals=3), list[float]()
    announcing = Announcing(pods, "delays-drivers-0", pauses.append)
    announcing.tell(status("warm"))
    announcing.step()
    assert (len(pods.patches), pods.closed, pauses) == (1, 3, sorted(pauses))
    assert len(set(pauses)) == 3


def test_what_changes_meanwhile_is_told_in_its_place() -> None:
    pods = Pods(refusals=1)
    announcing = Announcing(pods, "delays-drivers-0", lambda _: announcing.tell(status("driver", 7)))
    announcing.tell(status("warm"))
    announcing.step()
    assert pods.patches == [patch_of(status("driver", 7))]


def test_without_anything_to_tell_it_waits() -> None:
    pods = Pods()
    announcing = Announcing(pods, "delays-drivers-0")
    thread = threading.Thread(target=announcing.step)
    thread.start()
    announcing.tell(status("starting"))
    thread.join(30)
    assert pods.patches == [patch_of(status("starting"))]
