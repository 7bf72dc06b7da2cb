"""Who exports spans: the primary that executed what they are of, once it is confirmed, and nobody else."""

from __future__ import annotations

import msgspec
from tests.unit.deathless.core.primary_world import batch
from tests.unit.deathless.engine.replica_world import CLIENT, Node, World
from tests.unit.deathless.execution.executor_bench import SEED, Keys

from deathless.base.limits import Limits
from deathless.codec.messages import Kind, encode
from deathless.codec.peer_messages import Order
from deathless.codec.traces import Span, begun, traced
from deathless.core import effects as fx
from deathless.core import events as ev
from deathless.execution.author.service import Service
from deathless.execution.executor import HandlerExecutor
from deathless.execution.turn.context import Context
from deathless.execution.turn.running import PAGE_BYTES, Cells

TRACE = begun(b"\x01" * 16, sampled=True)


class State(msgspec.Struct):
    count: int = 0


service = Service("svc", state=State)


@service.handler
def add(state: State, ctx: Context) -> int:
    state.count += 1
    return state.count


@service.handler
async def wait(state: State, ctx: Context) -> bool:
    state.count += 1
    return await ctx.promise(bool)


def executor() -> HandlerExecutor:
    return HandlerExecutor(service, Limits(), SEED, Keys(), Cells(bytearray(PAGE_BYTES)))


def send(node: Node, session: int, seq: int, method: str, key: str = "a", trace: bytes = TRACE) -> None:
    message = encode(Kind.CALL, method=method.encode(), key=key.encode(), args=b"\x80")
    sent = traced(message, trace) if trace else message
    node.engine.post(ev.BatchesReceived([(CLIENT, batch(session, seq, [sent]))]))
    node.intake.drained()


def exported(node: Node) -> list[Span]:
    return [span for effect in node.reached if isinstance(effect, fx.ExportSpans) for span in effect.spans]


def resume(node: Node, invocation: int) -> None:
    """Complete the promise that an invocation waits for."""
    node.engine.post(ev.OrderReceived(ev.Conn(9), 1, Order("resume", invocation, 0, b"\x00\xc3")))
    node.intake.drained()


def test_a_primary_exports_what_a_confirmed_frame_brought_to_its_end() -> None:
    node = World().primary(executor=executor())
    session = node.register()
    send(node, session, 1, "add")
    send(node, session, 2, "add", trace=b"")
    assert [(span.method, span.trace) for span in exported(node)] == [("add", TRACE)]


def test_what_is_not_confirmed_is_not_exported() -> None:
    """A primary that was deposed meanwhile has not executed it: its successor does (I1)."""
    world = World(fence="etcd")
    node = world.primary(executor=executor(), fence="etcd")
    session = node.register()
    node.held = []  # proofs wait
    send(node, session, 1, "add")
    assert exported(node) == []
    answers, node.held = node.held, None
    for answer in answers:
        answer()
    assert [span.method for span in exported(node)] == ["add"]


def test_followers_and_who_recovers_export_nothing() -> None:
    world = World()
    node = world.primary(executor=executor())
    follower = world.follower("r1", node, executor=executor())
    send(node, node.register(), 1, "add")
    node.idle()
    world.pump(node)
    assert follower.engine.place == node.engine.place
    late = world.node("r2", executor=executor()).begin()
    assert late.engine.place.lsn == node.engine.place.lsn
    late.take_over(node.engine.core.known_epoch)
    assert [exported(each) for each in (follower, late)] == [[], []]
    assert len(exported(node)) == 1


def test_an_invocation_is_exported_once_by_the_primary_that_ended_it() -> None:
    world = World()
    node = world.primary(executor=executor())
    session = node.register()
    send(node, session, 1, "wait")
    invocation = node.engine.place.lsn
    assert exported(node) == []
    successor = world.node("r1", executor=executor()).begin().take_over(node.engine.core.known_epoch)
    resume(successor, invocation)
    assert [(span.method, span.invocation) for span in exported(successor)] == [("wait", invocation)]
    third = world.node("r2", executor=executor()).begin().take_over(successor.engine.core.known_epoch)
    assert exported(node) + exported(third) == []


def test_logs_of_replicas_that_export_and_that_do_not_are_the_same() -> None:
    one, two = World().primary(executor=executor()), World().primary(executor=executor())
    two.export_spans = lambda spans: None  # type: ignore[method-assign]
    for node in (one, two):
        session = node.register()
        send(node, session, 1, "add")
        send(node, session, 2, "wait")
        resume(node, node.engine.place.lsn)
    assert exported(one)
    assert not exported(two)
    assert one.engine.place == two.engine.place
    assert one.engine.shard.executor.state() == two.engine.shard.executor.state()
