"""A request to an HTTP address, at most once: a function that a service registers as an activity.

    post = shop.activity(http_request, ...)      # at_most_once=True, timeout=30
    answer = await ctx.run(post, "https://example.org/pay", "POST", '{"cents": 500}')

A driver tries again until the address has answered, so it is at least once. An activity with `at_most_once=True` is
logged before it begins and never begun twice; where nobody knows whether it reached the address, the handler gets
OutcomeUnknown and may ask. A driver could not do that: one that forgot a message first and sent it then would double
what a primary sends again because it never heard of the forgetting.

Guarantees: one request; redirects are not followed; the idempotency key is the activity's. Does not: judge a status.
Needs no library. Imports execution's activity and base.
"""

from __future__ import annotations

import http.client
import ssl
from typing import Final
from urllib.parse import urlsplit

import msgspec

from deathless.base.errors import InvalidArgument
from deathless.execution.turn.activity_call import current_activity

BODY_BYTES_MAX: Final = 512 << 10  # of a response; what is behind is left out
SOCKET_S: Final = 300.0  # the longest silence, where the activity has no time limit of its own


class HttpAnswer(msgspec.Struct, frozen=True):
    """What the address answered, whatever the status."""

    status: int
    body: str


def http_request(url: str, method: str, body: str, headers: dict[str, str] | None = None) -> HttpAnswer:
    """Send one request. The body is sent as JSON unless `headers` name another Content-Type.

    Raises: InvalidArgument for an address that is none; OSError, HTTPException when there is no answer.
    """
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise InvalidArgument(f"{url!r} is not an http or https address")
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    sent = {"Content-Type": "application/json", "Idempotency-Key": current_activity().key, **(headers or {})}
    connection: http.client.HTTPConnection
    if parts.scheme == "https":
        context = ssl.create_default_context()
        connection = http.client.HTTPSConnection(parts.hostname, parts.port, timeout=SOCKET_S, context=context)
    else:
        connection = http.client.HTTPConnection(parts.hostname, parts.port, timeout=SOCKET_S)
    try:
        connection.request(method, target, body.encode(), sent)
        response = connection.getresponse()
        return HttpAnswer(response.status, response.read(BODY_BYTES_MAX).decode(errors="replace"))
    finally:
        connection.close()
