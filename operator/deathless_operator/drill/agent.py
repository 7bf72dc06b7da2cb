"""A fault that needs the node: kill or stop a pod's processes, or drop its packets; and its end.

Runs in a privileged pod with `hostPID` beside the victim. One agent causes one fault and ends.

    order     guardian forked (it leaves the container's cgroups) -> fault begins -> wait -> undone -> guardian let go
    undone    by whoever lives: the agent at the fault's end, on SIGTERM and on any error; the guardian when the agent
              is killed with -9, and at its own deadline; for filters the kernel, too, through its timeouts

Guarantees: a fault lasts at most `duration_s` plus `GUARD_MARGIN_S` while the node lives; nothing but the pod of that
uid is touched; a fault that only a guardian could undo is not begun without one. The report tells when it began and
ended by this node's clock. Does not: choose the victim, nor judge what came of it.
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Final, Literal, assert_never

from deathless.base.errors import DeathlessError, Internal, InvalidArgument
from deathless_operator.drill.filters import Cut, NetworkNamespace
from deathless_operator.drill.guardian import NODE_ROOT, Guardian
from deathless_operator.drill.processes import (
    PROC,
    PodProcess,
    Which,
    check_pod_uid,
    continue_all,
    pick,
    pod_processes,
    send,
    stop_all,
)
from deathless_operator.plan.drill.reports import AgentReport

GUARD_MARGIN_S: Final = 2.0
DURATION_MAX_S: Final = 3600.0
FaultName = Literal["ProcessKill", "Freeze", "Partition", "LockOutage"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """What an agent is to do. Invariant: `duration_s` in [0, DURATION_MAX_S]."""

    pod_uid: str
    fault: FaultName
    process: Which = "worker"  # ProcessKill
    duration_s: float = 10.0  # all but ProcessKill
    cut: Cut = field(default_factory=Cut)  # Partition, LockOutage
    proc: Path = PROC
    node_root: Path = NODE_ROOT

    def check(self) -> None:
        """Refuse what makes no sense. Raises: InvalidArgument."""
        check_pod_uid(self.pod_uid)
        if not 0 <= self.duration_s <= DURATION_MAX_S:
            raise InvalidArgument(f"a fault lasts 0 to {DURATION_MAX_S:g} s, not {self.duration_s:g}")
        if self.fault in ("Partition", "LockOutage") and self.cut == Cut():
            raise InvalidArgument(f"{self.fault} needs to know what to cut off")


def run(order: Order, wait: Callable[[float], object] | None = None) -> AgentReport:
    """Cause the fault, wait, undo it; never raises for what went wrong on the way, the report tells it.

    Args:
        order: checked here.
        wait: how the fault's duration passes; None: until it is over or SIGTERM comes.

    Raises: InvalidArgument.
    """
    order.check()
    stop = threading.Event()
    before = _on_terminate(stop)
    try:
        match order.fault:
            case "ProcessKill":
                return _kill(order)
            case "Freeze":
                return _freeze(order, wait or stop.wait)
            case "Partition" | "LockOutage":
                return _cut(order, wait or stop.wait)
            case _:
                assert_never(order.fault)
    except (DeathlessError, OSError) as error:
        return AgentReport(fault=order.fault, problem=str(error)[:500])
    finally:
        if before is not None:
            signal.signal(signal.SIGTERM, before)


def _on_terminate(stop: threading.Event) -> signal.Handlers | Callable[[int, FrameType | None], object] | int | None:
    """End the wait at SIGTERM; the `finally` blocks behind it do the rest. Gives the handler there was."""
    if threading.current_thread() is not threading.main_thread():
        return None
    return signal.signal(signal.SIGTERM, lambda *_: stop.set())


def _found(order: Order) -> list[PodProcess]:
    found = pod_processes(check_pod_uid(order.pod_uid), order.proc)
    if not found:
        raise Internal(
            f"no process of pod {order.pod_uid} on this node", remedy="check that the pod is still on this node"
        )
    return found


def _kill(order: Order) -> AgentReport:
    victims = pick(_found(order), order.process)
    if not victims:
        raise Internal(f"pod {order.pod_uid} has no {order.process} process now")
    began = time.time()
    killed = sum(send(victim, signal.SIGKILL, order.proc) for victim in victims)
    problem = "" if killed else "every process was gone before it was hit"
    return AgentReport(fault=order.fault, began=began, ended=time.time(), touched=killed, problem=problem)


def _freeze(order: Order, wait: Callable[[float], object]) -> AgentReport:
    uid = check_pod_uid(order.pod_uid)

    def undo() -> None:
        continue_all(pod_processes(uid, order.proc))

    _found(order)
    guardian = Guardian(undo, order.duration_s + GUARD_MARGIN_S, order.node_root)
    guardian.start()
    began, stopped = time.time(), 0
    try:
        if not guardian.outside:
            raise Internal(
                "the guardian could not leave the container's cgroups, so nobody would thaw the pod for certain",
                remedy="the agent's pod must be privileged and share the node's process namespace",
            )
        stopped = len(stop_all(lambda: pod_processes(uid, order.proc)))
        wait(order.duration_s)
    finally:
        undo()
        guardian.release()
    return AgentReport(fault=order.fault, began=began, ended=time.time(), touched=stopped)


def _cut(order: Order, wait: Callable[[float], object]) -> AgentReport:
    namespace = NetworkNamespace(_found(order)[0].pid, order.proc)
    try:
        if namespace.is_the_nodes(order.node_root.parent):
            raise Internal(f"pod {order.pod_uid} is on the node's own network", remedy="such a pod cannot be cut off")
        guardian = Guardian(namespace.remove, order.duration_s + GUARD_MARGIN_S, order.node_root)
        guardian.start()
        began = time.time()
        try:
            namespace.cut(order.cut, order.duration_s + GUARD_MARGIN_S)
            wait(order.duration_s)
        finally:
            namespace.remove()
            guardian.release()
        return AgentReport(fault=order.fault, began=began, ended=time.time(), touched=1)
    finally:
        namespace.close()
