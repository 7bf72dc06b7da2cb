"""`deathless sinks`: what sinks say of themselves, and what operators decide, as tables and as JSON."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest
from tests.unit.deathless.sinks.test_conformance import Memory, MemoryStore
from tests.unit.deathless.topics.topic_lab import FOLDER, file_bytes

from deathless.base.errors import SinkUnavailable
from deathless.cli.main import main
from deathless.shell.link.sink_status import SinkStatus, write_status
from deathless.sinks import stores
from deathless.sinks.port import Key, Tip
from deathless.topics.source import FileName

MANIFEST = """\
apiVersion: deathless.dev/v1alpha1
kind: DeathlessService
metadata: {name: airports}
spec:
  module: 'pkg.m:a'
  logStorage: {path: data}
  topics: [{name: departures}]
  sinks:
  - {name: facts, kind: columns, topic: departures, options: {store: postgresql, dsn: host=db, table: facts}}
"""
STATUS = SinkStatus(
    sink="facts", topic="departures", state="stopped", replica="r1", source=FOLDER, position=3, next=6, held_bytes=100,
    oldest_us=1_000_000, at_us=3_500_000, code="DL3070", problem="DL3070 sink facts: position 3 is refused",
)  # fmt: skip


class Bench:
    """A service with five rows, and a store in memory."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.memory = Memory()
        self.memory.tip = Tip(3, 1, "c", 0)
        self.manifest = folder / "service.yaml"
        self.manifest.write_text(MANIFEST)
        put = folder / "data" / "topics" / "departures" / FOLDER / FileName(1, 1, 1).text
        put.parent.mkdir(parents=True)
        put.write_bytes(file_bytes(1, [[1, 2], [3, 5]]))

    def run(self, *arguments: str) -> int:
        return main(["sinks", *arguments, "-f", str(self.manifest)])


@pytest.fixture(name="bench")
def bench_of_this_test(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    bench = Bench(tmp_path)
    monkeypatch.setattr(stores, "make_store", lambda sink: MemoryStore(bench.memory))
    return bench


def test_sinks_are_listed_with_their_lag_and_their_problem(bench: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    assert bench.run("list") == 0
    assert "never ran" in capsys.readouterr().out
    write_status(str(bench.folder / "data"), STATUS)
    assert bench.run("list") == 0
    _, row = capsys.readouterr().out.splitlines()
    assert row.split()[:7] == ["facts", "0", "departures", "stopped", "3", "3", "2.5"]
    assert "position 3 is refused" in row
    assert bench.run("list", "--json") == 0
    (only,) = json.loads(capsys.readouterr().out)["sinks"]
    assert (only["lagRows"], only["code"], only["heldBytes"]) == (3, "DL3070", 100)


def test_service_without_sinks_says_so(bench: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    bench.manifest.write_text(MANIFEST.partition("  sinks:")[0])
    assert bench.run("list") == 0
    assert capsys.readouterr().out == "the service has no sinks\n"
    assert bench.run("show", "facts") == 64
    assert "it has none" in capsys.readouterr().err


def test_row_that_is_refused_is_skipped_and_that_is_shown(bench: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    write_status(str(bench.folder / "data"), STATUS)
    assert bench.run("skip", "facts", "--position", "4") == 64
    assert "stands at position 3" in capsys.readouterr().err
    assert bench.run("skip", "facts", "--position", "3", "--reason", "no such flight") == 0
    assert capsys.readouterr().out == "sink facts gives up positions 3 to 3, and goes on at 4\n"
    assert bench.memory.tip.next_position == 4
    assert bench.run("skip", "facts", "--to", "6", "--json") == 0
    assert json.loads(capsys.readouterr().out) == {"sink": "facts", "from": 4, "to": 6}
    assert bench.run("show", "facts") == 0
    shown = capsys.readouterr().out
    assert "tip in store  6" in shown
    assert "skip positions 3 to 3 no such flight" in shown


def test_no_more_is_skipped_than_there_is(bench: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    assert bench.run("skip", "facts", "--to", "7") == 64
    assert "end at position 6" in capsys.readouterr().err
    assert bench.memory.tip.next_position == 3


def test_store_is_adopted(bench: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    assert bench.run("adopt", "facts") == 0
    assert capsys.readouterr().out == "sink facts goes on at position 3\n"
    assert bench.memory.tip.adoption == 1
    bench.memory.tip = msgspec.structs.replace(bench.memory.tip, next_position=0)
    assert bench.run("adopt", "facts", "--json") == 0
    assert json.loads(capsys.readouterr().out) == {"sink": "facts", "position": 0, "incarnation": 1}


def test_sink_that_has_stored_nothing_is_skipped_from_where_rows_begin(
    bench: Bench, capsys: pytest.CaptureFixture[str]
) -> None:
    bench.memory.tip = Tip(0, 1, "", 0)
    assert bench.run("skip", "facts", "--to", "3", "--json") == 0
    assert json.loads(capsys.readouterr().out) == {"sink": "facts", "from": 1, "to": 3}


def test_store_that_is_away_or_knows_nothing_is_told(
    bench: Bench, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    class Away(MemoryStore):
        async def tip(self, key: Key) -> Tip | None:
            raise SinkUnavailable("no server there")

    class Empty(MemoryStore):
        async def tip(self, key: Key) -> Tip | None:
            return None

    monkeypatch.setattr(stores, "make_store", lambda sink: Away(bench.memory))
    assert bench.run("show", "facts", "--json") == 0
    assert json.loads(capsys.readouterr().out)["tip"] == "not known: no server there"
    monkeypatch.setattr(stores, "make_store", lambda sink: Empty(bench.memory))
    assert bench.run("skip", "facts", "--to", "3") == 64
    assert "knows nothing" in capsys.readouterr().err


def test_what_is_skipped_must_be_said(bench: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    assert bench.run("skip", "facts") == 2
    assert "--position or --to" in capsys.readouterr().err


def test_refused_rows_that_the_store_keeps_are_listed_stored_later_and_let_go(
    bench: Bench, capsys: pytest.CaptureFixture[str]
) -> None:
    assert bench.run("refused", "facts") == 0
    assert capsys.readouterr().out == "no refused row is kept\n"
    bench.memory.kept = {3: "no", 4: "no", 9: "no"}
    assert bench.run("refused", "facts") == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()[1:]] == ["3", "4", "9"]
    assert bench.run("refused", "facts", "--json") == 0
    assert json.loads(capsys.readouterr().out)["refused"][0]["why"] == "no"
    assert bench.run("retry", "facts") == 0
    assert capsys.readouterr().out.splitlines()[-1] == "sink facts: 0 stored, 3 refused again"
    bench.memory.mended = True
    assert bench.run("retry", "facts", "4") == 0
    assert capsys.readouterr().out == "sink facts: 1 stored, 0 refused again\n"
    assert bench.run("discard", "facts", "9", "--json") == 0
    assert json.loads(capsys.readouterr().out) == {"sink": "facts", "discarded": [9]}
    assert bench.run("discard", "facts", "9") == 64
    assert "DL3078" in capsys.readouterr().err
    assert bench.run("discard", "facts") == 2
    capsys.readouterr()
    assert bench.run("retry", "facts", "--json") == 0
    assert json.loads(capsys.readouterr().out) == {"sink": "facts", "stored": [3], "refusedAgain": [], "why": []}
    assert bench.memory.rows == [4, 3]
