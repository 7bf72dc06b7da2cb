"""What tests of machines share: frames in and out, what is legal when, and modules with one line changed."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any, Final

import pytest

from deathless.base.errors import InvalidUse
from deathless.protocols.connector import transactions
from deathless.protocols.connector.events import BytesReceived, Close, Send
from deathless.protocols.connector.frame_reader import FrameReader
from deathless.protocols.connector.frames import (
    TRANSACTION_STREAM,
    AnyFrame,
    Error,
    Frame,
    Message,
    encode,
)
from deathless.protocols.connector.transactions import AnyTransaction, in_frame

PACKAGE: Final = "deathless.protocols.connector"


def received(*frames: AnyFrame | AnyTransaction) -> BytesReceived:
    """The other end sends these."""
    return BytesReceived(data=b"".join(encode(plain(frame)) for frame in frames))


def plain(frame: AnyFrame | AnyTransaction) -> AnyFrame:
    """Give a frame as it is, a transaction message in its frame."""
    return in_frame(frame) if type(frame) in transactions._TYPES else frame  # type: ignore[arg-type,return-value]


def read(data: bytes) -> list[AnyFrame | AnyTransaction]:
    """Give the frames in these bytes, transaction messages as such."""
    reader = FrameReader(1 << 24)
    reader.feed(data)
    found: list[AnyFrame | AnyTransaction] = []
    while (frame := reader.next()) is not None:
        two_phase = isinstance(frame, Message) and frame.stream == TRANSACTION_STREAM
        found.append(transactions.decode(frame) if two_phase else frame)  # type: ignore[arg-type]
    return found


def sent(effects: Iterable[object]) -> list[AnyFrame | AnyTransaction]:
    """Give the frames that these effects send."""
    return read(b"".join(each.data for each in effects if isinstance(each, Send)))


def rest(effects: Iterable[object]) -> list[object]:
    """Give the effects that send nothing."""
    return [each for each in effects if not isinstance(each, Send)]


def refused(effects: Iterable[object], code: str = "") -> str:
    """Say that these effects are one ERROR with a code and the connection's end; give the text."""
    effects = list(effects)
    frames = sent(effects)
    assert isinstance(frames[-1], Error), frames
    end = effects[-1]
    assert isinstance(end, Close), end
    assert end.code, end
    assert frames[-1].text.startswith(f"{end.code} "), frames[-1]
    assert not code or end.code == code, end
    assert sum(isinstance(frame, Error) for frame in frames) == 1
    return frames[-1].text


def check_legality(machine: Any, kind: str, samples: Mapping[str, Any], legal: Iterable[str]) -> None:
    """Put one sample to a machine and compare what it does with what the test calls legal."""
    sample, before = samples[kind], machine.state
    if isinstance(sample, Frame):
        effects = machine.handle(received(sample))  # type: ignore[arg-type]
        if kind in legal:
            assert not [frame for frame in sent(effects) if isinstance(frame, Error)], sent(effects)
        else:
            refused(effects, "DL3003")
            assert machine.handle(received(sample)) == [], "after its end it does nothing"  # type: ignore[arg-type]
    elif kind in legal:
        machine.handle(sample)
    else:
        with pytest.raises(InvalidUse, match="is not legal now"):
            machine.handle(sample)
        assert machine.state is before


def mutant_of(module: str, old: str, new: str) -> ModuleType:
    """Give a module of the package with one place of its source changed; the module itself stays as it is."""
    original = importlib.import_module(f"{PACKAGE}.{module}")
    assert original.__file__ is not None
    text = Path(original.__file__).read_text(encoding="utf-8")
    assert text.count(old) == 1, f"{module}: {old!r} stands there {text.count(old)} times"
    changed = ModuleType(f"{PACKAGE}.{module}")
    sys.modules[f"{module}_mutant"] = changed  # where dataclasses look their annotations up
    exec(compile(text.replace(old, new), f"<{module} with a change>", "exec"), changed.__dict__)
    return changed
