"""Ports for servers that keep theirs: nobody has them, and the kernel gives them to nobody."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest
from lab import ports
from lab.ports import BELOW, RANGE, free_ports


def test_ports_differ_are_free_and_lie_below_those_that_the_kernel_gives() -> None:
    lowest = int(RANGE.read_text().split()[0])
    found = free_ports(20)
    assert len(set(found)) == 20
    assert all(lowest - BELOW <= port < lowest for port in found)
    for port in found:
        socket.create_server(("127.0.0.1", port)).close()


def test_port_that_is_taken_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    [port] = free_ports(1)
    only = tmp_path / "range"
    only.write_text(f"{port + 1}\t60999\n")
    monkeypatch.setattr(ports, "LOWEST", port)
    assert free_ports(1, only) == [port]
    with (
        socket.create_server(("127.0.0.1", port)),
        pytest.raises(OSError, match=f"gives ports from {port + 1} on: too few are left for 1 servers"),
    ):
        free_ports(1, only)
