"""The two errors of a binding: the coordinator broke the protocol, or the application did.

Why it exists: the first is nothing that an application can mend, the second is a bug of the application that the
protocol would punish much later. Does not: end anything. Imports base.
"""

from __future__ import annotations

from deathless.base.errors import InvalidUse


class CoordinatorWrong(InvalidUse):
    """The coordinator sent what the protocol does not allow."""

    remedy = "end this process: coordinator and application of different protocols can't go on"


class NotAllowedNow(InvalidUse):
    """The application called something that the protocol does not allow at this time; nothing was sent."""

    remedy = "see the table of `deathless.protocols.ambrosia_binding.binding`"
