"""`deathless log ls | show | verify`: the segments of a service's log, what is in them, and whether it is all true.

`export` and `import` are in `log_file`.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterator
from typing import TYPE_CHECKING

import click
import msgspec

from deathless.base.listings.texts import show_bytes
from deathless.cli.look.log_file import export, import_
from deathless.cli.options import json_option, service_options, target
from deathless.cli.output import count, json_of, print_json, print_json_line, print_table

if TYPE_CHECKING:
    from deathless.engine.log.reader import Step
    from deathless.engine.log.route import Route
    from deathless.shell.lock_stores.inspection import Inspection

ARGS_SHOWN_MAX = 60


@click.group("log")
def log() -> None:
    """Inspect a service's log, whether the service runs or not. Nothing is changed."""


log.add_command(export)
log.add_command(import_)


@log.command("ls")
@service_options
@json_option
def ls(manifest: str, directory: str, as_json: bool) -> int:
    """List the segment files: epoch, messages, size, and whether the log leads through them.

    \b
    head      the epoch that writes now, or wrote last
    chain     the log leads through it
    left      unused: no cut leads there, because its writer was deposed before it could confirm anything
    """
    from deathless.engine.log.overview import describe
    from deathless.shell.lock_stores.inspection import inspect

    look = asyncio.run(inspect(target(manifest, directory).config))
    places, problem = _places(look)
    rows = []
    for info in describe(look.filesystem):
        state = "head" if info.epoch == look.view.head else "chain" if (info.epoch, info.roll) in places else "left"
        rows.append((info, state))
    if as_json:
        print_json(
            {
                "head": look.view.head,
                "problem": problem,
                "segments": [
                    {
                        "file": info.name, "epoch": info.epoch, "roll": info.roll, "state": state,
                        "messages": info.messages,
                        "firstLsn": info.first_lsn, "lastLsn": info.last_lsn, "confirmedLsn": info.confirmed_lsn,
                        "frames": info.frames, "usedBytes": info.used, "sizeBytes": info.size, "problem": info.problem,
                        "continuesEpoch": info.cut.base.epoch if info.cut else None,
                        "writtenBy": info.cut.replica if info.cut else None,
                    }
                    for info, state in rows
                ],
            }
        )  # fmt: skip
    else:
        print(f"{look.config.service}: epoch {look.view.epoch}, head {look.view.head}, in {look.config.directory}/log")
        print()
        print_table(
            ("file", "state", "messages", "lsn", "confirmed", "used", "size", "writer", "problem"),
            [
                (
                    info.name,
                    state,
                    info.messages,
                    f"{info.first_lsn}..{info.last_lsn}" if info.messages else "",
                    info.confirmed_lsn,
                    show_bytes(info.used),
                    show_bytes(info.size),
                    f"{info.cut.replica}, after epoch {info.cut.base.epoch}" if info.cut else "",
                    info.problem,
                )
                for info, state in rows
            ],
        )
        if problem:
            print(f"\nthe log can't be followed: {problem}")
    return 65 if problem or any(info.problem for info, state in rows if state != "left") else 0


def _places(look: Inspection) -> tuple[set[tuple[int, int]], str]:
    """Give (epoch, roll) of all files that the log goes through, and why it can't be followed."""
    from deathless.base.errors import DataCorrupt

    places: set[tuple[int, int]] = set()
    if not look.view.head:
        return places, ""
    try:
        for step in look.steps(look.whole_route()):
            places.add((step.after.epoch, step.after.roll))
    except DataCorrupt as error:
        return places, str(error)
    return places, ""


@log.command("show")
@click.option(
    "--from", "first", type=click.IntRange(min=1), metavar="LSN", help="First message; default: show the last messages."
)
@click.option("--to", "last", type=click.IntRange(min=1), metavar="LSN", help="Last message.")
@click.option("-n", "--limit", default=20, show_default=True, type=click.IntRange(min=1), help="Maximum number.")
@click.option("--frames", is_flag=True, help="Show frames instead of messages.")
@click.option("--key", default="", help="Only messages to this key.")
@service_options
@json_option
def show(
    first: int | None,
    last: int | None,
    limit: int,
    frames: bool,
    key: str,
    manifest: str,
    directory: str,
    as_json: bool,
) -> int:
    """Show messages of the log: lsn, sender, handler, key, arguments. With --json each line is one object.

    \b
    deathless log show                          the last 20
    deathless log show --from 1000 -n 5
    deathless log show --key alice -n 100
    deathless log show --frames
    """
    from deathless.shell.lock_stores.inspection import inspect

    look = asyncio.run(inspect(target(manifest, directory).config))
    if not look.view.head:
        print("[]" if as_json else "the log is empty")
        return 0
    rows = _frame_rows(look, first) if frames else _message_rows(look, first, key)
    at = "firstLsn" if frames else "lsn"
    chosen: list[dict[str, object]] = []
    newest: deque[dict[str, object]] = deque(maxlen=limit)
    for row in rows:
        lsn = row[at]
        assert isinstance(lsn, int)
        if (first is not None and lsn < first) or (last is not None and lsn > last):
            continue
        if first is None:
            newest.append(row)
            continue
        chosen.append(row)
        if len(chosen) >= limit:
            break
    chosen += newest
    if as_json:
        for row in chosen:
            print_json_line(row)
    elif chosen:
        names = [name for name in chosen[0] if name not in ("chain", "digest")]
        print_table(names, [[_shown(row[name]) for name in names] for row in chosen])
    else:
        print("nothing there")
    return 0


def _shown(value: object) -> object:
    if isinstance(value, dict):
        text = json_of(value)
        return text if len(text) <= ARGS_SHOWN_MAX else text[: ARGS_SHOWN_MAX - 3] + "..."
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


def _route(look: Inspection, first: int | None) -> Route:
    """From where to read: the file that holds the first message asked for, or the last file."""
    from deathless.base.errors import LogTruncated

    finder = look.reader.routes
    oldest = finder.find_oldest(look.view.head)
    if first is None or first - 1 <= oldest.start.lsn:
        return oldest
    try:
        return finder.find(look.view.head, first - 1)
    except LogTruncated:
        return oldest


def _frame_rows(look: Inspection, first: int | None) -> Iterator[dict[str, object]]:
    from deathless.codec.frames import FrameKind
    from deathless.shell.lock_stores.inspection import place_of

    for step in look.steps(_route(look, first)):
        frame = step.found.frame
        file, offset = place_of(step)
        yield {
            "file": file, "offset": offset, "kind": FrameKind(frame.kind).name.lower(), "epoch": int(frame.epoch),
            "firstLsn": int(frame.first_lsn), "messages": frame.count, "confirmed": int(frame.confirmed_lsn),
            "bytes": len(step.found.raw), "chain": frame.chain.hex(),
        }  # fmt: skip


def _message_rows(look: Inspection, first: int | None, key: str) -> Iterator[dict[str, object]]:
    from deathless.codec.frames import FrameKind

    for step in look.steps(_route(look, first)):
        if step.found.frame.kind == FrameKind.DATA:
            yield from (row for row in _messages(step) if not key or row["key"] == key)


def _messages(step: Step) -> Iterator[dict[str, object]]:
    from deathless.codec.frames import decode_data
    from deathless.engine.shard.shard import cut_runs

    frame = step.found.frame
    data = decode_data(frame)
    lsn = int(frame.first_lsn)
    for run, messages in cut_runs(data):
        for index, message in enumerate(messages):
            yield {
                "lsn": lsn, "epoch": int(frame.epoch), "session": run.session, "seq": run.first_seq + index,
                **_describe(message), "digest": f"{data.digests[lsn - frame.first_lsn]:08x}",
            }  # fmt: skip
            lsn += 1


def _describe(message: bytes) -> dict[str, object]:
    """Say what a message is, also one that its sender broke: it ran, and every replica noted the same."""
    from deathless.base.errors import CorruptFrame

    try:
        return _read(message)
    except (msgspec.MsgspecError, CorruptFrame, UnicodeDecodeError):
        return {"what": "(malformed)", "key": "", "args": {"malformed": len(message)}, "idempotencyKey": ""}


def _read(message: bytes) -> dict[str, object]:
    from deathless.base.listings.texts import show_time
    from deathless.codec.generations import decode_upgraded
    from deathless.codec.messages import BEGINNING, PARKED_HEADER, U64, Kind, decode, decode_time
    from deathless.codec.peer_messages import RECORD_KINDS, Reference, decode_body
    from deathless.codec.streams.records import StreamOpened
    from deathless.codec.untrusted import read_msgpack

    kind, method, key, idempotency_key, body = decode(message)
    name = Kind(kind).name.lower()
    if kind in BEGINNING:
        args: object = read_msgpack(body, object) if body else {}
        return {
            "what": method.decode(errors="replace"), "key": key.decode(errors="replace"),
            "args": args, "idempotencyKey": idempotency_key.decode(errors="replace") if kind == Kind.CALL else "",
        }  # fmt: skip
    told: dict[str, object] = {}
    if kind == Kind.TIME:
        told = {"time": show_time(decode_time(body).time_us)}
    elif kind == Kind.PARKED:
        session, seq = PARKED_HEADER.unpack_from(body)
        told = {"session": session, "seq": seq, "bytes": len(body) - PARKED_HEADER.size}
    elif kind == Kind.REBASED:
        told = {"checkpoint": U64.unpack(body)[0]}
    elif kind == Kind.UPGRADED:
        upgraded = decode_upgraded(body)
        told = {
            "generation": upgraded.generation, "fromVersion": upgraded.from_version,
            "toVersion": upgraded.to_version, "code": upgraded.to_fingerprint.hex(),
        }  # fmt: skip
    elif kind == Kind.STREAM:
        told = msgspec.structs.asdict(decode_body(StreamOpened, body))
    elif kind == Kind.MARK:
        told = {"note": body.hex()}
    elif kind in (Kind.RESPONSE, Kind.CANCEL):
        told = msgspec.structs.asdict(decode_body(Reference, idempotency_key))
    else:
        for record, number in RECORD_KINDS.items():
            if kind == number:
                told = msgspec.structs.asdict(decode_body(record, body))
    return {"what": f"({name})", "key": "", "args": told, "idempotencyKey": ""}


@log.command("verify")
@click.option("--quick", is_flag=True, help="Check only checksums and the hash chain; run nothing.")
@service_options
@json_option
def verify(quick: bool, manifest: str, directory: str, as_json: bool) -> int:
    """Check every frame's checksum and the hash chain, replay all messages, and read every checkpoint.

    A difference is reported, with file, offset and LSN for damaged bytes, and with LSN, handler and key for a handler
    that gives another state or reply than the first time. The exit code is then 65.
    """
    from deathless.shell.operate.verification import verify_log

    found = target(manifest, directory)
    report = asyncio.run(verify_log(found.config, run=not quick))
    if as_json:
        print_json(report)
    else:
        _show_report(report, quick=quick)
    return 65 if report.problems else 0


def _show_report(report: object, *, quick: bool) -> None:
    from deathless.shell.operate.verification import Verification

    assert isinstance(report, Verification)
    parts = (count(report.files, "file"), count(report.frames, "frame"), count(report.messages, "message"))
    print(", ".join((*parts, show_bytes(report.bytes))))
    print(f"lsn {report.first_lsn} to {report.last_lsn}, confirmed through {report.confirmed_lsn}")
    print(f"chain hash at the end {report.chain}")
    if not quick and report.executed_through is not None:
        start = f"the checkpoint at lsn {report.executed_from}" if report.executed_from else "the beginning"
        print(f"run again from {start} to lsn {report.executed_through}: state digest {report.digest}")
    for checkpoint in report.checkpoints:
        print(f"checkpoint {checkpoint}: reads back")
    for witness in report.witnesses:
        print(f"witness: {witness}")
    for note in report.notes:
        print(f"note: {note}")
    for problem in report.problems:
        print(f"PROBLEM {problem}")
    print("verdict: " + ("sound" if not report.problems else count(len(report.problems), "problem")))
