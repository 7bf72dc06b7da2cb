"""A module of which there is a copy comes from the copy, under the path that it had."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest

from deathless.shell.service_code import kept_import
from deathless.shell.service_code.kept_import import KeptModule


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    path, modules = list(sys.path), set(sys.modules)
    yield
    kept_import.remove()
    sys.path[:] = path
    for name in set(sys.modules) - modules:
        del sys.modules[name]


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A package that was copied, and edited after that."""
    original, copy = tmp_path / "tree", tmp_path / "copy"
    texts = {
        "kept_pkg/__init__.py": "from kept_pkg.rates import RATE\n",
        "kept_pkg/rates.py": "from pathlib import Path\nRATE = 1\ndef fail():\n    raise ValueError('kept')\n",
        "kept_alone.py": "import kept_pkg\nRATE = kept_pkg.RATE\n",
        "kept_space/inner.py": "RATE = 1\n",
    }
    for name, text in texts.items():
        for folder in (original, copy):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(text if folder is copy else "RATE = 2\n\n\n\n")
    (original / "kept_pkg" / "plugin.py").write_text("NAME = 'found by a computed name'\n")
    (original / "kept_pkg" / "rates.txt").write_text("data beside it")
    names = {"kept_pkg": "kept_pkg/__init__.py", "kept_pkg.rates": "kept_pkg/rates.py", "kept_alone": "kept_alone.py",
             "kept_space.inner": "kept_space/inner.py"}  # fmt: skip
    kept_import.install({name: KeptModule(original / path, copy / path) for name, path in names.items()})
    sys.path.insert(0, str(original))
    return original


def test_copies_are_imported_and_edited_files_are_not(tree: Path) -> None:
    for name in ("kept_alone", "kept_pkg.rates", "kept_space.inner"):
        assert import_module(name).RATE == 1, name
    assert list(tree.rglob("__pycache__")) == [], "neither is byte code of the edited files used, nor any written"


def test_what_was_not_copied_is_found_beside_the_path_that_stays(tree: Path) -> None:
    rates = import_module("kept_pkg.rates")
    assert rates.__file__ == str(tree / "kept_pkg" / "rates.py")
    assert Path(rates.__file__).with_suffix(".txt").read_text() == "data beside it"
    assert import_module("kept_pkg.plugin").NAME


def test_traceback_shows_the_lines_of_the_copy(tree: Path) -> None:
    with pytest.raises(ValueError, match="kept") as raised:
        import_module("kept_pkg.rates").fail()
    assert "raise ValueError('kept')" in "".join(traceback.format_exception(raised.value))


def test_files_that_are_gone_are_imported_all_the_same(tree: Path) -> None:
    tree.rename(tree.with_name("moved"))
    assert import_module("kept_space.inner").RATE == import_module("kept_alone").RATE == 1
    found = kept_import.installed()
    assert found.stands_for(tree.with_name("moved") / "kept_alone.py") == "kept_alone", "the project has moved"
    assert found.stands_for(tree.with_name("moved") / "other.py") == ""


def test_a_file_counts_by_its_path_as_long_as_that_is_there(tree: Path) -> None:
    found = kept_import.installed()
    assert found.stands_for(tree / "kept_alone.py") == "kept_alone"
    assert found.stands_for(tree.parent / "elsewhere" / "kept_alone.py") == ""
    assert found.copy_of(tree / "kept_alone.py") == tree.parent / "copy" / "kept_alone.py"
    assert found.copy_of(tree / "kept_pkg" / "plugin.py") == tree / "kept_pkg" / "plugin.py"


def test_removed_ones_are_not_imported_from_any_more(tree: Path) -> None:
    kept_import.remove()
    assert import_module("kept_pkg.rates").RATE == 2
    assert kept_import.installed().stands_for(tree / "kept_alone.py") == ""
