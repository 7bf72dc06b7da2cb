"""The service that the rows of the tests go to: it counts each flight, so that what is doubled is seen."""

from deathless import CallRefused, Context, Service, Struct, field


class Carrier(Struct):
    """What it was told, by flight: how often."""

    late: dict[str, int] = field(default_factory=dict)
    seen: dict[str, int] = field(default_factory=dict)
    counts: list[int] = field(default_factory=list)


carriers = Service("carriers", state=Carrier)


@carriers.handler
def late(carrier: Carrier, ctx: Context, flight: str, minutes: int) -> None:
    """Count a late flight."""
    assert minutes > 15
    carrier.late[flight] = carrier.late.get(flight, 0) + 1


@carriers.handler
def seen(carrier: Carrier, ctx: Context, flight: str) -> None:
    """Count a flight."""
    if flight.endswith("13"):
        raise CallRefused("no flight has that number")
    carrier.seen[flight] = carrier.seen.get(flight, 0) + 1


@carriers.handler
def counted(carrier: Carrier, ctx: Context, flights: int) -> None:
    """Take in how many flights there were so far."""
    carrier.counts.append(flights)


@carriers.query
def told(carrier: Carrier) -> Carrier:
    """Give all of it."""
    return carrier
