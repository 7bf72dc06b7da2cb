"""Logs of our processes: one JSON object a line on standard error; identity and numbers are fields, never text."""

from __future__ import annotations

import logging
import sys

import msgspec

from deathless.base.errors import InvalidConfig

_STANDARD = frozenset(logging.LogRecord("", 0, "", 0, "", None, None).__dict__) | {"message", "asctime", "taskName"}
LEVELS = ("debug", "info", "warning", "error")


class JsonFormatter(logging.Formatter):
    """Time, level, logger, replica, text and the record's own fields."""

    def __init__(self, replica: str, process: str) -> None:
        super().__init__()
        self._identity = {"replica": replica, "process": process}

    def format(self, record: logging.LogRecord) -> str:
        """Give one line."""
        fields: dict[str, object] = {
            "time": self.formatTime(record, "%Y-%m-%dT%H:%M:%S") + f".{int(record.msecs):03d}",
            "level": record.levelname.lower(),
            "logger": record.name,
            **self._identity,
            "text": record.getMessage(),
        }
        fields.update({k: v for k, v in record.__dict__.items() if k not in _STANDARD})
        if record.exc_info:
            fields["traceback"] = self.formatException(record.exc_info)
        return msgspec.json.encode(fields, enc_hook=str).decode()


def configure(level: str, replica: str, process: str) -> None:
    """Send this process's logs to standard error. Raises: InvalidConfig for an unknown level."""
    if level not in LEVELS:
        raise InvalidConfig(f"log level {level!r} is not one of {', '.join(LEVELS)}")
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter(replica, process))
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
