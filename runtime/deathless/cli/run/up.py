"""`deathless up`: run a service's replicas as processes and show how they are; `deathless down` stops them.

with a terminal       a table that lives, what happens and the replicas' log above it
without one           one line for each thing that happens
with --json           one JSON object for each
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import click

from deathless.base.errors import DeathlessError, Internal, InvalidArgument, PeerUnreachable, VolumeTooSmall
from deathless.cli.options import json_option, named_shard, service_options, target
from deathless.cli.output import console, count, is_terminal, json_of, print_json_line
from deathless.cli.views import live_drivers, live_table, summary

if TYPE_CHECKING:
    from deathless.shell.operate.manifest_file import LoadedManifest
    from deathless.shell.operate.replica_log import LogLine, LogTail
    from deathless.shell.operate.runner import Runner, RunnerEvent
    from deathless.shell.operate.status import ServiceView

F = TypeVar("F", bound=Callable[..., object])
LOOK_S = 0.5
SAME_S = 5.0  # a reason that was told is not told again within this
LEVELS = ("debug", "info", "warning", "error")
EVENT_STYLES = {"ended": "red", "failed": "bold red", "stopping": "yellow"}


def view_options(function: F) -> F:
    """Add what says how a set is shown while it runs; the command gets `level` and `plain`."""
    function = click.option("--plain", is_flag=True, help="Print lines instead of a live table.")(function)
    return click.option(
        "--logs",
        "level",
        default="warning",
        show_default=True,
        type=click.Choice(LEVELS),
        help="Show log lines of this level and above.",
    )(function)


@click.command()
@click.argument("manifest", default="service.yaml", envvar="DEATHLESS_MANIFEST", type=click.Path())
@click.option(
    "-d", "--detach", is_flag=True, help="Return when the service is up, and leave it running in the background."
)
@view_options
@click.option(
    "--timeout",
    default=60.0,
    show_default=True,
    type=click.FloatRange(min=0.05),
    metavar="SECONDS",
    help="With --detach: how long to wait for the primary and the HTTP ports.",
)
@click.option(
    "--if-copied",
    type=click.Choice(("as-new", "moved")),
    envvar="DEATHLESS_IF_COPIED",
    help="If the service's folder is a copy: make it a service of its own, or declare that it was moved.",
)
@click.option(
    "--kept-code",
    is_flag=True,
    help="Start with the code that wrote the log, which is kept with it, instead of the files that stand there now.",
)
@json_option
def up(
    manifest: str,
    detach: bool,
    level: str,
    plain: bool,
    timeout: float,
    if_copied: str | None,
    kept_code: bool,
    as_json: bool,
) -> int:
    """Run a service from its MANIFEST (default ./service.yaml): its replicas as processes of this machine.

    Ctrl-C stops the replicas in order; a second one at once. Killing `up` stops no replica: run it again and it finds
    them. If they are already running, Ctrl-C leaves them running, and `deathless down` stops them. With --detach it
    returns when a primary serves and the HTTP ports listen. The state is in .deathless/NAME beside the manifest, or
    where spec.logStorage.path says, and logs are in replicas/ID/replica.log there.

    The MANIFEST of a pipeline (kind SparkPipeline) runs its drivers, too, beside the replicas of its service. They need
    Java 17 and `pip install deathless[spark]`, and their logs are in agents/ID/agent.log there.

    The service's source files are copied there as well, and all processes run from the copy: a file that is edited
    while they run changes nothing until they are stopped. Other code than that which wrote the log is refused.

    \b
    deathless up examples/bank/service.yaml
    deathless up --detach && deathless status
    """
    from deathless.shell.operate.manifest_file import read_manifest

    loaded = read_manifest(manifest)
    suspended = loaded.manifest.spec.suspend
    if not suspended:
        check_drivers(loaded)
        check_pipeline(loaded)
    if not (suspended or detach):
        wait_for_no_reader(as_json=as_json)
    voice = Voice(level, live=is_terminal() and not (plain or as_json or detach), as_json=as_json)
    for note in loaded.notes:
        voice.say("note", note)
    if suspended:
        voice.say("note", "spec.suspend is true: nothing is started")
        return 0
    check_volume(loaded, voice)
    if if_copied is not None:
        _accept_copies(loaded, if_copied, voice)
    return asyncio.run(run_set(loaded, voice, timeout if detach else None, kept_code=kept_code))


def wait_for_no_reader(*, as_json: bool) -> None:
    """See to it that the replicas are looked after whoever reads what is told, and whether anybody does."""
    from deathless.shell.process.output import never_wait

    never_wait(_dropped_event) if as_json else never_wait()


def _dropped_event(count: int) -> bytes:
    return json_of({"event": "dropped", "bytes": count, "time": time.time()}).encode() + b"\n"


def _accept_copies(loaded: LoadedManifest, how: str, voice: Voice) -> None:
    from deathless.shell.operate.adoption_new import accept_copies

    one_of_each = {config.directory: config for config in loaded.replica_configs()}
    for directory in asyncio.run(accept_copies(list(one_of_each.values()), how)):
        voice.say("note", f"{directory} was a copy: adopted {how}")


def check_volume(loaded: LoadedManifest, voice: Voice) -> None:
    """Refuse to begin on a volume that is too small; where the service was begun already that is told only.

    A replica's own start looks too, but counts the replicas that were there before it.
    """
    from deathless.shell.directory.identity import read_identities
    from deathless.shell.disk.open_log import volume_shortage

    for config in {config.directory: config for config in loaded.replica_configs()}.values():
        shortage = volume_shortage(config, loaded.manifest.spec.replicas)
        if shortage is not None and not read_identities(config.directory):
            raise VolumeTooSmall(f"{config.directory}: {shortage}")
        if shortage is not None:
            voice.say("note", f"{config.directory}: {shortage} ({VolumeTooSmall.remedy})")


def check_drivers(loaded: LoadedManifest) -> None:
    """Options that no driver could work with are told before anything runs."""
    if loaded.manifest.spec.drivers or loaded.manifest.spec.topics:
        from deathless.drivers.host import make_sink

        for driver in loaded.replica_configs()[0].drivers:
            make_sink(driver)
    if loaded.manifest.spec.sinks:
        from deathless.sinks.stores import make_store

        for sink in loaded.replica_configs()[0].sinks:
            make_store(sink)
    if loaded.manifest.spec.sources:
        from deathless.sources.host import make_reader

        for source in loaded.replica_configs()[0].sources:
            make_reader(source)


def check_pipeline(loaded: LoadedManifest) -> None:
    """A machine on which no driver of Spark could run is told before anything runs. Raises: SparkMissing."""
    if loaded.pipeline is not None:
        from deathless.spark.session import check

        check()


async def run_set(
    loaded: LoadedManifest,
    voice: Voice,
    detach_s: float | None,
    *,
    kept_code: bool = False,
    beside: Callable[[], Coroutine[object, object, None]] | None = None,
) -> int:
    """Run a set until it is stopped; gives the exit code.

    Args:
        loaded: its manifest.
        voice: tells the user.
        detach_s: seconds within which it is to be up, and then left running; None: it is not left.
        kept_code: start with the code that wrote the log.
        beside: is run as long as the set; an error that escapes it stops the set.

    Raises: why no replica can run; what choosing the code raises.
    """
    from deathless.shell.operate.replica_log import LogTail
    from deathless.shell.operate.runner import Change, Runner, run_until_stopped
    from deathless.shell.operate.start_code import choose_code

    environment = environment_of(loaded)

    def tell(event: RunnerEvent) -> None:
        voice.event(event)
        if event.change is Change.FOUND and detach_s is None and not (voice.joined or runner.joined):
            voice.joined = True
            voice.say("note", "they run already: Ctrl-C leaves them running, `deathless down` stops them")

    configs = loaded.replica_configs()
    runner = Runner(configs, tell=tell, environment=environment, agents=loaded.agent_configs())
    runner.open()
    try:
        chosen = await asyncio.to_thread(choose_code, configs, environment, kept=kept_code)
    except BaseException:
        runner.close()
        raise
    runner.use(chosen.configs)
    for note in chosen.notes:
        voice.say("note", note)
    shards = f" of {len(runner.parts)} shards" if len(runner.parts) > 1 else ""
    drivers = f" and {count(len(runner.agents), 'driver')}" if runner.agents else ""
    voice.say("note", f"{loaded.name}: {len(runner.replicas)} replicas{shards}{drivers} in {runner.directory}")
    tails = {name: LogTail(each.log) for name, each in (*runner.replicas.items(), *runner.agents.items())}
    shown = asyncio.create_task(_show(runner, voice, tails))
    work = asyncio.create_task(run_until_stopped(runner) if detach_s is None else _detach(runner, voice, detach_s))
    other = [asyncio.create_task(beside())] if beside is not None else []
    try:
        await asyncio.wait((work, shown, *other), return_when=asyncio.FIRST_COMPLETED)
        if not work.done():
            # No replica will run until an operator acts: stop what is left and say why.
            await runner.stop()
            await work
            raise shown.result() if shown.done() else Internal(repr(other[0].exception()))
        code = await work
        failure = runner.failure()
        if failure is not None and not runner.stopping:
            raise failure
        return code
    finally:
        for task in (shown, *other):
            task.cancel()
        await asyncio.gather(shown, *other, return_exceptions=True)
        voice.close()


def environment_of(loaded: LoadedManifest) -> dict[str, str]:
    """Give the environment of a set's processes, the whole of it: modules beside the manifest are found."""
    path = os.pathsep.join(filter(None, (str(loaded.folder), os.environ.get("PYTHONPATH", ""))))
    return {**os.environ, "PYTHONPATH": path}


async def _detach(runner: Runner, voice: Voice, wait_s: float) -> int:
    """Start, wait for a primary and for the HTTP ports, and leave."""
    work = asyncio.create_task(runner.run())
    deadline = time.monotonic() + wait_s
    closed: list[str] = []
    try:
        while time.monotonic() < deadline:
            done, _ = await asyncio.wait((work,), timeout=0.1)
            if done:
                return work.result()
            view = await runner.look()
            voice.view(view)
            if view.serving and not (closed := await _closed_doors(runner, view)):
                voice.say("note", "it goes on in the background: `deathless status`, `deathless down`")
                return 0
        what = f"a primary, but nothing listens for HTTP at {', '.join(closed)}" if closed else "no primary"
        raise PeerUnreachable(
            f"{what} within {wait_s:g} s; the replicas go on trying",
            remedy=f"see the logs in {runner.parts[0].directory}/replicas",
        )
    finally:
        work.cancel()
        await asyncio.gather(work, return_exceptions=True)
        runner.close()


async def _closed_doors(runner: Runner, view: ServiceView) -> list[str]:
    """HTTP addresses where nothing listens yet; replicas that stay stopped are not waited for."""
    from deathless.shell.net.reachable import closed_doors

    stopped = {one.replica for one in view.replicas if one.state == "dead" and one.condition}
    return await closed_doors(replica.config for name, replica in runner.replicas.items() if name not in stopped)


async def _show(runner: Runner, voice: Voice, tails: dict[str, LogTail]) -> DeathlessError:
    """Show the replicas and what they log, until cancelled or all replicas refuse to run; gives why they do."""
    while True:
        for name, tail in tails.items():
            for line in tail.read():
                voice.log(name, line)
        try:
            view = await runner.look()
        except DeathlessError as error:  # for instance replicas that were started with another token
            voice.trouble(error)
            await asyncio.sleep(LOOK_S)
            continue
        voice.view(view)
        refusal = None if runner.stopping else runner.refusal(view)
        if refusal is not None:
            return refusal
        await asyncio.sleep(LOOK_S)


class Voice:
    """Tells the user what happens, in the way that fits the place.

    Args:
        level: log lines below it are left out.
        live: draw a table that lives.
        as_json: one JSON object a line.
    """

    def __init__(self, level: str, *, live: bool, as_json: bool) -> None:
        self._from = LEVELS.index(level)
        self._as_json = as_json
        self._live = None
        self._summary = ""
        self._said: dict[str, float] = {}  # reason -> when it was told last
        self.joined = False  # the replicas ran already
        if live:
            from rich.live import Live

            self._live = Live(console=console(), auto_refresh=False)
            self._live.start()

    def say(self, kind: str, text: str, replica: str = "") -> None:
        """Tell one thing."""
        if self._as_json:
            print_json_line({"event": kind, "replica": replica, "text": text, "time": time.time()})
            return
        line = f"{time.strftime('%H:%M:%S')}  {replica + '  ' if replica else ''}{text}"
        if self._live is not None:
            from rich.text import Text

            self._live.console.print(Text(line, style=EVENT_STYLES.get(kind, "")))
        else:
            print(line, flush=True)

    def trouble(self, error: DeathlessError) -> None:
        """Tell once why the replicas can't be looked at."""
        if error.message != self._summary:
            self._summary = error.message
            self.say("trouble", str(error))

    def event(self, event: RunnerEvent) -> None:
        """Tell what happened to a supervisor."""
        text = event.text.replace("\n", "; ")
        if self._as_json:
            print_json_line(
                {
                    "event": event.change.value,
                    "replica": event.replica,
                    "pid": event.pid,
                    "text": text,
                    "time": time.time(),
                }
            )
            return
        process = f" (process {event.pid})" if event.pid else ""
        self.say(event.change.value, f"{event.change.value}{process}{': ' + text if text else ''}", event.replica)

    def log(self, replica: str, line: LogLine) -> None:
        """Tell what a replica logged."""
        if LEVELS.index(line.level) < self._from if line.level in LEVELS else False:
            return
        # Three replicas that stop for one reason say it nine times.
        now = time.monotonic()
        if line.why and now - self._said.get(line.why, -SAME_S) < SAME_S:
            return
        self._said = {why: at for why, at in self._said.items() if now - at < SAME_S} | {line.why: now}
        text = " ".join(filter(None, (line.process, line.level.upper(), line.text + ":" * bool(line.why), line.why)))
        self.say("log", text.replace("\n", "; "), replica)

    def view(self, view: ServiceView) -> None:
        """Show the replicas; without a live table only what changed."""
        now = summary(view)
        if self._live is not None:
            from rich.console import Group
            from rich.text import Text

            keys = "Ctrl-C leaves them running" if self.joined else "Ctrl-C stops in order, twice at once"
            foot = Text(keys, style="dim")
            tables = [live_table(view), *live_drivers(view)]
            self._live.update(Group(Text(), Text(now, style="bold"), *tables, foot), refresh=True)
        elif now != self._summary and view.replicas:
            if self._as_json:
                print_json_line({"event": "status", "status": view, "time": time.time()})
            else:
                self.say("status", now)
        self._summary = now

    def close(self) -> None:
        """Let the terminal go."""
        if self._live is not None:
            self._live.stop()
            self._live = None
        sys.stdout.flush()


@click.command()
@service_options
@json_option
def down(manifest: str, directory: str, as_json: bool) -> int:
    """Stop a service in order, with all its shards: followers first, the primary last.

    \b
    deathless down -f examples/bank/service.yaml
    """
    from deathless.shell.operate.runner import stop_all

    found = target(manifest, directory, every=True)
    if named_shard() is not None:
        raise InvalidArgument("a service is stopped as a whole", remedy="omit --shard")
    voice = Voice("error", live=False, as_json=as_json)
    folder = Path(found.config.service_directory)
    wait_s = found.config.make_limits().handover_wait_s
    stopped = asyncio.run(stop_all(folder, found.parts, voice.event, handover_wait_s=wait_s))
    if not stopped:
        voice.say("note", f"nothing runs in {folder}")
    return 0
