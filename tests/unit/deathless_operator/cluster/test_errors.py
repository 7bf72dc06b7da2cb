"""Every answer of an API server is one error, by what its caller does."""

from __future__ import annotations

import pytest

from deathless.base.errors import Invalid, RetryLater
from deathless_operator.cluster import errors


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        (400, errors.Unacceptable),
        (401, errors.Forbidden),
        (403, errors.Forbidden),
        (404, errors.NotFound),
        (409, errors.Conflict),
        (410, errors.Expired),
        (418, errors.ApiRefused),
        (422, errors.Unacceptable),
        (429, errors.ApiFailed),
        (500, errors.ApiFailed),
        (503, errors.ApiFailed),
        (504, errors.ApiFailed),
    ],
)
def test_status_decides_the_error(status: int, expected: type[Exception]) -> None:
    error = errors.refusal("get Pod shop/bank-0", status, {"message": "no", "reason": "Because"})
    assert type(error) is expected
    assert "get Pod shop/bank-0: no" in str(error)
    assert isinstance(error, RetryLater) == issubclass(expected, errors.ApiUnreachable)


def test_refusal_keeps_status_and_reason() -> None:
    error = errors.refusal("create Pod", 409, {"reason": "AlreadyExists"})
    assert isinstance(error, errors.ApiRefused) and isinstance(error, Invalid)
    assert (error.status, error.reason) == (409, "AlreadyExists")
    assert "HTTP 409" in str(error)
