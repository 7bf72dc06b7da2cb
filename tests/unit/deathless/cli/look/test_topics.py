"""`deathless topics`: read from files alone, as a table and as JSON."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from tests.unit.deathless.topics.topic_lab import FOLDER, file_bytes
from tests.unit.deathless.topics.topic_site import topic_site

from deathless.cli.main import main
from deathless.topics.arrow import arrow_schema
from deathless.topics.source import FileName

MANIFEST = """\
apiVersion: deathless.dev/v1alpha1
kind: DeathlessService
metadata: {name: airports}
spec: {module: 'pkg.m:a', shards: SHARDS, logStorage: {path: data}}
"""


def service(folder: Path, shards: int = 1) -> str:
    """A service that published positions 1 to 5 on its last shard, and is down."""
    path = folder / "service.yaml"
    path.write_text(MANIFEST.replace("SHARDS", str(shards)))
    data = folder / "data" if shards == 1 else folder / "data" / "shards" / str(shards - 1)
    put = data / "topics" / "departures" / FOLDER / FileName(1, 1, 1).text
    put.parent.mkdir(parents=True)
    put.write_bytes(file_bytes(1, [[1, 2], [3, 5]]))
    return str(path)


@pytest.fixture(name="manifest")
def one_shard(tmp_path: Path) -> str:
    return service(tmp_path)


def told(capsys: pytest.CaptureFixture[str], *arguments: str) -> list[str]:
    assert main(["topics", *arguments]) == 0
    return capsys.readouterr().out.splitlines()


def test_topics_are_listed_with_what_they_hold(manifest: str, capsys: pytest.CaptureFixture[str]) -> None:
    head, row = told(capsys, "list", "-f", manifest)
    assert head.split()[:7] == ["TOPIC", "SHARD", "SOURCE", "FLOOR", "FIRST", "NEXT", "FILES"]
    assert row.split()[:7] == ["departures", "0", FOLDER[:8] + ".1", "1", "1", "6", "1"]
    (only,) = json.loads("\n".join(told(capsys, "list", "-f", manifest, "--json")))["topics"]
    assert (only["source"], only["next"], only["timeUs"], only["holds"]) == (FOLDER, 6, 5_000_000, 0)


def test_a_service_without_topics_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "service.yaml").write_text(MANIFEST.replace("SHARDS", "1"))
    assert told(capsys, "list", "-f", str(tmp_path / "service.yaml")) == ["no topic has rows"]


def test_a_topic_is_shown_with_its_columns_and_its_floor(manifest: str, capsys: pytest.CaptureFixture[str]) -> None:
    told(capsys, "skip", "departures", "--to", "3", "-f", manifest)
    shown = told(capsys, "show", "departures", "-f", manifest)
    assert next(line for line in shown if line.startswith("columns")).split()[1] == "flight:utf8,minutes:int64?"
    assert any(line.startswith("floor because") and "an operator gave them up" in line for line in shown)
    assert json.loads("\n".join(told(capsys, "show", "departures", "-f", manifest, "--json")))["sources"] == [FOLDER]


def test_rows_are_a_table_and_lines_of_json(manifest: str, capsys: pytest.CaptureFixture[str]) -> None:
    head, *rows = told(capsys, "read", "departures", "-f", manifest)
    assert head.split() == ["_SHARD", "_POSITION", "_KEY", "_TIME", "FLIGHT", "MINUTES"]
    assert [row.split()[1] for row in rows] == ["1", "2", "3", "5"]
    lines = [json.loads(line) for line in told(capsys, "read", "departures", "-f", manifest, "--json", "--from", "2")]
    assert [line["_position"] for line in lines] == [2, 3, 5]
    assert lines[0]["_time"] == "1970-01-01T00:00:02Z"
    few = told(capsys, "read", "departures", "-f", manifest, "--json", "--limit", "1", "--column", "flight")
    assert [json.loads(line) for line in few] == [{"flight": "LH 1"}]
    assert told(capsys, "read", "departures", "-f", manifest, "--from", "4", "--to", "5") == ["no rows"]


def test_following_prints_what_is_there_and_goes_on(manifest: str, capsys: pytest.CaptureFixture[str]) -> None:
    lines = told(capsys, "read", "departures", "-f", manifest, "--follow", "--limit", "4", "--json")
    assert [json.loads(line)["_position"] for line in lines] == [1, 2, 3, 5]
    assert main(["topics", "read", "departures", "-f", manifest, "--follow", "--to", "3"]) != 0


def test_of_several_shards_one_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    manifest = service(tmp_path, 2)
    assert len(told(capsys, "list", "-f", manifest)) == 2
    assert len(told(capsys, "read", "departures", "-f", manifest, "--shard", "1", "--json")) == 4
    assert main(["topics", "read", "departures", "-f", manifest]) == 64
    assert "--shard 0 to 1" in capsys.readouterr().err


def test_holds_are_listed_and_dropped(manifest: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "data" / "topics" / "departures" / FOLDER / "holds"
    folder.mkdir()
    (folder / "report.json").write_text('{"position":3,"owner":"nightly","since":"today","sure":true}')
    (folder / "torn.json").write_text("{")
    _, first, second = told(capsys, "holds", "departures", "-f", manifest)
    assert first.split() == ["report", "3", "nightly", "today"]
    assert "unreadable: keeps all" in second
    listed = json.loads("\n".join(told(capsys, "holds", "departures", "-f", manifest, "--json")))["holds"]
    assert [each["readable"] for each in listed] == [True, False]
    for name in ("report", "torn"):
        assert told(capsys, "drop-hold", "departures", name, "-f", manifest) == [f"hold {name} is dropped"]
    assert told(capsys, "holds", "departures", "-f", manifest) == ["no hold keeps rows"]
    assert main(["topics", "drop-hold", "departures", "report", "-f", manifest]) == 64


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (("read", "arrivals"), "no topic 'arrivals'"),
        (("read", "../departures"), "no topic"),
        (("read", "departures", "--source", "x"), "is no source"),
        (("read", "departures", "--column", "gate"), "no column 'gate'"),
    ],
)
def test_what_is_not_there_is_named(
    arguments: tuple[str, ...], why: str, manifest: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["topics", *arguments, "-f", manifest]) == 64
    assert why in capsys.readouterr().err


def test_rows_are_read_over_http_as_from_files(
    manifest: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "data" / "topics" / "departures"
    with topic_site(folder) as site:
        for arguments in (("read", "departures", "--json"), ("read", "departures", "--from", "2", "--limit", "2")):
            assert told(capsys, *arguments, "--url", site.url) == told(capsys, *arguments, "-f", manifest)
        assert (
            told(capsys, "list", "--url", site.url)[1].split()[:7]
            == told(capsys, "list", "-f", manifest)[1].split()[:7]
        )
        shown = json.loads("\n".join(told(capsys, "show", "departures", "--url", site.url, "--json")))
        assert (shown["source"], shown["next"], shown["columns"]) == (FOLDER, 6, "flight:utf8,minutes:int64?")
        assert "next" in "".join(told(capsys, "show", "departures", "--url", site.url))
        assert main(["topics", "read", "arrivals", "--url", site.url]) == 77
        assert "DL3069" in capsys.readouterr().err
        assert main(["topics", "read", "departures", "--url", site.url, "--source", f"{FOLDER}1"]) == 64
        assert "DL3062" in capsys.readouterr().err
        assert told(capsys, "list", "--url", site.url, "--shard", "1") == ["no topic has rows"]


def test_what_is_shown_over_http_goes_with_a_url(manifest: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["topics", "list", "-f", manifest, "--token-file", "t"]) == 2
    assert "go with --url" in capsys.readouterr().err
    assert main(["topics", "read", "departures", "--url", "nowhere"]) == 78
    assert main(["topics", "read", "departures", "--url", "http://h", "--source", "x"]) == 64


def test_without_pyarrow_rows_are_not_read_and_all_else_is(
    manifest: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    arrow_schema.cache_clear()
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    assert len(told(capsys, "list", "-f", manifest)) == 2
    assert main(["topics", "read", "departures", "-f", manifest]) == 78
    assert "pip install deathless[topics]" in capsys.readouterr().err
