"""Requests and answers of etcd's JSON gateway; the answers are recorded from etcd 3.6 and 3.5."""

from __future__ import annotations

import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from deathless.shell.lock_stores.etcd import records as wire
from deathless.shell.lock_stores.etcd.records import Compare, Delete, Get, Put, Relation, Target

HEADER = (
    b'"header":{"cluster_id":"13455796455940752355","member_id":"443629905751424238","revision":"3","raft_term":"2"}'
)


@given(st.binary(max_size=6), st.binary(max_size=8))
def test_prefix_end_bounds_exactly_the_keys_with_the_prefix(prefix: bytes, key: bytes) -> None:
    end = wire.prefix_end(prefix)
    within = key >= prefix and (end == b"\0" or key < end)
    assert within == key.startswith(prefix)


@given(st.binary(min_size=1, max_size=40), st.binary(max_size=200), st.integers(0, 2**63 - 1))
def test_put_carries_any_bytes_and_any_lease(key: bytes, value: bytes, lease: int) -> None:
    body = wire.encode_put(Put(key=key, value=value, lease=lease))
    echoed = msgspec.json.decode(body, type=wire.KeyValue, strict=False)
    assert (echoed.key, echoed.value, echoed.lease) == (key, value, lease)


def test_transaction_is_written_as_the_gateway_wants_it() -> None:
    body = wire.encode_txn(
        [
            Compare.absent(b"a"),
            Compare.present(b"a"),
            Compare.value_is(b"b", b""),
            Compare.unchanged(b"c", 7),
            Compare(key=b"d", target=Target.VERSION, operand=1, relation=Relation.NOT_EQUAL),
            Compare(key=b"e", target=Target.LEASE, operand=2, relation=Relation.LESS),
        ],
        [Put(key=b"a", value=b"1", lease=9), Delete(key=b"a/", prefix=True)],
        [Get(key=b"b"), Get(key=b"", prefix=True), Delete(key=b"c")],
    )
    assert json.loads(body) == {
        "compare": [
            {"key": "YQ==", "result": "EQUAL", "target": "CREATE", "create_revision": 0},
            {"key": "YQ==", "result": "GREATER", "target": "CREATE", "create_revision": 0},
            {"key": "Yg==", "result": "EQUAL", "target": "VALUE", "value": ""},
            {"key": "Yw==", "result": "EQUAL", "target": "MOD", "mod_revision": 7},
            {"key": "ZA==", "result": "NOT_EQUAL", "target": "VERSION", "version": 1},
            {"key": "ZQ==", "result": "LESS", "target": "LEASE", "lease": 2},
        ],
        "success": [
            {"request_put": {"key": "YQ==", "value": "MQ==", "lease": 9}},
            {"request_delete_range": {"key": "YS8=", "range_end": "YTA="}},
        ],
        "failure": [
            {"request_range": {"key": "Yg=="}},
            {"request_range": {"key": "AA==", "range_end": "AA=="}},
            {"request_delete_range": {"key": "Yw=="}},
        ],
    }


def test_operand_that_does_not_fit_its_target_is_our_bug() -> None:
    with pytest.raises(AssertionError):
        Compare(key=b"a", target=Target.VALUE, operand=1)
    with pytest.raises(AssertionError):
        Compare(key=b"a", target=Target.MOD, operand=b"1")


def test_read_is_written_with_only_what_differs_from_the_default() -> None:
    plain = wire.encode_range(b"a", prefix=False, limit=0, serializable=False)
    assert json.loads(plain) == {"key": "YQ=="}
    full = wire.encode_range(b"a", prefix=True, limit=3, serializable=True)
    assert json.loads(full) == {"key": "YQ==", "range_end": "Yg==", "limit": 3, "serializable": True}


def test_other_requests_are_written_as_the_gateway_wants_them() -> None:
    assert json.loads(wire.encode_lease(ttl_s=5)) == {"TTL": 5}
    assert json.loads(wire.encode_lease(lease_id=2**62)) == {"ID": 2**62}
    assert json.loads(wire.encode_login("u", "p")) == {"name": "u", "password": "p"}
    assert json.loads(wire.encode_delete(Delete(key=b"a"))) == {"key": "YQ=="}


def test_recorded_read_is_understood() -> None:
    kv = (
        b'{"key":"YQ==","create_revision":"2","mod_revision":"3","version":"1","value":"YQ==",'
        b'"lease":"5432363688453437138"}'
    )
    result = wire.RANGE.decode(b"{" + HEADER + b',"kvs":[' + kv + b'],"count":"1"}')
    assert result.cluster_id == 13455796455940752355
    assert result.revision == 3
    entry = result.get(b"a")
    assert entry is not None
    assert (entry.value, entry.create_revision, entry.mod_revision) == (b"a", 2, 3)
    assert (entry.version, entry.lease) == (1, 5432363688453437138)
    assert result.get(b"b") is None


def test_recorded_empty_read_is_understood() -> None:
    result = wire.RANGE.decode(b"{" + HEADER + b"}")
    assert (result.kvs, result.count, result.more) == ((), 0, False)


def test_recorded_transaction_is_understood() -> None:
    answer = (
        b"{" + HEADER + b',"succeeded":true,"responses":[{"response_put":{"header":{"revision":"3"}}},'
        b'{"response_range":{"header":{"revision":"3"},"kvs":[{"key":"YQ==","value":"Yg=="}],"count":"1"}},'
        b'{"response_delete_range":{"header":{"revision":"3"},"deleted":"1"}}]}'
    )
    result = wire.txn_result(wire.TXN.decode(answer))
    assert result.succeeded
    assert result.range(1).get(b"a") is not None
    assert isinstance(result.results[2], wire.DeleteResult)
    assert result.results[2].deleted == 1
    with pytest.raises(AssertionError):
        result.range(0)


def test_recorded_failed_transaction_is_understood() -> None:
    result = wire.txn_result(wire.TXN.decode(b"{" + HEADER + b"}"))
    assert (result.succeeded, result.results) == (False, ())


@pytest.mark.parametrize(
    ("body", "code", "message"),
    [
        (b'{"code":14,"message":"etcdserver: no leader"}', 14, "etcdserver: no leader"),
        (b'{"error":"etcdserver: no leader","code":14,"message":"etcdserver: no leader"}', 14, "etcdserver: no leader"),
        (b'{"error":{"code":14,"message":"no leader"}}', 14, "no leader"),
        (b'{"error":{"grpc_code":14,"http_code":503,"message":"no leader"}}', 14, "no leader"),
        (b'{"error":"bare"}', 0, "bare"),
        (b"{}", 0, ""),
    ],
)
def test_error_is_understood_in_each_shape_of_the_gateways(body: bytes, code: int, message: str) -> None:
    assert wire.ERROR.decode(body).reduced() == (code, message)


def test_renewal_of_a_lease_that_ended_has_no_time_left() -> None:
    assert wire.KEEP_ALIVE.decode(b'{"result":{' + HEADER + b',"ID":"12345"}}\n').result.ttl == 0


@given(st.binary(max_size=60))
def test_bytes_that_are_not_an_answer_are_an_error_and_nothing_else(raw: bytes) -> None:
    for decoder in (wire.RANGE, wire.TXN, wire.ERROR, wire.LEASE):
        try:
            decoder.decode(raw)
        except msgspec.DecodeError:
            continue
