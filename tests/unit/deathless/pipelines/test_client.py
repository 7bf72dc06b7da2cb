"""What the service refused raises what it was refused with, and a full service is waited for."""

from concurrent.futures import Future
from pathlib import Path
from typing import Any, Self

import pytest

from deathless.base.errors import HandlerFailed, InvalidArgument, InvalidConfig
from deathless.base.pipelines.agents import AgentConfig
from deathless.pipelines import client as client_module
from deathless.pipelines.assignment import Assignment
from deathless.pipelines.client import RESIGN_S, PipelineClient
from deathless.pipelines.ledger import DriverDeposed, QueryStopped


class FakeClient:
    """In place of a connection: answers in order."""

    def __init__(self, *_: object, **__: object) -> None:
        self.answers: list[object] = []
        self.calls: list[tuple[str, str, dict[str, object]]] = []
        self.closed = False

    def __enter__(self) -> Self:
        return self

    def close(self) -> None:
        self.closed = True

    def call(self, handler: str, key: str, *, result: object, **arguments: object) -> object:
        self.calls.append((handler, key, arguments))
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def submit(self, handler: str, key: str, arguments: dict[str, object]) -> Future[object]:
        self.calls.append((handler, key, arguments))
        self.asked: Future[object] = Future()
        return self.asked

    def request(self, handler: str, key: str, arguments: dict[str, object], *, timeout: float) -> object:
        self.calls.append((handler, key, {**arguments, "timeout": timeout}))
        return None


def failed(kind: str) -> HandlerFailed:
    """What a client hears of a handler that raised."""
    error = HandlerFailed("told")
    error.kind = kind
    return error


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> tuple[PipelineClient, Any, list[float]]:
    """A client, what it calls, and the pauses that it made."""
    monkeypatch.setattr(client_module, "SyncClient", FakeClient)
    pauses: list[float] = []
    client = PipelineClient("delays", ["127.0.0.1:1"], sleep=pauses.append)
    return client, client._client, pauses


def test_refusals_keep_their_class(made: tuple[PipelineClient, Any, list[float]]) -> None:
    """Any other failure of a handler stays what it is."""
    client, fake, _ = made
    fake.answers = [failed("DriverDeposed"), failed("QueryStopped"), failed("ValueError")]
    for kind in (DriverDeposed, QueryStopped, HandlerFailed):
        with pytest.raises(kind, match="told") as raised:
            client.open("alarms", 1)
        assert type(raised.value) is kind


def test_a_block_without_room_is_staged_again(made: tuple[PipelineClient, Any, list[float]]) -> None:
    """Until there is room; it is the same call each time."""
    client, fake, pauses = made
    fake.answers = [failed("StageFull"), failed("StageFull"), None]
    client.stage("alarms", 1, 2, "0", 3, b"x")
    assert len(pauses) == 2
    assert fake.calls == [("stage", "alarms", {"number": 1, "attempt": 2, "block": "0", "rows": 3, "data": b"x"})] * 3


def test_a_report_is_not_waited_for(made: tuple[PipelineClient, Any, list[float]]) -> None:
    """What it gives is the assignment, or what went wrong; to say that a driver has ended takes seconds at most."""
    client, fake, _ = made
    given = client.report("a", warm=True)
    assert not given.done()
    fake.asked.set_result({"number": 3, "drives": True, "failed": ""})
    assert given.result() == Assignment(3, drives=True)
    given = client.report("a", warm=True)
    fake.asked.set_exception(failed("X"))
    with pytest.raises(HandlerFailed):
        given.result()
    client.resign("a", 3, progressed=True, ordered=False)
    told = {"agent": "a", "number": 3, "progressed": True, "ordered": False, "timeout": RESIGN_S}
    assert fake.calls[-1] == ("resign", ".", told)


def test_it_is_closed_with_its_block(made: tuple[PipelineClient, Any, list[float]]) -> None:
    """And what people ask for goes to the key it is about."""
    client, fake, _ = made
    fake.answers = ["a", None, None, [2], 1]
    with client:
        assert client.hand_over() == "a"
        client.suspend(suspended=True)
        client.resume("alarms")
        assert client.retry("alarms", [1, 2]) == [2]
        assert client.drop("alarms", [2]) == 1
    assert [(handler, key) for handler, key, _ in fake.calls] == [
        ("hand_over", "."),
        ("suspend", "."),
        ("resume", "alarms"),
        ("send_again", "alarms"),
        ("drop_refused", "alarms"),
    ]
    assert fake.closed


def test_an_agent_finds_its_service_by_its_addresses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And shows the token that stands in the file at each connection, or stood there last."""
    told: list[tuple[object, object, Any, object]] = []

    class Noted(FakeClient):
        def __init__(self, service: str, addresses: object, *, token: Any, shards: int, **_: object) -> None:
            super().__init__()
            told.append((service, addresses, token, shards))

    monkeypatch.setattr(client_module, "SyncClient", Noted)
    (tmp_path / "token").write_text("of the pipeline\n")
    config = AgentConfig(
        pipeline="delays", name="d", module="m:b", addresses=("a:7401",), service_token_file=str(tmp_path / "token")
    )
    PipelineClient.as_agent(config)
    [(service, addresses, token, shards)] = told
    assert (service, addresses, token(), shards) == ("delays", ("a:7401",), "of the pipeline", 1)
    (tmp_path / "token").write_text("replaced\n")
    assert token() == "replaced"
    (tmp_path / "token").unlink()
    assert token() == "replaced"
    with pytest.raises(InvalidConfig, match="the token can't be read"):
        PipelineClient.as_agent(config)
    with pytest.raises(InvalidArgument, match="no service was started here"):
        PipelineClient.as_agent(AgentConfig(pipeline="delays", name="d", module="m:b", directory=str(tmp_path)))
