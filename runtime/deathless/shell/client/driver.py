"""Carries out what a `ClientMachine` says, on asyncio: connections, one timer, nothing decided here.

Guarantees: effects in the order of their list; no event after `close`. Does not: know calls, handlers or results.
Imports core, codec and base.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import threading
from collections.abc import Callable, Iterable
from functools import partial
from typing import Final, cast

from deathless.base.config import TlsConfig
from deathless.base.errors import OutcomeUnknown
from deathless.base.shards import shard_directory
from deathless.core.client.events import (
    AddressesFound,
    BytesReceived,
    CloseRequested,
    CompleteCalls,
    Dial,
    Event,
    FailCalls,
    HangUp,
    LinkId,
    LinkLost,
    LinkOpened,
    Resolve,
    ResultsWanted,
    Send,
    TellRefusal,
    TimerFired,
    error_of,
)
from deathless.core.client.link import ACK_S, PING_S, RESEND_S
from deathless.core.client.machine import ClientMachine
from deathless.shell.client.waiters import Typed, Waiter, complete, fail, fail_all, refuse_all
from deathless.shell.directory.members import read_members
from deathless.shell.directory.service_record import read_shards
from deathless.shell.net.connections import CLOSING_TURNS
from deathless.shell.net.listening import split_address
from deathless.shell.net.tls import client_context, watch

LEAST_S: Final = min(ACK_S, PING_S, RESEND_S)
"""A machine that has just sent a call, or got a reply, has nothing to do before so many seconds have passed."""
_LOG: Final = logging.getLogger("deathless.client")
DIRECTORY: Final = "dir:"


def resolve(addresses: Iterable[str]) -> tuple[str, ...]:
    """Give the client addresses behind what the user named, `dir:/path` being a shard's directory.

    Raises: InvalidConfig for an address that is not host:port.
    """
    found: dict[str, None] = {}
    for address in addresses:
        if address.startswith(DIRECTORY):
            members = read_members(address[len(DIRECTORY) :])
            found.update((member.client, None) for member in members.values() if member.client)
        else:
            split_address(address)
            found[address] = None
    return tuple(found)


def count_shards(addresses: Iterable[str]) -> int:
    """Give how many shards the service behind these has, as its directory says; 1 where none says it."""
    for address in addresses:
        if address.startswith(DIRECTORY):
            found = read_shards(address[len(DIRECTORY) :])
            if found is not None:
                return found.shards
    return 1


def addresses_of_shard(addresses: Iterable[str], shard: int, shards: int) -> tuple[str, ...]:
    """Give where one shard is looked for: in its folder of a directory, and at any other address."""
    return tuple(
        DIRECTORY + shard_directory(address[len(DIRECTORY) :], shard, shards)
        if address.startswith(DIRECTORY)
        else address
        for address in addresses
    )


class _Link(asyncio.Protocol):
    """One connection; tells its driver what happens to it."""

    def __init__(self, driver: Driver, link: LinkId) -> None:
        self._driver = driver
        self._link = link
        self.transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See asyncio.Protocol."""
        self.transport = cast("asyncio.Transport", transport)  # uvloop has classes of its own
        sock = transport.get_extra_info("socket")
        if sock is not None:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        watch(self, transport)
        self._driver.link_made(self._link, self)

    def data_received(self, data: bytes) -> None:
        """See asyncio.Protocol."""
        try:
            self._driver.received(self._link, data)
        except Exception as error:  # noqa: BLE001  this link ends; what it owes is asked for on the next one
            _LOG.exception("can't read a replica's packets")
            self.close()
            self._driver.link_gone(self._link, f"{type(error).__name__} while its packets were read")

    def connection_lost(self, exc: Exception | None) -> None:
        """See asyncio.Protocol."""
        self.transport = None
        self._driver.link_gone(self._link, str(exc) if exc is not None else "closed by the replica")

    def close(self) -> None:
        """Close after what was written; at once if the peer does not read, or would have to agree (TLS)."""
        transport, self.transport = self.transport, None
        if transport is None:
            return
        if transport.get_write_buffer_size() or transport.get_extra_info("sslcontext") is not None:
            transport.abort()
        else:
            transport.close()


class Driver:
    """The shell of one machine.

    Args:
        machine: driven by nobody else.
        addresses: as `resolve` takes them; looked up again whenever the primary is lost, and all replicas failed.
        tls: certificates, where the service wants TLS.
        changed: called after each event that was handled.
    """

    def __init__(
        self,
        machine: ClientMachine[Waiter],
        addresses: tuple[str, ...],
        *,
        tls: TlsConfig | None,
        changed: Callable[[], None],
    ) -> None:
        self._machine = machine
        self._addresses = addresses
        self._tls = tls
        self._changed = changed
        self._loop = asyncio.get_running_loop()
        self._links: dict[LinkId, _Link] = {}
        self._dials: dict[LinkId, asyncio.Task[None]] = {}
        self._tasks: set[asyncio.Task[None]] = set()  # all dials, those given up too, until they have ended
        self._timer: asyncio.Handle | None = None
        self._timer_at = 0.0  # when it fires; uvloop's handle for a time that has come can't say
        self._closed = False
        self._looking_up = False
        self._wanted: list[tuple[int, Waiter]] = []  # results to ask for at the end of this turn of the loop
        self._looked_up(resolve(addresses))

    async def close(self) -> None:
        """Hang up and end what is under way."""
        self.handle(CloseRequested())
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for _ in range(CLOSING_TURNS):
            await asyncio.sleep(0)

    def handle(self, event: Event[Waiter]) -> None:
        """Tell the machine; carry its effects out; set its timer."""
        if self._closed:
            return
        links = self._links
        for effect in self._machine.handle(event, self._loop.time()):
            kind = type(effect)
            if kind is Send:
                send = cast("Send", effect)
                link = links.get(send.link)
                if link is not None and link.transport is not None:
                    link.transport.write(send.data)
            elif kind is CompleteCalls:
                complete(cast("CompleteCalls[Waiter]", effect), self.attach)
            else:
                match effect:
                    case Dial(link=number, address=address):
                        task = self._dials[number] = self._loop.create_task(self._dial(number, address))
                        self._tasks.add(task)
                        task.add_done_callback(self._tasks.discard)
                    case HangUp(link=number):
                        self._hang_up(number)
                    case Resolve():
                        self._resolve()
                    case FailCalls(waiters=waiters, code=code, text=text):
                        fail_all(waiters, error_of(code, text))
                    case TellRefusal(waiters=waiters, code=code, text=text, retry_after_s=wait):
                        refuse_all(waiters, error_of(code, text, retry_after_s=wait))
                    case _:
                        raise AssertionError(f"effect {effect!r}")
        self._changed()
        self._set_timer()

    def call_alone(self, message: bytes, waiter: Waiter) -> bool:
        """Send one call at once where nothing else is to be done. False: it is not so, and nothing was done."""
        if self._closed:
            return False
        now = self._loop.time()
        sent = self._machine.call_alone(message, waiter, now)
        if sent is None:
            return False
        link = self._links.get(sent[0])
        if link is not None and link.transport is not None:
            link.transport.write(sent[1])
        if self._timer is None or self._timer_at > now + LEAST_S:
            self._set_timer()
        return True

    def received(self, link: LinkId, data: bytes) -> None:
        """Take in what came on a link."""
        if self._closed:
            return
        now = self._loop.time()
        answered = self._machine.answered_alone(link, data, now)
        if answered is None:
            self.handle(BytesReceived(link=link, data=data))
            return
        waiter, reply = answered
        complete(CompleteCalls(waiters=[waiter], replies=[reply]), self.attach)
        self._changed()
        if self._timer is None or self._timer_at > now + LEAST_S:
            self._set_timer()

    def _set_timer(self) -> None:
        deadline = self._machine.deadline
        timer = self._timer
        if deadline is not None and (timer is None or deadline < self._timer_at):
            if timer is not None:
                timer.cancel()
            self._timer_at = deadline
            self._timer = self._loop.call_at(deadline, self._timer_fired)

    def attach(self, invocation: int, waiter: Waiter) -> None:
        """Have a result waited for, from the end of this turn of the loop on."""
        if not self._wanted:
            self._loop.call_soon(self._ask_results)
        self._wanted.append((invocation, waiter))
        future = waiter.future if isinstance(waiter, Typed) else waiter
        if isinstance(future, asyncio.Future):  # a result may take days: who is cancelled must not be kept for it
            future.add_done_callback(partial(self._gone, waiter))

    def _gone(self, waiter: Waiter, future: asyncio.Future[object]) -> None:
        if future.cancelled() and not self._closed:
            self._machine.withdraw(waiter)
            self._changed()

    def _ask_results(self) -> None:
        wanted, self._wanted = self._wanted, []
        if self._closed:
            for _, waiter in wanted:
                fail(waiter, OutcomeUnknown("the client was closed before the result came"))
            return
        self.handle(ResultsWanted(invocations=[one for one, _ in wanted], waiters=[waiter for _, waiter in wanted]))

    def _timer_fired(self) -> None:
        self._timer = None
        self.handle(TimerFired())

    def _resolve(self) -> None:
        """Look the addresses up, in a thread: a folder's storage may hang while replicas elsewhere serve."""
        if not self._looking_up and not self._closed:
            self._looking_up = True
            threading.Thread(target=self._look_up, name="addresses", daemon=True).start()

    def _look_up(self) -> None:
        try:
            found = resolve(self._addresses)
        except Exception as error:  # noqa: BLE001  whatever a folder holds, it is looked at again
            _LOG.debug("can't resolve the addresses", extra={"why": repr(error)})
            found = ()
        with contextlib.suppress(RuntimeError):  # the loop has ended meanwhile
            self._loop.call_soon_threadsafe(self._looked_up, found)

    def _looked_up(self, found: tuple[str, ...]) -> None:
        self._looking_up = False
        self.handle(AddressesFound(addresses=found))

    async def _dial(self, number: LinkId, address: str) -> None:
        try:
            host, port = split_address(address)
            tls = client_context(self._tls)
            await self._loop.create_connection(lambda: _Link(self, number), host, port, ssl=tls)
        except Exception as error:  # noqa: BLE001  a name that can't be encoded, a certificate that can't be read
            _LOG.debug("can't connect", extra={"address": address, "why": repr(error)})
            self._dials.pop(number, None)
            self.handle(LinkLost(link=number, reason=str(error)))
        finally:
            self._dials.pop(number, None)

    def link_made(self, number: LinkId, link: _Link) -> None:
        """A connection stands; one that was given up meanwhile ends."""
        if self._closed or number not in self._dials:
            link.close()
            return
        self._links[number] = link
        self.handle(LinkOpened(link=number))

    def link_gone(self, number: LinkId, reason: str) -> None:
        """A connection ended by itself; one that we ended is forgotten already."""
        if self._links.pop(number, None) is not None:
            self.handle(LinkLost(link=number, reason=reason))

    def _hang_up(self, number: LinkId) -> None:
        link = self._links.pop(number, None)
        if link is not None:
            link.close()
        dial = self._dials.pop(number, None)
        if dial is not None:
            dial.cancel()
