"""A primary and successor of one shard reduced to what it does to the shared directory.

Why it exists: every crash point of the file store is tried (design 0003, "How it is shown"), thousands of times in
seconds; a whole replica would be too slow and would hide which step was the one. The driver carries out the steps of
its chapter "Takeover" in their order on the real `ShardLog`, `DirectoryLock` and `CheckpointStore`, runs no handlers,
and keeps what it applied as a list of messages.

    start -> take_over -> call, call_unsynced, idle, checkpoint, collect -> (crash) -> another driver: take_over

`released` is shared by all drivers of a test: what the outside has seen. The oracle is one line: `released` is a
prefix of what every later successor has applied (`check`).

Guarantees: that order, but for what a safeguard switched off leaves out. Does not: retry, time, network.
May import engine and below.
"""

from __future__ import annotations

from typing import Final

import msgspec

from deathless.base.errors import Deposed, LockUnavailable
from deathless.base.ids import ChainHash, Digest, Epoch, Fingerprint, Incarnation, Lsn
from deathless.base.limits import Limits
from deathless.base.times import Times
from deathless.codec.frames import (
    Confirm,
    Cut,
    Frame,
    FrameKind,
    Opening,
    Run,
    data_bytes,
    decode_data,
    encode_data,
)
from deathless.codec.snapshot import Snapshot
from deathless.engine.lock.directory_lock import DirectoryLock
from deathless.engine.log.checkpoint_store import CheckpointStore
from deathless.engine.log.route import Identity
from deathless.engine.log.store import ShardLog
from deathless.engine.ports import FileSystem, Holder, LockView, ServiceRecord, Tail
from deathless.engine.safeguards import ALL_SAFEGUARDS, Safeguards

SERVICE_ID: Final = b"0123456789abcdef"
STORE: Final = "store"
RECORD: Final = ServiceRecord("bank", SERVICE_ID, 7, bytes(32), 1, "seal", live=False)
LIMITS: Final = Limits(
    message_bytes_max=4096,
    frame_bytes_max=8192,
    segment_bytes_max=32768,
    allocate_bytes=16384,
    spare_bytes=32768,
    pending_bytes_max=65536,
)
"""Small files, so that a few calls roll, fill and collect."""


class LogDriver:
    """One process of one replica.

    Args:
        fs: its view of the shared directory.
        replica: its name.
        released: what the outside has seen; shared by all drivers of a test.
        safeguards: all on, but in tests.
        limits: sizes.
        adopted_through: the newest epoch that stood when the log was adopted; 0: it was not.
    """

    def __init__(
        self,
        fs: FileSystem,
        replica: str,
        released: list[bytes],
        *,
        safeguards: Safeguards = ALL_SAFEGUARDS,
        limits: Limits = LIMITS,
        adopted_through: int = 0,
    ) -> None:
        self.fs = fs
        self.replica = replica
        self.released = released
        self.safeguards = safeguards
        self.lock = DirectoryLock(fs, process=replica, fresh_store_id=STORE, safeguards=safeguards)
        self.log = ShardLog(fs, limits, replica, Identity(SERVICE_ID, 7, "seal", STORE, adopted_through), safeguards)
        self.checkpoints = CheckpointStore(fs, replica, safeguards=safeguards, make_room=self.log.spare.free)
        self.applied: list[bytes] = []  # messages, by lsn - 1
        self.chain = ChainHash(bytes(16))  # behind the last applied
        self.epoch = 0  # own epoch while primary
        self.confirmed = 0  # lsn

    def start(self) -> None:
        """Make folders and spare, and load the newest checkpoint."""
        self.log.prepare()
        self.lock.prepare()
        snapshot = self.checkpoints.load_newest()
        if snapshot is not None:
            self.applied = [snapshot.state[key] for key in sorted(snapshot.state)]
            self.chain = snapshot.chain

    def follow(self, bytes_max: int = 1 << 30) -> None:
        """Apply what the log calls confirmed."""
        head = self.lock.view().head
        done = False
        while not done:
            frames, done = self.log.read(head, len(self.applied), self.chain, bytes_max=bytes_max)
            self._apply([frame for frame, _ in frames])

    def take_over(self, known_confirmed: int = 0) -> None:
        """Steps 1 to 8 of design 0003, "How it is shown".

        Args:
            known_confirmed: the highest lsn that any reachable replica knows confirmed.

        Raises: Deposed, StoreOlderThanLog, the errors of lock and log.
        """
        holder, view = self._take()
        tail = None if self.safeguards.seal_before_read else self._read(view, known_confirmed)
        first = view.head if self.safeguards.seal_every_epoch else holder.epoch - 1
        self.log.link_seals(first, holder.epoch - 1)
        tail = tail or self._read(view, known_confirmed)
        self._apply([frame for frame, _ in tail.confirmed])
        cut = Cut(tail.position, "bank", SERVICE_ID, 7, "seal", STORE, bytes(16), self.replica, len(tail.unconfirmed))
        self.log.write_cut(holder.epoch, msgspec.msgpack.encode(cut), tail, incarnation=7)
        revision = self.lock.set_head(holder)
        if revision is None:
            raise Deposed("head is guarded by the lock")
        self._apply([frame for frame, _ in tail.unconfirmed])
        self.epoch, self.confirmed = holder.epoch, len(self.applied)
        if self.safeguards.opening_frame:
            self._control(FrameKind.OPENING, Opening(self.confirmed, revision, view.head))
        if self.log.sealed(self.epoch):
            raise Deposed("sealed before it served")
        if self.safeguards.remove_unread:
            self.log.remove_unread()
        self.lock.go_live(holder)
        self._release()

    def call(self, *messages: bytes) -> bool:
        """Log one frame and release it. False: no space; nothing was done."""
        if not self.log.reserve(data_bytes(1, len(messages), sum(map(len, messages)))):
            return False
        self.call_unsynced(*messages)
        self.log.sync()
        self.prove()
        return True

    def call_unsynced(self, *messages: bytes) -> None:
        """Write one frame and stop before its sync."""
        frame, _ = self.log.append(
            FrameKind.DATA,
            data_payload(len(self.applied), messages),
            first_lsn=len(self.applied) + 1,
            count=len(messages),
            confirmed_lsn=self.confirmed,
        )
        self.applied.extend(messages)
        self.chain = frame.chain

    def prove(self) -> None:
        """Look for the successor's seal, then release.

        Raises: Deposed.
        """
        if self.safeguards.prove_before_release and self.log.sealed(self.epoch):
            raise Deposed("sealed")
        self.confirmed = len(self.applied)
        self._release()

    def idle(self) -> None:
        """Close with a frame that carries the confirmed lsn."""
        self._control(FrameKind.CONFIRM, Confirm(bytes(16)))

    def checkpoint(self, reader: LogDriver | None = None) -> str:
        """Write a checkpoint of everything applied, let `reader` (or a helper of our own) verify it, prune.

        The state is what is confirmed: call it between frames.
        """
        name = self.checkpoints.write(self.snapshot())
        self.checkpoints.announce(name)
        (reader or self).checkpoints.verify(name)
        self.checkpoints.prune()
        return name

    def collect(self) -> list[str]:
        """Collect the log below the checkpoints that count."""
        return self.log.collect(self.checkpoints.floor())

    def check(self) -> None:
        """Released is never lost, and never different: a prefix of what this one has applied."""
        assert self.applied[: len(self.released)] == self.released, "released was lost"

    def snapshot(self) -> Snapshot:
        """Everything applied, as a checkpoint."""
        return Snapshot(
            service="bank",
            service_id=SERVICE_ID,
            incarnation=Incarnation(7),
            epoch=Epoch(self.epoch),
            lsn=Lsn(len(self.applied)),
            chain=self.chain,
            digest=Digest(bytes(16)),
            times=Times(),
            fingerprint=Fingerprint(bytes(16)),
            state={index.to_bytes(8, "big"): message for index, message in enumerate(self.applied)},
        )

    def _take(self) -> tuple[Holder, LockView]:
        view = self.lock.view()
        if view.service is None or view.store_id == "":
            self.lock.create_service(RECORD)
            view = self.lock.view()
        self.log.check_store(view.head, view.epoch, view.revision)
        holder = self.lock.take(self.replica, f"{self.replica}.{view.epoch}".encode(), view)
        if holder is None:
            raise LockUnavailable("another was faster")
        return holder, self.lock.view()

    def _read(self, view: LockView, known_confirmed: int) -> Tail:
        self.follow()
        return self.log.read_tail(view.head, len(self.applied), self.chain, known_confirmed)

    def _control(self, kind: FrameKind, payload: Opening | Confirm) -> None:
        self.log.append(
            kind,
            msgspec.msgpack.encode(payload),
            first_lsn=len(self.applied) + 1,
            count=0,
            confirmed_lsn=self.confirmed,
        )
        self.log.sync()

    def _apply(self, frames: list[Frame]) -> None:
        for frame in frames:
            assert frame.first_lsn == len(self.applied) + 1, "frames continue what was applied"
            self.applied.extend(messages_of(frame))
            self.chain = frame.chain

    def _release(self) -> None:
        """Let the outside see everything confirmed."""
        confirmed = self.applied[: self.confirmed]
        if len(confirmed) >= len(self.released):
            assert confirmed[: len(self.released)] == self.released, "released was lost"
            self.released[:] = confirmed


def data_payload(seq: int, messages: tuple[bytes, ...]) -> bytes:
    """Payload of a DATA frame of one sender's messages."""
    ends = bytearray()
    end = 0
    for message in messages:
        end += len(message)
        ends += end.to_bytes(4, "little")
    run = Run(1, seq + 1, 0, len(messages))
    return encode_data([run], bytes(ends), bytes(4 * len(messages)), Digest(bytes(16)), b"".join(messages))


def messages_of(frame: Frame) -> list[bytes]:
    """The messages of a DATA frame."""
    data = decode_data(frame)
    starts = (0, *data.ends[:-1])
    return [data.blob[start:end] for start, end in zip(starts, data.ends, strict=True)]
