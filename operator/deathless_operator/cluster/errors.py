"""What can go wrong between the operator and the API server, by what the caller does about it.

    DeathlessError
    |- ApiUnreachable   (RetryLater) no answer: the queue tries again
    |  |- ApiFailed     429, 5xx, or a write without an answer: not now, or not this one object, such as one whose
    |                   webhook is down
    |- ApiRefused       (Invalid)    the API server refused the request
    |  |- NotFound      404: the object is gone
    |  |- Conflict      409: somebody else wrote first, holds the field, or the name is taken
    |  |- Expired       410: a version that the API server has forgotten: list again
    |  |- Forbidden     401, 403: the operator may not do this: its role lacks a rule
    |  |- Unacceptable  400, 422: the object itself is wrong, trying again is useless
    |- NoCluster        (Invalid)    neither in a pod nor with a kubeconfig
    |- LeaseLost        (Fenced)     another operator may lead now: this process ends

Guarantees: `refusal` turns every answer of 400 and above into exactly one of these. Does not retry: that is
`api`'s work for what is harmless to repeat, and the queue's for the rest.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from deathless.base.errors import Fenced, Invalid, RetryLater

# Answers that ask for patience: too many requests, and an API server (or a proxy before it) that is not up.
LATER = frozenset({429, 500, 502, 503, 504})


class ApiUnreachable(RetryLater):
    """The API server gave no usable answer in time; nothing is known about the last request's effect."""

    code = "DL6001"
    remedy = "the operator retries automatically; replicas serve and take over without it"


class ApiFailed(ApiUnreachable):
    """The API server answered and did not do this one thing: an admission webhook does not answer, or says "later".

    Args:
        message: the API server's own words, with verb and object before them.
        status: HTTP status, one of LATER; 0: it ended the connection instead, as it does where a write of one object
            takes too long.
        reason: the API's machine-readable word, such as `InternalError`; empty when it gave none.
    """

    def __init__(self, message: str, *, status: int, reason: str = "") -> None:
        super().__init__(message)
        self.status = status
        self.reason = reason


class ApiRefused(Invalid):
    """The API server answered with a refusal.

    Args:
        message: the API server's own words, with verb and object before them.
        status: HTTP status.
        reason: the API's machine-readable word, such as `AlreadyExists`; empty when it gave none.
    """

    code = "DL6002"
    remedy = "see the message; add a missing permission to the operator's role"

    def __init__(self, message: str, *, status: int, reason: str = "") -> None:
        super().__init__(message)
        self.status = status
        self.reason = reason


class NotFound(ApiRefused):
    """The object, or its kind, does not exist."""


class Conflict(ApiRefused):
    """Another writer was first, owns a field, or has taken the name."""


class Expired(ApiRefused):
    """A list's or watch's version is too old."""


class Forbidden(ApiRefused):
    """The operator's account may not do this."""


class Unacceptable(ApiRefused):
    """The object breaks its schema or a rule."""


class NoCluster(Invalid):
    """The address of the API server is not configured, or its configuration is invalid."""

    code = "DL6003"
    remedy = "run in a pod with a service account, or name a kubeconfig with --kubeconfig or KUBECONFIG"


class LeaseLost(Fenced):
    """The lease could not be renewed in time; another operator may lead from now on."""

    code = "DL6004"
    remedy = "do nothing: the process ends and its pod restarts; another operator is the leader meanwhile"


_CLASSES: dict[int, type[ApiRefused]] = {
    400: Unacceptable,
    401: Forbidden,
    403: Forbidden,
    404: NotFound,
    409: Conflict,
    410: Expired,
    422: Unacceptable,
}


def refusal(what: str, status: int, body: Mapping[str, Any]) -> ApiRefused | ApiUnreachable:
    """Return the error for an answer.

    Args:
        what: verb and object, `apply ConfigMap shop/bank-config`.
        status: HTTP status, 400 or above.
        body: the `Status` object of the answer, or an empty mapping.
    """
    said = f"{what}: {body.get('message') or f'HTTP {status}'}"
    reason = str(body.get("reason") or "")
    if status in LATER:
        return ApiFailed(said, status=status, reason=reason)
    return _CLASSES.get(status, ApiRefused)(said, status=status, reason=reason)
