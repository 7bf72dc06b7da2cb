"""A worker's other services and activities: what its engine and its tools ask for of them.

    engine --dial, send, drop--> PeerLinks --> other services
           --start, stop-------> Activities --> worker processes
    tools  --invocations, orders, peers--> here --> engine

Both are made when they are first needed: a follower, and a service that calls nobody, has neither. Guarantees: all of
it is gone after `close`, which the worker calls when it ends, deposed or not. Does not: decide anything.
"""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Final, TypeVar

import msgspec

from deathless.base.config import ReplicaConfig
from deathless.base.errors import CorruptFrame, InvalidArgument, InvocationUnknown, NotPrimary
from deathless.base.foreign.binding import INPUTS
from deathless.base.limits import Limits
from deathless.codec.messages import decode
from deathless.codec.peer_messages import (
    DISCARD,
    DROP_INPUT,
    FORGET_STREAM,
    REDELIVER,
    RETRY,
    RETRY_INPUT,
    RUN_INPUT,
    SELF,
    SETTLE,
    SKIP_INPUT,
    Adopt,
    Given,
    InvocationView,
    Order,
    PeerHello,
    Target,
    decode_body,
    encode_body,
)
from deathless.codec.snapshot import UndeliveredRecord, UnknownRecord
from deathless.codec.untrusted import read_json, read_msgpack
from deathless.codec.wire import (
    Admin,
    PeerIntroduction,
    ReplyError,
    Status,
    Type,
    decode_struct,
    ok_reply,
    struct_packet,
)
from deathless.core import events as ev
from deathless.engine.replica.host import EngineHost
from deathless.engine.replica.replica_engine import ReplicaEngine
from deathless.shell.directory.adopted import let_outside_go, read_adoption
from deathless.shell.worker.activities import Activities, worker_command
from deathless.shell.worker.outward import Outward
from deathless.shell.worker.peer_links import PeerLinks, shards_of
from deathless.shell.worker.side_processes import list_sinks, list_sources
from deathless.shell.worker.streams import list_streams

SHOWN_MAX = 1000  # invocations in one answer, the oldest ones
WAITS_SHOWN_MAX = 16  # operations of each that it waits for
UNKNOWN_SHOWN_MAX = 1000  # activities of unknown outcome in one answer, the last ones
UNDELIVERED_SHOWN_MAX = 200  # messages that drivers gave up, in one answer, so that it fits a packet
UNKNOWN_CHARS_MAX = 512  # of each name and key in it, so that an answer fits a packet
HISTORY_MAX = 1000  # things that an invocation was given, in one answer, the last ones
SHOWN_BYTES_MAX = 2048  # of a value in it; of a longer one its size is told, so that an answer fits a packet
_OF_INPUTS = (RETRY_INPUT, SKIP_INPUT, RUN_INPUT, DROP_INPUT, FORGET_STREAM)
ORDERS = ("cancel", "kill", "resume", RETRY, SETTLE, REDELIVER, DISCARD, *_OF_INPUTS)
_LOG = logging.getLogger("deathless.activities")
T = TypeVar("T", bound=msgspec.Struct)
OUTBOX_CALM_S: Final = 5.0  # an outbox that has had room for so long is told to have some
RESUME_OUTSIDE: Final = "resume-outside"
COMMANDS = frozenset(
    {
        "invocations",
        "invocation",
        "order",
        "peers",
        "adopt-peer",
        "schedules",
        "sinks",
        "sources",
        "streams",
        "unknown",
        "undelivered",
        RESUME_OUTSIDE,
    }
)


class Messaging:
    """A worker's connections to other services, and its activities.

    Args:
        config: of the replica.
        host: of its engine; neither is asked before the engine runs.
        now: monotonic seconds.
    """

    def __init__(
        self,
        config: ReplicaConfig,
        limits: Limits,
        host: EngineHost,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._config = config
        self._limits = limits
        self._host = host
        self._now = now
        self._full_until = 0.0  # monotonic seconds; until then the outbox is told to be full
        self._links: PeerLinks | None = None
        self._activities: Activities | None = None
        adoption = read_adoption(config.directory)
        own = () if config.binding is None else (INPUTS.name,)  # its program's rows do not leave the service
        inside = (*adoption.forked_with, *own)
        self.outward = Outward(self, config.service, held=adoption.hold_outside, inside=inside)

    @property
    def _engine(self) -> ReplicaEngine:
        return self._host.engine

    @property
    def links(self) -> PeerLinks:
        """Connections to the services we send to."""
        if self._links is None:
            self._links = PeerLinks(
                self._config,
                introduce=self._introduce,
                tell=self._host.post,
                chance=random.SystemRandom(),
                packet_bytes_max=4 * self._limits.frame_bytes_max,
            )
        return self._links

    @property
    def activities(self) -> Activities:
        """Activities that run beside us."""
        if self._activities is None:
            self._activities = Activities(
                worker_command(self._config),
                workers=self._config.activities.workers,
                tell=self._host.post,
                traceparent=self._engine.shard.executor.traceparent,
            )
        return self._activities

    def _introduce(self, target: Target) -> bytes:
        service = self._engine.service
        config = self._config
        hello = PeerHello(config.service, config.shard, service.service_id, service.incarnation)
        core = self._engine.core
        if core.primary is None:
            return struct_packet(Type.PEER_HELLO, PeerIntroduction(hello, 0))
        # The epoch is ours, also when a successor was heard of.
        said = core.primary.messaging.outreach.introduction(target, hello, core.primary.epoch)
        return struct_packet(Type.PEER_HELLO, said)

    def close(self) -> None:
        """End every connection and every activity."""
        if self._links is not None:
            self._links.close()
        if self._activities is not None:
            self._activities.close()

    # ---- what tools ask --------------------------------------------------------------------------------------

    def answer(self, conn: ev.Conn, request: Admin) -> object:
        """Give what a tool is answered; None: the core answers once it is confirmed.

        Raises: NotPrimary, InvalidArgument, InvocationUnknown; the tool is told.
        """
        if self._engine.core.primary is None:
            raise NotPrimary("this replica is not the primary")
        try:
            told = read_json(request.arguments or b"{}", dict[str, str])
            match request.command:
                case "invocations":
                    return self._list(int(told.get("from", "0")))
                case "invocation":
                    return self._show(int(told["invocation"]))
                case "order":
                    self._host.post(ev.OrderReceived(conn, request.id, self._order(told)))
                case "unknown":
                    return list_unknown(self._engine.shard.unknown.snapshot())
                case "undelivered":
                    return list_undelivered(self._engine.shard.undelivered.snapshot(), int(told.get("from", "0")))
                case "streams":
                    streams = self._engine.shard.sessions.streams
                    above, stream = int(told.get("above", "0")), int(told["stream"]) if "stream" in told else None
                    return list_streams(streams, told["source"], int(told.get("from", "0")), above=above, stream=stream)
                case "sources":
                    return list_sources(self._config, int(told.get("from", "0")))
                case "sinks":
                    return list_sinks(self._config)
                case "schedules":
                    views = self._engine.shard.executor.schedules()
                    return {"schedules": views, "nowUs": self._engine.place.time_us}
                case "peers":
                    return {"peers": self.peers()}
                case "resume-outside":
                    return {"resumed": self._resume_outside()}
                case _:
                    self._host.post(ev.OrderReceived(conn, request.id, self._adopt(told)))
        except (msgspec.MsgspecError, CorruptFrame, KeyError, ValueError, OverflowError, RecursionError) as error:
            raise InvalidArgument(f"{request.command}: {error}") from None
        return None

    def _resume_outside(self) -> bool:
        """Let go what is held, once adopted.json says so: a later primary reads it there. Tells whether any was."""
        held = let_outside_go(self._config.directory) or self.outward.held
        self.outward.let_go()
        return held

    def begin_reign(self) -> None:
        """Let go what an operator let go while this replica followed."""
        if self.outward.held and not read_adoption(self._config.directory).hold_outside:
            self.outward.let_go()

    def _list(self, first: int) -> dict[str, object]:
        executor = self._engine.shard.executor
        listed = [brief(view) for view in executor.invocations(first, SHOWN_MAX)]
        return {"count": executor.invocation_count(), "invocations": listed, "nowUs": self._engine.place.time_us}

    def _show(self, invocation: int) -> dict[str, object]:
        for view in self._engine.shard.executor.invocations(invocation, 1):
            if view.invocation == invocation:
                return {"invocation": view, "nowUs": self._engine.place.time_us, **self._history(invocation)}
        raise InvocationUnknown(f"no invocation {invocation} waits here")

    def _history(self, invocation: int) -> dict[str, object]:
        history = self._engine.shard.executor.history(invocation, HISTORY_MAX)
        assert history is not None, "it is there, as its view is"
        given = [{**describe_reply(one.reply), **_where(one)} for one in history.given]
        return {"arguments": shown(history.arguments), "given": given, "givenCount": history.count}

    def _order(self, told: dict[str, str]) -> Order:
        command = told["command"]
        if command not in ORDERS:
            raise InvalidArgument(f"no order {command!r}")
        value = ok_reply(msgspec.msgpack.encode(read_json(told.get("value", "null").encode(), object)))
        if len(value) > self._limits.reply_bytes_max:
            raise InvalidArgument(f"a value of {len(value)} bytes, at most {self._limits.reply_bytes_max}")
        invocation, operation = int(told["invocation"]), int(told.get("operation", "0"))
        if min(invocation, operation) < 0:
            raise InvalidArgument("ids begin at 1")
        return _checked(Order(command, invocation, operation, value if command == "resume" else b""))

    def _adopt(self, told: dict[str, str]) -> Adopt:
        service_id = bytes.fromhex(told["service_id"])
        target = Target(told["service"], int(told.get("shard", "0")))
        return _checked(Adopt(*target, service_id, int(told["incarnation"]), target in self._differing()))

    def _differing(self) -> set[Target]:
        """Give the peers with which we have not one history."""
        primary = self._engine.core.primary
        return primary.messaging.differing() if primary is not None else set()

    def report_unknown(self, records: Sequence[UnknownRecord]) -> None:
        """Warn of activities that may have been done."""
        for record in records:
            _LOG.warning("outcome of an activity is unknown", extra=describe_unknown(record))

    # ---- what is shown ---------------------------------------------------------------------------------------

    def peers(self) -> list[dict[str, object]]:
        """Say of each other service how it stands, both ways, by name."""
        shard, primary = self._engine.shard, self._engine.core.primary
        links = {Target(each.service, each.shard): each for each in self._links.standing()} if self._links else {}
        troubles = self._links.troubles if self._links is not None else {}
        problems: dict[Target, str] = {}
        if primary is not None:
            problems = {view.target: view.problem for view in primary.messaging.outreach.views() if view.problem}
            problems |= primary.messaging.peering.refused()
        sends = [target for target in shard.outbox.targets() if target != SELF]
        known = {peer.target: peer for peer in shard.peers.peers()}
        drivers = {Target(driver.name, 0) for driver in self._config.drivers}
        held_back = primary.admission.held_back if primary is not None else None
        found: list[dict[str, object]] = []
        for target in sorted({*links, *known, *problems, *sends, *drivers}):
            link, peer = links.get(target), known.get(target)
            session = shard.sessions.get(peer.session) if peer is not None else None
            found.append(
                {
                    "service": target.service,
                    "shard": target.shard,
                    "driver": target in drivers,
                    "connected": link is not None and link.connected,
                    "idle": link is None and target not in problems,
                    "awayS": round(link.since_s, 1) if link is not None and not link.connected else None,
                    "address": link.address if link is not None else "",
                    "sent": shard.outbox.next_position(target) - 1,
                    "lag": shard.outbox.next_position(target) - shard.outbox.first_position(target),
                    "received": session.next_seq - 1 if session is not None else 0,
                    "incarnation": peer.incarnation if peer is not None else 0,
                    "serviceId": peer.service_id.hex() if peer is not None else "",
                    "heldBack": held_back.why(peer.session) if held_back is not None and peer is not None else "",
                    "problem": problems.get(target) or (link.problem if link is not None else ""),
                    "lastProblem": troubles.get(target, (0, ""))[1],
                    "errors": troubles.get(target, (0, ""))[0],
                }
            )
        return found

    def outbox_full(self) -> bool:
        """Does this primary refuse calls for want of room in its outbox, or did it until OUTBOX_CALM_S ago?

        With peers that take less than is sent there is room again and again for a moment; told as it is, the service's
        condition would change as often.
        """
        primary, now = self._engine.core.primary, self._now()
        if primary is None:
            self._full_until = 0.0
        elif primary.outbox_full:
            self._full_until = now + OUTBOX_CALM_S
        return now < self._full_until

    def status(self) -> dict[str, object]:
        """Give numbers for metrics."""
        shard = self._engine.shard
        crowd = shard.executor.crowd()
        leads = self._engine.core.primary is not None
        found: dict[str, object] = {
            "invocations": crowd.invocations,
            "waiting_messages": crowd.waiting,
            "invocations_held": shard.executor.held_count(),
            "suspended_bytes": crowd.bytes,
            "outbox_bytes": shard.outbox.bytes,
            "outbox_memory_bytes": shard.outbox.memory_bytes,
            "outbox_spill_refused": int(shard.outbox.refused),
            "outcomes_unknown": len(shard.unknown),
            "messages_undelivered": len(shard.undelivered),
            "outside_held": int(self.outward.held),
            "activities_running": self._activities.running if self._activities is not None else 0,
        }
        if leads:
            found["outbox_full"] = int(self.outbox_full())
            everybody = self.peers()
            peers = [each for each in everybody if not each["driver"]]  # those have numbers of their own
            names = [self._shown(str(each["service"]), int(str(each["shard"]))) for each in peers]
            found["peer_held_back"] = {
                name: int(bool(each["heldBack"])) for name, each in zip(names, peers, strict=True)
            }
            differing = self._differing()
            found["peer_history_differs"] = {
                name: int(Target(str(each["service"]), int(str(each["shard"]))) in differing)
                for name, each in zip(names, peers, strict=True)
            }
            found["peer_lag_messages"] = {name: each["lag"] for name, each in zip(names, peers, strict=True)}
            found["peer_connected"] = {
                name: int(bool(each["connected"])) for name, each in zip(names, peers, strict=True)
            }
            found |= _of_drivers([each for each in everybody if each["driver"]])
        return found

    def _shown(self, service: str, shard: int) -> str:
        """Give a peer's name for metrics: `stock`, or `stock/1` where it has several shards."""
        return service if shards_of(self._config, service) == 1 else f"{service}/{shard}"


def _of_drivers(peers: Sequence[Mapping[str, object]]) -> dict[str, object]:
    """Give numbers of drivers for metrics, by their names; nothing where there are none."""
    if not peers:
        return {}
    read: dict[str, Callable[[Mapping[str, object]], int]] = {
        "driver_connected": lambda each: int(bool(each["connected"])),
        "driver_idle": lambda each: int(bool(each["idle"])),
        "driver_effects": lambda each: int(str(each["sent"])) - int(str(each["lag"])),
        "driver_lag_messages": lambda each: int(str(each["lag"])),
        "driver_errors": lambda each: int(str(each["errors"])),
        "driver_problem": lambda each: int(bool(each["problem"])),
    }
    return {name: {str(each["service"]): value(each) for each in peers} for name, value in read.items()}


def brief(view: InvocationView) -> InvocationView:
    """Give it for a list: of what it waits for the first few and how many more, so that an answer fits a packet."""
    more = len(view.waits_for) - WAITS_SHOWN_MAX
    if more <= 0:
        return view
    return msgspec.structs.replace(view, waits_for=(*view.waits_for[:WAITS_SHOWN_MAX], f"and {more} more"))


def list_unknown(records: Sequence[UnknownRecord]) -> dict[str, object]:
    """What an operator is told of all activities that may have been done: the last ones, and how many there are."""
    return {"unknown": [describe_unknown(one) for one in records[-UNKNOWN_SHOWN_MAX:]], "count": len(records)}


def describe_unknown(record: UnknownRecord) -> dict[str, object]:
    """What an operator sees of an activity that may have been done."""
    most = UNKNOWN_CHARS_MAX
    return {
        "invocation": record.invocation, "operation": record.operation, "handler": record.handler[:most],
        "key": record.key.decode(errors="replace")[:most], "activity": record.activity[:most],
        "activityKey": record.activity_key[:most], "lsn": record.lsn, "atUs": record.at_us,
    }  # fmt: skip


def list_undelivered(records: Sequence[UndeliveredRecord], first: int = 0) -> dict[str, object]:
    """What an operator is told of messages that drivers gave up, from id `first` on, and how many there are."""
    listed = [record for record in records if record.id]
    return {
        "undelivered": [describe_undelivered(one) for one in listed if one.id >= first][:UNDELIVERED_SHOWN_MAX],
        "count": len(listed),
    }


def describe_undelivered(record: UndeliveredRecord) -> dict[str, object]:
    """What an operator sees of a message that a driver gave up."""
    most = UNKNOWN_CHARS_MAX
    _, method, key, _, args = decode(record.message)
    return {
        "id": record.id, "driver": record.service, "position": record.position, "atUs": record.at_us,
        "method": method.decode(errors="replace")[:most], "key": key.decode(errors="replace")[:most],
        "why": record.why[:most], "bytes": len(record.message), "arguments": shown(args) if args else {},
    }  # fmt: skip


def _where(given: Given) -> dict[str, object]:
    return {
        "operation": given.operation, "what": given.what or "cancelled", "asked_us": given.asked_us,
        "lsn": given.lsn, "at_us": given.at_us,
    }  # fmt: skip


def describe_reply(reply: bytes) -> dict[str, object]:
    """Give a reply for people: its value as JSON, or the error's code, type and text; always its size."""
    found: dict[str, object] = {"bytes": len(reply) - 1}
    if reply[0] == Status.OK:
        return {**found, "value": shown(reply[1:])}
    try:
        error = decode_struct(ReplyError, reply[1:])
    except CorruptFrame:
        return {**found, "error": "the reply can't be read"}
    return {**found, "code": error.code, "type": error.type, "error": error.text[:SHOWN_BYTES_MAX]}


def shown(encoded: bytes) -> object:
    """Give a msgpack value for JSON; None for one that is too long, or that JSON knows no word for."""
    if len(encoded) > SHOWN_BYTES_MAX:
        return None
    try:
        return msgspec.Raw(msgspec.json.encode(read_msgpack(encoded, object)))
    except (msgspec.MsgspecError, TypeError, UnicodeError):
        return None


def _checked(record: T) -> T:
    """Give a record that reads back as it stands: what does not would stop whoever logs it.

    Raises: CorruptFrame, OverflowError.
    """
    return decode_body(type(record), encode_body(record))
