"""What is printed of a program that was run again."""

from __future__ import annotations

import msgspec
import pytest

from deathless.cli.ambrosia.comparison import show_replay
from deathless.foreign.replay import Differing, ReplayReport

EQUAL = ReplayReport(
    checkpoint=0, end=3, rows=3, messages=1, outputs=1, beyond=0, refused=0, upgraded=False, differs=None
)
DIFFERS = Differing(target="bank", first=2, last=4, row=3, fewer=True, expected=(), got=())


def test_verdict_is_the_last_line_and_says_how_much_was_run(capsys: pytest.CaptureFixture[str]) -> None:
    show_replay(EQUAL)
    assert (
        capsys.readouterr().out == "equal: 3 rows behind the checkpoint at position 0; 1 message got, 1 message sent\n"
    )


def test_what_differs_is_told_before_it(capsys: pytest.CaptureFixture[str]) -> None:
    show_replay(msgspec.structs.replace(EQUAL, differs=DIFFERS, beyond=1))
    assert capsys.readouterr().out == (
        "to bank, positions 2 to 4: it sent less than what was logged\n"
        "  where     row 3 of what it got\n"
        "  expected  the log has a digest of it alone\n"
        "  got       no message\n"
        "note: 1 message behind the last one that was logged: compared with nothing\n"
        "differs: 3 rows behind the checkpoint at position 0; 1 message got, 1 message sent\n"
    )
