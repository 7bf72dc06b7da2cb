"""What a source is told, and how it is refused."""

from pathlib import Path

import pytest

from deathless.base.errors import InvalidArgument
from deathless.base.tls import TlsConfig
from deathless.spark.options import (
    BESIDE,
    SERVICES,
    TLS_FILES,
    known_services,
    offer_services,
    offer_tls,
    read_options,
)


def test_a_topic_and_a_folder_are_enough(tmp_path: Path) -> None:
    """Everything else has a default."""
    found = read_options({"topic": "departures", "folder": str(tmp_path)})
    assert (found.shards, found.start, found.max_rows, found.hold, found.service) == (1, "earliest", 1_000_000, "", "")
    assert not found.published(0)


def test_a_service_is_found_by_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """As the agent of a pipeline names it."""
    monkeypatch.setenv(SERVICES, '{"airports": "/data/airports"}')
    assert known_services() == {"airports": "/data/airports"}
    assert read_options({"topic": "departures", "service": "airports"}).place == "/data/airports"
    monkeypatch.setenv(SERVICES, "airports=/data")
    with pytest.raises(InvalidArgument, match="DEATHLESS_SERVICES holds no services"):
        known_services()
    monkeypatch.setenv(SERVICES, '{"airports": "/data/airports"}')
    with pytest.raises(InvalidArgument, match="'hotels' is not known here; there are: airports"):
        read_options({"topic": "departures", "service": "hotels"})


def test_services_that_come_to_stand_in_a_folder_are_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whenever they do; what is named counts more."""
    for name in (SERVICES, BESIDE):
        monkeypatch.setenv(name, "")
    offer_services({"hotels": "http://h"}, str(tmp_path))
    assert known_services() == {"hotels": "http://h"}
    for name in ("airports", "hotels"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "service.json").touch()
    (tmp_path / "other").mkdir()
    assert known_services() == {"airports": str(tmp_path / "airports"), "hotels": "http://h"}
    offer_services({})
    assert known_services() == {}


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"folder": "x"}, "'topic' is missing"),
        ({"topic": "t"}, "one of the options 'folder'"),
        ({"topic": "t", "folder": "x", "service": "y"}, "one of the options 'folder'"),
        ({"topic": "t", "url": "airports:80"}, "begins with http"),
        ({"topic": "t", "folder": "x", "startingPositions": "now"}, "one of earliest, latest, not 'now'"),
        ({"topic": "t", "folder": "x", "maxRowsPerBatch": "0"}, "above 0, not '0'"),
        ({"topic": "t", "folder": "x", "maxRowsPerBatch": "-1"}, "above 0, not '-1'"),
        ({"topic": "t", "folder": "x", "maxrows": "1"}, "no option 'maxrows'"),
        ({"topic": "t", "folder": "x", "hold": "../x"}, "can't name a hold"),
    ],
)
def test_what_is_wrong_is_named(options: dict[str, str], told: str) -> None:
    """Option, value and what it could be."""
    with pytest.raises(InvalidArgument, match=told):
        read_options(options)


def test_a_source_is_a_service_and_an_incarnation(tmp_path: Path) -> None:
    """Anything else names none."""
    settings = read_options({"topic": "t", "folder": str(tmp_path)})
    assert settings.reader(0, f"{'a' * 32}.7").source().incarnation == 7
    with pytest.raises(InvalidArgument, match="names no source"):
        settings.reader(0, "x")


def test_certificates_of_an_agent_are_shown_and_trusted_unless_the_source_says_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in TLS_FILES:
        monkeypatch.setenv(name, "")
    offer_tls(TlsConfig(ca="/ca", certificate="/cert", key="/key"))
    found = read_options({"topic": "departures", "folder": str(tmp_path)})
    assert (found.ca_file, found.certificate_file, found.key_file) == ("/ca", "/cert", "/key")
    assert read_options({"topic": "departures", "folder": str(tmp_path), "caFile": "/other"}).ca_file == "/other"
