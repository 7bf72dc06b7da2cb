"""Every rule of a cut matches through a set whose elements time out; loopback passes; other tables are left alone."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from deathless.base.errors import Internal, InvalidArgument
from deathless_operator.drill import filters
from deathless_operator.drill.filters import PORTS_MAX, Cut, NetworkNamespace, check_ports, ruleset


def test_each_drop_goes_through_a_set_with_timeouts() -> None:
    text = ruleset(Cut(everything=True, served=(7402, 7403), called=(2379,)), 7.2)
    drops = [line for line in text.splitlines() if line.endswith("drop")]
    assert len(drops) == 8
    assert all("@" in line for line in drops)
    for element in ("1", "6", "17", "58", "132", "7402", "7403", "2379"):
        assert f" {element} timeout 8s" in text
    assert text.count("flags timeout") == 3


def test_loopback_passes_before_anything_is_dropped() -> None:
    lines = [line.strip() for line in ruleset(Cut(served=(7402,)), 1).splitlines()]
    drops = [index for index, line in enumerate(lines) if line.endswith("drop")]
    assert lines.index("iif lo accept") < drops[0]
    assert drops[3] < lines.index("oif lo accept") < drops[4]


def test_what_is_called_is_cut_at_the_far_end_alone() -> None:
    lines = [line.strip() for line in ruleset(Cut(called=(2379,)), 1).splitlines()]
    assert [line for line in lines if "@called" in line] == ["tcp sport @called drop", "tcp dport @called drop"]


def test_table_is_made_anew_and_no_other_is_named() -> None:
    lines = ruleset(Cut(called=(2379,)), 1).splitlines()
    assert lines[:2] == ["table inet deathless_drill", "delete table inet deathless_drill"]
    assert "flush ruleset" not in "\n".join(lines)


def test_cut_of_nothing_is_refused() -> None:
    with pytest.raises(InvalidArgument):
        ruleset(Cut(), 1)


def test_cut_without_an_end_is_refused() -> None:
    with pytest.raises(InvalidArgument):
        ruleset(Cut(everything=True), 0)


def test_ports_are_checked_and_sorted() -> None:
    assert check_ports([2380, 2379, 2379]) == (2379, 2380)
    with pytest.raises(InvalidArgument):
        check_ports([0])
    with pytest.raises(InvalidArgument):
        check_ports(range(1, PORTS_MAX + 2))


def test_namespace_of_the_node_itself_is_known() -> None:
    namespace = NetworkNamespace(os.getpid())
    assert namespace.is_the_nodes(Path("/proc/self"))
    namespace.close()
    namespace.close()


def test_a_tool_that_does_not_end_is_an_error_that_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tool = tmp_path / "nsenter"
    tool.write_text("#!/bin/sh\nexec sleep 60\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    monkeypatch.setattr(filters, "TOOL_TIMEOUT_S", 0.05)
    namespace = NetworkNamespace(os.getpid())
    with pytest.raises(Internal, match=r"did not end within 0\.05 s"):
        namespace.remove()
    namespace.close()
