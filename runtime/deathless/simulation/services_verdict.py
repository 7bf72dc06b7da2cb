"""Judges services that talk: replays each log as a fresh process would, and compares them with each other.

    per pair      what the sender's log says was sent is what the receiver's log says was got: each once, in order (I3)
    per visit     it left its tags in the states of all services exactly once, or, unanswered, at most once
    per caller    what it was told is what a crash-free replay of the logged order gives (I5, I6)
    on the wire   whatever left any primary for a peer, deposed ones too, stands in the replay at that position (I1, I2)

Guarantees: uses no part of the clusters' replicas but their places, disks, locks and evidence. May import as `verdict`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from deathless.base.errors import DeathlessError
from deathless.codec.peer_messages import SELF, Target
from deathless.codec.wire import PacketReader, Type, decode_batch
from deathless.core.admission import cut_messages
from deathless.core.outbox import Outbox
from deathless.simulation.checkers import Violation, check_liveness
from deathless.simulation.checkers.history import Outcome
from deathless.simulation.cluster import Cluster
from deathless.simulation.tap import PACKET_BYTES_MAX
from deathless.simulation.verdict import Recovered, agreement, recover, released, stops
from deathless.simulation.visits import Visit, applied_tags


class KeptOutbox(Outbox):
    """An outbox that keeps for the verdict what it was ever given."""

    __slots__ = ("ever",)

    def __init__(self) -> None:
        super().__init__()
        self.ever: dict[Target, list[bytes]] = {}

    def append(self, target: Target, message: bytes) -> int:
        """See Outbox."""
        self.ever.setdefault(target, []).append(message)
        return super().append(target, message)


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
        gone = [client.name for client in cluster.clients.values() if client.gone]
        operations = cluster.history.operations
        violations += check_liveness(operations, healed_us=healed_us, bound_us=bound_us, gone=gone)
        sent[name] = KeptOutbox()
        try:
            found[name] = recover(cluster, sent[name])
        except (DeathlessError, AssertionError, OSError) as error:
            text = f"{name}: {type(error).__name__}: {error}"
            return [*violations, Violation(checker="recovery", text=text)]
        violations += agreement(cluster, found[name])
        violations += released(cluster, found[name])
        violations += _results(name, cluster, found[name])
        violations += _wire(name, cluster, sent[name])
    violations += _pairs(found, sent)
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


def _wire(name: str, cluster: Cluster, sent: KeptOutbox) -> list[Violation]:
    texts: list[str] = []
    for target, data in cluster.shared.left:
        meant = sent.ever.get(target, [])
        for kind, body in PacketReader(PACKET_BYTES_MAX).feed(data):
            assert kind == Type.BATCH
            batch = decode_batch(body)
            for position, message in enumerate(cut_messages(batch), batch.run.first_seq):
                if position > len(meant) or meant[position - 1] != message:
                    texts.append(f"{name} sent to {target.service} at {position} what its log does not have there")
    return [Violation(checker="wire", text=text) for text in texts]


def _pairs(found: Mapping[str, Recovered], sent: Mapping[str, KeptOutbox]) -> list[Violation]:
    """Each message of each pair was taken in once, in the order in which it was sent, and none is missing."""
    texts: list[str] = []
    for receiver, recovered in found.items():
        for sender, outbox in sent.items():
            target = SELF if sender == receiver else Target(receiver, 0)
            was_sent = outbox.ever.get(target, [])
            was_got = recovered.received.get("" if sender == receiver else sender, [])
            if was_sent != was_got:
                at = next((i for i, (a, b) in enumerate(zip(was_sent, was_got, strict=False)) if a != b), None)
                where = f"first at {at + 1}" if at is not None else "at the end"
                texts.append(f"{sender} sent {len(was_sent)} messages to {receiver}, which got {len(was_got)}: {where}")
    return [Violation(checker="pairs", text=text) for text in texts]


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
    texts += [f"visited, and nobody asked for it: {tag}" for tag in counts if tag not in known]
    return [Violation(checker="effects", text=text) for text in texts]
