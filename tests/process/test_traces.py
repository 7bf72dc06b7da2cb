"""One trace through two services of three replicas, with the callee's primary killed in the middle of it."""

from __future__ import annotations

import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path

import msgspec
from replica_set import ReplicaSet, wait_for
from tests.unit.deathless.shell.collector import Collector, Seen

from deathless.shell.directory.members import ingress_address_path

MODULE = Path(__file__).with_name("traced_services.py")
TRACE_ID = "0af7651916cd43dd8448eb211c80319c"
CALLER = "b7ad6b7169203331"
HEADER = f"00-{TRACE_ID}-{CALLER}-01"


@contextmanager
def running(folder: Path, tracing: dict[str, object] | None) -> Iterator[tuple[ReplicaSet, ReplicaSet]]:
    """Both services."""

    def one(name: str, other: str) -> ReplicaSet:
        own = folder / name
        own.mkdir()
        peer = {"name": other, "directory": str(folder / other / "data")}
        found = ReplicaSet(
            own,
            service=name,
            module=f"{MODULE}:{name}",
            peers=[peer],
            tracing=tracing,
            ingress_listen="127.0.0.1:0" if name == "front" else "",
        )
        found.environment["OTEL_BSP_SCHEDULE_DELAY"] = "20"
        return found

    front, back = one("front", "back"), one("back", "front")
    with ExitStack() as stack:
        stack.enter_context(front)
        stack.enter_context(back)
        front.primary()
        back.primary()
        yield front, back


def post(front: ReplicaSet, path: str, arguments: dict[str, object]) -> object:
    """Call through the ingress of a replica that stays."""

    def address() -> str:
        name = front.names[0]
        place = Path(ingress_address_path(front.config(name).directory, name, ""))
        return place.read_text().strip() if place.exists() else ""

    at = wait_for(address, "the ingress", front.describe)

    def answered() -> bytes:
        request = urllib.request.Request(
            f"http://{at}{path}",
            data=msgspec.json.encode(arguments),
            headers={"content-type": "application/json", "traceparent": HEADER, "prefer": "wait=300"},
        )
        try:
            with urllib.request.urlopen(request, timeout=300) as response:
                body: bytes = response.read()
                return body
        except urllib.error.HTTPError as error:
            if error.code != 503:  # no session stands yet
                raise
            return b""

    return msgspec.json.decode(wait_for(answered, "an answer", front.describe))


def check_tree(spans: list[Seen], header: object) -> None:
    """One tree under the caller, no span twice, none missing, times in order."""
    by_name = {span.name: span for span in spans if span.kind != "client"}
    calls = {span.name: span for span in spans if span.kind == "client"}
    assert sorted(f"{span.kind} {span.name}" for span in spans) == [
        "client back/make", "client back/take", "consumer front/hear", "internal activity press",
        "server back/make", "server back/take", "server front/order",
    ]  # fmt: skip
    assert {span.trace for span in spans} == {TRACE_ID}
    assert len({span.span for span in spans}) == len(spans)
    parents = {
        "front/order": CALLER,
        "front/hear": by_name["front/order"].span,
        "back/make": calls["back/make"].span,
        "activity press": by_name["back/make"].span,
        "back/take": calls["back/take"].span,
    }
    assert {name: span.parent for name, span in by_name.items()} == parents
    assert calls["back/make"].parent == by_name["front/order"].span
    assert calls["back/take"].parent == by_name["back/make"].span
    assert header == f"00-{TRACE_ID}-{by_name['activity press'].span}-01"
    assert all(span.start_ns <= span.end_ns for span in spans)
    assert not any(span.error for span in spans)


def test_a_trace_is_one_tree_whoever_executes_its_parts(tmp_path: Path) -> None:
    with Collector() as collector, running(tmp_path, {"endpoint": collector.endpoint}) as (front, back):
        killed = back.primary()
        with ThreadPoolExecutor(1) as pool:
            answer = pool.submit(post, front, "/front/a/order", {"folder": str(tmp_path)})
            wait_for((tmp_path / "began").exists, "the activity", back.describe)
            back.kill_replica(killed)
            back.primary(besides=killed)
            (tmp_path / "go").touch()
            header = answer.result()
        spans = collector.wait(7)
        check_tree(spans, header)
        assert killed not in {span.replica for span in spans if span.service == "back"}
        # What is started again replays all of it, and exports nothing; what comes behind that in the same log is
        # exported, so it is known that nothing was left out by being late.
        back.start(killed)
        for one in (front, back):
            gone = one.primary()
            one.kill_worker(gone)  # alone: the ingress beside it stays
            one.primary(besides=gone)
        post(front, "/front/b/order", {"folder": str(tmp_path)})
        later = collector.wait(14)
        assert sorted(later[:7]) == sorted(spans)
        check_tree(later[7:], f"00-{TRACE_ID}-{next(s.span for s in later[7:] if s.kind == 'internal')}-01")


def test_without_a_section_for_them_there_are_no_traces(tmp_path: Path) -> None:
    (tmp_path / "go").touch()
    with running(tmp_path, None) as (front, _):
        assert post(front, "/front/a/order", {"folder": str(tmp_path)}) == ""
