"""Two codes are told apart part by part, without the code itself (I6)."""

from __future__ import annotations

from pathlib import Path

from deathless.shell.service_code.description import differences, fingerprint_of, processor_features


def test_differences_name_what_is_new_gone_and_changed() -> None:
    assert differences({"a": "1", "b": "1", "c": "1"}, {"a": "1", "b": "2", "d": "1"}) == [
        "b 1 -> 2",
        "c 1 -> none",
        "d none -> 1",
    ]
    before = {"interpreter": "cpython 3.11.7", "library msgspec": "0.19.0", "source a.b": "1", "source c": "1"}
    after = {"interpreter": "cpython 3.11.9", "library msgspec": "0.20.0", "source a.b": "2", "source d": "1"}
    assert differences(before, after, {"a.b": Path("a/b/__init__.py")}) == [
        "a.b changed (file a/b/__init__.py)",
        "c is gone (file c.py)",
        "d is new (file d.py)",
        "interpreter 3.11.7 -> 3.11.9",
        "library msgspec 0.19.0 -> 0.20.0",
    ]
    assert differences({"interpreter": "cpython 3.11.7"}, {"interpreter": "pypy 3.11.7"}) == [
        "interpreter cpython 3.11.7 -> pypy 3.11.7"
    ]
    assert differences({"processor": "aa"}, {"processor": "bb"})[0].startswith("processor with other features")
    assert fingerprint_of({"a": "1"}) != fingerprint_of({"a": "2"}) != fingerprint_of({"b": "2"})


def test_features_of_a_processor_are_given_in_one_order(tmp_path: Path) -> None:
    told = tmp_path / "cpuinfo"
    told.write_text("model\t: x\nflags\t\t: sse2 avx\n")
    assert processor_features(str(told)) == ["avx", "sse2"]
    assert processor_features(str(tmp_path / "none")) is None
