"""Every fault of the town, at every place of its story.

`places(fault)` tells the story once for each step at which the fault may come: so many steps pass, the fault comes, and
from then on nothing breaks. Nobody in the story knows that (AOD/EOD, "Safety and Liveness").
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache

from tests.spec.customer import Calls
from tests.spec.story import Story, tell
from tests.spec.town import TEXTS, Action, House, NeverEnds, Town

from deathless.base.safeguards import ALL_SAFEGUARDS, Safeguards

Fault = Callable[[Town], None]
UNANSWERED = "an answer that the log gives never comes"


def _until_both_lead() -> int:
    town = Town()
    while not all(house.now.leads for house in town.houses.values()):
        town.step()
    return town.steps


LED = _until_both_lead()  # what comes before is of the tests of takeovers


def kill(town: Town, house: House) -> None:
    """kill -9 of the process; another takes over from the log."""
    town.kill(house.now)


def lose_power(town: Town, house: House) -> None:
    """Of what was not synced chance decides."""
    for process in house.alive():
        town.kill(process)
    house.disk.cut_power()


def depose(town: Town, house: House) -> None:
    """Another takes over; the one before lives on, goes on with what it was doing, and does not know."""
    house.start()


def freeze(town: Town, house: House) -> None:
    """As `depose`, but it stands still in the middle; what it sent arrives when everything is over."""
    town.frozen.add(house.now)
    house.start()


def overtake(town: Town, house: House) -> None:
    """As `freeze`, but it goes on at once when the other leads, and all that is under way arrives, twice."""
    old = house.now
    freeze(town, house)
    while not house.now.leads:
        town.step()
    town.thaw()
    for action in [action for action in town.actions if action.link is not None and action.process is old]:
        town.actions.insert(town.actions.index(action), action)


def _packets(town: Town) -> list[Action]:
    return [action for action in town.actions if action.link is not None]


def break_connections(town: Town) -> None:
    """All of them, and what was under way is lost."""
    for action in _packets(town):
        town.actions.remove(action)
    leave_connections(town)


def leave_connections(town: Town) -> None:
    """The senders' ends of all of them; what was under way arrives, beside what the next connection brings."""
    for house in town.houses.values():
        for process in house.alive():
            for link in [link for link in process.wanted.values() if link is not None]:
                town.sender_hangs_up(link)


def lose_packet(town: Town) -> None:
    """The next one between the services, whatever it is."""
    for action in _packets(town)[:1]:
        town.actions.remove(action)


def double_packet(town: Town) -> None:
    """The next one arrives twice."""
    for action in _packets(town)[:1]:
        town.actions.insert(town.actions.index(action), action)


def delay_packet(town: Town) -> None:
    """The next one comes behind all that is under way, and what comes of that."""
    for action in _packets(town)[:1]:
        town.actions.remove(action)
        town.late.append(action)


def _of(fault: Callable[[Town, House], None], name: str) -> Fault:
    return lambda town: fault(town, town.houses[name])


FAULTS: dict[str, Fault] = {
    **{
        f"{fault.__name__} {name}": _of(fault, name)
        for fault in (kill, lose_power, depose, freeze, overtake)
        for name in ("shop", "bank")
    },
    **{
        fault.__name__: fault
        for fault in (break_connections, leave_connections, lose_packet, double_packet, delay_packet)
    },
}


def told(fault: Fault, at: int, safeguards: Safeguards = ALL_SAFEGUARDS, calls: Calls = TEXTS) -> Story:
    """The story with a fault behind so many steps."""
    made = Town(calls, safeguards=safeguards).run(at)
    fault(made)
    return ended(made)


def ended(town: Town) -> Story:
    """Let it come to its end; who was frozen goes on only then."""
    town.run()
    town.thaw()
    while town.actions or not town.settled:
        town.step()
    return tell(town)


def shows(safeguard: str, name: str, at: int, violation: str) -> None:
    """A fault at its recorded place shows what a safeguard is for, by this violation, and is harmless with it on.

    Where it no longer does the program has changed: the place that does is named, for it to be recorded.
    """
    found = wrong_without(safeguard, name, at)
    if violation in found:
        assert told(FAULTS[name], at).wrong() == []
        return
    others = (place for place in range(LED, steps_in_all()) if violation in wrong_without(safeguard, name, place))
    raise AssertionError(
        f"without {safeguard} `{name}` at {at} gives {found}, not {violation!r}; record {next(others, 'another fault')}"
    )


def wrong_without(safeguard: str, name: str, at: int) -> list[str]:
    """What is wrong without a safeguard, by name; of a story that does not end that, and what is wrong up to then."""
    # The comparison of histories stands behind others, and would stop what they let pass; so it is off as well.
    town = Town(safeguards=replace(ALL_SAFEGUARDS, **{safeguard: False}, peer_history=False))
    try:
        town.run(at)
        FAULTS[name](town)
        return ended(town).wrong()
    except NeverEnds:
        story = tell(town)
        return [*story.wrong_so_far(), *([UNANSWERED] if story.unanswered() else [])]


@cache
def cut_short(name: str, service: str) -> list[Story]:
    """The story for each call that changes its disk, in the middle of which the first process of a service ends."""
    fault = {"kill": kill, "lose_power": lose_power}[name]
    first = Town().houses[service].now.calls
    return [told_in_a_call(fault, service, at) for at in range(first, calls_in_all(service))]


def told_in_a_call(
    fault: Callable[[Town, House], None], name: str, at: int, safeguards: Safeguards = ALL_SAFEGUARDS
) -> Story:
    """The story with a fault before this of the calls by which the first process of a service changes its disk."""
    made = Town(safeguards=safeguards)
    house = made.houses[name]
    house.now.dies_at = at
    house.now.dies = lambda: fault(made, house)
    made.run()
    return tell(made)


def calls_in_all(name: str) -> int:
    """How many such calls there are in the story in which nothing breaks."""
    return Town().run().houses[name].now.calls


@cache
def steps_in_all() -> int:
    """Steps of the story in which nothing breaks."""
    return Town().run().steps


@cache
def places(name: str) -> list[Story]:
    """The story for each place at which the fault of this name may come."""
    return [told(FAULTS[name], at) for at in range(LED, steps_in_all())]
