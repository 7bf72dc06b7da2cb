"""A schedule as a service registers it: which handler runs for which key at which times.

Guarantees: what can't work is refused when the service is imported. Does not: run anything (see schedules). Imports
base only.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal, get_args

import msgspec

from deathless.base.errors import InvalidService
from deathless.execution.author.cron import Cron

Missed = Literal["one", "all", "skip"]
KEY_BYTES_MAX: Final = 65535
"""What a message can name. A key above `limits.key_bytes_max` fails its ticks, as it would any call."""

TICK: Final = "tick"
"""An argument of this name and type `datetime` is given the time that the tick stands for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleSpec:
    """One schedule."""

    name: str
    method: str
    key: str  # empty for a service of one object
    cron: Cron
    zone: str  # IANA name
    missed: Missed
    takes_tick: bool

    def arguments(self, tick_us: int) -> bytes:
        """Give the msgpack map that the handler is called with."""
        if not self.takes_tick:
            return msgspec.msgpack.encode({})
        return msgspec.msgpack.encode({TICK: dt.datetime.fromtimestamp(tick_us // 1_000_000, tz=dt.UTC)})


def make_schedule(
    expression: str,
    *,
    name: str,
    method: str,
    key: str,
    zone: str,
    missed: Missed,
    single: bool,
    arguments: type[msgspec.Struct],
    where: str,
) -> ScheduleSpec:
    """Give the record of a schedule.

    Args:
        expression: five fields.
        name: may be empty.
        method: of the handler.
        key: for which it runs.
        zone: an IANA name.
        missed: what becomes of ticks that passed while nobody ran.
        single: the service is one object, and has no keys.
        arguments: of the handler.
        where: function, file and line, for errors.

    Raises: InvalidService.
    """
    if missed not in get_args(Missed):
        raise InvalidService(f"{where}: missed must be 'one', 'all' or 'skip', not {missed!r}")
    if single and key:
        raise InvalidService(f"{where}: a service of one object has no keys: leave key= out")
    if not single:
        _check_key(key, where)
    takes_tick = _takes_tick(msgspec.structs.fields(arguments), where)
    try:
        cron = Cron(expression, zone)
    except InvalidService as error:
        raise InvalidService(f"{where}: {error.message}") from None
    name = name or (f"{method}/{key}" if key else method)
    return ScheduleSpec(name=name, method=method, key=key, cron=cron, zone=zone, missed=missed, takes_tick=takes_tick)


def _check_key(key: str, where: str) -> None:
    if not key or key[0] == "\0":
        raise InvalidService(f"{where}: a schedule needs the key that its handler runs for: key=")
    try:
        encoded = key.encode()
    except UnicodeEncodeError as error:
        raise InvalidService(f"{where}: the key can't be encoded: {error}") from None
    if len(encoded) > KEY_BYTES_MAX:
        raise InvalidService(f"{where}: the key has {len(encoded)} bytes, at most {KEY_BYTES_MAX}")


def _takes_tick(arguments: Sequence[msgspec.structs.FieldInfo], where: str) -> bool:
    """Does the handler want to know the tick's time?"""
    takes = any(field.name == TICK and field.type is dt.datetime for field in arguments)
    for field in arguments:
        if field.required and not (takes and field.name == TICK):
            raise InvalidService(
                f"{where}: a schedule gives `{TICK}: datetime` alone, so `{field.name}` needs a default"
            )
    return takes
