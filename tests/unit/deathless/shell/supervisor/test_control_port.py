"""The control port answers each command to its own caller, and passes reports on."""

from __future__ import annotations

from typing import Any, cast

import msgspec
import pytest

from deathless.base.config import ReplicaConfig
from deathless.base.errors import DeathlessError, NotPrimary, OtherSupervisor
from deathless.base.limits import Limits
from deathless.codec.wire import PREFIX_BYTES, Admin, AdminReply, Hello, Type, decode_struct, struct_packet
from deathless.core.supervisor.detection import Detector, Report, WorkerState
from deathless.shell.link.standing import Standing
from deathless.shell.net.connections import ServerConnection
from deathless.shell.supervisor.control_port import ControlPort, status_of

CONFIG = msgspec.convert({"service": "bank", "module": "a.py:a", "directory": "data", "replica": "r0"}, ReplicaConfig)
STANDING = Standing(service="bank", replica="r0")
REPORT = Report(replica="r1", state=WorkerState.RUNNING, role="standby", epoch=1, lsn=1)


class Sent:
    """A connection that keeps what it is given."""

    def __init__(self) -> None:
        self.hello = Hello(1, "supervisor", "bank", "r1")
        self.proved = True
        self.packets: list[bytes] = []
        self.refused: list[DeathlessError] = []

    def send(self, data: bytes) -> None:
        """See ServerConnection."""
        self.packets.append(data)

    def refuse(self, error: DeathlessError) -> None:
        """See ServerConnection."""
        self.refused.append(error)


def fail() -> object:
    """Refuse."""
    raise NotPrimary("not here")


def port(refusal: DeathlessError | None = None) -> tuple[ControlPort, list[Report], list[None]]:
    """A port, the reports that it passed on, and how often it was done."""
    reports: list[Report] = []
    done: list[None] = []

    def reported(report: Report) -> DeathlessError | None:
        reports.append(report)
        return refusal

    commands: dict[str, Any] = {"status": lambda: {"a": 1}, "stop": lambda: None, "fail": fail}
    return ControlPort(CONFIG, reported=reported, done=lambda: done.append(None), commands=commands), reports, done


def packets_of(port: ControlPort, *records: tuple[Type, msgspec.Struct]) -> Sent:
    """Give records to the port as one buffer."""
    sent = Sent()
    bodies = [(int(kind), struct_packet(kind, record)[PREFIX_BYTES:]) for kind, record in records]
    port.packets(cast("ServerConnection", sent), bodies)
    return sent


@pytest.mark.parametrize(
    ("command", "code", "result"),
    [
        ("status", "", {"a": 1}),
        ("stop", "", {}),
        ("fail", "DL1001", {"error": "not here"}),
        ("dance", "DL3004", {"error": "no command 'dance'"}),
    ],
)
def test_each_command_is_answered(command: str, code: str, result: dict[str, object]) -> None:
    sent = packets_of(port()[0], (Type.ADMIN, Admin(5, command, b"{}")))
    reply = decode_struct(AdminReply, sent.packets[0][PREFIX_BYTES:])
    assert (reply.id, reply.code, msgspec.json.decode(reply.result)) == (5, code, result)


def test_reports_are_passed_on_and_what_follows_them_is_done_once_a_buffer() -> None:
    served, reports, done = port()
    sent = packets_of(served, (Type.REPORT, REPORT), (Type.REPORT, REPORT))
    assert (reports, len(done), sent.packets) == ([REPORT, REPORT], 1, [])


def test_connection_of_a_replica_that_is_not_to_be_heard_is_refused() -> None:
    served, reports, _ = port(OtherSupervisor("a later instance runs"))
    sent = packets_of(served, (Type.REPORT, REPORT), (Type.REPORT, REPORT))
    assert (len(reports), [each.code for each in sent.refused]) == (1, ["DL2002"])


def test_ping_is_answered_by_who_this_is() -> None:
    sent = packets_of(port()[0], (Type.PING, Hello(1, "tool", "bank", "")))
    assert decode_struct(Hello, sent.packets[0][PREFIX_BYTES:]).name == "r0"


def test_status_tells_of_all_replicas_heard() -> None:
    detector = Detector(replica="r0", limits=Limits(), now=0.0)
    detector.report_received(REPORT, 1.0)
    told = cast("dict[str, Any]", status_of(CONFIG, detector, STANDING, 1.5))
    assert [(each["replica"], each["heardMs"]) for each in told["replicas"]] == [("r1", 500)]
    assert told["primary"] is None
