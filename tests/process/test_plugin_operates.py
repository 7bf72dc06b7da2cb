"""Orders of `kubectl deathless` that reach real replicas, through an API server and a kubectl that stand for theirs."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from replica_set import ReplicaSet, wait_for
from test_drivers import Receivers, hooked, till_of
from test_messaging import Pair, ask, look_at, tags_of
from tests.unit.deathless_operator.cli.plugin_world import SERVICES, api_server
from tests.unit.deathless_operator.cli.test_plugin_cluster import put_kubectl

from deathless.shell.directory.adopted import Adoption, read_adoption, write_adoption
from deathless.shell.directory.members import read_members
from deathless_operator.cli import plugin

INGRESS = {"ingress_listen": "127.0.0.1:0"}
Plugin = Callable[..., Any]


@contextmanager
def plugin_of(
    replicas: ReplicaSet,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    **of_spec: object,
) -> Iterator[Plugin]:
    """Give what runs a command about a service whose ports are forwarded to its first replica."""
    ingress = wait_for(lambda: ingress_of(replicas), "an ingress", replicas.describe)
    code = f"import signal; print('Forwarding from {ingress} -> 8080', flush=True); signal.pause()"
    put_kubectl(folder, monkeypatch, code)
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    with api_server(folder) as (server, kubeconfig):
        monkeypatch.setenv("KUBECONFIG", kubeconfig)
        spec = {"module": "m:m", "image": "i:1", "logStorage": {"claimName": "log"}, "tls": {"issuer": "Off"}}
        server.put(f"{SERVICES}/{replicas.service}", spec=spec | of_spec)
        token = base64.b64encode(b"operators-0123456789").decode()
        server.put(f"/api/v1/namespaces/ns/secrets/{replicas.service}-operator-token", data={"token": token})

        def run(command: str, *words: str) -> Any:
            capsys.readouterr()
            assert plugin.main([*command.split(), replicas.service, *words]) == 0, capsys.readouterr().err
            return json.loads(capsys.readouterr().out)

        yield run


def ingress_of(replicas: ReplicaSet) -> str | None:
    """Where the first replica's ingress listens; None: not yet."""
    member = read_members(str(replicas.directory)).get(replicas.names[0])
    return None if member is None or member.ingress.endswith(":0") else member.ingress


def is_held(replicas: ReplicaSet) -> bool:
    """Does `deathless status` show that the primary holds what goes to the outside?"""
    seen = look_at(replicas)
    leads = seen.of(seen.primary)
    return leads is not None and leads.outside_held


def test_what_a_restored_service_holds_is_let_go_for_good(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A replica that follows while it is let go holds nothing either once it leads."""
    two = Pair(tmp_path, 2, **INGRESS)
    two.sender.directory.mkdir()
    write_adoption(str(two.sender.directory), Adoption(hold_outside=True))
    with two.sender, two.receiver:
        first = two.sender.primary()
        two.receiver.primary()
        two.sender.wait_roles(primary=1, checkpointer=1)
        wait_for(lambda: is_held(two.sender), "the outside is held", two.describe)
        assert ask(two.sender, lambda client: client.call("fork", "k0", tag="held")) == 1
        with plugin_of(two.sender, tmp_path, monkeypatch, capsys) as run:
            (peer,) = wait_for(lambda: run("peers")["peers"], "what waits", two.describe)
            assert (peer["service"], peer["connected"], peer["lag"]) == ("receiver", False, 1)
            assert run("resume-outside", "--yes") == {"held": True, "done": "let go"}
            assert run("resume-outside", "--yes") == {"held": False, "done": "let go"}
        assert not read_adoption(str(two.sender.directory)).hold_outside
        wait_for(lambda: tags_of(two, "k0") == ["held"], "what was held", two.describe)
        two.sender.kill_worker(first)
        two.sender.primary(besides=first)
        assert ask(two.sender, lambda client: client.call("fork", "k0", tag="after")) == 2
        wait_for(lambda: tags_of(two, "k0") == ["held", "after"], "what the next primary sends", two.describe)
        wait_for(lambda: not is_held(two.sender), "nothing is held", two.describe)


def test_messages_that_drivers_gave_up_are_listed_sent_again_and_discarded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    hook = Receivers()
    mail = {"attempts_max": 1, "on_refusal": "skip"}
    with hooked(hook) as (_, url), till_of(tmp_path, url, 1, INGRESS, **mail) as replicas:
        replicas.primary()
        for tag in ("one", "two", "three"):
            ask(replicas, lambda client: client.call("pay", "k1", tag=tag))  # noqa: B023 - it is asked at once
        with plugin_of(replicas, tmp_path, monkeypatch, capsys) as run:
            listed = wait_for(
                lambda: (found := run("undelivered"))["count"] == 3 and found["undelivered"],
                "the list",
                replicas.describe,
            )
            assert [(each["driver"], each["key"]) for each in listed] == [("mail", "k1")] * 3
            one, two, three = (str(each["id"]) for each in listed)
            hook.well = True
            assert run("retry-undelivered", two) == {"messages": [two], "done": "sent again"}
            assert run("discard-undelivered", one) == {"messages": [one], "done": "discarded"}
            assert [str(each["id"]) for each in run("undelivered")["undelivered"]] == [three]
            assert run("retry-undelivered", "--all", "--driver", "book")["messages"] == []
            assert run("retry-undelivered", "--all", "--driver", "mail")["messages"] == [three]
            assert run("undelivered") == {"undelivered": [], "count": 0}
        wait_for(lambda: hook.taken == 2, "both that were sent again", replicas.describe)
        assert hook.told["k1"] == ["two", "three"]
