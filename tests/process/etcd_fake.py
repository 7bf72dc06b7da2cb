"""A stand-in for etcd's JSON gateway with the faults that a real one can't be asked for.

A `FakeStore` is the keys, revisions and transactions of a cluster; a `FakeMember` serves one over real HTTP on a
port of its own. A test plans faults per path (`member.plan`): an answer that is lost before or after the request
took effect, an error, garbage, silence. Watches are scripted line by line.

Only what the tests use is here; test_etcd_client_faults.py runs the same client against a real etcd.
"""

from __future__ import annotations

import asyncio
import base64
import copy
import enum
import json
from collections import defaultdict, deque
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

from aiohttp import web

CLUSTER_ID = 0xC1


class Fault(enum.Enum):
    """What happens to one request."""

    LOST = "the connection ends before anything was done"
    ANSWER_LOST = "the request is done, then the connection ends"
    SILENCE = "no answer for ever"
    DONE_THEN_SILENCE = "the request is done, no answer for ever"


@dataclass(frozen=True)
class Refusal:
    """An error answer; status as etcd's gateway maps it."""

    code: int
    message: str
    status: int = 400


NO_LEADER = Refusal(14, "etcdserver: no leader", 503)
LEADER_CHANGED = Refusal(14, "etcdserver: leader changed", 503)
TIMED_OUT = Refusal(14, "etcdserver: request timed out", 503)
BAD_TOKEN = Refusal(16, "etcdserver: invalid auth token", 401)

# An event holds the request up until it is set.
Plan = Fault | Refusal | bytes | asyncio.Event | web.Response


def b64(data: bytes) -> str:
    """Bytes as etcd's JSON has them."""
    return base64.b64encode(data).decode()


def unb64(text: str) -> bytes:
    """And back."""
    return base64.b64decode(text)


@dataclass
class Entry:
    """One key."""

    value: bytes
    create: int
    mod: int
    version: int
    lease: int = 0


@dataclass
class FakeStore:
    """Keys and revisions of one cluster."""

    cluster_id: int = CLUSTER_ID
    version: str = "3.6.16"
    revision: int = 1
    keys: dict[bytes, Entry] = field(default_factory=dict)
    leases: set[int] = field(default_factory=set)
    granted: int = 1000  # the last lease's id: none is given twice

    def snapshot(self) -> FakeStore:
        """A backup."""
        return copy.deepcopy(self)

    def restore(self, backup: FakeStore) -> None:
        """Go back to a backup, revision included, as etcd does; the cluster id may stay the same."""
        restored = backup.snapshot()
        self.revision, self.keys, self.leases = restored.revision, restored.keys, restored.leases

    def header(self) -> dict[str, str]:
        """The header of an answer."""
        return {"cluster_id": str(self.cluster_id), "member_id": "7", "revision": str(self.revision), "raft_term": "2"}

    def put(self, key: bytes, value: bytes, lease: int = 0) -> None:
        """One put as a change of its own."""
        self.revision += 1
        self._put(key, value, lease)

    def _put(self, key: bytes, value: bytes, lease: int) -> None:
        old = self.keys.get(key)
        create, version = (old.create, old.version + 1) if old else (self.revision, 1)
        self.keys[key] = Entry(value, create, self.revision, version, lease)

    def execute(self, path: str, body: dict[str, Any]) -> dict[str, Any] | Refusal:
        """Carry out one request."""
        match path:
            case "kv/range":
                return {"header": self.header(), **self._range(body)}
            case "kv/put":
                return self._write([{"request_put": body}])
            case "kv/deleterange":
                return self._write([{"request_delete_range": body}])
            case "kv/txn":
                holds = all(self._holds(one) for one in body.get("compare", ()))
                return self._write(body.get("success" if holds else "failure", []), succeeded=holds)
            case "maintenance/status":
                return {"header": self.header(), "version": self.version}
            case _:
                return self._lease_request(path, int(body.get("ID", 0)), body)

    def _lease_request(self, path: str, lease: int, body: dict[str, Any]) -> dict[str, Any] | Refusal:
        match path:
            case "lease/grant":
                lease = self.granted = self.granted + 1
                self.leases.add(lease)
                return {"header": self.header(), "ID": str(lease), "TTL": str(body["TTL"])}
            case "lease/keepalive":
                alive = {"TTL": "10"} if lease in self.leases else {}
                return {"result": {"header": self.header(), "ID": str(lease), **alive}}
            case "lease/revoke":
                if lease not in self.leases:
                    return Refusal(5, "etcdserver: requested lease not found", 404)
                self.leases.remove(lease)
                gone = [key for key, entry in self.keys.items() if entry.lease == lease]
                self.revision += bool(gone)
                for key in gone:
                    del self.keys[key]
                return {"header": self.header()}
            case _:
                raise AssertionError(path)

    def _write(self, ops: list[dict[str, Any]], *, succeeded: bool = True) -> dict[str, Any] | Refusal:
        puts = [op["request_put"] for op in ops if "request_put" in op]
        if any(int(put.get("lease", 0)) not in self.leases | {0} for put in puts):
            return Refusal(5, "etcdserver: requested lease not found", 404)
        if any("request_range" not in op for op in ops):
            self.revision += 1
        answers: list[dict[str, Any]] = []
        for op in ops:
            if put := op.get("request_put"):
                self._put(unb64(put["key"]), unb64(put.get("value", "")), int(put.get("lease", 0)))
                answers.append({"response_put": {"header": {"revision": str(self.revision)}}})
            elif delete := op.get("request_delete_range"):
                gone = self._matching(delete)
                for key in gone:
                    del self.keys[key]
                answers.append({"response_delete_range": {"deleted": str(len(gone))}})
            else:
                answers.append({"response_range": self._range(op["request_range"])})
        return {"header": self.header(), "succeeded": succeeded, "responses": answers}

    def _matching(self, body: dict[str, Any]) -> list[bytes]:
        key, end = unb64(body["key"]), unb64(body.get("range_end", ""))
        if not end:
            return [key] if key in self.keys else []
        return sorted(one for one in self.keys if one >= key and (end == b"\0" or one < end))

    def _range(self, body: dict[str, Any]) -> dict[str, Any]:
        found = self._matching(body)
        kvs = [
            {
                "key": b64(key),
                "value": b64(self.keys[key].value),
                "create_revision": str(self.keys[key].create),
                "mod_revision": str(self.keys[key].mod),
                "version": str(self.keys[key].version),
                "lease": str(self.keys[key].lease),
            }
            for key in found
        ]
        return {"kvs": kvs, "count": str(len(kvs))}

    def _holds(self, compare: dict[str, Any]) -> bool:
        entry = self.keys.get(unb64(compare["key"]))
        if compare["target"] == "VALUE":
            return entry is not None and entry.value == unb64(compare["value"])
        mine, field_name = {
            "CREATE": (entry.create if entry else 0, "create_revision"),
            "MOD": (entry.mod if entry else 0, "mod_revision"),
        }[compare["target"]]
        given = int(compare[field_name])
        return {"EQUAL": mine == given, "GREATER": mine > given, "LESS": mine < given}[compare["result"]]


class FakeMember:
    """One member: an HTTP server in front of a store."""

    def __init__(self, store: FakeStore | None = None, *, password: str | None = None) -> None:
        self.store = store or FakeStore()
        self.password = password  # None: authentication is off
        self.tokens: set[str] = set()
        self.logins = 0
        self.requests: list[tuple[str, dict[str, Any], dict[str, str]]] = []
        self._plans: defaultdict[str, deque[Plan]] = defaultdict(deque)
        self._gone = asyncio.Event()
        self._came = asyncio.Condition()
        self._runner: web.AppRunner | None = None
        self.url = ""

    def plan(self, path: str, *plans: Plan) -> None:
        """What happens to the next requests of `path`; then all goes well again."""
        self._plans[path].extend(plans)

    def count(self, path: str) -> int:
        """Requests of `path` so far."""
        return sum(one[0] == path for one in self.requests)

    async def wait_count(self, path: str, count: int) -> None:
        """Wait until so many requests of `path` have come."""
        async with self._came:
            await self._came.wait_for(lambda: self.count(path) >= count)

    async def __aenter__(self) -> Self:
        app = web.Application()
        app.router.add_post("/v3/{path:.*}", self._handle)
        self._runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}"
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._gone.set()
        assert self._runner is not None
        await self._runner.cleanup()

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        path = request.match_info["path"]
        body = json.loads(await request.read())
        self.requests.append((path, body, dict(request.headers)))
        async with self._came:
            self._came.notify_all()
        plan = self._plans[path].popleft() if self._plans[path] else None
        if isinstance(plan, asyncio.Event):
            await plan.wait()
        if plan is Fault.LOST:
            return self._cut(request)
        if plan is Fault.SILENCE:
            return await self._silence(request)
        if isinstance(plan, Refusal):
            return self._refuse(plan)
        if isinstance(plan, bytes):
            return web.Response(body=plan)
        if isinstance(plan, web.Response):
            return plan
        if path == "auth/authenticate":
            return self._login(body)
        if self.password is not None and request.headers.get("Authorization", "") not in self.tokens:
            return self._refuse(BAD_TOKEN)
        answer = self.store.execute(path, body)
        if plan is Fault.ANSWER_LOST:
            return self._cut(request)
        if plan is Fault.DONE_THEN_SILENCE:
            return await self._silence(request)
        return self._refuse(answer) if isinstance(answer, Refusal) else web.json_response(answer)

    def _login(self, body: dict[str, Any]) -> web.Response:
        if self.password is None:
            return self._refuse(Refusal(9, "etcdserver: authentication is not enabled"))
        if body["password"] != self.password:
            return self._refuse(Refusal(3, "etcdserver: authentication failed, invalid user ID or password"))
        self.logins += 1
        token = f"token.{self.logins}"
        self.tokens = {token}
        return web.json_response({"header": self.store.header(), "token": token})

    async def _silence(self, request: web.Request) -> web.StreamResponse:
        await self._gone.wait()
        return self._cut(request)

    @staticmethod
    def _refuse(refusal: Refusal) -> web.Response:
        return web.json_response({"code": refusal.code, "message": refusal.message}, status=refusal.status)

    @staticmethod
    def _cut(request: web.Request) -> web.StreamResponse:
        if request.transport is not None:
            request.transport.abort()
        return web.Response()
