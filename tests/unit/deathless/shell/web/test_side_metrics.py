"""Processes beside a replica in a scraper's format: those at work have numbers, and a silent one is shown."""

from __future__ import annotations

from typing import NamedTuple

from deathless.shell.web.side_metrics import Numbers, expose


class Said(NamedTuple):
    """A status."""

    state: str
    rows: int


GAUGES: Numbers[Said] = {"behind": ("Rows behind.", lambda each: each.rows)}
COUNTERS: Numbers[Said] = {"rows": ("Rows.", lambda each: each.rows)}


def test_each_number_is_told_by_the_name_of_its_process() -> None:
    text = expose("sink", {"facts": Said("ready", 4)}, {"service": "airports"}, GAUGES, COUNTERS).decode()
    assert 'deathless_sink_up{service="airports",sink="facts"} 1.0' in text
    assert 'deathless_sink_behind{service="airports",sink="facts"} 4.0' in text
    assert 'deathless_sink_rows_total{service="airports",sink="facts"} 4.0' in text
    assert "# TYPE deathless_sink_rows_total counter" in text


def test_one_that_is_silent_or_not_at_work_has_no_other_number() -> None:
    told = {"silent": None, "idle": Said("idle", 4), "held": Said("held", 4)}
    text = expose("source", told, {}, GAUGES, COUNTERS).decode()
    assert 'deathless_source_up{source="silent"} 0.0' in text
    assert 'deathless_source_up{source="idle"} 1.0' in text
    assert "source_behind{" not in text
    assert "source_rows_total{" not in text
