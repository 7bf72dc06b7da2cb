"""What is counted and logged of looks at objects, the same for every kind.

Guarantees: a look that did something, or found another sentence than the one before, is logged as INFO, and others as
DEBUG. Does not: write statuses or events.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from deathless_operator.cluster.carry_out import target
from deathless_operator.handlers.metrics import Metrics
from deathless_operator.handlers.work_queue import Key
from deathless_operator.plan.drill.snapshot import DrillAction

logger = logging.getLogger(__name__)


class LookLog:
    """The looks at objects of one kind.

    Args:
        metrics: actions are counted here.
    """

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._said: dict[Key, str] = {}

    def note(self, key: Key, sentence: str, actions: Sequence[DrillAction]) -> None:
        """Count what was done, and log it with its sentence."""
        for action in actions:
            self._metrics.actions.labels(key.kind, type(action).__name__).inc()
        level = logging.INFO if actions or self._said.get(key) != sentence else logging.DEBUG
        self._said[key] = sentence
        done = [f"{type(action).__name__} {' '.join(target(action))}: {action.why}" for action in actions]
        logger.log(level, "%s: %s", key, sentence, extra=where(key) | ({"actions": done} if done else {}))

    def forget(self, key: Key) -> None:
        """Forget an object that is gone, and say so once."""
        if self._said.pop(key, None) is not None:
            logger.info("%s: it no longer exists", key, extra=where(key))


def where(key: Key) -> dict[str, object]:
    """Return the fields of a log line about `key`."""
    return {"kind": key.kind, "namespace": key.namespace, "object": key.name}
