"""A handler's bug is the service's and not its caller's: 500, and one traceback in one log."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from pathlib import Path

from cli_tool import Bank
from replica_set import wait_for

from deathless.base.errors import CallRefused, HandlerFailed, InvalidUse

SERVICE = """\
from deathless import CallRefused, Context, Service, Struct


class Account(Struct):
    balance: int = 0


class Poor(CallRefused):
    code = "BANK01"


bank = Service("bank", state=Account)


@bank.handler
def share(account: Account, ctx: Context, people: int) -> int:
    return account.balance // people


@bank.handler
def refuse(account: Account, ctx: Context) -> None:
    raise Poor("too little")


@bank.handler
def tell(account: Account, ctx: Context) -> None:
    ctx.fork("no/service", "key", "method")


@bank.query
def per_head(account: Account, people: int) -> int:
    return account.balance // people
"""


def post(bank: Bank, path: str, body: str = "{}", **headers: str) -> tuple[int, dict[str, object]]:
    address = (bank.directory / "replicas" / "r0" / "ingress.address").read_text().strip()
    request = urllib.request.Request(f"http://{address}{path}", body.encode(), headers, method="POST")
    request.add_header("content-type", "application/json")
    return answer_of(request)


def answer_of(request: urllib.request.Request) -> tuple[int, dict[str, object]]:
    try:
        with urllib.request.urlopen(request) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)


def tracebacks(bank: Bank) -> list[dict[str, object]]:
    shown = bank.run("logs", "--level", "error", "--json").stdout.splitlines()
    return [line for line in map(json.loads, shown) if line["logger"] == "deathless.handlers"]


def test_a_handlers_bug_is_500_with_one_traceback_in_the_log_of_the_primary(tmp_path: Path) -> None:
    with Bank(tmp_path, more="  ingress: {port: 0}\n") as bank:
        (tmp_path / "service.py").write_text(SERVICE)
        bank.up()
        wait_for(lambda: len(bank.supervisors()) == 3 and bank.json("status")["primary"], "a primary")

        status, told = post(bank, "/bank/alice/share", '{"people": 0}', **{"Idempotency-Key": "k1"})
        assert (status, told["code"], told["type"]) == (500, HandlerFailed.code, "ZeroDivisionError")
        status, told = post(bank, "/bank/alice/refuse")
        assert (status, told["code"], told["type"]) == (409, CallRefused.code, "Poor")
        assert str(told["error"]) == "BANK01 too little"
        assert post(bank, "/bank/alice/share", '{"people": "x"}')[0] == 400
        (line,) = tracebacks(bank)
        trace = str(line["traceback"])
        assert str(tmp_path / "service.py") in trace
        assert "return account.balance // people" in trace
        assert line["replica"] == bank.json("status")["primary"]
        readable = bank.run("logs", "--level", "error").stdout
        assert "    ZeroDivisionError: integer division or modulo by zero\n" in readable

        # Whoever runs the turn again says the same, and does not log it again.
        before = line["replica"]
        bank.run("switchover")
        wait_for(lambda: bank.json("status")["primary"] not in (None, before), "another primary")
        again = post(bank, "/bank/alice/share", '{"people": 0}', **{"Idempotency-Key": "k1"})
        assert (again[0], again[1]["type"]) == (500, "ZeroDivisionError")
        bank.down()
        bank.up()
        wait_for(lambda: bank.json("status")["primary"], "a primary")
        assert len(tracebacks(bank)) == 1

        done = bank.run("call", "share", "-k", "alice", "-a", "people=0", code=HandlerFailed.exit_code)
        assert HandlerFailed.code in done.stderr
        bank.run("query", "per_head", "-k", "alice", "-a", "people=0", code=HandlerFailed.exit_code)
        bank.run("call", "refuse", "-k", "alice", code=CallRefused.exit_code)
        assert [each.get("lsn", 0) != 0 for each in tracebacks(bank)] == [True, True, False]
        status, told = post(bank, "/bank/alice/tell")  # what a handler does wrong with its context
        assert (status, told["code"], told["type"]) == (500, InvalidUse.code, "InvalidUse")
        assert 'ctx.fork("no/service", "key", "method")' in str(tracebacks(bank)[-1]["traceback"])
