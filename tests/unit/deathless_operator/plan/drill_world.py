"""A cluster in a few lines for the drill planner: carries plans out, runs the drill's pods, and can lose its operator.

Why not a real API server: a property over thousands of crash points needs microseconds. Guarantees: actions mean what
their docstrings say. Does not: judge; tests do.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import msgspec

from deathless.base.manifest import ServiceSpec
from deathless_operator.model import names
from deathless_operator.model.drill import DrillResource, DrillSpec, DrillStatus
from deathless_operator.model.settings import OperatorSettings
from deathless_operator.model.status import Condition, ServiceStatus
from deathless_operator.model.values import JsonObject, part, text, texts
from deathless_operator.plan.actions import Apply, DeletePod, Event, PatchMetadata
from deathless_operator.plan.drill.drill import make_drill_plan
from deathless_operator.plan.drill.reports import AgentReport, RunnerReport, encode_report
from deathless_operator.plan.drill.snapshot import (
    DrillAction,
    DrillNodeView,
    DrillPlan,
    DrillSnapshot,
    EvictPod,
    SetCordon,
)
from deathless_operator.plan.snapshot import Announcement, ContainerView, PodView, ResourceView, Snapshot

START = 1_700_000_040.0
SETTINGS = OperatorSettings(drill_agents=True, drill_node_drain=True)


class Refused(Exception):
    """The API server refused an action."""


def make_spec(fault: str = "ProcessKill", **other: object) -> DrillSpec:
    """A drill of service `bank`; `fault_*` fields go to the fault."""
    fault_fields = {key.removeprefix("fault_"): value for key, value in other.items() if key.startswith("fault_")}
    rest = {key: value for key, value in other.items() if not key.startswith("fault_")}
    raw = {"serviceRef": {"name": "bank"}, "fault": {"type": fault, **fault_fields}, **rest}
    return msgspec.convert(raw, DrillSpec)


def replica(index: int, role: str, *, epoch: int = 4, ready: bool = True) -> PodView:
    """Replica r<index> of bank, on its own node."""
    name = f"bank-{index}"
    return PodView(
        name=name,
        uid=f"uid-{name}-1",
        node=f"worker{index}",
        phase="Running",
        ready=ready,
        labels={names.LABEL_REPLICA: f"r{index}", names.LABEL_ROLE: role, names.LABEL_SERVICE: "bank"},
        announced=Announcement(replica=f"r{index}", role=role, epoch=epoch, since=START - 1000),
    )


def good_service(**other: object) -> ResourceView:
    """Service bank, Ready."""
    ready = Condition(type="Ready", status="True", reason="AllReady")
    fields: dict[str, object] = {
        "namespace": "ns",
        "name": "bank",
        "uid": "uid-bank",
        "generation": 1,
        "spec": ServiceSpec(module="bank:bank", image="bank:1"),
        "status": ServiceStatus(conditions=(ready,)),
    }
    return ResourceView(**(fields | other))  # type: ignore[arg-type]


@dataclass
class World:
    """One service, one drill, three nodes."""

    spec: DrillSpec
    now: float = START + 1
    name: str = "nightly"
    status: DrillStatus = field(default_factory=DrillStatus)
    finalizers: tuple[str, ...] = ()
    deleted: bool = False
    service: ResourceView | None = field(default_factory=good_service)
    replicas: list[PodView] = field(
        default_factory=lambda: [replica(0, "primary"), replica(1, "checkpointer"), replica(2, "standby")]
    )
    nodes: dict[str, DrillNodeView] = field(
        default_factory=lambda: {f"worker{index}": DrillNodeView(name=f"worker{index}") for index in range(3)}
    )
    pods: dict[str, PodView] = field(default_factory=dict)  # runner and agent, by name
    others: tuple[DrillResource, ...] = ()
    settings: OperatorSettings = SETTINGS
    budget_allows: bool = True
    hit: list[str] = field(default_factory=list)  # uids of replicas that were hit, each time
    begun: list[str] = field(default_factory=list)  # marks of runners that were made
    events: list[Event] = field(default_factory=list)
    uids: int = 0

    def resource(self) -> DrillResource:
        """The drill, as stored."""
        return DrillResource(
            namespace="ns",
            name=self.name,
            uid="uid-drill",
            generation=1,
            spec=self.spec,
            finalizers=self.finalizers,
            deleted=self.deleted,
            created_at=START,
            status=self.status,
        )

    def snapshot(self) -> DrillSnapshot:
        """What the API server shows now."""
        target = None
        if self.service is not None:
            target = Snapshot(now=self.now, resource=self.service, pods=tuple(self.replicas))
        return DrillSnapshot(
            now=self.now,
            resource=self.resource(),
            target=target,
            runner=self.pods.get("bank-drill"),
            agent=self.pods.get("ns-bank-drill-agent"),
            nodes=tuple(self.nodes.values()),
            others=self.others,
        )

    def plan(self) -> DrillPlan:
        """Plan, and change nothing."""
        return make_drill_plan(self.snapshot(), self.settings)

    def look(self, actions_max: int = 1000, *, write_status: bool = True) -> DrillPlan:
        """One look of an operator, which may die after some of its actions or before it writes the status."""
        plan = self.plan()
        for action in plan.actions[:actions_max]:
            self.act(action)
        if write_status and actions_max >= len(plan.actions):
            if plan.status is not None:
                self.status = plan.status
            self.events += plan.events
        return plan

    def act(self, action: DrillAction) -> None:
        """Carry an action out."""
        match action:
            case Apply():
                self._apply(action.manifest)
            case DeletePod():
                self._delete(action.uid)
            case EvictPod():
                if self.budget_allows:
                    self._delete(action.uid)
            case PatchMetadata():
                assert action.kind == names.DRILL_KIND
                assert action.finalizers is not None
                self.finalizers = action.finalizers
            case SetCordon():
                node = self.nodes[action.node]
                self.nodes[action.node] = replace(node, cordoned=action.cordon, mark=action.mark or "")
            case _:
                raise AssertionError(action)

    def _apply(self, manifest: JsonObject) -> None:
        name, mark = text(manifest, "metadata", "name"), self.mark(manifest)
        found = self.pods.get(name)
        if found is not None:
            if found.annotations[names.DRILL_ANNOTATION] != mark:
                raise Refused(f"pod {name} has another spec")
            return
        self.uids += 1
        self.pods[name] = PodView(
            name=name,
            uid=f"uid-{name}-{self.uids}",
            node=text(manifest, "spec", "nodeName") or "worker1",
            annotations=texts(manifest, "metadata", "annotations"),
            containers=(ContainerView(name="c"),),
            created_at=self.now,
        )
        if name == "bank-drill":
            self.begun.append(mark)
        else:
            arguments = part(manifest, "spec", "containers", 0, "args")
            assert isinstance(arguments, list)
            self.hit.append(next(str(one).split("=")[1] for one in arguments if str(one).startswith("--pod-uid=")))

    @staticmethod
    def mark(manifest: JsonObject) -> str:
        """The run's mark on a manifest."""
        return texts(manifest, "metadata", "annotations")[names.DRILL_ANNOTATION]

    def _delete(self, uid: str) -> None:
        """Delete a pod; a replica comes back under another uid, and another one leads."""
        self.pods = {name: pod for name, pod in self.pods.items() if pod.uid != uid}
        for index, pod in enumerate(self.replicas):
            if pod.uid == uid:
                self.hit.append(uid)
                self.uids += 1
                node = "elsewhere" if self.nodes[pod.node].cordoned else pod.node
                self.replicas[index] = replace(replica(index, "standby"), uid=f"{uid}-{self.uids}", node=node)
                self.take_over((index + 1) % len(self.replicas))

    def take_over(self, index: int) -> None:
        """Another replica leads, in the next epoch."""
        fresh = replica(index, "primary", epoch=5)
        assert fresh.announced is not None
        announced = msgspec.structs.replace(fresh.announced, since=self.now + 0.4)
        self.replicas[index] = replace(fresh, uid=self.replicas[index].uid, announced=announced)

    def become_warm(self) -> None:
        """The runner's calls go well."""
        pod = self.pods["bank-drill"]
        self.pods["bank-drill"] = replace(pod, phase="Running", ready=True)

    def end(self, name: str, message: str, phase: str = "Succeeded") -> None:
        """A pod of the drill ends."""
        pod = self.pods[name]
        ended = ContainerView(name="c", terminated=True, exit_code=0, message=message)
        self.pods[name] = replace(pod, phase=phase, ready=False, containers=(ended,))

    def end_agent(self, problem: str = "", lasted_s: float = 0.0) -> None:
        """The agent has done its work."""
        began = 0.0 if problem else self.now
        report = AgentReport(fault="x", began=began, ended=began + lasted_s, touched=1, problem=problem)
        self.end("ns-bank-drill-agent", encode_report(report).decode())

    def end_runner(self, verdict: str = "Passed", reason: str = "NothingLost", mark: str = "", **other: object) -> None:
        """The runner has seen enough."""
        pod = self.pods["bank-drill"]
        fields: dict[str, object] = {"calls": 100, "answered": 100, "unavailable_seconds": 0.7, "ended_at": self.now}
        report = RunnerReport(
            run=mark or pod.annotations[names.DRILL_ANNOTATION],
            verdict=verdict,  # type: ignore[arg-type]
            reason=reason,
            message="as told",
            **(fields | other),  # type: ignore[arg-type]
        )
        self.end("bank-drill", encode_report(report).decode())

    @property
    def phase(self) -> str:
        """Of the active run; empty: none."""
        return self.status.active.phase if self.status.active is not None else ""

    def look_until(self, phase: str, looks_max: int = 12) -> None:
        """Look until the active run has that phase."""
        for _ in range(looks_max):
            if self.phase == phase:
                return
            self.look()
        raise AssertionError(f"phase is {self.phase!r}, not {phase!r}")

    def to_warm(self) -> None:
        """Bring a run to where its calls go well."""
        self.look_until("Pending")
        self.look()
        self.become_warm()
        self.look_until("Warm")

    def to_fault(self) -> None:
        """Bring a run to where its fault begins."""
        self.to_warm()
        self.look_until("Fault")

    def traces(self) -> list[str]:
        """What a drill has left behind it, the finished runner apart."""
        found = [f"cordoned {node.name}" for node in self.nodes.values() if node.cordoned or node.mark]
        found += ["agent"] if "ns-bank-drill-agent" in self.pods else []
        return found + [f"finalizer {name}" for name in self.finalizers]
