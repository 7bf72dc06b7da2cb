"""Go programs of this tree are built once, or it is said why not."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from lab.go_programs import GoBuildFailed, built

GOOD = 'package main\n\nimport "fmt"\n\nfunc main() { fmt.Println("hello") }\n'


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    kept = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    monkeypatch.setenv("GOCACHE", os.environ.get("GOCACHE") or os.path.join(kept, "go-build"))  # the compiler's own
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_where_there_is_no_go_nothing_is_built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = tmp_path / "none.go"
    source.write_text(GOOD + "// none\n")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert built("none", source) is None


@pytest.mark.skipif(shutil.which("go") is None, reason="no go compiler on the search path")
def test_program_is_built_once_and_again_when_its_source_changed(tmp_path: Path) -> None:
    source = tmp_path / "main.go"
    source.write_text(GOOD)
    program = built("hello", source)
    assert program is not None
    assert subprocess.run([program], capture_output=True, text=True, check=True).stdout == "hello\n"
    built.cache_clear()
    source.write_text(GOOD + "// other\n")
    other = built("hello", source)
    assert other is not None and other != program and program.exists()


@pytest.mark.skipif(shutil.which("go") is None, reason="no go compiler on the search path")
def test_what_the_compiler_does_not_take_is_told_and_leaves_nothing(tmp_path: Path, cache: Path) -> None:
    source = tmp_path / "wrong.go"
    source.write_text("package main\n\nfunc main() { nowhere() }\n")
    with pytest.raises(GoBuildFailed, match="nowhere"):
        built("wrong", source)
    assert [path for path in cache.rglob("*") if path.is_file()] == []
