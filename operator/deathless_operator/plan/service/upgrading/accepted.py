"""Which code of a service was accepted, which one serves, and which one it is upgraded to.

    accepted        stands on the StatefulSet; where an upgrade to the code noted there was made, that code is it
    serves          what replicas announce; a pod says a fingerprint only once it runs the log by that code
    upgraded to     stands on the StatefulSet beside the accepted code, and the fingerprint on pods made meanwhile

A service of several shards has all of it for each of them: they are upgraded one after another. The snapshot says which
shard is meant.

Guarantees: what the image in a template says is not asked, since anybody may edit it; the code that serves behind an
upgrade is the accepted one, whatever the spec says by now. Does not: decide (`image_check`, `upgrade`). Imports model
and base only.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field
from typing import Final, Literal, NamedTuple

import msgspec

from deathless.base.config import PeerConfig
from deathless.base.limits import REPLICATED
from deathless.codec.untrusted import read_json
from deathless_operator.model import names
from deathless_operator.model.status import ShardStatus
from deathless_operator.model.values import objects, text
from deathless_operator.plan.actions import Action
from deathless_operator.plan.service.objects import Code, UpgradingTo
from deathless_operator.plan.service.pods import container, replicas, serves
from deathless_operator.plan.snapshot import Announcement, ChildView, PodView, Snapshot

OTHER_CODE: Final = "DL4009"
GENERATION_ENDED: Final = "DL1024"
REFUSED: Final = (OTHER_CODE, GENERATION_ENDED)
"""What a replica says whose code the log is not of any more."""
LOSSES_DIGITS_MAX: Final = 6
Outcome = Literal["Accepted", "Checking", "Refused", "Unanswered", "Upgrading", "CalledOff"]
Stage = Literal["", "Waits", "Ramps", "Prepares", "Ready", "Leads"]
"""How far an upgrade is: it waits to begin, for the ramp, pods start and try, it waits for a word, is handed over."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Drive:
    """A pod that is to lead through an upgrade."""

    key: str  # hash of what is asked for
    attempt: int  # 1, 2, ...
    fingerprint: str  # of the code that is to lead
    only_compatible: bool
    upgraders: tuple[str, ...]  # names of replicas
    prepare_only: bool = False  # everything is tried, and nothing is handed over
    shard: dict[str, str] = field(default_factory=dict)  # label that tells the shard; empty: there is one


class Losses(NamedTuple):
    """How often an upgrade was called off because a replica was lost meanwhile."""

    key: str  # hash of what is asked for
    times: int

    def note(self) -> str:
        """Give it as it stands on the StatefulSet."""
        return f"{self.key} {self.times}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What code runs, and what is said about the code that the spec names."""

    code: Code  # to make the objects from
    outcome: Outcome
    reason: str  # CamelCase
    message: str
    actions: tuple[Action, ...] = field(default=())
    requeue_s: float | None = None
    upgrade: UpgradingTo | None = None  # pods are made from this code, those of the accepted code stay as they are
    drive: Drive | None = None
    begins: bool = False  # the upgrade
    losses: Losses | None = None  # kept on the StatefulSet
    stage: Stage = ""  # of an upgrade
    left_behind: str = ""  # kept on the StatefulSet: mark of the spec's code, which is no order any more


def accepted_code(snapshot: Snapshot) -> Code | None:
    """Give the code that was accepted last; None where nothing was.

    It stands on the shard's StatefulSet and in the status, so that whoever deletes the one by hand has no code accepted
    unseen. The image in a StatefulSet's template is not asked: anybody may edit it.
    """
    made = made_upgrade(snapshot)
    if made is not None:
        return made.code
    return noted_code(snapshot)


def noted_code(snapshot: Snapshot) -> Code | None:
    """Give the code that stands as accepted, on the StatefulSet or in the status."""
    child = snapshot.stateful_set()
    if child is None or names.MODULE_ANNOTATION not in child.annotations:
        return _told_code(snapshot) or _running_code(snapshot)
    image = child.annotations.get(names.IMAGE_ANNOTATION, "") or _image_of(child)  # of an operator before it
    module = child.annotations[names.MODULE_ANNOTATION]
    limits: dict[str, int | float] = {}
    peers: dict[str, int] = {}
    with contextlib.suppress(msgspec.MsgspecError):  # somebody wrote there: the fingerprint decides
        limits = read_json(child.annotations.get(names.LIMITS_ANNOTATION, "{}").encode(), dict[str, int | float])
        peers = read_json(child.annotations.get(names.PEERS_ANNOTATION, "{}").encode(), dict[str, int])
    return Code(image=image, module=module, limits=limits, peers=peers) if image else None


def noted_upgrade(snapshot: Snapshot) -> UpgradingTo | None:
    """Give the code that the StatefulSet is noted to be upgraded to, made or not; None: there is none."""
    child = snapshot.stateful_set()
    noted = child.annotations.get(names.UPGRADING_TO_ANNOTATION, "") if child is not None else ""
    if not noted:
        return None
    try:
        return read_json(noted.encode(), UpgradingTo)
    except msgspec.MsgspecError:  # somebody wrote there
        return None


def noted_losses(snapshot: Snapshot, key: str) -> Losses:
    """Give how often the upgrade that `key` asks for was spoilt; what is noted of another one does not count."""
    child = snapshot.stateful_set()
    of, _, times = (child.annotations.get(names.LOSSES_ANNOTATION, "") if child is not None else "").partition(" ")
    return Losses(key, int(times) if of == key and times.isdecimal() and len(times) <= LOSSES_DIGITS_MAX else 0)


def left_behind(snapshot: Snapshot, mark: str) -> str:
    """Give the mark of the spec's code where an upgrade went past it; empty: the spec's code is an order.

    It stops being one when a LiveUpgrade brings other code than the spec names, and is one again as soon as the spec
    names anything else than at that time.

    Args:
        snapshot: of the service.
        mark: of the code that the spec names (`mark_of`).
    """
    made, child = made_upgrade(snapshot), snapshot.stateful_set()
    if made is not None:
        noted = made.instead
    elif child is not None:
        noted = child.annotations.get(names.LEFT_BEHIND_ANNOTATION, "")
    else:
        noted = _besides(told_of(snapshot)).left_behind
    return mark if noted == mark else ""


def made_upgrade(snapshot: Snapshot) -> UpgradingTo | None:
    """Give the code that the StatefulSet is noted to be upgraded to, once that upgrade was made.

    Replicas that serve announce it. Where nobody serves, and those of the code of before say that the log is of other
    code, it was made as well: its upgraders were taken away before anybody saw them lead.
    """
    noted = noted_upgrade(snapshot)
    return noted if noted is not None and noted.is_told_by(serving_fingerprint(snapshot)) else None


def _is_superseded(snapshot: Snapshot) -> bool:
    return any(says_refused(pod) and not upgrades_to(pod) for pod in replicas(snapshot).values())


def _is_believed(pod: PodView, told: Announcement) -> bool:
    """Tell whether a replica that is not ready tells what serves."""
    if upgrades_to(pod):
        return told.role == names.ROLE_PRIMARY and not told.condition
    return not says_refused(pod)


def says_refused(pod: PodView) -> bool:
    """Tell whether a replica says that the log is of other code than its own, or of a later generation."""
    told = pod.announced
    return told is not None and not {told.condition, told.problem}.isdisjoint(REFUSED)


def refused_everywhere(snapshot: Snapshot) -> frozenset[str]:
    """Give the replicas' fingerprints where each of them says that the log is of other code; empty: not each does.

    Then the accepted code is not the log's, whatever is noted: the note may be gone with its StatefulSet.
    """
    pods = replicas(snapshot).values()
    if any(map(serves, pods)) or not all(map(says_refused, pods)):
        return frozenset()
    return frozenset(pod.announced.fingerprint for pod in pods if pod.announced is not None)


def upgrades_to(pod: PodView) -> str:
    """Give the fingerprint that a pod was made to upgrade to; empty: it was made as any replica."""
    return pod.annotations.get(names.UPGRADING_TO_ANNOTATION, "")


def kept_note(snapshot: Snapshot) -> UpgradingTo | None:
    """Give the code of an upgrade that is not made and not wanted any more, but may still be made; None: none may.

    It stays noted for as long as a pod of it is there, and until replicas of the code of before serve again: one that
    was ordered to go on before would else lead with code that nobody knows.
    """
    noted = noted_upgrade(snapshot)
    if noted is None or made_upgrade(snapshot) is not None:
        return None
    pods = replicas(snapshot).values()
    over = any(map(serves, pods)) and not any(map(upgrades_to, pods))
    return None if over else noted


def _image_of(child: ChildView) -> str:
    containers = objects(child.raw, "spec", "template", "spec", "containers")
    return next((text(found, "image") for found in containers if text(found, "name") == names.CONTAINER), "")


class AcceptedWith(msgspec.Struct, frozen=True, omit_defaults=True):
    """What the status keeps of accepted code, beside image and module."""

    limits: dict[str, int | float] = {}
    peers: dict[str, int] = {}
    left_behind: str = ""  # see there


def accepted_with(code: Code, left_behind: str = "") -> str:
    """Give that of a code, as JSON; empty where all of it is as by default."""
    found = AcceptedWith(limits=code.limits, peers=code.peers, left_behind=left_behind)
    return "" if found == AcceptedWith() else msgspec.json.encode(found, order="sorted").decode()


def told_of(snapshot: Snapshot) -> ShardStatus:
    """Give the shard's status as it was written last; where it says nothing about code, what is said of the service."""
    known = snapshot.resource.status
    whole = ShardStatus(
        shard=snapshot.shard,
        image=known.image,
        module=known.module,
        accepted_with=known.accepted_with,
        fingerprint=known.fingerprint,
    )
    if snapshot.shards == 1:
        return msgspec.structs.replace(
            whole,
            primary=known.primary,
            epoch=known.epoch,
            service_id=known.service_id,
            incarnation=known.incarnation,
            last_takeover_time=known.last_takeover_time,
        )
    told = next((found for found in known.shards if found.shard == snapshot.shard), None)
    if told is None or told.module or told.fingerprint:
        return told or whole
    return msgspec.structs.replace(
        told,
        image=whole.image,
        module=whole.module,
        accepted_with=whole.accepted_with,
        fingerprint=whole.fingerprint,
    )


def _told_code(snapshot: Snapshot) -> Code | None:
    """Give the code that the status tells of."""
    told = told_of(snapshot)
    if not told.image or not told.module:
        return None
    besides = _besides(told)
    return Code(image=told.image, module=told.module, limits=besides.limits, peers=besides.peers)


def _besides(told: ShardStatus) -> AcceptedWith:
    """Read what a status keeps beside image and module; somebody may have written there: the fingerprint decides."""
    try:
        return read_json((told.accepted_with or "{}").encode(), AcceptedWith)
    except msgspec.MsgspecError:
        return AcceptedWith()


class _Configured(msgspec.Struct, frozen=True):
    """What a replica.json tells of the accepted code; what else stands there is passed over."""

    module: str = ""
    limits: dict[str, int | float] = {}
    peers: tuple[PeerConfig, ...] = ()


def _running_code(snapshot: Snapshot) -> Code | None:
    """Give the code of replicas that serve, by their image and settings: nothing else tells what was accepted."""
    pods = replicas(snapshot).values()
    serving = [(one.image, pod) for pod in pods if serves(pod) and (one := container(pod))]
    if not serving or not serving[0][0]:
        return None
    image, pod = serving[0]
    mounted = (snapshot.child(*each) for each in sorted(pod.mounts) if each[0] == "ConfigMap")
    child = next((each for each in mounted if each is not None), None)
    if child is None:
        return None
    try:
        found = read_json(text(child.raw, "data", names.CONFIG_FILE).encode(), _Configured)
    except msgspec.MsgspecError:
        return None
    limits = {name: value for name, value in found.limits.items() if name in REPLICATED}
    peers = {peer.name: peer.shards for peer in found.peers if peer.shards > 1}
    return Code(image=image, module=found.module, limits=limits, peers=peers) if found.module else None


def serving_fingerprint(snapshot: Snapshot) -> str:
    """Give the fingerprint of the code that the shard has run; empty: nobody ever served.

    Replicas that are ready tell it; then those that have served in the last epoch that is known, and are not refused
    for their code, then the status, which anybody may have written. An upgrader that is not ready tells it only where
    it leads: one whose upgrade fails in its last step says the new fingerprint for a moment.
    """
    known = told_of(snapshot)
    spoken = [
        (pod.ready, told.epoch, told.fingerprint)
        for pod in replicas(snapshot).values()
        if (told := pod.announced) is not None
        and told.fingerprint
        and (pod.ready or (told.epoch > 0 and told.epoch >= known.epoch and _is_believed(pod, told)))
    ]
    served, _, fingerprint = max(spoken, default=(False, 0, known.fingerprint))
    noted = noted_upgrade(snapshot) if not served and _is_superseded(snapshot) else None
    return noted.fingerprint if noted is not None else fingerprint
