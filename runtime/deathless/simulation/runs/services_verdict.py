"""Judges services that talk: replays each log as a fresh process would, and compares them with each other.

    per pair      what the sender's log says was sent is what the receiver's log says was got: each once, in order (I3)
    per request   it has one reply (I5)
    per visit     it left its tags in the states of all services exactly once, or, unanswered, at most once
    per caller    what it was told is what a crash-free replay of the logged order gives (I5, I6)
    per activity  it is in the log before it begins, and one that must run at most once did (I1, I7)
    on the wire   whatever left any primary for a peer, a deposed one too, stands in the replay at that place (I1, I2);
                  what a peer was told was taken in was, and it was told on the connection that counts (I1, I3)
    per replica   it holds the state, the outbox and the digests that a crash-free replay gives (I6)

Guarantees: uses no part of the clusters' replicas but their places, disks, locks and evidence. May import as `verdict`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from deathless.base.errors import DeathlessError
from deathless.codec.messages import Kind, decode
from deathless.codec.peer_messages import SELF, ActivityStart, Outputs, Reference, Request, Target, decode_body
from deathless.codec.snapshot import OutboxRecord
from deathless.codec.wire import PacketReader, Status, Type, decode_batch
from deathless.core.primary.admission import cut_messages
from deathless.core.tables.outbox import Outbox
from deathless.execution.executor import HandlerExecutor
from deathless.simulation.checkers import (
    Began,
    Violation,
    check_activities,
    check_answers,
    check_liveness,
    check_pair,
    check_told,
    check_wire,
)
from deathless.simulation.checkers.history import Outcome
from deathless.simulation.nodes.cluster import Cluster
from deathless.simulation.runs.verdict import Recovered, agreement, beside, recover, released, stops
from deathless.simulation.workload.visits import Visit, applied_tags, torn_maps
from deathless.simulation.world.tap import PACKET_BYTES_MAX


class KeptOutbox(Outbox):
    """An outbox that keeps for the verdict what it was ever given."""

    __slots__ = ("ever",)

    def __init__(self) -> None:
        super().__init__()
        self.ever: dict[Target, list[bytes]] = {}

    def extend(self, target: Target, messages: Sequence[bytes]) -> None:
        """See Outbox, whose every message comes this way."""
        self.ever.setdefault(target, []).extend(messages)
        super().extend(target, messages)

    def restore(self, records: Iterable[OutboxRecord]) -> None:
        """See Outbox: who goes on with what is held here gives nothing by it."""
        ever, self.ever = self.ever, {}
        super().restore(records)
        self.ever = ever


class KeptStarts(HandlerExecutor):
    """An executor that keeps for the verdict which activities its turns ever asked for."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self.ever: list[ActivityStart] = []

    def take_outputs(self) -> Outputs | None:
        """See Executor."""
        outputs = super().take_outputs()
        if outputs is not None:
            self.ever += outputs.starts
        return outputs


def judge_services(
    clusters: Mapping[str, Cluster],
    visits: Mapping[str, Visit],
    *,
    healed_us: int,
    bound_us: int,
    allowed: Mapping[str, frozenset[str]],
) -> list[Violation]:
    """Ask every checker; arguments as for `verdict.judge`, by service."""
    violations: list[Violation] = []
    found: dict[str, Recovered] = {}
    sent: dict[str, KeptOutbox] = {}
    for name, cluster in clusters.items():
        violations += [Violation(checker="crash", text=f"{name}: {text}") for text in cluster.shared.failures]
        violations += stops(cluster, allowed[name])
        violations += beside(cluster)
        gone = [client.name for client in cluster.clients.values() if client.gone]
        operations = cluster.history.operations
        violations += check_liveness(operations, healed_us=healed_us, bound_us=bound_us, gone=gone)
        sent[name] = KeptOutbox()
        try:
            found[name] = recover(cluster, sent[name], KeptStarts)
        except (DeathlessError, AssertionError, OSError) as error:
            text = f"{name}: {type(error).__name__}: {error}"
            return [*violations, Violation(checker="recovery", text=text)]
        violations += agreement(cluster, found[name])
        violations += released(cluster, found[name])
        violations += _results(name, cluster, found[name])
        violations += check_wire(name, _left(cluster), {_name(t): each for t, each in sent[name].ever.items()})
        violations += check_told(cluster.tap.told)
        violations += _activities(cluster, found[name])
    violations += _between({name: cluster.shared.beside.target for name, cluster in clusters.items()}, found, sent)
    violations += _effects(clusters, visits, found)
    return violations


def _results(name: str, cluster: Cluster, found: Recovered) -> list[Violation]:
    """Every result that a caller was told is the one that the replay gives."""
    texts = [
        f"{name}: the result of invocation {invocation} was told as {reply!r}, the log gives {expected!r}"
        for invocation, reply in cluster.results
        if (expected := found.shard.results.get(invocation)) != reply
    ]
    return [Violation(checker="results", text=text) for text in texts]


def _left(cluster: Cluster) -> Iterator[tuple[str, int, bytes]]:
    """Give (receiver, position, message) of everything that left any replica for a peer."""
    for target, data in cluster.shared.left:
        for kind, body in PacketReader(PACKET_BYTES_MAX).feed(data):
            assert kind == Type.BATCH
            batch = decode_batch(body)
            for position, message in enumerate(cut_messages(batch), batch.run.first_seq):
                yield _name(target), position, message


def _name(target: Target) -> str:
    return "/".join(map(str, target))


def _activities(cluster: Cluster, found: Recovered) -> list[Violation]:
    asked = [start for each in found.executors if isinstance(each, KeptStarts) for start in each.ever]
    began = [Began((s.invocation, s.operation), s.attempt, s.at_most_once) for s in cluster.shared.began]
    logged = [((s.invocation, s.operation), s.attempt) for s in asked]
    gave = [((o.invocation, o.operation), o.attempt) for o in found.outcomes if o.reply[0] == Status.OK]
    return check_activities(began, logged, gave)


def _between(
    targets: Mapping[str, Target], found: Mapping[str, Recovered], sent: Mapping[str, KeptOutbox]
) -> list[Violation]:
    """Each message of each pair was taken in once, in the order in which it was sent; each request has one answer."""
    violations: list[Violation] = []
    for receiver, recovered in found.items():
        for sender, outbox in sent.items():
            ours = sender == receiver
            was_sent = outbox.ever.get(SELF if ours else targets[receiver], [])
            was_got = recovered.received.get(SELF if ours else targets[sender], [])
            violations += check_pair(sender, receiver, was_sent, was_got)
            back = sent[receiver].ever.get(SELF if ours else targets[sender], [])
            answers = [message for message in back if message[0] == Kind.RESPONSE]
            violations += check_answers(
                f"{receiver} of {sender}",
                _references(was_got, Kind.REQUEST),
                zip(_references(answers, Kind.RESPONSE), answers, strict=True),
                _references(was_got, Kind.CANCEL),
            )
    return violations


def _references(messages: Iterable[bytes], wanted: Kind) -> list[Reference]:
    """Give whose operation each message of a kind is about."""
    found: list[Reference] = []
    for message in messages:
        decoded = decode(message)
        if decoded.kind == wanted == Kind.REQUEST:
            request = decode_body(Request, decoded.idempotency_key)
            found.append(Reference(request.invocation, request.operation))
        elif decoded.kind == wanted:
            found.append(decode_body(Reference, decoded.idempotency_key))
    return found


def _effects(
    clusters: Mapping[str, Cluster], visits: Mapping[str, Visit], found: Mapping[str, Recovered]
) -> list[Violation]:
    """Every visit that was answered was made whole, once; any other whole or not at all."""
    counts = Counter(applied_tags([recovered.shard.executor.state() for recovered in found.values()]))
    texts = [f"visited {count} times: {tag}" for tag, count in counts.items() if count > 1]
    known: set[str] = set()
    for cluster in clusters.values():
        for operation in cluster.history.operations:
            visit = visits[operation.tag]
            tags = list(visit.tags())
            known.update(tags)
            made = [tag for tag in tags if counts[tag]]
            if operation.outcome is Outcome.OK and operation.result != visit.expected:
                texts.append(f"gave {operation.result}, not {visit.expected}: {operation}")
            if operation.outcome is Outcome.OK and not made:
                texts.append(f"answered and lost: {operation}")
            if operation.outcome is Outcome.REFUSED and made:
                texts.append(f"refused and yet made: {operation}")
            if made and len(made) < len(tags):
                missing = sorted(set(tags) - set(made))
                texts.append(f"made in part, without {missing}: {operation}")
    for name, recovered in found.items():
        texts += [
            f"the map of {name}/{key} holds something else" for key in torn_maps(recovered.shard.executor.state())
        ]
    texts += [f"visited, and nobody asked for it: {tag}" for tag in counts if tag not in known]
    return [Violation(checker="effects", text=text) for text in texts]
