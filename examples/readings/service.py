"""Sensors whose readings come from programs outside, which connect to the service (`kind: connector`)."""

from deathless import Context, Service, Struct


class Reading(Struct):
    """One message."""

    sensor: str
    value: int


class Sensor(Struct):
    """State of one sensor."""

    count: int = 0
    total: int = 0


readings = Service("readings", state=Sensor)


@readings.input("readings")
def record(sensor: Sensor, ctx: Context, row: Reading) -> None:
    """Count a reading."""
    sensor.count += 1
    sensor.total += row.value


@readings.query
def totals(sensor: Sensor) -> Sensor:
    """Give what came so far."""
    return sensor
