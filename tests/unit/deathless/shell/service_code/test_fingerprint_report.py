"""The fingerprint that an operator compares is the one that the log carries."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from deathless.base.errors import InvalidConfig, InvalidService
from deathless.base.limits import Limits
from deathless.shell.service_code.fingerprint import describe
from deathless.shell.service_code.fingerprint_report import check_code
from deathless.shell.service_code.kept_code import keep
from deathless.shell.service_code.loading import fingerprint, load_service

MODULE = str(Path(__file__).parents[4] / "process" / "bank_fake.py") + ":bank"


def test_module_that_is_named_or_configured_gives_what_a_worker_would_write(tmp_path: Path) -> None:
    path = tmp_path / "replica.json"
    path.write_text(json.dumps({"module": MODULE, "service": "bank"}))
    expected = fingerprint(load_service(MODULE), Limits()).hex()
    for found in (check_code(MODULE, "nowhere"), check_code(None, str(path))):
        assert (found.fingerprint, found.service, found.module) == (expected, "bank", MODULE)
        told = json.loads(found.message)
        spellings = told.pop("spellings")
        assert told == {"service": "bank", "module": MODULE, "fingerprint": expected}
        assert expected in spellings
        assert len(spellings) == 2, "an older release tells the same code otherwise"
        assert len(found.message) < 4096
        assert any(part.startswith("source ") for part in found.parts)
        assert found.kept is None


def test_it_tells_whether_the_code_is_kept_with_the_log(tmp_path: Path) -> None:
    path = tmp_path / "replica.json"
    path.write_text(json.dumps({"module": MODULE, "directory": str(tmp_path)}))
    assert check_code(None, str(path)).kept is False
    code = describe(load_service(MODULE), Limits())
    keep(tmp_path, code, service="bank", module=MODULE)
    assert check_code(None, str(path)).kept is True
    assert check_code(MODULE, "nowhere", directory=str(tmp_path)).kept is True


def test_limits_of_the_config_count(tmp_path: Path) -> None:
    path = tmp_path / "replica.json"
    path.write_text(json.dumps({"limits": {"key_bytes_max": 100}}))
    expected = fingerprint(load_service(MODULE), Limits(key_bytes_max=100)).hex()
    assert check_code(MODULE, str(path)).fingerprint == expected != check_code(MODULE, "nowhere").fingerprint
    assert check_code(MODULE, "nowhere", '{"key_bytes_max": 100}').fingerprint == expected
    assert check_code(MODULE, str(path), "{}").fingerprint == check_code(MODULE, "nowhere").fingerprint
    with pytest.raises(InvalidConfig, match="limits"):
        check_code(MODULE, str(path), "{")


def test_numbers_of_shards_count(tmp_path: Path) -> None:
    path = tmp_path / "replica.json"
    path.write_text(json.dumps({"shards": 2, "peers": [{"name": "stock", "shards": 3}]}))
    several = check_code(MODULE, str(path)).fingerprint
    assert check_code(MODULE, "nowhere", shards=2, peers='{"stock": 3}').fingerprint == several
    assert len({several, *(check_code(MODULE, "nowhere", shards=n).fingerprint for n in (1, 2))}) == 3
    with pytest.raises(InvalidConfig, match="--peers"):
        check_code(MODULE, "nowhere", peers="{")


@pytest.mark.parametrize("content", [None, "{", "[]", "{}", '{"module":7}', '{"module":"%s","limits":{"a":"b"}}'])
def test_config_that_names_no_module_is_refused(tmp_path: Path, content: str | None) -> None:
    path = tmp_path / "replica.json"
    if content is not None:
        path.write_text(content.replace("%s", MODULE))
    with pytest.raises(InvalidConfig, match=r"replica\.json"):
        check_code(None, str(path))


def test_module_that_is_no_service_is_refused() -> None:
    with pytest.raises(InvalidService):
        check_code("nowhere:bank", "unused")
