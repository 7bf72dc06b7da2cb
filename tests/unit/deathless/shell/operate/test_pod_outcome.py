"""What a tool's pod leaves is whole JSON that fits, whatever stands in it."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from deathless.execution.interface.misfit import Misfit
from deathless.execution.rehearsal.findings import Coverage, Difference
from deathless.shell.operate.pod_outcome import (
    NAME_BYTES,
    fitted,
    leave_outcome,
    of_difference,
    of_rehearsal,
    of_replay,
)
from deathless.shell.operate.replay import LogDiffers, ReplayResult
from deathless.shell.operate.upgrading.live_log import Followed
from deathless.shell.operate.upgrading.rehearsal import Rehearsed
from deathless.shell.supervisor.termination_message import BYTES_MAX

LONG = ("x" * 9000, "ü" * 9000, '"\n\x01' * 3000, "\ud800" * 9000, "𝄞" * 9000)


def differs(text: str) -> LogDiffers:
    """A difference with `text` everywhere."""
    error = LogDiffers(text)
    error.lsn, error.handler, error.key, error.messages = 7, text, text, 6
    return error


def test_replay_says_what_was_run(tmp_path: Path) -> None:
    result = ReplayResult(
        started_at=3, base=3, lsn=9, messages=6, keys=2, chain="aa", digest="bb", time_us=1, seconds=0.51234
    )
    leave_outcome(str(tmp_path / "word"), of_replay(result))
    told = msgspec.json.decode((tmp_path / "word").read_bytes())
    assert told == {"messages": 6, "startedAt": 3, "lsn": 9, "keys": 2, "digest": "bb", "seconds": 0.512}


@pytest.mark.parametrize("text", LONG, ids=["letters", "umlauts", "escapes", "surrogates", "wide"])
def test_difference_is_whole_however_long_its_texts_are(tmp_path: Path, text: str) -> None:
    leave_outcome(str(tmp_path / "word"), of_difference(differs(text)))
    written = (tmp_path / "word").read_bytes()
    told = msgspec.json.decode(written)
    assert len(written) <= BYTES_MAX
    assert (told["messages"], told["difference"]["lsn"]) == (6, 7)
    assert all(told["difference"][name].endswith("...") for name in ("handler", "key", "text"))


def test_text_that_fits_stays_as_it_is() -> None:
    assert fitted("deposit", NAME_BYTES) == "deposit"
    assert len(msgspec.json.encode(fitted("\x01" * 1000, 60))) <= 60


def test_no_file_is_written_where_none_is_named(tmp_path: Path) -> None:
    leave_outcome("", of_difference(differs("x")))
    assert not list(tmp_path.iterdir())


def rehearsed(count: int, text: str) -> Rehearsed:
    """A rehearsal that found so much."""
    every = range(count)
    differences = [
        Difference("ReplyDiffers", f"{text}{at}", at, text, text, text, declared="meant" * (at % 2)) for at in every
    ]
    coverage = [Coverage(f"handler{at}{text}", turns=at % 3) for at in every]
    misfits = [Misfit("Removed", f"a{at}", text) for at in every]
    return Rehearsed(
        from_version=1,
        to_version=2,
        messages=9,
        lsn=9,
        differences=differences,
        misfits=misfits,
        coverage=coverage,
        followed=Followed(seconds=9.0, ended=text),
    )


def test_rehearsal_says_which_code_was_run_and_what_was_counted() -> None:
    found = Rehearsed(from_version=1, to_version=1, fingerprint="ab" * 16, by_digests=True)
    told = msgspec.json.decode(msgspec.json.encode(of_rehearsal(found)))
    assert (told["fingerprint"], told["byDigests"]) == ("ab" * 16, True)


@pytest.mark.parametrize("count", [1, 12, 300])
@pytest.mark.parametrize("text", ["", *LONG], ids=["none", "letters", "umlauts", "escapes", "surrogates", "wide"])
def test_rehearsal_is_whole_and_says_what_is_left_out(tmp_path: Path, count: int, text: str) -> None:
    found = rehearsed(count, text)
    leave_outcome(str(tmp_path / "word"), of_rehearsal(found))
    written = (tmp_path / "word").read_bytes()
    told = msgspec.json.decode(written)
    assert len(written) <= BYTES_MAX
    shown = sum(len(told[name]) for name in ("differences", "misfits", "coverage", "notCovered"))
    assert shown + told["leftOff"] == 3 * count
    assert (told["passed"], told["messages"]) == (False, 9)
    assert "declared" not in told["differences"][0], "what nobody says is meant comes first"
