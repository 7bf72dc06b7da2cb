"""Readings of "log, confirm, deliver, and compare what comes back": the switches of ``foreign_model``.

Why it exists: each field is a rule that the design (0030) prescribes, or a bound of the model; the defaults are the
design. A reading that changes one of them must break, or the rule is not needed.

Imports nothing of ours. Pure.
"""

from dataclasses import dataclass
from enum import StrEnum


class Witness(StrEnum):
    """When what an application emits again is compared with what its receiver has."""

    BEFORE_FIRST_BYTE = "the receiver's items are compared before the first byte leaves"
    ON_FORGETTING = "an item is compared when its receiver has confirmed it"
    NEVER = "positions alone count"


class Welcome(StrEnum):
    """What a receiver tells a sender that connects."""

    ALL_ADMITTED = "it answers once all that it admitted is confirmed"
    CONFIRMED = "it answers at once, with what is confirmed"


class Impulse(StrEnum):
    """What becomes of what an application emits without an input."""

    NONE = "there are none"
    LOGGED_FIRST = "it is logged before it has any effect, and goes out in a lane of its own, in the order of the log"
    IN_ONE_COUNT = "it goes out at once, counted with everything else"


class Application(StrEnum):
    """What the application is like in every process but the first."""

    SAME = "it emits the same"
    FEWER = "it emits nothing for the first input"
    CLOCK = "it puts a clock into what it emits"


class Successor(StrEnum):
    """Who takes over."""

    STANDBY = "one that has been following"
    COLD = "one that starts from the newest checkpoint"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """The defaults are the design, within small bounds."""

    inputs: int = 2
    successor: Successor = Successor.STANDBY
    application: Application = Application.SAME
    impulse: Impulse = Impulse.NONE
    # Only what is confirmed is delivered; else all that is written.
    deliver_confirmed: bool = True
    witness: Witness = Witness.BEFORE_FIRST_BYTE
    welcome: Welcome = Welcome.ALL_ADMITTED
    # A confirmation in the log says what was confirmed, and not how many.
    trim_has_chain: bool = True
    # What was emitted is counted at the Checkpoint message; else when the checkpoint was ordered.
    count_at_message: bool = True
    # A checkpoint holds the outputs that are not confirmed.
    output_in_checkpoint: bool = True
    # A receiver hears nobody any more whom the newest sender has replaced.
    fences: bool = True
    # An application that is behind its receiver is waited for; else that is an error.
    waits_behind: bool = True
