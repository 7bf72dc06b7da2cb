"""The CustomResourceDefinitions: names, columns and subresources around the schemas of the models.

Guarantees: what `crds/` holds is what these functions give (a test compares). Does not: write files (tools/crds.py
does). Imports model and base only.
"""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from deathless.base.manifest import ServiceSpec
from deathless.base.pipelines.manifest import SparkPipelineSpec
from deathless_operator.model.drill import DrillSpec, DrillStatus
from deathless_operator.model.live_upgrade import LiveUpgradeSpec, LiveUpgradeStatus
from deathless_operator.model.names import (
    DRILL_KIND,
    DRILL_PLURAL,
    GROUP,
    LIVE_UPGRADE_KIND,
    LIVE_UPGRADE_PLURAL,
    PIPELINE_KIND,
    PIPELINE_PLURAL,
    REHEARSAL_KIND,
    REHEARSAL_PLURAL,
    REPLAY_KIND,
    REPLAY_PLURAL,
    SERVICE_KIND,
    SERVICE_PLURAL,
    VERSION,
)
from deathless_operator.model.rehearsal import RehearsalSpec, RehearsalStatus
from deathless_operator.model.replay import ReplaySpec, ReplayStatus
from deathless_operator.model.rules import (
    DRILL_RULES,
    LIVE_UPGRADE_RULES,
    PIPELINE_RULES,
    REHEARSAL_RULES,
    REPLAY_RULES,
    SERVICE_RULES,
    Rule,
)
from deathless_operator.model.schema import structural, with_rules
from deathless_operator.model.spark_pipeline import PipelineStatus
from deathless_operator.model.status import ServiceStatus
from deathless_operator.model.values import Json, JsonObject

# 40 characters leave room for what is added to a service's name in names of pods, Services and labels.
NAME_SCHEMA: JsonObject = {"type": "string", "maxLength": 40, "pattern": "^[a-z]([-a-z0-9]*[a-z0-9])?$"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """A column of `kubectl get`."""

    name: str
    path: str
    type: str = "string"
    priority: int = 0  # 1: shown by -o wide alone
    description: str = ""

    def encode(self) -> JsonObject:
        """Give it as the CRD has it."""
        found: JsonObject = {"name": self.name, "type": self.type, "jsonPath": self.path}
        if self.description:
            found["description"] = self.description
        if self.priority:
            found["priority"] = self.priority
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Definition:
    """All that makes one CRD."""

    kind: str
    plural: str
    short_names: tuple[str, ...]
    description: str
    spec: type[msgspec.Struct]
    status: type[msgspec.Struct]
    rules: tuple[Rule, ...]
    columns: tuple[Column, ...]
    scale: bool


AGE = Column(name="Age", path=".metadata.creationTimestamp", type="date")
SERVICE = Definition(
    kind=SERVICE_KIND,
    plural=SERVICE_PLURAL,
    short_names=("dls",),
    description="A service of ordinary Python code whose state and replies survive the loss of any process or node.",
    spec=ServiceSpec,
    status=ServiceStatus,
    rules=SERVICE_RULES,
    columns=(
        Column(name="Ready", path=".status.ready", description="Ready pods of wanted pods."),
        Column(name="Primary", path=".status.primary", description="The pod that leads."),
        Column(name="Epoch", path=".status.epoch", type="integer", description="How often the primary changed."),
        Column(
            name="Status",
            path='.status.conditions[?(@.type=="Ready")].reason',
            description="Why it is ready, or why not.",
        ),
        Column(name="Image", path=".status.image", priority=1, description="The image that runs."),
        Column(name="Doing", path=".status.doing", priority=1, description="What the operator is doing."),
        AGE,
    ),
    scale=True,
)
DRILL = Definition(
    kind=DRILL_KIND,
    plural=DRILL_PLURAL,
    short_names=("fdr",),
    description="A rehearsed failure of a service, measured by a client and judged: once, or on a schedule.",
    spec=DrillSpec,
    status=DrillStatus,
    rules=DRILL_RULES,
    columns=(
        Column(name="Service", path=".spec.serviceRef.name"),
        Column(name="Fault", path=".spec.fault.type"),
        Column(name="Schedule", path=".spec.schedule", priority=1),
        Column(name="Verdict", path=".status.verdict", description="Of the last run."),
        Column(
            name="Unavailable",
            path=".status.unavailableSeconds",
            type="number",
            description="Longest time that a client waited for an answer, in seconds.",
        ),
        Column(name="Takeover", path=".status.takeoverSeconds", type="number", priority=1),
        Column(name="Lost", path=".status.callsLost", type="integer"),
        Column(name="Doubled", path=".status.callsDoubled", type="integer"),
        Column(name="Last", path=".status.last.completionTime", type="date"),
        Column(name="Reason", path=".status.reason", priority=1),
        AGE,
    ),
    scale=False,
)
LIVE_UPGRADE = Definition(
    kind=LIVE_UPGRADE_KIND,
    plural=LIVE_UPGRADE_PLURAL,
    short_names=("lup",),
    description="Other code for a service that goes on serving: tried first, then handed over to, and the way back.",
    spec=LiveUpgradeSpec,
    status=LiveUpgradeStatus,
    rules=LIVE_UPGRADE_RULES,
    columns=(
        Column(name="Service", path=".spec.serviceRef.name"),
        Column(name="To", path=".spec.to.image", description="The image that is upgraded to."),
        Column(name="Phase", path=".status.phase", description="How far it is."),
        Column(name="Reason", path=".status.reason", description="Why, in one word."),
        Column(
            name="Unavailable",
            path=".status.unavailableSeconds",
            type="number",
            description="Longest time that a shard served nobody for it, in seconds.",
        ),
        Column(name="From", path=".status.former.image", priority=1, description="The image that served before."),
        Column(name="Action", path=".spec.action", priority=1),
        Column(name="Message", path=".status.message", priority=1),
        AGE,
    ),
    scale=False,
)
REPLAY = Definition(
    kind=REPLAY_KIND,
    plural=REPLAY_PLURAL,
    short_names=("rpl",),
    description="A run of a service's own log by the service's own image, compared with what was logged.",
    spec=ReplaySpec,
    status=ReplayStatus,
    rules=REPLAY_RULES,
    columns=(
        Column(name="Service", path=".spec.serviceRef.name"),
        Column(name="Phase", path=".status.phase", description="How far it is."),
        Column(name="Reason", path=".status.reason", description="Why, in one word."),
        Column(
            name="Messages",
            path=".status.result.messages",
            type="integer",
            description="Messages that gave the same states and replies.",
        ),
        Column(
            name="Differs",
            path=".status.result.firstDifference.lsn",
            type="integer",
            description="The lsn of the first message that did not.",
        ),
        Column(name="Handler", path=".status.result.firstDifference.handler", priority=1),
        Column(name="Seconds", path=".status.result.seconds", type="number", priority=1),
        Column(name="Message", path=".status.message", priority=1),
        AGE,
    ),
    scale=False,
)
REHEARSAL = Definition(
    kind=REHEARSAL_KIND,
    plural=REHEARSAL_PLURAL,
    short_names=("rhl",),
    description="A run of a service's own log by the code that serves and by another image, compared by handler.",
    spec=RehearsalSpec,
    status=RehearsalStatus,
    rules=REHEARSAL_RULES,
    columns=(
        Column(name="Service", path=".spec.serviceRef.name"),
        Column(name="Image", path=".spec.image", description="The image with the new code."),
        Column(name="Phase", path=".status.phase", description="How far it is."),
        Column(name="Verdict", path=".status.verdict", description="Whether the new code does the same."),
        Column(name="Reason", path=".status.reason", description="Why, in one word."),
        Column(
            name="Messages",
            path=".status.result.messages",
            type="integer",
            description="Messages that were run by both.",
        ),
        Column(name="Seconds", path=".status.result.seconds", type="number", priority=1),
        Column(name="Message", path=".status.message", priority=1),
        AGE,
    ),
    scale=False,
)
PIPELINE = Definition(
    kind=PIPELINE_KIND,
    plural=PIPELINE_PLURAL,
    short_names=("sp",),
    description="Spark between services: queries over topics, whose rows become calls of handlers, each exactly once.",
    spec=SparkPipelineSpec,
    status=PipelineStatus,
    rules=PIPELINE_RULES,
    columns=(
        Column(name="Ready", path=".status.ready", description="Drivers that drive or are warm, of wanted drivers."),
        Column(name="Driver", path=".status.driver", description="The pod whose driver drives."),
        Column(name="Number", path=".status.number", type="integer", description="Under which it drives."),
        Column(name="Warm", path=".status.warm", type="integer", description="Drivers that are warm and wait."),
        Column(
            name="Status",
            path='.status.conditions[?(@.type=="Ready")].reason',
            description="Why it is ready, or why not.",
        ),
        Column(name="Image", path=".spec.image", priority=1, description="The image of drivers and replicas."),
        AGE,
    ),
    scale=False,
)
DEFINITIONS = (SERVICE, DRILL, LIVE_UPGRADE, REPLAY, REHEARSAL, PIPELINE)


def make_crd(definition: Definition) -> JsonObject:
    """Give the whole CustomResourceDefinition. Raises: SchemaError, a mistake in the models."""
    subresources: JsonObject = {"status": {}}
    if definition.scale:
        subresources["scale"] = {
            "specReplicasPath": ".spec.replicas",
            "statusReplicasPath": ".status.replicas",
            "labelSelectorPath": ".status.selector",
        }
    columns: list[Json] = [column.encode() for column in definition.columns]
    short_names: list[Json] = list(definition.short_names)
    version: JsonObject = {
        "name": VERSION,
        "served": True,
        "storage": True,
        "additionalPrinterColumns": columns,
        "subresources": subresources,
        "schema": {"openAPIV3Schema": make_schema(definition)},
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{definition.plural}.{GROUP}"},
        "spec": {
            "group": GROUP,
            "scope": "Namespaced",
            "names": {
                "kind": definition.kind,
                "listKind": f"{definition.kind}List",
                "plural": definition.plural,
                "singular": definition.kind.lower(),
                "shortNames": short_names,
                "categories": ["deathless"],
            },
            "versions": [version],
        },
    }


def make_schema(definition: Definition) -> JsonObject:
    """Give the schema of the whole resource, rules included."""
    spec, status = structural(definition.spec), structural(definition.status)
    spec["description"] = "What is wanted."
    status["description"] = "What the operator sees; written by it alone."
    schema: JsonObject = {
        "description": definition.description,
        "type": "object",
        "required": ["spec"],
        "properties": {
            "apiVersion": {"type": "string", "description": f"{GROUP}/{VERSION}"},
            "kind": {"type": "string", "description": definition.kind},
            "metadata": {"type": "object", "properties": {"name": NAME_SCHEMA}},
            "spec": spec,
            "status": status,
        },
    }
    with_rules(schema, definition.rules)
    return schema
