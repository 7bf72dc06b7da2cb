"""Errors of streams: they stand in the one tree, and each has a code of its own."""

from deathless.base.errors import InputRefused, Invalid, StreamFenced, StreamNotStopped

ALL = (StreamFenced, InputRefused, StreamNotStopped)


def test_errors_of_streams_say_that_somebody_must_change_something() -> None:
    assert all(issubclass(each, Invalid) for each in ALL)
    assert [each.code for each in ALL] == ["DL3080", "DL3081", "DL3082"]
    assert all(each.remedy for each in ALL)
