"""What a manifest says of sources, which bring rows from outside to inputs; and their processes' settings.

    spec:
      sources:
      - name: flights
        kind: files
        input: flights
        key: value.origin
        options: {folder: in}

Each source has a process of its own beside each replica; those beside primaries are at work.

Guarantees: a laptop and a pod get the same settings from the same spec, but for folders and addresses. Does not: look
at options, which the kind's own reader checks, but for those of gates. Imports base.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta

from deathless.base.config import SourceConfig
from deathless.base.errors import InvalidConfig
from deathless.base.manifest_fields import AsIs, Name, Part, SecretRef, told
from deathless.base.source_kinds import SOURCE_KINDS
from deathless.base.source_kinds.connector import connector_options

SOURCES_MAX: Final = 16  # each is a process beside each replica
_KINDS: Final = list(SOURCE_KINDS)
_LOCAL: Final = [kind.name for kind in SOURCE_KINDS.values() if kind.local]
_KEYS: Final = r"^$|^key$|^value(\.[^.]+)+$"


class Source(Part, frozen=True):
    """What brings rows from outside to an input of the service, each exactly once."""

    name: Annotated[
        Name,
        told(
            "The name under which the log knows how far it was read. A source of another name begins at the beginning."
        ),
    ]
    kind: Annotated[
        Annotated[
            str,
            Meta(pattern=rf"^({'|'.join(_KINDS)})$", max_length=64, description=f"one of {', '.join(_KINDS)}"),
        ],
        told(f"What it reads: {', '.join(_KINDS)}. On a laptop alone: {', '.join(_LOCAL)}."),
    ]
    input: Annotated[Name, told("The input of the service's code that takes the rows.")]
    key: Annotated[
        Annotated[
            str,
            Meta(
                pattern=_KEYS,
                max_length=512,
                description="value.FIELD, value.FIELD.FIELD, key, or empty",
            ),
        ],
        told(
            "Whose each row is. value.FIELD: the field of the row, a text or a whole number. key: the key of the "
            "record, of kinds that have one. Empty: the service is a single object."
        ),
    ] = ""
    on_refusal: Annotated[
        Literal["stop", "deadLetter", "skip"],
        told(
            "What becomes of a row that can't be read, or that the input refuses. stop: the source stands at it until "
            "an operator decides. deadLetter: the service keeps it with the reason, and the source goes on. skip: the "
            "service keeps the reason alone."
        ),
    ] = "stop"
    options: Annotated[AsIs, told("Options of the kind; docs/sources.md lists them. Secrets come from files.")] = (
        msgspec.field(default_factory=dict)
    )
    secret_ref: Annotated[
        SecretRef | None,
        told(
            "Secret whose keys are the files that options name by relative paths, in a cluster. No effect on a laptop."
        ),
    ] = None


def source_problems(sources: Sequence[Source]) -> list[tuple[int, str, object, str, str]]:
    """Find what contradicts other parts of a spec.

    Returns: for each problem which source, which field of it, its value, what is wrong, and what to do.
    """
    found: list[tuple[int, str, object, str, str]] = []
    seen: set[str] = set()
    for at, source in enumerate(sources):
        if source.name in seen:
            found.append((at, "name", source.name, "is also the name of another source", "choose another name"))
        seen.add(source.name)
        if source.key == "key" and not SOURCE_KINDS[source.kind].has_keys:
            what = f"is of records with keys, and {source.kind} have none"
            found.append((at, "key", source.key, what, "name a field: value.FIELD"))
        if SOURCE_KINDS[source.kind].gate:
            try:
                connector_options(source.name, source.options)
            except InvalidConfig as error:
                found.append((at, "options", source.options, str(error), "docs/sources.md lists them"))
    return found


def local_sources(sources: Sequence[Source]) -> list[tuple[int, str, str]]:
    """Give the sources that a cluster can't have: which, their kinds, and why."""
    return [
        (at, source.kind, reason) for at, source in enumerate(sources) if (reason := SOURCE_KINDS[source.kind].local)
    ]


def source_configs(
    sources: Sequence[Source], folder: str, secrets: str = "", *, index: int = 0, everywhere: bool = False
) -> tuple[SourceConfig, ...]:
    """Give what the processes of sources are started with.

    Args:
        sources: in order.
        folder: absolute; what relative paths in options start from.
        secrets: absolute; has a folder for each source with a Secret, which its paths start from. Empty: there is none.
        index: of the replica among those of this machine: gates listen on their port and so many more.
        everywhere: gates listen on every address, as in a pod.
    """
    return tuple(
        SourceConfig(
            name=source.name,
            kind=source.kind,
            input=source.input,
            key=source.key,
            on_refusal=source.on_refusal,
            options=source.options,
            folder=f"{secrets}/{source.name}" if secrets and source.secret_ref is not None else folder,
            listen=_listen(source, index, everywhere=everywhere),
        )
        for source in sources
    )


def gate_ports(sources: Sequence[Source]) -> dict[str, int]:
    """Give the ports of the gates of a service, by the source's name. Options that can't be read have none."""
    found = {}
    for source in sources:
        if SOURCE_KINDS[source.kind].gate:
            with contextlib.suppress(InvalidConfig):
                found[source.name] = connector_options(source.name, source.options).address[1]
    return found


def _listen(source: Source, index: int, *, everywhere: bool) -> str:
    """Give where a gate listens; empty: it is none, or its process is to say what is wrong with its options."""
    if not SOURCE_KINDS[source.kind].gate:
        return ""
    try:
        options = connector_options(source.name, source.options)
    except InvalidConfig:
        return ""
    return f"0.0.0.0:{options.address[1]}" if everywhere else options.at(index)
