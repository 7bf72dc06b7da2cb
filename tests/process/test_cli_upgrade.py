"""`deathless upgrade check` beside a service that runs: what fits, what does not, and what only its state can tell."""

from __future__ import annotations

from pathlib import Path

from cli_tool import Bank

from deathless.base.errors import CodeEndedProcess, UpgradeRefused

REFUSED = 78
VERSION_2 = """

class AccountV1(Struct):
    balance: int = 0
    deposits: int = 0


@bank.migrate(from_=1)
def up(old: AccountV1, m: Migration) -> Account:
    {body}
"""


def new_code(bank: Bank, name: str, *changes: tuple[str, str], more: str = "") -> str:
    """The bank's code with changes, in a folder beside it; gives what --to takes."""
    source = (bank.folder / "service.py").read_text()
    for old, new in changes:
        assert old in source, old
        source = source.replace(old, new)
    folder = bank.folder / name
    folder.mkdir()
    (folder / "service.py").write_text(source + more)
    return f"{name}/service.py:bank"


def version_2(body: str) -> tuple[tuple[tuple[str, str], ...], str]:
    """Changes to a second version with a migration of this body."""
    changes = (
        ("state=Account", "state=Account, version=2"),
        ("from deathless import ", "from deathless import Migration, "),
    )
    return changes, VERSION_2.format(body=body)


def started(tmp_path: Path) -> Bank:
    return Bank(tmp_path, replicas=1)


def test_new_code_is_checked_against_types_and_state_of_a_service_that_runs(tmp_path: Path) -> None:
    with started(tmp_path) as bank:
        bank.up()
        for name in ("alice", "bob"):
            bank.run("call", "deposit", "--key", name, "--arg", "amount=5")
        same = bank.run("upgrade", "check", "--to", "service.py:bank")
        assert same.stdout == "this is the code that serves\n"
        bank.run("checkpoint", "take")

        renamed = new_code(bank, "renamed", ("balance", "cents"))
        refused = bank.run("upgrade", "check", "--to", renamed, code=REFUSED)
        assert (
            "FieldDropped: Account.balance (int) of version 1 is not in the new code, 2 keys hold it" in refused.stdout
        )

        noted = ("balance: int = 0", 'balance: int = 0\n    note: str = ""')
        compatible = new_code(bank, "note", noted, more='\nprint("imported")\n')
        told = bank.json("upgrade", "check", "--to", compatible)
        assert (told["fits"], told["compatible"], told["keys"], told["misfits"]) == (True, True, 2, [])

        changes, more = version_2(
            'print(m.key)\n    if m.key == "bob":\n        raise ValueError("no")\n    return Account(old.balance)'
        )
        raising = new_code(bank, "raising", *changes, more=more)
        told = bank.json("upgrade", "check", "--to", raising, code=REFUSED)
        [misfit] = told["misfits"]
        assert (misfit["word"], misfit["count"], misfit["first"]) == ("MigrationRaised", 1, "bob")

        changes, more = version_2("return Account(hash(m.key) % 1_000_000)")
        hashing = new_code(bank, "hashing", *changes, more=more)
        told = bank.json("upgrade", "check", "--to", hashing, code=REFUSED)
        [misfit] = told["misfits"]
        assert (misfit["word"], misfit["subject"]) == ("MigrationNotDeterministic", "Account.balance")
        assert misfit["count"] == 2
        assert bank.json("query", "balance", "--key", "alice")["result"] == 5


def test_without_a_recorded_interface_it_is_said_what_to_do(tmp_path: Path) -> None:
    with started(tmp_path) as bank:
        bank.up()
        bank.run("call", "deposit", "--key", "alice", "--arg", "amount=5")
        for path in (bank.directory / "code").glob("*.interface.json"):
            path.unlink()
        said = bank.run("upgrade", "check", "--to", "service.py:bank", code=UpgradeRefused.exit_code).stderr
        assert "no interface is recorded for the code that serves" in said
        assert "start a replica once with the code that serves" in said


def test_code_that_ends_its_process_has_not_passed_a_check(tmp_path: Path) -> None:
    ended = CodeEndedProcess.exit_code
    with started(tmp_path) as bank:
        bank.up()
        bank.run("call", "deposit", "--key", "alice", "--arg", "amount=5")
        bank.run("checkpoint", "take")
        changes, _ = version_2("")
        hard = new_code(bank, "hard", *changes, more=f"\nimport os{VERSION_2.format(body='os._exit(0)')}")
        said = bank.run("upgrade", "check", "--to", hard, code=ended)
        assert (CodeEndedProcess.code in said.stderr, said.stdout) == (True, "")
        assert "the process that ran hard/service.py:bank ended with status 0" in said.stderr
        soft = new_code(bank, "soft", *changes, more=f"\nimport sys{VERSION_2.format(body='sys.exit(0)')}")
        [misfit] = bank.json("upgrade", "check", "--to", soft, code=REFUSED)["misfits"]
        assert (misfit["word"], misfit["first"]) == ("MigrationRaised", "alice")
        imported = new_code(bank, "imported", more="\nimport os\nos._exit(0)\n")
        for command in (("upgrade", "check", "--to"), ("fingerprint",), ("check",), ("openapi",)):
            assert CodeEndedProcess.code in bank.run(*command, imported, code=ended).stderr
