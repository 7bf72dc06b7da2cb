"""`deathless check`: look for what would make a replay differ, before the digest finds it live."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from deathless.cli.options import json_option
from deathless.cli.output import count, print_json

if TYPE_CHECKING:
    from deathless.shell.check import Report

EXIT_FOUND = 1


@click.command()
@click.argument("module", required=False)
@click.option(
    "-f",
    "--file",
    "manifest",
    default="service.yaml",
    show_default=True,
    envvar="DEATHLESS_MANIFEST",
    metavar="MANIFEST",
    type=click.Path(),
    help="Where no MODULE is named: the manifest that names it.",
)
@click.option("--no-run", is_flag=True, help="Only read the code.")
@json_option
def check(module: str | None, manifest: str, no_run: bool, as_json: bool) -> int:
    """Look for what is not deterministic in a service: MODULE as package.module:attribute or path/to/file.py:attribute.

    Reads the code for forbidden things (clock, random, threads, sockets, set order, ...), then runs drawn calls in
    processes that differ: hash seed, locale, time zone, stack depth, clock. The exit code is 1 if something was found.

    \b
    deathless check examples/bank/service.py:bank
    deathless check -f examples/bank/service.yaml
    """
    from deathless.shell.check import check_service

    folder = "."
    if module is None:
        from deathless.shell.manifest import read_manifest

        loaded = read_manifest(manifest)
        module, folder = loaded.module, str(loaded.folder)
    report = check_service(module, folder=folder, run=not no_run)
    if as_json:
        print_json(
            {
                "clean": report.clean,
                "calls": report.calls,
                "findings": [found._asdict() for found in report.findings],
                "differences": [found._asdict() for found in report.differences],
                "notes": report.notes,
            }
        )
    else:
        _show(report, ran=not no_run)
    return 0 if report.clean else EXIT_FOUND


def _show(report: Report, *, ran: bool) -> None:
    for found in report.findings:
        reached = f" (reached by {', '.join(found.handlers)})" if found.handlers else " (at import)"
        print(f"{found.path}:{found.line}: {found.rule}: {found.text}{reached}")
    for one in report.differences:
        print(f"{one.handler}: another result in another process; what differed: {one.factor} (call {one.lsn})")
        print(f"  - {one.before}\n  + {one.after}")
    for note in report.notes:
        print(f"note: {note}")
    done = f"; {count(report.calls, 'call')} run in each process" if ran else "; nothing was run"
    verdict = "clean" if report.clean else f"{count(len(report.findings) + len(report.differences), 'thing')} to mend"
    print(verdict + done)
