"""Which files and packages a service is made of."""

import sys
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

import pytest

from deathless.base.errors import InvalidService
from deathless.shell.service_code.loading import load_service
from deathless.shell.service_code.sources import OWN_NAMES, code_of

FILES = {
    "shop_src/__init__.py": "",
    "shop_src/service.py": """
import json, click
from . import prices
from .rules import check
from deathless import Context, Service, Struct
class Cart(Struct):
    total: int = 0
cart = Service("cart", state=Cart)
@cart.birth
def born(state: Cart, ctx: Context) -> None: ...
@cart.handler
def add(state: Cart, ctx: Context) -> None:
    from shop_src import lazy
""",
    "shop_src/prices.py": "import shop_src.deep.inner\n",
    "shop_src/rules.py": "from .deep import *\ncheck = 1\n",
    "shop_src/deep/__init__.py": "from .. import prices\n",
    "shop_src/deep/inner.py": "",
    "shop_src/lazy.py": "import not_there\n",
    "shop_src/unused.py": "",
}


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    modules, path = dict(sys.modules), list(sys.path)
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    yield tmp_path
    for name in set(sys.modules) - set(modules):
        del sys.modules[name]
    sys.path[:] = path


def test_files_are_those_the_service_imports_anywhere(folder: Path) -> None:
    code = code_of(load_service("shop_src.service:cart", folder))
    assert list(code.files) == [
        "shop_src", "shop_src.deep", "shop_src.deep.inner", "shop_src.lazy", "shop_src.prices", "shop_src.rules",
        "shop_src.service",
    ]  # fmt: skip
    assert code.files["shop_src.rules"] == folder / "shop_src" / "rules.py"


def test_packages_count_by_version_with_what_they_need(folder: Path) -> None:
    versions = code_of(load_service("shop_src.service:cart", folder)).versions
    assert {"click", "msgspec"} <= set(versions)
    assert not {"json", "rich", "pytest"} & set(versions)


def test_packages_that_are_not_read_up_are_distributed_under_their_own_names() -> None:
    """As what is installed says, where it says anything: from a source tree nobody knows whose `deathless` is."""
    owners = metadata.packages_distributions()
    assert {name: owners.get(name, [name]) for name in OWN_NAMES} == {name: [name] for name in OWN_NAMES}


def test_service_without_other_packages_does_not_read_what_is_installed(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That takes a quarter of a second, at each start of a worker."""
    asked: list[str] = []

    def read_all() -> dict[str, list[str]]:
        asked.append("all")
        return {"click": ["click"]}

    monkeypatch.setattr(metadata, "packages_distributions", read_all)
    text = ["from deathless import Service, Struct", "class Cart(Struct): ...", "cart = Service('cart', state=Cart)"]
    (folder / "plain_src.py").write_text("\n".join(text))
    assert {"deathless", "msgspec"} >= set(code_of(load_service("plain_src:cart", folder)).versions)
    assert asked == []
    code_of(load_service("shop_src.service:cart", folder))
    code_of(load_service("shop_src.service:cart", folder))
    assert asked == ["all"], "once in a process"


def test_service_with_a_schedule_counts_what_finds_its_times(folder: Path) -> None:
    service = load_service("shop_src.service:cart", folder)
    assert "cronsim" not in code_of(service).versions
    service.schedule("0 3 * * *", key="a")(service.specs["add"].function)
    assert "cronsim" in code_of(service).versions


def test_answer_does_not_depend_on_what_else_is_imported(folder: Path) -> None:
    service = load_service("shop_src.service:cart", folder)
    before = code_of(service)
    import shop_src.unused  # type: ignore[import-not-found]  # noqa: F401, PLC0415  # it was written above

    assert code_of(service).files == before.files


def test_service_that_is_installed_counts_by_its_source(folder: Path) -> None:
    installed = folder / "lib" / "site-packages" / "shop_installed"
    installed.mkdir(parents=True)
    (installed / "__init__.py").write_text("")
    (installed / "prices.py").write_text("")
    (installed / "service.py").write_text(
        "import shop_installed.prices\n" + FILES["shop_src/service.py"].partition("@cart.h")[0].replace("from .", "#")
    )
    code = code_of(load_service("shop_installed.service:cart", installed.parent))
    assert list(code.files) == ["shop_installed", "shop_installed.prices", "shop_installed.service"]


def test_service_that_comes_with_us_counts_by_its_source(folder: Path) -> None:
    code = code_of(load_service("deathless.cli.demo.service"))
    assert list(code.files) == ["deathless.cli.demo.service"]
    assert "deathless.execution.author.service" not in code.files


CALLABLE = """
from deathless import Context, Service, Struct
class Cart(Struct):
    total: int = 0
class Add:
    def __call__(self, state: Cart, ctx: Context) -> None: ...
cart = Service("cart", state=Cart)
cart.handler(name="add")(Add())
"""


def test_handler_that_is_no_function_counts_by_its_module(folder: Path) -> None:
    (folder / "shop_callable.py").write_text(CALLABLE)
    assert list(code_of(load_service("shop_callable:cart", folder)).files) == ["shop_callable"]


def test_file_that_cannot_be_read_is_named(folder: Path) -> None:
    service = load_service("shop_src.service:cart", folder)
    (folder / "shop_src" / "lazy.py").write_text("x = = 1")
    with pytest.raises(InvalidService, match=r"lazy\.py can't be read"):
        code_of(service)
