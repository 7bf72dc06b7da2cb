"""New code that runs a log by itself: what it lets pass, where it ends, and how it begins with a checkpoint."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import msgspec
import pytest
from tests.unit.deathless.shell.upgrade_bench import OUTSIDE, SEED, TEXT, Former, former_code

from deathless.base.errors import CorruptCheckpoint, Diverged, InvalidArgument
from deathless.execution.rehearsal.findings import Coverage
from deathless.shell.operate.upgrading.rehearsal import Child
from deathless.shell.operate.upgrading.rehearsal_child import Alone, Orders, Word
from deathless.shell.upgrade.packets import PLACE, frame_body

__all__ = ["former_code"]
NEVER = '\n@purse.handler\ndef never(state: Purse, ctx: Context) -> None:\n    """Nobody calls it."""\n'


def alone(
    former: Former, old: str = "", new: str = "", more: str = NEVER, place: bytes = b"", text: str = TEXT
) -> Alone:
    """Give a run of the former code with a change."""
    assert old in text
    path = former.tmp_path / "purse_service.py"  # the name of a file is part of a fingerprint
    path.write_text(text.replace(old, new) + more)
    sys.modules.pop(path.stem, None)
    config = msgspec.structs.replace(former.config, module=f"{path}:purse", upgrade=None)
    orders = Orders(False, msgspec.json.encode(config), SEED, former.code.fingerprint, place, digests=True)
    return Alone(orders)


def test_code_that_gives_the_same_passes_and_each_handler_is_counted(former_code: Former) -> None:
    run = alone(former_code, "state.total += amount * RATE", "state.total = state.total + amount")
    assert (run.ready.runs, run.ready.compatible, run.ready.misfits, run.ready.same_code) == (True, True, [], False)
    for frame in (former_code.frame(), former_code.frame(1, 2), former_code.frame(3, key=b"bob")):
        assert run.take(Word.APPLY, frame_body(frame)) == (Word.SAME, b"")
    run.take(Word.FINISH, b"")
    assert run._run.coverage() == [Coverage("add", 3), Coverage("never", 0)]


@pytest.mark.parametrize(
    ("old", "new"),
    [("return state.total", "return state.total + 1"), ("RATE = 1", "RATE = 2"), ("amount * RATE", "abs(amount)")],
)
def test_first_difference_ends_the_run(former_code: Former, old: str, new: str) -> None:
    run = alone(former_code, old, new)
    run.take(Word.APPLY, frame_body(former_code.frame()))
    with pytest.raises(Diverged):
        run.take(Word.APPLY, frame_body(former_code.frame(-1, 1)))


def test_run_begins_with_a_checkpoint_that_is_there(former_code: Former) -> None:
    former_code.frame()
    former_code.frame(7)
    held = former_code.checkpoint()
    run = alone(former_code, place=PLACE.pack(held.lsn, held.chain))
    assert run.take(Word.APPLY, frame_body(former_code.frame(4))) == (Word.SAME, b"")
    with pytest.raises(CorruptCheckpoint, match="lsn 7 is gone"):
        alone(former_code, place=PLACE.pack(7, bytes(16)))


def test_states_that_do_not_fit_are_not_for_it(former_code: Former) -> None:
    assert alone(former_code, "total", "cents").ready.misfits
    run = alone(former_code)
    with pytest.raises(InvalidArgument, match="not for the new code"):
        run.take(Word.GIVE, b"")


WAITS = """
@purse.handler
async def waits(state: Purse, ctx: Context) -> None:
    await ctx.timer(after=timedelta(hours=1))
"""
HOURS = "from datetime import timedelta\n" + TEXT + WAITS


def test_other_code_that_waits_needs_the_former_code_beside_it(tmp_path: Path) -> None:
    former = Former(tmp_path, HOURS)
    run = alone(former, "hours=1", "hours=2", more="", text=HOURS)
    assert (run.ready.compatible, run.ready.same_code) == (True, False)
    for frame in (former.frame(), former.frame(1)):
        assert run.take(Word.APPLY, frame_body(frame)) == (Word.SAME, b"")
    with pytest.raises(Diverged, match="waits asks for a timer, which no digest of the log stands for"):
        run.take(Word.APPLY, frame_body(former.frame(waits=True, key=b"bob")))


def test_code_that_wrote_the_log_is_believed_where_it_waits(tmp_path: Path) -> None:
    former = Former(tmp_path, HOURS)
    run = alone(former, more="", text=HOURS)
    assert run.ready.same_code
    for frame in (former.frame(), former.frame(waits=True, key=b"bob")):
        assert run.take(Word.APPLY, frame_body(frame)) == (Word.SAME, b"")


def test_what_a_turn_may_not_do_is_refused_in_its_process(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    text = TEXT + OUTSIDE.format(path=outside)
    former = Former(tmp_path, text)
    path = tmp_path / "purse_service.py"
    path.write_text(text)
    config = msgspec.structs.replace(former.config, module=f"{path}:purse", upgrade=None)
    orders = Orders(False, msgspec.json.encode(config), SEED, former.code.fingerprint, digests=True)
    with (tmp_path / "file").open("wb") as file:
        child = Child(sys.executable, dict(os.environ), file.fileno())
        try:
            child.say(Word.BEGIN, msgspec.msgpack.encode(orders))
            child.hear(Word.IMPORTED, 60.0)
            child.hear(Word.READY, 60.0)
            child.say(Word.APPLY, frame_body(former.frame()))
            assert child.hear(Word.SAME, 60.0) == b""
            refused = frame_body(former.frame(waits=True))
            outside.unlink()
            child.say(Word.APPLY, refused)
            with pytest.raises(Diverged, match="lsn 2"):
                child.hear(Word.SAME, 60.0)
        finally:
            child.close()
    assert not outside.exists()
