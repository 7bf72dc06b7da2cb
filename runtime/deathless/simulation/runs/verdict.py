"""Judges a finished cluster: recovers its log as a fresh process would, replays it, and asks every checker.

Why a replay: the log is the only truth. A fresh shard runs every confirmed message from the first on, without a
crash; what it answers is what every caller must have been answered, and its state what every replica must hold.

Guarantees: uses no part of the cluster's replicas, only disk, lock and evidence. Does not: change the log (collected
segments are put back first). May import engine and below, checkers, and the simulation's parts.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from deathless.base.errors import DeathlessError
from deathless.base.ids import Lsn
from deathless.base.safeguards import ALL_SAFEGUARDS
from deathless.codec.frames import FrameKind, decode_data
from deathless.codec.generations import Upgraded, decode_upgraded
from deathless.codec.messages import PARKED_HEADER, Kind, decode
from deathless.codec.peer_messages import SELF, SELF_SESSION, Outcome, Target, decode_body
from deathless.codec.wire import accepted_invocation
from deathless.core.tables.outbox import Outbox
from deathless.engine.lock.directory_lock import DirectoryLock
from deathless.engine.log.route import Identity
from deathless.engine.log.store import ShardLog
from deathless.engine.ports import Frame, LockView
from deathless.engine.replica.upgrade_steps import begin_generation
from deathless.engine.shard.assembly import open_shard
from deathless.engine.shard.shard import Shard, cut_runs
from deathless.execution.author.service import Service
from deathless.execution.executor import HandlerExecutor
from deathless.simulation.checkers import (
    MODELS,
    InconclusiveError,
    Violation,
    check_conservation,
    check_exactly_once,
    check_linearizable,
    check_liveness,
    check_log_order,
    check_released,
    check_replies,
    check_session_order,
)
from deathless.simulation.checkers.history import Operation
from deathless.simulation.checkers.replies import Request as ReplyKey
from deathless.simulation.nodes.cluster import Cluster
from deathless.simulation.workload.codes import carried
from deathless.simulation.workload.inputs import KEY_PREFIX
from deathless.simulation.workload.lab import NEVER_RUN, Cell, cells_of, decode_result, tag_of
from deathless.simulation.world.disk import Folder

STATES_MAX: Final = 10_000  # of the search for an order; more take too long beside the other checkers


@dataclass(slots=True)
class Recovered:
    """What a fresh process finds in the log."""

    shard: Shard
    executors: list[HandlerExecutor] = field(default_factory=list)  # one of each generation of the code
    frames: dict[tuple[int, ...], bytes] = field(default_factory=dict)  # (first, last lsn) -> chain
    replies: dict[tuple[int, ...], bytes] = field(default_factory=dict)  # (session, seq) -> reply
    sessions: dict[tuple[int, ...], bytes] = field(default_factory=dict)  # (session,) -> nonce
    order: list[tuple[int, int]] = field(default_factory=list)  # (session, seq) by lsn
    received: dict[Target, list[bytes]] = field(default_factory=dict)  # of each peer; SELF: of the service itself
    taken: dict[int, int] = field(default_factory=dict)  # session of a peer -> how many messages of it
    outcomes: list[Outcome] = field(default_factory=list)  # of activities
    tags: list[str] = field(default_factory=list)  # of the messages that were run, each where it ran

    @property
    def cells(self) -> dict[str, Cell]:
        """State of every key."""
        return cells_of(self.shard.executor.state())


def recover(
    cluster: Cluster, outbox: Outbox | None = None, make_executor: type[HandlerExecutor] = HandlerExecutor
) -> Recovered:
    """Replay the whole log in a fresh shard, with `outbox` if one is given.

    Raises: DeathlessError when the log can't be read or does not give what it says.
    """
    disk = cluster.disk
    for path, inode in cluster.shared.archive.items():
        entries = disk.folders.setdefault("log", Folder()).entries
        entries.setdefault(path.removeprefix("log/"), inode)
    view = lock_view(cluster)
    service = view.service
    assert service is not None, "nobody created the service"
    limits = cluster.setup.limits
    filesystem = disk.view("oracle")
    identity = Identity(service.service_id, service.incarnation, service.fence, view.store_id)
    log = ShardLog(filesystem, limits, "oracle", identity)
    beside = cluster.shared.beside

    # What frames gave depends on this switch; all others are on, whatever the run left out.
    safeguards = replace(ALL_SAFEGUARDS, run_input_once=cluster.setup.safeguards.run_input_once)

    def opened(definition: Service) -> Shard:
        sharding, make = beside.sharding, make_executor
        return open_shard(
            definition, limits, service.seed, sharding=sharding, outbox=outbox, make=make, safeguards=safeguards
        )

    found = Recovered(opened(beside.definition))
    _keep_executor(found)
    seen: dict[bytes, None] = {}
    place = found.shard.place
    # As a successor reads it: also what is durable and not yet called confirmed in any header.
    tail = log.read_tail(view.head, place.lsn, place.chain, 0)
    for frame, _ in [*tail.confirmed, *tail.unconfirmed]:
        upgraded = _upgraded_in(frame)
        if upgraded is not None:
            _upgrade(found, frame, upgraded, cluster, opened)
        else:
            _take(found, frame, seen)
    return found


def _upgraded_in(frame: Frame) -> Upgraded | None:
    """Give the record of an upgrade, which has a frame of its own."""
    message = decode(decode_data(frame).blob) if frame.count == 1 else None
    return decode_upgraded(message.args) if message is not None and message.kind == Kind.UPGRADED else None


def _keep_executor(found: Recovered) -> None:
    executor = found.shard.executor
    assert isinstance(executor, HandlerExecutor)
    found.executors.append(executor)


def _upgrade(
    found: Recovered, frame: Frame, upgraded: Upgraded, cluster: Cluster, opened: Callable[[Service], Shard]
) -> None:
    """Go on as the other code does, with a state that is migrated here."""
    code = cluster.shared.beside.code_of(upgraded.to_fingerprint)
    before = cluster.shared.beside.code_of(upgraded.from_fingerprint)
    held = found.shard.snapshot(service="", service_id=b"", incarnation=0, epoch=0, fingerprint=b"")
    found.shard = opened(code.definition)
    _keep_executor(found)
    found.shard.restore(replace(held, state=carried(before, code, held.state)), same_code=False)
    assert upgraded.generation == held.generation.number + 1, f"generation {upgraded.generation} begins"
    assert begin_generation(found.shard, upgraded) == frame.payload, f"lsn {frame.first_lsn}: the record differs"
    found.frames[frame.first_lsn, frame.last_lsn] = frame.chain


def lock_view(cluster: Cluster) -> LockView:
    """Look at the lock, as nobody of the cluster."""
    if cluster.lock_store is not None:
        return cluster.lock_store.read()
    return DirectoryLock(cluster.disk.view("oracle.lock"), process="oracle", fresh_store_id="").view()


def _take(found: Recovered, frame: Frame, seen: dict[bytes, None]) -> None:
    assert frame.kind == FrameKind.DATA
    found.frames[frame.first_lsn, frame.last_lsn] = frame.chain
    lsn = frame.first_lsn
    replies: dict[tuple[int, int], bytes] = {}
    for run, column, _ in found.shard.apply(frame):
        replies.update({(run.session, run.first_seq + index): reply for index, reply in enumerate(column)})
    for run, messages in cut_runs(decode_data(frame)):
        for index, message in enumerate(messages):
            decoded = decode(message)
            place = (run.session, run.first_seq + index)
            if run.session in found.shard.sessions.streams:
                pass  # each has a checker of its own (simulation.runs.streams)
            elif run.session and place not in replies:
                _note_received(found, run.session, message)
            elif not run.session and decoded.kind == Kind.OUTCOME:
                found.outcomes.append(decode_body(Outcome, decoded.args))
            elif run.session:
                found.order.append(place)
                key = decoded.idempotency_key
                accepted = accepted_invocation(replies[place]) is not None
                if (not key or key not in seen) and not accepted and decode_result(replies[place]) not in NEVER_RUN:
                    if key:
                        seen[key] = None
                    found.tags.append(tag_of(decoded.args))
            elif decoded.kind == Kind.REGISTER:
                found.sessions.setdefault((lsn,), decoded.args)
            elif decoded.kind == Kind.PARKED:
                session, seq = PARKED_HEADER.unpack_from(decoded.args)
                if session in found.shard.sessions.streams:
                    pass
                elif (session, seq) in replies:
                    found.order.append((session, seq))
                else:
                    _note_received(found, session, decoded.args[PARKED_HEADER.size :])
            lsn = Lsn(lsn + 1)
    for place, reply in replies.items():
        found.replies.setdefault(place, reply)
    for peer in found.shard.peers.peers():
        found.taken.setdefault(peer.session, 0)


def _note_received(found: Recovered, session: int, message: bytes) -> None:
    """Keep what the log took in from a peer, or from the service itself."""
    target = SELF if session == SELF_SESSION else found.shard.peers.target_of(session)
    assert target is not None, f"session {session} is no peer's"
    found.received.setdefault(target, []).append(message)
    found.taken[session] = found.taken.get(session, 0) + 1


def judge(cluster: Cluster, *, healed_us: int, bound_us: int, allowed: frozenset[str] = frozenset()) -> list[Violation]:
    """Ask every checker.

    Args:
        cluster: at its end, nothing under way.
        allowed: codes of errors that workers may have stopped with.
        healed_us: when the last fault ended.
        bound_us: how long an answer may take from then on.
    """
    violations = [Violation(checker="crash", text=text) for text in cluster.shared.failures]
    violations += stops(cluster, allowed)
    violations += beside(cluster)
    gone = [client.name for client in cluster.clients.values() if client.gone]
    operations = cluster.history.operations
    violations += check_liveness(operations, healed_us=healed_us, bound_us=bound_us, gone=gone)
    try:
        found = recover(cluster)
    except (DeathlessError, AssertionError, OSError) as error:
        return [*violations, Violation(checker="recovery", text=f"{type(error).__name__}: {error}")]
    violations += agreement(cluster, found)
    violations += released(cluster, found)
    violations += check_session_order(found.order, _sent(cluster), _applied_in_order(found))
    applied = [tag for key, cell in found.cells.items() if not key.startswith(KEY_PREFIX) for tag in cell.tags]
    violations += check_exactly_once(operations, applied)
    banks = {key: cell.number for key, cell in found.cells.items() if key.startswith("bank")}
    bank_operations = [op for op in operations if op.keys[0].startswith("bank")]
    violations += check_conservation(bank_operations, banks)
    violations += _linearizable(operations, found)
    return violations


def stops(cluster: Cluster, allowed: frozenset[str]) -> list[Violation]:
    """No worker may find its log, its checkpoint or its own computation broken."""
    return [
        Violation(checker="stopped", text=f"{name} stopped: {text}")
        for name, code, text in cluster.shared.stops
        if code not in allowed
    ]


def beside(cluster: Cluster) -> list[Violation]:
    """No copy of the directory ordered, fed or deposed anybody of the original."""
    return [violation for copy in cluster.copies for violation in copy.violations()]


def agreement(cluster: Cluster, found: Recovered) -> list[Violation]:
    """Every living replica stands where the log ends, with the state that a crash-free replay gives."""
    place = found.shard.place
    state = found.shard.executor.state()
    violations: list[Violation] = []
    for worker in cluster.workers():
        shard, name = worker.running.shard, worker.host.name
        mine = shard.place
        if (mine.lsn, mine.chain, mine.digest) != (place.lsn, place.chain, place.digest):
            text = f"{name} is at lsn {mine.lsn} {mine.digest.hex()}, the log gives {place.lsn} {place.digest.hex()}"
            violations.append(Violation(checker="agreement", text=text))
        elif shard.executor.state() != state or _tables(shard) != _tables(found.shard):
            violations.append(Violation(checker="agreement", text=f"{name} holds another state than the log gives"))
    return violations


def _tables(shard: Shard) -> list[object]:
    """Everything else that is a function of the log."""
    held = [each for each in shard.outbox.snapshot() if each.messages]
    outbox = [(each.service, each.shard, each.first_position, list(each.messages)) for each in held]
    kept = [shard.results.snapshot(), shard.unknown.snapshot()]
    return [shard.sessions.snapshot(), shard.sessions.streams.snapshot(), *kept, shard.peers.snapshot(), outbox]


def released(cluster: Cluster, found: Recovered) -> list[Violation]:
    """What left is in the log as it left."""
    last = found.shard.place.lsn
    logged: dict[str, Mapping[tuple[int, ...], bytes]] = {
        "reply": found.replies,
        "session": found.sessions,
        "frame": found.frames,
        "confirmed": {(lsn,): b"" for lsn in range(last + 1)},
        "taken": {(session, at): b"" for session, count in found.taken.items() for at in range(count + 1)},
    }
    violations = check_released(cluster.tap.released, logged)
    replayed: dict[ReplyKey, bytes] = {(session, seq): reply for (session, seq), reply in found.replies.items()}
    violations += check_replies([(request, reply) for request, reply in cluster.tap.replies], replayed)
    violations += check_replies(cluster.key_replies)
    return violations


def _sent(cluster: Cluster) -> dict[str, list[str]]:
    """What each client meant, but for what another asked for as well: that may have come first."""
    repeated = {key.decode().removeprefix("key-") for key in cluster.repeats}
    return {client.name: [tag for tag in client.sent if tag not in repeated] for client in cluster.clients.values()}


def _applied_in_order(found: Recovered) -> list[str]:
    applied = {tag: None for cell in found.cells.values() for tag in cell.tags}
    return [tag for tag in found.tags if tag in applied]


def _linearizable(operations: list[Operation], found: Recovered) -> list[Violation]:
    """By the log's own order; and by any order, which knows nothing of the log, where the search is not too long."""
    violations: list[Violation] = []
    for name, model in MODELS.items():
        concerned = [op for op in operations if op.keys[0].startswith(name)]
        violations += check_log_order(concerned, found.tags, model)
        with contextlib.suppress(InconclusiveError):
            violations += check_linearizable(concerned, model, states_max=STATES_MAX)
    return violations
