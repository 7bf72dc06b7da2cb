"""An independent reader, written from docs/formats alone, reads the golden bytes.

It shares nothing with the codec: who changes the codec must change the pages, and who reads the pages can read the
files. Each test names the page and section it follows.
"""

from __future__ import annotations

import hashlib
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

GOLDEN = Path(__file__).parents[1] / "golden"


def golden(name: str) -> bytes:
    return (GOLDEN / f"{name}.bin").read_bytes()


def number(data: bytes, at: int, size: int) -> int:
    return int.from_bytes(data[at : at + size], "little")


def column(data: bytes, at: int, count: int, code: str) -> tuple[int, ...]:
    values: tuple[int, ...] = struct.unpack_from(f"<{count}{code}", data, at)
    return values


def cut(blob: bytes, ends: tuple[int, ...]) -> list[bytes]:
    """README, words and conventions: item i is blob[end[i-1]:end[i]]."""
    return [blob[start:end] for start, end in zip((0, *ends), ends, strict=False)]


def blake(*parts: bytes) -> bytes:
    return hashlib.blake2b(b"".join(parts), digest_size=16).digest()


def unpacked(data: bytes) -> list[object]:
    return msgspec.msgpack.decode(data, type=list[object])


# ---------------------------------------------------------------- message.md


def message(data: bytes) -> tuple[int, bytes, bytes, bytes, bytes]:
    kind, flags = data[0], data[1]
    assert flags == 0
    m, k, i = column(data, 2, 3, "H")
    at = 8
    return kind, data[at : at + m], data[at + m : at + m + k], data[at + m + k : at + m + k + i], data[at + m + k + i :]


def test_message_md_a_call() -> None:
    kind, method, key, idempotency_key, arguments = message(golden("message_call"))
    assert (kind, method, key, idempotency_key) == (1, b"deposit", b"alice", b"k1")
    assert msgspec.msgpack.decode(arguments) == {"amount": 5}


def test_message_md_a_trace_context_ends_a_call_with_flag_1() -> None:
    data, plain = golden("message_traced"), golden("message_call")
    assert (data[0], data[1], data[2:-25]) == (1, 1, plain[2:])
    assert data[-25:].hex() == "0af7651916cd43dd8448eb211c80319c" + "b7ad6b7169203331" + "01"


@pytest.mark.parametrize(
    ("name", "kind", "width"), [("time", 16, 32), ("time_version_1", 16, 8), ("register", 17, 16), ("rebased", 19, 8)]
)
def test_message_md_records_have_no_method_and_no_key(name: str, kind: int, width: int) -> None:
    found, method, key, idempotency_key, body = message(golden(f"message_{name}"))
    assert (found, method, key, idempotency_key, len(body)) == (kind, b"", b"", b"", width)


def test_message_md_a_parked_message_stands_verbatim_behind_session_and_seq() -> None:
    kind, _, _, _, body = message(golden("message_parked"))
    assert (kind, *column(body, 0, 2, "Q")) == (18, 7, 9)
    assert body[16:] == golden("message_call")


# ---------------------------------------------------------------- frame.md


def frame(data: bytes, *, old: bool = False) -> tuple[int, int, int, bytes]:
    """Header: kind, first lsn, count and payload of a frame whose checksum is right."""
    assert data[:4] == b"DLF1"
    assert (number(data, 4, 2), data[7]) == (2 if data[6] == 3 and not old else 1, 1)
    payload = data[128 : 128 + number(data, 36, 4)]
    blank = data[:96] + bytes(4) + data[100:128]
    assert number(data, 96, 4) == zlib.crc32(payload, zlib.crc32(blank, number(data, 8, 4)))
    kind, first_lsn = data[6], number(data, 16, 8)
    behind = blake(data[48:64], data[16:24], payload) if kind == 3 else data[48:64]
    assert data[64:80] == behind
    return kind, first_lsn, number(data, 32, 4), payload


def test_frame_md_a_data_frame() -> None:
    kind, first_lsn, count, payload = frame(golden("frame_data"))
    assert frame(golden("frame_data_without_marks"), old=True) == (kind, first_lsn, count, payload)
    assert (kind, first_lsn, count) == (3, 5, 3)
    runs = [struct.unpack_from("<QQQII", payload, 24 + 32 * at)[:4] for at in range(number(payload, 0, 4))]
    assert runs == [(0, 0, 0, 1), (3, 8, 7, 2), (4, 1, 9, 0)]
    at = 24 + 32 * len(runs)
    assert cut(payload[at + 8 * count :], column(payload, at, count, "I")) == [b"time", b"", b"two"]
    assert len(column(payload, at + 4 * count, count, "I")) == count


@pytest.mark.parametrize(
    ("name", "kind", "fields"), [("cut", 1, 9), ("opening", 2, 3), ("roll", 4, 1), ("confirm", 5, 1)]
)
def test_frame_md_payloads_of_the_other_kinds(name: str, kind: int, fields: int) -> None:
    found, _, count, payload = frame(golden(f"frame_{name}"))
    record = unpacked(payload)
    assert (found, count, len(record)) == (kind, 0, fields)
    if name == "cut":
        assert record[0] == [1, 0, 8192, 4, bytes(range(16, 32))]
        assert record[1:] == ["bank", bytes(16), 77, "seal", "directory:0123", bytes(range(16)), "r1", 2]


def test_frame_md_a_cut_of_a_later_level() -> None:
    data = golden("frame_cut_level")
    assert (data[:4], number(data, 4, 2), data[6]) == (b"DLF1", 3, 1)
    record = unpacked(data[128 : 128 + number(data, 36, 4)])
    assert record[9:] == [1, 0, bytes(16), 2]


# ---------------------------------------------------------------- checkpoint.md


def sections(data: bytes, version: int = 2) -> Iterator[tuple[int, int, bytes]]:
    """File header, section headers, and both digests of END."""
    assert data[:8] == b"DLC1" + bytes([version, 0, 1, 0])
    assert number(data, 12, 4) == zlib.crc32(data[:12])
    at, hashed, states = 16, data[:16], b""
    for index in range(1000):
        header = data[at : at + 32]
        payload = data[at + 32 : at + 32 + number(header, 8, 8)]
        assert (header[:4], number(header, 16, 4)) == (b"DLCS", index)
        assert number(header, 28, 4) == zlib.crc32(payload, zlib.crc32(header[:28] + bytes(4)))
        kind = number(header, 4, 2)
        at += 32 + len(payload)
        if kind == 255:
            assert payload == blake(states) + blake(hashed)
            assert at == len(data)
            return
        hashed += header + (b"" if kind == 2 else payload)
        states += payload if kind == 2 else b""
        yield kind, number(header, 20, 4), payload


def test_checkpoint_md_every_section() -> None:
    found = {kind: (count, payload) for kind, count, payload in sections(golden("checkpoint"))}
    assert sorted(found) == [1, 2, 3, 4, 5, 6]
    head = unpacked(found[1][1])
    assert (head[0], head[2], head[3], head[4], head[9], head[10]) == ("bank", 77, 2, 41, 12, 3)
    assert (head[7], head[11:]) == (1_700_000_000_000_000, [1_700_000_000_000_000] * 3)
    assert found[2] == (3, struct.pack("<6I", 0, 5, 3, 0, 1, 1) + b"alicebob" + b"\x05\x07")
    assert found[3][1][:32] == struct.pack("<4Q", 7, 3, 0, 1_600_000_000_000_000)
    assert found[4] == (2, struct.pack("<4Q2I", 7, 7, 1, 2, 2, 2) + b"\x00\x05\x00\x06")
    assert found[5] == (1, struct.pack("<Q16sII", 1_650_000_000_000_000, bytes(range(16)), 2, 2) + b"k1\x00\x05")
    assert found[6] == (1, struct.pack("<QQQII", 40, 7, 2, 6, 0) + b"killer")


def test_checkpoint_md_version_1_has_one_clock() -> None:
    old = {kind: payload for kind, _, payload in sections(golden("checkpoint_version_1"), 1)}
    new = {kind: payload for kind, _, payload in sections(golden("checkpoint"))}
    assert unpacked(old.pop(1)) == unpacked(new.pop(1))[:11]
    assert old == new


def test_checkpoint_md_an_empty_one_is_head_and_end() -> None:
    assert [kind for kind, _, _ in sections(golden("checkpoint_empty"))] == [1]


# ---------------------------------------------------------------- wire.md


def body(name: str, kind: int) -> bytes:
    data = golden(f"wire_{name}")
    assert (number(data, 0, 4), data[4]) == (len(data) - 4, kind)
    return data[5:]


def test_wire_md_a_batch() -> None:
    data = body("batch", 18)
    assert (*column(data, 0, 3, "Q"), number(data, 24, 4)) == (3, 8, 7, 3)
    assert cut(data[32 + 12 :], column(data, 32, 3, "I")) == [b"one", b"", b"three"]


def test_wire_md_replies() -> None:
    data = body("replies", 19)
    assert (number(data, 0, 8), number(data, 8, 4), column(data, 16, 2, "Q")) == (3, 2, (8, 10))
    good, bad = cut(data[40:], column(data, 32, 2, "I"))
    assert good == b"\x00\x05"
    assert (bad[0], unpacked(bad[1:])) == (1, ["DL3014", "ValueError", "no"])


@pytest.mark.parametrize(("name", "kind", "flags"), [("queries", 21, 1), ("answers", 22, 0)])
def test_wire_md_queries_and_answers(name: str, kind: int, flags: int) -> None:
    data = body(name, kind)
    assert (number(data, 0, 4), number(data, 4, 4), column(data, 8, 2, "Q")) == (2, flags, (1, 2))
    assert column(data, 24, 2, "I")[-1] == len(data) - 32


RECORDS = {
    "hello": (1, 12),
    "welcome": (2, 12),
    "refused": (3, 2),
    "role": (4, 4),
    "registered": (17, 2),
    "batch_refused": (20, 5),
    "admin": (32, 3),
    "admin_reply": (33, 3),
    "follow": (48, 5),
    "following": (49, 4),
    "handover": (52, 3),
    "checkpoint": (53, 3),
    "report": (64, 24),
}


@pytest.mark.parametrize("name", RECORDS)
def test_wire_md_records_have_the_fields_listed(name: str) -> None:
    kind, fields = RECORDS[name]
    assert len(unpacked(body(name, kind))) == fields


def test_wire_md_packets_of_fixed_bodies() -> None:
    assert body("ping", 5) == b""
    assert len(body("register", 16)) == 16
    assert number(body("applied", 51), 0, 8) == 41
    assert frame(body("frame", 50)[24:])[0] == 3


# ---------------------------------------------------------------- directory.md


def test_directory_md_records_of_the_lock() -> None:
    service, holder = unpacked(golden("lock_service")), unpacked(golden("lock_holder"))
    assert service == ["bank", bytes(range(16)), 77, bytes(range(32)), 4711, "seal", False]
    assert holder == [3, "r1", bytes(range(16))]


# ---------------------------------------------------------------- topic.md


def test_topic_md_a_file_s_header() -> None:
    data = golden("topic_header")
    assert (data[:4], number(data, 4, 2), number(data, 8, 4)) == (b"DLTP", 1, len(data))
    assert number(data, 12, 4) == zlib.crc32(data[16:], zlib.crc32(data[:12]))
    assert data[16:32] == b"0123456789abcdef"
    assert column(data, 32, 3, "Q") == (3, 7, 41)  # incarnation, epoch, first
    name, schema = number(data, 60, 2), number(data, 62, 2)
    assert (number(data, 56, 4), data[64 : 64 + name]) == (2, b"airports")
    assert data[64 + name : 64 + name + schema] == b"flight:utf8,minutes:int64?"


@pytest.mark.parametrize(
    ("name", "rows", "covered"), [("topic_block", 3, (41, 44)), ("topic_block_empty", 0, (45, 45))]
)
def test_topic_md_blocks(name: str, rows: int, covered: tuple[int, int]) -> None:
    data = golden(name)
    assert (data[:4], number(data, 4, 4), column(data, 8, 2, "Q")) == (b"DLTB", rows, covered)
    payload = data[48:]
    assert column(data, 32, 2, "I") == (len(payload), zlib.crc32(payload))
    assert number(data, 40, 4) == zlib.crc32(data[:40], 5)  # continued from the header's
    assert (number(data, 24, 8) > 0) == bool(payload) == bool(rows)
