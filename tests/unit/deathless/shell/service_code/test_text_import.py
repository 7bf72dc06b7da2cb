"""An author's module is run from its text, whatever byte code stands beside it."""

from __future__ import annotations

import inspect
import os
import py_compile
import sys
import traceback
import zipfile
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from py_compile import PycInvalidationMode

import pytest

from deathless.base.errors import InvalidService
from deathless.shell.service_code import text_import
from deathless.shell.service_code.fingerprint import describe_code
from deathless.shell.service_code.loading import load_service
from deathless.shell.service_code.text_import import TextLoader, TextModules

MODES = [PycInvalidationMode.TIMESTAMP, PycInvalidationMode.UNCHECKED_HASH]
SERVICE = """
from deathless import Service, Struct
class Till(Struct):
    total: int = 0
till = Service("till", state=Till)
RATE = 1
"""


@pytest.fixture(autouse=True)
def forgotten(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    path, modules, finders = list(sys.path), set(sys.modules), list(sys.meta_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    text_import.remove()
    yield
    sys.path[:], sys.meta_path[:] = path, finders
    for name in set(sys.modules) - modules:
        del sys.modules[name]


def edited(path: Path, text: str, *, mode: PycInvalidationMode = PycInvalidationMode.TIMESTAMP) -> Path:
    """Write a text, have it compiled, and set `RATE = 2` in it: as long, and at the same time."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    py_compile.compile(str(path), invalidation_mode=mode)
    before = path.stat()
    path.write_text(text.replace("RATE = 1", "RATE = 2"))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    return path


def rate(name: str, folder: Path) -> int:
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))
    found: int = import_module(name).RATE
    return found


@pytest.mark.parametrize("mode", MODES)
def test_file_is_run_as_it_was_edited_last(tmp_path: Path, mode: PycInvalidationMode) -> None:
    path = edited(tmp_path / "till_file.py", SERVICE, mode=mode)
    load_service(f"{path}:till")
    assert sys.modules["till_file"].RATE == 2


@pytest.mark.parametrize("mode", MODES)
def test_modules_and_what_they_import_are_run_as_they_were_edited_last(
    tmp_path: Path, mode: PycInvalidationMode
) -> None:
    edited(tmp_path / "till_pkg" / "__init__.py", "RATE = 1\n", mode=mode)
    edited(tmp_path / "till_pkg" / "service.py", f"import till_pkg.beside, till_space.inner\n{SERVICE}", mode=mode)
    for name in ("till_pkg/beside.py", "till_pkg/later.py", "till_space/inner.py"):
        edited(tmp_path / name, "RATE = 1\n", mode=mode)
    load_service("till_pkg.service:till", tmp_path)
    names = ("till_pkg", "till_pkg.service", "till_pkg.beside", "till_pkg.later", "till_space.inner")
    assert [rate(name, tmp_path) for name in names] == [2] * 5, "till_pkg.later is imported when the service has been"


@pytest.mark.parametrize("mode", MODES)
def test_without_the_finder_the_former_byte_code_is_run(tmp_path: Path, mode: PycInvalidationMode) -> None:
    """That is Python's, and what all of these tests would find otherwise."""
    edited(tmp_path / "till_plain.py", "RATE = 1\n", mode=mode)
    assert rate("till_plain", tmp_path) == 1


def test_no_byte_code_of_an_author_is_written_and_that_of_packages_is(tmp_path: Path) -> None:
    for name in ("till_own.py", "site-packages/till_library.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("RATE = 1\n")
    text_import.install()
    assert rate("till_own", tmp_path) == rate("till_library", tmp_path / "site-packages") == 1
    assert [each.name.partition(".")[0] for each in tmp_path.rglob("*.pyc")] == ["till_library"]


def test_installed_package_of_the_service_is_run_from_its_text(tmp_path: Path) -> None:
    folder = tmp_path / "site-packages"
    edited(folder / "till_installed" / "__init__.py", "RATE = 1\n")
    edited(folder / "till_installed" / "service.py", SERVICE)
    edited(folder / "till_library.py", "RATE = 1\n")
    load_service("till_installed.service:till", folder)
    assert rate("till_installed", folder) == rate("till_installed.service", folder) == 2
    assert rate("till_library", folder) == 1, "it counts by its version"


def test_former_byte_code_that_was_imported_before_is_refused(tmp_path: Path) -> None:
    path = edited(tmp_path / "till_before.py", SERVICE)
    assert rate("till_before", tmp_path) == 1
    service = load_service("till_before:till", tmp_path)
    with pytest.raises(InvalidService, match=r"till_before was imported from .*\.pyc, which is not .*: remove it"):
        describe_code(service)
    Path(sys.modules.pop("till_before").__cached__).unlink()
    assert "source till_before" in describe_code(load_service(f"{path}:till"))


def test_installed_package_that_turns_out_to_hold_handlers_is_compared(tmp_path: Path) -> None:
    folder = tmp_path / "site-packages"
    edited(folder / "till_handlers.py", SERVICE)
    (tmp_path / "till_named.py").write_text("from till_handlers import till\n")
    sys.path.insert(0, str(folder))
    service = load_service("till_named:till", tmp_path)
    with pytest.raises(InvalidService, match="till_handlers was imported from"):
        describe_code(service)


def test_what_that_package_imports_behind_the_load_is_run_from_its_text(tmp_path: Path) -> None:
    folder = tmp_path / "site-packages"
    for name, text in (("__init__", ""), ("service", SERVICE), ("later", "RATE = 1\n")):
        edited(folder / "till_far" / f"{name}.py", text)
    (tmp_path / "till_near.py").write_text("from till_far.service import till\n")
    sys.path.insert(0, str(folder))
    load_service("till_near:till", tmp_path)
    assert rate("till_far.later", folder) == 2


def test_text_is_found_by_whoever_asks_a_module_for_it(tmp_path: Path) -> None:
    path = tmp_path / "till_shown.py"
    path.write_text("RATE = 1\ndef fail():\n    raise ValueError('shown')\n")
    text_import.install()
    rate("till_shown", tmp_path)
    module = sys.modules["till_shown"]
    assert isinstance(module.__loader__, TextLoader)
    assert (module.__file__, inspect.getsource(module)) == (str(path), path.read_text())
    with pytest.raises(ValueError, match="shown") as raised:
        module.fail()
    assert "raise ValueError('shown')" in "".join(traceback.format_exception(raised.value))


def test_loaders_of_others_load_as_they_did(tmp_path: Path) -> None:
    (tmp_path / "till_rewritten.py").write_text("RATE = 1\n")
    with zipfile.ZipFile(tmp_path / "till.zip", "w") as archive:
        archive.writestr("till_zipped.py", "RATE = 1\n")
    pytest.register_assert_rewrite("till_rewritten")
    text_import.install()
    assert rate("till_rewritten", tmp_path) == rate("till_zipped", tmp_path / "till.zip") == 1
    loaders = [type(sys.modules[name].__loader__).__name__ for name in ("till_rewritten", "till_zipped")]
    assert loaders == ["AssertionRewritingHook", "zipimporter"]


def test_what_is_not_there_is_not_found_and_removed_finders_find_nothing(tmp_path: Path) -> None:
    text_import.install()
    text_import.install("till_twice")
    found = [each for each in sys.meta_path if isinstance(each, TextModules)]
    assert (len(found), found[0].packages) == (1, {"till_twice"})
    with pytest.raises(ModuleNotFoundError, match="till_absent"):
        rate("till_absent", tmp_path)
    text_import.remove()
    assert found[0].find_spec("json") is None
