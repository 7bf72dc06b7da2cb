"""Records whose bytes stand on storage or go to other replicas, and are written by layers above the codec."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest

from deathless.codec import wire
from deathless.core.supervisor.detection import Report
from deathless.engine.ports import Holder, ServiceRecord

SERVICE = ServiceRecord("bank", bytes(range(16)), 77, bytes(range(32)), 4711, "seal", False)
HOLDER = Holder(3, "r1", bytes(range(16)))
REPORT = Report(
    replica="r1",
    state="running",
    role="primary",
    epoch=3,
    lsn=41,
    client="127.0.0.1:7001",
    replication="127.0.0.1:7002",
    control="127.0.0.1:7003",
    ingress="127.0.0.1:8080",
    heard={"r2": 12},
    deaths=[(7, 2, 1)],
    condition="",
    pid=100,
    worker_pid=101,
    full=False,
    instance="84a7a906",
    generation=2,
    unproved=True,
    outbox_full=True,
    clock="behind",
    slow_ms=35,
)


@pytest.mark.parametrize(("name", "record"), [("lock_service", SERVICE), ("lock_holder", HOLDER)])
def test_the_records_of_the_directory_lock_are_version_1(
    name: str, record: msgspec.Struct, golden: Callable[[str, bytes], None]
) -> None:
    data = msgspec.msgpack.encode(record)
    golden(name, data)
    assert msgspec.msgpack.decode(data, type=type(record)) == record


def test_a_supervisors_report_is_version_1(golden: Callable[[str, bytes], None]) -> None:
    data = wire.struct_packet(wire.Type.REPORT, REPORT)
    golden("wire_report", data)
    [(_, body)] = wire.PacketReader(1 << 20).feed(data)
    assert wire.decode_struct(Report, body) == REPORT


def test_a_report_may_leave_out_what_it_does_not_know() -> None:
    body = msgspec.msgpack.encode(["r1", "dead", "stopped", 3, 41])
    assert wire.decode_struct(Report, body) == Report(replica="r1", state="dead", role="stopped", epoch=3, lsn=41)
