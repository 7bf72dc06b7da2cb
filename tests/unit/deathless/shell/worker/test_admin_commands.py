"""A tool's command is answered to its caller, whatever it raises; a switchover once it is over."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest

from deathless.base.errors import InvalidArgument
from deathless.codec.wire import PREFIX_BYTES, Admin, AdminReply, decode_struct
from deathless.core import events as ev
from deathless.shell.worker.admin_commands import AdminCommands

CONN = ev.Conn(4)


class Site:
    """Commands of a worker that leads, or not, and what was done."""

    def __init__(self, *, leads: bool = True) -> None:
        self.answers: list[AdminReply] = []
        self.events: list[ev.Event] = []
        self.hurried = 0
        engine = SimpleNamespace(
            core=SimpleNamespace(primary=object() if leads else None),
            shard=SimpleNamespace(parked={}),
            place=SimpleNamespace(lsn=12),
            take_checkpoint=lambda: None,
        )
        self.commands = AdminCommands(
            cast("Any", engine),
            cast("Any", SimpleNamespace(answer=self._refuse)),
            cast("Any", None),
            send=lambda conn, data: self.answers.append(decode_struct(AdminReply, data[PREFIX_BYTES:])),
            post=self.events.append,
            hurry=self._hurry,
        )

    def _refuse(self, conn: ev.Conn, request: Admin) -> object:
        raise InvalidArgument("no such peer")

    def _hurry(self) -> None:
        self.hurried += 1

    def run(self, command: str, arguments: bytes = b"{}") -> tuple[str, Any] | None:
        """Give code and result of the answer; None: not answered yet."""
        self.commands.run(CONN, Admin(9, command, arguments))
        return self.last() if self.answers else None

    def last(self) -> tuple[str, Any]:
        """Code and result of the last answer."""
        assert self.answers[-1].id == 9
        return self.answers[-1].code, msgspec.json.decode(self.answers[-1].result)


@pytest.mark.parametrize(
    ("command", "told"),
    [
        ("checkpoint", ("", {"lsn": 12})),
        ("peers", ("DL3003", {"error": "no such peer"})),
        ("dance", ("DL3004", {"error": "no command 'dance'"})),
    ],
)
def test_each_command_is_answered(command: str, told: tuple[str, object]) -> None:
    assert Site().run(command) == told


def test_switchover_is_answered_when_the_worker_ends() -> None:
    site = Site()
    assert site.run("switchover", b'{"target": "r1"}') is None
    assert site.events == [ev.SwitchoverOrdered(CONN, 9, "r1")]
    assert site.hurried == 1
    site.commands.ended()
    assert site.last() == ("", {"done": True})


def test_switchover_that_does_not_come_about_is_answered_once() -> None:
    site = Site()
    site.run("switchover")
    site.commands.switchover_refused(CONN, 9, "nobody follows")
    site.commands.ended()
    assert [each.code for each in site.answers] == ["DL1001"]


@pytest.mark.parametrize("arguments", [b"[1]", b"{", b'{"target": 5}', b"[" * 4000])
def test_switchover_with_arguments_that_are_none_is_refused(arguments: bytes) -> None:
    site = Site()
    assert site.run("switchover", arguments) is not None
    assert (site.last()[0], site.events) == ("DL3003", [])


def test_switchover_is_refused_where_nobody_leads() -> None:
    assert Site(leads=False).run("switchover") == ("DL1001", {"error": "this replica is not the primary"})
