"""How replicas look in a table."""

from __future__ import annotations

import pytest

from deathless.cli.look.status import show
from deathless.cli.views import (
    COLUMNS,
    DRIVER_COLUMNS,
    ENDED_BY_MESSAGE,
    driver_rows,
    handing_over,
    live_drivers,
    live_table,
    programs,
    replica_row,
    summary,
    unreached,
)
from deathless.shell.operate.agents import DriverView
from deathless.shell.operate.status import ReplicaView, ServiceView, UnreachedPeer


def view(*replicas: ReplicaView, primary: str = "") -> ServiceView:
    """A service's view."""
    return ServiceView("bank", "/d", primary, 3, list(replicas))


PRIMARY = ReplicaView(replica="r0", state="running", role="primary", epoch=3, lsn=12, lag=0, worker_pid=77)
FROZEN = ReplicaView(replica="r1", state="stopped", role="standby", epoch=3, lsn=2, full=True, ingress="127.0.0.1:0")


def test_row_has_a_cell_for_each_column() -> None:
    assert len(replica_row(PRIMARY)) == len(COLUMNS)


def test_stopped_process_is_called_frozen_and_a_full_log_is_said() -> None:
    row = dict(zip(COLUMNS, replica_row(FROZEN), strict=True))
    assert (row["state"], row["condition"], row["http"]) == ("frozen", "log full", "")


def test_an_outbox_without_room_is_said_and_an_error_comes_first() -> None:
    crowded = ReplicaView(replica="r0", state="running", role="primary", outbox_full=True)
    stepped = ReplicaView(replica="r0", state="running", role="primary", clock="behind")
    assert replica_row(stepped)[-1] == "clock behind"
    holding = ReplicaView(replica="r0", state="running", role="primary", outside_held=True)
    assert replica_row(holding)[-1] == "outside held"
    assert replica_row(crowded)[COLUMNS.index("condition")] == "outbox full"
    crowded.condition = "DL4009"
    assert replica_row(crowded)[COLUMNS.index("condition")] == "DL4009"


def test_what_is_wrong_with_programs_is_said_beside_and_below_the_table() -> None:
    failing = ReplicaView("r0", "running", "primary", program="failing", program_text="DL3103 it ended")
    differs = ReplicaView("r1", "running", "standby", program="serving", program_differs="to bank, at position 3: x")
    skips = ReplicaView("r0", "running", "primary", program="serving", program_skips=2)
    assert [replica_row(each)[-1] for each in (failing, differs, skips)] == ["program failing", "program differs", ""]
    assert "r0 is primary, but its program does not serve" in summary(view(failing, primary="r0"))
    assert programs(view(failing, differs, primary="r0")) == [
        "r0: program failing: DL3103 it ended",
        "r1: its program sent something else when it was run again: to bank, at position 3: x",
        ENDED_BY_MESSAGE,
    ]
    assert (
        "`deathless ambrosia replay --to N`" in ENDED_BY_MESSAGE and "`deathless ambrosia skip N`" in ENDED_BY_MESSAGE
    )
    assert programs(view(skips, primary="r0")) == ["r0: its program skips something of 2 rows"]
    assert programs(view(PRIMARY, primary="r0")) == []


def test_what_a_primary_waits_for_before_it_hands_over_stands_below_the_table() -> None:
    waiting = ReplicaView("r0", "running", "primary", waits_for=2, waits_since=1000, waits_until=1060)
    last = ReplicaView("1/r1", "running", "primary", waits_for=1, waits_since=1000, waits_until=1008)
    assert handing_over(view(waiting, PRIMARY, last), 1012.4) == [
        "r0: hands over when 2 activities have ended that must run at most once; it waits for 12 s, at most 48 s more",
        "1/r1: hands over when an activity has ended that must run at most once; it waits for 12 s, at most 0 s more",
    ]
    assert handing_over(view(PRIMARY), 1012.4) == []


def test_replica_that_is_down_has_no_role() -> None:
    assert replica_row(ReplicaView(replica="r2", state="dead", role="dead", condition="DL4009"))[1] == "-"


def test_summary_says_who_serves_or_that_nobody_does() -> None:
    assert summary(view(PRIMARY, FROZEN, primary="r0")) == "bank: r0 is primary, epoch 3; 1 of 2 replicas run"
    assert summary(view(FROZEN)) == "bank: no primary; 0 of 1 replicas run"
    assert summary(view()) == "bank: no replica is announced in /d"


def test_live_table_holds_the_same_rows() -> None:
    table = live_table(view(PRIMARY, FROZEN, primary="r0"))
    assert table.row_count == 2
    assert [str(column.header) for column in table.columns] == list(COLUMNS)


def test_a_service_of_several_shards_is_one_line_and_one_table() -> None:
    parts = [
        ServiceView("bank/0/2", "/d", "0/r0", 3, [ReplicaView("0/r0", "running", "primary")]),
        ServiceView("bank/1/2", "/d", "", 2, [ReplicaView("1/r0", "dead", "dead")]),
    ]
    whole = ServiceView("bank", "/d", "", 3, [one for part in parts for one in part.replicas], parts)
    assert summary(whole) == "bank: 1 of 2 shards have a primary, epoch 3; 1 of 2 replicas run"
    assert [replica_row(one)[0] for one in whole.replicas] == ["0/r0", "1/r0"]


def test_peers_that_are_not_reached_stand_below_the_table_with_since_when_and_why(
    capsys: pytest.CaptureFixture[str],
) -> None:
    seen = view(PRIMARY, primary="r0")
    show(seen)
    assert len(capsys.readouterr().out.splitlines()) == 4, "nothing is said where nothing is known of peers"
    seen.unreached_peers = [
        UnreachedPeer("shop", 0, False, 12.3, 7, "127.0.0.1:1: no answer", "r0"),
        UnreachedPeer("mail", 1, False, None, 0, "DL3016 created anew", "r0"),
        UnreachedPeer("book", 0, True, 0.2, 1, "", "r0"),
    ]
    show(seen)
    assert capsys.readouterr().out.splitlines()[4:] == [
        "peer shop/0 has not been reached for 12 s: 127.0.0.1:1: no answer",
        "peer mail/1 is not reached: DL3016 created anew",
        "driver book has not been reached for 0 s: not connected yet",
    ]


def test_of_several_shards_each_tells_of_the_peers_that_it_does_not_reach() -> None:
    parts = [ServiceView(f"bank/{shard}/2", "/d", f"{shard}/r0", 3, []) for shard in (0, 1)]
    away = [UnreachedPeer("shop", 0, False, 3.0, 7, "no answer", "1/r0")]
    whole = ServiceView("bank", "/d", "", 3, [], parts, away)
    assert unreached(whole) == ["1/r0: peer shop/0 has not been reached for 3 s: no answer"]


def test_of_a_pipeline_it_is_said_who_drives(capsys: pytest.CaptureFixture[str]) -> None:
    pipeline = view(PRIMARY, primary="r0")
    assert (driver_rows(pipeline), live_drivers(pipeline)) == ([], [])
    pipeline.drivers = [DriverView("d0", "driver", 4, "a", 7, 8, "http://h:1"), DriverView("d1", "warm", 0, "b", 9)]
    assert summary(pipeline).endswith("1 of 1 replicas run; d0 drives, number 4, 1 warm")
    assert driver_rows(pipeline) == [("d0", "driver", 4, "8", "http://h:1"), ("d1", "warm", None, "9", "")]
    assert live_drivers(pipeline)[0].row_count == 2
    show(pipeline)
    printed = capsys.readouterr().out.lower()
    assert all(word in printed for word in (*DRIVER_COLUMNS, "http://h:1"))
    pipeline.drivers = [DriverView("d0", "dead")]
    assert summary(pipeline).endswith("nobody drives, 0 warm")
