"""How replicas look in a table, for `status`, `up` and `demo`.

Guarantees: the same words everywhere. Does not: ask anybody. Imports rich only when a live view is drawn.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import UnsetType

if TYPE_CHECKING:
    from rich.table import Table

    from deathless.shell.operate.status import ReplicaView, ServiceView

DRIVER_COLUMNS = ("driver", "role", "number", "process", "pages")
COLUMNS = ("replica", "role", "state", "epoch", "lsn", "lag", "worker", "client", "http", "condition")
DRIVER_STYLES = {"driver": "bold green", "warm": "blue", "dead": "bold red"}
ENDED_BY_MESSAGE = (
    "If a message ends it each time: `deathless ambrosia replay --to N` finds its row N, and "
    "`deathless ambrosia skip N` leaves it out; calls are logged and wait, and nothing is lost."
)
ROLE_STYLES = {"primary": "bold green", "checkpointer": "cyan", "standby": "blue"}
STATE_STYLES = {"dead": "bold red", "stopped": "bold yellow", "stuck": "bold yellow", "unreachable": "bold red"}
STATE_WORDS = {"stopped": "frozen"}  # a process stopped by a signal, not one that has ended


def replica_row(view: ReplicaView) -> tuple[object, ...]:
    """Give one replica's cells, in the order of COLUMNS."""
    troubles = (
        view.program not in ("", "serving") and f"program {view.program}",
        view.full and "log full",
        view.outbox_full and "outbox full",
        view.outside_held and "outside held",
        view.clock and f"clock {view.clock}",
        view.program_differs and "program differs",
    )
    condition = view.condition or next((trouble for trouble in troubles if trouble), "")
    state = STATE_WORDS.get(view.state, view.state)
    role = "-" if view.role in ("dead", "starting") else view.role
    return (
        view.replica,
        role,
        state,
        view.epoch or None,
        view.lsn,
        view.lag,
        str(view.worker_pid or "-"),
        view.client,
        "" if view.ingress.endswith(":0") else view.ingress,  # any port, and not yet known which
        condition,
    )


def driver_rows(view: ServiceView) -> list[tuple[object, ...]]:
    """Give the cells of each driver of a pipeline, in the order of DRIVER_COLUMNS; none: it is no pipeline."""
    drivers = [] if isinstance(view.drivers, UnsetType) else view.drivers
    return [
        (each.name, each.role, each.number or None, str(each.driver_pid or each.agent_pid or "-"), each.ui)
        for each in drivers
    ]


def summary(view: ServiceView) -> str:
    """Give the one line that says how a service is, and where it is a pipeline who drives."""
    if isinstance(view.drivers, UnsetType):
        return _replicas(view)
    drives = next(
        (f"{each.name} drives, number {each.number}" for each in view.drivers if each.number), "nobody drives"
    )
    warm = sum(each.role == "warm" for each in view.drivers)
    return f"{_replicas(view)}; {drives}, {warm} warm"


def _replicas(view: ServiceView) -> str:
    up = sum(one.state == "running" for one in view.replicas)
    if not view.replicas:
        return f"{view.service}: no replica is announced in {view.directory}"
    if len(view.parts) > 1:
        led = sum(part.serving for part in view.parts)
        shards = f"{led} of {len(view.parts)} shards have a primary"
        return f"{view.service}: {shards}, epoch {view.epoch}; {up} of {len(view.replicas)} replicas run"
    if view.serving:
        program = ", but its program does not serve" if view.without_program else ""
        leads = f"{view.primary} is primary{program}, epoch {view.epoch}"
        return f"{view.service}: {leads}; {up} of {len(view.replicas)} replicas run"
    return f"{view.service}: no primary; {up} of {len(view.replicas)} replicas run"


def unreached(view: ServiceView) -> list[str]:
    """Give a line for each peer and driver that a primary is not connected to; none: all are reached, or not known."""
    lines = []
    for peer in view.unreached_peers or ():
        name = f"driver {peer.service}" if peer.driver else f"peer {peer.service}/{peer.shard}"
        since = "is not reached" if peer.away_s is None else f"has not been reached for {peer.away_s:.0f} s"
        whose = f"{peer.told_by}: " if len(view.parts) > 1 else ""
        lines.append(f"{whose}{name} {since}: {peer.problem or 'not connected yet'}")
    return lines


def programs(view: ServiceView) -> list[str]:
    """Give a line for each thing that is wrong with a replica's program; none: they serve, or there are none."""
    lines = []
    for one in view.replicas:
        if one.program not in ("", "serving"):
            lines.append(f"{one.replica}: program {one.program}: {one.program_text}".rstrip(": "))
        if one.program_differs:
            lines.append(f"{one.replica}: its program sent something else when it was run again: {one.program_differs}")
        if one.program_skips and one.replica in view.primaries:
            lines.append(f"{one.replica}: its program skips something of {one.program_skips} rows")
    if any(one.program == "failing" and one.replica in view.primaries for one in view.replicas):
        lines.append(ENDED_BY_MESSAGE)
    return lines


def handing_over(view: ServiceView, now: float) -> list[str]:
    """Give a line for each primary that waits for activities before it hands over; `now` is of the wall clock."""
    lines = []
    for one in view.replicas:
        if one.waits_for:
            what = "an activity has" if one.waits_for == 1 else f"{one.waits_for} activities have"
            waited, left = max(0.0, now - one.waits_since), max(0.0, one.waits_until - now)
            how_long = f"it waits for {waited:.0f} s, at most {left:.0f} s more"
            lines.append(f"{one.replica}: hands over when {what} ended that must run at most once; {how_long}")
    return lines


def live_drivers(view: ServiceView) -> list[Table]:
    """Give the table of a pipeline's drivers in a live view; none: it is no pipeline."""
    from rich.text import Text

    from deathless.cli.output import new_table

    rows = driver_rows(view)
    if not rows:
        return []
    table = new_table(*DRIVER_COLUMNS)
    for row in rows:
        cells = [Text("-" if value in (None, "") else str(value)) for value in row]
        cells[1].stylize(DRIVER_STYLES.get(str(row[1]), ""))
        table.add_row(*cells)
    return [table]


def live_table(view: ServiceView) -> Table:
    """Give the table of a live view."""
    from rich.text import Text

    from deathless.cli.output import new_table

    table = new_table(*COLUMNS)
    for one in view.replicas:
        row = replica_row(one)
        cells = [
            Text("-" if value in (None, "") else f"{value:,}" if isinstance(value, int) else str(value))
            for value in row
        ]
        cells[1].stylize(ROLE_STYLES.get(one.role, ""))
        cells[2].stylize(STATE_STYLES.get(one.state, ""))
        cells[9].stylize("bold red")
        table.add_row(*cells)
    return table
