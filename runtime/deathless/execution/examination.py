"""What of a checkpoint would not fit a code: all of it by name, before that code runs anything of it.

    meet(service, limits, seed, snapshot.state, snapshot.invocations).examination

Every handler that waits is run again, the arguments of every message that waits for its key are decoded, and the
schedules are compared. It is done in an executor of its own, so that nothing of the caller's changes. Tools tell what
it gives before they let other code go on; an upgrade gives it the checkpoint of the version before with a Translation.

Guarantees: a function of the code and the checkpoint; nothing is sent, logged or started. Does not: look at the states
of keys that no handler waits at. Imports base and codec.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from deathless.base.limits import Limits
from deathless.base.shards import Sharding
from deathless.execution.author.service import Service
from deathless.execution.executor import HandlerExecutor, Hide, nothing_hidden
from deathless.execution.invocations.carrying import CarriedOn
from deathless.execution.invocations.misfits import UnfitInvocation
from deathless.execution.invocations.schedules import ScheduleChange
from deathless.execution.invocations.translation import IDENTITY, Translation
from deathless.execution.turn.running import PAGE_BYTES, Cells
from deathless.execution.values.key_table import NoKeys


class OpenOperation(NamedTuple):
    """A call or an activity that is under way, and what the code expects it to give."""

    invocation: int
    number: int
    service: str  # that was called; empty: it is an activity of ours
    name: str  # of the handler, or of the activity
    result: object  # annotation that its result is decoded by; None: nothing was said


@dataclass(frozen=True, slots=True, kw_only=True)
class Examination:
    """What was found."""

    invocations: int  # handlers that have begun and wait
    messages: int  # that wait for their key
    misfits: Sequence[UnfitInvocation]  # ascending by invocation
    carried: Sequence[CarriedOn]  # that did not fit and go on as their author says, likewise
    operations: Sequence[OpenOperation]  # of those that fit, in order
    schedules: Sequence[ScheduleChange]  # new, changed and gone ones

    def counts(self) -> Mapping[tuple[str, str], int]:
        """How many misfits there are, by (code word, handler), the most frequent first."""
        return dict(Counter((misfit.code, misfit.handler) for misfit in self.misfits).most_common())


class Met(NamedTuple):
    """What came of a meeting."""

    examination: Examination
    suspended: list[bytes]  # the same invocations and schedules, in the words of that code


def meet(
    service: Service,
    limits: Limits,
    seed: bytes,
    state: Mapping[bytes, bytes],
    suspended: Sequence[bytes],
    *,
    sharding: Sharding | None = None,
    translation: Translation = IDENTITY,
    hide: Hide = nothing_hidden,
) -> Met:
    """Meet a checkpoint with other code than made it.

    Args:
        service: that code.
        limits: of the executor.
        seed: 32 bytes of the service.
        state: of the checkpoint, in the shape that this code expects.
        suspended: its invocations and schedules, as they are.
        sharding: which shard this is; None: of a service of one shard.
        translation: of what `suspended` holds.
        hide: called around the turns that are run again.

    Raises: CorruptCheckpoint; InvalidService as HandlerExecutor.
    """
    executor = HandlerExecutor(service, limits, seed, NoKeys(), Cells(bytearray(PAGE_BYTES)), hide, sharding)
    executor.restore(dict(state), suspended, same_code=False, translation=translation)
    waiting = executor.crowd()
    misfits = [*executor.restoration.misfits(), *executor.restoration.unfit_messages()]
    found = Examination(
        invocations=waiting.invocations - waiting.waiting,
        messages=waiting.waiting,
        misfits=sorted(misfits, key=_id_of),
        carried=executor.restoration.carried(),
        operations=[OpenOperation(*each) for each in executor.restoration.open_operations()],
        schedules=executor.restoration.schedule_changes(),
    )
    kept = executor.suspended()
    executor.discard()
    return Met(found, kept)


def _id_of(misfit: UnfitInvocation) -> int:
    return misfit.invocation
