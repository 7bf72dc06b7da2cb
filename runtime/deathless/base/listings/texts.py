"""Sizes and times as people read them.

Guarantees: pure functions that take any number. Does not: print. Imports nothing of ours.
"""

from __future__ import annotations

import datetime as dt


def show_bytes(size: int) -> str:
    """Give a size as people read it."""
    amount, unit = float(size), "B"
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if amount < 1024 or unit == "TiB":
            break
        amount /= 1024
    return f"{amount:.0f} {unit}" if unit == "B" or amount >= 100 else f"{amount:.1f} {unit}"


def show_time(time_us: int) -> str:
    """Give a time as people read it, in UTC; "-" for 0.

    Args:
        time_us: microseconds since 1970. One beyond the year 9999 is given as its number of seconds.
    """
    if not time_us:
        return "-"
    try:
        whole = dt.datetime.fromtimestamp(time_us // 1_000_000, dt.UTC)
    except (OverflowError, ValueError, OSError):
        return f"{time_us // 1_000_000} s"
    return f"{whole:%Y-%m-%d %H:%M:%S}.{time_us // 1000 % 1000:03d}"
