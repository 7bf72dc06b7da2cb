"""`deathless sources`: what sources say of themselves and what their logs have, and what operators order."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from deathless.base.config import ReplicaConfig, SourceConfig
from deathless.cli import primary
from deathless.cli.main import main
from deathless.shell.link.source_status import ShardStatus, SourceStatus, StreamStatus, write_status
from deathless.shell.operate.target import Target
from deathless.sources import adopting
from deathless.sources.port import Point, Reader

MANIFEST = """\
apiVersion: deathless.dev/v1alpha1
kind: DeathlessService
metadata: {name: airports}
spec:
  module: 'pkg.m:a'
  logStorage: {path: data}
  sources:
  - {name: flights, kind: files, input: flights, key: value.origin, options: {folder: in}}
"""
STREAM = StreamStatus(
    stream=0, name="flights", state="reading", taken_in=4, end=9, code="DL3081", problem="DL3081 stands at seq 6",
    shards=(ShardStatus(shard=0, taken_in=4, waiting=3, problem="DL3081 stands at seq 6"),),
)  # fmt: skip
STATUS = SourceStatus(source="flights", kind="files", input="flights", state="stopped", streams=(STREAM,), at_us=1)


def refused(lsn: int, *, stands: bool = False, number: int = 5) -> dict[str, object]:
    return {
        "lsn": lsn, "stream": 0, "session": 1, "seq": number + 1, "id": number, "atUs": 1_000_000, "code": "DL3084",
        "why": "no json", "key": "JFK", "row": "" if stands else "{no", "stands": stands,
    }  # fmt: skip


class Bench:
    """A service, and its primary as tools see it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.manifest = folder / "service.yaml"
        self.manifest.write_text(MANIFEST)
        self.standing: list[dict[str, object]] = []
        self.kept: list[dict[str, object]] = []
        self.more = False
        self.ordered: list[dict[str, str]] = []
        self.streams: list[dict[str, object]] = []
        self.ran: dict[str, object] = {"done": True}
        self.shown_max = 1000  # streams in one answer
        self.knows_more_than_from = True  # False: it is of before, and knows neither `above` nor `stream`

    async def ask(self, found: Target, command: str, arguments: dict[str, str] | None = None) -> dict[str, object]:
        assert arguments is not None
        if command == "order":
            self.ordered.append(arguments)
            return self.ran
        assert arguments["source"] in ("flights", "gone")
        first, above, stream = int(arguments["from"]), int(arguments["above"]), arguments.get("stream")
        if self.knows_more_than_from:
            of = [each for each in self.streams if stream in (None, str(each["stream"]))]
            streams = [each for each in of if int(str(each["session"])) > above][: self.shown_max]
            standing = [each for each in self.standing if stream in (None, str(each["stream"]))][: self.shown_max]
        else:
            streams, standing = self.streams[: self.shown_max], self.standing[: self.shown_max]
        kept = [each for each in self.kept if int(str(each["lsn"])) >= first]
        return {"streams": streams, "refused": kept, "standing": standing, "count": 1, "more": self.more}

    def run(self, *arguments: str) -> int:
        return main(["sources", *arguments, "-f", str(self.manifest)])


@pytest.fixture(name="bench")
def bench_of_this_test(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    bench = Bench(tmp_path)
    monkeypatch.setattr(primary, "ask_primary", bench.ask)
    return bench


def test_sources_are_listed_with_how_far_they_are_and_what_is_wrong(
    bench: Bench, capsys: pytest.CaptureFixture[str]
) -> None:
    assert bench.run("list") == 0
    assert "never ran" in capsys.readouterr().out
    (bench.folder / "data").mkdir()
    write_status(str(bench.folder / "data"), STATUS)
    assert bench.run("list") == 0
    _, row = capsys.readouterr().out.splitlines()
    assert row.split()[:6] == ["flights", "0", "flights", "stopped", "4", "4"]
    assert "stands at seq 6" in row
    assert bench.run("list", "--json") == 0
    (only,) = json.loads(capsys.readouterr().out)["sources"]
    assert (only["takenIn"], only["code"]) == (4, "DL3081")
    assert bench.run("show", "flights") == 0
    assert "value.origin" in capsys.readouterr().out
    assert bench.run("show", "flights", "--json") == 0
    assert json.loads(capsys.readouterr().out)["streams"][0]["shards"][0]["waiting"] == 3


def test_a_service_without_sources_says_so(bench: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    bench.manifest.write_text(MANIFEST.partition("  sources:")[0])
    assert bench.run("list") == 0
    assert capsys.readouterr().out == "the service has no sources\n"
    assert bench.run("show", "flights") == 64
    assert "it has none" in capsys.readouterr().err


def test_refused_rows_are_a_table_and_json(bench: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    assert bench.run("refused", "flights") == 0
    assert capsys.readouterr().out == "no row was refused\n"
    bench.standing, bench.kept = [refused(9, stands=True)], [refused(7, number=-1)]
    assert bench.run("refused", "flights") == 0
    _, first, second = capsys.readouterr().out.splitlines()
    assert first.split()[:5] == ["0", "9", "0", "5", "yes"]
    assert "late" in second
    assert "DL3084 no json" in second
    assert bench.run("refused", "flights", "--json", "--stream", "1") == 0
    assert json.loads(capsys.readouterr().out) == {"source": "flights", "refused": [], "more": False}
    bench.more = True
    assert bench.run("refused", "flights") == 0
    assert capsys.readouterr().out.endswith("shard 0 has more of them: --from 8 shows those that follow\n")


def test_a_row_is_tried_again_or_passed_over_by_an_order(bench: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    assert bench.run("retry", "flights") == 64
    assert "DL3082" in capsys.readouterr().err
    bench.standing = [refused(9, stands=True)]
    assert bench.run("retry", "flights") == 0
    assert bench.run("skip", "flights", "--json") == 0
    out = capsys.readouterr().out
    assert "stream 0, shard 0: row 5 is tried again" in out
    assert bench.ordered == [
        {"command": "retry-input", "invocation": "1"},
        {"command": "skip-input", "invocation": "1", "operation": "6"},
    ]
    assert bench.run("skip", "flights", "--stream", "3") == 64


def test_rows_that_are_kept_are_run_again_all_or_those_that_are_named(
    bench: Bench, capsys: pytest.CaptureFixture[str]
) -> None:
    bench.kept = [{**refused(lsn), "kept": lsn != 8} for lsn in (7, 8, 9)]
    assert bench.run("replay", "flights") == 0
    assert capsys.readouterr().out == "source flights: 2 taken in, 0 refused again\n"
    assert bench.ordered == [{"command": "run-input", "invocation": lsn} for lsn in ("7", "9")]
    bench.ran = {"done": False, "code": "DL3014", "why": "ValueError: no"}
    assert bench.run("replay", "flights", "9") == 0
    assert capsys.readouterr().out.splitlines() == [
        "lsn 9 is refused again: DL3014 ValueError: no",
        "source flights: 0 taken in, 1 refused again",
    ]
    assert bench.run("replay", "flights", "9", "--json") == 0
    assert json.loads(capsys.readouterr().out) == {
        "source": "flights",
        "ran": 0,
        "refusedAgain": [9],
        "why": ["DL3014 ValueError: no"],
    }
    assert bench.run("replay", "flights", "--stream", "4") == 0


def test_rows_that_nobody_needs_are_discarded_and_those_that_are_not_listed_are_named(
    bench: Bench, capsys: pytest.CaptureFixture[str]
) -> None:
    bench.kept = [refused(7), refused(9)]
    assert bench.run("discard", "flights", "7") == 0
    assert capsys.readouterr().out == "source flights: 1 discarded\n"
    assert bench.ordered == [{"command": "drop-input", "invocation": "7"}]
    assert bench.run("discard", "flights", "9", "12", "--json") == 64
    assert "DL3076" in capsys.readouterr().err
    assert bench.run("discard", "flights", "9", "--json") == 0
    assert json.loads(capsys.readouterr().out) == {"source": "flights", "discarded": 1}
    assert bench.run("discard", "flights") == 2


def test_streams_whose_source_is_gone_are_forgotten_once_that_is_confirmed(
    bench: Bench, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert bench.run("forget", "flights", "--yes") == 64
    assert "stands in the manifest" in capsys.readouterr().err
    assert bench.run("forget", "gone", "--yes") == 64
    assert "DL3077" in capsys.readouterr().err
    stream: dict[str, object] = {
        "stream": 3,
        "session": 8,
        "takenIn": 41,
        "onRefusal": "stop",
        "refused": 0,
        "stands": False,
    }
    bench.streams = [{**stream, "stream": 2, "session": 7}, stream]
    for words in ((), ("--json",)):
        assert bench.run("forget", "gone", *words) == 64
        assert "nobody to ask" in capsys.readouterr().err
    monkeypatch.setattr("sys.stdin.isatty", lambda: True)
    monkeypatch.setattr("click.confirm", lambda *_, **__: False)
    assert bench.run("forget", "gone", "--stream", "3") == 64
    assert "rows up to 41 were taken in; opened again, it begins at its first row" in capsys.readouterr().out
    assert bench.ordered == []
    monkeypatch.setattr("click.confirm", lambda *_, **__: True)
    assert bench.run("forget", "gone", "--stream", "3") == 0
    assert capsys.readouterr().out.endswith("source gone, stream 3, shard 0: forgotten\n")
    assert bench.ordered == [{"command": "forget-stream", "invocation": "8"}]
    assert bench.run("forget", "gone", "--json", "--yes") == 0
    told = json.loads(capsys.readouterr().out)
    assert told["forgotten"][1] == {"shard": 0, "stream": 3, "takenIn": 41}


@pytest.mark.parametrize(("knows", "forgotten"), [(True, 5), (False, 2)])
def test_streams_behind_the_first_answer_are_seen_to(bench: Bench, knows: bool, forgotten: int) -> None:
    """A primary of before tells of no others."""
    stream = {"takenIn": 41, "onRefusal": "stop", "refused": 0, "stands": False}
    bench.streams = [{**stream, "stream": number, "session": 10 + number} for number in range(5)]
    bench.standing = [{**refused(number, stands=True), "stream": number, "session": 10 + number} for number in range(5)]
    bench.shown_max, bench.knows_more_than_from = 2, knows
    assert bench.run("forget", "gone", "--yes") == 0
    assert [each["invocation"] for each in bench.ordered] == [str(10 + number) for number in range(forgotten)]
    bench.ordered.clear()
    assert bench.run("retry", "flights", "--stream", "4") == (0 if knows else 64)
    assert [each["invocation"] for each in bench.ordered] == (["14"] if knows else [])


def test_where_a_source_goes_on_is_decided(
    bench: Bench, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def adopt(config: ReplicaConfig, source: SourceConfig, reader: Reader, stream: int, at: str) -> Point:
        assert (source.name, stream, at) == ("flights", 0, "2.jsonl")
        return Point(41, b"")

    monkeypatch.setattr(adopting, "adopt", adopt)
    assert bench.run("skip", "flights", "--at", "2.jsonl") == 0
    assert "goes on at 2.jsonl, whose row has number 42" in capsys.readouterr().out
    assert bench.run("skip", "flights", "--at", "2.jsonl", "--json") == 0
    assert json.loads(capsys.readouterr().out) == {"source": "flights", "stream": 0, "at": "2.jsonl", "next": 42}
