"""Functions of authors, named."""

from typing import cast

from deathless.execution.values.function import Function, place


def test_place_names_function_file_and_line() -> None:
    name, _, where = place(cast("Function", test_place_names_function_file_and_line)).partition(" ")
    assert name == "test_place_names_function_file_and_line"
    assert where.endswith(f"{__file__.rpartition('/')[2]}:8)")


def test_place_of_what_has_no_code_is_its_name() -> None:
    assert place(cast("Function", print)) == "print"
    assert place(3) == "<class 'int'>"  # type: ignore[arg-type]  # what an author may give
