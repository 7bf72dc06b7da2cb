"""What tools may ask of a worker and order: one table of commands, one answer each.

A command of the table gives its answer, raises one of our errors, or gives None where the answer comes later: a
switchover is answered once it is done or refused. Commands about other services, invocations and activities are
`shell.worker.messaging`'s.

Guarantees: an error of a command is the answer to it and nobody else's. Does not: decide anything.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Final

import msgspec

from deathless.base.errors import DeathlessError, InvalidArgument, NotPrimary, UnknownHandler
from deathless.codec.untrusted import JsonReader
from deathless.codec.wire import Admin, AdminReply, Type, struct_packet
from deathless.core import events as ev
from deathless.core.primary.handover import Stage
from deathless.engine.replica.replica_engine import ReplicaEngine
from deathless.shell.upgrade.upgrader import Upgrader
from deathless.shell.worker.messaging import COMMANDS, Messaging
from deathless.shell.worker.parked import list_parked
from deathless.shell.worker.spans import Spans

Answer = Callable[[ev.Conn, Admin], object | None]
_ARGUMENTS: Final = JsonReader(dict[str, str])


class AdminCommands:
    """Answers the commands of tools at one worker.

    Args:
        send: sends bytes to a connection.
        post: takes events for the engine.
        hurry: sends followers what is kept back for them, since a handover waits for what they apply.
        log_status: says how the log's segments are made.
        upgrader: the upgrade that this replica was started for; None: there is none, or it was made before.
    """

    def __init__(
        self,
        engine: ReplicaEngine,
        messaging: Messaging,
        spans: Spans,
        *,
        send: Callable[[ev.Conn, bytes], None],
        post: Callable[[ev.Event], None],
        hurry: Callable[[], None],
        log_status: Callable[[], dict[str, object]] = dict,
        upgrader: Upgrader | None = None,
    ) -> None:
        self._engine = engine
        self._messaging = messaging
        self._spans = spans
        self._send = send
        self._post = post
        self._hurry = hurry
        self._log_status = log_status
        self._upgrader = upgrader
        self._started = time.monotonic()
        self._switchover: tuple[ev.Conn, int] | None = None  # who waits for its end
        self._commands: Mapping[str, Answer] = {
            "switchover": self._switch_over,
            "parked": self._list_parked,
            "status": self._give_status,
            "checkpoint": self._take_checkpoint,
            "try_upgrade": self._try_upgrade,
            **dict.fromkeys(COMMANDS, messaging.answer),
        }

    def run(self, conn: ev.Conn, request: Admin) -> None:
        """Carry a command out and send its answer."""
        try:
            command = self._commands.get(request.command)
            if command is None:
                raise UnknownHandler(f"no command {request.command!r}")
            told = command(conn, request)
        except DeathlessError as error:
            self._answer(conn, request.id, error.code, {"error": error.message})
        else:
            if told is not None:
                self._answer(conn, request.id, "", told)

    def _answer(self, conn: ev.Conn, request: int, code: str, result: object) -> None:
        self._send(conn, struct_packet(Type.ADMIN_REPLY, AdminReply(request, code, msgspec.json.encode(result))))

    # ---- switchover ------------------------------------------------------------------------------------------

    def _switch_over(self, conn: ev.Conn, request: Admin) -> None:
        if self._engine.core.primary is None:
            raise NotPrimary("this replica is not the primary")
        try:
            arguments = _ARGUMENTS.decode(request.arguments or b"{}")
            upgrade = bytes.fromhex(arguments.get("upgrade", ""))
        except (msgspec.MsgspecError, ValueError) as error:
            raise InvalidArgument(f"switchover: {error}", remedy='give {"target": "r1"}, or {}') from None
        self._switchover = conn, request.id
        self._post(ev.SwitchoverOrdered(conn, request.id, arguments.get("target", ""), upgrade))
        self._hurry()

    def switchover_refused(self, conn: ev.Conn, request: int, text: str) -> None:
        """The switchover that somebody waits for does not come about."""
        self._switchover = None
        self._answer(conn, request, NotPrimary.code, {"error": text})

    def ended(self) -> None:
        """The worker ends: a switchover that somebody waits for is done."""
        if self._switchover is not None:
            self._answer(*self._switchover, "", {"done": True})

    # ---- the rest --------------------------------------------------------------------------------------------

    def _take_checkpoint(self, conn: ev.Conn, request: Admin) -> object:
        self._engine.take_checkpoint()
        return {"lsn": self._engine.place.lsn}

    def _try_upgrade(self, conn: ev.Conn, request: Admin) -> None:
        if self._upgrader is None or not self._engine.core.upgrade:
            raise InvalidArgument("this replica makes no upgrade", remedy="ask one whose role is upgrader")
        self._upgrader.try_out(lambda told: self._answer(conn, request.id, "", told))

    def _list_parked(self, conn: ev.Conn, request: Admin) -> object:
        return list_parked(self._engine.shard.parked)

    def _give_status(self, conn: ev.Conn, request: Admin) -> object:
        return self.status()

    def status(self) -> dict[str, object]:
        """Counters and positions, for tools and metrics."""
        engine, core = self._engine, self._engine.core
        counters: dict[str, object] = {}
        letting_go = ""
        if core.primary is not None:
            p = core.primary
            letting_go = "" if p.departure.stage is Stage.STAYING else p.departure.stage.value
            counters = {name: getattr(p.counters, name) for name in type(p.counters).__slots__}
            counters["witness_behind_seconds"] = engine.witness.behind_s
            counters["witness_missing"] = int(engine.witness.missing)
            clock = engine.outside.clock
            counters["clock_ahead_seconds"] = p.clock_stepped_us(clock.now(), clock.wall_us()) / 1e6
            counters.update(confirmed=p.confirmed_lsn, followers=p.followers, checkpointer=p.checkpointer, full=p.full)
            counters.update(self._log_status())
        return {
            "replica": core.replica,
            "role": core.role,
            "epoch": core.known_epoch,
            "lsn": engine.place.lsn,
            "sessions": len(engine.shard.sessions),
            "keys": len(engine.shard.keys),
            "states": engine.shard.executor.count(),
            "parked": len(engine.shard.parked),
            "uptime_s": time.monotonic() - self._started,
            "counters": counters,
            "letting_go": letting_go,
            "generation": engine.place.generation.number,
            "upgrade": self._upgrader.status() if self._upgrader is not None and core.upgrade else {},
            "witness": engine.witness.status(),
            "messaging": {**self._messaging.status(), **self._spans.status()},
        }
