"""Writes a long log quickly: the real shard, writer and lock, but one sync at the end instead of one per frame.

`python -m bench.build_log DIRECTORY HANDLER MESSAGE_BYTES LOG_BYTES KEYS` prints JSON. What comes out is a directory
that a primary could have written, confirmed to its end, its lock given up. Guarantees: replicas recover it without
knowing the difference. Does not: survive a crash while it writes.
"""

from __future__ import annotations

import asyncio
import gc
import os
import sys
import time
from pathlib import Path
from typing import Final

import msgspec

from bench.cluster import MODULE, SERVICE
from deathless.base.config import ReplicaConfig
from deathless.base.times import Times
from deathless.codec.frames import (
    Confirm,
    Cut,
    FrameKind,
    Opening,
    Run,
    data_bytes,
    padded,
)
from deathless.codec.messages import Kind, encode, encode_register, encode_time
from deathless.core.replica.replica import ShardPlace
from deathless.engine.lock.directory_lock import DirectoryLock
from deathless.engine.log.store import ShardLog
from deathless.engine.ports import Handle, Holder
from deathless.engine.shard.assembly import open_shard
from deathless.engine.shard.shard import Shard
from deathless.shell.directory.identity import prepare
from deathless.shell.disk.filesystem import RealFileSystem
from deathless.shell.disk.open_log import open_log
from deathless.shell.service_code.fingerprint import fingerprint
from deathless.shell.service_code.loading import load_service

REPLICA: Final = "builder"
FRAME_BYTES: Final = 1 << 20
FRAME_MESSAGES: Final = 4096


class Built(msgspec.Struct):
    """What was written."""

    messages: int
    log_bytes: int  # of frames, padding included
    keys: int
    seconds: float


class LazyFileSystem(RealFileSystem):
    """Makes nothing durable until told to."""

    def sync(self, handle: Handle) -> None:
        """See the class."""

    def sync_folder(self, path: str) -> None:
        """See the class."""


class Builder:
    """Writes epoch 1 of a new directory."""

    def __init__(self, config: ReplicaConfig) -> None:
        self._config = config
        self._limits = config.make_limits()
        self._fs = LazyFileSystem(config.directory)
        self._lock = DirectoryLock(self._fs, process=f"{REPLICA}.worker", fresh_store_id=os.urandom(8).hex())
        self._place: ShardPlace
        self._shard: Shard
        self._log: ShardLog
        self._holder: Holder
        self.log_bytes = 0

    def begin(self) -> None:
        """Take the lock, write cut and opening, as a first primary does."""
        self._lock.prepare()
        seen = self._lock.view()
        record = seen.service
        assert record is not None
        service = load_service(MODULE)
        self._shard = open_shard(service, self._limits, record.seed)
        self._place = self._shard.place
        self._log = open_log(self._fs, self._limits, REPLICA, record, seen.store_id)
        holder = self._lock.take(REPLICA, os.urandom(16), seen)
        assert holder is not None
        self._holder = holder
        tail = self._log.read_tail(0, 0, self._place.chain, 0)
        cut = Cut(
            tail.position, record.name, record.service_id, record.incarnation, record.fence, seen.store_id,
            fingerprint(service, self._limits), REPLICA, 0,
        )  # fmt: skip
        self._log.write_cut(holder.epoch, msgspec.msgpack.encode(cut), tail, incarnation=record.incarnation)
        revision = self._lock.set_head(holder)
        assert revision is not None
        self._control(FrameKind.OPENING, msgspec.msgpack.encode(Opening(0, revision, 0)))
        assert self._lock.go_live(holder)
        register = encode_register(bytes(16))
        self.run([(Run(0, 0, 0, 2), [encode_time(Times.at(time.time_ns() // 1000)), register])])

    def _control(self, kind: int, payload: bytes) -> None:
        lsn = self._place.lsn
        self._log.append(kind, payload, first_lsn=lsn + 1, count=0, confirmed_lsn=lsn)
        self._log.sync()

    def run(self, runs: list[tuple[Run, list[bytes]]]) -> None:
        """Execute and write one frame."""
        place = self._place
        first, confirmed = place.lsn + 1, place.lsn
        count = sum(len(messages) for _, messages in runs)
        assert self._log.reserve(data_bytes(len(runs), count, sum(len(m) for _, messages in runs for m in messages)))
        done = self._shard.execute(runs)
        frame, raw = self._log.append(
            FrameKind.DATA, done.payload, first_lsn=first, count=done.count, confirmed_lsn=confirmed
        )
        self._log.sync()
        place.chain = frame.chain
        self.log_bytes += padded(len(raw))

    def end(self) -> None:
        """Confirm everything, give the lock up, make all of it durable."""
        self._control(FrameKind.CONFIRM, msgspec.msgpack.encode(Confirm(self._place.digest)))
        self._log.close()
        self._lock.release(self._holder)
        os.sync()


def message_of(handler: str, size: int, key: int, fill: bytes) -> bytes:
    """A call of `size` bytes with header, handler, key and arguments."""
    name = b"key%07d" % key
    if handler == "put":
        bare = encode(Kind.CALL, method=b"put", key=name, args=msgspec.msgpack.encode({"value": b""}))
        spare = size - len(bare) - (1 if size - len(bare) > 256 else 0)
        return encode(Kind.CALL, method=b"put", key=name, args=msgspec.msgpack.encode({"value": fill[:spare]}))
    bare = encode(Kind.CALL, method=b"add", key=name, args=msgspec.msgpack.encode({"amount": 1, "note": ""}))
    note = "x" * (size - len(bare) - (1 if size - len(bare) > 31 else 0))
    return encode(Kind.CALL, method=b"add", key=name, args=msgspec.msgpack.encode({"amount": 1, "note": note}))


def build(directory: Path, handler: str, message_bytes: int, log_bytes: int, keys: int) -> Built:
    """Write the log."""
    config = ReplicaConfig(service=SERVICE, module=MODULE, directory=str(directory), replica=REPLICA)
    asyncio.run(prepare(config))
    began = time.perf_counter()
    builder = Builder(config)
    builder.begin()
    per_frame = max(1, min(FRAME_MESSAGES, FRAME_BYTES // message_bytes))
    fill = os.urandom(message_bytes)
    made = [message_of(handler, message_bytes, n, fill) for n in range(keys)] if keys <= per_frame * 64 else []
    gc.disable()
    seq, session = 1, 2  # the registration's lsn
    while builder.log_bytes < log_bytes:
        numbers = [n % keys for n in range(seq - 1, seq - 1 + per_frame)]
        if made:
            messages = [made[n] for n in numbers]
        else:
            messages = [message_of(handler, message_bytes, n, fill) for n in numbers]
        builder.run([(Run(session, seq, seq - 1, per_frame), messages)])
        seq += per_frame
    builder.end()
    return Built(seq - 1, builder.log_bytes, min(keys, seq - 1), time.perf_counter() - began)


def main(arguments: list[str]) -> int:
    """Write as the arguments say."""
    directory, handler, *numbers = arguments
    built = build(Path(directory), handler, *map(int, numbers))
    print(msgspec.json.encode(built).decode())
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
