"""Makes a folder of an exported log, to look at it and to run it again: `deathless log import`.

The file may come from anywhere and may have been cut short on its way, so names, sizes and digests are checked, and the
folder appears whole or not at all. The code in it is the service's own and is run by a replay: import what you trust.

Guarantees: nothing is written outside the folder; nothing is left where the file is refused. Does not: judge the log in
it (`log verify` does). May import codec and base.
"""

from __future__ import annotations

import hashlib
import re
import shutil
import tarfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import IO, BinaryIO, Final

import msgspec

from deathless.base.errors import InvalidArgument
from deathless.codec.untrusted import read_json
from deathless.shell.disk.durable import sync_folder
from deathless.shell.lock_stores.exported import FILE, Exported, decode_exported
from deathless.shell.operate.log_export import CONFIG_PATH, DIGESTS

NAMES: Final = re.compile(
    r"log/e\d{12,}\.r\d{6,}\.seg"
    r"|checkpoints/\d{16}-[0-9a-f]{32}\.ckpt(\.announced|\.verified)?"
    r"|code/[0-9a-f]{32}(\.interface)?\.json"
    r"|code/[0-9a-f]{32}/(parts\.json|files(/[\w.-]+)+)"
)
SMALL_BYTES_MAX: Final = 1 << 24  # of exported.json, config.json and digests.json
PIECE_BYTES: Final = 1 << 20


def read_import(source: BinaryIO, where: str, folder: Path, tell: Callable[[str], None]) -> Exported:
    """Make the folder.

    Args:
        source: the file; it is read once, from where it stands.
        where: its name, for messages.
        folder: that is made; it may exist and be empty.
        tell: gets how far it is.

    Raises: InvalidArgument when the folder is there or the file is none of ours, or damaged; InvalidConfig,
    NewerFormat; OSError.
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise InvalidArgument(f"{folder} exists and is not empty", remedy="name a folder that does not exist yet")
    made = folder.with_name(f"{folder.name}.new")
    if made.exists():
        raise InvalidArgument(
            f"{made} is left of an import that did not end, or belongs to one that runs", remedy=f"remove {made}"
        )
    made.mkdir(parents=True)
    try:
        exported = _unpack(source, where, made, tell)
        if folder.exists():
            folder.rmdir()
        made.rename(folder)
        sync_folder(folder.parent)
    except BaseException:
        shutil.rmtree(made, ignore_errors=True)
        raise
    return exported


def _unpack(source: BinaryIO, where: str, folder: Path, tell: Callable[[str], None]) -> Exported:
    exported: Exported | None = None
    digests: dict[str, str] = {}
    named: dict[str, str] | None = None
    done = 0
    try:
        with tarfile.open(fileobj=source, mode="r|") as archive:
            for member in archive:
                name, file = member.name, archive.extractfile(member) if member.isreg() else None
                if exported is None:
                    if name != FILE or file is None:
                        raise _refused(where, f"it begins with {name!r}, not with {FILE}")
                    data = _small(file.read(SMALL_BYTES_MAX + 1), where, name)
                    exported = decode_exported(data, f"{where}: {name}")
                    digests[name] = _written(folder / name, [data])
                elif named is not None or name in digests:
                    raise _refused(where, f"{name!r} is there twice, or behind {DIGESTS}")
                elif name == DIGESTS and file is not None:
                    named = read_json(_small(file.read(SMALL_BYTES_MAX + 1), where, name), dict[str, str])
                elif file is None or not _is_ours(name):
                    raise _refused(where, f"{name!r} is no file of a log")
                else:
                    digests[name] = _written(folder / name, _pieces(file))
                done += member.size
                tell(f"imported {done >> 20:,} MiB")
    except (tarfile.TarError, EOFError, msgspec.MsgspecError, UnicodeError) as error:
        raise _refused(where, f"it can't be read: {error}") from None
    if exported is None or named is None:
        raise _refused(where, "it is empty" if exported is None else "its end is missing")
    wrong = sorted(name for name in {*named, *digests} if named.get(name) != digests.get(name))
    if wrong:
        raise _refused(where, f"{wrong[0]} is missing or damaged")
    return exported


def _pieces(file: IO[bytes]) -> Iterator[bytes]:
    while piece := file.read(PIECE_BYTES):
        yield piece


def _is_ours(name: str) -> bool:
    return name == CONFIG_PATH or (NAMES.fullmatch(name) is not None and {".", ".."}.isdisjoint(name.split("/")))


def _small(data: bytes, where: str, name: str) -> bytes:
    if len(data) > SMALL_BYTES_MAX:
        raise _refused(where, f"{name} has more than {SMALL_BYTES_MAX:,} bytes")
    return data


def _written(path: Path, pieces: Iterable[bytes]) -> str:
    """Write a file; gives its digest."""
    digest = hashlib.sha256()
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("xb") as file:
        for piece in pieces:
            digest.update(piece)
            file.write(piece)
    return digest.hexdigest()


def _refused(where: str, why: str) -> InvalidArgument:
    return InvalidArgument(
        f"{where} is no exported log, or is damaged: {why}", remedy="export it again: `deathless log export`"
    )
