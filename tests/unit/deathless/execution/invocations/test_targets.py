"""How many other services turns send to: one more is refused by its name, at the end of the turn (I10)."""

from datetime import timedelta

import msgspec
from tests.unit.deathless.execution.messaging_bench import Hub, error

from deathless.base.limits import Limits
from deathless.core.tables.outbox import Outbox
from deathless.execution.author.service import Service
from deathless.execution.turn.context import Context


class State(msgspec.Struct):
    log: list[str] = []


service = Service("svc", state=State)


@service.handler
def tell(state: State, ctx: Context, names: list[str]) -> None:
    for name in names:
        ctx.fork(name, "b", "plain")


@service.handler
async def tell_later(state: State, ctx: Context, names: list[str]) -> None:
    await ctx.timer(after=timedelta(seconds=1))
    for name in names:
        ctx.fork(name, "b", "plain")


class Posting(Hub):
    """One whose messages stand in an outbox, for two others at most."""

    def __init__(self) -> None:
        super().__init__(service, Limits(targets_max=2))
        self.outbox = Outbox()
        self.executor.limit_targets(self.outbox)

    def take(self) -> None:
        before = len(self.sent)
        super().take()
        for target, message in self.sent[before:]:
            self.outbox.append(target, message)


def test_i10_a_turn_that_would_send_to_one_more_service_than_may_be_fails_by_that_name() -> None:
    hub = Posting()
    hub.call("tell", names=["one", "svc", "one"])
    failed = hub.fail("tell", names=["two", "three"])
    assert (failed.type, failed.text) == ("TooLarge", "sent to 'two', besides 2 other services (limits.targets_max)")
    hub.call("tell", names=["two"])
    later = hub.begin("tell_later", names=["one", "four"])
    hub.tick()
    assert "'four'" in error(hub.results[later]).text
    assert [target.service for target, _ in hub.sent] == ["one", "one", "two"]
    hub.restart()
