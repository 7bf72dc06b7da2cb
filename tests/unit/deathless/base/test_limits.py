"""Limits: the defaults hold, and every relation that they must hold is checked by its formula (I10)."""

from __future__ import annotations

import ast
from dataclasses import fields, replace
from pathlib import Path

import pytest

import deathless
from deathless.base.errors import InvalidConfig
from deathless.base.limits import REPLICATED, Limits
from deathless.core.client.link import REPLY_PACKET_BYTES_MAX

NAMES = [field.name for field in fields(Limits)]


def test_i6_every_limit_that_a_turn_or_a_table_of_the_state_reads_is_replicated() -> None:
    root = Path(deathless.__file__).parent
    tables = ("keys", "sessions", "outbox", "peer_table", "results", "unknown_outcomes")
    files = [*root.glob("execution/**/*.py"), *(root / f"core/tables/{name}.py" for name in tables)]
    read = {
        node.attr
        for path in (*files, root / "engine/shard/shard.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Attribute) and ast.unparse(node.value).endswith("limits") and node.attr in NAMES
    }
    assert read == set(REPLICATED)


def test_the_defaults_hold() -> None:
    Limits().validate()


def test_a_hand_over_need_not_wait() -> None:
    replace(Limits(), handover_wait_s=0.0).validate()


@pytest.mark.parametrize(
    ("name", "value"),
    [(name, value) for name in NAMES for value in (0, -1) if (name, value) != ("handover_wait_s", 0)],
)
def test_every_limit_is_above_zero(name: str, value: int) -> None:
    with pytest.raises(InvalidConfig, match=rf"limits\.{name} must be above 0"):
        replace(Limits(), **{name: value}).validate()


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize("name", [field.name for field in fields(Limits) if isinstance(field.default, float)])
def test_every_limit_in_seconds_is_a_finite_number(name: str, value: float) -> None:
    with pytest.raises(InvalidConfig, match=rf"limits\.{name} must be a number, not"):
        replace(Limits(), **{name: value}).validate()  # type: ignore[arg-type]  # which field is drawn


@pytest.mark.parametrize(
    ("changes", "formula"),
    [
        ({"message_bytes_max": (4 << 20) + 1}, "message_bytes_max <= frame_bytes_max"),
        ({"segment_bytes_max": (8 << 20) - 1}, "2 * frame_bytes_max <= segment_bytes_max"),
        ({"spare_bytes": (8 << 20) - 1}, "2 * frame_bytes_max <= spare_bytes"),
        ({"pending_bytes_max": (4 << 20) - 1}, "frame_bytes_max <= pending_bytes_max"),
        ({"peer_window_bytes_max": (1 << 20) - 1}, "message_bytes_max <= peer_window_bytes_max"),
        ({"outbox_bytes_max": (8 << 20) - 1}, "peer_window_bytes_max <= outbox_bytes_max"),
        ({"suspended_bytes_max": (1 << 20) - 1}, "message_bytes_max <= suspended_bytes_max"),
        ({"handover_wait_s": 601.0}, "handover_wait_s <= 600"),
        ({"invocations_max": 1023}, "key_queue_max <= invocations_max"),
        ({"heartbeat_s": 0.2}, "3 * heartbeat_s <= suspect_after_s"),
        ({"reign_min_s": 31.0}, "reign_min_s <= reign_max_s"),
        ({"key_bytes_max": 65536}, "key_bytes_max < 65536"),
        ({"checkpoints_kept": 1}, "checkpoints_kept >= 2"),
        ({"reply_bytes_max": (32 << 20) + 1}, "reply_bytes_max <= 33554432"),
    ],
)
def test_a_broken_relation_is_named_by_its_formula(changes: dict[str, float], formula: str) -> None:
    with pytest.raises(InvalidConfig) as raised:
        replace(Limits(), **changes).validate()  # type: ignore[arg-type]  # which field is drawn
    assert raised.value.message == f"limits: {formula} must hold"


def test_the_longest_reply_fits_twice_into_what_a_client_reads() -> None:
    replace(Limits(), reply_bytes_max=REPLY_PACKET_BYTES_MAX // 2).validate()
    with pytest.raises(InvalidConfig):
        replace(Limits(), reply_bytes_max=REPLY_PACKET_BYTES_MAX // 2 + 1).validate()


@pytest.mark.parametrize(
    "changes",
    [
        {"message_bytes_max": 4 << 20},
        {"segment_bytes_max": 8 << 20},
        {"spare_bytes": 8 << 20},
        {"pending_bytes_max": 4 << 20},
        {"peer_window_bytes_max": 1 << 20},
        {"outbox_bytes_max": 8 << 20},
        {"invocations_max": 1024},
        {"suspended_bytes_max": 1 << 20},
        {"heartbeat_s": 0.1, "suspect_after_s": 0.3},
        {"reign_min_s": 30.0},
        {"key_bytes_max": 65535},
        {"checkpoints_kept": 2},
        {"reply_bytes_max": 32 << 20},
    ],
)
def test_a_relation_that_just_holds_is_accepted(changes: dict[str, float]) -> None:
    replace(Limits(), **changes).validate()  # type: ignore[arg-type]  # which field is drawn


def test_limits_fit_a_small_volume_and_leave_a_large_one_alone() -> None:
    limits = Limits()
    assert limits.fitted(1 << 40) == limits
    assert limits.fitted(0) == limits, "a file system that does not say"
    small = limits.fitted(1 << 30)
    assert (small.segment_bytes_max, small.checkpoint_every_bytes) == (64 << 20, 128 << 20)
    assert limits.fitted(1 << 30, 4).segment_bytes_max == 16 << 20, "each shard has a log of its own there"
    for size in (1, 1 << 20, 100 << 20):
        limits.fitted(size).validate()


def test_least_volume_counts_spares_files_and_checkpoints() -> None:
    limits = Limits()
    assert limits.least_volume_bytes(3) == (3 * 16 + 4 * 12) << 20
    assert limits.least_volume_bytes(3, state_bytes=1 << 20) == (3 * 16 + 4 * 12 + 3) << 20
    assert limits.least_volume_bytes(1, shards=2) == 2 * (16 + 4 * 12) << 20


@pytest.mark.parametrize(
    ("unconfirmed", "spare", "frame", "copies"),
    [(8, 16, 4, 8), (64, 16, 4, 8), (2, 16, 4, 2), (8, 8, 4, 0)],
)
def test_i8_a_spare_has_room_for_all_frames_without_a_proof_and_one_more(
    unconfirmed: int, spare: int, frame: int, copies: int
) -> None:
    limits = replace(
        Limits(), unconfirmed_bytes_max=unconfirmed << 20, spare_bytes=spare << 20, frame_bytes_max=frame << 20
    )
    limits.validate()
    assert limits.copies_bytes_max == copies << 20
    assert limits.copies_bytes_max + 2 * limits.frame_bytes_max <= limits.spare_bytes
