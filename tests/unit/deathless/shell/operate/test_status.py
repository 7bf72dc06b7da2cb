"""One view out of what every supervisor tells."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from deathless.base.config import ReplicaConfig
from deathless.base.errors import DeathlessError, PeerUnreachable, Unauthorized
from deathless.shell.directory.members import Member, write_member
from deathless.shell.net.admin_call import Access
from deathless.shell.operate import status
from deathless.shell.operate.status import ReplicaView, ServiceView, UnreachedPeer, _Answer, combine, look_now, parts_of

MEMBERS = {
    name: Member(name, f"127.0.0.1:{index}", pid=100 + index) for index, name in enumerate(("r0", "r1", "r2"), 1)
}
GONE = PeerUnreachable("gone")


def report(replica: str, role: str, **more: Any) -> dict[str, object]:
    """What a supervisor tells of a replica."""
    fields = {"replica": replica, "state": "running", "role": role, "epoch": 3, "lsn": 10, "heardMs": 5}
    return {**fields, **more}


def answer(*replicas: dict[str, object]) -> _Answer:
    """A supervisor's answer."""
    return msgspec.convert({"replicas": list(replicas)}, _Answer)


def view(**answers: _Answer | DeathlessError) -> ServiceView:
    """The view when these answered and the others did not."""
    return combine("bank", "/d", MEMBERS, {name: answers.get(name, GONE) for name in MEMBERS})


ALL = (report("r0", "primary", lsn=12), report("r1", "checkpointer"), report("r2", "standby", lsn=13))


def test_roles_and_lags_are_those_that_are_told() -> None:
    seen = view(r0=answer(*ALL), r1=answer(*ALL), r2=answer(*ALL))
    assert (seen.primary, seen.epoch, seen.serving) == ("r0", 3, True)
    assert [(one.role, one.lag, one.answered) for one in seen.replicas] == [
        ("primary", 0, True),
        ("checkpointer", 2, True),
        ("standby", 0, True),
    ]


def test_what_has_no_room_is_seen() -> None:
    seen = view(r0=answer(report("r0", "primary", full=True), report("r1", "standby", outbox_full=True)))
    assert [(one.full, one.outbox_full) for one in seen.replicas[:2]] == [(True, False), (False, True)]


def test_what_is_held_is_seen() -> None:
    seen = view(r0=answer(report("r0", "primary", outside_held=True), report("r1", "standby")))
    assert [one.outside_held for one in seen.replicas[:2]] == [True, False]


def test_primary_whose_program_does_not_serve_is_seen() -> None:
    """That of one that follows, and a service without programs, are none."""
    failing = {"type": "program", "state": "failing", "text": "DL3103 it ended", "differs": "x", "skipped": 1}
    seen = view(r0=answer(report("r0", "primary", program=failing), report("r1", "standby", program=failing)))
    first = seen.replicas[0]
    assert (first.program, first.program_text, first.program_differs, first.program_skips) == (
        "failing", "DL3103 it ended", "x", 1,
    )  # fmt: skip
    assert seen.serving and [one.replica for one in seen.without_program] == ["r0"]
    serves = view(r0=answer(report("r0", "primary", program={**failing, "state": "serving"})))
    assert (serves.without_program, view(r0=answer(*ALL)).without_program) == ([], [])


def test_own_word_counts_more_than_another_ones() -> None:
    told = answer(report("r0", "primary", lsn=99, heardMs=400), report("r1", "standby", heardMs=0))
    own = answer(report("r0", "primary", lsn=7, heardMs=0))
    seen = view(r0=own, r1=told)
    assert [one.lsn for one in seen.replicas] == [7, 10, 0]


def test_replica_that_nobody_heard_lately_is_unreachable() -> None:
    seen = view(r1=answer(report("r0", "primary", heardMs=5000), report("r1", "standby", heardMs=0)))
    assert [one.state for one in seen.replicas] == ["unreachable", "running", "unreachable"]
    assert (seen.primary, seen.serving) == ("", False)
    assert seen.replicas[0].supervisor_pid == 101


def test_frozen_replica_is_shown_as_others_heard_it_last() -> None:
    seen = view(r1=answer(report("r0", "primary", heardMs=600), report("r1", "standby", heardMs=0)))
    assert seen.replicas[0].role == "primary"
    assert not seen.replicas[0].answered


def test_successor_counts_where_the_predecessor_is_still_told_of() -> None:
    seen = view(r1=answer(report("r0", "primary", epoch=3), report("r1", "primary", epoch=4, heardMs=0)))
    assert (seen.primary, seen.epoch) == ("r1", 4)


def test_dead_primary_does_not_serve() -> None:
    seen = view(r0=answer(report("r0", "primary", state="dead", heardMs=0)))
    assert (seen.primary, seen.serving) == ("r0", False)


def test_refusal_is_what_all_replicas_stay_stopped_for() -> None:
    dead = [report(name, "dead", state="dead", condition="DL4009") for name in MEMBERS]
    assert view(r0=answer(*dead)).refusal == "DL4009"
    assert view(r0=answer(*dead[:2], ALL[2])).refusal == ""
    assert view().refusal == ""


def test_wrong_token_is_an_error_and_not_a_view_of_nothing() -> None:
    with pytest.raises(Unauthorized):
        view(r0=Unauthorized("no"), r1=Unauthorized("no"))


def test_folder_without_members_gives_an_empty_view() -> None:
    seen = combine("bank", "/d", {}, {})
    assert (seen.replicas, seen.primary, seen.refusal, seen.of("r0")) == ([], "", "", None)


def part(primary: str, *replicas: ReplicaView) -> ServiceView:
    """The view of one shard."""
    return ServiceView("bank", "/d", primary, 3, list(replicas))


def test_a_service_serves_when_each_of_its_shards_does() -> None:
    first = part("0/r0", ReplicaView("0/r0", "running", "primary"))
    second = part("1/r1", ReplicaView("1/r1", "running", "primary"))
    both = ServiceView("bank", "/d", "", 3, [*first.replicas, *second.replicas], [first, second])
    assert (both.serving, both.primaries, both.refusal, both.parts) == (True, {"0/r0", "1/r1"}, "", [first, second])
    second.replicas[0].state = "dead"
    assert not both.serving
    second.replicas[0].condition = "DL4009"
    assert (both.refusal, [view.replica for view in both.refused]) == ("DL4009", ["1/r1"])
    assert (first.parts, first.primaries) == ([first], {"0/r0"})


def test_shards_are_looked_at_together_and_their_replicas_named_by_them(tmp_path: Path) -> None:
    configs = [
        ReplicaConfig(
            service="bank", module="m:a", directory=str(tmp_path / "shards" / str(shard)), replica=name, shard=shard,
            shards=2,
        )
        for shard in (0, 1)
        for name in ("r0", "r1")
    ]  # fmt: skip
    parts = parts_of(configs)
    assert [(each.label, each.access.service) for each in parts] == [("0/", "bank/0/2"), ("1/", "bank/1/2")]
    for config in configs:
        write_member(config.directory, Member(replica=config.replica, control="127.0.0.1:1"))
    view = look_now(parts)
    assert (view.service, view.directory, view.serving) == ("bank", str(tmp_path), False)
    assert [one.replica for one in view.replicas] == ["0/r0", "0/r1", "1/r0", "1/r1"]
    assert b"shards" in msgspec.json.encode(view)
    alone = parts_of([msgspec.structs.replace(configs[0], shard=0, shards=1)])
    view = look_now(alone)
    assert [one.replica for one in view.replicas] == ["r0", "r1"]
    assert b'shards":' not in msgspec.json.encode(view), "as it was without shards"


class Asked:
    """Supervisors and workers of two shards, as a tool asks them; `peers` is what a primary's worker answers."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.configs = [
            ReplicaConfig(
                service="bank", module="m:a", directory=str(folder / "shards" / str(shard)), replica="r0", shard=shard,
                shards=2,
            )
            for shard in (0, 1)
        ]  # fmt: skip
        for config in self.configs:
            write_member(config.directory, Member(replica=config.replica, control=f"control:{config.shard}"))
        self.peers: dict[str, object] = {}
        self.commands: list[str] = []
        self.state = "running"
        monkeypatch.setattr(status, "ask", self.answer)

    async def answer(self, address: str, command: str, access: Access, *, answer_s: float) -> dict[str, object]:
        self.commands.append(command)
        kind, _, shard = address.partition(":")
        if command == "status":
            assert kind == "control"
            return {"replicas": [report("r0", "primary", heardMs=0, client=f"client:{shard}", state=self.state)]}
        assert (kind, command, access.service) == ("client", "peers", f"bank/{shard}/2")
        if shard not in self.peers:
            raise GONE
        return {"peers": self.peers[shard]}

    def look(self, **options: bool) -> ServiceView:
        return look_now(parts_of(self.configs), **options)


def peer(service: str, **more: Any) -> dict[str, object]:
    """What a primary's worker tells of another service."""
    fields = {"service": service, "shard": 0, "connected": False, "lag": 7, "problem": "no answer", "awayS": 2.5}
    return {**fields, **more}


def test_peers_that_a_primary_does_not_reach_are_told_with_since_when_and_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = Asked(tmp_path, monkeypatch)
    asked.peers["0"] = [peer("a", connected=True), peer("b", idle=True, driver=True)]
    asked.peers["1"] = [peer("c", shard=3), {name: told for name, told in peer("d").items() if name != "awayS"}]
    view = asked.look(with_peers=True)
    away = [
        UnreachedPeer("c", 3, False, 2.5, 7, "no answer", "1/r0"),
        UnreachedPeer("d", 0, False, None, 7, "no answer", "1/r0"),  # an earlier version does not say since when
    ]
    assert view.unreached_peers == away
    assert [part.unreached_peers for part in view.parts] == [[], away]
    assert b'"unreachedPeers":[{"service":"c","shard":3,"driver":false,"awayS":2.5' in msgspec.json.encode(view)


def test_that_no_primary_tells_of_peers_is_not_that_all_are_reached(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = Asked(tmp_path, monkeypatch)
    assert asked.look(with_peers=True).unreached_peers is None
    asked.peers["0"] = [{"service": "of another tongue"}]
    assert asked.look(with_peers=True).unreached_peers is None
    asked.peers["0"] = []
    assert asked.look(with_peers=True).unreached_peers == []
    asked.commands.clear()
    assert asked.look().unreached_peers is None
    asked.state = "stopped"
    assert asked.look(with_peers=True).unreached_peers is None
    assert set(asked.commands) == {"status"}, "only a primary that runs is asked, and only where it is wanted"
