"""The replica's numbers beside the ingress's: asked from the worker, or told as missing."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from deathless.base.config import ReplicaConfig
from deathless.codec.wire import Admin, AdminReply, PacketReader, Type, decode_struct, struct_packet
from deathless.shell.directory.members import Member, write_member
from deathless.shell.web.replica_metrics import expose_status, replica_metrics

pytestmark = pytest.mark.asyncio
STATUS = {
    "replica": "r0",
    "role": "primary",
    "epoch": 3,
    "lsn": 17,
    "uptime_s": 1.5,
    "up": 5,
    "counters": {"calls": 12, "full": False, "followers": {"r1": 16}, "checkpointer": "r1", "lsn": 99},
}


class Worker(asyncio.Protocol):
    """Answers `status`, or hangs up."""

    answers = True

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self.reader = PacketReader(1 << 20)

    def data_received(self, data: bytes) -> None:
        for kind, body in self.reader.feed(data):
            if kind == Type.ADMIN and not self.answers:
                self.transport.close()
            elif kind == Type.ADMIN:
                request = decode_struct(Admin, body)
                assert request.command == "status"
                reply = AdminReply(request.id, "", json.dumps(STATUS).encode())
                self.transport.write(struct_packet(Type.ADMIN_REPLY, reply))


class Mute(Worker):
    answers = False


async def scrape(folder: Path, worker: type[Worker]) -> str:
    server = await asyncio.get_running_loop().create_server(worker, "127.0.0.1", 0)
    write_member(str(folder), Member("r0", "", f"127.0.0.1:{server.sockets[0].getsockname()[1]}"))
    config = ReplicaConfig(service="bank", module="x", directory=str(folder), replica="r0")
    text = (await replica_metrics(config)).decode()
    server.close()
    return text


async def test_status_of_the_worker_becomes_metrics(tmp_path: Path) -> None:
    text = await scrape(tmp_path, Worker)
    me = 'replica="r0",service="bank"'
    for line in (
        f"deathless_replica_up{{{me}}} 1.0",
        f"deathless_replica_epoch{{{me}}} 3.0",
        f"deathless_replica_lsn{{{me}}} 17.0",
        f"deathless_replica_calls_total{{{me}}} 12.0",
        f"deathless_replica_full{{{me}}} 0.0",
        f'deathless_replica_role{{{me[:12]},role="primary",service="bank"}} 1.0',
        f'deathless_replica_follower_lsn{{follower="r1",{me}}} 16.0',
    ):
        assert line in text


async def test_worker_that_hangs_up_or_is_not_there_is_told_as_down(tmp_path: Path) -> None:
    assert 'deathless_replica_up{replica="r0",service="bank"} 0.0' in await scrape(tmp_path, Mute)
    config = ReplicaConfig(service="bank", module="x", directory=str(tmp_path / "none"), replica="r0")
    assert b"deathless_replica_up" in await replica_metrics(config)


async def test_status_of_a_follower_has_no_counters() -> None:
    text = expose_status({"role": "standby", "epoch": 1, "counters": {}}, {"replica": "r1"}).decode()
    assert 'role="standby"' in text
    assert "calls" not in text


async def test_numbers_of_messaging_have_names_of_their_own() -> None:
    told = {
        "invocations": 4, "outbox_bytes": 512, "activities_running": 1,
        "peer_lag_messages": {"stock": 7}, "peer_connected": {"stock": 1, "mail": 0},
        "driver_effects": {"book": 12}, "driver_lag_messages": {"book": 3}, "driver_problem": {"book": 1},
    }  # fmt: skip
    text = expose_status({**STATUS, "messaging": told}, {"service": "bank", "replica": "r0"}).decode()
    labels = 'replica="r0",service="bank"'
    for line in (
        f"deathless_invocations{{{labels}}} 4.0",
        f"deathless_outbox_bytes{{{labels}}} 512.0",
        f"deathless_activities_running{{{labels}}} 1.0",
        f'deathless_peer_lag_messages{{peer="stock",{labels}}} 7.0',
        f'deathless_peer_connected{{peer="mail",{labels}}} 0.0',
        f'deathless_peer_connected{{peer="stock",{labels}}} 1.0',
        f'deathless_driver_effects_total{{driver="book",{labels}}} 12.0',
        f'deathless_driver_lag_messages{{driver="book",{labels}}} 3.0',
        f'deathless_driver_problem{{driver="book",{labels}}} 1.0',
    ):
        assert line in text
    assert "deathless_replica_messaging" not in text


async def test_a_follower_has_no_numbers_of_peers() -> None:
    text = expose_status({**STATUS, "messaging": {"invocations": 4}}, {}).decode()
    assert "deathless_invocations 4.0" in text
    assert "deathless_peer" not in text
