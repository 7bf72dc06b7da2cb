"""A topic is read over HTTP while the processes that publish and serve it are killed; and only by its readers."""

from __future__ import annotations

import itertools
import json
import signal
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from urllib.request import Request, urlopen

import pytest
from background_callers import BackgroundCallers
from replica_set import ReplicaSet, children_of, client_of, send_signal, wait_for

from deathless.base.config import AuthenticationConfig
from deathless.base.errors import TopicNotReadable, Unauthorized
from deathless.base.topics.settings import Topic, topic_configs
from deathless.shell.directory.members import read_members
from deathless.topics import RemoteTopic

pytest.importorskip("pyarrow", reason="rows are read with pyarrow: pip install deathless[topics]")

ROOT = Path(__file__).resolve().parents[2]
MODULE = f"{ROOT / 'examples' / 'airports' / 'service.py'}:airports"
INGRESS = "deathless.shell.ingress.ingress"


class Departures(BackgroundCallers):
    """Flights that depart, one after the other."""

    def __init__(self, replicas: ReplicaSet) -> None:
        super().__init__(2, replicas.describe)
        self.told: list[str] = []
        self._replicas = replicas

    async def call(self, number: int) -> None:
        """See BackgroundCallers."""
        async with client_of(self._replicas) as client:
            for count in itertools.count():
                if self.stopping:
                    return
                await client.call("depart", "JFK", flight=f"{number}.{count}", minutes_late=count)
                self.told.append(f"{number}.{count}")


class Follower:
    """Reads rows over HTTP as they come, in a thread."""

    def __init__(self, remote: RemoteTopic) -> None:
        self.rows: list[dict[str, object]] = []
        self.goal: int | None = None  # positions to read; None: no end so far
        self.error: BaseException | None = None
        self._remote = remote
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            position = 1
            while self.goal is None or position <= self.goal:
                end = self._remote.wait(position, pause_s=1.0, pauses=1)
                for batch in self._remote.read(position, end):
                    self.rows += batch.to_pylist()
                position = end
        except BaseException as error:
            self.error = error
            raise

    def ended(self, goal: int) -> bool:
        """Has it read that far?"""
        self.goal = goal
        return not self._thread.is_alive()


def url_of(replicas: ReplicaSet, name: str) -> str:
    """The HTTP port of a replica."""

    def look() -> str | None:
        member = read_members(str(replicas.directory)).get(name)
        return None if member is None or member.ingress.endswith((":0", ":")) else member.ingress

    return f"http://{wait_for(look, 'an ingress', replicas.describe)}"


def has_more(follower: Follower, count: int) -> bool:
    return len(follower.rows) >= count or follower.error is not None


def kill_ingress(replicas: ReplicaSet, name: str) -> None:
    for pid in children_of(replicas.processes[name].pid, INGRESS):
        send_signal(pid, signal.SIGKILL)


def test_each_row_is_read_once_whoever_is_killed(tmp_path: Path) -> None:
    drivers = topic_configs([Topic(name="departures", readers=("*",))], str(tmp_path / "data"))
    with ReplicaSet(
        tmp_path, service="airports", module=MODULE, drivers=drivers, ingress_listen="127.0.0.1:0"
    ) as replicas:
        replicas.primary()
        follower = Follower(RemoteTopic([url_of(replicas, name) for name in replicas.names], "departures"))
        with Departures(replicas) as flights:
            kills: tuple[Callable[[], None], ...] = (
                partial(kill_ingress, replicas, "r0"),
                lambda: replicas.kill_worker(replicas.primary()),
                partial(kill_ingress, replicas, "r1"),
                partial(replicas.kill_replica, "r0"),
                lambda: replicas.kill_worker(replicas.primary()),
            )
            for kill in kills:
                flights.wait_until(partial(has_more, follower, len(follower.rows) + 20), "rows over HTTP")
                kill()
            flights.wait_until(partial(has_more, follower, len(follower.rows) + 20), "rows over HTTP")
        count = len(flights.told)
        wait_for(partial(follower.ended, count), f"{count} rows", replicas.describe)
    assert follower.error is None
    assert [row["_position"] for row in follower.rows[:count]] == list(range(1, count + 1))
    assert sorted(str(row["flight"]) for row in follower.rows) == sorted(flights.told), "each once, and nothing else"


def test_a_topic_is_read_by_those_whom_it_names(tmp_path: Path) -> None:
    tokens = tmp_path / "callers"
    tokens.mkdir()
    for name in ("reports", "web"):
        (tokens / name).write_text(f"a token of {name} alone".replace(" ", "-"))
    drivers = topic_configs([Topic(name="departures", readers=("reports",))], str(tmp_path / "data"))
    with ReplicaSet(
        tmp_path, replicas=1, service="airports", module=MODULE, drivers=drivers, ingress_listen="127.0.0.1:0",
        token="the-service's-own", authentication=AuthenticationConfig(type="Token", tokens=str(tokens)),
    ) as replicas:  # fmt: skip
        replicas.primary()
        url = url_of(replicas, "r0")
        body = json.dumps({"flight": "LH 1", "minutes_late": 3}).encode()
        shown = {"Authorization": f"Bearer {(tokens / 'web').read_text()}", "Content-Type": "application/json"}
        urlopen(Request(f"{url}/airports/JFK/depart", body, shown)).close()
        reports = RemoteTopic(url, "departures", token_file=str(tokens / "reports"))
        assert [row["flight"] for batch in reports.read(1, reports.wait(1)) for row in batch.to_pylist()] == ["LH 1"]
        reports.hold("nightly", 1)
        with pytest.raises(TopicNotReadable, match="web is no reader of topic 'departures'"):
            RemoteTopic(url, "departures", token_file=str(tokens / "web")).bounds()
        with pytest.raises(Unauthorized):
            RemoteTopic(url, "departures").bounds()
        assert RemoteTopic(url, "departures", token_file=str(operators(tmp_path))).drop_hold("nightly")


def operators(folder: Path) -> Path:
    """What tools show."""
    path = folder / "operators"
    path.write_text("the-service's-own")
    return path
