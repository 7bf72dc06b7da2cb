"""The doors of sources: rows as they stand outside, as a log has them, and the notes of readers."""

from __future__ import annotations

import msgspec
from tests.conformance.door import Door, of
from tests.conformance.hostile import json_bytes, msgpack_bytes, packed_bytes

from deathless.codec.messages import decode
from deathless.codec.streams.rows import RowArguments, encode_row
from deathless.execution.author.inputs import row_decoder
from deathless.sources.files import Note, read_note
from deathless.sources.keys import Routing
from deathless.sources.port import Record


class Row(msgspec.Struct):
    """What an input takes."""

    key: str
    numbers: list[int] = []
    more: dict[str, object] = {}


TAKE = row_decoder(msgspec.defstruct("Arguments", [("row", Row)]))
GOOD = b'{"key": "a", "numbers": [1, 2], "more": {"x": [null, 1.5]}}'
ROUTING = Routing("value.key", input_name="rows", shards=2, key_bytes_max=512, message_bytes_max=1 << 20)
SOURCES = [
    Door(
        "a row at its input",
        ("execution/author/inputs.py::row_decoder",),
        of(lambda data: TAKE(msgspec.msgpack.encode(RowArguments(data)))),
        GOOD,
        json_bytes,
    ),
    Door(
        "the arguments of a row",
        ("codec/streams/rows.py::<module>",),
        of(TAKE),
        decode(encode_row("rows", b"a", GOOD)).args,
        msgpack_bytes,
    ),
    Door(
        "the key of a row",
        ("sources/keys.py::_of_value",),
        of(lambda data: ROUTING.route(Record(0, data))),
        GOOD,
        json_bytes,
    ),
    Door(
        "the note of a file",
        ("sources/files.py::read_note",),
        of(read_note),
        Note(3, 70, 1000, b"d" * 16, b"c" * 16).encode(),
        packed_bytes,
    ),
]
