"""The fingerprint changes when anything does that a handler's result may depend on, and names it (I6)."""

import hashlib
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import fields, replace
from importlib import metadata
from pathlib import Path

import pytest

from deathless.base.limits import REPLICATED, Limits
from deathless.base.shards import Sharding
from deathless.execution.author.service import Service
from deathless.shell.service_code import fingerprint as module
from deathless.shell.service_code.description import differences, fingerprint_of
from deathless.shell.service_code.fingerprint import describe, describe_code, fingerprint
from deathless.shell.service_code.loading import load_service
from deathless.shell.service_code.sources import code_of

TEXT = """
from deathless import Context, Service, Struct
class Cart(Struct):
    total: int = 0
cart = Service("cart", state=Cart)
@cart.handler
def add(state: Cart, ctx: Context, amount: int) -> None:
    state.total += amount
"""
SCHEDULED = """
@cart.schedule("0 9 * * *", key="k", zone="UTC")
def tick(state: Cart, ctx: Context) -> None: ...
"""
IN_ANOTHER_PROCESS = """
import sys, json, email, http.client
from deathless.base.limits import Limits
from deathless.shell.service_code.loading import fingerprint, load_service
print(fingerprint(load_service(sys.argv[1]), Limits()).hex())
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "cart_of_fingerprint.py"
    path.write_text(TEXT)
    return path


@pytest.fixture
def service(path: Path) -> Iterator[Service]:
    before = list(sys.path)
    yield load_service(str(path))
    sys.path[:] = before
    del sys.modules["cart_of_fingerprint"]


def test_fingerprint_is_the_same_in_another_process(path: Path, service: Service) -> None:
    command = [sys.executable, "-c", IN_ANOTHER_PROCESS, str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env={"PYTHONPATH": ":".join(sys.path)})
    assert done.stdout.strip() == fingerprint(service, Limits()).hex()
    assert len(fingerprint(service, Limits())) == 16


def test_parts_are_named(service: Service) -> None:
    parts = describe_code(service)
    assert {"source cart_of_fingerprint", "library msgspec", "interpreter", "machine", "description"} <= set(parts)
    assert parts["library msgspec"] == metadata.version("msgspec")
    assert {"processor", "time zones"}.isdisjoint(parts)
    assert fingerprint_of(describe(service, Limits()).parts) == fingerprint(service, Limits())


def test_way_of_older_releases_is_told_as_well_and_means_the_same_code(path: Path, service: Service) -> None:
    before = describe(service, Limits())
    assert before.former["source cart_of_fingerprint"] == hashlib.blake2b(path.read_bytes(), digest_size=16).hexdigest()
    assert {"time zones", "limit key_bytes_max"} < set(before.former)
    assert "description" not in before.former
    assert before.spellings == {fingerprint_of(before.parts), fingerprint_of(before.former)}
    path.write_text(TEXT + "# a comment\n")
    after = describe(service, Limits())
    assert (after.fingerprint, fingerprint_of(after.former) == fingerprint_of(before.former)) == (
        before.fingerprint,
        False,
    )
    former = {"interpreter": "cpython 3.11.7", "source bank": "ab", "limit key_bytes_max": "1024"}
    assert fingerprint_of(former).hex() == "225d525c187ac5120028bae968f13b33", "as releases before this one made it"


ACCEPTS = """
class AddV1(Struct):
    units: int
@cart.accepts("add", from_=1, args=AddV1)
def add_v1(old: AddV1) -> dict[str, int]:
    return {"amount": 100 * old.units}
"""


def test_code_that_takes_older_arguments_is_other_code_than_for_builds_that_refuse_them(
    tmp_path: Path, service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They would run the log otherwise, so they are to refuse it."""
    monkeypatch.syspath_prepend(tmp_path)
    other = tmp_path / "cart_that_accepts.py"
    other.write_text(TEXT.replace("state=Cart)", "state=Cart, version=2)") + ACCEPTS)
    plain, described = describe(service, Limits()), describe(load_service(str(other)), Limits())
    assert (plain.parts["executor"], described.parts["executor"], described.former["executor"]) == ("4", "4.1", "4.1")


@pytest.mark.parametrize(
    ("added", "counts"),
    [
        ("", False),
        (SCHEDULED, False),
        (SCHEDULED.replace("UTC", "Etc/UTC"), False),
        (SCHEDULED.replace("UTC", "Europe/Berlin"), True),
        ("def local() -> None:\n    import zoneinfo\n", True),
        ("def local() -> None:\n    from zoneinfo import ZoneInfo\n", True),
        ('RULES = "dateutil.tz"\n', True),
        ('def local() -> None:\n    "zoneinfo is not used"\n', False),
    ],
)
def test_time_zone_data_counts_where_zones_may_be_used(path: Path, service: Service, added: str, counts: bool) -> None:
    path.write_text(TEXT + added)
    del sys.modules["cart_of_fingerprint"]
    assert ("time zones" in describe_code(load_service(str(path)))) == counts


def test_time_zone_data_counts_where_a_library_asks_for_it(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    path = code_of(service).files["cart_of_fingerprint"]
    path.write_text(TEXT + "def local() -> None:\n    import some_frame\n")
    (path.parent / "some_frame-1.0.dist-info").mkdir()
    record = "Metadata-Version: 2.1\nName: some-frame\nVersion: 1.0\nRequires-Dist: python-dateutil>=2\n"
    (path.parent / "some_frame-1.0.dist-info" / "METADATA").write_text(record)
    (path.parent / "some_frame-1.0.dist-info" / "top_level.txt").write_text("some_frame\n")
    monkeypatch.syspath_prepend(str(path.parent))
    assert "time zones" in describe_code(service)


def test_changed_source_changes_it_and_is_named(path: Path, service: Service) -> None:
    before, parts = fingerprint(service, Limits()), describe_code(service)
    path.write_text(TEXT.replace("+= amount", "-= amount"))
    assert fingerprint(service, Limits()) != before
    (said,) = differences(parts, describe_code(service))
    assert said == "cart_of_fingerprint changed (file cart_of_fingerprint.py)"


@pytest.mark.parametrize("name", [field.name for field in fields(Limits)])
def test_i6_limits_that_decide_the_state_are_part_of_it_and_no_others(name: str, service: Service) -> None:
    changed = replace(Limits(), **{name: getattr(Limits(), name) + 1})
    differs = fingerprint(service, changed) != fingerprint(service, Limits())
    assert differs == (name in REPLICATED)
    if differs:
        (said,) = differences(describe(service, Limits()).parts, describe(service, changed).parts)
        assert said == f"limit {name} {getattr(Limits(), name)} -> {getattr(changed, name)}"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ([], ""),
        (["-O"], "optimize 1"),
        (["-X", "int_max_str_digits=10000"], "int_max_str_digits 5700"),
        (["-W", "error::UserWarning"], "warnings as errors error::UserWarning"),
        (["-W", "ignore"], ""),
    ],
)
def test_flags_that_change_what_handlers_do_are_part_of_it(options: list[str], said: str) -> None:
    asked = "from deathless.shell.service_code.fingerprint import _flags; print(_flags(), end='')"
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    done = subprocess.run(
        [sys.executable, *options, "-c", asked], env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout == said


def test_processor_counts_where_numpy_does(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    code = code_of(service)
    code.versions["numpy"] = "9.9"
    monkeypatch.setattr(module, "code_of", lambda _: code)
    assert "processor" in describe_code(service)


def test_processor_is_known_by_its_features_in_any_order(tmp_path: Path) -> None:
    first, second, other = (tmp_path / name for name in "abc")
    first.write_text("model\t: x\nflags\t\t: avx sse2\n")
    second.write_text("flags\t\t: sse2 avx\n")
    other.write_text("flags\t\t: sse2 avx512\n")
    assert module._processor(str(first)) == module._processor(str(second)) != module._processor(str(other))
    assert module._processor(str(tmp_path / "none"))


def test_time_zone_data_is_known_by_its_content_or_version(tmp_path: Path) -> None:
    source, version, none = (tmp_path / name for name in ("source", "version", "none"))
    for folder in (source, version, none):
        folder.mkdir()
    (source / "tzdata.zi").write_text("# version 2026b\n")
    (version / "+VERSION").write_text("2026b\n")
    assert module._time_zones((str(none), str(source))).startswith("system ")
    assert module._time_zones((str(version),)) == "system 2026b"
    assert module._time_zones((str(none),)).startswith(("package ", "none"))


def test_time_zone_package_counts_where_the_system_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metadata, "version", lambda _: "2026.2")
    assert module._time_zones(()) == "package 2026.2"


def test_numbers_of_shards_above_one_are_part_of_it(service: Service) -> None:
    one = describe(service, Limits())
    assert describe(service, Limits(), Sharding(peers={"mail": 1})) == one
    several = describe(service, Limits(), Sharding(shard=1, shards=2, peers={"stock": 3}))
    assert differences(one.parts, several.parts) == ["shards none -> 2", "shards of stock none -> 3"]
    first, second = (fingerprint(service, Limits(), Sharding(shard=shard, shards=2)) for shard in (0, 1))
    assert first == second != fingerprint(service, Limits())
