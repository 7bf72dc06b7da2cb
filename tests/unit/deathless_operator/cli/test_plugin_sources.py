"""Sources and sinks of a service in a cluster: the laptop's tables, and orders for the rows at which streams stand."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.unit.deathless_operator.cli.front_door import Served, served

from deathless.base.errors import StreamNotStopped
from deathless.base.listings import sources as listing
from deathless.shell.ingress.operators import find_page
from deathless_operator.cli import plugin

SOURCE = {"name": "flights", "kind": "kafka", "input": "departed", "options": {"brokers": "k:9092", "topic": "t"}}
STREAM = {
    "source": "flights", "stream": "0", "input": "departed", "state": "stopped", "takenIn": 4, "behind": 4,
    "problem": "DL3081 stands [at] seq 6", "atUs": 1_000_000,
}  # fmt: skip
SINK = {
    "sink": "facts", "topic": "t", "state": "storing", "position": 5, "lagRows": 2, "lagSeconds": 0.5,
    "heldBytes": 1536, "problem": "", "atUs": 1_000_000,
}  # fmt: skip


def refused(lsn: int, *, stands: bool = False, seq: int = 6) -> dict[str, object]:
    return {
        "lsn": lsn, "stream": 0, "session": 1, "seq": seq, "id": seq - 1, "atUs": 1_000_000, "code": "DL3084",
        "why": "no json", "key": "JFK", "row": "" if stands else "{no", "stands": stands,
    }  # fmt: skip


def streams(*standing: dict[str, object], kept: list[dict[str, object]] | None = None) -> dict[str, Any]:
    return {"streams": [], "refused": kept or [], "standing": list(standing), "count": 1, "more": bool(kept)}


@pytest.fixture(name="site")
def airports(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Served]:
    with served(tmp_path, monkeypatch) as found:
        found.put("airports", sources=[SOURCE])
        yield found


def run(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    capsys.readouterr()
    assert plugin.main([*words]) == 0, capsys.readouterr().err
    return capsys.readouterr().out


def test_sources_and_sinks_are_the_laptops_tables(site: Served, capsys: pytest.CaptureFixture[str]) -> None:
    site.answer = lambda _method, path, _body: (
        {"sources": [STREAM], "more": False} if "sources" in path else {"sinks": [SINK]}
    )
    head, row = run(capsys, "sources", "list", "airports").splitlines()
    assert head.split()[:5] == ["SOURCE", "STREAM", "INPUT", "STATE", "TAKEN"]
    assert row.split()[:6] == ["flights", "0", "departed", "stopped", "4", "4"]
    assert "stands [at] seq 6" in row
    (only,) = json.loads(run(capsys, "sources", "list", "airports", "--json"))["sources"]
    assert (only["shard"], only["at"]) == (0, "1970-01-01 00:00:01.000")
    _, row = run(capsys, "sinks", "list", "airports").splitlines()
    assert row.split()[:6] == ["facts", "0", "t", "storing", "5", "2"]
    assert "1.5 KiB" in row
    (only,) = json.loads(run(capsys, "sinks", "list", "airports", "--json", "--shard", "0"))["sinks"]
    assert only["sink"] == "facts"
    assert site.seen[-1][:2] == ("GET", "/airports/-/sinks?shard=0")


@pytest.mark.parametrize("shards", [1, 2])
def test_streams_are_listed_in_as_many_answers_as_it_takes(
    site: Served, capsys: pytest.CaptureFixture[str], shards: int
) -> None:
    site.put("airports", sources=[SOURCE], shards=shards)

    def answer(_method: str, path: str, _body: object) -> dict[str, object]:
        first = 2 if "from=2" in path else 0
        listed = [{**STREAM, "stream": str(each)} for each in range(3)][first : first + 2]
        return {"sources": listed, "more": not first} | ({"from": first} if first else {})

    site.answer = answer
    told = json.loads(run(capsys, "sources", "list", "airports", "--json"))["sources"]
    assert [(each["shard"], each["stream"]) for each in told] == [(k, s) for k in range(shards) for s in "012"]
    assert site.seen[-1][1] == "/airports/-/sources?from=2" + ("&shard=1" if shards > 1 else "")


@pytest.mark.parametrize("refuses", [False, True])
def test_release_that_shows_the_first_streams_alone_is_told_of(
    site: Served, capsys: pytest.CaptureFixture[str], *, refuses: bool
) -> None:
    def answer(_method: str, path: str, _body: object) -> dict[str, object]:
        if refuses and "from" in path:
            site.status = 400
            return {"error": {"code": "DL3001", "message": "this page has no parameter `from` - at `$.from`"}}
        return {"sources": [STREAM], "more": True}

    site.answer = answer
    assert plugin.main(["sources", "list", "airports", "--json"]) == 0
    told = capsys.readouterr()
    assert len(json.loads(told.out)["sources"]) == 1
    assert "shard 0 has more than 1 streams, and its release shows no others" in " ".join(told.err.split())


def test_service_without_any_says_so(site: Served, capsys: pytest.CaptureFixture[str]) -> None:
    site.answer = lambda _method, path, _body: {"sources": []} if "sources" in path else {"sinks": []}
    assert run(capsys, "sources", "list", "airports") == "the service has no sources\n"
    assert run(capsys, "sinks", "list", "airports") == "the service has no sinks\n"


def test_refused_rows_are_those_of_all_shards(site: Served, capsys: pytest.CaptureFixture[str]) -> None:
    site.put("airports", sources=[SOURCE], shards=2)
    site.answer = lambda _method, path, _body: (
        streams(refused(9, stands=True)) if "shard=0" in path else streams(kept=[refused(7, seq=0)])
    )
    _, first, second, more = run(capsys, "sources", "refused", "airports", "flights").splitlines()
    assert first.split()[:5] == ["0", "9", "0", "5", "yes"]
    assert second.split()[:4] == ["1", "7", "0", "late"]
    assert more == "shard 1 has more of them: --from 8 shows those that follow"
    assert [path for _, path, _ in site.seen] == [
        f"/airports/-/sources/flights/refused?shard={shard}" for shard in (0, 1)
    ]
    told = json.loads(run(capsys, "sources", "refused", "airports", "flights", "--json", "--stream", "3"))
    assert told == {"source": "flights", "refused": [], "more": True}
    run(capsys, "sources", "refused", "airports", "flights", "--shard", "1", "--from", "8")
    assert site.seen[-1][1] == "/airports/-/sources/flights/refused?from=8&shard=1"
    assert plugin.main(["sources", "refused", "airports", "flights", "--from", "8"]) == 64
    assert "--from is an LSN of one shard" in capsys.readouterr().err


@pytest.mark.parametrize(("shards", "session"), [(1, "1"), (2, "1-1")])
def test_a_row_at_which_a_stream_stands_is_tried_again_or_passed_over(
    site: Served, capsys: pytest.CaptureFixture[str], shards: int, session: str
) -> None:
    site.put("airports", sources=[SOURCE], shards=shards)
    last = f"shard={shards - 1}" if shards > 1 else ""
    site.answer = lambda method, path, _body: (
        {} if method == "POST" else streams(refused(9, stands=True)) if path.endswith(last) else streams()
    )
    out = run(capsys, "sources", "retry", "airports", "flights")
    assert out == f"source flights, stream 0, shard {shards - 1}: row 5 is tried again\n"
    told = json.loads(run(capsys, "sources", "skip", "airports", "flights", "--json"))
    assert told == {"source": "flights", "done": "skip", "rows": [{"shard": shards - 1, "stream": 0, "row": 5}]}
    ordered = [(path, body) for method, path, body in site.seen if method == "POST"]
    assert ordered == [(f"/airports/-/streams/{session}/{what}", {}) for what in ("retry", "6/skip")]
    for path, _ in ordered:
        page = find_page([part.encode() for part in path.split("/")[3:]], shards)
        assert page is not None and page.done, "the ingress knows it"


def test_streams_that_stand_are_asked_for_until_all_were_told_to_go_on(
    site: Served, capsys: pytest.CaptureFixture[str]
) -> None:
    """An answer has the first of them only; one that stands again is told once."""
    standing = [{**refused(at, stands=True), "session": at, "stream": at} for at in range(1, 6)]

    def answer(method: str, path: str, _body: Any) -> Any:
        if method != "POST":
            return streams(*standing[:2])
        session = int(path.split("/")[4])
        standing.sort(key=lambda each: (each["session"] == session, each["lsn"]))
        standing[-1] = {**standing[-1], "lsn": 10 * session}
        return {}

    site.answer = answer
    out = run(capsys, "sources", "retry", "airports", "flights")
    assert [line.split()[3] for line in out.splitlines()] == ["1,", "2,", "3,", "4,", "5,"]


@pytest.mark.parametrize(("shards", "name"), [(1, "7"), (2, "1-7")])
def test_rows_that_are_kept_are_run_again_or_discarded(
    site: Served, capsys: pytest.CaptureFixture[str], shards: int, name: str
) -> None:
    site.put("airports", sources=[SOURCE], shards=shards)
    last = f"shard={shards - 1}" if shards > 1 else ""
    kept = {**streams(kept=[{**refused(7), "kept": True}]), "more": False}
    done = ["taken in"]
    site.answer = lambda method, path, _body: (
        {"lsn": 7, "done": done[0], "code": "DL3084", "why": "no"}
        if method == "POST"
        else kept
        if last in path
        else streams()
    )
    assert run(capsys, "sources", "replay", "airports", "flights") == "source flights: 1 taken in, 0 refused again\n"
    done[0] = "refused again"
    told = run(capsys, "sources", "replay", "airports", "flights", "7", "--shard", str(shards - 1), "--json")
    assert json.loads(told) == {"source": "flights", "ran": 0, "refusedAgain": [7], "why": ["DL3084 no"]}
    told = run(capsys, "sources", "discard", "airports", "flights", "7", "--shard", str(shards - 1))
    assert told == "source flights: 1 discarded\n"
    paths = [path for method, path, _ in site.seen if method == "POST"]
    assert paths == [f"/airports/-/refused/{name}/{what}" for what in ("replay", "replay", "discard")]
    for path in paths:
        page = find_page([part.encode() for part in path.split("/")[3:]], shards)
        assert page is not None and page.done, "the ingress knows it"
    assert plugin.main(["sources", "discard", "airports", "flights", "8", "--shard", str(shards - 1)]) == 64
    assert "DL3076" in capsys.readouterr().err


@pytest.mark.parametrize(("shards", "session"), [(1, "8"), (2, "1-8")])
def test_streams_whose_source_is_gone_are_forgotten(
    site: Served, capsys: pytest.CaptureFixture[str], shards: int, session: str
) -> None:
    site.put("airports", sources=[SOURCE], shards=shards)
    stream = {"stream": 3, "session": 8, "takenIn": 41, "onRefusal": "stop", "refused": 0, "stands": False}
    last = f"shard={shards - 1}" if shards > 1 else ""
    site.answer = lambda method, path, _body: (
        {"done": "forgotten"} if method == "POST" else {**streams(), "streams": [stream] if last in path else []}
    )
    for words in ((), ("--json",)):
        assert plugin.main(["sources", "forget", "airports", "gone", *words]) == 64
        told = " ".join(capsys.readouterr().err.split())
        assert "rows up to 41 were taken in" in told and "nobody is there to be asked" in told
    out = run(capsys, "sources", "forget", "airports", "gone", "--yes")
    assert out == f"source gone, stream 3, shard {shards - 1}: forgotten\n"
    told = json.loads(run(capsys, "sources", "forget", "airports", "gone", "--json", "--yes", "--stream", "3"))
    assert told["forgotten"] == [{"shard": shards - 1, "stream": 3, "takenIn": 41}]
    assert [path for method, path, _ in site.seen if method == "POST"] == 2 * [f"/airports/-/streams/{session}/forget"]
    assert plugin.main(["sources", "forget", "airports", "gone", "--stream", "4", "--yes"]) == 64
    assert "DL3077" in capsys.readouterr().err
    assert plugin.main(["sources", "forget", "airports", "flights", "--yes"]) == 64
    assert "stands in the manifest" in capsys.readouterr().err


@pytest.mark.parametrize("refuses", [False, True])
def test_a_stream_is_found_that_an_answer_about_all_has_no_room_for(
    site: Served, capsys: pytest.CaptureFixture[str], *, refuses: bool
) -> None:
    """A release that knows no such question is asked about all."""
    others, wanted = [{**refused(9, stands=True), "session": 8}], [{**refused(10, stands=True), "stream": 3}]

    def answer(method: str, path: str, _body: object) -> dict[str, object]:
        site.status = 200
        if method == "POST":
            return {}
        if refuses and "stream" in path:
            site.status = 400
            return {"error": {"code": "DL3001", "message": "this page has no parameter `stream` - at `$.stream`"}}
        return streams(*(wanted if "stream=3" in path else [*others, *wanted] if refuses else others))

    site.answer = answer
    told = json.loads(run(capsys, "sources", "retry", "airports", "flights", "--stream", "3", "--json"))
    assert [each["stream"] for each in told["rows"]] == [3]
    assert [path for method, path, _ in site.seen if method == "POST"] == ["/airports/-/streams/1/retry"]


@pytest.mark.parametrize(("shards", "prefix"), [(1, ""), (2, "0-")])
def test_streams_of_all_answers_are_forgotten(
    site: Served, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, shards: int, prefix: str
) -> None:
    monkeypatch.setattr(listing, "STREAMS_SHOWN_MAX", 2)
    site.put("airports", sources=[SOURCE], shards=shards)
    stream = {"stream": 3, "takenIn": 41, "onRefusal": "stop", "refused": 0, "stands": False}
    known = [{**stream, "session": session} for session in (8, 9, 11)]

    def answer(method: str, path: str, _body: object) -> dict[str, object]:
        if method == "POST":
            return {"done": "forgotten"}
        if "shard=1" in path:
            return streams()
        return {**streams(), "streams": known[2:] if "above=9" in path else known[:2]}

    site.answer = answer
    run(capsys, "sources", "forget", "airports", "gone", "--yes")
    orders = [path for method, path, _ in site.seen if method == "POST"]
    assert orders == [f"/airports/-/streams/{prefix}{session}/forget" for session in (8, 9, 11)]


def test_nothing_is_ordered_where_no_stream_stands_or_there_is_no_such_source(
    site: Served, capsys: pytest.CaptureFixture[str]
) -> None:
    site.answer = lambda _method, _path, _body: streams(refused(9, stands=True))
    assert plugin.main(["sources", "retry", "airports", "flights", "--stream", "3", "--json"]) == 64
    assert json.loads(capsys.readouterr().err)["error"]["code"] == StreamNotStopped.code
    assert plugin.main(["sources", "skip", "airports", "flihgts"]) == 64
    assert "its sources: flights" in capsys.readouterr().err
    site.put("airports")
    assert plugin.main(["sources", "refused", "airports", "flights"]) == 64
    assert "it has none" in capsys.readouterr().err
    assert [method for method, *_ in site.seen] == ["GET"]


def test_answer_of_another_form_is_an_error(site: Served, capsys: pytest.CaptureFixture[str]) -> None:
    site.answer = lambda _method, _path, _body: {"sources": 5}
    assert plugin.main(["sources", "list", "airports"]) == 64
    assert "does not know the form of the answer" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "says"), [("sources skip", "sources skip flights --at PLACE"), ("sinks", "deathless sinks adopt facts")]
)
def test_help_says_how_to_do_what_only_a_pod_can(capsys: pytest.CaptureFixture[str], words: str, says: str) -> None:
    assert says in " ".join(run(capsys, *words.split(), "--help").split())


@pytest.mark.usefixtures("site")
def test_names_of_sources_are_completed(capsys: pytest.CaptureFixture[str]) -> None:
    assert plugin.complete(["sources", "retry", "airports", "fl"]) == 0
    assert capsys.readouterr().out.splitlines()[0] == "flights"
    assert plugin.complete(["sources", "retry", "nobody", ""]) == 0
    assert capsys.readouterr().out == ":4\n"
