"""A kind of driver that is registered is accepted by manifest and CRD, and its sinks are made; nothing else changes."""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
from pathlib import Path

import msgspec
import pytest

from deathless.base.config import DriverConfig
from deathless.base.driver_kinds import DRIVER_KINDS, DriverKind, register
from deathless.base.errors import InvalidConfig
from deathless.base.manifest_parts import Driver
from deathless.drivers.host import factory_of, make_sink
from deathless.drivers.port import KeyedSink

ROOT = Path(__file__).resolve().parents[4]
MANIFEST = """\
apiVersion: deathless.dev/v1alpha1
kind: DeathlessService
metadata: {name: bank}
spec:
  module: bank:service
  drivers: [{name: box, kind: toy, options: {epoch: 7}}]
"""
USE = """\
import json, sys, tests.samples.toy_driver
from deathless.base.manifest import driver_configs
from deathless.drivers.host import make_sink
from deathless.shell.operate.manifest_file import read_manifest
from deathless_operator.model.crd import DEFINITIONS, make_crd

spec = read_manifest(sys.argv[1]).manifest.spec
sink = make_sink(driver_configs(spec, ".")[0])
crd = [json.dumps(make_crd(each)) for each in DEFINITIONS if each.kind == "DeathlessService"]
print(json.dumps({"sink": type(sink).__name__, "epoch": sink.memory.epoch, "crd": crd[0]}))
"""
OPTIONS: dict[str, dict[str, object]] = {
    "files": {"path": "lines"},
    "postgresql": {"dsn": "host=nowhere", "statements": {"enter": "SELECT 1"}},
    "webhook": {"url": "https://example.org"},
    "topic": {"directory": "topics/departures"},
}


def test_a_manifest_names_a_driver_that_was_only_registered_and_its_sink_is_made(tmp_path: Path) -> None:
    (tmp_path / "service.yaml").write_text(MANIFEST)
    command = [sys.executable, "-c", USE, str(tmp_path / "service.yaml")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert (told["sink"], told["epoch"]) == ("MemorySink", 7)
    assert "^(files|postgresql|webhook|toy|" in told["crd"]
    assert "What it writes to: files, postgresql, webhook, toy, or a factory of sinks of your own." in told["crd"]


def test_each_kind_is_accepted_has_its_extra_and_delivers_as_it_says(tmp_path: Path) -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert [*DRIVER_KINDS] == [*OPTIONS]
    for name, kind in DRIVER_KINDS.items():
        assert not kind.extra or kind.extra in extras
        if not kind.for_topics:
            assert msgspec.convert({"name": "d", "kind": name}, Driver).kind == name
        sink = make_sink(DriverConfig(name="d", kind=name, options=OPTIONS[name], folder=str(tmp_path)))
        assert isinstance(sink, KeyedSink) is kind.by_message


def test_a_kind_that_was_not_registered_is_refused_with_those_there_are() -> None:
    with pytest.raises(msgspec.ValidationError, match=r"files\|postgresql\|webhook"):
        msgspec.convert({"name": "d", "kind": "toy"}, Driver)


def test_a_kind_that_is_made_of_topics_is_none_that_a_manifest_names() -> None:
    assert [name for name, kind in DRIVER_KINDS.items() if kind.for_topics] == ["topic"]
    with pytest.raises(msgspec.ValidationError, match=r"files\|postgresql\|webhook\|\["):
        msgspec.convert({"name": "d", "kind": "topic"}, Driver)


@pytest.mark.parametrize(("extra", "remedy"), [("toy", "pip install deathless[toy]"), ("", "")])
def test_what_is_to_be_installed_is_told_where_the_module_can_not_be_imported(
    extra: str, remedy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(DRIVER_KINDS, "toy", DriverKind(name="toy", factory="no_such_module:sink", extra=extra))
    with pytest.raises(InvalidConfig, match="driver d: kind toy: No module named 'no_such_module'") as caught:
        factory_of(DriverConfig(name="d", kind="toy"))
    assert caught.value.advice == remedy


def test_names_are_given_once_and_are_no_factories() -> None:
    with pytest.raises(AssertionError, match="files"):
        register(DRIVER_KINDS["files"])
    with pytest.raises(AssertionError, match="colon"):
        register(DriverKind(name="m:f", factory="m:f"))
    assert [*DRIVER_KINDS] == [*OPTIONS]
