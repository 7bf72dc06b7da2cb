"""A running replica meets an error of the storage at any call beside its log: what follows is the table's, and passes.

Each kind of file is used as a running replica uses it. Every call on a file or folder fails once, with each number:
what is raised, if anything, leads to what `base.storage` says, and the next use is as if nothing had been. Files of the
log, the seal, the lock and checkpoints are in tests/sim/test_storage_errors.py, those of a start in
test_start_on_bad_storage.py.
"""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple

import msgspec
import pytest
from tests.unit.deathless.shell.faulty_calls import FaultyCalls

from deathless.base.errors import DeathlessError, Internal, PermissionRefused
from deathless.base.storage import OUTCOMES, Outcome, Use, trouble_of
from deathless.codec.witness import Point, encode_slot
from deathless.core.supervisor.machine import FINAL_CODES
from deathless.engine.replica.failures import as_ours
from deathless.shell.directory.adopted import Adoption, read_adoption, write_adoption
from deathless.shell.directory.instance import clear_former, lock_replica, take_generation
from deathless.shell.directory.members import (
    Board,
    Member,
    announce_at,
    announced_in,
    ingress_address,
    ingress_address_path,
    write_member,
)
from deathless.shell.disk.spool_files import FileSpool
from deathless.shell.link.status_page import confirmed_elsewhere, open_page
from deathless.shell.net.proof import Secrets, read_secret
from deathless.shell.service_code.code_record import recorded
from deathless.shell.service_code.description import Description, fingerprint_of
from deathless.shell.service_code.kept_code import keep
from deathless.shell.supervisor.usable import when_usable
from deathless.shell.worker.helpers.witness_writer import FILE_SLOTS, WitnessFile, newest

CALLS = (
    *("open", "read", "write", "pread", "pwrite", "fsync", "fdatasync", "posix_fallocate", "ftruncate", "truncate"),
    *("stat", "lstat", "fstat", "utime", "mkdir", "listdir", "scandir", "link", "symlink", "readlink", "unlink"),
    *("rename", "replace", "dup"),
)
NUMBERS = (
    errno.ENOSPC,
    errno.EDQUOT,
    errno.EROFS,
    errno.EIO,
    errno.ESTALE,
    errno.EACCES,
    errno.ECONNABORTED,
    errno.EMFILE,
)
ME, OTHER = Member("r0", "127.0.0.1:1", ingress="127.0.0.1:0", instance="a"), Member("r1", "127.0.0.1:2")
PARTS = {"executor": "1"}
POINT = Point(bytes(range(16)), 77, 3, 1000, bytes(range(16, 32)), 5)


class Work(NamedTuple):
    """What a replica does with a file.

    Attributes:
        once: may meet an error.
        again: without one, afterwards; gives what must be the same each time.
    """

    once: Callable[[], object]
    again: Callable[[], object]


class Kind(NamedTuple):
    """One kind of file.

    Attributes:
        use: what it is for.
        calls_least: that one use makes; fewer say that this test looks past them.
        prepare: makes what a running replica has.
    """

    use: Use
    calls_least: int
    prepare: Callable[[Path], Work]


def addresses(folder: Path) -> Work:
    write_member(str(folder), ME)
    write_member(str(folder), OTHER)
    replica = folder / "replicas" / "r0"
    assert lock_instance(replica) == 1
    assert announce_at(ingress_address_path(str(folder), "r0", "a"), "127.0.0.1:9") is None
    found = announced_in(str(folder))
    (replica / "asks.b").write_bytes(b"")

    async def look() -> object:
        nonlocal found
        superseded: list[str] = []
        board = Board(str(folder), "r0", lambda _: None, "a", superseded.append)
        board.ask_later()  # somebody claims that a later instance runs: the volume is asked each time
        board.announce(ME)
        board.look_once({})  # ours is written
        found = board.look_once(found)
        await asyncio.sleep(0)
        assert superseded == []
        assert set(found) == {"r0", "r1"}, "who was announced has not gone"
        return found

    def once() -> object:
        asyncio.run(look())
        return None

    def again() -> object:
        once()
        asks = list(replica.glob("asks.*"))
        (replica / "denied.b").unlink()
        (replica / "asks.b").write_bytes(b"")
        return found, announced_in(str(folder)), asks

    return Work(once, again)


def lock_instance(replica: Path) -> int:
    replica.mkdir(parents=True, exist_ok=True)
    return take_generation(replica, "r0", "a")


def ingress(folder: Path) -> Work:
    path = ingress_address_path(str(folder), "r0")
    path.parent.mkdir(parents=True)

    def once() -> object:
        announce_at(path, "127.0.0.1:9")
        return ingress_address(str(folder), "r0")

    return Work(once, once)


def proofs(folder: Path) -> Work:
    async def prove() -> object:
        secrets = Secrets(str(folder), in_thread=False)
        secrets.sweep()
        made = asyncio.get_running_loop().create_future()
        secrets.fresh(made.set_result)
        secret = await made
        found = secret is not None and read_secret(str(folder), secret.file) == secret.value
        secrets.close()
        return found

    def again() -> object:
        found = asyncio.run(prove())
        for left in folder.rglob(".proof.*"):  # the sweep of a later process takes them, once they are old
            left.unlink()
        return found

    return Work(lambda: asyncio.run(prove()), again)


def code(folder: Path) -> Work:
    def once() -> object:
        for _ in range(2):
            keep(folder, Description(PARTS, {}), service="bank", module="bank:bank")
        found = recorded(folder, fingerprint_of(PARTS))
        return found and found.record.parts

    return Work(once, once)


def spool_written(folder: Path) -> Work:
    spool = FileSpool(str(folder / "scratch"), 1 << 20)

    def once() -> object:
        piece = spool.append(b"message")
        return None if piece is None else piece.read()

    # What is read back is another row; a write alone may fail here.
    return Work(lambda: spool.append(b"message"), once)


def spool_read(folder: Path) -> Work:
    piece = FileSpool(str(folder / "scratch"), 1 << 20).append(b"message")
    assert piece is not None
    return Work(piece.read, piece.read)


def witness(folder: Path) -> Work:
    path, file, lsn = folder / "confirmed", WitnessFile(str(folder / "confirmed")), 1000

    def write() -> None:
        try:
            file.write(encode_slot(msgspec.structs.replace(POINT, lsn=lsn)))
        except OSError:  # as `run` does
            file.close()

    def once() -> object:
        nonlocal lsn
        lsn += 1
        file.close()
        write()
        return None

    def again() -> object:
        write()
        return newest(path.read_bytes(), FILE_SLOTS) == encode_slot(msgspec.structs.replace(POINT, lsn=lsn))

    return Work(once, again)


def adopted(folder: Path) -> Work:
    write_adoption(str(folder), Adoption(through_epoch=7))
    return Work(partial(read_adoption, str(folder)), partial(read_adoption, str(folder)))


def sightings(folder: Path) -> Work:
    memory = folder / "memory"
    memory.mkdir()
    (folder / "replicas" / "r0").mkdir(parents=True)
    open_page(str(folder), "r0", memory=str(memory)).begin_reign(POINT)

    def once() -> object:
        return len(confirmed_elsewhere(str(folder), "r0", memory=str(memory)))

    return Work(once, once)


def page(folder: Path) -> Work:
    memory = folder / "memory"
    memory.mkdir()
    (folder / "replicas" / "r0").mkdir(parents=True)
    open_page(str(folder), "r0", memory=str(memory)).begin_reign(POINT)

    def once() -> object:
        return open_page(str(folder), "r0", memory=str(memory)).read_confirmed()

    return Work(once, once)


def pod(folder: Path) -> Work:
    replica = folder / "replicas" / "r0"
    lock_instance(replica)

    def once() -> object:
        descriptor = lock_replica(replica, "r0", "a")
        try:
            generation = take_generation(replica, "r0", "a")
            clear_former(replica, "a")
        finally:
            os.close(descriptor)
        return generation > 0

    return Work(once, once)


KINDS = {
    "addresses and instances": Kind(Use.HINT, 30, addresses),
    "the ingress's address": Kind(Use.HINT, 4, ingress),
    "proofs": Kind(Use.HINT, 10, proofs),
    "code records": Kind(Use.HINT, 10, code),
    "the spool, written": Kind(Use.HINT, 1, spool_written),
    "the witness's file": Kind(Use.HINT, 4, witness),
    "the spool, read": Kind(Use.READ, 1, spool_read),
    "what was adopted": Kind(Use.READ, 3, adopted),
    "the page": Kind(Use.START, 3, page),
    "pages and witnesses": Kind(Use.START, 5, sightings),
    "the lock and the entry of a pod": Kind(Use.START, 8, pod),
}


def what_follows(error: Exception, use: Use) -> Outcome | str:
    """What a replica does for an error that got out of a use."""
    ours = as_ours(error, "here")
    if isinstance(ours, PermissionRefused):
        return Outcome.ENDS
    if ours.code in FINAL_CODES:
        return f"{type(ours).__name__} ends it"
    if use is not Use.START or isinstance(ours, Internal):
        return Outcome.RESTARTS
    return Outcome.WAITS if passes(error) else Outcome.RESTARTS


def passes(error: Exception) -> bool:
    """Does a start wait for it?"""
    tries = iter([error])

    async def attempt() -> bool:
        for one in tries:
            raise one
        return True

    try:
        return asyncio.run(when_usable(attempt, lambda: None))
    except (DeathlessError, OSError):
        return False


@pytest.mark.parametrize("number", NUMBERS, ids=lambda number: errno.errorcode[number])
@pytest.mark.parametrize("name", KINDS)
def test_whatever_a_file_beside_the_log_says_has_the_outcome_of_the_table_and_passes(
    name: str, number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use, calls_least, prepare = KINDS[name]
    monkeypatch.setattr("deathless.shell.supervisor.usable.AGAIN_MIN_S", 0.0)
    monkeypatch.setattr("deathless.shell.net.proof.PAUSE_S", 0.0)
    once, again = prepare(tmp_path)
    whole = again()
    trouble = trouble_of(OSError(number, "", "file"))
    # What says nothing of a file starts the process anew, wherever it gets out.
    allowed = {OUTCOMES[use, trouble], Outcome.RESTARTS} if trouble is not None else {Outcome.RESTARTS}
    wrong, failing = [], 0
    with monkeypatch.context() as patch:
        calls = FaultyCalls(patch, CALLS, files=True)
        while failing == 0 or calls.failed:
            failing += 1
            found, failed = calls.run(tmp_path, once, failing, number), calls.failed
            if isinstance(found, Exception):
                follows = what_follows(found, use)
                if use is Use.HINT or follows not in allowed:
                    wrong.append(f"{failed}: {follows}, {found!r}")
                elif trouble is not None and str(tmp_path) not in str(as_ours(found, "")):
                    wrong.append(f"{failed}: names no file: {found}")
            after = again()
            if after != whole:
                wrong.append(f"after {failed}: {after!r}, not {whole!r}")
    assert failing > calls_least, "the calls of this kind are walked"
    assert wrong == []
