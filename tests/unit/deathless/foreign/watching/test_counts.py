"""What is counted of a program goes on over its processes."""

from deathless.foreign.rows import CALLERS
from deathless.foreign.watching.counts import STOPPED, Counts
from deathless.protocols.ambrosia.items import OTHERS
from deathless.protocols.ambrosia.messages import SELF, Kind, make_call, make_return


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


def test_what_shares_a_lane_is_told_apart_by_where_it_goes() -> None:
    """The lane itself has no name that a service could have."""
    counts = Counts()
    counts.emitted(OTHERS, make_call("bank", 1, Kind.FORK, b""))
    assert counts.unnamed == 0
    counts.emitted(OTHERS, make_call("no service", 1, Kind.FORK, b""))
    assert counts.unnamed == 1


def test_last_message_that_was_too_long_is_named() -> None:
    counts = Counts()
    counts.refuse("bank", "it has 9 bytes")
    counts.refuse("", "it has 10 bytes")
    assert (counts.too_long, counts.refusal) == (2, "to itself: it has 10 bytes")
