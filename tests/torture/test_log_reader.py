"""The second reader of the log finds what stands there, along takeovers, and says what is wrong with it."""

from __future__ import annotations

import struct
from pathlib import Path

import msgspec
import pytest
from tests.torture.log_reader import LogBroken, LogFiles

from deathless.base.ids import ChainHash, Digest
from deathless.codec.frames import (
    Cut,
    FrameKind,
    Opening,
    Position,
    Run,
    chain_after,
    encode_data,
    encode_frame,
    padded,
    segment_name,
)
from deathless.codec.generations import FIRST
from deathless.codec.messages import Kind, encode

BEGINNING = Position(0, 0, 0, 0, bytes(16))
SESSION = 5


class Writer:
    """Writes one epoch of a log."""

    def __init__(self, folder: Path, epoch: int, base: Position, level: int = FIRST.level) -> None:
        self.lsn, self.chain = int(base.lsn), ChainHash(base.chain)
        self._path, self._epoch, self._index, self._at = folder / segment_name(epoch, 0), epoch, 0, 0
        self._path.write_bytes(b"")
        cut = Cut(base, "s", bytes(16), 1, "seal", "store", bytes(16), "r0", 0, level=level)
        self._frame(FrameKind.CUT, cut.encode(), level=level)
        self._frame(FrameKind.OPENING, msgspec.msgpack.encode(Opening(self.lsn, 0, 0)))

    def _frame(self, kind: int, payload: bytes, count: int = 0, level: int = FIRST.level) -> None:
        behind = chain_after(self.chain, self.lsn + 1, payload) if count else self.chain
        data = encode_frame(
            kind,
            payload,
            epoch=self._epoch,
            first_lsn=self.lsn + 1,
            confirmed_lsn=0,
            count=count,
            incarnation=1,
            prev_chain=self.chain,
            chain=behind,
            index=self._index,
            level=level,
        )
        with self._path.open("ab") as file:
            file.write(data.ljust(padded(len(data)), bytes(1)))
        self.lsn, self.chain = self.lsn + count, behind
        self._index += 1
        self._at += padded(len(data))

    def calls(self, first_seq: int, *tags: str) -> Position:
        """Write a frame of calls; gives the place behind it."""
        messages = [encode(Kind.CALL, method=b"write", args=msgspec.msgpack.encode({"tag": tag})) for tag in tags]
        ends = [sum(map(len, messages[: n + 1])) for n in range(len(messages))]
        count = len(messages)
        payload = encode_data(
            [Run(SESSION, first_seq, 0, count)],
            struct.pack(f"<{count}I", *ends),
            bytes(4 * count),
            Digest(bytes(16)),
            b"".join(messages),
        )
        self._frame(FrameKind.DATA, payload, count)
        return Position(self._epoch, 0, self._at, self.lsn, self.chain)


def tags(folder: Path) -> list[object]:
    """What the reader finds."""
    return [message.arguments["tag"] for message in LogFiles(folder).messages()]


def written(folder: Path) -> None:
    """Two epochs; the first one wrote something that its successor did not take over."""
    first = Writer(folder, 1, BEGINNING)
    base = first.calls(1, "a", "b")
    first.calls(3, "lost")
    Writer(folder, 2, base).calls(3, "c", "d")


def test_calls_are_found_along_takeovers_with_their_places(tmp_path: Path) -> None:
    written(tmp_path)
    found = LogFiles(tmp_path).messages()
    assert [(m.lsn, m.session, m.seq, m.arguments["tag"]) for m in found] == [
        (1, SESSION, 1, "a"),
        (2, SESSION, 2, "b"),
        (3, SESSION, 3, "c"),
        (4, SESSION, 4, "d"),
    ]


def test_log_of_a_later_format_level_is_read(tmp_path: Path) -> None:
    base = Writer(tmp_path, 1, BEGINNING, level=2).calls(1, "a")
    Writer(tmp_path, 2, base, level=2).calls(2, "b")
    assert tags(tmp_path) == ["a", "b"]


def test_frame_of_a_version_that_no_page_tells_of_is_not_taken_for_the_end(tmp_path: Path) -> None:
    Writer(tmp_path, 1, BEGINNING)._frame(FrameKind.DATA, b"", level=2)
    with pytest.raises(LogBroken, match="a frame of kind 3 in version 3"):
        LogFiles(tmp_path).messages()


def test_an_epoch_that_never_opened_is_not_the_log(tmp_path: Path) -> None:
    written(tmp_path)
    (tmp_path / segment_name(3, 0)).write_bytes(bytes(4096))
    assert tags(tmp_path) == ["a", "b", "c", "d"]


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    written(tmp_path)
    (tmp_path / segment_name(1, 0)).unlink()
    with pytest.raises(LogBroken, match="epoch 1, roll 0 is missing"):
        LogFiles(tmp_path).messages()


def test_a_changed_byte_below_a_cut_is_named(tmp_path: Path) -> None:
    written(tmp_path)
    path = tmp_path / segment_name(1, 0)
    data = bytearray(path.read_bytes())
    data[2 * 4096 + 200] ^= 1
    path.write_bytes(data)
    with pytest.raises(LogBroken, match="no frame at 8192"):
        LogFiles(tmp_path).messages()
