"""`deathless check`: look for what would make a replay differ, before the digest finds it live."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click
import msgspec

from deathless.base.errors import DeathlessError
from deathless.cli.options import json_option
from deathless.cli.output import count, print_json, prints_aside, progress

if TYPE_CHECKING:
    from deathless.shell.operate.manifest_file import LoadedManifest
    from deathless.shell.service_code.check.run import Report

EXIT_FOUND = 1
EXIT_UNDECIDED = 3


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
    help="The manifest that names the module, if no MODULE is given.",
)
@click.option("--no-run", is_flag=True, help="Only read the code.")
@click.option(
    "--call-seconds",
    type=click.FloatRange(min=0.1),
    default=1.0,
    show_default=True,
    help="A call that takes longer remains undecided.",
)
@click.option(
    "--seconds",
    type=click.FloatRange(min=1),
    default=120.0,
    show_default=True,
    help="What is not decided after this time is reported as undecided.",
)
@json_option
def check(module: str | None, manifest: str, no_run: bool, call_seconds: float, seconds: float, as_json: bool) -> int:
    """Find non-deterministic code in a service. MODULE is package.module:attribute or path/to/file.py:attribute.

    Checks the code for forbidden things (clock, random, threads, sockets, set order, ...), then runs generated calls
    in processes with different hash seeds, locales, time zones, stack depths and clocks. The exit code is 1 if
    something was found, and 3 if nothing was found but something took too long to decide. Of a pipeline, what is
    checked is its service, and whether Spark is here.

    \b
    deathless check examples/bank/service.py:bank
    deathless check -f examples/bank/service.yaml
    """
    from deathless.shell.service_code.check.compare import Patience
    from deathless.shell.service_code.check.run import check_service

    folder, least = ".", ""
    notes: list[str] = []
    if module is None:
        from deathless.shell.operate.manifest_file import read_manifest

        loaded = read_manifest(manifest)
        module, folder = loaded.module, str(loaded.folder)
        least = loaded.least_volume
        notes = _of_pipeline(loaded)
    patience = Patience(call_seconds, seconds)
    with prints_aside():
        report = check_service(module, folder=folder, run=not no_run, patience=patience, told=progress())
    if least:
        report = msgspec.structs.replace(report, notes=[*report.notes, f"the log's volume must have {least} at least"])
    report = msgspec.structs.replace(report, notes=[*report.notes, *notes])
    if as_json:
        print_json(
            {
                "clean": report.clean,
                "calls": report.calls,
                "findings": [found._asdict() for found in report.findings],
                "differences": [found._asdict() for found in report.differences],
                "notes": report.notes,
                "undecided": report.undecided,
            }
        )
    else:
        _show(report, ran=not no_run)
    if not report.clean:
        return EXIT_FOUND
    return EXIT_UNDECIDED if report.undecided else 0


def _of_pipeline(loaded: LoadedManifest) -> list[str]:
    """Give what is to be known of a pipeline: its service's code is ours, and its drivers need Spark."""
    if loaded.pipeline is None:
        return []
    from deathless.spark.session import check as check_spark

    try:
        check_spark()
    except DeathlessError as error:
        return [f"no driver can run here: {error}"]
    return []


def _show(report: Report, *, ran: bool) -> None:
    for found in report.findings:
        reached = f" (reached by {', '.join(found.handlers)})" if found.handlers else " (at import)"
        print(f"{found.path}:{found.line}: {found.rule}: {found.text}{reached}")
    for one in report.differences:
        print(f"{one.handler}: another result in another process; what differed: {one.factor} (call {one.lsn})")
        print(f"  - {one.before}\n  + {one.after}")
    for what in report.undecided:
        print(f"not decided: {what}")
    for note in report.notes:
        print(f"note: {note}")
    done = f"; {count(report.calls, 'call')} run in each process" if ran else "; nothing was run"
    verdict = "clean" if not report.undecided else "nothing was found, but not all is decided"
    if not report.clean:
        verdict = f"{count(len(report.findings) + len(report.differences), 'thing')} to mend"
    print(verdict + done)
