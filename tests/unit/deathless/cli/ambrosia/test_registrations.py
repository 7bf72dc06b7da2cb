"""Registrations are found by the instance's name, from the folder of the launchers."""

from __future__ import annotations

from pathlib import Path

import pytest

from deathless.base.errors import InstanceNotRegistered, InvalidConfig
from deathless.cli.ambrosia.registrations import (
    FOLDER,
    Registration,
    Replica,
    all_registrations,
    register,
    registration_of,
)


def registration(instance: str = "PTIServer", **fields: object) -> Registration:
    ports = {0: Replica(receive_port=1000, send_port=1001)}
    return Registration(instance=instance, log="/logs", replicas=ports, **fields)  # type: ignore[arg-type]  # as named


def test_what_was_registered_is_found_again(tmp_path: Path) -> None:
    register(tmp_path, registration(version=1))
    register(tmp_path, registration(version=2, create_service="N"))
    assert registration_of(tmp_path, "PTIServer") == registration(version=2, create_service="N")


def test_case_of_a_name_counts(tmp_path: Path) -> None:
    register(tmp_path, registration())
    with pytest.raises(InstanceNotRegistered, match="ptiserver"):
        registration_of(tmp_path, "ptiserver")


def test_data_stand_below_the_log(tmp_path: Path) -> None:
    found = registration("counter")
    assert (found.service, found.directory) == ("counter", Path("/logs/.deathless/counter"))


@pytest.mark.parametrize("text", ["", "{", "[]", '{"instance": 1}'])
def test_registration_that_can_not_be_read_is_an_error_and_no_other_suffers(tmp_path: Path, text: str) -> None:
    register(tmp_path, registration("counter"))
    (tmp_path / FOLDER / "bank.json").write_text(text)
    with pytest.raises(InvalidConfig, match=r"bank\.json"):
        registration_of(tmp_path, "bank")
    assert all_registrations(tmp_path) == [registration("counter")]
