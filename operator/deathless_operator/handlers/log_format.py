"""One JSON object per line on standard error: time, level, logger, message, and what the record was given besides.

Guarantees: a line is always JSON, whatever was logged; an error's trace is one field. Does not: rotate or ship logs.
"""

from __future__ import annotations

import json
import logging
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime

CONDENSED_S = 30.0
_TRIED_AGAIN = ("will retry", "will re-authenticate")
# What every record has; all else was given by `extra` and is shown.
_USUAL = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


class JsonFormatter(logging.Formatter):
    """Formats a record as one line of JSON."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line, without its end."""
        shown: dict[str, object] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        shown |= {key: value for key, value in vars(record).items() if key not in _USUAL and not key.startswith("_")}
        if record.exc_info:
            shown["trace"] = self.formatException(record.exc_info)
        return json.dumps(shown, default=str, ensure_ascii=False)


class Condense(logging.Filter):
    """Lets one of kopf's words on a broken watch through in `CONDENSED_S`, as a short warning.

    kopf says it as an error for each watch and each attempt, a dozen a second while an API server is away, and then
    the watches mend themselves. It says the like of requests that its own polite end cuts off (`re-authenticate`).
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._clock = clock
        self._said_at = float("-inf")

    def filter(self, record: logging.LogRecord) -> bool:
        """See logging; the record itself is made short."""
        said = record.getMessage()
        if not record.name.startswith("kopf") or not any(each in said for each in _TRIED_AGAIN):
            return True
        if self._clock() - self._said_at < CONDENSED_S:
            return False
        self._said_at = self._clock()
        record.msg = "watches are broken and tried again: " + said.rpartition("-> ")[2][:200]
        record.args, record.exc_info = (), None
        record.levelno, record.levelname = logging.WARNING, "WARNING"
        return True


def set_up(level: str, *, as_json: bool) -> None:
    """Log to standard error at `level`: `debug`, `info`, `warning` or `error`.

    kopf tells of every watch that it renews; below `debug` only its warnings are shown.
    """
    handler = logging.StreamHandler(sys.stderr)
    plain = logging.Formatter("%(asctime)s %(levelname)-7s %(message)s")
    handler.setFormatter(JsonFormatter() if as_json else plain)
    if level != "debug":
        handler.addFilter(Condense())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    quiet = logging.INFO if level == "debug" else logging.WARNING
    for name in ("kopf", "asyncio", "aiohttp"):
        logging.getLogger(name).setLevel(quiet)
