"""A service whose effects reach a file and an HTTP address, while primaries and drivers are killed.

`DEATHLESS_KILLS_SEED=n` chooses the same faults again.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import MappingProxyType
from typing import cast

from background_callers import BackgroundCallers
from driver_service import Till
from replica_set import PATIENT, ReplicaSet, children_of, client_of, send_signal, wait_for

from deathless.base.errors import NotPrimary, PeerUnreachable
from deathless.shell.directory.members import read_members
from deathless.shell.net.admin_call import ask

MODULE = Path(__file__).with_name("driver_service.py")
SEED_VARIABLE = "DEATHLESS_KILLS_SEED"
KEYS = 2
FAULTS = ("drivers", "worker", "drivers", "replica")
CALLERS = 2


class Hook:
    """The HTTP address: what it was told, per key, and under which idempotency keys."""

    def __init__(self) -> None:
        self.told: dict[str, list[str]] = {}
        self.keys: dict[str, str] = {}  # tag by idempotency key
        self.broken: list[str] = []
        self.refuses = 0  # of the next requests
        self._lock = threading.Lock()

    def take(self, key: str, idempotency_key: str, tag: str) -> int:
        """Give the status."""
        with self._lock:
            if self.refuses:
                self.refuses -= 1
                return 503
            if self.keys.setdefault(idempotency_key, tag) != tag:
                self.broken.append(f"{idempotency_key} for {tag} and {self.keys[idempotency_key]}")
            self.told.setdefault(key, []).append(tag)
        return 200


class SlowHook(Hook):
    """One that answers nothing until it may."""

    def __init__(self) -> None:
        super().__init__()
        self.may_answer = threading.Event()

    def take(self, key: str, idempotency_key: str, tag: str) -> int:
        """Take the request in, and wait."""
        status = super().take(key, idempotency_key, tag)
        self.may_answer.wait()
        return status


@contextmanager
def hooked(hook: Hook) -> Iterator[tuple[Hook, str]]:
    """An HTTP server, and its address."""

    class Handler(BaseHTTPRequestHandler):
        """One request."""

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            status = hook.take(self.path.rpartition("/")[2], self.headers["Idempotency-Key"], body["tag"])
            with suppress(OSError):  # who asked may be dead by now
                self.send_response(status)
                self.send_header("Content-Length", "0")
                self.end_headers()

        def log_request(self, code: object = "-", size: object = "-") -> None:
            """Quiet."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield hook, f"http://127.0.0.1:{server.server_port}/hook/{{key}}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def till_of(
    folder: Path, url: str, replicas: int = 2, settings: Mapping[str, object] = MappingProxyType({}), **mail: object
) -> ReplicaSet:
    """The service with its drivers, all of whose replicas write to one file."""
    drivers = [
        {"name": "book", "kind": "files", "options": {"path": "book.jsonl"}, "folder": str(folder)},
        {"name": "mail", "kind": "webhook", "options": {"url": url}, "folder": str(folder), **mail},
    ]
    return ReplicaSet(folder, replicas=replicas, service="till", module=f"{MODULE}:till", drivers=drivers, **settings)


def driver_pids(replicas: ReplicaSet, name: str) -> list[int]:
    """Processes of drivers beside one replica."""
    return children_of(replicas.processes[name].pid, "deathless.drivers.host")


class Callers(BackgroundCallers):
    """Calls from several sessions."""

    def __init__(self, replicas: ReplicaSet) -> None:
        super().__init__(CALLERS, replicas.describe)
        self.answered = 0
        self._replicas = replicas

    async def call(self, number: int) -> None:
        """See BackgroundCallers."""
        async with client_of(self._replicas) as client:
            count = 0
            while not self.stopping:
                handler = "pay" if count % 3 else "settle"
                await client.call(handler, f"k{count % KEYS}", tag=f"{number}.{count}")
                self.answered += 1
                count += 1

    def wait_more(self, count: int) -> None:
        """Wait until so many more are answered."""
        goal = self.answered + count
        self.wait_until(lambda: self.answered >= goal, f"{count} more calls")


def kill(replicas: ReplicaSet, what: str) -> str:
    """kill -9 of the primary's worker, of its drivers, or of its whole replica."""
    name = replicas.primary()
    if what == "drivers":
        for pid in wait_for(lambda: driver_pids(replicas, name), "drivers", replicas.describe):
            send_signal(pid, signal.SIGKILL)
    elif what == "worker":
        replicas.kill_worker(name)
    else:
        replicas.kill_replica(name)
        replicas.start(name)
    return f"{what} of {name}"


def state_of(replicas: ReplicaSet, key: str) -> Till:
    """What the service knows of a key."""

    async def main() -> Till:
        async with client_of(replicas) as client:
            return cast("Till", await client.query("look", key, result=Till))

    return asyncio.run(main())


def lines_of(path: Path) -> list[dict[str, object]]:
    """Whole lines of the file."""
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_bytes().splitlines(keepends=True) if line.endswith(b"\n")]


def tags(lines: list[dict[str, object]], key: str) -> list[object]:
    """What the file says of a key, in order."""
    return [cast("dict[str, object]", line["arguments"])["tag"] for line in lines if line["key"] == key]


def test_the_file_holds_each_effect_once_and_the_address_none_too_few_whatever_is_killed(tmp_path: Path) -> None:
    seed = int(os.environ.get(SEED_VARIABLE) or random.SystemRandom().randrange(1 << 32))
    print(f"{SEED_VARIABLE}={seed}")
    chance = random.Random(seed)
    path = tmp_path / "book.jsonl"
    with hooked(Hook()) as (hook, url), till_of(tmp_path, url) as replicas:
        replicas.primary()
        with Callers(replicas) as callers:
            callers.wait_more(10)
            for what in chance.sample(FAULTS, len(FAULTS)):
                print(kill(replicas, what), callers.answered)
                hook.refuses = chance.randrange(3)
                callers.wait_more(chance.randrange(5, 25))
        states = {f"k{number}": state_of(replicas, f"k{number}") for number in range(KEYS)}
        count = sum(len(state.sent) for state in states.values())
        wait_for(lambda: len(lines_of(path)) >= count, f"{count} lines", replicas.describe)
        lines = lines_of(path)
        positions = [line["position"] for line in lines]
        assert positions == sorted(set(cast("list[int]", positions))), "each position once, in order"
        assert len(lines) == count
        for key, state in states.items():
            assert tags(lines, key) == state.sent, replicas.describe()
            answered = [line["position"] for line in lines if line["key"] == key and "waits" in line]
            assert state.lines == answered, "each handler was told of its own line"
            wait_for(lambda: len(set(hook.told.get(key, ()))) >= len(state.sent), "all requests", replicas.describe)  # noqa: B023
            assert list(dict.fromkeys(hook.told[key])) == state.sent, "in order, but for repetitions"
        assert not hook.broken, "one idempotency key for one message"


class Paying:
    """A call of `charge` whose handler waits for an HTTP address, in a thread."""

    def __init__(self, replicas: ReplicaSet, url: str, tag: str, *, at_most_once: bool) -> None:
        self.result: object = None
        self.error: BaseException | None = None
        self._replicas = replicas
        self._arguments = {"url": url.format(key=tag), "tag": tag, "at_most_once": at_most_once}
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()), daemon=True)
        self._thread.start()

    async def _run(self) -> None:
        try:
            async with client_of(self._replicas) as client:
                self.result = await client.request("charge", "k", self._arguments)
        except BaseException as error:
            self.error = error
            raise

    def wait(self) -> object:
        """Wait for what the handler gives."""
        wait_for(lambda: not self._thread.is_alive(), "the handler's result", self._replicas.describe)
        assert self.error is None, self.error
        return self.result


def kill_sender(replicas: ReplicaSet) -> None:
    """kill -9 of the process that sends for the primary."""

    def killed() -> bool:
        status = replicas.status().get(replicas.primary(), {})
        senders = children_of(cast("int", status.get("worker_pid", 0)), "deathless.shell.worker.activity_process")
        return any(send_signal(pid, signal.SIGKILL) for pid in senders)

    wait_for(killed, "a process that sends", replicas.describe)


def test_a_request_that_must_be_sent_at_most_once_is_and_others_repeat_under_one_key(tmp_path: Path) -> None:
    """The process that sent it, and then the primary beside it, are killed between the request and its answer."""
    hook = SlowHook()
    settings: dict[str, object] = {"service": "desk", "module": f"{MODULE}:desk", "activities": {"workers": 1}}
    settings["limits"] = PATIENT  # a request that a takeover came before is never sent
    with hooked(hook) as (_, url), ReplicaSet(tmp_path, replicas=2, **settings) as replicas:  # type: ignore[arg-type]
        paying: dict[str, Paying] = {}
        for what in ("process", "primary"):
            for at_most_once in (True, False):
                tag = f"{what}-{at_most_once}"
                hook.may_answer.clear()
                paying[tag] = Paying(replicas, url, tag, at_most_once=at_most_once)
                wait_for(lambda: len(hook.told.get(tag, ())) >= 1, f"request {tag}", replicas.describe)  # noqa: B023
                if what == "primary":
                    replicas.kill_worker(replicas.primary())
                else:
                    kill_sender(replicas)
                if not at_most_once:
                    wait_for(lambda: len(hook.told[tag]) >= 2, f"{tag} again", replicas.describe)  # noqa: B023
                hook.may_answer.set()
                assert paying[tag].wait() == ("unknown" if at_most_once else "200"), replicas.describe()
        counts = {tag: len(told) for tag, told in hook.told.items()}
        assert counts["process-True"] == counts["primary-True"] == 1, "never a second time"
        assert counts["process-False"] >= 2 and counts["primary-False"] >= 2, counts
        assert not hook.broken
        assert sorted(hook.keys.values()) == sorted(counts), "one idempotency key for each, however often it came"


class Receivers(Hook):
    """One is away and one says no, until both take everything."""

    well = False

    def take(self, key: str, idempotency_key: str, tag: str) -> int:
        """Answer as the receiver of this key does."""
        if not self.well and key in ("k0", "k1"):
            return 503 if key == "k0" else 410
        return super().take(key, idempotency_key, tag)

    @property
    def taken(self) -> int:
        """Requests that were taken, repetitions not counted."""
        return len(self.keys)


def asked(replicas: ReplicaSet, command: str, arguments: dict[str, str]) -> dict[str, object]:
    """What the primary answers a tool; asked again while its role is on its way to another replica."""

    def answer() -> dict[str, object] | None:
        address = read_members(str(replicas.directory))[replicas.primary()].client
        try:
            return asyncio.run(ask(address, command, replicas._access(), arguments)) or {"done": True}
        except (PeerUnreachable, NotPrimary):
            return None

    return wait_for(answer, f"an answer to {command}", replicas.describe)


def test_a_receiver_that_is_dead_or_refuses_stops_no_other_and_what_is_given_up_can_be_sent_again(
    tmp_path: Path,
) -> None:
    hook, keys, calls = Receivers(), 8, 800
    with hooked(hook) as (_, url), till_of(tmp_path, url, replicas=2, attempts_max=2, on_refusal="skip") as replicas:
        replicas.primary()

        async def pay_all() -> None:
            async with client_of(replicas) as client:
                named = [n % keys if n < 3 * keys or n % keys else 2 for n in range(calls)]  # three of the dead one
                await asyncio.gather(*(client.call("pay", f"k{key}", tag=f"{n}") for n, key in enumerate(named)))

        asyncio.run(pay_all())
        bad = 3 + calls // keys
        wait_for(lambda: hook.taken == calls - bad, "the other keys' messages", replicas.describe)
        given_up = wait_for(
            lambda: (found := asked(replicas, "undelivered", {"from": "0"}))["count"] == bad and found,
            "what is given up on the list",
            replicas.describe,
        )
        replicas.kill_worker(replicas.primary())
        replicas.primary()
        assert asked(replicas, "undelivered", {"from": "0"}) == given_up
        hook.well = True
        for each in cast("list[dict[str, object]]", given_up["undelivered"]):
            asked(replicas, "order", {"command": "redeliver", "invocation": str(each["id"])})
        wait_for(lambda: hook.taken == calls, "everything", replicas.describe)
        assert hook.broken == []
        assert asked(replicas, "undelivered", {"from": "0"})["count"] == 0
