"""What the gateway does with each way in which an endpoint can fail."""

from __future__ import annotations

import asyncio
import ssl
from pathlib import Path
from typing import Self

import pytest
from aiohttp import web
from etcd_fake import BAD_TOKEN, LEADER_CHANGED, NO_LEADER, TIMED_OUT, FakeMember, Fault, Plan, Refusal
from etcd_server import TlsFiles
from lab.ports import free_ports

from deathless.base.errors import Closed, InvalidConfig
from deathless.shell.lock_stores.etcd import records as wire
from deathless.shell.lock_stores.etcd.errors import EtcdAuth, EtcdRefused, EtcdUnavailable, LeaseNotFound
from deathless.shell.lock_stores.etcd.gateway import ANSWER_BYTES_MAX, Gateway
from deathless.shell.lock_stores.etcd.settings import EtcdSettings, EtcdTls

pytestmark = pytest.mark.asyncio

READ = wire.encode_range(b"k", prefix=False, limit=0, serializable=False)
WRITE = wire.encode_put(wire.Put(key=b"k", value=b"v"))
NOWHERE = f"http://127.0.0.1:{free_ports(1)[0]}"


class Opened:
    """A gateway that is open inside `async with`; short times, since its faults are silence."""

    def __init__(
        self,
        *endpoints: str,
        user: str | None = None,
        password: str = "",
        attempt_timeout_s: float = 1.0,
        call_timeout_s: float = 4.0,
    ) -> None:
        self.gateway = Gateway(
            EtcdSettings(
                endpoints=endpoints,
                username=user,
                password=password,
                attempt_timeout_s=attempt_timeout_s,
                call_timeout_s=call_timeout_s,
            )
        )

    async def __aenter__(self) -> Gateway:
        await self.gateway.open()
        return self.gateway

    async def __aexit__(self, *_: object) -> None:
        await self.gateway.close()


async def read(gateway: Gateway) -> wire.RangeResult:
    return await gateway.call("kv/range", READ, wire.RANGE, repeatable=True)


async def write(gateway: Gateway, *, hedged: bool | None = None) -> wire.PutResult:
    return await gateway.call("kv/put", WRITE, wire.PUT, repeatable=False, hedged=hedged)


async def test_endpoint_that_refuses_connections_is_passed_over_for_any_request() -> None:
    async with FakeMember() as member, Opened(NOWHERE, member.url) as gateway:
        await write(gateway)
        assert gateway.endpoint == member.url
        assert (await read(gateway)).get(b"k") is not None


@pytest.mark.parametrize("plan", [NO_LEADER, Refusal(14, "etcdserver: rpc not supported for learner", 503)])
async def test_write_that_was_not_even_proposed_goes_to_the_next_endpoint(plan: Plan) -> None:
    async with FakeMember() as first, FakeMember() as second, Opened(first.url, second.url) as gateway:
        first.plan("kv/put", plan)
        await write(gateway)
        assert (first.count("kv/put"), second.count("kv/put")) == (1, 1)


@pytest.mark.parametrize(
    "plan",
    [Fault.LOST, Fault.ANSWER_LOST, Fault.SILENCE, TIMED_OUT, LEADER_CHANGED, b"<html>", Refusal(13, "internal", 500)],
)
async def test_write_that_may_have_been_done_is_never_sent_again(plan: Plan) -> None:
    async with FakeMember() as first, FakeMember() as second, Opened(first.url, second.url) as gateway:
        first.plan("kv/put", plan)
        with pytest.raises(EtcdUnavailable) as caught:
            await write(gateway)
        assert caught.value.outcome_unknown
        assert (first.count("kv/put"), second.count("kv/put")) == (1, 0)
        assert gateway.endpoint == second.url  # the next request asks another member


@pytest.mark.parametrize("plan", [Fault.LOST, Fault.SILENCE, TIMED_OUT, LEADER_CHANGED, NO_LEADER, b"<html>"])
async def test_read_without_an_answer_goes_to_the_next_endpoint(plan: Plan) -> None:
    async with FakeMember() as first, FakeMember() as second, Opened(first.url, second.url) as gateway:
        first.plan("kv/range", plan)
        await read(gateway)
        assert (first.count("kv/range"), second.count("kv/range")) == (1, 1)


async def test_requests_that_fail_together_move_on_by_one_endpoint() -> None:
    async with (
        FakeMember() as first,
        FakeMember() as second,
        FakeMember() as third,
        Opened(first.url, second.url, third.url) as gateway,
    ):
        first.plan("kv/range", Fault.SILENCE, Fault.SILENCE)
        await asyncio.gather(read(gateway), read(gateway))
        assert gateway.endpoint == second.url
        assert third.requests == []


async def test_silent_member_costs_a_request_that_may_be_sent_twice_no_time_out() -> None:
    async with (
        FakeMember() as first,
        FakeMember() as second,
        FakeMember() as third,
        Opened(first.url, second.url, third.url, attempt_timeout_s=3600, call_timeout_s=7200) as gateway,
    ):
        first.plan("kv/range", Fault.SILENCE)
        second.plan("kv/range", Fault.SILENCE)
        await read(gateway)
        assert gateway.endpoint == third.url
        third.plan("kv/put", Fault.SILENCE)
        await write(gateway, hedged=True)
        assert gateway.endpoint == first.url, "who answered is asked first from then on"
        assert second.count("kv/put") == 0


async def test_answer_that_is_late_still_counts_while_the_others_have_none() -> None:
    asked = asyncio.Event()
    async with (
        FakeMember() as first,
        FakeMember() as second,
        Opened(first.url, second.url, attempt_timeout_s=3600, call_timeout_s=7200) as gateway,
    ):
        first.plan("kv/put", asked)
        second.plan("kv/put", NO_LEADER)
        writing = asyncio.create_task(write(gateway, hedged=True))
        await second.wait_count("kv/put", 1)
        asked.set()
        await writing
        assert (first.count("kv/put"), second.count("kv/put"), gateway.endpoint) == (1, 1, first.url)


async def test_write_sent_to_two_members_may_have_been_done_where_one_of_them_says_nothing() -> None:
    held = asyncio.Event()
    async with (
        FakeMember() as first,
        FakeMember() as second,
        Opened(first.url, second.url, attempt_timeout_s=0.5, call_timeout_s=0.5) as gateway,
    ):
        first.plan("kv/put", held)
        second.plan("kv/put", NO_LEADER)
        with pytest.raises(EtcdUnavailable) as caught:
            await write(gateway, hedged=True)
        assert caught.value.outcome_unknown
        assert second.count("kv/put") == 1
        held.set()


async def test_single_endpoint_is_asked_again_until_it_answers() -> None:
    async with FakeMember() as member, Opened(member.url) as gateway:
        member.plan("kv/range", NO_LEADER, LEADER_CHANGED, NO_LEADER)
        await read(gateway)
        assert member.count("kv/range") == 4


async def test_call_ends_by_its_deadline_and_says_that_nothing_was_done() -> None:
    async with Opened(NOWHERE) as gateway:
        with pytest.raises(EtcdUnavailable, match="127") as caught:
            await asyncio.wait_for(write(gateway), 30)
        assert not caught.value.outcome_unknown


async def test_silent_endpoints_do_not_hold_a_read_beyond_its_deadline() -> None:
    async with FakeMember() as member, Opened(member.url) as gateway:
        member.plan("kv/range", *[Fault.SILENCE] * 50)
        with pytest.raises(EtcdUnavailable):
            await asyncio.wait_for(read(gateway), 30)
        assert member.count("kv/range") < 10


@pytest.mark.parametrize(
    ("plan", "kind"),
    [
        (Refusal(3, "etcdserver: key is not provided"), EtcdRefused),
        (Refusal(5, "etcdserver: requested lease not found", 404), LeaseNotFound),
        (Refusal(7, "etcdserver: permission denied", 403), EtcdAuth),
        (Refusal(8, "etcdserver: mvcc: database space exceeded", 429), EtcdRefused),
        (Refusal(16, "etcdserver: invalid auth token", 401), EtcdAuth),  # no user is configured
        (Refusal(3, "etcdserver: user name is empty"), EtcdAuth),
    ],
)
async def test_definite_no_is_told_at_once_and_never_retried(plan: Plan, kind: type[Exception]) -> None:
    async with FakeMember() as first, FakeMember() as second, Opened(first.url, second.url) as gateway:
        first.plan("kv/put", plan)
        with pytest.raises(kind) as caught:
            await write(gateway)
        assert type(caught.value) is kind
        assert (first.count("kv/put"), second.count("kv/put")) == (1, 0)


async def test_requests_demand_a_leader_unless_they_may_be_stale() -> None:
    async with FakeMember() as member, Opened(member.url) as gateway:
        await read(gateway)
        await gateway.call("kv/range", READ, wire.RANGE, repeatable=True, leader=False)
        demands = [headers.get("Grpc-Metadata-hasleader") for _, _, headers in member.requests]
        assert demands == ["true", None]


async def test_answer_above_its_maximum_is_refused() -> None:
    async with FakeMember() as member, Opened(member.url, call_timeout_s=30) as gateway:
        gateway.settings = EtcdSettings(endpoints=(member.url,), attempt_timeout_s=20, call_timeout_s=30)
        member.plan("kv/range", b"x" * (ANSWER_BYTES_MAX + 1))
        with pytest.raises(EtcdRefused, match="above"):
            await read(gateway)
        await read(gateway)


async def test_server_that_is_no_etcd_is_named_so() -> None:
    async with FakeMember() as member, Opened(member.url) as gateway:
        with pytest.raises(EtcdRefused, match="not an etcd gateway"):
            await gateway.call("../v9", READ, wire.RANGE, repeatable=True)


async def test_certificate_with_a_common_name_is_named_as_what_etcd_refuses() -> None:
    async with FakeMember() as member, Opened(member.url) as gateway:
        said = "CommonName of client sending a request against gateway will be ignored and not used as expected"
        member.plan("kv/range", web.Response(status=400, text=said))
        with pytest.raises(EtcdAuth, match="common name: issue one without"):
            await read(gateway)


# ---------------------------------------------------------------- user and password


async def test_waiting_requests_share_one_login() -> None:
    async with FakeMember(password="pw") as member, Opened(member.url, user="u", password="pw") as gateway:
        await asyncio.gather(*(read(gateway) for _ in range(8)))
        assert member.logins == 1


async def test_token_that_ended_is_replaced_and_the_write_done_once() -> None:
    async with FakeMember(password="pw") as member, Opened(member.url, user="u", password="pw") as gateway:
        await read(gateway)
        member.tokens.clear()
        await asyncio.gather(write(gateway), read(gateway), read(gateway))
        assert member.logins == 2
        assert member.store.keys[b"k"].version == 1


async def test_late_refusal_of_an_old_token_does_not_throw_the_new_one_away() -> None:
    async with FakeMember(password="pw") as member, Opened(member.url, user="u", password="pw") as gateway:
        gateway.settings = EtcdSettings(endpoints=(member.url,), username="u", password="pw", attempt_timeout_s=5)
        await read(gateway)
        held = asyncio.Event()
        member.plan("kv/range", held)
        late = asyncio.create_task(read(gateway))
        await member.wait_count("kv/range", 2)
        member.tokens.clear()
        await write(gateway)
        held.set()
        await late
        assert member.logins == 2


async def test_token_of_an_older_user_list_is_replaced() -> None:
    async with FakeMember(password="pw") as member, Opened(member.url, user="u", password="pw") as gateway:
        member.plan("kv/put", Refusal(3, "etcdserver: revision of auth store is old"))
        await write(gateway)
        assert member.logins == 2


async def test_wrong_password_is_told_at_once() -> None:
    async with FakeMember(password="pw") as member, Opened(member.url, user="u", password="no") as gateway:
        with pytest.raises(EtcdAuth, match="'u'"):
            await read(gateway)
        assert member.count("kv/range") == 0


async def test_member_that_takes_no_token_does_not_make_us_log_in_for_ever() -> None:
    async with FakeMember(password="pw") as member, Opened(member.url, user="u", password="pw") as gateway:
        member.plan("kv/range", *[BAD_TOKEN] * 50)
        with pytest.raises(EtcdAuth):
            await read(gateway)
        assert member.logins <= 4


async def test_user_where_authentication_is_off_does_no_harm_and_helps_once_it_is_on() -> None:
    async with FakeMember() as member, Opened(member.url, user="u", password="pw") as gateway:
        await read(gateway)
        member.password = "pw"
        await read(gateway)
        assert member.logins == 1


async def test_login_that_is_lost_leaves_no_write_in_doubt() -> None:
    async with FakeMember(password="pw") as member, Opened(member.url, user="u", password="pw") as gateway:
        member.plan("auth/authenticate", Fault.LOST, Fault.SILENCE)
        await write(gateway)
        assert member.store.keys[b"k"].version == 1


# ---------------------------------------------------------------- opening, TLS


async def test_client_that_is_not_open_says_so() -> None:
    gateway = Gateway(EtcdSettings(endpoints=(NOWHERE,)))
    with pytest.raises(Closed):
        await read(gateway)


async def test_wrong_settings_are_refused_before_anything_is_sent(tmp_path: Path) -> None:
    with pytest.raises(InvalidConfig):
        Gateway(EtcdSettings(endpoints=("nonsense",)))
    gateway = Gateway(EtcdSettings(endpoints=("https://a:1",), tls=EtcdTls(ca_file=tmp_path / "none.pem")))
    with pytest.raises(InvalidConfig):
        await gateway.open()


async def test_server_with_a_certificate_of_another_authority_is_refused(tmp_path: Path) -> None:
    ours, theirs = TlsFiles.create(tmp_path / "a"), TlsFiles.create(tmp_path / "b")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(theirs.server_cert, theirs.server_key)
    server = await asyncio.start_server(lambda _reader, writer: writer.close(), "127.0.0.1", 0, ssl=context)
    url = f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    settings = EtcdSettings(endpoints=(url,), tls=EtcdTls(ca_file=ours.ca_file), attempt_timeout_s=5, call_timeout_s=10)
    gateway = Gateway(settings)
    await gateway.open()
    with pytest.raises(EtcdAuth, match="certificate"):
        await write(gateway)
    await gateway.close()
    server.close()
    await server.wait_closed()


class TlsMember:
    """Answers every read over TLS and notes which certificate it was shown; trusts several authorities."""

    def __init__(self, shown: TlsFiles, *trusted: TlsFiles) -> None:
        self.context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        self.context.load_cert_chain(shown.server_cert, shown.server_key)
        for files in trusted:
            self.context.load_verify_locations(files.ca_file)
        self.context.verify_mode = ssl.CERT_REQUIRED
        self.seen: list[str] = []
        self.url = ""
        self._runner: web.AppRunner | None = None

    async def _answer(self, request: web.Request) -> web.Response:
        assert request.transport is not None
        self.seen.append(request.transport.get_extra_info("peercert")["serialNumber"])
        return web.json_response({"header": {"cluster_id": "1", "member_id": "1", "revision": "1", "raft_term": "1"}})

    async def __aenter__(self) -> Self:
        app = web.Application()
        app.router.add_post("/v3/kv/range", self._answer)
        self._runner = web.AppRunner(app)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0, ssl_context=self.context)
        await site.start()
        self.url = f"https://127.0.0.1:{self._runner.addresses[0][1]}"
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._runner is not None
        await self._runner.cleanup()


def put_in_place(files: TlsFiles, folder: Path, *names: str) -> None:
    """Replace files as a kubelet does: at once, by another of the same name."""
    for name in names:
        new = folder / f"{name}.new"
        new.write_bytes((files.ca_file.parent / name).read_bytes())
        new.replace(folder / name)


async def test_renewed_certificate_and_authority_are_used_without_a_restart(tmp_path: Path) -> None:
    old, new = TlsFiles.create(tmp_path / "old"), TlsFiles.create(tmp_path / "new")
    place = tmp_path / "place"
    place.mkdir()
    put_in_place(old, place, "ca.pem", "client.pem", "client.key")
    tls = EtcdTls(ca_file=place / "ca.pem", cert_file=place / "client.pem", key_file=place / "client.key")
    async with TlsMember(old, old, new) as member:
        settings = EtcdSettings(endpoints=(member.url,), tls=tls, attempt_timeout_s=5, call_timeout_s=10)
        gateway = Gateway(settings)
        await gateway.open()
        await read(gateway)
        # The certificate comes before its key: the old pair stays, and nobody is refused.
        put_in_place(new, place, "client.pem")
        await read(gateway)
        (place / "client.key").unlink()
        await read(gateway)
        assert len(set(member.seen)) == 1
        member.context.load_cert_chain(new.server_cert, new.server_key)
        put_in_place(new, place, "client.key", "ca.pem")
        await read(gateway)
        await read(gateway)
        await gateway.close()
    assert len(member.seen) == 5
    assert member.seen[0] == member.seen[2] != member.seen[3] == member.seen[4]
