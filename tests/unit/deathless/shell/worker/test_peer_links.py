"""Connections to the services we send to: their primary is found, watched, and looked for again for ever."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path

import msgspec
import pytest
import trustme
from tests.unit.deathless.shell.peer_links_bench import STOCK, Ours, Replica, config_in, ended, run

from deathless.base.config import DriverConfig, PeerConfig, ReplicaConfig, TlsConfig
from deathless.codec.versions import say_hello
from deathless.codec.wire import (
    BatchRefused,
    Refused,
    Role,
    Type,
    encode_peer_commit,
    packet,
    struct_packet,
)
from deathless.core import events as ev
from deathless.shell.directory.members import Member, write_member
from deathless.shell.net.abstract_socket import driver_socket
from deathless.shell.net.tls import server_context
from deathless.shell.worker import peer_links as module
from deathless.shell.worker.peer_links import (
    AGAIN_MAX_S,
    AGAIN_MIN_S,
    LEADERLESS_MAX_S,
    Link,
    Where,
    shards_of,
    where_is,
    without_overtaken,
)


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "AGAIN_MIN_S", 0.0001)
    monkeypatch.setattr(module, "AGAIN_MAX_S", 0.001)
    monkeypatch.setattr(module, "LEADERLESS_MAX_S", 0.001)


def test_a_primary_in_the_folder_beside_ours_is_greeted_and_told_to_the_core(tmp_path: Path) -> None:
    async def main() -> None:
        stock, ours = await Replica(tmp_path / "stock").open(), Ours(config_in(tmp_path))
        stock.next_position = 12
        ours.links.dial(STOCK)
        ours.links.dial(STOCK)
        await ours.wait_told(1)
        assert ours.told == [ev.PeerReady(STOCK, 40, 12)]
        assert stock.hellos == [say_hello("peer", "stock", "shop", "secret")]
        assert stock.introductions[0].epoch == 7
        ours.links.send(STOCK, packet(Type.BATCH, b"x"))
        await stock.wait_for(lambda: bool(stock.got))
        assert stock.got == [(Type.BATCH, b"x")]
        stock.accepted[0].send(encode_peer_commit(40, 12))
        await ours.wait_told(2)
        assert ours.told[1] == ev.PeerCommitted(STOCK, 12)
        (standing,) = ours.links.standing()
        assert (standing.service, standing.connected, standing.address) == ("stock", True, stock.address)
        await ended(ours)

    run(main())


def test_a_replica_that_does_not_lead_names_the_one_that_does(tmp_path: Path) -> None:
    async def main() -> None:
        leader = await Replica(tmp_path / "elsewhere", "r1").open()  # announced where nobody looks
        other = await Replica(tmp_path / "stock", role="standby").open()
        other.primary = leader.address
        ours = Ours(config_in(tmp_path))
        ours.links.dial(STOCK)
        await ours.wait_told(1)
        assert len(leader.introductions) == 1
        assert not other.introductions
        await ended(ours)

    run(main())


def test_a_lost_connection_is_told_once_and_made_again(tmp_path: Path) -> None:
    async def main() -> None:
        stock, ours = await Replica(tmp_path / "stock").open(), Ours(config_in(tmp_path))
        ours.links.dial(STOCK)
        await ours.wait_told(1)
        stock.next_position = 5
        stock.accepted[0].close()
        await ours.wait_told(3)
        assert ours.told[1:] == [ev.PeerLost(STOCK), ev.PeerReady(STOCK, 40, 5)]
        await ended(ours)

    run(main())


def test_of_confirmations_that_come_together_the_last_is_told(tmp_path: Path) -> None:
    async def main() -> None:
        replica = await Replica(tmp_path / "stock").open()
        ours = Ours(config_in(tmp_path))
        ours.links.dial(STOCK)
        await ours.wait_told(1)
        replica.accepted[0].send(b"".join(encode_peer_commit(40, through) for through in (3, 4, 9)))
        await ours.wait_told(2)
        assert ours.told[1:] == [ev.PeerCommitted(STOCK, 9)]
        await ended(ours)

    run(main())


def test_other_packets_beside_confirmations_stay_in_their_order() -> None:
    pong, first, last = (Type.PONG, b""), (Type.PEER_COMMIT, b"1"), (Type.PEER_COMMIT, b"2")
    assert without_overtaken([first, pong, last, pong]) == [pong, last, pong]
    assert without_overtaken([pong, pong]) == [pong, pong]
    assert without_overtaken([last]) == [last]


def test_what_is_sent_while_no_connection_stands_is_lost(tmp_path: Path) -> None:
    async def main() -> None:
        stock, ours = await Replica(tmp_path / "stock").open(), Ours(config_in(tmp_path))
        ours.links.send(STOCK, packet(Type.BATCH, b"never dialed"))
        ours.links.dial(STOCK)
        ours.links.send(STOCK, packet(Type.BATCH, b"not ready"))
        await ours.wait_told(1)
        ours.links.send(STOCK, packet(Type.BATCH, b"ready"))
        await stock.wait_for(lambda: bool(stock.got))
        assert stock.got == [(Type.BATCH, b"ready")]
        await ended(ours)

    run(main())


def test_a_frozen_primary_is_left_for_its_successor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PING_S", 0.001)

    async def main() -> None:
        frozen, ours = await Replica(tmp_path / "stock").open(), Ours(config_in(tmp_path))
        ours.links.dial(STOCK)
        await ours.wait_told(1)
        await asyncio.gather(*(asyncio.sleep(0) for _ in range(10)))
        frozen.mute = True
        successor = await Replica(tmp_path / "stock", "r1").open()
        await ours.wait_told(3)
        assert ours.told[1:] == [ev.PeerLost(STOCK), ev.PeerReady(STOCK, 40, 1)]
        assert len(successor.introductions) == 1
        await ended(ours)

    run(main())


def test_a_primary_that_is_deposed_is_left(tmp_path: Path) -> None:
    async def main() -> None:
        stock, ours = await Replica(tmp_path / "stock").open(), Ours(config_in(tmp_path))
        ours.links.dial(STOCK)
        await ours.wait_told(1)
        successor = await Replica(tmp_path / "elsewhere", "r1").open()
        stock.role = "standby"
        stock.accepted[0].send(struct_packet(Type.ROLE, Role("standby", 4, successor.address)))
        await ours.wait_told(3)
        assert len(successor.introductions) == 1
        await ended(ours)

    run(main())


def test_a_refused_peer_is_shown_to_operators_and_tried_again(tmp_path: Path) -> None:
    async def main() -> None:
        stock, ours = await Replica(tmp_path / "stock").open(), Ours(config_in(tmp_path))
        stock.refusal = Refused("DL3016", "another incarnation")
        ours.links.dial(STOCK)
        await stock.wait_for(lambda: len(stock.introductions) >= 3)
        (standing,) = ours.links.standing()
        assert not standing.connected
        assert "DL3016 another incarnation" in standing.problem
        stock.refusal = None
        await ours.wait_told(1)
        assert ours.links.standing()[0].problem == ""
        count, last = ours.links.troubles[STOCK]
        assert count >= 2
        assert "DL3016 another incarnation" in last, "it is kept when it is over"
        await ended(ours)

    run(main())


def test_a_batch_that_is_not_admitted_is_sent_again_from_where_the_peer_says(tmp_path: Path) -> None:
    async def main() -> None:
        stock, ours = await Replica(tmp_path / "stock").open(), Ours(config_in(tmp_path))
        ours.links.dial(STOCK)
        await ours.wait_told(1)
        stock.next_position = 3
        stock.accepted[0].send(struct_packet(Type.BATCH_REFUSED, BatchRefused(40, 3, "DL1002", "full", 1)))
        await ours.wait_told(3)
        assert ours.told[1:] == [ev.PeerLost(STOCK), ev.PeerReady(STOCK, 40, 3)]
        await ended(ours)

    run(main())


def test_a_dropped_target_is_told_of_no_more(tmp_path: Path) -> None:
    async def main() -> None:
        stock, ours = await Replica(tmp_path / "stock").open(), Ours(config_in(tmp_path))
        ours.links.dial(STOCK)
        await ours.wait_told(1)
        ours.links.drop(STOCK)
        ours.links.drop(STOCK)
        await stock.wait_for(lambda: stock.lost_count == 1)
        assert ours.told == [ev.PeerReady(STOCK, 40, 1)]
        assert ours.links.standing() == []

    run(main())


def test_a_target_that_is_dialed_again_keeps_its_connection(tmp_path: Path) -> None:
    async def main() -> None:
        stock, ours = await Replica(tmp_path / "stock").open(), Ours(config_in(tmp_path))
        ours.links.dial(STOCK)
        task = ours.links._links[STOCK].task
        ours.links.dial(STOCK)
        await ours.wait_told(1)
        ours.links.dial(STOCK)
        assert ours.links._links[STOCK].task is task
        assert (len(stock.accepted), len(stock.introductions)) == (1, 1)
        await ended(ours)

    run(main())


@pytest.mark.parametrize("rounds", [0, 1])
def test_a_target_that_is_dropped_before_it_was_reached_is_not_looked_for_any_more(tmp_path: Path, rounds: int) -> None:
    """Before the first attempt, and in the pause behind one."""

    async def main() -> None:
        ours = Ours(config_in(tmp_path))
        ours.links.dial(STOCK)
        link = ours.links._links[STOCK]
        while link.rounds < rounds:  # noqa: ASYNC110  gives way, does not sleep
            await asyncio.sleep(0)
        ours.links.drop(STOCK)
        assert link.task is not None
        await asyncio.gather(link.task, return_exceptions=True)
        assert link.task.cancelled()
        assert (ours.told, ours.links.standing()) == ([], [])

    run(main())


def test_a_service_that_is_nowhere_is_looked_for_again_and_told_to_operators(tmp_path: Path) -> None:
    async def main() -> None:
        ours = Ours(config_in(tmp_path))
        ours.links.dial(STOCK)
        with socket.socket() as taken:  # bound, and nobody listens: it refuses
            taken.bind(("127.0.0.1", 0))
            write_member(str(tmp_path / "stock"), Member("r9", "", client=f"127.0.0.1:{taken.getsockname()[1]}"))
            while ours.links._links[STOCK].rounds < 3:  # noqa: ASYNC110  gives way, does not sleep
                await asyncio.sleep(0)
            assert "127.0.0.1:" in ours.links.standing()[0].problem
            await Replica(tmp_path / "stock").open()
            await ours.wait_told(1)
            assert ours.links._links[STOCK].rounds == 0, "pauses begin anew"
            assert ours.links.standing()[0].problem == ""
        await ended(ours)

    run(main())


def test_what_is_no_packet_of_ours_ends_the_connection(tmp_path: Path) -> None:
    async def main() -> None:
        stock, ours = await Replica(tmp_path / "stock").open(), Ours(config_in(tmp_path))
        ours.links.dial(STOCK)
        await ours.wait_told(1)
        stock.accepted[0].send(packet(Type.PEER_COMMIT, b"short"))
        await ours.wait_told(3)
        assert ours.told[1] == ev.PeerLost(STOCK)
        await ended(ours)

    run(main())


def test_pauses_double_to_a_cap_with_jitter_and_stay_short_where_a_replica_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in (
        ("AGAIN_MIN_S", AGAIN_MIN_S), ("AGAIN_MAX_S", AGAIN_MAX_S), ("LEADERLESS_MAX_S", LEADERLESS_MAX_S)
    ):  # fmt: skip
        monkeypatch.setattr(module, name, value)

    async def main() -> None:
        ours, twin = Ours(config_in(tmp_path)), Ours(config_in(tmp_path))
        link = Link(STOCK)
        pauses = [ours.links._pause(link, answered=False) for _ in range(30)]
        assert pauses == [twin.links._pause(Link(STOCK), answered=False), *pauses[1:]]  # by the seed alone
        for k, pause in enumerate(pauses):
            most = min(AGAIN_MIN_S * 2**k, AGAIN_MAX_S)
            assert most / 2 <= pause <= most
        assert len(set(pauses[10:])) > 10
        assert ours.links._pause(link, answered=True) <= LEADERLESS_MAX_S

    run(main())


def test_where_a_service_is() -> None:
    tls = TlsConfig(ca="ca", server_name="shop")
    peers = (
        PeerConfig(name="stock", directory="/far/stock"),
        PeerConfig(name="payments", addresses=("a:1", "b:2"), token="theirs", server_name="payments"),
    )
    config = ReplicaConfig(
        service="shop", module="m:a", directory="/near/shop", replica="r0", token="ours", tls=tls, peers=peers
    )
    assert where_is(config, "stock") == Where(("dir:/far/stock",), "ours", tls)
    assert where_is(config, "payments").addresses == ("a:1", "b:2")
    assert where_is(config, "payments").token == "theirs"
    assert where_is(config, "payments").tls == TlsConfig(ca="ca", server_name="payments")
    assert where_is(config, "mail") == Where(("dir:/near/mail",), "ours", tls)
    with_driver = msgspec.structs.replace(config, drivers=(DriverConfig(name="mail", kind="files"),))
    beside = driver_socket(config.directory, config.owner, "mail")
    assert where_is(with_driver, "mail") == Where((), "ours", None, beside), "it is a process beside us"


def test_peers_show_each_other_the_certificates_that_clients_show(tmp_path: Path) -> None:
    authority = trustme.CA()
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    issued = authority.issue_cert("stock.internal")
    issued.private_key_and_cert_chain_pem.write_to_path(tmp_path / "both.pem")
    ca, both = str(tmp_path / "ca.pem"), str(tmp_path / "both.pem")
    theirs = TlsConfig(ca=ca, certificate=both, require_client_certificate=True)
    tls = TlsConfig(ca=ca, certificate=both, server_name="shop.internal")

    async def main() -> None:
        stock = await Replica(tmp_path / "stock").open(server_context(theirs))
        peers = (PeerConfig(name="stock", addresses=(stock.address,), server_name="stock.internal"),)
        ours = Ours(config_in(tmp_path, peers=peers, tls=tls))
        ours.links.dial(STOCK)
        await ours.wait_told(1)
        assert ours.told == [ev.PeerReady(STOCK, 40, 1)]
        await ended(ours)
        wrong = Ours(config_in(tmp_path, peers=peers))  # without certificates
        wrong.links.dial(STOCK)
        while wrong.links._links[STOCK].rounds < 2:  # noqa: ASYNC110  gives way, does not sleep
            await asyncio.sleep(0)
        assert not wrong.told
        await ended(wrong)

    run(main())


def test_a_token_that_is_wrong_is_shown_to_operators(tmp_path: Path) -> None:
    async def main() -> None:
        await Replica(tmp_path / "stock", token="another").open()
        ours = Ours(config_in(tmp_path))
        ours.links.dial(STOCK)
        while "DL3010" not in ours.links.standing()[0].problem:  # noqa: ASYNC110  gives way, does not sleep
            await asyncio.sleep(0)
        assert not ours.told
        await ended(ours)

    run(main())


def test_a_shard_is_looked_for_in_its_folder(tmp_path: Path) -> None:
    peers = (PeerConfig(name="stock", directory="/far/stock", shards=3), PeerConfig(name="mail", addresses=("a:1",)))
    config = ReplicaConfig(
        service="shop", module="m:a", directory="/near/shop/shards/1", replica="r0", shard=1, shards=2, peers=peers
    )
    assert where_is(config, "stock", 2).addresses == ("dir:/far/stock/shards/2",)
    assert where_is(config, "mail", 0).addresses == ("a:1",)
    assert where_is(config, "other", 0).addresses == ("dir:/near/other",), "beside the service, not beside its shard"
    assert where_is(config, "shop", 0).addresses == ("dir:/near/shop/shards/0",)
    assert [shards_of(config, name) for name in ("shop", "stock", "mail", "other")] == [2, 3, 1, 1]
