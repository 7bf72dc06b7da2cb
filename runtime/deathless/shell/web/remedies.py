"""What to do about an error, in the words of the door through which its caller came.

An error's class says what to do in words that fit everywhere, or Python. Who calls over HTTP has headers and addresses
instead of arguments, who types a command has options. A remedy that was given where the error was raised fits already,
and stays. Imports base.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from deathless.base.errors import DeathlessError

HTTP: Final[Mapping[str, str]] = {
    "DL1001": "send the same request again, with the same Idempotency-Key; a takeover takes well under a second",
    "DL1002": "send the same request again, with the same Idempotency-Key, after the seconds in Retry-After",
    "DL1005": "send the same request again, with the same Idempotency-Key; operators see `deathless status`",
    "DL1006": "send it again with the same Idempotency-Key, or find out by a query (GET)",
    "DL1007": "send the same request again later; operators see the peer in question at GET /SERVICE/-/peers",
    "DL3003": "send what GET /SERVICE/-/openapi.json describes; a corrected call needs another Idempotency-Key",
    "DL3004": "GET /SERVICE/-/openapi.json lists handlers (POST) and queries (GET)",
    "DL3007": "use another Idempotency-Key for another request",
    "DL3008": "send a newly generated Idempotency-Key; a query (GET) shows whether the old call was applied",
    "DL3009": "find out by a query (GET) what was applied, then send the rest with another Idempotency-Key",
    "DL3014": "callers can't fix this: the service's author finds the traceback in the log of its primary",
    "DL3015": "fix the handler; operators see GET /SERVICE/-/parked",
    "DL3016": "an operator accepts the new one (POST /SERVICE/-/peers/NAME/adopt); then use another Idempotency-Key",
    "DL3017": "find out by a query (GET) what was applied",
    "DL3076": "GET /SERVICE/-/sources/NAME/refused shows which inputs are kept, and under which lsn",
    "DL3026": "see GET /SERVICE/-/parked; call the handler again if the work is still wanted",
    "DL3028": "see GET /SERVICE/-/unknown; another operator may have settled it",
}

COMMAND: Final[Mapping[str, str]] = {
    "DL3003": "`deathless openapi` shows its arguments; give each as --arg NAME=VALUE, and text that looks like a "
    "number in quotes: --arg 'NAME=\"7\"'",
    "DL3004": "`deathless openapi` lists handlers (post) and queries (get)",
    "DL3007": "use another --idempotency-key for another request, or none",
    "DL3008": "omit --idempotency-key, or give a newly generated one",
}


def remedy(error: DeathlessError, door: Mapping[str, str]) -> str:
    """Give what the caller is told to do.

    Args:
        error: what it met.
        door: `HTTP` or `COMMAND`.
    """
    return error.advice if error.advice != type(error).remedy else door.get(error.code, error.advice)
