"""Whatever comes in from outside, at whatever door: an error of ours or nothing, and the next one is served."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import msgspec
import pytest
from tests.conformance.decoders import ELSEWHERE, decoders, sources, unbounded
from tests.conformance.door import Door
from tests.conformance.doors import DOORS

from deathless.base.errors import DeathlessError
from deathless.codec.untrusted import read_msgpack
from deathless.codec.wire import PacketReader

LIE_BYTES_MAX = 1 << 20  # far below what the lengths state


@pytest.mark.parametrize("door", DOORS, ids=lambda door: door.name)
def test_no_bytes_break_a_door_or_keep_the_next_from_being_served(door: Door, tmp_path: Path) -> None:
    broken = []
    for number, (name, data) in enumerate(door.hostile(door.good)):
        folder = tmp_path / str(number)
        folder.mkdir()
        try:
            door.feed(data, folder)
        except door.refusals:
            pass
        except BaseException as error:  # noqa: BLE001  what no door may answer with
            broken.append(f"{name}: {type(error).__name__}: {str(error)[:200]}")
    assert broken == []
    door.feed(door.good, tmp_path)


LYING = [
    (b"\xdd\xff\xff\xff\xff", "msgpack"),
    (b"\xdf\xff\xff\xff\xff", "msgpack"),
    (b"\xdb\xff\xff\xff\xff", "msgpack"),
    (b"\xc6\xff\xff\xff\xff", "msgpack"),
    (b"\xdd\xff\xff\xff\xff" * 150, "msgpack"),
    (b"\xff\xff\xff\xff\x01", "packet"),
]


@pytest.mark.parametrize(
    ("data", "form"), LYING, ids=lambda value: value[:8].hex() if isinstance(value, bytes) else value
)
def test_a_length_of_four_gigabytes_costs_no_memory(data: bytes, form: str) -> None:
    tracemalloc.start()
    try:
        with pytest.raises((msgspec.DecodeError, DeathlessError)):
            _ = read_msgpack(data, object) if form == "msgpack" else PacketReader(1 << 20).take(data)
        assert tracemalloc.get_traced_memory()[1] < LIE_BYTES_MAX
    finally:
        tracemalloc.stop()


def test_each_decoder_of_the_tree_is_behind_a_door_or_says_why_it_is_none() -> None:
    found = {site for path, text in sources() for site in decoders(path, text)}
    walked = {site for door in DOORS for site in door.sites}
    known = walked | ELSEWHERE.keys()
    assert sorted(found - known) == [], "add it to DOORS of tests/conformance/doors.py, or to ELSEWHERE with the reason"
    assert sorted(known - found) == [], "not needed any more, take it out"
    assert sorted(walked & ELSEWHERE.keys()) == []


def test_no_answer_of_the_network_is_read_without_a_limit() -> None:
    assert [place for path, text in sources() for place in unbounded(path, text)] == []


@pytest.mark.parametrize(
    "call",
    [
        "await answer.read()",
        "await found.json()",
        "await answer.content.read(-1)",
        "response.read()",
        "urllib.request.urlopen(url).read()",
        "await process.communicate()",
    ],
)
def test_reads_without_a_limit_are_found(call: str) -> None:
    assert unbounded("m.py", f"async def f(): return {call}") == ["m.py:1"]
    assert unbounded("m.py", "async def f(): return await answer.content.read(4096), path.read()") == []


@pytest.mark.parametrize(
    "call",
    [
        "msgspec.json.decode(data)",
        "msgspec.msgpack.Decoder(int)",
        "msgspec.convert(data, int)",
        "json.loads(data)",
        "yaml.safe_load(data)",
        "yaml.compose_all(data)",
        "HEAD.unpack_from(data)",
        "read_json(data, int)",
        "JsonReader(int)",
    ],
)
def test_a_decoder_that_is_new_is_found(call: str) -> None:
    text = f"class A:\n    def b(self, data):\n        return {call}\n"
    assert decoders("shell/new.py", text) == ["shell/new.py::A.b"]
    assert decoders("shell/new.py", f"X = {call}") == ["shell/new.py::<module>"]
    assert decoders("shell/new.py", "def b(data): return msgspec.json.encode(data).decode()") == []
