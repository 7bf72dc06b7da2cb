"""Errors of streams and sources: they stand in the one tree, and each has a code of its own."""

from deathless.base.errors import (
    ConnectorBusy,
    ConnectorContended,
    ConnectorSilent,
    ConnectorStreamsFull,
    InputNotKept,
    InputRefused,
    InputUnreadable,
    Invalid,
    RetryLater,
    SourceGap,
    SourceKeyChanged,
    SourceLogCut,
    SourceRecordsGone,
    SourceTopicReplaced,
    SourceUnavailable,
    StreamFenced,
    StreamNotForgotten,
    StreamNotStopped,
)

ALL = (
    InputNotKept,
    StreamNotForgotten,
    StreamFenced,
    InputRefused,
    StreamNotStopped,
    SourceGap,
    InputUnreadable,
    SourceKeyChanged,
)


def test_errors_of_streams_say_that_somebody_must_change_something() -> None:
    assert all(issubclass(each, Invalid) for each in ALL)
    assert [each.code for each in ALL] == [
        "DL3076",
        "DL3077",
        "DL3080",
        "DL3081",
        "DL3082",
        "DL3083",
        "DL3084",
        "DL3085",
    ]
    assert all(each.remedy for each in ALL)


def test_gaps_of_brokers_are_gaps_of_sources() -> None:
    gaps = (SourceRecordsGone, SourceTopicReplaced, SourceLogCut)
    assert all(issubclass(each, SourceGap) for each in gaps)
    assert [each.code for each in gaps] == ["DL3087", "DL3088", "DL3089"]


def test_clients_of_gates_are_told_what_to_change() -> None:
    all_of_gates = (ConnectorStreamsFull, ConnectorBusy, ConnectorSilent, ConnectorContended)
    assert all(issubclass(each, Invalid) and each.remedy for each in all_of_gates)
    assert [each.code for each in all_of_gates] == ["DL3090", "DL3091", "DL3092", "DL3093"]


def test_an_outage_of_a_source_passes() -> None:
    assert issubclass(SourceUnavailable, RetryLater)
    assert SourceUnavailable.code == "DL1026"
