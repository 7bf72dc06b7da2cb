"""The history of a replica's log: what stands in its files, and then each line that is added, once."""

from __future__ import annotations

from pathlib import Path

import msgspec

from deathless.shell.operate.log_history import ReplicaHistory, in_order


def test_line_that_is_being_written_is_given_once_and_whole(tmp_path: Path) -> None:
    whole = msgspec.json.encode({"time": "2026-01-02T03:04:05.000", "text": "in two parts"}) + b"\n"
    with (tmp_path / "replica.log").open("ab") as file:
        file.write(b"printed\n" + whole[:20])
        file.flush()
        history = ReplicaHistory("r1", tmp_path)
        assert [each.text for each in in_order([history])] == ["printed"]
        assert history.new() == []
        file.write(whole[20:] + b"next\n")
        file.flush()
        assert [(each.text, each.time) for each in history.new()] == [
            ("in two parts", "2026-01-02T03:04:05.000"),
            ("next", "2026-01-02T03:04:05.000"),
        ]
        assert history.new() == []
