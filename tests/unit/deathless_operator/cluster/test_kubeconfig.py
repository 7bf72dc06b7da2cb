"""Kubeconfigs: merged as kubectl merges them, their login commands, and what is wrong with them."""

from __future__ import annotations

import asyncio
import json
import ssl
import sys
from pathlib import Path
from typing import Any

import pytest
import trustme
import yaml
from aiohttp import web

from deathless_operator.cluster.api import Api
from deathless_operator.cluster.connection import Connection
from deathless_operator.cluster.errors import NoCluster
from deathless_operator.cluster.kinds import POD
from deathless_operator.cluster.kubeconfig import Login, connect, from_kubeconfig
from deathless_operator.handlers.watches import connection_info


@pytest.fixture
def authority(tmp_path: Path) -> trustme.CA:
    made = trustme.CA()
    made.cert_pem.write_to_path(tmp_path / "ca.crt")
    return made


def write(folder: Path, user: dict[str, Any], **cluster: Any) -> Path:
    config = {
        "current-context": "here",
        "contexts": [{"name": "here", "context": {"cluster": "one", "user": "me", "namespace": "shop"}}],
        "clusters": [
            {
                "name": "one",
                "cluster": {"server": "https://one.test:6443/", "certificate-authority": "ca.crt"} | cluster,
            }
        ],
        "users": [{"name": "me", "user": user}],
    }
    path = folder / "config"
    path.write_text(yaml.safe_dump(config))
    return path


def test_kubeconfig_with_client_certificate_makes_a_context(tmp_path: Path, authority: trustme.CA) -> None:
    leaf = authority.issue_cert("me.test")
    leaf.private_key_pem.write_to_path(tmp_path / "me.key")
    leaf.cert_chain_pems[0].write_to_path(tmp_path / "me.crt")
    found = from_kubeconfig(write(tmp_path, {"client-certificate": "me.crt", "client-key": "me.key"}))
    assert (found.server, found.namespace, found.token()) == ("https://one.test:6443", "shop", "")
    context = found.ssl_context()
    assert isinstance(context, ssl.SSLContext) and context.verify_mode is ssl.CERT_REQUIRED and context.check_hostname


def test_kubeconfig_that_says_so_does_not_verify(tmp_path: Path, authority: trustme.CA) -> None:
    found = from_kubeconfig(write(tmp_path, {"token": "t"}, **{"insecure-skip-tls-verify": True}))
    context = found.ssl_context()
    assert isinstance(context, ssl.SSLContext) and context.verify_mode is ssl.CERT_NONE and found.token() == "t"


def test_login_command_of_a_kubeconfig_is_run(tmp_path: Path, authority: trustme.CA) -> None:
    script = "import json, os; print(json.dumps({'status': {'token': os.environ['WHO']}}))"
    command = {"command": sys.executable, "args": ["-c", script], "env": [{"name": "WHO", "value": "cloud"}]}
    assert from_kubeconfig(write(tmp_path, {"exec": command})).token() == "cloud"


@pytest.mark.parametrize(
    "text", ["", "{", "current-context: none", "contexts: 7", "current-context: a\ncontexts: [{name: a}]"]
)
def test_kubeconfig_that_makes_no_sense_is_no_cluster(tmp_path: Path, text: str) -> None:
    path = tmp_path / "config"
    path.write_text(text)
    with pytest.raises(NoCluster, match="config"):
        from_kubeconfig(path)
    with pytest.raises(NoCluster):
        connect(str(tmp_path / "none"))


def test_first_kubeconfig_of_the_environment_that_is_there_counts(tmp_path: Path, authority: trustme.CA) -> None:
    path = write(tmp_path, {"token": "t"})
    found = connect(environment={"KUBECONFIG": f"{tmp_path}/none:{path}"})
    assert found.server == "https://one.test:6443"


def part(folder: Path, name: str, **config: Any) -> Path:
    folder.mkdir(exist_ok=True)
    path = folder / name
    path.write_text(yaml.safe_dump(config))
    return path


def test_files_are_merged_and_the_first_that_names_a_thing_counts(tmp_path: Path, authority: trustme.CA) -> None:
    """As kubectl does it: a relative path begins at the folder of the file that it stands in."""
    one, two = tmp_path / "one", tmp_path / "two"
    first = part(
        one,
        "config",
        users=[{"name": "me", "user": {"tokenFile": "token"}}],
        **{"current-context": "b"},
    )
    second = part(
        two,
        "config",
        contexts=[
            {"name": "a", "context": {"cluster": "c", "user": "me"}},
            {"name": "b", "context": {"cluster": "c", "user": "me", "namespace": "shop"}},
        ],
        clusters=[{"name": "c", "cluster": {"server": "https://c.test"}}],
        users=[{"name": "me", "user": {"token": "the second file's"}}],
        **{"current-context": "a"},
    )
    (one / "token").write_text("the first file's")
    environment = {"KUBECONFIG": f"{first}:{tmp_path}/none:{second}"}
    found = connect(environment=environment)
    assert (found.server, found.namespace, found.token()) == ("https://c.test", "shop", "the first file's")
    assert connect(context="a", environment=environment).namespace == "default"
    with pytest.raises(NoCluster, match="contexts has no 'c', only a, b"):
        connect(context="c", environment=environment)


def test_none_of_the_files_of_the_environment_is_there(tmp_path: Path) -> None:
    with pytest.raises(NoCluster, match="there is no kubeconfig"):
        connect(environment={"KUBECONFIG": str(tmp_path / "none")})


def login(script: str, **spec: Any) -> dict[str, Any]:
    return {"command": sys.executable, "args": ["-c", script], **spec}


COUNTED = """
import json, pathlib, sys
path = pathlib.Path({path!r})
count = int(path.read_text()) + 1 if path.exists() else 1
path.write_text(str(count))
print(json.dumps({{"status": {{"token": str(count), "expirationTimestamp": "2027-01-15T0{hour}:00:00Z"}}}}))
"""


def test_login_command_is_run_again_when_what_it_gave_has_expired(tmp_path: Path) -> None:
    now = 1_800_000_000.0  # 2027-01-15, 8:00
    spec = login(COUNTED.format(path=str(tmp_path / "count"), hour=9))
    ours = Login(spec, tmp_path, wall=lambda: now)
    assert (ours(), ours(), ours.certificate()) == ("1", "1", ("", ""))
    now += 3_560
    assert ours() == "1"
    now += 15  # less than half a minute is left of it
    assert ours() == "2"


def test_login_command_may_give_a_certificate(tmp_path: Path, authority: trustme.CA) -> None:
    leaf = authority.issue_cert("me.test")
    shown = {
        "clientCertificateData": leaf.cert_chain_pems[0].bytes().decode(),
        "clientKeyData": leaf.private_key_pem.bytes().decode(),
    }
    found = from_kubeconfig(write(tmp_path, {"exec": login(f"print({json.dumps({'status': shown})!r})")}))
    assert (found.certificate_pem, found.key_pem, found.token()) == (*shown.values(), "")
    assert isinstance(found.ssl_context(), ssl.SSLContext)


def test_login_command_that_is_a_relative_path_begins_at_its_file(tmp_path: Path, authority: trustme.CA) -> None:
    script = tmp_path / "bin" / "login"
    script.parent.mkdir()
    script.write_text('#!/bin/sh\necho \'{"status": {"token": "t"}}\'\n')
    script.chmod(0o755)
    assert from_kubeconfig(write(tmp_path, {"exec": {"command": "./bin/login"}})).token() == "t"


@pytest.mark.parametrize(
    ("spec", "told"),
    [
        (login("import sys; sys.exit('log in first')", installHint="get it at x.test"), r"log in first.*get it at"),
        (login("print('{')"), "JSONDecodeError"),
        (login("print('{}')"), "KeyError: 'status'"),
        ({"command": "no-such-command-anywhere"}, "no-such-command-anywhere"),
        (login("print(input())"), "EOFError"),  # nobody is there to be asked
    ],
)
def test_login_command_that_fails_is_named_with_what_it_said(
    tmp_path: Path, authority: trustme.CA, spec: dict[str, Any], told: str
) -> None:
    with pytest.raises(NoCluster, match=told):
        from_kubeconfig(write(tmp_path, {"exec": spec}))


def test_server_is_known_by_the_name_that_the_kubeconfig_says(tmp_path: Path, authority: trustme.CA) -> None:
    """The certificate is for another name than the address, as behind a tunnel."""

    async def seen(connection: Connection) -> list[dict[str, Any]]:
        async with Api(connection) as api:
            return await api.list(POD, "shop")

    async def answer(_request: web.Request) -> web.Response:
        return web.json_response({"items": [{"metadata": {"name": "p"}}]})

    async def main() -> None:
        tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        authority.issue_cert("api.internal").configure_cert(tls)
        app = web.Application()
        app.router.add_get("/{tail:.*}", answer)
        runner = web.AppRunner(app)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls).start()
        server = f"https://127.0.0.1:{runner.addresses[0][1]}"
        try:
            named = from_kubeconfig(
                write(tmp_path, {"token": "t"}, server=server, **{"tls-server-name": "api.internal"})
            )
            assert len(await seen(named)) == 1
            other = from_kubeconfig(write(tmp_path, {"token": "t"}, server=server, **{"tls-server-name": "b.internal"}))
            context = other.ssl_context()
            assert isinstance(context, ssl.SSLContext)
            with pytest.raises(ssl.SSLCertVerificationError, match="mismatch"):
                await asyncio.open_connection("127.0.0.1", runner.addresses[0][1], ssl=context)
            with pytest.raises(NoCluster, match="tls-server-name"):
                connection_info(named)
        finally:
            await runner.cleanup()

    asyncio.run(main())


def test_proxy_of_a_kubeconfig_is_used(tmp_path: Path, authority: trustme.CA) -> None:
    async def main() -> None:
        asked: list[str] = []

        async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            asked.append((await reader.readline()).decode())
            while (await reader.readline()).strip():
                pass
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 12\r\nConnection: close\r\n\r\n" + b'{"items":[]}')
            await writer.drain()
            writer.close()

        async with await asyncio.start_server(answer, "127.0.0.1", 0) as proxy:
            port = proxy.sockets[0].getsockname()[1]
            path = write(tmp_path, {}, server="http://api.test", **{"proxy-url": f"http://127.0.0.1:{port}"})
            connection = from_kubeconfig(path)
            async with Api(connection) as api:
                assert await api.list(POD, "shop") == []
            assert asked[0].startswith("GET http://api.test/api/v1/namespaces/shop/pods")
            assert connection_info(connection).proxy_url == f"http://127.0.0.1:{port}"

    asyncio.run(main())
