"""The sink that docs/drivers.md shows is what it says: each effect once, whatever breaks."""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Sequence
from pathlib import Path

import pytest

from deathless.base.config import DriverConfig
from deathless.drivers.conformance import World, check
from deathless.drivers.host import factory_of
from deathless.drivers.port import Settings, Sink

PAGE = Path(__file__).parents[4] / "docs" / "drivers.md"


@pytest.mark.asyncio
@pytest.mark.parametrize("seed", range(6))
async def test_the_kit_finds_nothing_wrong_with_the_documented_sink(seed: int, tmp_path: Path) -> None:
    (code,) = [
        text for text in re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL) if "class Lines" in text
    ]
    (tmp_path / f"documented_{seed}.py").write_text(code)
    driver = DriverConfig(name="lines", kind=f"documented_{seed}.py:make", folder=str(tmp_path))

    def made() -> Sink:
        return factory_of(driver)(Settings("lines", {"path": "db"}, str(tmp_path)))

    async def arrived() -> Sequence[int]:
        with sqlite3.connect(tmp_path / "db") as db:
            found = db.execute("select arguments from lines order by rowid").fetchall()
        db.close()
        return [json.loads(text)["number"] for (text,) in found]

    await check(World(sink=made, arrived=arrived), seed=seed)
