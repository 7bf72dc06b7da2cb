"""`deathless schedules list`: which handlers run at which times, and how that stands."""

from __future__ import annotations

import asyncio

import click
import msgspec

from deathless.base.listings.texts import show_time
from deathless.cli.options import ListedGroup, json_option, service_options, target
from deathless.cli.output import print_json, print_table


class Schedule(msgspec.Struct):
    """One schedule; fields as `codec.peer_messages.ScheduleView`."""

    name: str
    handler: str
    key: str
    expression: str
    zone: str
    missed: str
    last_us: int
    next_us: int
    new: bool
    invocations: tuple[int, ...]
    problem: str

    def state(self) -> str:
        """Say in words how it stands."""
        if self.new:
            return "new: its times count from the next time record on"
        words = "invocation " + ", ".join(map(str, self.invocations)) if self.invocations else "waits"
        return f"{words}; the last failed: {self.problem}" if self.problem else words


class _Found(msgspec.Struct, rename="camel"):
    schedules: list[Schedule]
    now_us: int


@click.group("schedules", cls=ListedGroup)
def schedules() -> None:
    """Inspect the schedules of a service: handlers that run at given times. Without a subcommand they are listed."""


@schedules.command("list")
@service_options
@json_option
def list_(manifest: str, directory: str, as_json: bool) -> int:
    """List schedules: when each ran last, when it runs next, and its status."""
    found = target(manifest, directory)
    from deathless.cli.primary import ask_primary
    from deathless.shell.net.admin_call import fitted

    told = fitted(asyncio.run(ask_primary(found, "schedules")), _Found).schedules
    if as_json:
        print_json({"schedules": [{**msgspec.structs.asdict(one), "state": one.state()} for one in told]})
    elif not told:
        print("this service has no schedules")
    else:
        print_table(
            ("name", "times", "zone", "missed", "last", "next", "state"),
            [
                (
                    one.name, one.expression, one.zone, one.missed, show_time(one.last_us), show_time(one.next_us),
                    one.state(),
                )
                for one in told
            ],
        )  # fmt: skip
    return 0
