"""`deathless log export | import`: a log in one file, to be looked at and run again elsewhere."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

import click
import msgspec

from deathless.base.errors import InvalidArgument
from deathless.base.listings.texts import show_bytes
from deathless.cli.options import json_option, service_options, target
from deathless.cli.output import print_json, progress

if TYPE_CHECKING:
    from deathless.shell.lock_stores.exported import Exported

STANDARD = "-"


@click.command("export")
@click.argument("file", metavar="FILE")
@click.option(
    "--from",
    "start",
    type=click.IntRange(min=0),
    metavar="LSN",
    help="Start from the newest checkpoint at or below this; 0: the log's beginning; default: the newest checkpoint.",
)
@click.option("--to", type=click.IntRange(min=1), metavar="LSN", help="Last message; default: the log's end.")
@service_options
@json_option
def export(file: str, start: int | None, to: int | None, manifest: str, directory: str, as_json: bool) -> int:
    """Write the log, a checkpoint to begin with and the kept code into one FILE; `-` is standard output.

    The service may run. Addresses, certificates and tokens are left out; what callers sent is in it, so keep the file
    as you keep the log. On another machine `deathless log import` makes a folder of it.

    \b
    deathless log export bank.dlog
    deathless log export bank.dlog --from 0 --to 1000
    kubectl exec bank-0 -- deathless log export - -f /etc/deathless/replica.json > bank.dlog
    """
    from deathless.shell.lock_stores.inspection import inspect
    from deathless.shell.operate.log_export import plan_export, write_export

    look = asyncio.run(inspect(target(manifest, directory).config))
    if file == STANDARD and sys.stdout.isatty():
        raise InvalidArgument("standard output is a terminal", remedy="name a file, or pipe it into one")
    with plan_export(look, start, to) as plan, _written(file) as out:
        size = write_export(plan, out, progress())
        told = plan.exported
    if file == STANDARD:
        return 0
    if as_json:
        print_json({**_described(told), "file": file, "bytes": size, "code": plan.has_code})
        return 0
    print(f"{file}: {told.name}, lsn {told.first_lsn} to {told.last_lsn}, {show_bytes(size)}")
    if not plan.has_code:
        print(f"the code ({told.fingerprint[:12]}) is not in it, because it was not kept: run it with the same image")
    return 0


@contextlib.contextmanager
def _written(file: str) -> Iterator[BinaryIO]:
    """Give what is written to; a file appears whole or not at all, and is this user's alone."""
    if file == STANDARD:
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    path, part = Path(file), Path(f"{file}.part")
    if path.exists():
        raise InvalidArgument(f"{file} exists", remedy="name another file, or remove it")
    try:
        descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        with open(descriptor, "wb") as out:
            yield out
            out.flush()
            os.fsync(descriptor)
        part.rename(path)
    except OSError as error:
        with contextlib.suppress(OSError):
            part.unlink()
        raise InvalidArgument(f"{file} can't be written: {error.strerror}", remedy="name a file elsewhere") from None
    except BaseException:
        with contextlib.suppress(OSError):
            part.unlink()
        raise


@click.command("import")
@click.argument("file", metavar="FILE")
@click.argument("folder", metavar="FOLDER", type=click.Path(path_type=Path))
@json_option
def import_(file: str, folder: Path, as_json: bool) -> int:
    """Make a FOLDER of an exported log, and look at it with `--dir FOLDER`; `-` is standard input.

    A replay runs the code in it, so import files that you trust. Nothing is ever started in the folder.

    \b
    deathless log import bank.dlog bank
    deathless replay --dir bank --pdb
    deathless log show --dir bank
    """
    from deathless.shell.operate.log_import import read_import

    try:
        with contextlib.ExitStack() as files:
            source = sys.stdin.buffer if file == STANDARD else files.enter_context(Path(file).open("rb"))
            told = read_import(source, "standard input" if file == STANDARD else file, folder, progress())
    except OSError as error:
        where = error.filename or file
        raise InvalidArgument(f"{where}: {error.strerror or error}", remedy="check the paths and the room") from None
    if as_json:
        print_json({**_described(told), "folder": str(folder)})
    else:
        print(f"{folder}: {told.name}, lsn {told.first_lsn} to {told.last_lsn}, exported {told.exported_at}")
        print(f"run it again: deathless replay --dir {folder}")
    return 0


def _described(told: Exported) -> dict[str, object]:
    secret = {"seed", "hashSeed"}
    fields: dict[str, object] = msgspec.to_builtins(told)
    fields["serviceId"] = told.service_id.hex()
    return {name: value for name, value in fields.items() if name not in secret}
