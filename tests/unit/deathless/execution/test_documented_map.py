"""The map that docs/concepts.md shows does what the page says."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
import pytest
from tests.unit.deathless.execution.executor_bench import Bench

from deathless.base.limits import Limits
from deathless.shell.service_code.loading import load_service

PAGE = Path(__file__).parents[4] / "docs" / "concepts.md"


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    (code,) = [text for text in re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL) if "Map[" in text]
    (tmp_path / "documented_map.py").write_text(code)
    return Bench(load_service("documented_map.py:store", tmp_path), Limits(item_bytes_max=100))


def pages(bench: Bench, above: str) -> object:
    return msgspec.msgpack.decode(bench.ask("page", above=above, count=2)[1:])


def test_documented_map_is_read_page_by_page(bench: Bench) -> None:
    for article in ("pear", "apple", "quince"):
        assert bench.call("put", article=article, count=3, place="left") == 3
    assert bench.call("put", article="apple", count=4, place="right") == 7
    assert (pages(bench, ""), pages(bench, "pear")) == ({"apple": 7, "pear": 3}, {"quince": 3})
    assert (bench.call("drop", article="pear"), bench.call("drop", article="pear")) == (True, False)
    failure = bench.fail("put", article="apple", count=1, place="x" * 100)
    assert (failure.code, "item 'apple' of map 'articles' of key 'a'" in failure.text) == ("DL3006", True)
    assert pages(bench, "") == {"apple": 7, "quince": 3}
