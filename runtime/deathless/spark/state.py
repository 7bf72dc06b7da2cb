"""State that Spark keeps of a query, and how a driver that takes over gets exactly the state that was decided.

    <folder of the pipeline's service>/spark/<query>/
        4-09f3.../      checkpoint of one run of the query, by driver 4: Spark's own, nobody else ever writes into it
        5-77ab.../      of a run of driver 5

Spark keeps versions: batch n reads version n and leaves version n + 1. Each decision names, in the pipeline's log, the
folder in which batch n was computed; before it is asked for, all that version n consists of is brought to the disk. A
run that goes on behind batch n gets a folder of its own: links to the files of version n, `offsets` of the batches
n - 1 and n as the log has them, and no word that batch n is done. So Spark computes batch n once more, which leaves
version n + 1 and, in Spark's own memory, the watermark that no file had yet when batch n was decided. What that
repetition gives is thrown away: it was decided before.

Nothing else of the former folder is looked at. Its driver may wake at any time: what it writes is of later versions, or
new files under the names of old ones, and the links keep those that were there. A link is a copy where a file system
has no links.

The first batch of a new query is empty (`source.Driven`) and is not decided. So the first one that is decided has a
batch before it, whose offsets say where the query began, whatever `earliest` or `latest` would mean by then.

    version n       <operator>/<partition>[/<store>]/:  m.snapshot with m <= n, and the deltas m + 1 ... n; without a
                    snapshot all deltas 1 ... n. Beside each a checksum `.<name>.crc`. What bears no number, always

Guarantees: a folder is complete for its version, or an error says what it lacks. A folder that a decision may name is
removed by a newer driver alone, once a decision names one of that driver's. Does not: read states, know operators.
Imports the pipelines' names.
"""

from __future__ import annotations

import errno
import os
import re
import secrets
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

import msgspec

from deathless.base.errors import StateMissing
from deathless.pipelines.ledger import Tip
from deathless.shell.disk.durable import sync_file, sync_folder

FOLDER: Final = "spark"
"""In the folder of the pipeline's service."""

_RUN: Final = re.compile(r"([1-9][0-9]{0,18})-[0-9a-f]{12}")
_FILE: Final = re.compile(r"(0|[1-9][0-9]{0,18})\.(delta|snapshot)")
_NO_LINKS: Final = (errno.EXDEV, errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK)
_ANEW: Final = "give the query another name: it begins anew, with the rows that its topics still keep"


def chain(names: Iterable[str], version: int, where: object) -> list[str]:
    """Give the files of one store that a version consists of, oldest first.

    Args:
        names: of files in its folder.
        version: at least 1.
        where: the folder, as it is told.

    Raises: StateMissing naming the first file that is not there.
    """
    deltas: set[int] = set()
    snapshot = 0
    for name in names:
        found = _FILE.fullmatch(name)
        if found is None or int(found[1]) > version:
            continue
        if found[2] == "delta":
            deltas.add(int(found[1]))
        else:
            snapshot = max(snapshot, int(found[1]))
    needed = range(snapshot + 1, version + 1)
    lacking = next((each for each in needed if each not in deltas), 0)
    if lacking:
        raise StateMissing(f"{where}: version {version} of the state lacks {lacking}.delta", remedy=_ANEW)
    return [*([f"{snapshot}.snapshot"] if snapshot else []), *(f"{each}.delta" for each in needed)]


def files_of(folder: Path, version: int) -> list[Path]:
    """Give the files of a checkpoint that a version consists of, relative to it, and their checksums.

    Raises: StateMissing, OSError.
    """
    found: list[Path] = []
    for place, _, names in os.walk(folder / "state"):
        here, numbered = Path(place).relative_to(folder), [name for name in names if _FILE.fullmatch(name)]
        if numbered:
            wanted = chain(numbered, version, place)
        elif any(part.startswith("_") for part in here.parts):  # _metadata, and what is in it
            wanted = [name for name in names if not name.startswith(".")]
        else:
            wanted = []  # files that are being written
        for name in wanted:
            found.append(here / name)
            if f".{name}.crc" in names:
                found.append(here / f".{name}.crc")
    if not found:
        raise StateMissing(f"{folder} has no state", remedy=_ANEW)
    return found


class KeptState:
    """The checkpoint of one run of a query that keeps state.

    Args:
        home: folder of all runs of the query.
        number: under which the driver of this run drives.
    """

    def __init__(self, home: Path, number: int) -> None:
        self.name = f"{number}-{secrets.token_hex(6)}"
        self.folder = home / self.name
        self._home = home
        self._number = number
        self._before = ""  # folder that this one was made from
        self._named = False  # a decision may name this one
        self._durable: set[Path] = set()

    def lay(self, tip: Tip) -> None:
        """Make the folder from the state that the last decision names. Raises: StateMissing, OSError."""
        if not _RUN.fullmatch(tip.state):
            raise StateMissing(
                "the query has decided batches without keeping state in Spark, so there is none to go on from",
                remedy=_ANEW,
            )
        former = self._home / tip.state
        if not former.is_dir():
            raise StateMissing(f"{former}, which the last decision names, is not there", remedy=_ANEW)
        for each in [*files_of(former, tip.batch), *_committed(former, tip.batch - 1)]:
            _link(former / each, self.folder / each)
        (self.folder / "metadata").write_bytes(msgspec.json.encode({"id": tip.query_id}))
        (self.folder / "offsets").mkdir()
        for batch, text in ((tip.batch - 1, tip.before), (tip.batch, tip.offsets)):
            (self.folder / "offsets" / str(batch)).write_text(text, encoding="utf-8")
        self._before = tip.state

    def settle(self, batch: int) -> str:
        """Bring to the disk what a batch has read; gives the folder's name, which its decision is to have.

        Raises: StateMissing, OSError.
        """
        wanted = {*files_of(self.folder, batch), *_committed(self.folder, batch - 1)} - self._durable
        for each in wanted:
            sync_file(self.folder / each)
        places = {
            above for each in wanted for above in (self.folder / each).parents if above.is_relative_to(self.folder)
        }
        if not self._named:
            places |= {self._home, self._home.parent, self._home.parent.parent}
        for place in places:
            sync_folder(place)
        self._durable |= wanted
        self._named = True
        return self.name

    def decided(self) -> None:
        """Remove what no decision can name any more: a decision of this run was accepted."""
        for each in list(self._removable()):
            shutil.rmtree(self._home / each, ignore_errors=True)
        self._before = ""

    def close(self) -> None:
        """Remove the folder, unless a decision may name it."""
        if not self._named:
            shutil.rmtree(self.folder, ignore_errors=True)

    def _removable(self) -> Iterator[str]:
        """Yield folders of older drivers, and the one that this was made from; others of this driver's may be named."""
        for name in sorted(os.listdir(self._home)):
            found = _RUN.fullmatch(name)
            if found is not None and name != self.name and (int(found[1]) < self._number or name == self._before):
                yield name


def _committed(folder: Path, batch: int) -> list[Path]:
    """Give Spark's word that a batch is done. Raises: StateMissing."""
    place = Path("commits")
    if not (folder / place / str(batch)).is_file():
        raise StateMissing(f"{folder} does not say that batch {batch} is done", remedy=_ANEW)
    return [each for each in (place / str(batch), place / f".{batch}.crc") if (folder / each).is_file()]


def _link(old: Path, new: Path) -> None:
    """Have a file be there under another name too, whatever becomes of the former. Raises: StateMissing, OSError."""
    new.parent.mkdir(parents=True, exist_ok=True)
    try:
        try:
            os.link(old, new)
        except OSError as error:
            if error.errno not in _NO_LINKS:
                raise
            shutil.copyfile(old, new)
    except FileNotFoundError:
        raise StateMissing(f"{old} was removed while it was looked at", remedy=_ANEW) from None
