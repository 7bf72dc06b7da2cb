"""What tools are told of handlers that wait and of other services, and what they order; the links are made late."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import msgspec
import pytest

from deathless.base.config import ActivitiesConfig, DriverConfig, ReplicaConfig
from deathless.base.errors import HalfCopy, InvalidArgument, InvocationUnknown, NotPrimary
from deathless.base.ids import SessionId
from deathless.base.limits import Limits
from deathless.codec.peer_messages import (
    RETRY,
    Adopt,
    Crowd,
    Given,
    History,
    InvocationView,
    Order,
    PeerHello,
    ScheduleView,
    Target,
)
from deathless.codec.snapshot import UnknownRecord
from deathless.codec.wire import PREFIX_BYTES, Admin, PeerIntroduction, decode_struct, error_reply, ok_reply
from deathless.core import events as ev
from deathless.core.primary.sending import PeerView, Stage
from deathless.core.tables.outbox import Outbox
from deathless.core.tables.peer_table import PeerTable
from deathless.core.tables.sessions import SessionTable
from deathless.core.tables.undelivered import Undelivered
from deathless.core.tables.unknown_outcomes import UnknownOutcomes
from deathless.engine.replica.host import EngineHost
from deathless.shell.directory.adopted import FILE, Adoption, read_adoption, write_adoption
from deathless.shell.worker.activities import no_trace
from deathless.shell.worker.messaging import (
    COMMANDS,
    OUTBOX_CALM_S,
    SHOWN_BYTES_MAX,
    SHOWN_MAX,
    UNKNOWN_SHOWN_MAX,
    WAITS_SHOWN_MAX,
    Messaging,
    list_unknown,
)

pytestmark = pytest.mark.asyncio
CONFIG = ReplicaConfig(
    service="shop", module="m:a", directory="/nowhere/shop", replica="r0", activities=ActivitiesConfig(workers=3)
)
CONN = ev.Conn(4)
STOCK = Target("stock", 0)


class End:
    """A worker's messaging, around an engine that is as far there as it is looked at."""

    def __init__(self, *, leads: bool = True, config: ReplicaConfig = CONFIG) -> None:
        self.posted: list[ev.Event] = []
        self.views: list[InvocationView] = []
        self.given: list[Given] = []
        self.schedules: list[ScheduleView] = []
        self.problems: list[PeerView] = []
        self.refused: dict[Target, str] = {}
        self.held_back: dict[int, str] = {}
        held = SimpleNamespace(why=lambda session: self.held_back.get(session, ""))
        admission = SimpleNamespace(held_back=held)
        limits = Limits()
        self.differing: set[Target] = set()

        def introduction(target: Target, hello: PeerHello, epoch: int) -> PeerIntroduction:
            return PeerIntroduction(hello, epoch, 12 if target == STOCK else 1)

        outreach = SimpleNamespace(views=lambda: self.problems, introduction=introduction)
        peering = SimpleNamespace(refused=lambda: self.refused)
        messaging = SimpleNamespace(outreach=outreach, peering=peering, differing=lambda: self.differing)
        self.shard = SimpleNamespace(
            executor=SimpleNamespace(
                traceparent=no_trace,
                invocations=lambda first, most: [v for v in self.views if v.invocation >= first][:most],
                invocation_count=lambda: len(self.views),
                crowd=lambda: Crowd(len(self.views), 0, 0),
                held_count=lambda: 0,
                schedules=lambda: self.schedules,
                history=lambda invocation, count_max: History(msgspec.msgpack.encode({"n": invocation}), self.given, 9),
            ),
            outbox=Outbox(),
            peers=PeerTable(limits),
            sessions=SessionTable(limits),
            unknown=UnknownOutcomes(limits),
            undelivered=Undelivered(),
        )
        self.primary = SimpleNamespace(messaging=messaging, admission=admission, epoch=6, outbox_full=False)
        self.now = 100.0
        engine = self.engine = SimpleNamespace(
            core=SimpleNamespace(
                primary=self.primary if leads else None,
                known_epoch=7,  # a successor was heard of
            ),
            service=SimpleNamespace(name="shop", service_id=b"s" * 16, incarnation=2),
            shard=self.shard,
            place=SimpleNamespace(time_us=99),
        )
        host = SimpleNamespace(engine=engine, post=self.posted.append)
        self.messaging = Messaging(config, limits, cast("EngineHost", host), now=lambda: self.now)

    def ask(self, asked: str, **arguments: str) -> dict[str, object]:
        return cast("dict[str, object]", self.tell(asked, **arguments))

    def tell(self, asked: str, **arguments: str) -> object:
        return self.messaging.answer(CONN, Admin(8, asked, msgspec.json.encode(arguments)))


def view(invocation: int) -> InvocationView:
    return InvocationView(invocation, "place", "k", 5, 1, ("timer",), "client")


@pytest.mark.parametrize("command", sorted(COMMANDS))
async def test_only_a_primary_answers(command: str) -> None:
    with pytest.raises(NotPrimary):
        End(leads=False).tell(command)


async def test_handlers_that_wait_are_listed_the_oldest_first_and_so_many_at_a_time() -> None:
    end = End()
    end.views = [view(n) for n in range(1, SHOWN_MAX + 5)]
    told = end.ask("invocations")
    assert (told["count"], told["nowUs"]) == (SHOWN_MAX + 4, 99)
    assert told["invocations"] == end.views[:SHOWN_MAX]
    assert end.ask("invocations", **{"from": "1003"})["invocations"] == end.views[1002:]


async def test_list_of_handlers_that_wait_for_ever_so_much_fits_a_packet_and_one_is_shown_whole() -> None:
    end = End()
    many = tuple(f"call of stock/0/{'k' * 512} take.{number}, since {2**63} us" for number in range(10_000))
    end.views = [msgspec.structs.replace(view(n), waits_for=many) for n in range(1, SHOWN_MAX + 1)]
    told = end.ask("invocations")
    assert len(msgspec.msgpack.encode(told)) < 4 * Limits().frame_bytes_max  # what a client takes
    listed, shown = cast("list[InvocationView]", told["invocations"]), end.ask("invocation", invocation="1")
    assert listed[0].waits_for == (*many[:WAITS_SHOWN_MAX], f"and {10_000 - WAITS_SHOWN_MAX} more")
    assert cast("InvocationView", shown["invocation"]).waits_for == many


async def test_what_a_copy_holds_is_let_go_for_this_primary_and_each_that_follows(tmp_path: Path) -> None:
    write_adoption(str(tmp_path), Adoption(hold_outside=True, through_epoch=3))
    config = msgspec.structs.replace(CONFIG, directory=str(tmp_path))
    end, later = End(config=config), End(config=config)
    assert end.messaging.outward.held and later.messaging.outward.held
    later.messaging.begin_reign()
    assert later.messaging.outward.held, "nobody let it go"
    assert end.ask("resume-outside") == {"resumed": True}
    assert read_adoption(str(tmp_path)) == Adoption(through_epoch=3)
    assert end.ask("resume-outside") == {"resumed": False}
    later.messaging.begin_reign()
    assert not later.messaging.outward.held, "it read the file when it began to follow"


async def test_what_a_copy_holds_is_held_on_where_the_directory_can_not_say_otherwise(tmp_path: Path) -> None:
    write_adoption(str(tmp_path), Adoption(hold_outside=True))
    end = End(config=msgspec.structs.replace(CONFIG, directory=str(tmp_path)))
    (tmp_path / FILE).write_text("{")
    with pytest.raises(HalfCopy):
        end.ask("resume-outside")
    assert end.messaging.outward.held


async def test_schedules_are_listed() -> None:
    end = End()
    end.schedules = [ScheduleView("nightly", "run", "a", "0 3 * * *", "UTC", "one", 5, 9, False, (7,), "")]
    assert end.ask("schedules") == {"schedules": end.schedules, "nowUs": 99}


async def test_one_handler_that_waits_is_shown() -> None:
    end = End()
    end.views = [view(3), view(5)]
    assert end.ask("invocation", invocation="5")["invocation"] == view(5)
    with pytest.raises(InvocationUnknown):
        end.ask("invocation", invocation="4")


async def test_the_history_of_one_is_shown_as_values_and_errors() -> None:
    end = End()
    end.views = [view(5)]
    replies = [
        ok_reply(msgspec.msgpack.encode({"left": b"\xff"})),
        error_reply("DL3014", "Poor", "no"),
        b"\x01",
        ok_reply(msgspec.msgpack.encode("x" * SHOWN_BYTES_MAX)),
        ok_reply(msgspec.msgpack.encode(msgspec.msgpack.Ext(5, b""))),
    ]
    end.given = [Given(n, f"call {n}", 10 + n, 20 + n, 30 + n, reply) for n, reply in enumerate(replies)]
    end.given.append(Given(0, "", 0, 40, 41, error_reply("DL3018", "Cancelled", "it was")))
    told = msgspec.json.decode(msgspec.json.encode(end.ask("invocation", invocation="5")))
    assert (told["arguments"], told["givenCount"]) == ({"n": 5}, 9)
    value, error, broken, long, odd, cancelled = told["given"]
    where = {"operation": 0, "what": "call 0", "asked_us": 10, "lsn": 20, "at_us": 30}
    assert value == {**where, "bytes": 9, "value": {"left": "/w=="}}
    assert (error["code"], error["type"], error["error"]) == ("DL3014", "Poor", "no")
    assert "read" in broken["error"]
    assert (long["value"], odd["value"]) == (None, None)
    assert long["bytes"] > SHOWN_BYTES_MAX
    assert cancelled["what"] == "cancelled"


@pytest.mark.parametrize(
    ("arguments", "order"),
    [
        ({"command": "cancel", "invocation": "5"}, Order("cancel", 5)),
        ({"command": "kill", "invocation": "5"}, Order("kill", 5)),
        ({"command": "retry", "invocation": "5"}, Order(RETRY, 5)),
        (
            {"command": "resume", "invocation": "5", "operation": "2", "value": '{"yes": true}'},
            Order("resume", 5, 2, ok_reply(msgspec.msgpack.encode({"yes": True}))),
        ),
    ],
)
async def test_orders_go_to_the_core_which_answers(arguments: dict[str, str], order: Order) -> None:
    end = End()
    assert end.tell("order", **arguments) is None
    assert end.posted == [ev.OrderReceived(CONN, 8, order)]


async def test_an_adopted_peer_goes_to_the_core_which_answers() -> None:
    end = End()
    assert end.tell("adopt-peer", service="stock", service_id="ab" * 16, incarnation="4") is None
    assert end.posted == [ev.OrderReceived(CONN, 8, Adopt("stock", 0, b"\xab" * 16, 4))]


async def test_a_peer_with_another_history_is_adopted_anew_although_it_is_the_same() -> None:
    end = End()
    end.differing.add(STOCK)
    end.shard.outbox.append(STOCK, b"one")
    assert end.messaging.status()["peer_history_differs"] == {"stock": 1}
    assert end.tell("adopt-peer", service="stock", service_id="ab" * 16, incarnation="4") is None
    assert end.posted == [ev.OrderReceived(CONN, 8, Adopt("stock", 0, b"\xab" * 16, 4, True))]


@pytest.mark.parametrize(
    ("command", "arguments"),
    [
        ("order", {"command": "explode", "invocation": "5"}),
        ("order", {"command": "kill"}),
        ("order", {"command": "kill", "invocation": "x"}),
        ("order", {"command": "resume", "invocation": "5", "value": "{"}),
        ("order", {"command": "kill", "invocation": str(2**64)}),
        ("order", {"command": "kill", "invocation": "-1"}),
        ("order", {"command": "kill", "invocation": "5", "operation": str(2**64)}),
        ("order", {"command": "resume", "invocation": "5", "value": "[" * 100_000}),
        ("order", {"command": "resume", "invocation": "5", "value": f'"{"x" * Limits().reply_bytes_max}"'}),
        ("adopt-peer", {"service": "stock", "service_id": "no hex", "incarnation": "1"}),
        ("adopt-peer", {"service": "stock", "service_id": "ab", "incarnation": "1"}),
        ("adopt-peer", {"service": "stock", "service_id": "ab" * 16, "incarnation": "-1"}),
        ("adopt-peer", {"service": "stock", "service_id": "ab" * 16, "incarnation": str(2**64)}),
        ("adopt-peer", {"service": "stock", "service_id": "ab" * 16, "incarnation": "1", "shard": str(2**32)}),
        ("invocation", {}),
        ("invocations", {"from": "soon"}),
    ],
)
async def test_what_a_tool_may_not_ask_is_refused(command: str, arguments: dict[str, str]) -> None:
    end = End()
    with pytest.raises(InvalidArgument):
        end.tell(command, **arguments)
    assert end.posted == []


async def test_a_peer_is_shown_with_what_went_both_ways_and_what_is_wrong() -> None:
    end = End()
    for number in range(3):
        end.shard.outbox.append(STOCK, b"%d" % number)
    end.shard.outbox.append(Target("", 0), b"to ourselves")
    end.shard.outbox.trim(STOCK, 1)
    end.shard.peers.introduce(PeerHello("stock", 0, b"i" * 16, 7), 30)
    end.shard.sessions.register_peer(SessionId(30))
    end.problems = [PeerView(STOCK, Stage.RESTING, 2, "it asks for message 1")]
    end.refused[Target("mail", 0)] = "DL3016 created anew"
    end.held_back[30] = "50000 messages wait"
    mail, stock = cast("list[dict[str, object]]", end.ask("peers")["peers"])
    assert (stock["sent"], stock["lag"], stock["received"], stock["incarnation"]) == (3, 2, 0, 7)
    assert (stock["connected"], stock["problem"]) == (False, "it asks for message 1")
    assert (mail["service"], mail["sent"], mail["problem"]) == ("mail", 0, "DL3016 created anew")
    assert (mail["heldBack"], stock["heldBack"]) == ("", "50000 messages wait")
    assert end.messaging.status()["peer_held_back"] == {"mail": 0, "stock": 1}
    assert end.messaging.status()["peer_lag_messages"] == {"mail": 0, "stock": 2}
    assert end.messaging.status()["outbox_bytes"] == end.shard.outbox.bytes


async def test_a_primary_tells_a_full_outbox_at_once_and_of_room_once_there_has_been_some_for_a_while() -> None:
    end = End()
    assert end.messaging.status()["outbox_full"] == 0
    for full, later_s, told in (
        (True, 0.0, True),
        (False, OUTBOX_CALM_S - 1, True),
        (True, 0.0, True),  # that there was room was for a moment
        (False, OUTBOX_CALM_S - 1, True),
        (False, 1.0, False),
        (True, 0.0, True),
    ):
        end.primary.outbox_full = full
        end.now += later_s
        assert end.messaging.outbox_full() is told
        assert end.messaging.status()["outbox_full"] == told
    end.engine.core.primary = None
    assert not end.messaging.outbox_full()
    end.engine.core.primary, end.primary.outbox_full = end.primary, False
    assert not end.messaging.outbox_full(), "what an earlier epoch found is forgotten"


async def test_a_driver_is_shown_also_while_it_has_nothing_to_do_and_has_numbers_of_its_own() -> None:
    drivers = (DriverConfig(name="book", kind="files"), DriverConfig(name="mail", kind="webhook"))
    end = End(config=msgspec.structs.replace(CONFIG, drivers=drivers))
    for number in range(3):
        end.shard.outbox.append(Target("mail", 0), b"%d" % number)
    end.shard.outbox.trim(Target("mail", 0), 1)
    end.problems = [PeerView(Target("mail", 0), Stage.RESTING, 2, "DL1020 it is away")]
    end.messaging.links.troubles[Target("mail", 0)] = (5, "DL1020 it was away")
    book, mail = cast("list[dict[str, object]]", end.ask("peers")["peers"])
    assert (book["driver"], book["idle"], book["connected"], book["problem"]) == (True, True, False, "")
    assert book["awayS"] is None, "it has nothing to do"
    assert (mail["driver"], mail["idle"], mail["problem"]) == (True, False, "DL1020 it is away")
    assert (mail["errors"], mail["lastProblem"]) == (5, "DL1020 it was away")
    told = {name: value for name, value in end.messaging.status().items() if name.startswith("driver")}
    assert told == {
        "driver_connected": {"book": 0, "mail": 0},
        "driver_idle": {"book": 1, "mail": 0},
        "driver_effects": {"book": 0, "mail": 1},
        "driver_lag_messages": {"book": 0, "mail": 2},
        "driver_errors": {"book": 0, "mail": 5},
        "driver_problem": {"book": 0, "mail": 1},
    }
    assert end.messaging.status()["peer_lag_messages"] == {}
    end.messaging.close()


async def test_a_follower_has_numbers_of_its_state_alone() -> None:
    status = End(leads=False).messaging.status()
    assert status.keys() == {
        "invocations", "waiting_messages", "invocations_held", "suspended_bytes", "outbox_bytes", "outbox_memory_bytes",
        "outbox_spill_refused", "messages_undelivered", "outcomes_unknown", "activities_running", "outside_held",
    }  # fmt: skip
    assert not any(status.values())


async def test_links_and_activities_are_made_when_they_are_needed_and_end_together() -> None:
    end = End()
    end.messaging.close()
    links, activities = end.messaging.links, end.messaging.activities
    assert end.messaging.links is links
    assert end.messaging.activities is activities
    links.dial(STOCK)
    (standing,) = links.standing()
    (peer,) = cast("list[dict[str, object]]", end.ask("peers")["peers"])
    assert peer["problem"] == standing.problem
    assert isinstance(peer["awayS"], float), "for so long"
    end.messaging.close()
    assert links.standing() == []
    await asyncio.sleep(0)


async def test_we_introduce_ourselves_with_the_epoch_that_we_lead_in_and_what_we_keep() -> None:
    packet = End().messaging._introduce(STOCK)
    told = decode_struct(PeerIntroduction, packet[PREFIX_BYTES:])
    assert told == PeerIntroduction(PeerHello("shop", 0, b"s" * 16, 2), 6, 12)
    packet = End(leads=False).messaging._introduce(STOCK)
    assert decode_struct(PeerIntroduction, packet[PREFIX_BYTES:]).epoch == 0, "no primary has an epoch"


async def test_list_of_ever_so_many_unknown_outcomes_fits_a_packet() -> None:
    long = "\0" * 60_000
    records = [UnknownRecord(n, 1, long, b"\xff" * 60_000, long, long, n, 0) for n in range(1, UNKNOWN_SHOWN_MAX + 10)]
    told = list_unknown(records)
    assert len(msgspec.json.encode(told)) < 4 * Limits().frame_bytes_max  # what a client takes
    listed = cast("list[dict[str, object]]", told["unknown"])
    assert (told["count"], listed[0]["lsn"], len(listed)) == (UNKNOWN_SHOWN_MAX + 9, 10, UNKNOWN_SHOWN_MAX)


async def test_unknown_outcomes_are_warned_of_and_counted(caplog: pytest.LogCaptureFixture) -> None:
    end = End()
    record = UnknownRecord(512, 1, "place", "Zoë".encode(), "charge", "0f3a", 90, 5)
    end.shard.unknown.add(record)
    assert end.messaging.status()["outcomes_unknown"] == 1
    told = {
        "invocation": 512, "operation": 1, "handler": "place", "key": "Zoë", "activity": "charge",
        "activityKey": "0f3a", "lsn": 90, "atUs": 5,
    }  # fmt: skip
    assert end.ask("unknown") == {"unknown": [told], "count": 1}
    end.messaging.report_unknown([record])
    (line,) = caplog.records
    assert (line.levelname, line.__dict__["activityKey"], line.__dict__["invocation"]) == ("WARNING", "0f3a", 512)
