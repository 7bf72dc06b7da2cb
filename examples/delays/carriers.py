"""Carriers that are told of their late departures: the end of the pipeline."""

from deathless import CallRefused, Context, Service, Struct


class Carrier(Struct):
    """State of one carrier, by its two letters."""

    late: int = 0
    minutes: int = 0


carriers = Service("carriers", state=Carrier)


@carriers.handler
def late(carrier: Carrier, ctx: Context, minutes: int) -> None:
    """Count one late departure."""
    if minutes <= 0:
        raise CallRefused(f"{minutes} minutes are no delay")
    carrier.late += 1
    carrier.minutes += minutes


@carriers.query
def total(carrier: Carrier) -> Carrier:
    """Give what was counted."""
    return carrier
