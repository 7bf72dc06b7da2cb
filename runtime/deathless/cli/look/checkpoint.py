"""`deathless checkpoint ls | show | take`."""

from __future__ import annotations

import asyncio

import click

from deathless.base.errors import InvalidArgument
from deathless.base.listings.texts import show_bytes, show_time
from deathless.cli.options import json_option, service_options, target, timeout_option
from deathless.cli.output import json_of, print_json, print_table


@click.group("checkpoint")
def checkpoint() -> None:
    """Inspect a service's checkpoints, or take one."""


@checkpoint.command("ls")
@service_options
@json_option
def ls(manifest: str, directory: str, as_json: bool) -> int:
    """List checkpoints, newest first. Only verified ones count when old parts of the log are removed."""
    from deathless.engine.log.checkpoint_store import CHECKPOINT_FOLDER
    from deathless.shell.lock_stores.inspection import inspect

    look = asyncio.run(inspect(target(manifest, directory).config))
    store = look.checkpoints
    rows = []
    for each in store.names(announced_only=False):
        path = look.config.directory + f"/{CHECKPOINT_FOLDER}/{each.name}"
        state = "verified" if store.verified(each.name) else "announced" if store.announced(each.name) else "written"
        rows.append(
            {"lsn": int(each.lsn), "state": state, "bytes": _size(path), "chain": each.chain.hex(), "file": each.name}
        )
    if as_json:
        print_json({"checkpoints": rows, "collectableThrough": store.floor()})
    elif not rows:
        print("there is no checkpoint yet; `deathless checkpoint take` takes one")
    else:
        print_table(
            ("lsn", "state", "size", "file"),
            [(r["lsn"], r["state"], show_bytes(int(str(r["bytes"]))), r["file"]) for r in rows],
        )
        print(f"\nthe log may be collected through lsn {store.floor()}")
    return 0


def _size(path: str) -> int:
    from pathlib import Path

    try:
        return Path(path).stat().st_size
    except FileNotFoundError:
        return 0


@checkpoint.command("show")
@click.argument("lsn", required=False, type=click.IntRange(min=0))
@click.option("--state", is_flag=True, help="Also show the state of every key.")
@service_options
@json_option
def show(lsn: int | None, state: bool, manifest: str, directory: str, as_json: bool) -> int:
    """Show the checkpoint at LSN (default: the newest), read completely and with its checksums verified."""
    from deathless.codec.map_entries import owner_of, show_key
    from deathless.codec.untrusted import read_msgpack
    from deathless.execution.invocations.journal import SuspendedSchedule, decode_record
    from deathless.shell.lock_stores.inspection import inspect

    look = asyncio.run(inspect(target(manifest, directory).config))
    names = [each for each in look.checkpoints.names(announced_only=False) if lsn is None or each.lsn == lsn]
    if not names:
        what = "there is no checkpoint" if lsn is None else f"no checkpoint stands at lsn {lsn}"
        raise InvalidArgument(what, remedy="`deathless checkpoint ls` lists them")
    snapshot = look.checkpoints.load(names[0].name)
    schedules = sum(isinstance(decode_record(each), SuspendedSchedule) for each in snapshot.invocations)
    keys = sum(owner_of(key) is key for key in snapshot.state)
    told: dict[str, object] = {
        "lsn": int(snapshot.lsn), "epoch": int(snapshot.epoch), "service": snapshot.service,
        "time": show_time(snapshot.times.time_us), "keys": keys, "items": len(snapshot.state) - keys,
        "sessions": len(snapshot.sessions),
        "idempotencyKeys": len(snapshot.keys), "parked": len(snapshot.parked),
        "invocations": len(snapshot.invocations) - schedules, "schedules": schedules,
        "peers": len(snapshot.peers), "results": len(snapshot.results), "unknownOutcomes": len(snapshot.unknown),
        "outbox": sum(len(held.messages) for held in snapshot.outbox), "chain": snapshot.chain.hex(),
        "digest": snapshot.digest.hex(), "stateDigest": snapshot.state_digest.hex(),
        "fingerprint": snapshot.fingerprint.hex(),
        "file": names[0].name,
    }  # fmt: skip
    values = {show_key(key): read_msgpack(value, object) for key, value in snapshot.state.items()}
    if as_json:
        print_json({**told, **({"state": values} if state else {})})
        return 0
    for name, value in told.items():
        print(f"{name:<16} {value:,}" if isinstance(value, int) else f"{name:<16} {value}")
    for key, value in values.items() if state else ():
        print(f"{key}  {json_of(value)}")
    return 0


@checkpoint.command("take")
@timeout_option(30.0)
@service_options
@json_option
def take(timeout: float, manifest: str, directory: str, as_json: bool) -> int:
    """Make the service take a checkpoint now, and wait until it is announced."""
    from deathless.cli.primary import ask_primary

    found = target(manifest, directory)

    async def work() -> int:
        from deathless.shell.lock_stores.inspection import inspect

        answer = await ask_primary(found, "checkpoint")
        lsn = answer.get("lsn")
        assert isinstance(lsn, int)
        deadline = asyncio.get_running_loop().time() + timeout
        while asyncio.get_running_loop().time() < deadline:
            look = await inspect(found.config)
            newest = next(iter(look.checkpoints.names()), None)
            if newest is not None and newest.lsn >= lsn:
                return int(newest.lsn)
            await asyncio.sleep(0.1)
        raise InvalidArgument(
            f"no checkpoint at or above lsn {lsn} after {timeout:g} s",
            remedy="see the replicas' logs, and `deathless checkpoint ls`",
        )

    lsn = asyncio.run(work())
    if as_json:
        print_json({"lsn": lsn})
    else:
        print(f"a checkpoint stands at lsn {lsn}")
    return 0
