"""The status of each replica's application stands in a file of its own."""

from pathlib import Path

from deathless.shell.link.application_status import ApplicationStatus, read_statuses, write_status


def test_all_are_read_by_name_and_one_that_is_torn_is_left_out(tmp_path: Path) -> None:
    """Whoever writes another one replaces it."""
    assert read_statuses(str(tmp_path)) == []
    for replica in ("r1", "r0", "r2"):
        write_status(str(tmp_path), ApplicationStatus(replica=replica, state="following"))
    leads = ApplicationStatus(replica="r1", state="leading", pid=7, epoch=3, position=12)
    write_status(str(tmp_path), leads)
    (tmp_path / "application" / "status-r2.json").write_text("{")
    assert read_statuses(str(tmp_path)) == [ApplicationStatus(replica="r0", state="following"), leads]
