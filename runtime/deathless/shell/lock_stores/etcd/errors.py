"""What can go wrong between a replica and its etcd, sorted by what the caller must do.

    EtcdError                   (all of them are DeathlessErrors too)
    |- EtcdUnavailable          no answer; `outcome_unknown` tells whether the request may have been done
    |- EtcdRefused              a definite no: the same request gets the same answer
    |  |- LeaseNotFound         the lease ended or never was
    |- EtcdAuth                 user, password, certificate or permission is wrong

Why one file: the lock on top releases replies on the strength of an answer (I1), so "no answer" and
"a definite no" may never be taken for each other; here they are different classes.

Guarantees: an error with `outcome_unknown` False means that the request changed nothing. Does not:
classify HTTP answers (`etcd_gateway` does). Imports base only.
"""

from __future__ import annotations

from deathless.base.errors import DeathlessError, Invalid, LockUnavailable, Unauthorized


class EtcdError(DeathlessError):
    """Root of what the etcd client raises."""


class EtcdUnavailable(EtcdError, LockUnavailable):
    """No endpoint gave an answer in time.

    Args:
        message: the last endpoint asked and what it did.
        outcome_unknown: True when the request left this process and may have been, or may still be,
            carried out: read before trying again. False: nothing was done.
    """

    def __init__(self, message: str = "", *, outcome_unknown: bool = False) -> None:
        super().__init__(message)
        self.outcome_unknown = outcome_unknown


class EtcdRefused(EtcdError, Invalid):
    """etcd read the request and said no; nothing was done and a retry gets the same answer."""

    code = "DL3020"
    exit_code = 78
    remedy = "check etcd's quota, version and the settings that name it"


class LeaseNotFound(EtcdRefused):
    """The lease ended (its time passed, or it was revoked) or never was; take a new one."""

    remedy = ""


class EtcdAuth(EtcdError, Unauthorized):
    """etcd refuses this user, password, certificate or the access it asks for; nothing was done."""

    remedy = "check user, password and role of the lock store, and its TLS files"
