"""What is counted of a program goes on over its processes."""

from deathless.foreign.rows import CALLERS
from deathless.foreign.watching.counts import STOPPED, Counts
from deathless.protocols.ambrosia.messages import SELF, Kind, Oversized, make_call, make_return


def test_ends_are_counted_by_their_reason() -> None:
    counts = Counts()
    for reason, lost in ((STOPPED, 0), ("DL3101", 2), ("DL3101", 1)):
        counts.ended(reason, lost)
    assert dict(counts.ends) == {STOPPED: 1, "DL3101": 2}
    assert counts.impulses_lost == 3


def test_call_to_what_can_not_be_a_service_is_counted() -> None:
    """A return, a call to itself, and a name that stands for a service are none."""
    counts = Counts()
    for target in ("bank", "bank/alice", "PTIServer", SELF):
        counts.emitted(target, make_call(target, 1, Kind.FORK, b""))
    counts.emitted(CALLERS, make_return(CALLERS, Kind.VALUE, b"", name="", sequence=1))
    assert counts.unnamed == 0
    for target in ("no service", "-", "inner_line/key"):
        counts.emitted(target, make_call(target, 1, Kind.FORK, b""))
    assert counts.unnamed == 3
    counts.emitted("No!", make_call("No!", 1, Kind.FORK, b""), 5)
    assert counts.unnamed == 8


def test_refused_messages_are_told_apart() -> None:
    counts = Counts()
    long = Oversized(destination="bank", kind=Kind.FORK, method=1, name="", sequence=0, size=9)
    counts.refuse("bank", long, "it is too long")
    counts.refuse("", make_call(SELF, 1, Kind.FORK, b""), "there are too many")
    assert dict(counts.refused) == {"too_long": 1, "too_many_targets": 1}
    assert counts.refusal == "to itself: there are too many"
