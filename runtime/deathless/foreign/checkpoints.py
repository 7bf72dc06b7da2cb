"""Checkpoints of an application: one file for each, in a folder that all replicas of the service share.

    <shard directory>/application/checkpoint-<position>

    8 bytes    "DLAPPCP1"
    4 bytes    length of the head, big-endian
    head       msgpack, see `Head`
    blob       the application's own bytes, `Head.length` of them
    32 bytes   BLAKE2b of everything before

A file is written under a name of its writer's own and gets its name by an exclusive link once it is durable: so a file
of that name is whole, and two writers of one position can't tear each other's. The first one counts: where two replicas
begin the application at the same time, its first message is the one in the file of position 0.

Guarantees: what is given back was written whole; a file that is damaged is told as such and never given in part, as its
checksum is computed before its first byte is used. Does not: decide when one is taken. Imports codec, protocols and the
engine's ports.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Container, Iterator
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from deathless.base.foreign.binding import CHECKPOINT_PREFIX, FOLDER
from deathless.codec.untrusted import MsgpackReader
from deathless.protocols.ambrosia.lanes import Expectation, Kept, LaneState
from deathless.protocols.ambrosia.messages import Kind, MessageType, Oversized, Rpc

if TYPE_CHECKING:
    from deathless.engine.ports import FileSystem, Handle

MAGIC: Final = b"DLAPPCP1"
PREFIX: Final = CHECKPOINT_PREFIX
PARTIAL: Final = "partial-"
SET_ASIDE: Final = "set-aside-"
KEPT: Final = 2  # newest ones that stay
PIECE_BYTES: Final = 1 << 20
_LENGTH_BYTES: Final = 4
_DIGEST_BYTES: Final = 32


class Head(msgspec.Struct, frozen=True, kw_only=True):
    """What a checkpoint says beside the application's bytes."""

    service_id: str  # 32 hexadecimal digits
    incarnation: int  # of the service; positions of another one have nothing to do with these
    position: int  # of the row that was delivered last; 0: none was
    records: int  # that were delivered
    length: int  # of the blob, bytes
    lanes: bytes = b""  # see `encode_lanes`
    initial: bytes = b""  # at position 0: the application's first message
    version: int = -1  # of the program that gave it, as its owner numbers them; -1: nobody does


class CheckpointDamaged(Exception):
    """A file is not what was written."""


class Found(NamedTuple):
    """A checkpoint that is whole."""

    head: Head
    blob_at: int  # offset of the blob


# ---- lanes -------------------------------------------------------------------------------------------------------


class _Kept(msgspec.Struct, frozen=True, array_like=True):
    type: int  # -1: it was too long
    kind: int
    method: int
    name: str
    sequence: int
    arguments_at: int  # of one that was too long its size
    body: bytes
    destination: str
    chain: bytes


class _Lane(msgspec.Struct, frozen=True, array_like=True):
    target: str
    floor: int
    chain: bytes
    emitted: int
    kept: tuple[_Kept, ...]
    expected: tuple[Expectation, ...]


_encode: Final = msgspec.msgpack.Encoder().encode
_decode_lanes: Final = MsgpackReader(tuple[_Lane, ...]).decode
_decode_head: Final = MsgpackReader(Head).decode


def encode_lanes(lanes: tuple[LaneState, ...]) -> bytes:
    """Give lanes as bytes."""
    return _encode(
        [
            _Lane(each.target, each.floor, each.chain, each.emitted, tuple(map(_kept, each.kept)), each.expected)
            for each in lanes
        ]
    )


def decode_lanes(data: bytes) -> tuple[LaneState, ...]:
    """Give lanes back. Raises: msgspec.MsgspecError, ValueError."""
    return tuple(
        LaneState(
            target=each.target,
            floor=each.floor,
            chain=each.chain,
            emitted=each.emitted,
            kept=tuple(Kept(_item(kept), kept.chain) for kept in each.kept),
            expected=each.expected,
        )
        for each in _decode_lanes(data)
    )


def _kept(kept: Kept) -> _Kept:
    item = kept.item
    if isinstance(item, Rpc):
        return _Kept(
            item.type, item.kind, item.method, item.name, item.sequence, item.arguments_at, item.body,
            item.destination, kept.chain,
        )  # fmt: skip
    return _Kept(
        -1, item.kind, item.method, item.name, item.sequence, item.size, b"", item.destination, kept.chain
    )  # fmt: skip


def _item(kept: _Kept) -> Rpc | Oversized:
    kind = Kind(kept.kind)
    if kept.type < 0:
        return Oversized(
            destination=kept.destination, kind=kind, method=kept.method, name=kept.name, sequence=kept.sequence,
            size=kept.arguments_at,
        )  # fmt: skip
    return Rpc(
        destination=kept.destination, kind=kind, body=kept.body, type=MessageType(kept.type), method=kept.method,
        name=kept.name, sequence=kept.sequence, arguments_at=kept.arguments_at,
    )  # fmt: skip


# ---- files -------------------------------------------------------------------------------------------------------


class Checkpoints:
    """The folder.

    Args:
        files: whose root is the shard's directory.
        writer: a name that no other writer has at this time; up to the first dot, its replica's.
    """

    def __init__(self, files: FileSystem, writer: str) -> None:
        self._files = files
        self._writer = writer

    def positions(self) -> list[int]:
        """Give the positions of those there are, the newest first. Raises: OSError."""
        try:
            names = self._files.listing(FOLDER)
        except FileNotFoundError:
            return []
        found = [name.removeprefix(PREFIX) for name in names if name.startswith(PREFIX)]
        return sorted((int(digits) for digits in found if digits.isdecimal()), reverse=True)

    def look(self, position: int) -> Found:
        """Read all of one, and give its head. Raises: CheckpointDamaged, OSError."""
        name = _name(position)
        handle = self._files.open(name)
        try:
            size = self._files.size(handle)
            digest = hashlib.blake2b(digest_size=_DIGEST_BYTES)
            end = size - _DIGEST_BYTES
            if end < len(MAGIC) + _LENGTH_BYTES:
                raise CheckpointDamaged(f"{name} has {size} bytes")
            for at in range(0, end, PIECE_BYTES):
                digest.update(self._files.read(handle, at, min(PIECE_BYTES, end - at)))
            if self._files.read(handle, end, _DIGEST_BYTES) != digest.digest():
                raise CheckpointDamaged(f"{name} has another checksum than was written")
            found = self._head(handle, name, end)
            if found.blob_at + found.head.length != end or found.head.position != position:
                raise CheckpointDamaged(f"{name} is of position {found.head.position}, or of another length")
        finally:
            self._files.close(handle)
        return found

    def head(self, position: int) -> Head:
        """Give the head of one without a look at the rest of it. Raises: CheckpointDamaged, OSError."""
        name = _name(position)
        handle = self._files.open(name)
        try:
            return self._head(handle, name, self._files.size(handle)).head
        finally:
            self._files.close(handle)

    def version(self) -> int:
        """Give the version of the program that the newest one is of; -1: none is there, or nobody numbers them.

        Raises: CheckpointDamaged, OSError.
        """
        while positions := self.positions():
            with contextlib.suppress(FileNotFoundError):  # a newer one was written meanwhile, and this one removed
                return self.head(positions[0]).version
        return -1

    def blob(self, found: Found) -> Blob:
        """Give the application's bytes, in pieces; the file is open then, whoever removes it. Raises: OSError."""
        return Blob(self._files, found)

    def begin(self, head: Head) -> Writing:
        """Begin one, with room reserved for all of it. Raises: OSError."""
        self._files.make_folder(FOLDER)
        self._drop_partial()
        return Writing(self._files, f"{FOLDER}/{PARTIAL}{self._writer}", head)

    def forget(self, kept: int = KEPT, needed: Container[int] = ()) -> list[int]:
        """Remove all but the newest ones; gives the positions of the newest ones, the newest first.

        Args:
            kept: so many stay; 0: all.
            needed: those at these positions stay as well.

        Raises: OSError.
        """
        found = self.positions()
        stay = kept or len(found)
        for position in (each for each in found[stay:] if each not in needed):
            with contextlib.suppress(FileNotFoundError):
                self._files.unlink(_name(position))
        return found[:stay]

    def set_aside(self, position: int) -> None:
        """Give one another name, under which nobody looks for it. Raises: OSError."""
        with contextlib.suppress(FileNotFoundError):
            self._files.rename(_name(position), f"{FOLDER}/{SET_ASIDE}{position:020d}")
            self._files.sync_folder(FOLDER)

    def _drop_partial(self) -> None:
        """Remove what earlier writings of our replica left; one that is under way yet does not become a checkpoint."""
        replica, _, _ = self._writer.partition(".")
        for name in self._files.listing(FOLDER):
            if name.startswith(PARTIAL) and name.removeprefix(PARTIAL).partition(".")[0] == replica:
                with contextlib.suppress(FileNotFoundError):
                    self._files.unlink(f"{FOLDER}/{name}")

    def _head(self, handle: Handle, name: str, end: int) -> Found:
        start = len(MAGIC) + _LENGTH_BYTES
        room = end - start
        begins = self._files.read(handle, 0, start)
        length = int.from_bytes(begins[len(MAGIC) :], "big")
        if begins[: len(MAGIC)] != MAGIC or length > room:  # however many outputs wait to be logged, they stand there
            raise CheckpointDamaged(f"{name} is no checkpoint of an application")
        try:
            return Found(_decode_head(self._files.read(handle, start, length)), start + length)
        except msgspec.MsgspecError as error:
            raise CheckpointDamaged(f"{name}: {error}") from None


class Blob(Iterator[bytes]):
    """The application's bytes of a checkpoint, in pieces. The file is closed behind the last one, or by `close`.

    Args:
        files: the folder.
        found: the checkpoint.

    Raises: OSError.
    """

    def __init__(self, files: FileSystem, found: Found) -> None:
        self._files = files
        self._found = found
        self._at = 0
        self._handle: Handle | None = files.open(_name(found.head.position))

    def __next__(self) -> bytes:
        size = min(PIECE_BYTES, self._found.head.length - self._at)
        if self._handle is None or size <= 0:
            self.close()
            raise StopIteration
        at, self._at = self._found.blob_at + self._at, self._at + size
        return self._files.read(self._handle, at, size)

    def close(self) -> None:
        """Close the file; does nothing where it is closed."""
        handle, self._handle = self._handle, None
        if handle is not None:
            self._files.close(handle)


class Writing:
    """One checkpoint that is being written.

    Args:
        files: whose root is the shard's directory.
        partial: name of the file until it is whole.
        head: of it.

    Raises: OSError.
    """

    def __init__(self, files: FileSystem, partial: str, head: Head) -> None:
        self.head = head
        self._files = files
        self._partial = partial
        self._digest = hashlib.blake2b(digest_size=_DIGEST_BYTES)
        self._at = 0
        self._handle = files.create(partial)
        self._is_open = True  # a handle that was closed may be another file's by now
        encoded = _encode(head)
        start = MAGIC + len(encoded).to_bytes(_LENGTH_BYTES, "big") + encoded
        try:
            files.allocate(self._handle, 0, len(start) + head.length + _DIGEST_BYTES)
            self._write(start)
        except BaseException:
            self.drop()
            raise

    def write(self, piece: bytes) -> None:
        """Write some of the application's bytes. Raises: OSError."""
        self._write(piece)

    def end(self) -> bool:
        """Make it durable and give it its name; False: another one of this position is there. Raises: OSError."""
        files = self._files
        self._close()
        try:
            files.link(self._partial, _name(self.head.position))
        except FileExistsError:
            return False
        finally:
            files.unlink(self._partial)
        files.sync_folder(FOLDER)
        return True

    def replace(self) -> None:
        """Make it durable and put it in the place of the one of its position, at once. Raises: OSError."""
        self._close()
        self._files.rename(self._partial, _name(self.head.position))
        self._files.sync_folder(FOLDER)

    def _close(self) -> None:
        files = self._files
        files.write(self._handle, self._at, self._digest.digest())
        files.truncate(self._handle, self._at + _DIGEST_BYTES)
        files.sync(self._handle)
        self._is_open = False
        files.close(self._handle)

    def drop(self) -> None:
        """Let go of it: it did not become whole."""
        if self._is_open:
            self._is_open = False
            with contextlib.suppress(OSError):
                self._files.close(self._handle)
        with contextlib.suppress(OSError):
            self._files.unlink(self._partial)

    def _write(self, data: bytes) -> None:
        self._files.write(self._handle, self._at, data)
        self._digest.update(data)
        self._at += len(data)


def _name(position: int) -> str:
    return f"{FOLDER}/{PREFIX}{position:020d}"
