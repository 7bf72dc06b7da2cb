"""Spec and status of a resource, as far as this version can read them."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta

from deathless.base.manifest_fields import Part
from deathless_operator.model.resource_parts import PROBLEMS_MAX, spec_in, status_in


class Spec(Part, frozen=True):
    low: Annotated[int, Meta(ge=0)] = 0
    high: int = 9


class Status(msgspec.Struct, frozen=True):
    phase: str = ""


def problems_of(spec: Spec) -> list[str]:
    return ["spec.high must not be below spec.low"] if spec.high < spec.low else []


def test_a_spec_is_read_or_what_is_wrong_with_it_is_told() -> None:
    assert spec_in({"spec": {"low": 3}}, Spec, problems_of) == (Spec(low=3), ())
    assert spec_in({"spec": {"low": 3, "high": 1}}, Spec, problems_of) == (None, tuple(problems_of(Spec(3, 1))))
    assert spec_in({"spec": {"low": 3, "high": 1}}, Spec) == (Spec(3, 1), ()), "nobody asked for relations"
    spec, problems = spec_in({"spec": {"low": -1}}, Spec, problems_of)
    assert spec is None
    assert problems[0].startswith("spec.low: ")
    many: dict[str, Any] = {"spec": {f"field{number}": 1 for number in range(20)}}
    assert len(spec_in(many, Spec)[1]) == PROBLEMS_MAX


def test_a_status_that_can_not_be_read_is_an_empty_one() -> None:
    assert status_in({"status": {"phase": "Ready", "later": 1}}, Status) == Status("Ready")
    assert status_in({"status": {"phase": 7}}, Status) == status_in({}, Status) == Status()
