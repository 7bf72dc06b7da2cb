"""The doors of answers: what etcd, the API server, peers, drivers and replicas say, and command lines."""

from __future__ import annotations

import io
from typing import Any, cast

import msgspec
from tests.conformance.door import Door, of, of_text
from tests.conformance.hostile import json_bytes, msgpack_bytes, packed_bytes
from tests.encoded import encode_fork

from deathless.base.config import EtcdConfig
from deathless.base.errors import DeathlessError
from deathless.base.topics.state import TopicState
from deathless.cli.change.calls import parse_arguments
from deathless.codec import peer_messages, wire
from deathless.codec.wire import AdminReply
from deathless.codec.witness import Point, decode_point, encode_point, encode_slot
from deathless.drivers.port import Source
from deathless.drivers.source_link import Policy, SourceLink
from deathless.drivers.webhook import _packed
from deathless.engine.ports import Holder, ServiceRecord
from deathless.execution.turn.activity import final_reply
from deathless.execution.turn.operations import error_of
from deathless.pipelines.rows import blocks_of, decode_rows
from deathless.shell.client.waiters import reply_error
from deathless.shell.lock_stores.erasing import EraseOrder, read_order
from deathless.shell.lock_stores.etcd import gateway as etcd_gateway
from deathless.shell.lock_stores.etcd import lock as etcd_lock
from deathless.shell.lock_stores.etcd import records as etcd_wire
from deathless.shell.net import admin_call as admin
from deathless.shell.pod import announcement
from deathless.shell.service_code import fingerprint_report as code_check
from deathless.shell.web import json_results
from deathless.shell.worker.messaging import describe_reply
from deathless.sinks.clickhouse.answers import rows_of
from deathless.sinks.clickhouse.journal import Holder as Fence
from deathless.topics import http_port, remote
from deathless.topics import wire as topic_wire
from deathless.topics.arrow import Row, record_batch
from deathless_operator.cli import plugin_cluster
from deathless_operator.cluster import api
from deathless_operator.model.service import read_spec, read_status
from deathless_operator.plan.drill.reports import AgentReport, encode_report, read_report
from deathless_operator.plan.log_runs.rehearsals import read_rehearsed
from deathless_operator.plan.log_runs.replays import read_replayed
from deathless_operator.plan.pipelines.reading import read_agent_status
from deathless_operator.plan.service import erasure
from deathless_operator.plan.service.reading import read_announcement
from deathless_operator.plan.service.upgrading.image_check import fingerprint_in, spellings_in
from deathless_operator.plan.snapshot import ChildView

HOLDER = Holder(1, "r0", bytes(16))
RECORD = ServiceRecord("bank", bytes(16), 1, bytes(32), 3, "etcd", live=True)
POINT = Point(bytes(16), 1, 2, 3, bytes(16))
FAILURE = wire.ReplyError("DL3001", "E", "t")
ETCD = (
    etcd_wire.RANGE,
    etcd_wire.PUT,
    etcd_wire.DELETE,
    etcd_wire.LEASE,
    etcd_wire.KEEP_ALIVE,
    etcd_wire.LOGIN,
    etcd_wire.STATUS,
    etcd_wire.HEADER,
    etcd_wire.TXN,
)
ROWS = record_batch("a:utf8?,b:list<int64>", 0, [Row(1, "k", 1, ["x", [1]]), Row(2, "k", 2, [None, []])])
START = peer_messages.ActivityStart(
    1, 1, 1, "a", b"\x80", "k", at_most_once=False, attempted=False, timeout_us=1, heartbeat_us=1
)


def etcd_answer(data: bytes) -> object:
    """An answer of etcd's gateway, of whatever kind was asked for."""
    return [_tried(decoder, data) for decoder in ETCD]


def _tried(decoder: etcd_gateway.Decoder[object], data: bytes) -> object:
    try:
        return etcd_gateway._decode(data, decoder, "e")
    except etcd_gateway._NoAnswer as error:
        return error


def point(data: bytes) -> object:
    """A witness in the lock store; what is let in can be written down."""
    return encode_slot(decode_point(data))


class _Link(SourceLink):
    """Keeps nothing."""

    def _taken_through(self) -> int:
        return 0

    def _take(self, position: int, message: bytes) -> None:
        """See SourceLink."""


def delivered(data: bytes) -> object:
    """What a driver makes of the arguments of a message."""
    link = _Link(Source("shop", 0, bytes(16), 1, 2), 1, Policy("mail"), cast("Any", None))
    return link._read(1, encode_fork(method=b"m", key=b"k", args=data))


def failure(data: bytes) -> object:
    """An ERROR reply, by everybody who reads one."""
    reply = b"\x01" + data
    return [str(reply_error(reply)), str(error_of(reply)), final_reply(START, reply), describe_reply(reply)]


def record_child(data: str) -> ChildView:
    """A ConfigMap of the operator."""
    return ChildView(api_version="v1", kind="ConfigMap", name="n", uid="u", raw={"data": {erasure.RECORD_KEY: data}})


def resource(data: bytes) -> object:
    """An object of Kubernetes, as somebody made it."""
    raw = api._parsed("get x", 200, data, "")
    return read_spec(cast("Any", {"spec": raw, "metadata": {"name": "bank"}})), read_status(
        {"status": cast("Any", raw)}
    )


ANSWERS = [
    Door(
        "etcd's answer",
        ("shell/lock_stores/etcd/records.py::<module>",),
        of(etcd_answer),
        b'{"header":{"revision":"5"}}',
        json_bytes,
    ),
    Door(
        "the lock in etcd",
        ("shell/lock_stores/etcd/lock.py::<module>",),
        of(lambda data: etcd_lock._parse(etcd_lock._HOLDER, b"k", data)),
        msgspec.json.encode(HOLDER),
        json_bytes,
    ),
    Door(
        "the service in etcd",
        ("shell/lock_stores/etcd/lock.py::<module>",),
        of(lambda data: etcd_lock._parse(etcd_lock._RECORD, b"k", data)),
        msgspec.json.encode(RECORD),
        json_bytes,
    ),
    Door("a number in etcd", (), of(lambda data: etcd_lock._number(b"k", data)), b"5", packed_bytes),
    Door(
        "a witness in etcd",
        ("codec/witness.py::<module>",),
        of(point),
        encode_point(POINT),
        json_bytes,
        (DeathlessError, msgspec.DecodeError),
    ),
    Door(
        "an ERROR reply",
        (
            "shell/client/waiters.py::<module>",
            "execution/turn/operations.py::<module>",
            "execution/turn/activity.py::final_reply",
        ),
        of(failure),
        msgspec.msgpack.encode(FAILURE),
        msgpack_bytes,
    ),
    Door(
        "arguments at a driver",
        ("drivers/source_link.py::SourceLink._read",),
        of(delivered),
        msgspec.msgpack.encode({"a": 1}),
        msgpack_bytes,
    ),
    Door(
        "what a service tells of a topic over HTTP",
        ("topics/remote.py::_read",),
        of(lambda data: remote._read(data, TopicState)),
        msgspec.json.encode(TopicState(topic="sales", shard=0)),
        json_bytes,
    ),
    Door(
        "an error over HTTP",
        ("topics/http_port.py::_error",),
        of(lambda data: str(http_port._error("HTTP 503", 503, data, "7"))),
        b'{"code":"DL1002","error":"busy","remedy":"later"}',
        json_bytes,
    ),
    Door(
        "rows over HTTP",
        (),
        of(lambda data: [batch.to_pylist() for _, batch in topic_wire.received(io.BytesIO(data), 1, 4)]),
        b"".join(topic_wire.arrow_pieces([(3, ROWS)], ROWS.schema, 4)),
        packed_bytes,
        (topic_wire.AnswerTorn,),
    ),
    Door(
        "rows that a driver stages",
        ("pipelines/rows.py::<module>",),
        of(decode_rows),
        next(blocks_of("carriers", "late", "stop", [("UA", {"minutes": 20})]))[1],
        msgpack_bytes,
    ),
    Door("what a webhook answers", ("drivers/webhook.py::_packed",), of(_packed), b'{"a":1}', json_bytes),
    Door(
        "what a tool is answered",
        ("shell/net/admin_call.py::_result",),
        of(lambda data: admin._result(AdminReply(1, "", data))),
        b'{"a":1}',
        json_bytes,
        (DeathlessError, msgspec.DecodeError),
    ),
    Door(
        "a result that is shown as JSON",
        ("shell/web/json_results.py::<module>",),
        of(json_results.result_as_json),
        msgspec.msgpack.encode([1]),
        msgpack_bytes,
    ),
    Door(
        "another pod's annotation",
        ("shell/pod/announcement.py::claimed_epoch",),
        of_text(lambda text: announcement.claimed_epoch({"metadata": {"annotations": {announcement.STATUS: text}}})),
        b'{"epoch":1}',
        json_bytes,
    ),
    Door(
        "a row that ClickHouse answers, at a sink",
        ("sinks/clickhouse/answers.py::rows_of",),
        of(lambda data: rows_of(data, Fence)),
        b'{"epoch":5,"turn":1,"writer":"w","server":"s","account":"a"}',
        json_bytes,
    ),
    Door(
        "an annotation, at the operator",
        ("deathless_operator/plan/service/reading.py::read_announcement",),
        of_text(read_announcement),
        b'{"epoch":1}',
        json_bytes,
    ),
    Door(
        "an annotation of an agent, at the operator",
        ("deathless_operator/plan/pipelines/reading.py::read_agent_status",),
        of_text(read_agent_status),
        b'{"pid":1,"agent":"a","role":"driver","number":4}',
        json_bytes,
    ),
    Door(
        "a termination message",
        ("deathless_operator/plan/service/upgrading/image_check.py::_told_in",),
        of_text(lambda text: [fingerprint_in(text), sorted(spellings_in(text))]),
        b'{"fingerprint":"a","spellings":["a","b"]}',
        json_bytes,
    ),
    Door(
        "a drill's termination message",
        ("deathless_operator/plan/drill/reports.py::read_report",),
        of_text(lambda text: read_report(text, AgentReport)),
        encode_report(AgentReport(fault="kill")),
        json_bytes,
    ),
    Door(
        "the last words of the pod of a Replay",
        ("deathless_operator/plan/log_runs/replays.py::read_replayed",),
        of_text(read_replayed),
        b'{"messages":6,"difference":{"lsn":7,"handler":"deposit"}}',
        json_bytes,
    ),
    Door(
        "the last words of the pod of a Rehearsal",
        ("deathless_operator/plan/log_runs/rehearsals.py::read_rehearsed",),
        of_text(read_rehearsed),
        b'{"passed":false,"messages":6,"differences":[{"kind":"Raised","lsn":7}],"coverage":[{"handler":"deposit"}]}',
        json_bytes,
    ),
    Door(
        "a ConfigMap of the operator",
        ("deathless_operator/plan/service/erasure.py::read_record",),
        lambda data, _: erasure.read_record(record_child(data.decode(errors="replace"))),
        b'{"namespace":"n"}',
        json_bytes,
    ),
    Door(
        "an answer of the API server",
        (
            "deathless_operator/cluster/api.py::_parsed",
            "deathless_operator/model/service.py::read_spec",
            "deathless_operator/model/resource_parts.py::status_in",
        ),
        of(resource),
        b'{"module":"a.py:a","replicas":3}',
        json_bytes,
    ),
    Door(
        "what a service answers the plugin",
        ("deathless_operator/cli/plugin_cluster.py::read_answer",),
        of(lambda data: plugin_cluster.read_answer(200, data, again="")),
        b'{"a":1}',
        json_bytes,
    ),
]


COMMANDS = [
    Door(
        "--arg",
        ("cli/change/calls.py::parse_arguments",),
        of_text(lambda text: parse_arguments((f"a={text}",))),
        b"[1]",
        json_bytes,
    ),
    Door(
        "--arg of the plugin",
        ("deathless_operator/cli/plugin_cluster.py::parse_arguments",),
        of_text(lambda text: plugin_cluster.parse_arguments((f"a={text}",))),
        b"[1]",
        json_bytes,
    ),
    Door(
        "--order",
        ("shell/lock_stores/erasing.py::read_order",),
        of_text(read_order),
        msgspec.json.encode(EraseOrder(service="bank", etcd=EtcdConfig(endpoints=("http://e:1",)))),
        json_bytes,
    ),
    Door(
        "--peers",
        ("shell/service_code/fingerprint_report.py::_peers",),
        of_text(code_check._peers),
        b'{"a":1}',
        json_bytes,
    ),
    Door(
        "--limits",
        ("shell/service_code/fingerprint_report.py::_limits",),
        of(lambda data: code_check._limits(data, "x")),
        b"{}",
        json_bytes,
    ),
]
