"""Rows of files reach a service, while the source's processes and the primaries are killed and frozen.

`DEATHLESS_KILLS_SEED=n` chooses the same faults again.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import random
import signal
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TypeVar, cast

import pytest
from replica_set import ReplicaSet, children_of, send_signal, wait_for
from test_plugin_operates import plugin_of

from deathless.base.config import SourceConfig
from deathless.base.shards import shard_directory
from deathless.cli.main import main
from deathless.shell.client.shard_client import Client
from deathless.shell.link.source_status import SourceStatus, read_status
from deathless.shell.net.admin_call import Access, access_of

MODULE = Path(__file__).with_name("source_service.py")
SEED_VARIABLE = "DEATHLESS_KILLS_SEED"
FAULTS = ("source", "worker", "frozen source", "replica", "source and worker", "frozen source")
KEYS = ("a", "b", "c", "d", "e")
ROWS = 40  # of a file
AHEAD = 800
T = TypeVar("T")
MANIFEST = """\
apiVersion: deathless.dev/v1alpha1
kind: DeathlessService
metadata: {name: taker}
spec:
  module: 'pkg.m:a'
  logStorage: {path: taker}
  sources:
  - {name: lines, kind: files, input: numbers, key: value.key, options: {folder: in}}
"""


class Shard(ReplicaSet):
    """The replicas of one shard."""

    def _access(self) -> Access:
        return access_of(self.config(self.names[0]))


class Taker:
    """All shards of the service, and the folder that its source reads."""

    def __init__(self, folder: Path, shards: int, source: SourceConfig | None = None, **fields: Any) -> None:
        self.folder = folder / "in"
        self.folder.mkdir()
        self.counted = 0  # rows that were taken in, when they were counted last
        self.directory = folder / "taker"
        source = source or SourceConfig(
            name="lines", kind="files", input="numbers", key="value.key", options={"folder": str(self.folder)}
        )
        self.shards = []
        for shard in range(shards):
            place = folder / f"of{shard}"
            place.mkdir()
            made = Shard(
                place, replicas=3 if shards == 1 else 2, service="taker", module=f"{MODULE}:taker",
                sources=(source,), shard=shard, shards=shards, **fields,
            )  # fmt: skip
            made.directory = Path(shard_directory(str(self.directory), shard, shards))
            self.shards.append(made)

    def write(self, name: str, rows: list[object]) -> None:
        """Put a file into the folder."""
        made = self.folder / f".{name}"
        made.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
        made.rename(self.folder / name)

    def taken(self) -> dict[str, list[int]]:
        """What each key holds."""
        return dict(zip(KEYS, asyncio.run(self._ask("look", list[int])), strict=True))

    def count(self) -> int:
        """How many rows were taken in."""
        self.counted = sum(asyncio.run(self._ask("size", int)))
        return self.counted

    async def _ask(self, query: str, result: type[T]) -> list[T]:
        async with Client("taker", [f"dir:{self.directory}"], shards=len(self.shards)) as client:
            return [await client.query(query, key, result=result) for key in KEYS]

    def status(self) -> SourceStatus | None:
        """What the source says; it reads beside the primary of shard 0."""
        return read_status(str(self.shards[0].directory), "lines")

    def describe(self) -> str:
        """All, for a failing test."""
        return "\n".join([str(self.status()), *(each.describe() for each in self.shards)])


@contextmanager
def running(folder: Path, shards: int = 1, source: SourceConfig | None = None, **fields: Any) -> Iterator[Taker]:
    taker = Taker(folder, shards, source, **fields)
    with ExitStack() as stack:
        for each in taker.shards:
            stack.enter_context(each)
        yield taker


class Writer:
    """Files that appear until it is stopped, while no more than AHEAD rows wait for a slow machine."""

    def __init__(self, taker: Taker) -> None:
        self.rows: list[tuple[str, int]] = []
        self._taker = taker
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._write)
        self._thread.start()

    def _write(self) -> None:
        for number in itertools.count():
            while len(self.rows) - self._taker.counted > AHEAD and not self._ended.wait(0.1):
                pass
            rows = [(KEYS[at % 5], number * ROWS + at) for at in range(ROWS)]
            self._taker.write(f"{number:06}.jsonl", [{"key": key, "number": value} for key, value in rows])
            self.rows += rows
            if self._ended.wait(0.1):
                return

    def stop(self) -> None:
        """End it."""
        self._ended.set()
        self._thread.join()


def sources_beside(replicas: ReplicaSet, name: str) -> list[int]:
    def look() -> list[int]:
        return children_of(replicas.processes[name].pid, "deathless.sources.host")

    return wait_for(look, "the source's process", replicas.describe)


class Frozen(NamedTuple):
    """A source's process that stands."""

    replicas: ReplicaSet
    name: str
    pid: int

    def thaw(self, *, beside_primary: bool = False) -> None:
        """Let it go on, always, or if its replica leads again: nobody else would read then."""
        if not beside_primary or self.replicas.role_of("primary") == self.name:
            send_signal(self.pid, signal.SIGCONT)


def break_something(replicas: ReplicaSet, what: str) -> list[Frozen]:
    """Kill or freeze something beside a primary; gives what was frozen."""
    name = replicas.primary()
    frozen: list[Frozen] = []
    if "frozen" in what:
        frozen = [Frozen(replicas, name, pid) for pid in sources_beside(replicas, name)]
        for each in frozen:
            send_signal(each.pid, signal.SIGSTOP)
        replicas.kill_worker(name)
    elif "source" in what:
        for pid in sources_beside(replicas, name):
            send_signal(pid, signal.SIGKILL)
    if "worker" in what:
        replicas.kill_worker(name)
    if what == "replica":
        replicas.kill_replica(name)
        replicas.start(name)
    return frozen


@pytest.mark.parametrize("shards", [1, 2])
def test_each_row_is_taken_in_once_and_in_order_whatever_is_killed_or_frozen(tmp_path: Path, shards: int) -> None:
    seed = int(os.environ.get(SEED_VARIABLE) or random.SystemRandom().randrange(1 << 32))
    print(f"{SEED_VARIABLE}={seed}")
    chance = random.Random(seed)
    frozen: list[Frozen] = []

    def came(goal: int) -> bool:
        for each in frozen:
            each.thaw(beside_primary=True)
        return taker.count() >= goal

    with running(tmp_path, shards) as taker:
        writer = Writer(taker)
        try:
            wait_for(taker.count, "the first rows", taker.describe)
            for what in chance.sample(FAULTS, len(FAULTS)):
                goal = taker.count() + chance.randrange(20, 200)
                print(what, goal, len(writer.rows))
                frozen += break_something(chance.choice(taker.shards), what)
                wait_for(partial(came, goal), f"{goal} rows", taker.describe)
            for each in frozen:  # they go on where they stopped, and find that they are fenced
                each.thaw()
            wait_for(partial(came, taker.count() + 100), "more rows", taker.describe)
        finally:
            writer.stop()
        wanted = {key: [number for of, number in writer.rows if of == key] for key in KEYS}
        wait_for(partial(came, len(writer.rows)), "all rows", taker.describe)
        assert taker.taken() == wanted, "each once, and in order"


def test_a_changed_file_stops_the_source_by_name_until_it_is_as_it_was(tmp_path: Path) -> None:
    def code() -> str:
        status = taker.status()
        return status.streams[0].code if status is not None and status.streams else ""

    with running(tmp_path) as taker:
        taker.write("1.jsonl", [{"key": "a", "number": 1}])
        wait_for(lambda: taker.taken()["a"] == [1], "the first row", taker.describe)
        taker.write("1.jsonl", [{"key": "a", "number": 7}])
        for pid in sources_beside(taker.shards[0], taker.shards[0].primary()):
            send_signal(pid, signal.SIGKILL)  # the next one knows the file by the log alone
        wait_for(lambda: code() == "DL3083", "the source to stop", taker.describe)
        taker.write("2.jsonl", [{"key": "a", "number": 2}])
        taker.write("1.jsonl", [{"key": "a", "number": 1}])
        wait_for(lambda: taker.taken()["a"] == [1, 2], "the source to go on", taker.describe)
        wait_for(lambda: code() == "", "the source to say so", taker.describe)


def test_a_refused_row_behind_blank_lines_is_tried_again_and_no_row_is_doubled(tmp_path: Path) -> None:
    """It is the first one of its file, so the log knows that file and not how many lines are before it."""

    def order(*words: str) -> bool:
        return main(["sources", *words, "lines", "-f", str(tmp_path / "service.yaml")]) == 0

    def kill_source() -> None:
        replicas = taker.shards[0]
        for pid in sources_beside(replicas, replicas.primary()):
            send_signal(pid, signal.SIGKILL)

    def stands_at() -> str:
        status = taker.status()
        return next((each.problem for each in status.streams if each.code == "DL3081"), "") if status else ""

    with running(tmp_path) as taker:
        (tmp_path / "service.yaml").write_text(MANIFEST)
        rows = [json.dumps({"key": "a", "number": number}) + "\n" for number in (1, 2, -1, 3, 4)]
        for name, text in ((".1", f"{rows[0]}{rows[1]}\n\n"), (".2", "".join(rows[2:]))):
            (taker.folder / name).write_text(text)
        for name in ("1", "2"):
            (taker.folder / f".{name}").rename(taker.folder / f"{name}.jsonl")
        wait_for(stands_at, "the source to stand", taker.describe)
        kill_source()
        assert order("retry")
        wait_for(lambda: order("skip"), "the source to stand again", taker.describe)
        wait_for(lambda: taker.taken()["a"][-1:] == [4], "the rows behind it", taker.describe)
        kill_source()
        taker.write("3.jsonl", [{"key": "a", "number": 5}])
        wait_for(lambda: taker.taken()["a"][-1:] == [5], "the next file", taker.describe)
        assert taker.taken()["a"] == [1, 2, 3, 4, 5]


def test_operators_see_what_was_refused_and_decide_how_the_source_goes_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def told(*words: str) -> dict[str, object]:
        capsys.readouterr()
        assert main(["sources", *words, "-f", str(tmp_path / "service.yaml"), "--json"]) == 0
        found: dict[str, object] = json.loads(capsys.readouterr().out)
        return found

    def problem() -> str:
        (only,) = cast("list[dict[str, str]]", told("list")["sources"])
        return only["code"]

    with running(tmp_path, ingress_listen="127.0.0.1:0") as taker:
        (tmp_path / "service.yaml").write_text(MANIFEST)
        taker.write("1.jsonl", [{"key": "a", "number": number} for number in (1, -1, 3)])
        wait_for(lambda: problem() == "DL3081", "the source to stand", taker.describe)
        (row,) = cast("list[dict[str, object]]", told("refused", "lines")["refused"])
        assert (row["id"], row["stands"], "negative" in str(row["why"])) == (1, True, True)
        source = {"name": "lines", "kind": "kafka", "input": "numbers", "options": {"brokers": "k:9092", "topic": "t"}}
        with plugin_of(taker.shards[0], tmp_path, monkeypatch, capsys, sources=[source]) as kubectl:
            assert kubectl("sources refused", "lines", "--json")["refused"] == [row]
            (stream,) = kubectl("sources list", "--json")["sources"]
            assert (stream["source"], stream["state"], stream["code"]) == ("lines", "stopped", "DL3081")
            assert kubectl("sources retry", "lines", "--json")["rows"] == [{"shard": 0, "stream": 0, "row": 1}]
        skip = ["sources", "skip", "lines", "-f", str(tmp_path / "service.yaml")]
        wait_for(lambda: main(skip) == 0, "the source to stand again", taker.describe)
        wait_for(lambda: taker.taken()["a"] == [1, 3], "the row behind it", taker.describe)
        (row,) = cast("list[dict[str, object]]", told("refused", "lines")["refused"])
        assert (row["stands"], row["row"]) == (False, ""), "its source has it"
        taker.write("2.jsonl", [{"key": "a", "number": 4}])
        wait_for(lambda: taker.taken()["a"] == [1, 3, 4], "the next file", taker.describe)
        (taker.folder / "1.jsonl").unlink()
        wait_for(lambda: problem() == "DL3083", "the source to miss the file", taker.describe)
        taker.write("3.jsonl", [{"key": "a", "number": 5}])
        told("skip", "lines", "--at", "3.jsonl")
        wait_for(lambda: taker.taken()["a"] == [1, 3, 4, 5], "the row of the file that was named", taker.describe)
