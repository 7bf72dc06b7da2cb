"""Every mistake at once, with path, value and what to write instead."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Meta

from deathless.base.manifest import Manifest
from deathless.base.schema_check import expected, find_problems, kind_of, show_path


class Inner(msgspec.Struct, forbid_unknown_fields=True, rename="camel"):
    """A part."""

    port: Annotated[int, Meta(ge=0, le=9)]
    log_level: Literal["info", "debug"] = "info"


class Outer(msgspec.Struct, forbid_unknown_fields=True, rename="camel"):
    """The whole."""

    name: Annotated[str, Meta(pattern="^[a-z]+$", description="lower-case letters")]
    inner: Inner | None = None
    words: tuple[str, ...] = ()
    labels: dict[str, str] = {}
    share: Annotated[float, Meta(gt=0)] = 1.0
    free: dict[str, object] = {}
    on: bool = False


GOOD = {"name": "abc", "inner": {"port": 3}, "words": ["a"], "labels": {"a": "b"}, "share": 2, "free": {"x": [1, {}]}}


def told(value: object) -> list[tuple[str, str, str]]:
    """Path, what, remedy of each problem."""
    return [(show_path(each.path), each.what, each.remedy) for each in find_problems(value, Outer)]


def test_value_that_fits_has_no_problem() -> None:
    assert told(GOOD) == []
    assert told({"name": "abc", "inner": None}) == []


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"name": "A"}, ("name", "is the text 'A'", "write lower-case letters")),
        ({"inner": {"port": 10}}, ("inner.port", "is the number 10", "write a whole number from 0 to 9")),
        ({"inner": {"port": "3"}}, ("inner.port", "is the text '3'", "write a whole number from 0 to 9")),
        ({"inner": {}}, ("inner", "port is missing", "add port: a whole number from 0 to 9")),
        ({"inner": 4}, ("inner", "is the number 4", "write a mapping")),
        ({"inner": {"port": 1, "logLevel": "x"}}, ("inner.logLevel", "is the text 'x'", "write one of debug, info")),
        (
            {"inner": {"port": 1, "log_level": "info"}},
            ("inner.log_level", "is no field here", "did you mean logLevel?"),
        ),
        ({"words": ["a", 1]}, ("words[1]", "is the number 1", "write a text")),
        ({"words": "a"}, ("words", "is the text 'a'", "write a list")),
        ({"labels": {"a": True}}, ("labels.a", "is true", "write a text")),
        ({"labels": []}, ("labels", "is a list", "write a mapping")),
        ({"share": 0}, ("share", "is the number 0", "write a number above 0")),
        ({"on": "yes"}, ("on", "is the text 'yes'", "write true or false")),
        ({"on": None}, ("on", "is empty", "write true or false")),
    ],
)
def test_mistake_is_named_with_its_remedy(change: dict[str, object], problem: tuple[str, str, str]) -> None:
    assert told({**GOOD, **change}) == [problem]


def test_all_mistakes_are_found_at_once() -> None:
    assert [path for path, _, _ in told({"inner": {"port": -1, "x": 1}, "words": [1, 2], "zzz": 1})] == [
        "inner.port",
        "inner.x",
        "words[0]",
        "words[1]",
        "zzz",
        "",
    ]


def test_unknown_field_that_is_like_none_gets_the_known_ones() -> None:
    (problem,) = find_problems({**GOOD, "qqqqqq": 1}, Outer)
    assert problem.remedy == "take it out; known here: name, inner, words, labels, share, free, on"


def test_document_that_is_no_mapping_is_refused() -> None:
    assert told([1]) == [("", "is a list", "write a mapping")]


def test_long_text_is_not_repeated() -> None:
    assert kind_of("x" * 100) == "a text of 100 characters"


def test_expected_words_of_a_number_with_one_bound_and_of_one_choice() -> None:
    assert expected(Annotated[int, Meta(ge=2)]) == "a whole number of at least 2"
    assert expected(Annotated[int, Meta(ge=1, le=1)]) == "1"
    assert expected(Literal["a"]) == "a"
    assert expected(int | None) == "a whole number"


PLAIN = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-5, 100_000)
    | st.floats(allow_nan=False)
    | st.sampled_from(["a", "bank", "m:a", ""]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from([*Outer.__struct_encode_fields__, "port", "logLevel", "x"]), inner, max_size=5
        )
    ),
    max_leaves=12,
)


@given(PLAIN)
def test_no_problem_means_that_the_decoder_takes_it(value: object) -> None:
    try:
        msgspec.convert(value, Outer)
    except msgspec.ValidationError:
        assert find_problems(value, Outer)
    else:
        assert not find_problems(value, Outer)


@given(st.dictionaries(st.sampled_from(["apiVersion", "kind", "metadata", "spec"]), PLAIN))
def test_no_manifest_breaks_the_checker(value: dict[str, object]) -> None:
    assert find_problems(value, Manifest)
