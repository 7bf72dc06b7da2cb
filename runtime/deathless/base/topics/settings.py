"""What a manifest says of topics: names, how long rows are kept, who reads them; and the drivers that this becomes.

    spec:
      topics: [{name: departures, keepBytes: 50Gi, keepDays: 30, readers: [reports]}]

Each topic has a process of its own beside each replica, as every driver has, and a folder beside its shard's log. Both
are made here, so nobody writes them under `spec.drivers`.

Guarantees: a laptop and a pod get the same drivers from the same spec, but for the folder. Does not: say what stands in
that folder. Imports base.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Annotated, Final

from msgspec import Meta

from deathless.base.config import DriverConfig
from deathless.base.errors import TopicNotKept
from deathless.base.manifest_fields import Name, NonEmpty, Part, told

EVERYBODY: Final = "*"
"""Among the readers of a topic: everybody whom the HTTP interface lets in."""
KIND: Final = "topic"
"""Kind of a topic's driver, in configs alone."""
FOLDER: Final = "topics"
TOPICS_MAX: Final = 16  # each is a process beside each replica
BATCH_MESSAGES: Final = 4096
_UNITS: Final[dict[str, int | Fraction]] = {
    "": 1,
    "m": Fraction(1, 1000),  # which Kubernetes knows, also where it makes no sense
    **{name: 1000**power for power, name in enumerate("kMGTP", 1)},
    **{f"{name}i": 1024**power for power, name in enumerate("KMGTP", 1)},
}
ByteQuantity = Annotated[
    str,
    Meta(
        pattern=r"^[0-9]+(\.[0-9]+)?(k|M|G|T|P|Ki|Mi|Gi|Ti|Pi)?$",
        max_length=32,
        description="a size as Kubernetes writes it, as text: 500Mi, 10Gi, 0",
    ),
]


class Topic(Part, frozen=True):
    """A topic: rows that handlers publish, kept in files beside the log."""

    name: Annotated[Name, told("The name that the code declares. Topics, drivers and services share one namespace.")]
    keep_bytes: Annotated[
        ByteQuantity,
        told(
            "The oldest files are deleted once each shard has more rows than this, except rows that a reader holds. "
            "0: no limit."
        ),
    ] = "10Gi"
    keep_days: Annotated[
        int,
        Meta(ge=0, le=36_500),
        told("Files are deleted once all their rows are older, except rows that a reader holds. 0: no limit."),
    ] = 0
    readers: Annotated[
        tuple[NonEmpty, ...],
        Meta(max_length=256),
        told(
            "Names of callers who may read it over HTTP, as spec.ingress.authentication knows them, or of the holders "
            "of client certificates; `*`: everybody whom the HTTP interface lets in. When empty: operators alone."
        ),
    ] = ()


def quantity_bytes(text: str) -> int:
    """Give the bytes that a quantity means, rounded up."""
    digits = text.rstrip("mkKMGTPi")
    return math.ceil(Fraction(digits) * _UNITS[text[len(digits) :]])


def kept_bytes(topics: Sequence[Topic], shards: int) -> int:
    """Give what all topics of a service may come to on its volume; one without a limit counts as nothing."""
    return shards * sum(quantity_bytes(topic.keep_bytes) for topic in topics)


def topic_configs(topics: Sequence[Topic], directory: str) -> tuple[DriverConfig, ...]:
    """Give what the processes of topics are started with.

    Args:
        topics: in order.
        directory: of the shard, absolute.
    """
    return tuple(
        DriverConfig(
            name=topic.name,
            kind=KIND,
            batch_messages=BATCH_MESSAGES,
            options={
                "directory": f"{directory.rstrip('/')}/{FOLDER}/{topic.name}",
                "keepBytes": quantity_bytes(topic.keep_bytes),
                "keepSeconds": topic.keep_days * 24 * 3600,
                # Not there where nobody is named, so that settings of before are what they were.
                **({"readers": list(topic.readers)} if topic.readers else {}),
            },
            folder=directory,
        )
        for topic in topics
    )


def kept_by(drivers: Sequence[DriverConfig]) -> dict[str, int]:
    """Give the topics among the drivers of a replica, each with the bytes of its limit, 0: none."""
    return {driver.name: int(str(driver.options["keepBytes"])) for driver in drivers if driver.kind == KIND}


def readers_of(drivers: Sequence[DriverConfig]) -> dict[str, frozenset[str]]:
    """Give the topics among the drivers of a replica, each with the names of those who may read it over HTTP."""
    found: dict[str, frozenset[str]] = {}
    for driver in drivers:
        if driver.kind == KIND:
            named = driver.options.get("readers", ())
            assert isinstance(named, list | tuple), "made by `topic_configs`"
            found[driver.name] = frozenset(map(str, named))
    return found


def check_kept(declared: Sequence[str], drivers: Sequence[DriverConfig]) -> None:
    """Refuse code that publishes rows which nobody would take: they would fill the outbox.

    Args:
        declared: names of the topics of the code.
        drivers: of the replica that is to run it.

    Raises: TopicNotKept.
    """
    kept = kept_by(drivers)
    missing = sorted(name for name in declared if name not in kept)
    if missing:
        entries = ", ".join(f"{{name: {name}}}" for name in missing)
        raise TopicNotKept(
            f"the code declares {'topic' if len(missing) == 1 else 'topics'} {', '.join(missing)}, which the manifest "
            "does not name",
            remedy=f"add `topics: [{entries}]` to its spec, with keepBytes and keepDays as you want them, and start "
            "the replicas again",
        )
