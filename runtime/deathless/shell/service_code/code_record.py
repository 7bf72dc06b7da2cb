"""What each code that has run on a directory consists of, so that a refusal of other code can name what differs.

A log carries 16 bytes for the code that wrote it, which can only be equal or not. What they stand for is in
`code/<fingerprint>/parts.json`: names, versions and hashes, where the source files came from, and what ran them. The
files themselves are beside it (`kept_code`). Releases before this one wrote `code/<fingerprint>.json`, parts alone,
which is read as well.

Guarantees: a record is given only if its parts make up the fingerprint that was asked for. Does not: raise for what a
disk says, write, decide anything.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from deathless.codec.untrusted import read_json
from deathless.shell.disk.small_files import read_small
from deathless.shell.service_code.description import (
    PROCESSOR,
    Description,
    differences,
    fingerprint_of,
    processor_features,
)

FOLDER: Final = "code"
PARTS: Final = "parts.json"
PARTS_BYTES_MAX: Final = 8 << 20
DIFFERENCES_MAX: Final = 8  # that a message names; the rest are counted
FEATURES_MAX: Final = 6  # of a processor that a message names


class KeptFile(msgspec.Struct, frozen=True, kw_only=True):
    """One source file of the author's."""

    path: str  # below the folder of the files
    origin: str  # where it was imported from, absolute
    digest: str  # of its bytes, hexadecimal


class CodeRecord(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of one code."""

    parts: dict[str, str]  # see `description.Description`, as is `former`
    former: dict[str, str] = {}
    service: str = ""
    module: str = ""  # as the config named it
    executable: str = ""  # of the interpreter that ran it
    node: str = ""  # the machine it was started on
    image: str = ""  # container image; empty: not known, or none
    features: tuple[str, ...] = ()  # of that machine's processor
    files: dict[str, KeptFile] = {}  # by module; empty: they were not kept
    kept: bool = False

    @property
    def fingerprint(self) -> bytes:
        """The fingerprint, which names its folder."""
        return fingerprint_of(self.parts)


class Recorded(NamedTuple):
    """A record, and where it was found."""

    record: CodeRecord
    folder: Path | None  # with the record and the files; None: a release before this one wrote it


def recorded(directory: str | Path, fingerprint: bytes) -> Recorded | None:
    """Give what the code with this fingerprint consists of; None: nobody has written it down, or it is not that.

    Args:
        directory: of the shard.
        fingerprint: in either way of telling it.
    """
    folder = Path(directory) / FOLDER
    record = read_record(folder / fingerprint.hex())
    if record is not None and record.fingerprint == fingerprint:
        return Recorded(record, folder / fingerprint.hex())
    try:
        parts = read_json(read_small(folder / f"{fingerprint.hex()}.json"), dict[str, str])
    except (OSError, msgspec.MsgspecError):
        parts = {}
    other = next((each for each in records(directory) if fingerprint_of(each.record.former) == fingerprint), None)
    if other is None and parts and fingerprint_of(parts) == fingerprint:
        return Recorded(CodeRecord(parts={}, former=parts), None)
    return other


def records(directory: str | Path) -> Iterator[Recorded]:
    """Give every record that has a folder."""
    try:
        folders = sorted((Path(directory) / FOLDER).iterdir())
    except OSError:
        return
    for folder in folders:
        record = read_record(folder)
        if record is not None and record.fingerprint.hex() == folder.name:
            yield Recorded(record, folder)


def read_record(folder: Path) -> CodeRecord | None:
    """Read the record in a folder; None: there is none, or it can't be read."""
    try:
        return read_json(read_small(folder / PARTS, PARTS_BYTES_MAX), CodeRecord)
    except (OSError, msgspec.MsgspecError):
        return None


def what_differs(directory: str | Path, theirs: bytes, ours: Description, node: str = "") -> str:
    """Say how other code differs from ours, from theirs to ours; empty: not known.

    Args:
        directory: of the shard.
        theirs: the other code's fingerprint.
        ours: what ours consists of.
        node: the machine that ours runs on.
    """
    found = recorded(directory, theirs)
    if found is None:
        return ""
    record = found.record
    former = fingerprint_of(record.parts) != theirs
    before, after = (record.former, ours.former) if former else (record.parts, ours.parts)
    named = differences(before, after, ours.files)
    if before.get(PROCESSOR) != after.get(PROCESSOR) and PROCESSOR in before and PROCESSOR in after:
        named.append(_processors(record, node))
    more = f"; and {len(named) - DIFFERENCES_MAX} more" if len(named) > DIFFERENCES_MAX else ""
    return "; ".join(named[:DIFFERENCES_MAX]) + more


def _processors(record: CodeRecord, node: str) -> str:
    """Say on which nodes the processors stand, and in what they differ."""
    theirs, ours = set(record.features), set(processor_features() or ())
    said = f"the log was written on node {record.node or 'unknown'}, this is node {node or 'unknown'}"
    for who, features in (("only there", theirs - ours), ("only here", ours - theirs)):
        if features and theirs and ours:
            more = f" and {len(features) - FEATURES_MAX} more" if len(features) > FEATURES_MAX else ""
            said += f", {who}: {' '.join(sorted(features)[:FEATURES_MAX])}{more}"
    return said
