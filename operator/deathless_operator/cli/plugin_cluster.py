"""What the plugin asks of the API server, and how it reaches a service's front door from outside.

Guarantees: a switchover deletes the very pod that was seen to lead, and tells a new primary from the old one by its
epoch. A call goes out under one idempotency key and may be repeated by it. Does not: print.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import logging
import re
import shutil
import ssl
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from typing import Final, TypeVar
from urllib.parse import quote, urlencode

import aiohttp
import msgspec
from yarl import URL

from deathless.base.errors import (
    CallRefused,
    DeathlessError,
    InvalidArgument,
    OutcomeUnknown,
    PeerUnreachable,
    UnknownService,
)
from deathless.base.shards import checked_shard
from deathless.codec.untrusted import read_json
from deathless_operator.cluster.api import Api
from deathless_operator.cluster.bounded import read_whole
from deathless_operator.cluster.kinds import DRILL, POD, SECRET, SERVICE
from deathless_operator.model import names
from deathless_operator.model.drill import DrillResource
from deathless_operator.model.grace import handover_wait_s
from deathless_operator.plan.drill.reading import read_drill
from deathless_operator.plan.service.reading import read_pod, read_resource
from deathless_operator.plan.snapshot import PodView, ResourceView

LOOK_S: Final = 0.2
SWITCH_S: Final = 60.0  # how long a switchover may take, without the primary's wait for activities
SAID_BYTES_MAX: Final = 1 << 16  # of kubectl's words
SAID_S: Final = 30.0  # how long it may take for them
END_S: Final = 2.0  # a killed program is gone within milliseconds
T = TypeVar("T")
logger: Final = logging.getLogger("deathless.plugin")
_FORWARDING: Final = re.compile(rb"Forwarding from 127\.0\.0\.1:(\d+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Moved:
    """A switchover that was carried out."""

    before: str  # pod
    after: str  # pod
    epoch: int
    seconds: float  # from the deletion to the new primary's announcement being seen


@dataclass(frozen=True, slots=True)
class Cluster:
    """One namespace of the cluster that the kubeconfig names."""

    api: Api
    namespace: str

    async def services(self) -> list[ResourceView]:
        """Give all services of the namespace."""
        return [read_resource(raw) for raw in await self.api.list(SERVICE, self.namespace)]

    async def service(self, name: str) -> ResourceView:
        """Give one service. Raises: UnknownService."""
        raw = await self.api.find(SERVICE, self.namespace, name)
        if raw is None:
            told = f"there is no DeathlessService {name} in namespace {self.namespace}"
            raise UnknownService(told, remedy="name another one, or another namespace with -n")
        return read_resource(raw)

    async def pods(self, name: str) -> list[PodView]:
        """Give a service's replicas."""
        labels = ",".join(f"{key}={value}" for key, value in names.selector(name).items())
        found = [read_pod(raw) for raw in await self.api.list(POD, self.namespace, labels=labels)]
        return sorted((pod for pod in found if names.LABEL_REPLICA in pod.labels), key=lambda pod: pod.name)

    async def drills(self, name: str = "") -> list[DrillResource]:
        """Give the drills of a service, or all."""
        found = [read_drill(raw) for raw in await self.api.list(DRILL, self.namespace)]
        return [one for one in found if not name or (one.spec is not None and one.spec.service_ref.name == name)]

    async def shard_of(self, name: str, shard: int | None) -> dict[str, str]:
        """Give the labels that tell the replicas of the shard that was named from the others.

        Raises: UnknownService; InvalidArgument where none was named and there are several, or there is none such.
        """
        spec = (await self.service(name)).spec
        shards = spec.shards if spec is not None else 1
        if shard is None and shards > 1:
            raise InvalidArgument(f"{name} has {shards} shards", remedy=f"add --shard 0 to {shards - 1}")
        return names.shard_label(checked_shard(shard or 0, shards), shards)

    async def primary(self, name: str, shard: int | None = None) -> PodView:
        """Give the pod that leads a shard. Raises: as `shard_of`, PeerUnreachable."""
        found = leader(alike(await self.pods(name), await self.shard_of(name, shard)))
        if found is None:
            which = "" if shard is None else f"shard {shard} of "
            raise PeerUnreachable(
                f"no replica of {which}{name} is primary now", remedy=f"see `kubectl deathless status {name}`"
            )
        return found

    async def replica(self, name: str, replica: str, shard: int | None = None) -> PodView:
        """Give the pod of a replica that is called so: by its pod's name, r0, or 1/r0 of shard 1.

        Raises: as `shard_of`; InvalidArgument where there is none.
        """
        pods = await self.pods(name)
        found = [pod for pod in pods if pod.name == replica]
        if not found:
            which, slash, rest = replica.rpartition("/")
            named = int(which) if slash and which.isdecimal() else shard
            found = alike(pods, await self.shard_of(name, named) | {names.LABEL_REPLICA: rest})
        if not found:
            raise InvalidArgument(f"{name} has no replica {replica}", remedy="replicas are called r0, r1, ...")
        return found[0]

    async def switch_over(
        self, name: str, timeout_s: float | None, said: Callable[[str], None], shard: int | None = None
    ) -> Moved:
        """Delete the pod of a shard's primary politely, and wait until another one leads.

        Args:
            name: of the service.
            timeout_s: how long to wait; None: as long as it may take.
            said: told what is going on.
            shard: which one; None: the only one.

        Raises: UnknownService, PeerUnreachable, InvalidArgument, OutcomeUnknown.
        """
        old, labels = await self.primary(name, shard), await self.shard_of(name, shard)
        pods = alike(await self.pods(name), labels)
        others = [pod for pod in pods if pod.uid != old.uid and pod.ready and pod.deleted_at is None]
        if not others:
            told = f"no other replica of {name} is ready: nobody could take over"
            raise InvalidArgument(told, remedy="wait until one is, or scale up")
        epoch, began = old.announced.epoch if old.announced is not None else 0, time.monotonic()
        said(f"{old.name} leads in epoch {epoch}; asking it to hand over")
        await self.api.delete(POD, self.namespace, old.name, uid=old.uid)
        if timeout_s is None:
            spec = (await self.service(name)).spec
            timeout_s = SWITCH_S + (handover_wait_s(spec) if spec is not None else 0.0)
        while time.monotonic() - began < timeout_s:
            new = leader(alike(await self.pods(name), labels))
            if new is not None and new.announced is not None and new.uid != old.uid and new.announced.epoch > epoch:
                passed = round(time.monotonic() - began, 2)
                return Moved(before=old.name, after=new.name, epoch=new.announced.epoch, seconds=passed)
            await asyncio.sleep(LOOK_S)
        told = f"no other replica of {name} led within {timeout_s:g} s"
        raise OutcomeUnknown(told, remedy=f"see `kubectl deathless status {name}`")

    async def annotate(self, name: str, key: str, value: str | None) -> None:
        """Set or take away an annotation of a service. Raises: UnknownService."""
        found = await self.service(name)
        body = {"metadata": {"uid": found.uid, "annotations": {key: value}}}
        await self.api.patch(SERVICE, self.namespace, name, body)

    async def make_drill(self, name: str, spec: dict[str, object]) -> None:
        """Make a FailoverDrill."""
        metadata = {"namespace": self.namespace, "name": name}
        await self.api.create(
            {"apiVersion": names.API_VERSION, "kind": names.DRILL_KIND, "metadata": metadata, "spec": spec}
        )

    async def drill(self, name: str) -> DrillResource | None:
        """Give one drill; None: it is gone."""
        raw = await self.api.find(DRILL, self.namespace, name)
        return read_drill(raw) if raw is not None else None

    async def delete_drill(self, name: str) -> None:
        """Delete a drill; what it did is undone first."""
        await self.api.delete(DRILL, self.namespace, name)

    # ---- the front door

    async def context(self, resource: ResourceView) -> ssl.SSLContext | None:
        """Give what checks the service's certificate; None: it shows none."""
        spec = resource.spec
        if spec is not None and spec.tls is not None and spec.tls.issuer == "Off":
            return None
        data = await self._secret(names.client_tls_secret(resource.name))
        return ssl.create_default_context(cadata=data.get("ca.crt", b"").decode())

    async def token(self, resource: ResourceView) -> str:
        """Give the token that callers must show; empty: none."""
        reference = resource.spec.token_secret_ref if resource.spec is not None else None
        if reference is None:
            return ""
        return (await self._secret(reference.name)).get(reference.key, b"").decode().strip()

    async def _secret(self, name: str) -> dict[str, bytes]:
        raw = await self.api.get(SECRET, self.namespace, name)
        return {key: base64.b64decode(value) for key, value in (raw.get("data") or {}).items()}


def alike(pods: list[PodView], labels: dict[str, str]) -> list[PodView]:
    """Give the pods with these labels."""
    return [pod for pod in pods if labels.items() <= pod.labels.items()]


def leader(pods: list[PodView]) -> PodView | None:
    """Give the pod that leads in the highest epoch."""
    leading = [
        pod
        for pod in pods
        if pod.announced is not None and pod.labels.get(names.LABEL_ROLE) == names.ROLE_PRIMARY and not pod.deleted_at
    ]
    return max(leading, key=lambda pod: pod.announced.epoch if pod.announced is not None else 0, default=None)


@asynccontextmanager
async def forwarded(namespace: str, service: str, timeout_s: float) -> AsyncIterator[int]:
    """Forward a local port to the Service's front door by kubectl; yields the port.

    Raises: PeerUnreachable, also when kubectl has not forwarded one within `timeout_s`.
    """
    kubectl = shutil.which("kubectl")
    if kubectl is None:
        raise PeerUnreachable("kubectl is not on the PATH", remedy="install it: it forwards the port")
    words = ("port-forward", "--namespace", namespace, f"service/{service}", f":{names.SERVICE_HTTP_PORT}")
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(kubectl, *words, stdout=pipe, stderr=pipe)
    assert process.stdout is not None
    assert process.stderr is not None
    try:
        line = b""
        with contextlib.suppress(TimeoutError, ValueError):  # the latter: a line without an end
            async with asyncio.timeout(timeout_s):
                line = await process.stdout.readline()
        found = _FORWARDING.search(line)
        if found is None:
            if process.returncode is None:
                process.terminate()
            said = await read_words(process.stderr)
            raise PeerUnreachable(
                f"kubectl port-forward to {service}: {said or 'no answer'}", remedy="check that the service is Ready"
            )
        yield int(found.group(1))
    finally:
        await end_program(process)


async def end_program(process: asyncio.subprocess.Process) -> None:
    """End a program, and drop what it still says: asyncio tells of its end once its pipes are at theirs.

    One that does not end in END_S is left: it hangs in the kernel, or something that it started holds its pipes.
    """
    with contextlib.suppress(ProcessLookupError):
        process.kill()
    try:
        async with asyncio.timeout(END_S):
            for stream in (process.stdout, process.stderr):
                while stream is not None and await stream.read(SAID_BYTES_MAX):
                    continue
            await process.wait()
    except TimeoutError:
        logger.warning(
            "process %d was killed, but it or a process that holds its pipes has not ended; it is left", process.pid
        )
        process._transport.close()  # type: ignore[attr-defined]  # noqa: SLF001  a Process can't be closed otherwise


async def read_words(stream: asyncio.StreamReader) -> str:
    """Give what a program says to its end, up to SAID_BYTES_MAX; empty where it does not end within SAID_S."""
    try:
        async with asyncio.timeout(SAID_S):
            said = await stream.readexactly(SAID_BYTES_MAX)
    except asyncio.IncompleteReadError as error:
        said = error.partial
    except TimeoutError:
        return ""
    return said.decode(errors="replace").strip()


class FrontDoor:
    """The handlers and queries of one service, through its front door.

    Args:
        session: shows the token of callers, where there is one.
        service: whose.
        root: the address of the service, without a slash at its end.
        secure: who is let pass for the service.
        host: the name that its certificate has to have; None: it shows none.
    """

    def __init__(
        self, session: aiohttp.ClientSession, service: str, root: str, secure: ssl.SSLContext | bool, host: str | None
    ) -> None:
        self._session = session
        self._service = service
        self._root = root
        self._secure = secure
        self._host = host

    async def query(self, name: str, key: str, arguments: dict[str, object]) -> object:
        """Ask a query. Raises: as `call`."""
        texts = {each: value if isinstance(value, str) else _json(value) for each, value in arguments.items()}
        url = self._url(name, key, f"?{urlencode(texts)}" if texts else "")
        asked = self._session.get(url, ssl=self._secure, server_hostname=self._host)
        return await self._answer(asked, name, "ask again: a query changes nothing")

    async def call(
        self, handler: str, key: str, arguments: dict[str, object], idempotency_key: str, again: str = ""
    ) -> object:
        """Call a handler.

        Args:
            handler: its name.
            key: of the state; empty for a service of one object.
            arguments: by name.
            idempotency_key: under which it runs once.
            again: what to do where nobody knows the outcome; empty: the same command with the idempotency key.

        Raises: OutcomeUnknown, TooLarge, and what `read_answer` raises.
        """
        sent = {"Idempotency-Key": idempotency_key}
        url = self._url(handler, key)
        asked = self._session.post(url, json=arguments, headers=sent, ssl=self._secure, server_hostname=self._host)
        return await self._answer(asked, handler, again or _again(idempotency_key))

    def _url(self, handler: str, key: str, behind: str = "") -> URL:
        """Give an address as it is to be sent: whoever reads `.` in one as a folder would take it away."""
        path = [quote(each, safe="").replace(".", "%2E") for each in (self._service, key or "-", handler)]
        return URL(f"{self._root}/{'/'.join(path)}{behind}", encoded=True)

    async def _answer(
        self, asked: AbstractAsyncContextManager[aiohttp.ClientResponse], what: str, again: str
    ) -> object:
        try:
            async with asked as answer:
                body = await read_whole(answer, f"{self._service} {what}")
                return read_answer(answer.status, body, again=again)
        except (aiohttp.ClientError, TimeoutError) as error:
            told = f"{type(error).__name__}: {error}".rstrip(": ")
            raise OutcomeUnknown(told, remedy=again) from None


@asynccontextmanager
async def entered(cluster: Cluster, name: str, timeout_s: float) -> AsyncIterator[FrontDoor]:
    """Open the front door of a service, each answer of which is waited for so long.

    Raises: UnknownService, PeerUnreachable.
    """
    resource = await cluster.service(name)
    context, token = await cluster.context(resource), await cluster.token(resource)
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    host = names.server_name(cluster.namespace, name) if context is not None else None
    secure: ssl.SSLContext | bool = context if context is not None else True
    async with forwarded(cluster.namespace, name, timeout_s) as port:
        timeout = aiohttp.ClientTimeout(total=timeout_s)
        async with aiohttp.ClientSession(timeout=timeout, headers=headers, trust_env=False) as session:
            root = f"{'https' if context is not None else 'http'}://127.0.0.1:{port}"
            yield FrontDoor(session, name, root, secure, host)


async def call(
    cluster: Cluster,
    name: str,
    handler: str,
    key: str,
    arguments: dict[str, object],
    *,
    query: bool,
    idempotency_key: str,
    timeout_s: float,
) -> object:
    """Call a handler, or ask a query, through the front door.

    Raises: UnknownService, PeerUnreachable, OutcomeUnknown, TooLarge, and what `read_answer` raises.
    """
    async with entered(cluster, name, timeout_s) as door:
        if query:
            return await door.query(handler, key, arguments)
        return await door.call(handler, key, arguments, idempotency_key)


def fitted(answer: object, kind: type[T]) -> T:
    """Give what an answer says. Raises: InvalidArgument where it says something else."""
    try:
        return msgspec.convert(answer, kind)
    except msgspec.MsgspecError as error:
        raise InvalidArgument(
            f"this version does not know the form of the answer: {error}",
            remedy="use the plugin of the version that the service runs",
        ) from None


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()


def _again(key: str) -> str:
    return f"the same command with --idempotency-key {key} gives the answer, and applies nothing twice"


def parse_arguments(pairs: tuple[str, ...]) -> dict[str, object]:
    """Give the named arguments. Raises: InvalidArgument for what is not NAME=VALUE, or given twice."""
    arguments: dict[str, object] = {}
    for pair in pairs:
        name, equals, text = pair.partition("=")
        if not equals or not name.isidentifier() or name in arguments:
            raise InvalidArgument(f"--arg {pair!r} is not NAME=VALUE, or twice", remedy="for instance: --arg amount=5")
        try:
            arguments[name] = read_json(text.encode(), object)
        except (msgspec.DecodeError, UnicodeEncodeError):
            arguments[name] = text
    return arguments


def read_answer(status: int, body: bytes, *, again: str) -> object:
    """Give the result in an answer.

    Args:
        status: of HTTP.
        body: JSON.
        again: what to do where nobody knows the outcome.

    Raises: the error that the service told, by its code; OutcomeUnknown for what a repetition learns.
    """
    try:
        value = read_json(body, object) if body else None
    except msgspec.DecodeError:
        value = {"error": body.decode(errors="replace")[:300]}
    if status == 200:
        return value
    told = value if isinstance(value, dict) else {}
    text = f"{told.get('type') or ''} {told.get('error') or f'HTTP {status}'}".strip()
    if status in (429, 503, 504, 507):
        raise OutcomeUnknown(text, remedy=again)
    kind = errors_by_code().get(str(told.get("code")), CallRefused if status == 409 else InvalidArgument)
    raise kind(text, remedy=str(told.get("remedy") or "") or None)


def errors_by_code() -> dict[str, type[DeathlessError]]:
    """Give our errors by their codes."""
    found: dict[str, type[DeathlessError]] = {}
    left: list[type[DeathlessError]] = [DeathlessError]
    while left:
        kind = left.pop()
        found.setdefault(kind.code, kind)
        left += kind.__subclasses__()
    return found
