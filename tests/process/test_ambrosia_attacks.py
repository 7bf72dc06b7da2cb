"""A program that does what none should: whoever calls its service is served behind each of its attacks."""

from __future__ import annotations

import signal
from pathlib import Path

import hostile_program as hostile
import pytest
from counter_service import Counter
from replica_set import send_signal, wait_for

from deathless.base.errors import HandlerFailed
from deathless.base.foreign.binding import LIMITS, message_bytes
from deathless.base.limits import Limits
from deathless.sdk.client import SyncClient
from deathless.shell.link.application_status import ApplicationStatus

LONGEST = message_bytes(Limits(**LIMITS)) - 1000  # of arguments: the message has a head as well
STATE_BYTES = 24 << 20
DESTINATIONS = 1100  # more than have lanes of their own
STORM = 3000  # messages of 4 KiB: more than there is room for what is not logged


class Attacked(Counter):
    """A service of one replica whose program is hostile."""

    def write_manifest(self, replicas: int, more: str = "") -> None:
        """See Counter."""
        super().write_manifest(1, more)
        text = self.manifest.read_text()
        self.manifest.write_text(text.replace("Rows: 20\n", "Rows: 5\n    handlerMaxSeconds: 2\n"))


class Told:
    """What the program says that it counted."""

    def __init__(self, client: SyncClient) -> None:
        self._client = client
        self.bytes = self.back = 0

    def ask(self, method: int, number: int | None = None, *, args: bytes = b"") -> None:
        """Call a method that answers with its counts."""
        given = args if number is None else b"%d" % number
        told = self._client.call("call", "", result=bytes, method=method, args=given)
        self.bytes, self.back = map(int, told.split())

    def has(self, size: int, back: int) -> bool:
        """Whether it counts so many bytes and answers now."""
        self.ask(hostile.ADD)
        return (self.bytes, self.back) == (size, back)


def test_hostile_program_costs_its_callers_nothing_but_its_own_answers(tmp_path: Path) -> None:
    """Long and odd answers, many destinations, a storm, a giant state, prints, a child that stays, and a freeze."""
    with Attacked(tmp_path, Path(hostile.__file__)) as service, service.client() as client:
        service.up()
        told = Told(client)
        told.ask(hostile.ADD, args=bytes(LONGEST))
        for size in (LONGEST, LONGEST - 1):
            with pytest.raises(HandlerFailed, match="too long"):
                client.call("call", "", result=bytes, method=hostile.RAISE, args=b"%d" % size)
        given = client.call("call", "", result=bytes, method=hostile.GIVE, args=b"%d" % LONGEST)
        assert given == bytes(LONGEST)
        with pytest.raises(HandlerFailed, match="too long"):
            client.call("call", "", result=bytes, method=hostile.GIVE, args=b"%d" % (4 * LONGEST))
        told.ask(hostile.SPREAD, DESTINATIONS)
        wait_for(lambda: told.has(LONGEST, DESTINATIONS), "answers of all destinations", lambda: str(vars(told)))
        told.ask(hostile.STORM, STORM)
        counted = LONGEST + STORM * hostile.STORM_BYTES
        wait_for(lambda: told.has(counted, DESTINATIONS), "all of the storm", lambda: str(vars(told)))
        told.ask(hostile.GROW, STATE_BYTES)
        for _ in range(25):
            told.ask(hostile.ADD)
        wait_for(lambda: newest_bytes(service) > STATE_BYTES, "a checkpoint of the giant state")
        told.ask(hostile.PRINT, 1 << 20)
        ends_and_begins(service, told, counted)


def ends_and_begins(service: Attacked, told: Told, counted: int) -> None:
    """It leaves its connections to a child, and is frozen with nothing to read; each time another process goes on."""
    told.ask(hostile.LEAVE, 0)
    child = int((service.folder / "left").read_text())
    wait_for(lambda: not Path(f"/proc/{child}/fd").exists() or is_dead(child), "the child to be gone")
    former = wait_for(lambda: leads(service, besides=0), "a program that leads")
    assert send_signal(former.pid, signal.SIGSTOP)
    assert told.has(counted, DESTINATIONS), "the program that came after the frozen one answers"
    wait_for(lambda: leads(service, besides=former.pid), "the next program to lead")
    again = service.json("ambrosia", "replay", "--from", "newest")
    assert again["differs"] is None


def is_dead(pid: int) -> bool:
    """Whether it is a process that ended and that nobody has waited for yet."""
    return "\nState:\tZ" in Path(f"/proc/{pid}/status").read_text()


def leads(service: Attacked, *, besides: int) -> ApplicationStatus | None:
    """The program that leads and lives, if it is not this process."""
    told = service.leader()
    lives = told is not None and Path(f"/proc/{told.pid}").exists() and not is_dead(told.pid)
    return told if told is not None and lives and told.pid != besides else None


def newest_bytes(service: Attacked) -> int:
    """Size of the newest checkpoint."""
    found = sorted((service.directory / "application").glob("checkpoint-*"))
    return found[-1].stat().st_size if found else 0
