"""Queries look at the last completed turn and leave nothing behind."""

import msgspec
from tests.unit.deathless.execution.executor_bench import Bench, error, value

from deathless.codec.messages import Kind, encode
from deathless.execution.author.service import Service
from deathless.execution.turn.context import Context, QueryContext


class State(msgspec.Struct):
    log: list[str] = []


service = Service("svc", state=State)


@service.handler
def note(state: State, ctx: Context, text: str) -> None:
    state.log.append(text)


@service.query
def spoil(state: State, ctx: QueryContext) -> list[str]:
    state.log.append(f"{ctx.key} {ctx.now_us}")
    return state.log


@service.query
def leave(state: State) -> None:
    raise SystemExit(3)


def test_query_changes_nothing() -> None:
    bench = Bench(service)
    bench.call("note", text="one")
    assert value(bench.ask("spoil")) == value(bench.ask("spoil")) == ["one", "a 7"]


def test_whatever_a_query_raises_is_an_answer() -> None:
    assert error(Bench(service).ask("leave")).type == "SystemExit"


def test_what_is_no_query_is_told_so() -> None:
    bench = Bench(service)
    assert "is a handler" in error(bench.ask("note", text="x")).text
    assert "has no" in error(bench.ask("nothing")).text
    assert error(bench.executor.query(b"", 7)).code == "DL3003"
    assert error(bench.executor.query(encode(Kind.FORK, method=b"spoil"), 7)).code == "DL3003"
    assert error(bench.ask("spoil", "a", wrong=1)).code == "DL3003"
