"""The switches of the operator's safeguards, for tests that prove each one by leaving it out.

As `deathless.base.safeguards` is for replicas: all are True, no setting, flag or annotation reaches this class, and a
test sets one field to False and shows what breaks. Guarantees: each field is read by the plan that keeps the safeguard.
Does not: hold what there is no second way to do. Imports nothing of ours.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanSafeguards:
    """What a plan must not leave out; one field each, True everywhere but in the test that breaks it."""

    settings_by_content: bool = True  # what pods mount of ours has a name for each content
    keep_mounted: bool = True  # nothing that a pod mounts is deleted
    needs_hold_back: bool = True  # a StatefulSet is not applied without what its pods can't start without
    roll_one_at_a_time: bool = True  # no pod is rolled while another is going or missing
    primary_last: bool = True  # the primary is rolled when every other replica is
    ready_needs_the_spec: bool = True  # Ready is True only where the whole spec is in force
    claim_first: bool = True  # a service that is another installation's is left alone
    upgrade_rolls_nothing: bool = True  # no pod of the accepted code is rolled before the new code serves
    upgrade_noted: bool = True  # an upgrade that is not wanted any more stays noted while it may still be made
    upgraders_stay: bool = True  # pods that made an upgrade are there until the others are of the new code


ALL_PLAN_SAFEGUARDS: Final = PlanSafeguards()
