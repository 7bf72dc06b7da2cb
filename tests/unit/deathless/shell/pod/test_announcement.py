"""What a replica writes on pods: as little as needed, its own label first, another's only from one it has deposed."""

from __future__ import annotations

import json
from collections.abc import Mapping

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from deathless.shell.link.standing import Program, Standing
from deathless.shell.pod.announcement import (
    BACK_MAX_S,
    BACK_MIN_S,
    FENCED,
    HANDED_ON_S,
    REPLICA,
    ROLE,
    SERVES,
    STATUS,
    STEADY_S,
    Comeback,
    claimed_epoch,
    comes_back,
    is_fenced,
    is_older,
    is_serving,
    label_of,
    may_wait,
    own_patch,
    relief_patch,
    resource_version,
    status_of,
    uid_of,
)

NEVER = float("inf")
UID = "84a7"
STANDING = Standing(service="bank", replica="r0", instance=UID, role="standby", state="running", epoch=3)
ROLES = [
    "starting",
    "recovering",
    "upgrader",
    "taking-over",
    "primary",
    "checkpointer",
    "standby",
    "stopping",
    "fenced",
    "dead",
]


def standing(role: str = "standby", **changes: object) -> Standing:
    return msgspec.structs.replace(STANDING, role=role, **changes)


def merged(pod: Mapping[str, object], patch: Mapping[str, object]) -> dict[str, object]:
    """A JSON merge patch (RFC 7386)."""
    result = dict(pod)
    for name, value in patch.items():
        old = result.get(name)
        if value is None:
            result.pop(name, None)
        elif isinstance(value, Mapping):
            result[name] = merged(old if isinstance(old, Mapping) else {}, value)
        else:
            result[name] = value
    return result


def pod(
    role: str = "", epoch: int | None = None, annotations: Mapping[str, str] | None = None, serves: str = ""
) -> dict[str, object]:
    told = {} if epoch is None else {STATUS: json.dumps({"epoch": epoch})}
    labels = {"app": "x", **({ROLE: role} if role else {}), **({SERVES: serves} if serves else {})}
    return {
        "metadata": {
            "uid": UID,
            "resourceVersion": "9",
            "labels": labels,
            "annotations": {**told, **(annotations or {})},
        }
    }


def label(seen: Mapping[str, object], name: str = ROLE) -> object:
    metadata = seen["metadata"]
    assert isinstance(metadata, dict)
    return metadata["labels"].get(name)


@pytest.mark.parametrize(
    ("seen", "now", "waits"),
    [
        ("standby", standing("taking-over"), True),
        ("taking-over", standing("checkpointer"), True),
        ("checkpointer", standing("standby"), True),
        ("standby", standing("primary"), False),
        ("primary", standing("standby"), True),
        ("primary", standing("starting", state="starting"), True),
        ("primary", standing("primary", stopping=True), False),
        ("recovering", standing("standby"), False),
        ("standby", standing("dead"), False),
        ("standby", standing("taking-over", state="dead"), False),
        ("standby", standing("checkpointer", stopping=True), True),
        ("", standing("standby"), False),
    ],
)
def test_roles_of_a_takeover_may_wait_but_that_of_a_primary(seen: str, now: Standing, waits: bool) -> None:
    assert may_wait(pod(seen), now) is waits


@given(st.sampled_from(ROLES), st.sampled_from(["", *ROLES]), st.floats(0, 20), st.booleans())
def test_patch_that_is_applied_leaves_nothing_to_patch(role: str, seen: str, ceased_s: float, stopping: bool) -> None:
    now = standing(role, stopping=stopping)
    patch = own_patch(pod(seen), now, ceased_s=ceased_s)
    assert patch is not None, "the status is not there yet"
    after = merged(pod(seen), patch)
    assert own_patch(after, now, ceased_s=ceased_s) is None
    assert (label(after, REPLICA), label(after, "app"), uid_of(after)) == ("r0", "x", UID)


def test_status_tells_everything_an_operator_reads() -> None:
    now = standing(
        condition="DL4007", text="DL4007 half", fingerprint="ab", service_id="cd", incarnation=7, since=1.5,
        waits_for=2, waits_since=1, waits_until=9, outside_held=True,
    )  # fmt: skip
    patch = own_patch(pod(), now, ceased_s=NEVER)
    assert patch is not None
    status = json.loads(merged(pod(), patch)["metadata"]["annotations"][STATUS])  # type: ignore[index]  # JSON
    assert status == {
        "replica": "r0", "instance": UID, "generation": 0, "role": "standby", "state": "running", "epoch": 3,
        "full": False, "outbox_full": False, "clock": "", "condition": "DL4007", "problem": "", "text": "DL4007 half",
        "fingerprint": "ab", "service_id": "cd", "incarnation": 7, "since": 1.5, "settings": "", "waits_for": 2,
        "waits_until": 9, "outside_held": True,
    }  # fmt: skip


def test_status_tells_how_the_program_is() -> None:
    program = Program(state="failing", text="DL3103 it ended", differs="to bank, at position 3: x", skipped=2)
    status = json.loads(status_of(standing(program=program)))
    assert status["program"] == msgspec.to_builtins(program)
    assert "program" not in json.loads(status_of(standing()))


@pytest.mark.parametrize("what", ["full", "outbox_full", "outside_held"])
def test_primary_without_room_announces_it_at_once_and_that_there_is_room_again(what: str) -> None:
    leads = standing("primary")
    patch = own_patch(pod(), leads, ceased_s=0.0)
    assert patch is not None
    seen = merged(pod(), patch)
    for full in (True, False):
        now = standing("primary", **{what: full})
        patch = own_patch(seen, now, ceased_s=0.0)
        assert patch is not None and not may_wait(seen, now)
        seen = merged(seen, patch)
        assert json.loads(seen["metadata"]["annotations"][STATUS])[what] is full  # type: ignore[index]  # JSON


def test_what_changes_with_every_message_is_not_written() -> None:
    patch = own_patch(pod(), STANDING, ceased_s=NEVER)
    assert patch is not None
    assert own_patch(merged(pod(), patch), standing(lsn=7, lag=9, client="a:1", takeovers=2), ceased_s=NEVER) is None


def test_pod_that_replaced_ours_refuses_our_patch() -> None:
    patch = own_patch(pod(), STANDING, ceased_s=NEVER)
    assert patch is not None
    assert uid_of(patch) == UID


@pytest.mark.parametrize(
    ("ceased_s", "kept"), [(0.0, "primary"), (HANDED_ON_S - 0.1, "primary"), (HANDED_ON_S, "dead")]
)
def test_primary_that_ceased_keeps_its_label_until_another_takes_it_or_time_is_over(ceased_s: float, kept: str) -> None:
    patch = own_patch(pod("primary"), standing("dead"), ceased_s=ceased_s)
    assert patch is not None
    assert label(merged(pod("primary"), patch)) == kept
    taken = own_patch(pod(), standing("dead"), ceased_s=ceased_s)
    assert taken is not None
    assert label(taken) == "dead"


def test_standby_never_gets_the_primarys_label() -> None:
    patch = own_patch(pod("primary"), STANDING, ceased_s=NEVER)
    assert patch is not None
    assert label(patch) == "standby"


@pytest.mark.parametrize(
    ("role", "epoch", "taken"),
    [
        ("primary", 2, True),
        ("primary", None, True),
        ("primary", 3, False),
        ("primary", 4, False),
        ("standby", 2, False),
    ],
)
def test_label_is_taken_only_from_one_that_claims_a_lower_epoch(role: str, epoch: int | None, taken: bool) -> None:
    patch = relief_patch(pod(role, epoch), 3)
    assert (patch is not None) == taken
    if patch is not None:
        assert resource_version(patch) == "9"
        assert label(merged(pod(role, epoch), patch)) is None


@pytest.mark.parametrize(
    ("serves", "silent", "epoch", "taken"),
    [
        ("true", UID, 3, True),
        ("true", UID, None, True),
        ("", UID, 2, True),  # made before there was the label
        ("true", UID, 4, False),  # it follows a later primary than us
        ("true", "", 3, False),  # it is heard
        ("true", "another", 3, False),  # the pod that was silent is gone, this one took its name
        ("false", UID, 3, False),
    ],
)
def test_callers_are_taken_only_from_the_instance_that_is_silent_and_knows_no_later_epoch(
    serves: str, silent: str, epoch: int | None, taken: bool
) -> None:
    seen = pod("standby", epoch, serves=serves)
    patch = relief_patch(seen, 3, silent)
    assert (patch is not None) == taken
    if patch is not None:
        assert resource_version(patch) == "9"
        after = merged(seen, patch)
        assert (label(after, SERVES), label(after), is_serving(after)) == ("false", "standby", False)
        assert relief_patch(after, 3, silent) is None


def test_role_and_callers_are_taken_by_one_patch() -> None:
    seen = pod("primary", 2, serves="true")
    patch = relief_patch(seen, 3, UID)
    assert patch is not None
    after = merged(seen, patch)
    assert (label(after), label(after, SERVES)) == (None, "false")


@pytest.mark.parametrize(
    ("changes", "serves", "back"),
    [
        ({"led": True}, "false", True),
        ({"led": True, "role": "primary"}, "false", True),
        ({"led": False}, "false", False),  # it could not forward a call
        ({"led": True, "role": "recovering"}, "false", False),
        ({"led": True, "state": "stopped"}, "false", False),
        ({"led": True, "stopping": True}, "false", False),
        ({"led": True}, "true", False),
        ({"led": True}, "", False),  # the Service does not ask for the label then
    ],
)
def test_replica_takes_itself_back_in_when_it_serves_and_hears_who_leads(
    changes: dict[str, object], serves: str, back: bool
) -> None:
    assert comes_back(pod(serves=serves), msgspec.structs.replace(STANDING, **changes)) is back


def test_patch_takes_ourselves_back_in_only_where_it_is_time() -> None:
    seen = pod(serves="false")
    for back, expected in ((True, "true"), (False, "false")):
        patch = own_patch(seen, STANDING, ceased_s=NEVER, back=back)
        assert patch is not None
        assert label(merged(seen, patch), SERVES) == expected


def test_replica_that_is_taken_out_again_and_again_comes_back_less_and_less_often() -> None:
    comeback, now, pauses = Comeback(), 0.0, []
    for _ in range(5):
        assert comeback.allowed(now)
        comeback.done(now)
        began = now
        while not comeback.allowed(now):
            now += 0.5
        pauses.append(now - began)
    assert pauses == [BACK_MIN_S, 2.0, 4.0, BACK_MAX_S, BACK_MAX_S]
    comeback.done(now)
    assert not comeback.allowed(now, "standby")
    assert comeback.allowed(now, "primary"), "without it the Service might lead nowhere"
    now += STEADY_S
    comeback.done(now)
    assert comeback.allowed(now + BACK_MIN_S)


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"epoch":"9"}'])
def test_status_that_can_not_be_read_claims_no_epoch(text: str) -> None:
    assert claimed_epoch(pod(annotations={STATUS: text})) == 0


def test_earlier_view_of_a_pod_is_told_from_a_later_one_and_from_another_pod() -> None:
    def at(version: str, uid: str = UID) -> dict[str, object]:
        return {"metadata": {"uid": uid, "resourceVersion": version}}

    assert is_older(at("9"), at("10"))
    assert not any(is_older(at(version), at("10")) for version in ("10", "11", "", "x"))
    assert not is_older(at("9", "another"), at("10"))


def test_only_the_word_true_fences() -> None:
    found = [is_fenced(pod(annotations={FENCED: text})) for text in ("true", "false", "True", "")]
    assert found == [True, False, False, False]
    odd: list[dict[str, object]] = [{}, {"metadata": None}, {"metadata": {"annotations": []}}]
    assert not any(map(is_fenced, odd))


def test_stopping_replica_says_so_but_a_primary_leads_until_it_has_handed_over() -> None:
    assert [label_of(standing(role, stopping=True)) for role in ("standby", "primary")] == ["stopping", "primary"]


def test_an_upgrader_tells_the_code_that_runs_the_log_for_it_and_takes_no_label_of_others() -> None:
    upgrading = standing("upgrader", fingerprint="0a" * 16, epoch=3)
    patch = own_patch(pod(), upgrading, ceased_s=NEVER)
    assert patch is not None
    metadata = merged(pod(), patch)["metadata"]
    assert isinstance(metadata, dict)
    told = json.loads(metadata["annotations"][STATUS])
    assert (metadata["labels"][ROLE], SERVES in metadata["labels"]) == ("upgrader", False)
    assert (told["role"], told["epoch"], told["fingerprint"]) == ("upgrader", 3, "0a" * 16)
    assert not comes_back(pod(serves="false"), upgrading), "nobody is sent to it"
    assert not may_wait(pod("standby"), upgrading)
