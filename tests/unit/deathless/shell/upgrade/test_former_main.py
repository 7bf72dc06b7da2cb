"""What the process of the former code does with what it is told; the process itself is in `test_former`."""

from __future__ import annotations

import socket
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from tests.unit.deathless.shell.upgrade_bench import Former, former_code

from deathless.base.errors import CorruptCheckpoint, InvalidArgument, UpgradeRequired
from deathless.codec import checkpoint
from deathless.codec.snapshot import Snapshot
from deathless.core.tables.outbox import Outbox
from deathless.execution.handlers.noting import Noting
from deathless.shell.upgrade import former_main
from deathless.shell.upgrade.former_main import FormerCode, Line, main, serve
from deathless.shell.upgrade.packets import PLACE, Begin, Failed, Kind, Reader, frame_body, packet

__all__ = ["former_code"]


@pytest.fixture
def line() -> Iterator[tuple[socket.socket, Line]]:
    """Give the upgrader's end, and the process's."""
    ours, theirs = socket.socketpair()
    made = Line(theirs.detach())
    yield ours, made
    ours.close()
    made.close()


def said(ours: socket.socket) -> list[tuple[int, bytes]]:
    ours.setblocking(False)
    return list(Reader().feed(ours.recv(1 << 16)))


def test_what_it_holds_is_given_as_a_checkpoint(former_code: Former) -> None:
    code = FormerCode(former_code.begin)
    code.restore(_place(former_code))
    code.apply(frame_body(former_code.frame(4)))
    path = former_code.scratch / "given"
    place = code.give(str(path))
    held = former_code.snapshot()
    assert place == PLACE.pack(held.lsn, held.chain)
    given = read(path)
    assert (given.state, given.sessions, given.epoch) == (held.state, held.sessions, 1)
    assert given.fingerprint == former_code.code.fingerprint


def read(path: Path) -> Snapshot:
    data = path.read_bytes()
    return checkpoint.decode(lambda offset, size: data[offset : offset + size], Outbox())


@pytest.mark.parametrize("restored", [False, True])
@pytest.mark.parametrize("noted", [False, True])
def test_changes_are_those_since_all_was_given_whatever_it_began_with_since(
    former_code: Former, monkeypatch: pytest.MonkeyPatch, *, restored: bool, noted: bool
) -> None:
    if not noted:
        monkeypatch.setattr(Noting, "can_be", lambda _: False)
    path = former_code.scratch / "given"
    code = FormerCode(former_code.begin)
    code.restore(_place(former_code))
    for key in (b"ann", b"bob", b"eve"):
        code.apply(frame_body(former_code.frame(1, key=key)))
    code.give(str(path))
    whole = read(path).state
    changed = former_code.frame(4, key=b"bob"), former_code.frame(2, key=b"zoe")
    for frame in changed:
        code.apply(frame_body(frame))
    if restored:
        held = former_code.checkpoint()
        code.restore(PLACE.pack(held.lsn, held.chain))
    for _ in range(2):
        given = code.give_changes(str(path))
        assert given.gone == []
        assert read(path).state.keys() == {b"bob", b"zoe"}
        assert whole | read(path).state == former_code.snapshot().state
    code.give(str(path))
    assert code.give_changes(str(path)).gone == []
    assert read(path).state == {}, "since it was given whole again"


def _place(former: Former) -> bytes:
    former.frame()
    snapshot = former.checkpoint()
    return PLACE.pack(snapshot.lsn, snapshot.chain)


def test_a_checkpoint_that_is_gone_and_code_that_is_other_are_refused(former_code: Former) -> None:
    with pytest.raises(CorruptCheckpoint, match="lsn 7 is gone"):
        FormerCode(former_code.begin).restore(PLACE.pack(7, bytes(16)))
    with pytest.raises(UpgradeRequired, match="is not what wrote the log"):
        FormerCode(msgspec.structs.replace(former_code.begin, fingerprint=b"x" * 16))


def test_it_says_where_it_stands_and_ends_with_the_upgrader(
    former_code: Former, line: tuple[socket.socket, Line]
) -> None:
    ours, theirs = line
    ours.sendall(packet(Kind.BEGIN, msgspec.msgpack.encode(former_code.begin)))
    ours.sendall(packet(Kind.APPLY, frame_body(former_code.frame())))
    path = former_code.scratch / "given"
    ours.sendall(packet(Kind.GIVE, str(path).encode()))
    ours.shutdown(socket.SHUT_WR)
    serve(theirs)
    kinds = dict(said(ours))
    assert int.from_bytes(kinds[Kind.STANDS], "little") == 1
    assert PLACE.unpack_from(kinds[Kind.GIVEN])[0] == 1


@pytest.mark.parametrize("kind", [Kind.APPLY, 99])
def test_what_comes_too_early_or_is_not_known_is_refused(
    former_code: Former, line: tuple[socket.socket, Line], kind: int
) -> None:
    ours, theirs = line
    if kind == 99:
        ours.sendall(packet(Kind.BEGIN, msgspec.msgpack.encode(former_code.begin)))
    ours.sendall(b"\0\0\0\0" + bytes([kind]))
    ours.shutdown(socket.SHUT_WR)
    with pytest.raises(InvalidArgument, match="before BEGIN" if kind != 99 else "is not known"):
        serve(theirs)


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (packet(Kind.APPLY), "DL3003"),
        (packet(Kind.BEGIN, b"\xc1"), "DL9001"),
        (packet(Kind.BEGIN, msgspec.msgpack.encode(Begin(b"{}", bytes(32), bytes(16)))), "DL9001"),
        (b"\xff" * 9, "DL3003"),
    ],
)
def test_why_it_ends_is_told_to_the_upgrader(data: bytes, code: str, monkeypatch: pytest.MonkeyPatch) -> None:
    ours, theirs = socket.socketpair()
    monkeypatch.setattr(former_main, "die_with_parent", lambda: None)
    monkeypatch.setattr(sys, "argv", ["former_main", str(theirs.detach())])
    with ours:
        ours.sendall(data)
        ours.shutdown(socket.SHUT_WR)
        assert main() != 0
        [(kind, body)] = said(ours)
    assert (kind, msgspec.msgpack.decode(body, type=Failed).code) == (Kind.FAILED, code)


def test_it_ends_well_where_nothing_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    ours, theirs = socket.socketpair()
    monkeypatch.setattr(former_main, "die_with_parent", lambda: None)
    monkeypatch.setattr(sys, "argv", ["former_main", str(theirs.detach())])
    ours.close()
    assert main() == 0
