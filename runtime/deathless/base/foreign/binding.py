"""What a manifest says of an application in another language, which is the code of its service.

    spec:
      binding:
        command: [./counter, --verbose]

It takes the place of `spec.module`. The service around it comes with us; it publishes what the application gets in a
topic, and the process beside each replica starts the application.

Guarantees: a laptop and a pod get the same settings from the same spec, but for folders. Does not: start anything.
Imports base.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta

from deathless.base.config import BindingConfig
from deathless.base.limits import Limits
from deathless.base.manifest_fields import Name, NonEmpty, Part, Text, told
from deathless.base.schema_check import Problem
from deathless.base.topics.settings import ByteQuantity, Topic, quantity_bytes

SERVICE_MODULE: Final = "deathless.foreign.service:application"
INPUTS: Final = Topic(name="inputs", keep_bytes="64Mi")
"""What the application gets. Rows that a checkpoint of it does not hold yet are kept beyond that."""
FOLDER: Final = "application"
"""In the shard's directory: the program's checkpoints, and what else is kept for it."""
CHECKPOINT_PREFIX: Final = "checkpoint-"
"""What the name of a checkpoint begins with; the position follows."""
SOURCE: Final = "application"
"""Under this name the log knows what the application sends."""
NAME_BYTES_MAX: Final = 512
"""What a program calls itself has no more bytes of UTF-8: the protocol has no longer names."""
LIMITS: Final = {"message_bytes_max": 2 << 20, "item_bytes_max": 2 << 20}
"""Limits of a service with a binding, where its manifest says nothing else: a message of an application may have 1 MiB,
and a row of a stream holds bytes as Base64."""
_ENTRY_BYTES: Final = 64 << 10  # what a row, and a message that waits to leave, have beside the data, at most
Seconds = Annotated[float, Meta(ge=0, le=86_400)]


class Binding(Part, frozen=True):
    """The application, and how long it may take for what."""

    command: Annotated[
        tuple[Annotated[str, Meta(min_length=1, max_length=4096)], ...],
        Meta(min_length=1, max_length=256),
        told(
            "Program and arguments. {receivePort}, {sendPort} and {replica} in them are replaced; the program finds "
            "the ports in DEATHLESS_RECEIVE_PORT and DEATHLESS_SEND_PORT as well."
        ),
    ]
    protocol: Annotated[Literal["ambrosia"], told("What it speaks.")] = "ambrosia"
    environment: Annotated[
        dict[NonEmpty, Text], Meta(max_length=256), told("Environment of the application, beside its own variables.")
    ] = msgspec.field(default_factory=dict)
    instance_name: Annotated[Text, told("What the application calls itself; when empty, the name of the service.")] = ""
    compare: Annotated[
        Literal["Bytes", "Shape"],
        told(
            "When the application is run again, its outputs are compared with what they were. Bytes: one that differs "
            "ends it. Shape: one that differs in its arguments alone is counted."
        ),
    ] = "Bytes"
    checkpoint_every_rows: Annotated[
        int, Meta(ge=1, le=100_000_000), told("A checkpoint of its state is due after so many rows of calls.")
    ] = 10_000
    checkpoint_every_bytes: Annotated[
        ByteQuantity, told("A checkpoint of its state is due after so many bytes of calls.")
    ] = "64Mi"
    connect_max_seconds: Annotated[Seconds, told("It connects both ports within so long. 0: no limit.")] = 30.0
    load_max_seconds: Annotated[Seconds, told("It reads a checkpoint within so long. 0: no limit.")] = 600.0
    snapshot_max_seconds: Annotated[Seconds, told("It gives a checkpoint within so long. 0: no limit.")] = 600.0
    handler_max_seconds: Annotated[
        Seconds, told("It is ended when calls wait for it and it has read none for so long. 0: no limit.")
    ] = 60.0


def message_bytes(limits: Limits) -> int:
    """Give the longest message that an application of a service with these limits may send, in bytes."""
    row = (limits.message_bytes_max - _ENTRY_BYTES) * 3 // 4
    return max(1, min(row, limits.item_bytes_max - _ENTRY_BYTES))


def binding_problems(
    binding: Binding | None, *, module: str, shards: int, topics: tuple[Topic, ...], sources: tuple[Name, ...]
) -> list[Problem]:
    """Find what contradicts other parts of a spec.

    Args:
        binding: None: the service is a module.
        module: of the spec.
        shards: likewise.
        topics: likewise.
        sources: their names.
    """
    at = ("spec", "binding")
    if binding is None:
        if module != SERVICE_MODULE:
            return []
        return [Problem(("spec", "module"), None, "is missing", "name the service's code, as bank.py:bank")]
    found: list[Problem] = []
    if module != SERVICE_MODULE:
        found.append(Problem(at, None, "is given beside module", "keep one of them: the service's code is either"))
    if shards > 1:
        found.append(Problem(("spec", "shards"), shards, "is above 1 with a binding", "an application is one shard"))
    if any(topic.name == INPUTS.name for topic in topics):
        found.append(Problem(("spec", "topics"), INPUTS.name, "is the application's own", "choose another name"))
    if SOURCE in sources:
        found.append(Problem(("spec", "sources"), SOURCE, "is the application's own", "choose another name"))
    return [*found, *_unstartable(binding, at)]


def _unstartable(binding: Binding, at: tuple[str, ...]) -> Iterator[Problem]:
    """Find what no process can be started with, or no message can hold."""
    for index, part in enumerate(binding.command):
        if "\0" in part:
            yield Problem((*at, "command", index), part, "has a zero byte", "leave it out: it ends an argument")
    for name, value in binding.environment.items():
        if "=" in name or "\0" in name:
            yield Problem((*at, "environment"), name, "is no name of a variable", "name it without = and zero bytes")
        if "\0" in value:
            yield Problem((*at, "environment", name), value, "has a zero byte", "leave it out: it ends a value")
    if (size := len(binding.instance_name.encode())) > NAME_BYTES_MAX:
        what, remedy = f"has {size} bytes, more than {NAME_BYTES_MAX}", "shorten it: messages of the program hold it"
        yield Problem((*at, "instanceName"), binding.instance_name, what, remedy)
    if "\0" in binding.instance_name:
        yield Problem((*at, "instanceName"), binding.instance_name, "has a zero byte", "leave it out")


def binding_config(binding: Binding | None, service: str, folder: str) -> BindingConfig | None:
    """Give what the process beside a replica is started with; None: the service is a module.

    Args:
        binding: of the spec.
        service: its name.
        folder: that the application runs in.
    """
    if binding is None:
        return None
    return BindingConfig(
        command=binding.command,
        instance=binding.instance_name or service,
        environment=binding.environment,
        folder=folder,
        compare=binding.compare,
        checkpoint_rows=binding.checkpoint_every_rows,
        checkpoint_bytes=quantity_bytes(binding.checkpoint_every_bytes),
        connect_s=binding.connect_max_seconds,
        load_s=binding.load_max_seconds,
        snapshot_s=binding.snapshot_max_seconds,
        handler_s=binding.handler_max_seconds,
    )
