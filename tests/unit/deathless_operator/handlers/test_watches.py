"""What kopf is told to do, and which keys an event is about."""

from __future__ import annotations

import asyncio
import itertools
from typing import Any

import kopf
import pytest

from deathless_operator.cluster.connection import Connection
from deathless_operator.cluster.kinds import (
    CERTIFICATE,
    DRILL,
    LIVE_UPGRADE,
    NODE,
    PIPELINE,
    REHEARSAL,
    REPLAY,
    SERVICE,
)
from deathless_operator.handlers.watches import (
    OWNED,
    SETTLE_OWNED_S,
    SETTLE_S,
    NodeTable,
    Patience,
    connection_info,
    keys_of,
    make_registry,
    make_settings,
)
from deathless_operator.handlers.work_queue import Key
from deathless_operator.model import names

BANK = Key("DeathlessService", "shop", "bank")
HERE = Connection(server="https://one.test:6443", token_source=lambda: "secret", ca_pem="pem")


def ignore(*_: object) -> None:
    """Take what nobody asks for."""


def node(name: str = "n1", *, ready: str = "True", heartbeat: str = "1", **spec: Any) -> dict[str, Any]:
    condition = {"type": "Ready", "status": ready, "lastHeartbeatTime": heartbeat}
    return {"metadata": {"name": name, "uid": "u"}, "spec": spec, "status": {"conditions": [condition]}}


def test_only_events_are_handled_and_nothing_is_written() -> None:
    registry = make_registry(ignore, ignore, NodeTable(), HERE, watch_nodes=True, kinds=[SERVICE, DRILL])
    assert len(registry._watching.get_all_handlers()) == 2 + len(OWNED) + 1
    assert not registry._changing.get_all_handlers() and not registry._spawning.get_all_handlers()
    assert not registry._indexing.get_all_handlers() and not registry._webhooks.get_all_handlers()
    settings = make_settings()
    assert settings.peering.standalone and not settings.posting.enabled and settings.scanning.disabled
    assert settings.watching.inactivity_timeout > 60, "bookmarks come every minute"


def test_what_we_made_is_looked_at_later_than_what_people_write() -> None:
    due: dict[Key, float] = {}
    registry = make_registry(due.__setitem__, ignore, NodeTable(), HERE, watch_nodes=False, kinds=[SERVICE])
    handlers: dict[str, Any] = {handler.id: handler.fn for handler in registry._watching.get_all_handlers()}
    labels = {names.LABEL_SERVICE: "bank"}
    pod = kopf.Body({"kind": "Pod", "metadata": {"namespace": "shop", "name": "bank-0", "labels": labels}})
    asyncio.run(handlers["watch-pods"](body=pod))
    assert due.pop(BANK) == SETTLE_OWNED_S > SETTLE_S
    body = kopf.Body({"kind": "DeathlessService", "metadata": {"namespace": "shop", "name": "bank"}})
    asyncio.run(handlers["watch-deathlessservices"](namespace="shop", name="bank", body=body))
    assert due == {BANK: SETTLE_S}


def test_what_happens_to_a_pipelines_service_and_to_its_drivers_has_the_pipeline_looked_at() -> None:
    due: dict[Key, float] = {}
    registry = make_registry(due.__setitem__, ignore, NodeTable(), HERE, watch_nodes=False, kinds=[SERVICE])
    handlers: dict[str, Any] = {handler.id: handler.fn for handler in registry._watching.get_all_handlers()}
    metadata: Any = {"namespace": "shop", "name": "delays", "labels": {names.LABEL_PIPELINE: "delays"}}
    pipeline = Key(PIPELINE.kind, "shop", "delays")
    asyncio.run(handlers["watch-pods"](body=kopf.Body({"kind": "Pod", "metadata": metadata})))
    assert due.pop(pipeline) == SETTLE_OWNED_S
    body = kopf.Body({"kind": SERVICE.kind, "metadata": metadata})
    asyncio.run(handlers["watch-deathlessservices"](namespace="shop", name="delays", body=body))
    assert due == {Key(SERVICE.kind, "shop", "delays"): SETTLE_S, pipeline: SETTLE_OWNED_S}


def test_event_of_a_belonging_has_its_service_read_anew_and_one_of_a_pod_or_set_does_not() -> None:
    forgotten: list[tuple[str, str]] = []
    registry = make_registry(
        ignore,
        lambda *key: forgotten.append(key),
        NodeTable(),
        HERE,
        watch_nodes=False,
        kinds=[SERVICE],
    )
    handlers: dict[str, Any] = {handler.id: handler.fn for handler in registry._watching.get_all_handlers()}
    for kind in OWNED:
        body: dict[str, Any] = {"namespace": "shop", "name": "it", "labels": {names.LABEL_SERVICE: "bank"}}
        asyncio.run(handlers[f"watch-{kind.plural}"](body={"kind": kind.kind, "metadata": body}))
    assert forgotten == [("shop", "bank")] * (len(OWNED) - 2)


def test_event_of_a_live_upgrade_has_its_service_looked_at_and_read_anew() -> None:
    due: dict[Key, float] = {}
    forgotten: list[tuple[str, str]] = []
    registry = make_registry(
        due.__setitem__,
        lambda *key: forgotten.append(key),
        NodeTable(),
        HERE,
        watch_nodes=False,
        kinds=[SERVICE, LIVE_UPGRADE],
    )
    handlers: dict[str, Any] = {handler.id: handler.fn for handler in registry._watching.get_all_handlers()}
    metadata: Any = {"namespace": "shop", "name": "second"}
    specs: tuple[Any, ...] = (
        {"serviceRef": {"name": "bank"}},
        {"serviceRef": {"name": 5}},
        {"serviceRef": "bank"},
        None,
    )
    for spec in specs:
        body = kopf.Body({"kind": "LiveUpgrade", "metadata": metadata, "spec": spec})
        asyncio.run(handlers["watch-liveupgrades"](body=body))
    assert (due, forgotten) == ({BANK: SETTLE_S}, [("shop", "bank")])


def test_nodes_are_left_out_where_they_may_not_be_watched() -> None:
    registry = make_registry(ignore, ignore, NodeTable(), HERE, watch_nodes=False, kinds=[SERVICE])
    plurals = {str(handler.selector) for handler in registry._watching.get_all_handlers()}
    assert not any(NODE.plural in each for each in plurals)


def test_certificates_of_cert_manager_are_watched_where_they_are_served() -> None:
    for served in (True, False):
        registry = make_registry(
            ignore,
            ignore,
            NodeTable(),
            HERE,
            watch_nodes=False,
            kinds=[SERVICE],
            watch_certificates=served,
        )
        plurals = {str(handler.selector) for handler in registry._watching.get_all_handlers()}
        assert any(CERTIFICATE.plural in each for each in plurals) is served


def test_kopf_logs_in_as_we_do() -> None:
    info = connection_info(HERE)
    assert isinstance(info, kopf.ConnectionInfo)
    assert (info.server, info.token, info.ca_data) == ("https://one.test:6443", "secret", "pem")


def test_patience_has_no_end_and_can_be_used_again() -> None:
    patience = Patience()
    for _ in range(2):
        assert list(itertools.islice(iter(patience), 100))[-1] == 5.0


def test_object_is_about_its_service_and_its_drill() -> None:
    pod = {"metadata": {"namespace": "shop", "name": "bank-0", "labels": {names.LABEL_SERVICE: "bank"}}}
    assert keys_of(pod) == [BANK]
    mark = {names.DRILL_ANNOTATION: "shop/weekly/run-1"}
    assert keys_of({"metadata": {"namespace": "deathless-system", "annotations": mark}}) == [
        Key("FailoverDrill", "shop", "weekly")
    ]
    assert keys_of({"metadata": {"namespace": "shop", "annotations": {names.DRILL_ANNOTATION: "odd"}}}) == []
    assert keys_of({"metadata": {"namespace": "shop"}}) == []


@pytest.mark.parametrize("kind", [REPLAY.kind, REHEARSAL.kind])
def test_pod_of_a_run_of_a_log_is_about_its_service_and_the_run(kind: str) -> None:
    meta = {"namespace": "prod", "labels": {names.LABEL_SERVICE: "bank"}}
    meta |= {"annotations": {names.LOG_RUN_ANNOTATION: f"{kind}/prod/again"}}
    assert keys_of({"metadata": meta}) == [Key(SERVICE.kind, "prod", "bank"), Key(kind, "prod", "again")]
    meta["annotations"] = {names.LOG_RUN_ANNOTATION: "Elsewhere/prod/again"}
    assert keys_of({"metadata": meta}) == [Key(SERVICE.kind, "prod", "bank")], "nobody looks at such objects"


def test_what_erases_keys_is_about_the_service_that_is_gone() -> None:
    mark = {names.ERASE_ANNOTATION: f"{BANK.namespace}/{BANK.name}"}
    assert keys_of({"metadata": {"namespace": "deathless-system", "annotations": mark}}) == [BANK]
    assert keys_of({"metadata": {"namespace": "shop", "annotations": {names.ERASE_ANNOTATION: "odd"}}}) == []


def test_heartbeat_of_a_node_is_no_event_and_its_loss_is_one_for_its_services() -> None:
    table = NodeTable()
    table.place(BANK, ["n1", "n2"])
    assert table.changed(node()) == []
    assert table.changed(node(heartbeat="2")) == []
    assert table.changed(node(ready="Unknown")) == [BANK]
    assert table.changed(node(ready="Unknown", unschedulable=True)) == [BANK]
    assert table.changed(node(ready="True", taints=[{"key": "k", "effect": "NoExecute"}])) == [BANK]
    assert table.changed(node("n3")) == [] and table.changed(node("n3", ready="False")) == []
    assert table.changed(node("n2"), gone=True) == [BANK]
    table.place(BANK, [])
    assert table.changed(node(ready="False")) == []
