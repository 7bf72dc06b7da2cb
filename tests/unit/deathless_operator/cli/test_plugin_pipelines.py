"""A SparkPipeline in a cluster: what is shown of it, and orders that reach its service, and none for a misspelt query.

The service's own handlers and queries are looked up, so that a name or a key that they do not know fails here.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import msgspec
import pytest
from tests.unit.deathless_operator.cli.front_door import Served, served

from deathless.base.errors import OutcomeUnknown, UnknownService
from deathless.base.listings import pipelines as listing
from deathless.pipelines.assignment import Agent
from deathless.pipelines.ledger import Refused, Tip
from deathless.pipelines.service import DRIVERS, DriversView, QueryView, RefusedView, pipeline
from deathless_operator.cli import plugin

PIPELINES = "/apis/deathless.dev/v1alpha1/namespaces/ns/sparkpipelines"
TIP = Tip(position="7", batch=3, query_id="q", offsets="", number=2, rows=5, time_us=1_000_000)
QUERY = QueryView(
    number=2, tip=TIP, staged_blocks=0, waiting_rows=1, held_bytes=1536, batches=4, applied=9, refused=2, refusals=3,
    stopped="a row was refused",
)  # fmt: skip
AGENTS = {"a0": Agent(warm=True), "a1": Agent(warm=False)}
VIEW = DriversView(2, "a0", 5, AGENTS, "", suspended=True, queries=["alarms"])


def row(number: int) -> RefusedView:
    return RefusedView(number, Refused("JFK", {"n": 1}, "airports", "alarm", "DL3001", "full"))


class Service:
    """The pipeline's service, as far as the plugin speaks with it."""

    def __init__(self) -> None:
        self.ordered: list[tuple[str, str, Any]] = []
        self.rows = [row(1), row(2)]
        self.most = listing.PAGE  # of rows in one answer

    def answer(self, method: str, path: str, body: Any) -> Any:
        split = urlsplit(path)
        _, service, key, name = (unquote(each) for each in split.path.split("/"))
        assert service == "delays"
        if method == "POST":
            assert pipeline.specs[name].kind == "handler"
            self.ordered.append((name, key, body))
            return {"hand_over": "a0", "drop_refused": 1, "send_again": [2]}.get(name)
        assert pipeline.specs[name].kind == "query"
        assert (key == DRIVERS) == (name == "show_drivers")
        if name == "show_drivers":
            return msgspec.to_builtins(VIEW)
        if name == "show":
            return msgspec.to_builtins(msgspec.structs.replace(QUERY, number=0 if key == "alarm" else 2))
        above = int(parse_qs(split.query)["above"][0])
        return msgspec.to_builtins([each for each in self.rows if each.id > above][: self.most])


@pytest.fixture(name="site")
def delays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Served]:
    with served(tmp_path, monkeypatch) as found:
        found.put("delays")
        found.server.put(f"{PIPELINES}/delays", spec={})
        yield found


@pytest.fixture(name="service")
def service_of_delays(site: Served) -> Service:
    service = Service()
    site.answer = service.answer
    return service


def run(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    capsys.readouterr()
    assert plugin.main(["pipelines", *words]) == 0, capsys.readouterr().err
    return capsys.readouterr().out


@pytest.mark.usefixtures("service")
def test_drivers_and_queries_are_the_laptops_tables(capsys: pytest.CaptureFixture[str]) -> None:
    driver, standby, _, query = run(capsys, "show", "delays").splitlines()
    assert (driver, standby) == ("driver   a0, number 2; suspended", "standby  a1 (starting)")
    assert query.split()[:4] == ["alarms", "3", "1970-01-01", "00:00:01.000"]
    assert "a row was refused" in query
    assert "rows waiting  1" in run(capsys, "show", "delays", "alarms")
    told = json.loads(run(capsys, "show", "delays", "--json"))
    assert told == {"drivers": msgspec.to_builtins(VIEW), "queries": {"alarms": msgspec.to_builtins(QUERY)}}


def test_refused_rows_are_listed_to_their_end(service: Service, capsys: pytest.CaptureFixture[str]) -> None:
    _, first, _ = run(capsys, "refused", "delays", "alarms").splitlines()
    assert first.split() == ["1", "JFK", "airports.alarm", "DL3001", "full", '{"n":1}']
    service.rows = [row(each) for each in range(1, listing.PAGE + 3)]
    told = json.loads(run(capsys, "refused", "delays", "alarms", "--json"))["refused"]
    assert [each["id"] for each in told] == list(range(1, listing.PAGE + 3))
    service.most = 100  # they are long
    assert json.loads(run(capsys, "refused", "delays", "alarms", "--json"))["refused"] == told
    service.rows = []
    assert run(capsys, "refused", "delays", "alarms") == f"{listing.NONE_REFUSED}\n"


@pytest.mark.parametrize(
    ("words", "ordered", "says"),
    [
        ("retry delays alarms", ("send_again", "alarms", {"ids": [1, 2]}), "2 sent, 1 refused again"),
        ("retry delays alarms 7", ("send_again", "alarms", {"ids": [7]}), "1 sent, 1 refused again"),
        ("drop delays alarms 7", ("drop_refused", "alarms", {"ids": [7]}), "1 dropped"),
        ("resume delays alarms", ("resume", "alarms", {}), "alarms goes on"),
        ("resume delays", ("suspend", DRIVERS, {"suspended": False}), "the pipeline goes on"),
        ("suspend delays", ("suspend", DRIVERS, {"suspended": True}), "nobody drives"),
        ("switchover delays", ("hand_over", DRIVERS, {}), "a0 hands over"),
        ("adopt delays alarms --why restored", ("adopt", "alarms", {"why": "restored"}), "alarms goes on from here"),
        ("resume delays former", ("resume", "former", {}), "former goes on"),
    ],
)
def test_an_order_reaches_the_handler_that_carries_it_out(
    service: Service, capsys: pytest.CaptureFixture[str], words: str, ordered: tuple[str, str, Any], says: str
) -> None:
    assert says in run(capsys, *words.split())
    assert service.ordered == [ordered]
    name, key, body = ordered
    taken = list(inspect.signature(pipeline.specs[name].function).parameters)
    assert list(body) == taken[2:], "the handler takes these"
    assert (key == DRIVERS) == (name in ("suspend", "hand_over"))
    assert json.loads(run(capsys, *words.split(), "--json"))


@pytest.mark.parametrize(
    "words", ["retry delays alarm", "drop delays alarm 1", "resume delays alarm", "adopt delays alarm --why x"]
)
def test_no_order_reaches_a_query_that_no_driver_ever_had(
    service: Service, capsys: pytest.CaptureFixture[str], words: str
) -> None:
    assert plugin.main(["pipelines", *words.split()]) == 64
    said = capsys.readouterr().err
    assert "there is no query 'alarm'" in said and "its queries: alarms" in said
    assert service.ordered == []


@pytest.mark.parametrize(
    ("words", "says"), [("drop delays alarms", "name the rows"), ("adopt delays q --why ''", "--why")]
)
def test_an_order_that_says_too_little_is_not_sent(
    service: Service, capsys: pytest.CaptureFixture[str], words: str, says: str
) -> None:
    assert plugin.main(["pipelines", *[each.replace("''", " ") for each in words.split()]]) == 2
    assert says in capsys.readouterr().err
    assert service.ordered == []


def test_pipeline_that_does_not_exist_is_named(site: Served, capsys: pytest.CaptureFixture[str]) -> None:
    site.put("bank")
    for name in ("bank", "nothing"):
        assert plugin.main(["pipelines", "show", name, "--json"]) == UnknownService.exit_code
        assert f"no SparkPipeline {name} in namespace ns" in json.loads(capsys.readouterr().err)["error"]["what"]
    assert site.seen == []


@pytest.mark.usefixtures("service")
def test_order_without_an_answer_says_what_to_do(site: Served, capsys: pytest.CaptureFixture[str]) -> None:
    site.status = 504
    assert plugin.main(["pipelines", "suspend", "delays", "--json"]) == OutcomeUnknown.exit_code
    assert "kubectl deathless pipelines show" in json.loads(capsys.readouterr().err)["error"]["remedy"]


@pytest.mark.usefixtures("site")
def test_names_of_pipelines_are_completed(capsys: pytest.CaptureFixture[str]) -> None:
    assert plugin.complete(["pipelines", "show", "de"]) == 0
    assert capsys.readouterr().out.splitlines()[0] == "delays"
