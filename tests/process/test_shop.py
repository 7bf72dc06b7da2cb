"""The example's shop: three services side by side, as a user runs them, whose primaries die in the middle of orders."""

from __future__ import annotations

import asyncio
import json
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from cli_tool import PROGRAM, ROOT, run
from http_wire import Answer, Wire, get, post
from replica_set import DEADLINE_S, send_signal, wait_for

from deathless.base.errors import OutcomeUnknown, PeerReplaced
from deathless.shell.directory.members import read_members
from deathless.shell.operate.runner import running_runner, running_supervisor

SERVICES = ("stock", "payments", "shop")
CALL_S = 2 * DEADLINE_S  # an order goes through all three, and each of them may have lost its primary


class Shop:
    """The three services in a folder of their own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "shop"
        shutil.copytree(ROOT / "examples" / "shop", self.folder)
        manifest = self.folder / "shop.yaml"
        manifest.write_text(manifest.read_text().replace("port: 8090", "port: 0"))

    def directory(self, service: str) -> Path:
        return self.folder / ".deathless" / service

    def command(self, service: str, *arguments: str) -> list[str]:
        patience = ("--timeout", f"{CALL_S:g}") if arguments[0] in ("call", "query") else ()
        return [*arguments, *patience, "-f", f"{service}.yaml"]

    def run(self, service: str, *arguments: str) -> str:
        """Run a command on a service; gives what it printed."""
        done = run(*self.command(service, *arguments), cwd=self.folder)
        assert done.returncode == 0, f"{service} {arguments}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def json(self, service: str, *arguments: str) -> Any:
        """The same with --json; gives what it told."""
        return json.loads(self.run(service, *arguments, "--json"))

    def json_of_primary(self, service: str, *arguments: str) -> Any:
        """The same, once the service has a primary: until then a command that looks ends with a code."""

        def told() -> str:
            done = run(*self.command(service, *arguments), "--json", cwd=self.folder)
            return "" if done.returncode else done.stdout

        return json.loads(wait_for(told, f"what {arguments} tells of {service}"))

    def peers(self) -> list[dict[str, Any]]:
        """What the shop knows of the two others."""
        found: list[dict[str, Any]] = self.json_of_primary("shop", "peers", "list")["peers"]
        return found

    def place(self, order: str, cents: int, count: int = 1) -> subprocess.Popen[str]:
        """Begin to place an order."""
        named = {"article": "apples", "count": str(count), "customer": "alice", "cents": str(cents)}
        pairs = [word for name, value in named.items() for word in ("--arg", f"{name}={value}")]
        command = self.command("shop", "call", "place", "--key", order, *pairs)
        return subprocess.Popen([*PROGRAM, *command], cwd=self.folder, stdout=subprocess.PIPE, text=True)

    def kill_primary(self, service: str) -> None:
        """kill -9 of the worker that leads."""

        def killed() -> bool:
            status = self.json_of_primary(service, "status")
            leads = [one["workerPid"] for one in status["replicas"] if one["replica"] == status["primary"]]
            return any(send_signal(pid, signal.SIGKILL) for pid in leads)

        wait_for(killed, f"a worker that leads {service}")

    def ingress(self) -> str:
        """Where the shop's HTTP interface is."""

        def listening() -> str:
            found = (member.ingress for member in read_members(str(self.directory("shop"))).values())
            return next((address for address in found if address and not address.endswith(":0")), "")

        return wait_for(listening, "an ingress")

    def ask(self, request: bytes) -> Answer:
        """Send a request to the shop's HTTP interface."""
        address = self.ingress()

        async def main() -> Answer:
            wire = await Wire.connect(address)
            try:
                return await wire.ask(request)
            finally:
                await Wire.close_all()

        return asyncio.run(main())


@contextmanager
def shop(folder: Path) -> Iterator[Shop]:
    """The three services, running; whatever is left of them is ended."""
    one = Shop(folder)
    try:
        for service in SERVICES:
            done = run("up", "--detach", f"{service}.yaml", cwd=one.folder)
            assert done.returncode == 0, done.stderr
        yield one
    finally:
        for service in SERVICES:
            pids = [running_runner(one.directory(service))]
            pids += [running_supervisor(path) for path in (one.directory(service) / "replicas").glob("*")]
            for pid in filter(None, pids):
                send_signal(pid, signal.SIGKILL)


def result_of(placing: subprocess.Popen[str]) -> str:
    """What came of an order."""
    output, _ = placing.communicate(timeout=CALL_S + DEADLINE_S)
    assert placing.returncode == 0
    return str(json.loads(output))


def test_orders_are_charged_once_and_articles_conserved_whatever_primary_dies(tmp_path: Path) -> None:
    with shop(tmp_path) as one:
        assert one.json("stock", "call", "refill", "--key", "apples", "--arg", "count=10")["result"] == 10
        assert result_of(one.place("order-0", 500)) == "sent"
        placing = [one.place(f"order-{number}", 500) for number in range(1, 4)]
        for service in SERVICES:
            one.kill_primary(service)
        assert [result_of(each) for each in placing] == ["sent"] * 3
        assert "6 of apples are left, not 7" in result_of(one.place("order-9", 500, count=7))
        held = one.json("stock", "query", "held", "--key", "apples")["result"]
        assert held == {f"order-{number}": 1 for number in range(4)}
        assert one.json("stock", "query", "free", "--key", "apples")["result"] == 6
        lines = (one.folder / "bank.txt").read_text().splitlines()
        assert len({line.split()[0] for line in lines}) == len(lines) == 4
        wait_for(lambda: all(each["lag"] == 0 for each in one.peers()), "what was sent is confirmed")
        assert [each["service"] for each in one.peers()] == ["payments", "stock"]
        assert all(each["sent"] > 0 and each["received"] > 0 and not each["problem"] for each in one.peers()), (
            one.peers()
        )


def test_a_large_order_waits_for_a_person_and_what_the_bank_refuses_is_put_back(tmp_path: Path) -> None:
    with shop(tmp_path) as one:
        one.run("stock", "call", "refill", "--key", "apples", "--arg", "count=10")
        body = json.dumps({"article": "apples", "count": 2, "customer": "bob", "cents": 200_000}).encode()
        answer = one.ask(post("/shop/order-1/place", body, "Prefer: wait=0"))
        assert answer.status == 202
        where = answer.headers["location"]
        waiting = one.json("shop", "invocations", "list")["invocations"]
        assert [(each["handler"], each["key"]) for each in waiting] == [("place", "order-1")]
        assert where.endswith(f"/{waiting[0]['invocation']}")
        shown = one.run("shop", "invocations", "show", str(waiting[0]["invocation"]))
        assert "promise" in shown
        wait = ("invocations", "wait", str(waiting[0]["invocation"]), "--timeout")
        assert run(*one.command("shop", *wait, "0.1"), cwd=one.folder).returncode == OutcomeUnknown.exit_code
        wait_for(lambda: one.json("shop", "query", "status", "--key", "order-1")["result"].startswith("waiting"), "it")
        assert one.json("stock", "query", "free", "--key", "apples")["result"] == 8
        assert one.json("shop", "call", "decide", "--key", "order-1", "--arg", "yes=true")["result"] == "decided"
        answer = one.ask(get(where, f"Prefer: wait={CALL_S:.0f}"))
        assert (answer.status, answer.json[:7]) == (200, "failed:")
        assert "above the limit" in answer.json
        assert one.json("shop", *wait, f"{CALL_S:g}") == {"result": answer.json, "invocation": waiting[0]["invocation"]}
        assert one.json("stock", "query", "free", "--key", "apples")["result"] == 10
        assert not (one.folder / "bank.txt").exists()


def test_who_repeats_a_request_while_its_handler_waits_gets_its_result_and_it_runs_once(tmp_path: Path) -> None:
    with shop(tmp_path) as one:
        one.run("stock", "call", "refill", "--key", "apples", "--arg", "count=10")
        body = json.dumps({"article": "apples", "count": 1, "customer": "bob", "cents": 60_000}).encode()
        address = one.ingress()

        def placing(wait: str) -> bytes:
            return post("/shop/order-1/place", body, "Idempotency-Key: order-1", f"Prefer: wait={wait}")

        def waits() -> bool:
            return str(one.json("shop", "query", "status", "--key", "order-1")["result"]).startswith("waiting")

        async def both() -> list[Answer]:
            wires = [await Wire.connect(address) for _ in range(3)]
            first = asyncio.ensure_future(wires[0].ask(placing(f"{CALL_S:.0f}")))
            await asyncio.to_thread(wait_for, waits, "a decision that is waited for")
            again = asyncio.ensure_future(wires[1].ask(placing(f"{CALL_S:.0f}")))
            meanwhile = await wires[2].ask(placing("0"))
            assert (meanwhile.status, first.done(), again.done()) == (202, False, False)
            waiting = (await asyncio.to_thread(one.json, "shop", "invocations", "list"))["invocations"]
            assert [each["invocation"] for each in waiting] == [meanwhile.json["invocation"]]
            await asyncio.to_thread(one.run, "shop", "call", "decide", "--key", "order-1", "--arg", "yes=true")
            answers = [await first, await again, await wires[2].ask(placing(f"{CALL_S:.0f}"))]
            await Wire.close_all()
            return answers

        assert [(answer.status, answer.json) for answer in asyncio.run(both())] == [(200, "sent")] * 3
        assert len((one.folder / "bank.txt").read_text().splitlines()) == 1
        assert one.json("stock", "query", "held", "--key", "apples")["result"] == {"order-1": 1}


def test_an_operator_ends_an_order_that_waits(tmp_path: Path) -> None:
    with shop(tmp_path) as one:
        one.run("stock", "call", "refill", "--key", "apples", "--arg", "count=10")
        invocations = {}
        for command in ("cancel", "kill", "resume"):
            body = json.dumps({"article": "apples", "count": 1, "customer": "bob", "cents": 60_000}).encode()
            answer = one.ask(post(f"/shop/{command}/place", body, "Prefer: wait=0"))
            invocations[command] = answer.json["invocation"]

            def waits(key: str = command) -> bool:
                return str(one.json("shop", "query", "status", "--key", key)["result"]).startswith("waiting")

            wait_for(waits, "a decision that is waited for")
        for command, invocation in invocations.items():
            more = ("--value", "false") if command == "resume" else ()
            one.run("shop", "invocations", command, str(invocation), *more)
        results = {name: one.ask(get(f"/shop/-/invocations/{id_}")) for name, id_ in invocations.items()}
        assert results["cancel"].json.startswith("failed: ")
        assert results["kill"].status != 200
        assert results["resume"].json == "rejected"
        assert one.run("shop", "invocations", "list") == "no handler waits\n"
        # What was cancelled or rejected has been put back; what was killed holds what it held.
        assert one.json("stock", "query", "held", "--key", "apples")["result"] == {"kill": 1}


def test_a_service_that_was_created_anew_is_refused_until_an_operator_adopts_it(tmp_path: Path) -> None:
    with shop(tmp_path) as one:
        one.run("stock", "call", "refill", "--key", "apples", "--arg", "count=10")
        assert result_of(one.place("order-1", 500)) == "sent"
        one.run("stock", "down")
        shutil.rmtree(one.directory("stock"))
        done = run("up", "--detach", "stock.yaml", cwd=one.folder)
        assert done.returncode == 0, done.stderr
        one.run("stock", "call", "refill", "--key", "apples", "--arg", "count=5")
        placing = one.place("order-2", 500)
        wait_for(lambda: one.peers()[1]["problem"], "a problem that operators see")
        one.run("shop", "peers", "adopt", "stock", "--yes")
        placing.communicate(timeout=CALL_S + DEADLINE_S)
        assert placing.returncode == PeerReplaced.exit_code, "what waited for the old one learns that it is gone"
        assert result_of(one.place("order-3", 500)) == "sent"
        assert one.json("stock", "query", "free", "--key", "apples")["result"] == 4
