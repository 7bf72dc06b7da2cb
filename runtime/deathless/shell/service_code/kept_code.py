"""The code that wrote a log, kept with it: `code/<fingerprint>/` of the shard's folder, a record and the author's
files.

    code/<fingerprint>/parts.json           what it consists of, where it came from, what ran it (`code_record`)
    code/<fingerprint>/files/bank/service.py

Whoever starts a code that the folder does not have yet writes both, under another name that is then changed, so that a
reader finds all of it or nothing. On a machine of one's own all processes of a set import from there, and a file that
is edited while they run changes nothing for them. In pods the image is the code: the copy is for tools.

Guarantees: what is read back has the bytes that were written (digests). Data files, libraries and the interpreter are
not copied. A disk that is full or read-only keeps no replica from its start: then nothing is kept, and a warning says
so.
"""

from __future__ import annotations

import contextlib
import logging
import os
import platform
import shutil
import sys
import time
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Final

import msgspec

from deathless.base.errors import DeathlessError, FormerCodeMissing
from deathless.base.ids import Fingerprint
from deathless.engine.log.checkpoint_store import CheckpointStore
from deathless.engine.log.reader import LogReader
from deathless.engine.ports import FileSystem
from deathless.shell.disk.durable import naming, sync_folder
from deathless.shell.disk.small_files import read_small
from deathless.shell.service_code.code_record import (
    FOLDER,
    PARTS,
    CodeRecord,
    KeptFile,
    Recorded,
    read_record,
    recorded,
    records,
)
from deathless.shell.service_code.description import SOURCE, Description, fingerprint_of, processor_features, shown_file
from deathless.shell.service_code.fingerprint import ZONES
from deathless.shell.service_code.kept_import import KeptModule, installed
from deathless.shell.service_code.syntax_tree import bytes_hash, source_hash

FILES: Final = "files"
KEPT_BYTES_MAX: Final = 16 << 20
"""More source code than this, in bytes, is not kept."""
KEPT_MAX: Final = 8
"""So many codes that were used last are kept, beside those that head and checkpoints name."""
ABANDONED_S: Final = 86_400.0
"""What a process that died left half written is removed after this."""
_LOG: Final = logging.getLogger("deathless.code")


def node_name() -> str:
    """Give the machine that this process runs on: in a pod its node, where the pod was told."""
    return os.environ.get("POD_NODE") or platform.node()


def keep(directory: str | Path, described: Description, *, service: str, module: str) -> bool:
    """Write down this code and copy its files, unless they are there; gives whether the files are.

    Files that were edited since they were described are not kept: they are other code.

    Args:
        directory: of the shard.
        described: what the code consists of.
        service: its name.
        module: as the config names it.
    """
    place = Path(directory) / FOLDER / described.fingerprint.hex()
    try:
        there = read_record(place)
        if there is not None:
            os.utime(place / PARTS)
            return there.kept
        made = _copied(described, service, module)
        if made is None:
            return False
        record, texts = made
        _write(place, record, texts)
    except OSError as error:  # full, read-only: the service runs without it
        _LOG.warning("the code can't be kept with the log", extra={"why": str(error)})
        return False
    return record.kept


def _copied(described: Description, service: str, module: str) -> tuple[CodeRecord, dict[str, bytes]] | None:
    """Give the record, and the files' content by path, none where it is too much; None: a file was edited just now.

    Raises: OSError.
    """
    texts: dict[str, bytes] = {}
    files: dict[str, KeptFile] = {}
    total = sum(installed().copy_of(origin).stat().st_size for origin in described.files.values())
    if total > KEPT_BYTES_MAX:
        why = f"it has {total} bytes, at most {KEPT_BYTES_MAX} are kept"
        _LOG.warning("the source code is not kept with the log", extra={"why": why})
    for name, origin in described.files.items() if total <= KEPT_BYTES_MAX else ():
        text = read_small(installed().copy_of(origin), KEPT_BYTES_MAX)
        if source_hash(text) != described.parts[f"{SOURCE}{name}"]:
            why = f"{origin} was edited while the service started"
            _LOG.warning("the source code is not kept with the log", extra={"why": why})
            return None
        path = shown_file(name, origin)
        texts[path] = text
        files[name] = KeptFile(path=path, origin=str(origin), digest=bytes_hash(text))
    return CodeRecord(
        parts=described.parts,
        former=described.former,
        service=service,
        module=module,
        executable=sys.executable,
        node=node_name(),
        image=os.environ.get("POD_IMAGE", ""),
        features=tuple(processor_features() or ()),
        files=files,
        kept=bool(files),
    ), texts


def _write(place: Path, record: CodeRecord, texts: Mapping[str, bytes]) -> None:
    """Put a folder in its place, whole and durable; one that is there by then stays. Raises: OSError."""
    place.parent.mkdir(parents=True, exist_ok=True)
    temporary = place.with_name(f".{place.name}.{os.getpid()}.{os.urandom(4).hex()}")
    try:
        written = {f"{FILES}/{path}": text for path, text in texts.items()}
        written[PARTS] = msgspec.json.format(msgspec.json.encode(record))
        for path, text in written.items():
            target = temporary / path
            target.parent.mkdir(parents=True, exist_ok=True)
            with naming(target), target.open("xb") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
        for folder in {temporary, *(each for each in temporary.rglob("*") if each.is_dir())}:
            sync_folder(folder)
        try:
            temporary.rename(place)
        except OSError:  # another replica was faster; or something is in the way
            if read_record(place) is None:
                raise
        sync_folder(place.parent)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def former_spellings(directory: str | Path, described: Description) -> frozenset[Fingerprint]:
    """Give the fingerprint that releases before this one gave to the code of which a copy stands under our fingerprint.

    It means our code: the copy's files have our syntax trees, which is looked at here, and nothing else differs. So a
    log that an older release began goes on when a comment was changed, though its fingerprint was made from bytes.
    """
    folder = Path(directory) / FOLDER / described.fingerprint.hex()
    record = read_record(folder)
    if record is None or not record.kept or record.parts != described.parts:
        return frozenset()
    with contextlib.suppress(OSError):
        bytes_of = {name: read_small(folder / FILES / each.path, KEPT_BYTES_MAX) for name, each in record.files.items()}
        ours = dict(described.former)
        for name, text in bytes_of.items():
            if source_hash(text) != described.parts.get(f"{SOURCE}{name}"):
                return frozenset()
            ours[f"{SOURCE}{name}"] = bytes_hash(text)
        if ZONES not in described.parts and ZONES in record.former:
            ours[ZONES] = record.former[ZONES]
        if ours == record.former:
            return frozenset((fingerprint_of(ours),))
    return frozenset()


def prune(directory: str | Path, named: Callable[[], Collection[bytes] | None]) -> None:
    """Remove kept code that nobody needs: all but the KEPT_MAX used last, and what `named` gives.

    Args:
        directory: of the shard.
        named: gives fingerprints that head and checkpoints name; None: they can't be read, and nothing is removed.
            It is asked only where there are more than KEPT_MAX.
    """
    with contextlib.suppress(OSError):
        _remove_abandoned(Path(directory) / FOLDER)
        newest_first = sorted(records(directory), key=_used_at, reverse=True)
        if len(newest_first) <= KEPT_MAX or (needed := named()) is None:
            return
        for record, folder in newest_first[KEPT_MAX:]:
            spelled = {record.fingerprint, fingerprint_of(record.former)}
            if folder is not None and spelled.isdisjoint(needed):
                shutil.rmtree(folder)


def _used_at(found: Recorded) -> float:
    assert found.folder is not None, "`records` gives folders alone"
    return (found.folder / PARTS).stat().st_mtime


def _remove_abandoned(folder: Path) -> None:
    for each in folder.glob(".*"):
        if each.stat().st_mtime < time.time() - ABANDONED_S:
            shutil.rmtree(each, ignore_errors=True)


def modules_in(folder: Path) -> dict[str, KeptModule]:
    """Give the modules that are kept in a folder, after a look whether they are as they were written.

    Raises: FormerCodeMissing when they are not kept, or changed.
    """
    record = read_record(folder)
    if record is None or not record.kept:
        raise FormerCodeMissing(f"{folder} holds no source files of a service")
    found = {}
    for name, file in record.files.items():
        copy = folder / FILES / file.path
        try:
            intact = bytes_hash(read_small(copy, KEPT_BYTES_MAX)) == file.digest
        except OSError as error:
            raise FormerCodeMissing(f"{copy}: {error.strerror}") from None
        if not intact or not copy.resolve().is_relative_to((folder / FILES).resolve()):
            raise FormerCodeMissing(f"{copy} is not what was kept there")
        found[name] = KeptModule(Path(file.origin), copy)
    return found


def edited_since(folder: Path) -> list[str]:
    """Name the files that are not any more as they were when the copies in a folder were made, by their own paths."""
    changed = []
    for kept in modules_in(folder).values():
        try:
            same = kept.origin.read_bytes() == kept.copy.read_bytes()
        except OSError:
            same = False
        if not same:
            changed.append(str(kept.origin))
    return changed


def is_kept(directory: str | Path, fingerprint: bytes) -> bool:
    """Is the code of this fingerprint kept there, as it was written?"""
    found = recorded(directory, fingerprint)
    try:
        return found is not None and found.folder is not None and bool(modules_in(found.folder))
    except DeathlessError:
        return False


def named_in(filesystem: FileSystem, head: int) -> set[bytes] | None:
    """Give the fingerprints that a log still needs: of head's cut, and of the checkpoints that stand.

    Args:
        filesystem: of the shard's directory.
        head: as the lock store has it; 0: there is no log.

    Returns: None when one of them can't be read.
    """
    store = CheckpointStore(filesystem, "tool")
    try:
        needed = {store.head(each.name).fingerprint for each in store.names(announced_only=False)}
        if head:
            needed.add(LogReader(filesystem, None).routes.cut(head).fingerprint)
    except (OSError, DeathlessError):
        return None
    return needed
