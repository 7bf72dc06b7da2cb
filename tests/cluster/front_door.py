"""Callers of a service in the cluster: through its Service, over HTTPS, as anybody's client would.

    with Callers(address, name="ledger", authority=ca_pem) as callers:
        callers.wait_more()
        ... break something ...
        callers.wait_more()
    callers.check_exactly_once()

Each call notes a tag of its own under one Idempotency-Key and is sent again until it is answered. What was answered is
compared with what the service holds. `longest_gap_s` is the time in which nobody got a good answer, as callers saw it;
`longest_wait_s` is what one call of one caller took, all its attempts together. The times below are those that
docs/kubernetes/callers.md recommends to users. A patient caller gives an attempt a minute instead of a second: what
fails then was refused, reset or swallowed, and not merely slow on a machine that is busy. The front door has limits of
its own: it answers 503 or 504 to what has no reply in REQUEST_TIMEOUT_S, and one that stops ends what has none in
STOP_GRACE_S. What fails no earlier than that was slow, too: a patient caller sends it again and does not count it.

Guarantees: no call is given up before the deadline. Does not: know replicas, roles or Kubernetes.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import socket
import ssl
import threading
import time
import uuid
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from types import TracebackType
from typing import Self

import aiohttp

from deathless.shell.ingress.ingress import REQUEST_TIMEOUT_S, STOP_GRACE_S

KEYS = 5
ATTEMPT_S = 1.0  # a Service without endpoints may swallow a connect: short, then again
CONNECT_S = 0.3
PATIENT_S = 60.0  # what a patient caller gives an attempt, its connect included
PAUSE_S = 0.02  # between two attempts
DEADLINE_S = 120.0


@dataclass(frozen=True, slots=True)
class Door:
    """Where a service is called.

    Args:
        address: host:port of its Service.
        service: its name, first part of every path.
        authority: PEM of who signed its certificate; empty: plain HTTP.
        server_name: that its certificate carries.
    """

    address: str
    service: str
    authority: str = ""
    server_name: str = ""

    def url(self, key: str, method: str) -> str:
        """Give a method's address."""
        return f"http{'s' if self.authority else ''}://{self.address}/{self.service}/{key}/{method}"

    def page(self, name: str) -> str:
        """Give the address of a page that the front door has beside the service's methods."""
        return f"http{'s' if self.authority else ''}://{self.address}/{name}"

    def context(self) -> ssl.SSLContext | bool:
        """What checks the certificate."""
        return ssl.create_default_context(cadata=self.authority) if self.authority else False


def was_slow(outcome: int | Exception, took_s: float) -> bool:
    """Did an attempt fail because a front door had been patient for as long as it promises?

    Args:
        outcome: the status, or what the attempt ended in.
        took_s: since the attempt began, which is before the front door read it.
    """
    if isinstance(outcome, int):
        return outcome in {503, 504} and took_s >= REQUEST_TIMEOUT_S
    ended = isinstance(outcome, aiohttp.ServerDisconnectedError | aiohttp.ClientOSError | aiohttp.ClientPayloadError)
    # One that could not be opened was refused, however late.
    return ended and not isinstance(outcome, aiohttp.ClientConnectorError) and took_s >= STOP_GRACE_S


def figure(door: Door, name: str) -> float:
    """A figure of the metrics page behind the front door: of whichever replica answers; -1 where none does now."""
    return asyncio.run(_figure(door, name))


async def _figure(door: Door, name: str) -> float:
    async with Callers(door).session() as session:
        with contextlib.suppress(aiohttp.ClientError, TimeoutError, OSError):
            async with session.get(door.page("metrics"), server_hostname=door.server_name or None) as response:
                lines = (await response.text()).splitlines()
                found = [line.split() for line in lines if line.startswith((f"{name}{{", f"{name} "))]
                return max((float(words[-1]) for words in found), default=-1.0)
    return -1.0


class Callers:
    """Several callers in a thread of their own."""

    held = "notes"
    """Query that gives the tags that the service holds of a key."""

    def __init__(
        self,
        door: Door,
        *,
        callers: int = 4,
        keys: int = KEYS,
        pause_s: float = 0.005,
        name: str = "",
        patient: bool = False,
    ) -> None:
        self.sent: list[str] = []
        self.answered: list[str] = []
        self.good_at: list[float] = []  # when each good answer came, seconds of the monotonic clock
        self.waited: list[tuple[float, float]] = []  # when each came, and seconds since its call was begun
        self.failures: list[str] = []  # attempts that got no good answer
        self.slow: list[str] = []  # those that a patient caller does not count
        self.errors: list[BaseException] = []
        self._door = door
        self._patient = patient
        self._attempt_s, self._connect_s = (PATIENT_S, PATIENT_S) if patient else (ATTEMPT_S, CONNECT_S)
        self._count = callers
        self._keys = keys
        self._each = [0] * callers  # answers of each
        self._pause_s = pause_s
        self._name = name or uuid.uuid4().hex[:6]
        self._stop = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()), daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self.stop()
        else:
            self._stop.set()

    def move(self, door: Door) -> None:
        """Ask at another door from now on: the service was made anew."""
        self._door = door

    def stop(self) -> None:
        """Let what is under way be answered, begin no more."""
        self._stop.set()
        self._thread.join(DEADLINE_S)
        assert not self._thread.is_alive(), f"calls are not answered; last attempts: {self._last()}"
        if self.errors:
            raise self.errors[0]

    def wait_more(self, count: int = 50) -> None:
        """Wait until `count` more calls were answered."""
        goal, end, pause = len(self.answered) + count, time.monotonic() + DEADLINE_S, threading.Event()
        while len(self.answered) < goal:
            if self.errors:
                raise self.errors[0]
            assert time.monotonic() < end, f"no answers for {DEADLINE_S:g} s; last attempts: {self._last()}"
            pause.wait(0.01)

    def wait_each(self, count: int = 2) -> None:
        """Wait until each caller got `count` more answers: what was under way has been answered then."""
        before, end, pause = list(self._each), time.monotonic() + DEADLINE_S, threading.Event()
        while any(now - then < count for now, then in zip(self._each, before, strict=True)):
            if self.errors:
                raise self.errors[0]
            assert time.monotonic() < end, f"a caller waits for {DEADLINE_S:g} s; attempts: {self._last()}"
            pause.wait(0.01)

    def forget_failures(self) -> None:
        """Count failures from here on: until now nothing was done to the service, which had just become ready."""
        self.failures.clear()

    def _last(self) -> list[str]:
        return self.slow[-3:] + self.failures[-3:]

    def longest_wait_s(self, since: float = 0.0) -> float:
        """The longest that a call took which was answered after `since` (monotonic), seconds."""
        return max((seconds for at, seconds in self.waited if at >= since), default=0.0)

    def longest_gap_s(self, since: float = 0.0) -> float:
        """The longest time between two good answers after `since` (monotonic), seconds."""
        times = [at for at in self.good_at if at >= since]
        return max((after - before for before, after in itertools.pairwise(times)), default=0.0)

    def check_exactly_once(self) -> None:
        """Every answered call is held once, every other at most once. Ask after `stop`."""
        held = Counter(tag for tag in asyncio.run(self._held()) if tag.startswith(f"{self._name}."))
        lost = sorted(set(self.answered) - set(held))
        doubled = sorted(tag for tag, count in held.items() if count > 1)
        assert not lost, f"lost {len(lost)} of {len(self.answered)}: {lost[:5]}"
        assert not doubled, f"doubled {len(doubled)}: {doubled[:5]}"
        assert set(held) <= set(self.sent)

    # ---- inside the thread -----------------------------------------------------------------------------------

    async def _run(self) -> None:
        async with self.session() as session:
            await asyncio.gather(*(self._calls(session, number) for number in range(self._count)))

    @asynccontextmanager
    async def session(self) -> AsyncIterator[aiohttp.ClientSession]:
        """A session; afterwards all its connections are closed, also those that wait for a peer that is gone."""
        opened: list[socket.socket] = []

        def make(address: aiohttp.AddrInfoType) -> socket.socket:
            opened[:] = [each for each in opened if each.fileno() >= 0]
            opened.append(socket.socket(*address[:3]))
            return opened[-1]

        try:
            async with aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(ssl=self._door.context(), limit=0, socket_factory=make),
                timeout=aiohttp.ClientTimeout(total=self._attempt_s, sock_connect=self._connect_s),
            ) as session:
                yield session
        finally:
            for each in opened:
                with contextlib.suppress(OSError):
                    each.shutdown(socket.SHUT_RDWR)
            end = time.monotonic() + DEADLINE_S
            while any(each.fileno() >= 0 for each in opened):
                assert time.monotonic() < end, "a connection does not close"
                await asyncio.sleep(PAUSE_S)

    async def _calls(self, session: aiohttp.ClientSession, number: int) -> None:
        try:
            count = 0
            while not self._stop.is_set():
                tag = f"{self._name}.{number}.{count}"
                self.sent.append(tag)
                began = time.monotonic()
                await self._until_answered(session, tag, f"k{count % self._keys}")
                self.answered.append(tag)
                self.good_at.append(time.monotonic())
                self.waited.append((self.good_at[-1], self.good_at[-1] - began))
                self._each[number] += 1
                count += 1
                await asyncio.sleep(self._pause_s)
        except BaseException as error:
            self.errors.append(error)
            raise

    async def _until_answered(self, session: aiohttp.ClientSession, tag: str, key: str) -> None:
        identity = str(uuid.uuid4())
        while True:
            began = time.monotonic()
            try:
                async with session.post(
                    self._door.url(key, "note"),
                    json={"tag": tag},
                    headers={"Idempotency-Key": identity},
                    server_hostname=self._door.server_name or None,
                ) as response:
                    text = await response.text()
                    if response.status == 200:
                        return
                    self._failed(response.status, f"{response.status} {text[:200]}", began)
                    assert response.status in {429, 502, 503, 504, 507}, f"{tag}: {response.status} {text}"
            except (aiohttp.ClientError, TimeoutError, OSError) as error:
                self._failed(error, f"{type(error).__name__}: {error}", began)
            await asyncio.sleep(PAUSE_S)

    def _failed(self, outcome: int | Exception, told: str, began: float) -> None:
        slow = self._patient and was_slow(outcome, time.monotonic() - began)
        (self.slow if slow else self.failures).append(told)

    async def _held(self) -> list[str]:
        async with self.session() as session:
            return [tag for key in range(self._keys) for tag in await self._notes(session, f"k{key}")]

    async def _notes(self, session: aiohttp.ClientSession, key: str) -> list[str]:
        end = time.monotonic() + DEADLINE_S
        while True:
            with contextlib.suppress(aiohttp.ClientError, TimeoutError, OSError):
                async with session.get(
                    self._door.url(key, self.held), server_hostname=self._door.server_name or None
                ) as response:
                    if response.status == 200:
                        found: list[str] = await response.json()
                        return found
            assert time.monotonic() < end, f"{self._door.service}/{key}/{self.held} is not answered"
            await asyncio.sleep(PAUSE_S)
