"""One segment file: what stands where a frame is not, and which verdict it gets."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deathless.base.errors import CorruptFrame
from deathless.base.ids import ChainHash
from deathless.codec.frames import BLOCK, FrameKind, chain_after, decode_frame, encode_frame, padded
from deathless.engine.log.segment_scan import Chain, Scanned, SegmentScan, segment_path
from deathless.engine.ports import Handle
from deathless.engine.safeguards import ALL_SAFEGUARDS, Safeguards
from deathless.simulation.world.disk import SimDisk, SimFileSystem

EPOCH = 3
PATH = segment_path(EPOCH, 0)


def frames(count: int, *, epoch: int = EPOCH, size: int = 100, incarnation: int = 7) -> list[bytes]:
    """Padded DATA frames of one message each."""
    chain = ChainHash(bytes(16))
    made = []
    for index in range(count):
        payload = bytes([index + 1]) * size
        behind = chain_after(chain, index + 1, payload)
        data = encode_frame(
            FrameKind.DATA,
            payload,
            epoch=epoch,
            first_lsn=index + 1,
            confirmed_lsn=index,
            count=1,
            incarnation=incarnation,
            prev_chain=chain,
            chain=behind,
            index=index,
        )
        made.append(data + bytes(padded(len(data)) - len(data)))
        chain = behind
    return made


def file_of(data: bytes) -> SimFileSystem:
    fs = SimDisk(random.Random(0)).view("r0")
    fs.make_folder("log")
    handle = fs.create(PATH)
    fs.write(handle, 0, data)
    fs.close(handle)
    return fs


def read_all(scan: SegmentScan) -> list[Scanned]:
    found: list[Scanned] = []
    offset = 0
    while (each := scan.frame_or_reread(offset, len(found))) is not None:
        found.append(each)
        offset = each.end
    return found


@given(sizes=st.lists(st.integers(1, 3 * BLOCK), min_size=1, max_size=6), chunk=st.integers(1, 4))
def test_frames_of_any_size_are_read_through_chunks_of_any_size(sizes: list[int], chunk: int) -> None:
    parts = [frames(index + 1, size=size)[index] for index, size in enumerate(sizes)]
    scan = SegmentScan(file_of(b"".join(parts)), EPOCH, 0, chunk_bytes=chunk * BLOCK)
    found = read_all(scan)
    assert [each.frame.payload for each in found] == [bytes([i + 1]) * size for i, size in enumerate(sizes)]
    assert [decode_frame(each.raw) for each in found] == [each.frame for each in found]
    assert found[-1].end == sum(map(len, parts))


def test_a_frame_of_another_epoch_is_no_frame_of_this_file() -> None:
    fs = file_of(frames(1, epoch=EPOCH - 1)[0])
    assert SegmentScan(fs, EPOCH, 0).frame_at(0, 0) is None
    unguarded = replace(ALL_SAFEGUARDS, epoch_in_frame=False)
    assert SegmentScan(fs, EPOCH, 0, safeguards=unguarded).frame_at(0, 0) is not None


def test_a_frame_with_another_index_is_no_frame_of_this_place() -> None:
    scan = SegmentScan(file_of(frames(2)[1]), EPOCH, 0)
    assert scan.frame_at(0, 0) is None
    assert scan.frame_at(0, 1) is not None


def test_bytes_beyond_the_limit_do_not_count() -> None:
    fs = file_of(b"".join(frames(3)))
    assert len(read_all(SegmentScan(fs, EPOCH, 0, 2 * BLOCK))) == 2


@pytest.mark.parametrize(
    "tail",
    [b"", bytes(8 * BLOCK), b"\xff" * BLOCK, frames(3, size=9000)[2][:BLOCK]],
    ids=["end of file", "zeros", "garbage", "torn frame"],
)
def test_nothing_valid_behind_means_the_log_ends_there(tail: bytes) -> None:
    scan = SegmentScan(file_of(b"".join(frames(2)) + tail), EPOCH, 0)
    assert len(read_all(scan)) == 2
    assert scan.judge_end(2 * BLOCK, 2, 3, 7) is None


@pytest.mark.parametrize("hole", [bytes(BLOCK), b"\xff" * BLOCK], ids=["zeros", "garbage"])
@pytest.mark.parametrize("chunk", [BLOCK, 1 << 20])
def test_a_later_valid_frame_behind_a_bad_one_is_corruption_and_names_file_offset_and_lsn(
    hole: bytes, chunk: int
) -> None:
    parts = frames(4)
    scan = SegmentScan(file_of(parts[0] + hole + bytes(3 * BLOCK) + parts[3]), EPOCH, 0, chunk_bytes=chunk)
    with pytest.raises(
        CorruptFrame, match=rf"{PATH} offset {BLOCK}: the frame at lsn 2 .* offset {5 * BLOCK} \(lsn 4\)"
    ):
        scan.judge_end(BLOCK, 1, 2, 7)


def test_without_looking_beyond_a_bad_frame_corruption_passes_for_the_end() -> None:
    parts = frames(3)
    off = replace(ALL_SAFEGUARDS, look_beyond_bad_frame=False)
    assert (
        SegmentScan(file_of(parts[0] + bytes(BLOCK) + parts[2]), EPOCH, 0, None, off).judge_end(BLOCK, 1, 2, 7) is None
    )


@pytest.mark.parametrize(
    "later",
    [frames(4, epoch=EPOCH - 1)[3], frames(4, incarnation=8)[3], frames(1)[0]],
    ids=["older epoch", "another incarnation", "an earlier frame of the same file"],
)
def test_a_frame_that_was_not_written_later_proves_nothing(later: bytes) -> None:
    scan = SegmentScan(file_of(frames(1)[0] + b"\xff" * BLOCK + later), EPOCH, 0)
    assert scan.judge_end(BLOCK, 1, 2, 7) is None


def test_a_frame_inside_a_torn_payload_but_off_the_block_boundary_proves_nothing() -> None:
    inside = frames(4)[3]
    scan = SegmentScan(file_of(frames(1)[0] + b"\xff" * (BLOCK + 512) + inside), EPOCH, 0)
    assert scan.judge_end(BLOCK, 1, 2, 7) is None


class HalfWritten(SimFileSystem):
    """Gives the bad version of a file to its first descriptor, as a half-written frame or a stale cache would."""

    def __init__(self, whole: bytes, half: bytes) -> None:
        super().__init__(file_of(whole).disk, "r0")
        self.half = half
        self.opened = 0

    def open(self, path: str, *, write: bool = False) -> Handle:
        self.opened += 1
        return super().open(path, write=write)

    def read(self, handle: Handle, offset: int, size: int) -> bytes:
        if self.opened == 1:
            return self.half[offset : offset + size]
        return super().read(handle, offset, size)


@pytest.mark.parametrize(
    ("safeguards", "seen"), [(ALL_SAFEGUARDS, 2), (replace(ALL_SAFEGUARDS, reread_bad_frame=False), 1)]
)
def test_a_bad_frame_is_read_again_through_a_fresh_descriptor(safeguards: Safeguards, seen: int) -> None:
    whole = b"".join(frames(2))
    fs = HalfWritten(whole, whole[: BLOCK + 150] + b"\xff" * (BLOCK - 150))
    assert len(read_all(SegmentScan(fs, EPOCH, 0, None, safeguards))) == seen


def test_a_frame_finished_while_the_end_is_judged_is_given() -> None:
    parts = frames(3)
    whole = b"".join(parts)
    fs = HalfWritten(whole, parts[0] + b"\xff" * BLOCK + parts[2])
    found = SegmentScan(fs, EPOCH, 0).judge_end(BLOCK, 1, 2, 7)
    assert found is not None
    assert found.frame.first_lsn == 2


@given(data=st.binary(max_size=3 * BLOCK))
def test_no_bytes_at_the_end_do_harm(data: bytes) -> None:
    scan = SegmentScan(file_of(frames(1)[0] + data), EPOCH, 0)
    assert len(read_all(scan)) == 1
    assert scan.judge_end(BLOCK, 1, 2, 7) is None


def test_the_chain_refuses_what_does_not_continue_it() -> None:
    found = read_all(SegmentScan(file_of(b"".join(frames(3))), EPOCH, 0))
    chain = Chain(0, bytes(16))
    chain.take(found[0], PATH)
    with pytest.raises(CorruptFrame, match="does not continue"):
        chain.take(found[2], PATH)
    forged = found[1]._replace(frame=found[1].frame._replace(payload=b"other"))
    with pytest.raises(CorruptFrame, match="chain hash"):
        chain.take(forged, PATH)
    moved = found[1]._replace(frame=found[1].frame._replace(kind=FrameKind.CONFIRM))
    with pytest.raises(CorruptFrame, match="moves the chain"):
        chain.take(moved, PATH)
    chain.take(found[1], PATH)
    assert chain.lsn == 2


def test_closing_twice_is_harmless() -> None:
    scan = SegmentScan(file_of(frames(1)[0]), EPOCH, 0)
    scan.close()
    scan.close()
