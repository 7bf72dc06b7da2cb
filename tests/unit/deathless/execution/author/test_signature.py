"""Types that cross a handler's boundary."""

from deathless.execution.author.signature import place


def test_place_of_what_is_no_function_is_its_name() -> None:
    assert place(len) == "len"  # type: ignore[arg-type]  # a builtin's own type
