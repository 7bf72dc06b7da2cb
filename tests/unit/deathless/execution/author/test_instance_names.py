"""What a service is called whose program has a name of AMBROSIA's."""

from __future__ import annotations

import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deathless.codec.peer_messages import is_service_name
from deathless.execution.author.instance_names import is_instance_name, service_of

NAMES = st.text(string.ascii_letters + string.digits, min_size=2, max_size=62).map(lambda text: f"a{text}")


@given(NAMES)
def test_every_instance_of_ambrosia_has_a_service(name: str) -> None:
    assert is_instance_name(name)
    assert is_service_name(service_of(name))


@given(NAMES, NAMES)
def test_two_instances_have_two_services_also_if_they_differ_by_case_alone(one: str, other: str) -> None:
    names = {one, other, one.upper(), other.lower()}
    assert len({service_of(name) for name in names}) == len(names)


@pytest.mark.parametrize("name", ["bank", "till-2", "No!", "", "x" * 64, "été"])
def test_what_is_a_service_or_can_be_no_instance_stays_as_it_is(name: str) -> None:
    assert service_of(name) == name


def test_name_of_a_service_is_the_same_for_ever() -> None:
    """It stands in logs of other services."""
    assert service_of("PTIServer") == "ptiserver-7b4f117a8df8"
