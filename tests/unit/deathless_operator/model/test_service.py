"""A resource is read, or its mistakes are told."""

from __future__ import annotations

from typing import Any

import pytest

from deathless_operator.model.resource_parts import PROBLEMS_MAX
from deathless_operator.model.service import read_spec, read_status
from deathless_operator.model.status import ServiceStatus

SPEC: dict[str, Any] = {"module": "bank:bank", "image": "bank:1", "logStorage": {"claimName": "log"}}


def problems(**changes: Any) -> tuple[str, ...]:
    """What is wrong with a spec."""
    return read_spec({"spec": {**SPEC, **changes}})[1]


def test_spec_that_is_in_order_is_read() -> None:
    spec, wrong = read_spec({"spec": SPEC})
    assert wrong == ()
    assert spec is not None
    assert (spec.image, spec.log_storage.claim_name, spec.replicas) == ("bank:1", "log", 3)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"replicas": "three"}, "spec.replicas: is the text 'three'; write a whole number from 1 to 7"),
        ({"quorum": 2}, "spec.quorum: is no field here"),
        ({"image": ""}, "spec.image: is missing; name the image that holds the module"),
        ({"lock": {"type": "directory"}}, "spec.lock.type: is directory; a cluster elects through etcd"),
        ({"fence": "seal"}, "spec.fence: is seal; leave it out"),
        ({"limits": {"heartbeatS": 1.0}}, "spec.limits: 3 * heartbeatS <= suspectAfterS must hold"),
        ({"shards": 65}, "spec.shards: is the number 65; write a whole number from 1 to 64"),
        ({"logStorage": {}}, "spec.logStorage: needs one of claimName and size"),
    ],
)
def test_mistake_is_told_with_place_and_remedy(changes: dict[str, Any], words: str) -> None:
    assert any(problem.startswith(words) for problem in problems(**changes)), problems(**changes)


def test_many_mistakes_are_counted() -> None:
    found = problems(**{f"field{index}": 1 for index in range(20)})
    assert (len(found), found[-1]) == (PROBLEMS_MAX + 1, "and 12 more")


@pytest.mark.parametrize("raw", [{}, {"spec": None}, {"spec": 3}, {"spec": []}])
def test_spec_of_a_foreign_shape_is_a_mistake(raw: Any) -> None:
    assert read_spec(raw)[0] is None
    assert read_spec(raw)[1]


def test_status_of_another_version_is_read_or_begun_anew() -> None:
    assert read_status({"status": {"ready": "3/3", "newer": 1}}).ready == "3/3"
    assert read_status({"status": {"epoch": "many"}}) == read_status({}) == ServiceStatus()


GATE: dict[str, Any] = {"name": "lines", "kind": "connector", "input": "lines", "secretRef": {"name": "connector"}}


@pytest.mark.parametrize(
    ("options", "changes", "words"),
    [
        ({"cookieFile": "c"}, {}, ""),
        ({"tls": True}, {}, ""),
        ({}, {}, "anybody who reaches it could send"),
        ({"tls": True}, {"tls": {"requireClientCertificate": False}}, "anybody who reaches it could send"),
        ({"tls": True, "cookieFile": "c"}, {"tls": {"issuer": "Off"}}, "needs the certificates"),
        ({"cookieFile": "c", "listen": "h:7401"}, {}, "names port 7401, which is a port of every replica"),
        ({"cookieFile": "c", "listen": "h:0"}, {}, "names port 0"),
        ({"cookieFile": "c", "listen": "h"}, {}, "is not host:port"),
    ],
)
def test_a_gate_asks_who_connects_and_has_a_port_of_its_own(
    options: dict[str, Any], changes: dict[str, Any], words: str
) -> None:
    found = problems(sources=[GATE | {"options": options}], **changes)
    assert (found == ()) if not words else any(words in each for each in found), found


def test_two_gates_have_two_ports_and_a_cookie_has_a_secret() -> None:
    one = GATE | {"options": {"cookieFile": "c"}}
    found = problems(sources=[one, one | {"name": "other", "secretRef": None}])
    assert any("which is that of source lines" in each for each in found), found
    assert any("names, and there is none" in each for each in found), found
