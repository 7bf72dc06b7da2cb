"""The etcd errors say what the caller must do by their class."""

from __future__ import annotations

import pytest

from deathless.base.errors import DeathlessError, Invalid, LockUnavailable, RetryLater, Unauthorized
from deathless.shell.lock_stores.etcd.errors import (
    EtcdAuth,
    EtcdError,
    EtcdRefused,
    EtcdUnavailable,
    LeaseNotFound,
)


@pytest.mark.parametrize(
    ("error", "kind", "code"),
    [
        (EtcdUnavailable("away"), LockUnavailable, "DL1004"),
        (EtcdRefused("no"), Invalid, "DL3020"),
        (LeaseNotFound("ended"), EtcdRefused, "DL3020"),
        (EtcdAuth("who"), Unauthorized, "DL3010"),
    ],
)
def test_each_error_is_of_the_kind_that_says_what_to_do(
    error: DeathlessError, kind: type[DeathlessError], code: str
) -> None:
    assert isinstance(error, EtcdError)
    assert isinstance(error, kind)
    assert error.code == code
    assert str(error).startswith(f"{code} {error.message}")


def test_no_answer_is_never_taken_for_a_definite_no() -> None:
    assert not issubclass(EtcdUnavailable, Invalid)
    assert not issubclass(EtcdRefused, RetryLater)


def test_unavailable_tells_whether_the_request_may_have_been_done() -> None:
    assert not EtcdUnavailable("never sent").outcome_unknown
    assert EtcdUnavailable("no answer", outcome_unknown=True).outcome_unknown
