"""Two services with a pipeline between them: one publishes rows, the other notes when the row's call runs."""

from __future__ import annotations

from deathless import Context, Map, Service, Struct, field


class Clock(Struct):
    """State of one key of the source."""

    ticks: int = 0


class Tick(Struct):
    """A row."""

    number: int


class Arrivals(Struct):
    """State of one key of the receiver."""

    count: int = 0
    rows: Map[int, tuple[int, int]] = field(default_factory=Map)  # number -> (published, called), microseconds


source = Service("source", state=Clock)
ticks = source.topic("ticks", Tick)


@source.handler
def tick(clock: Clock, ctx: Context, number: int) -> None:
    """Publish a row."""
    clock.ticks += 1
    ctx.emit(ticks, Tick(number))


receiver = Service("receiver", state=Arrivals)


@receiver.handler
def arrive(arrivals: Arrivals, ctx: Context, number: int, published_us: int) -> None:
    """Note a row that is timed."""
    arrivals.count += 1
    arrivals.rows[number] = (published_us, ctx.now_us)


@receiver.handler
def count(arrivals: Arrivals, ctx: Context, number: int) -> None:
    """Count a row of many."""
    arrivals.count += 1


@receiver.query
def times(arrivals: Arrivals, above: int) -> list[tuple[int, int, int]]:
    """Give (number, published, called) of timed rows above a number, 1,000 at most."""
    found: list[tuple[int, int, int]] = []
    for number in arrivals.rows.keys_above(above):
        if len(found) == 1_000:
            break
        found.append((number, *arrivals.rows[number]))
    return found


@receiver.query
def counted(arrivals: Arrivals) -> int:
    """Give how many calls there were."""
    return arrivals.count
