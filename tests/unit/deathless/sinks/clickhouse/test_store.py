"""What the options of a sink into ClickHouse must be. Its behaviour is tested in `tests/clickhouse`."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import msgspec
import pytest

from deathless.base.config import SinkConfig
from deathless.base.errors import InvalidConfig
from deathless.sinks.clickhouse.store import store

pytest.importorskip("aiohttp", reason="the client needs aiohttp: pip install deathless[clickhouse]")
SINK = SinkConfig(name="facts", topic="t", topic_directory="", store="clickhouse", table="facts")


def made(**changes: object) -> None:
    store(msgspec.structs.replace(SINK, **cast("Any", changes)))


def test_url_may_stand_in_the_manifest_or_in_a_file_with_its_password(tmp_path: Path) -> None:
    (tmp_path / "url").write_text("http://me:secret@db:8123/?database=d\n", encoding="utf-8")
    made(dsn="http://me@db:8123")
    made(dsn_file="url", folder=str(tmp_path))


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({}, "one of them"),
        ({"dsn": "http://db", "dsn_file": "url"}, "one of them"),
        ({"dsn": "http://me:secret@db"}, "holds a password"),
        ({"dsn": "host=db"}, "dsn is no URL"),
        ({"dsn_file": "missing"}, "dsnFile"),
    ],
)
def test_options_that_are_wrong_are_refused_without_the_password(changes: dict[str, str], why: str) -> None:
    with pytest.raises(InvalidConfig, match=why) as refused:
        made(**changes)
    assert "secret" not in str(refused.value)
