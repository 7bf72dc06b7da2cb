"""The doors of protocols that others defined: what an application sends its coordinator, and the other way round."""

from __future__ import annotations

import tempfile
from pathlib import Path

import msgspec
from tests.conformance.door import Door, golden, of
from tests.conformance.hostile import json_bytes, msgpack_bytes, packed_bytes

from deathless.base.errors import CorruptFrame
from deathless.base.foreign.binding import FOLDER
from deathless.foreign.checkpoints import (
    PREFIX,
    CheckpointDamaged,
    Checkpoints,
    Head,
    decode_lanes,
    encode_lanes,
)
from deathless.foreign.rows import Emitted, What, decode_emitted, decode_items, encode_emitted, encode_items
from deathless.foreign.skips import Skip, Skips
from deathless.protocols.ambrosia import events as on
from deathless.protocols.ambrosia.events import Socket
from deathless.protocols.ambrosia.items import shape_of
from deathless.protocols.ambrosia.lanes import Expectation, Kept, LaneState
from deathless.protocols.ambrosia.machine import ApplicationMachine
from deathless.protocols.ambrosia.messages import Kind, make_call
from deathless.protocols.ambrosia_binding.binding import Binding, SaveDue
from deathless.shell.disk.filesystem import RealFileSystem

INPUT = make_call("", 1, Kind.FORK, b"in")
STARTED = (on.SocketOpened(socket=Socket.RECEIVE), on.SocketOpened(socket=Socket.SEND), on.Begin())
LEADING = (
    *STARTED[:2],
    on.Load(length=0, lsn=0, records=1),
    on.Confirmed(lsn=1),
    on.Deliver(lsn=1, rpcs=(INPUT,)),
    on.Lead(),
)
NORMAL_AT = 15  # where the recorded stream has sent INITIAL and its first checkpoint


def first_start(data: bytes) -> object:
    """An application that starts for the first time."""
    return application(STARTED, data)


def normal_processing(data: bytes) -> object:
    """An application that leads."""
    return application(LEADING, data)


def application(before: tuple[on.Event, ...], data: bytes) -> object:
    """Bytes of an application at its coordinator; each application has a machine of its own."""
    machine = ApplicationMachine(name="me", committer=1)
    for event in before:
        machine.handle(event)
    effects = machine.handle(on.BytesReceived(data=data))
    machine.check_invariants()
    for effect in effects:
        if isinstance(effect, on.End) and effect.error is not None:
            raise effect.error
    return effects


def coordinator(data: bytes) -> object:
    """Bytes of a coordinator at a binding, whose check bytes are not looked at."""
    binding = Binding("me", verify=False)
    binding.receive(data)
    events = []
    while (event := binding.next_event()) is not None:
        events.append(event)
        if isinstance(event, SaveDue):
            binding.begin_save(0)
    return events


def lane() -> tuple[LaneState, ...]:
    """One target with one call that is not logged yet."""
    kept = (Kept(INPUT, bytes(8)),)
    return (
        LaneState(target="bank", floor=1, chain=bytes(8), emitted=2, kept=kept, expected=(Expectation(4, bytes(8)),)),
    )


def checkpoint(data: bytes, folder: Path) -> object:
    """A file in the folder of checkpoints, and its bytes."""
    (folder / FOLDER).mkdir()
    (folder / FOLDER / f"{PREFIX}{4:020d}").write_bytes(data)
    checkpoints = Checkpoints(RealFileSystem(folder), "r0")
    found = checkpoints.look(4)
    return found, list(checkpoints.blob(found))


def skipped(data: bytes, folder: Path) -> object:
    """A file beside the checkpoints."""
    (folder / FOLDER).mkdir()
    (folder / FOLDER / f"skip-{42:020d}").write_bytes(data)
    return Skips(RealFileSystem(folder)).read()


def whole_checkpoint() -> bytes:
    """One that is in order."""
    with tempfile.TemporaryDirectory() as folder:
        head = Head(service_id="ab" * 16, incarnation=1, position=4, records=1, length=5, lanes=encode_lanes(LANES))
        writing = Checkpoints(RealFileSystem(Path(folder)), "r0").begin(head)
        writing.write(b"state")
        writing.end()
        return next((Path(folder) / FOLDER).iterdir()).read_bytes()


LANES = lane()
MISREAD = (msgspec.MsgspecError, ValueError)
FROM_APPLICATION = golden("ambrosia_from_application")
APPLICATIONS = [
    Door("an application that starts", (), of(first_start), FROM_APPLICATION[:NORMAL_AT], packed_bytes),
    Door("an application that leads", (), of(normal_processing), FROM_APPLICATION[NORMAL_AT:-5], packed_bytes),
    Door(
        "a call by name of an application",
        ("protocols/ambrosia/items.py::shape_of",),
        of(lambda data: shape_of(make_call("b", -1, Kind.FORK, data))),
        b'{"methodName":"pay","callID":1}',
        json_bytes,
    ),
    Door(
        "a coordinator, at a binding",
        ("protocols/ambrosia_binding/binding.py::Binding._record",),
        of(coordinator),
        golden("ambrosia_to_application"),
        packed_bytes,
    ),
    Door(
        "calls in a row of a topic",
        ("foreign/rows.py::<module>",),
        of(decode_items),
        encode_items([INPUT]),
        msgpack_bytes,
        MISREAD,
    ),
    Door(
        "a row of what an application emitted",
        ("foreign/rows.py::decode_emitted",),
        of(decode_emitted),
        encode_emitted(Emitted(What.ITEMS, encode_items([INPUT]), "bank", 7, bytes(8))),
        json_bytes,
        MISREAD,
    ),
    Door(
        "lanes in a checkpoint of an application",
        ("foreign/checkpoints.py::<module>",),
        of(decode_lanes),
        encode_lanes(LANES),
        msgpack_bytes,
        MISREAD,
    ),
    Door(
        "what an operator has an application skip",
        ("foreign/skips.py::Skips._read",),
        skipped,
        msgspec.json.encode(Skip(position=42, items=(1,), waiting=(7,), at_us=1)),
        json_bytes,
        (CorruptFrame,),
    ),
    Door(
        "the file of a checkpoint of an application",
        (),
        checkpoint,
        whole_checkpoint(),
        packed_bytes,
        (CheckpointDamaged,),
    ),
]
