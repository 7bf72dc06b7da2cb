"""Names of events; what is told and how often stands in tests/apiserver/test_telling.py, on a real API server."""

from __future__ import annotations

from deathless_operator.cluster.events import Subject, event_name, moment
from deathless_operator.cluster.kinds import SERVICE
from deathless_operator.plan.actions import Event

BANK = Subject(kind=SERVICE, namespace="shop", name="bank", uid="u1")
SAID = Event(type="Normal", reason="TookOver", message="bank-1 leads")


def test_same_words_about_the_same_object_have_the_same_name() -> None:
    assert event_name(BANK, SAID) == event_name(BANK, Event(type="Normal", reason="TookOver", message="bank-1 leads"))


def test_other_words_or_another_object_by_that_name_have_another() -> None:
    others = [
        event_name(BANK, Event(type="Warning", reason="TookOver", message="bank-1 leads")),
        event_name(BANK, Event(type="Normal", reason="TookOver", message="bank-2 leads")),
        event_name(Subject(kind=SERVICE, namespace="shop", name="bank", uid="u2"), SAID),
    ]
    assert len({event_name(BANK, SAID), *others}) == 4


def test_name_fits_an_objects_name() -> None:
    long = Subject(kind=SERVICE, namespace="shop", name="b" * 253, uid="u1")
    assert len(event_name(long, SAID)) <= 253 and event_name(BANK, SAID).startswith("bank.")


def test_moment_has_microseconds_as_the_api_wants_them() -> None:
    assert moment(1_800_000_000.25) == "2027-01-15T08:00:00.250000Z"
