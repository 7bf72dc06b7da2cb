"""Code is described by a process of its own, whatever that code does at its import."""

from __future__ import annotations

import os
import py_compile
from pathlib import Path
from py_compile import PycInvalidationMode

import pytest

from deathless.base.config import ReplicaConfig
from deathless.base.errors import CodeEndedProcess, InvalidConfig, InvalidService, TopicNotKept
from deathless.base.limits import Limits
from deathless.base.topics.settings import Topic, topic_configs
from deathless.shell.service_code.code_process import describe_code_of
from deathless.shell.service_code.fingerprint import describe
from deathless.shell.service_code.loading import load_service

TEXT = """
import sys
from deathless import Context, Service, Struct
class Purse(Struct):
    total: int = 0
purse = Service("purse", state=Purse)
print("nobody reads this")
"""


def config(folder: Path, text: str, **more: object) -> ReplicaConfig:
    path = folder / "described_purse.py"
    path.write_text(text)
    fields = {"service": "purse", "module": f"{path}:purse", "directory": str(folder), "replica": "r0", **more}
    return ReplicaConfig(**fields)  # type: ignore[arg-type]  # fields of several types


def test_it_gives_what_this_process_would_find(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    wanted = config(tmp_path, TEXT)
    found = describe_code_of(wanted, dict(os.environ))
    ours = describe(load_service(wanted.module), Limits())
    assert (found.fingerprint, found.spellings) == (ours.fingerprint, ours.spellings)
    assert found.files == {name: Path(path) for name, path in ours.files.items()}


def test_what_loading_raises_comes_back_with_its_advice(tmp_path: Path) -> None:
    with pytest.raises(InvalidService, match="described_purse"):
        describe_code_of(config(tmp_path, "raise ValueError('broken')\n"), dict(os.environ))
    with pytest.raises(InvalidConfig) as caught:
        describe_code_of(config(tmp_path, TEXT, limits={"nothing": 1}), dict(os.environ))
    assert (caught.value.message, caught.value.advice) == ("limits.nothing is not known", InvalidConfig.remedy)


def test_code_with_a_topic_is_described_where_the_config_has_it(tmp_path: Path) -> None:
    text = f"{TEXT}purse.topic('sales', Purse)\n"
    kept = topic_configs((Topic(name="sales"),), str(tmp_path))
    assert describe_code_of(config(tmp_path, text, drivers=kept), dict(os.environ)).fingerprint
    with pytest.raises(TopicNotKept, match=r"add `topics: \[\{name: sales\}\]` to its spec"):
        describe_code_of(config(tmp_path, text), dict(os.environ))


@pytest.mark.parametrize("status", [0, 7])
def test_a_process_that_says_nothing_has_described_nothing(tmp_path: Path, status: int) -> None:
    with pytest.raises(CodeEndedProcess, match=f"ended with status {status}, and said nothing"):
        describe_code_of(config(tmp_path, f"import os\nos._exit({status})\n"), dict(os.environ))


@pytest.mark.parametrize("mode", [PycInvalidationMode.TIMESTAMP, PycInvalidationMode.UNCHECKED_HASH])
def test_a_process_runs_what_was_edited_within_the_second(tmp_path: Path, mode: PycInvalidationMode) -> None:
    first = config(tmp_path, "import os\nos._exit(0)\n")
    path = first.module.rpartition(":")[0]
    py_compile.compile(path, invalidation_mode=mode)
    before = os.stat(path)
    edited = config(tmp_path, "import os\nos._exit(7)\n")
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    with pytest.raises(CodeEndedProcess, match="ended with status 7"):
        describe_code_of(edited, dict(os.environ))
