"""`deathless ambrosia skip` shows what it is about, asks, and lists what is skipped."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from deathless.base.config import BindingConfig, ReplicaConfig
from deathless.cli.main import main
from deathless.foreign import skipping
from deathless.foreign.skipping import Killer, SkipOrder
from deathless.foreign.skips import Skip, Skips
from deathless.protocols.ambrosia.messages import SELF, Kind, make_call
from deathless.shell.disk.filesystem import RealFileSystem

ITEMS = (make_call(SELF, 5, Kind.ASYNC, b"1", name="x", sequence=7), make_call(SELF, 1, Kind.FORK, b"2"))
Run = Callable[..., tuple[int, str, str]]


class Bench:
    """A service with a program, and orders that came to be examined."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.orders: list[SkipOrder] = []
        self.write(("./counter",))

    def write(self, command: tuple[str, ...]) -> None:
        """Have the replicas started with this program."""
        folder = self.directory / "replicas" / "r0"
        folder.mkdir(parents=True, exist_ok=True)
        (self.directory / "application").mkdir(exist_ok=True)
        binding = BindingConfig(command=command, instance="counter")
        directory = str(self.directory)
        config = ReplicaConfig(service="counter", module="", directory=directory, replica="r0", binding=binding)
        (folder / "config.json").write_bytes(msgspec.json.encode(config))

    def skips(self) -> dict[int, Skip]:
        """What is skipped."""
        return Skips(RealFileSystem(self.directory)).read()


@pytest.fixture(name="bench")
def bench_of_a_service(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Bench:
    bench = Bench(tmp_path / ".deathless" / "counter")

    async def examine(order: SkipOrder, _: object) -> Killer:
        bench.orders.append(order)
        return Killer(ITEMS, Skip(position=order.position, items=(0,), waiting=(7,), at_us=1))

    monkeypatch.setattr(skipping, "examine", examine)
    return bench


@pytest.fixture(name="run")
def command(bench: Bench, capsys: pytest.CaptureFixture[str]) -> Run:
    """Run it; gives the exit code and what it printed."""

    def run(*words: str) -> tuple[int, str, str]:
        code = main(["ambrosia", "skip", "--dir", str(bench.directory), *words])
        told = capsys.readouterr()
        return code, told.out, told.err

    return run


def test_message_is_shown_skipped_and_listed(run: Run, bench: Bench) -> None:
    assert run() == (0, "nothing is skipped\n", "")
    code, out, _ = run("4", "--item", "0", "--yes")
    assert code == 0
    assert "0: an awaited call of method 5 with 1 bytes: 31   will be skipped\n1: a fork" in out
    assert "callers that get an error: 1" in out
    assert [(order.position, order.item, order.settings.command) for order in bench.orders] == [(4, 0, ("./counter",))]
    assert bench.skips() == {4: Skip(position=4, items=(0,), waiting=(7,), at_us=1)}
    assert json.loads(run("--json")[1])["skips"][0]["position"] == 4
    assert run()[1].splitlines()[1].split()[:3] == ["4", "0", "1"]
    assert "skipped already" in run("4", "--yes")[2]
    assert json.loads(run("5", "--yes", "--json")[1])["position"] == 5


def test_nothing_is_skipped_unless_a_person_says_so(run: Run, bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    for words in (("4",), ("4", "--json")):
        code, out, err = run(*words)
        assert (code, "nobody to ask" in err, "--json" in words and out != "") == (64, True, False)
    monkeypatch.setattr("sys.stdin.isatty", lambda: True)
    monkeypatch.setattr("click.confirm", lambda *_, **__: False)
    assert "nothing was skipped" in run("4")[2]
    assert bench.skips() == {}
    monkeypatch.setattr("click.confirm", lambda *_, **__: True)
    assert run("4")[0] == 0
    assert list(bench.skips()) == [4]


def test_program_that_others_start_has_to_be_named(run: Run, bench: Bench) -> None:
    bench.write(())
    assert "name it: --program" in run("4", "--yes")[2]
    assert run("4", "--yes", "--program", "./counter '-v 1'")[0] == 0
    assert bench.orders[-1].settings.command == ("./counter", "-v 1")
    assert run("5", "--yes", "--program", "'")[0] == 64
