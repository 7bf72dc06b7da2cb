"""`deathless demo`: a replicated bank in one terminal, to kill and freeze.

With a terminal the user presses keys and looks; without one (or with --script) it breaks everything in turn and ends
with a verdict and a fitting exit code. Everything is real: processes, files, signals; nothing is simulated.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from deathless.base.errors import DeathlessError, OutcomeUnknown, PeerUnreachable
from deathless.cli.options import json_option
from deathless.cli.output import console, is_terminal, print_json
from deathless.cli.views import live_table

if TYPE_CHECKING:
    from rich.console import RenderableType

    from deathless.base.config import ReplicaConfig
    from deathless.cli.demo.faults import Faults, Incident
    from deathless.cli.demo.load import Load, Verdict
    from deathless.shell.operate.runner import Runner, RunnerEvent
    from deathless.shell.operate.status import ServiceView
    from deathless.shell.operate.target import Target

SERVICE = "demo-bank"
REPLICAS = 3
START_S = 30.0
WHOLE_S = 25.0
ANSWERS_S = 20.0  # for calls that are owed an answer at the end
SCRIPT = (
    ("kill", "primary"),
    ("kill", "checkpointer"),
    ("kill", "standby"),
    ("freeze", "primary"),
    ("kill-all", "primary"),
)
GENERATIONS = 3  # behind all upgrades of --upgrade
KEYS = {
    "k": ("kill", "primary"),
    "K": ("kill-all", "primary"),
    "c": ("kill", "checkpointer"),
    "s": ("kill", "standby"),
    "f": ("freeze", "primary"),
    "w": ("switchover", "primary"),
}
HELP = (
    "k kill -9 the primary   K with its supervisor   c the checkpointer   s the standby   f freeze the primary 10 s   "
    "w switchover   q quit"
)
COUNT_S = 1.5  # between two looks at what the accounts say
TAIL = 6  # lines of what happened that stay on the screen


@click.command()
@click.option(
    "--script", is_flag=True, help="Cause every fault in turn instead of reading keys; the default without a terminal."
)
@click.option(
    "--upgrade",
    "upgrades",
    is_flag=True,
    help="Give the bank other code while it is called, with kills at the worst moments, instead of other faults.",
)
@click.option("--keep", is_flag=True, help="Keep the folder with log and checkpoints.")
@click.option("--seed", default=1, show_default=True, help="Seed for random amounts and accounts.")
@json_option
def demo(script: bool, upgrades: bool, keep: bool, seed: int, as_json: bool) -> int:
    """Run a bank with three replicas as real processes and a client that counts; keys kill and freeze processes.

    Shows role, epoch, lsn and lag of each replica, calls sent and answered, and the seconds without service of each
    takeover. At the end it compares the answers with the accounts. The exit code is 0 only if nothing
    was lost, nothing doubled and the total is conserved.

    \b
    deathless demo
    deathless demo --script --keep
    deathless demo --upgrade
    """
    interactive = is_terminal() and sys.stdin.isatty() and not (script or upgrades or as_json)
    folder = Path(tempfile.mkdtemp(prefix="deathless-demo-"))
    show = Screen(quiet=as_json, live=interactive)
    good = False
    try:
        verdict = asyncio.run(Demo(folder, seed, show, upgrades=upgrades).run(interactive=interactive))
        good = verdict["good"] is True
        if as_json:
            print_json(verdict)
        return 0 if good else 1
    finally:
        show.close()
        if keep or not good:
            show.say(f"log and checkpoints are in {folder}")
        else:
            shutil.rmtree(folder, ignore_errors=True)


class Demo:
    """One run."""

    def __init__(self, folder: Path, seed: int, show: Screen, *, upgrades: bool = False) -> None:
        self._folder = folder
        self._upgrades = upgrades
        self._modules = ["deathless.cli.demo.service:bank"]  # the code that it starts with, and those that follow
        self._seed = seed
        self._show = show
        self._config: ReplicaConfig
        self._load: Load
        self._faults: Faults
        self._runner: Runner

    async def run(self, *, interactive: bool) -> dict[str, object]:
        """Start, break, judge, stop; gives the verdict for --json."""
        await self._prepare()
        self._runner.open()
        running = asyncio.create_task(self._runner.run())
        try:
            with keys() if interactive else contextlib.nullcontext() as pressed:
                await self._start(running)
                if self._upgrades:
                    await self._by_upgrades()
                else:
                    await (self._by_script() if pressed is None else self._by_keys(pressed))
            self._faults.thaw()
            verdict = await self._judge()
        finally:
            self._faults.thaw()
            await self._load.close()
            await self._stop(running)
        return self._tell_verdict(verdict)

    async def _prepare(self) -> None:
        from deathless.base.config import ReplicaConfig
        from deathless.cli.demo.faults import Faults
        from deathless.cli.demo.load import Load
        from deathless.shell.operate.runner import Runner
        from deathless.shell.operate.target import Target

        if self._upgrades:
            from deathless.cli.demo.upgrades import write_sources

            self._modules = write_sources(self._folder)
        configs = [
            ReplicaConfig(
                service=SERVICE,
                module=self._modules[0],
                directory=str(self._folder),
                replica=f"r{index}",
                allow_any_file_system=True,  # all replicas are on this one kernel
            )
            for index in range(REPLICAS)
        ]
        if self._upgrades:
            from deathless.shell.operate.start_code import choose_code

            configs = (await asyncio.to_thread(choose_code, configs, os.environ, kept=False)).configs
        self._config = configs[0]
        found: Target = Target(configs[0], str(self._folder), None)
        self._faults = Faults(found, self._show.say)
        self._load = Load(SERVICE, str(self._folder), seed=self._seed, answered=self._faults.answered)
        self._runner = Runner(configs, tell=self._event)

    def _event(self, event: RunnerEvent) -> None:
        if event.change in ("ended", "failed"):
            self._show.say(f"{event.replica}: supervisor {event.change.value} {event.text}".rstrip())

    async def _start(self, running: asyncio.Task[int]) -> None:
        started = time.monotonic()
        self._show.say(f"starting {REPLICAS} replicas in {self._folder}")
        self._load.start()
        while time.monotonic() - started < START_S:
            if running.done():
                break
            view = await self._faults.look()
            self._show.view(view, self._load, self._faults)
            if view.serving and self._load.answered:
                self._show.say(
                    f"{view.primary} is primary after {time.monotonic() - started:.1f} s; calls are answered"
                )
                break
            await asyncio.sleep(0.1)
        else:
            raise PeerUnreachable(
                f"no primary after {START_S:g} s", remedy=f"see {self._folder}/replicas/r0/replica.log"
            )
        if running.done():
            from deathless.shell.operate.replica_log import last_words

            raise PeerUnreachable("the replicas ended", remedy=last_words(self._folder / "replicas" / "r0"))
        if await self._faults.wait_whole(REPLICAS, WHOLE_S) is None:
            self._show.say("not all replicas have a role yet")

    # ---- what is broken --------------------------------------------------------------------------------------

    async def _by_script(self) -> None:
        for kind, role in (*SCRIPT, ("switchover", "primary")):
            incident = await self._faults.do(kind, role)
            if incident is None:
                self._faults.incidents.append(_missed(kind, role))
                continue
            view = await self._faults.wait_whole(REPLICAS, WHOLE_S)
            if view is None:
                incident.problem = incident.problem or f"the replicas were not all back after {WHOLE_S:g} s"
            elif role == "primary" and view.epoch <= incident.epoch and not incident.problem:
                incident.problem = "nobody took over"
            self._show.say(f"  {incident.gap_s:.2f} s without service; {self._load.answered:,} calls answered")
            if view is not None:
                self._show.view(view, self._load, self._faults)

    async def _by_upgrades(self) -> None:
        from deathless.cli.demo.upgrades import Upgrades

        _, second, third = self._modules
        work = Upgrades(self._config, self._faults, self._show.say)
        for step, module in ((work.before_the_commit, second), (work.behind_the_commit, second)):
            await self._upgraded(await step(module))
        last = await work.undisturbed(third)
        await self._upgraded(last)
        generation = await work.generation()
        if generation != GENERATIONS:
            last.problem = last.problem or f"the log is of generation {generation}"

    async def _upgraded(self, incident: Incident) -> None:
        if await self._faults.wait_whole(REPLICAS, WHOLE_S) is None:
            incident.problem = incident.problem or f"the replicas were not all back after {WHOLE_S:g} s"
        self._show.say(f"  {incident.gap_s:.2f} s without service; {self._load.answered:,} calls answered")

    async def _by_keys(self, pressed: asyncio.Queue[str]) -> None:
        done: set[asyncio.Task[object]] = {asyncio.create_task(self._count())}
        while True:
            view = await self._faults.look()
            self._show.view(view, self._load, self._faults)
            with contextlib.suppress(TimeoutError):
                key = await asyncio.wait_for(pressed.get(), 0.2)
                if key in ("q", "\x04"):
                    break
                if key in KEYS:
                    task: asyncio.Task[object] = asyncio.create_task(self._faults.do(*KEYS[key]))
                    done.add(task)
                    task.add_done_callback(done.discard)
        for task in done:
            task.cancel()
        await asyncio.gather(*done, return_exceptions=True)

    async def _count(self) -> None:
        """Compare answers and accounts again and again, for the screen."""
        while True:
            with contextlib.suppress(DeathlessError):
                self._show.counted = await self._load.judge(COUNT_S)
            await asyncio.sleep(COUNT_S)

    # ---- the end ---------------------------------------------------------------------------------------------

    async def _judge(self) -> Verdict:
        self._show.say("waiting for the answers that are owed, then comparing them with the accounts")
        await self._load.finish(ANSWERS_S)
        try:
            return await self._load.judge(ANSWERS_S)
        except (PeerUnreachable, OutcomeUnknown) as error:
            raise type(error)(f"the service does not answer, so there is no verdict: {error.message}") from None

    async def _stop(self, running: asyncio.Task[int]) -> None:
        await self._runner.stop()
        _, late = await asyncio.wait((running,), timeout=15.0)
        if late:
            self._runner.kill()
            await asyncio.wait((running,), timeout=5.0)
        self._runner.close()
        if self._upgrades:
            from deathless.cli.demo.upgrades import end_what_is_left

            end_what_is_left(self._folder)

    def _tell_verdict(self, verdict: Verdict) -> dict[str, object]:
        incidents = self._faults.incidents
        problems = [incident for incident in incidents if incident.problem]
        good = verdict.good and not problems
        say = self._show.say
        self._show.close()
        say("")
        say(f"calls sent {verdict.sent:,}, answered {verdict.answered:,}, applied {verdict.applied:,}")
        say(f"deposited {verdict.deposited:,}, in all accounts {verdict.total:,}")
        for incident in incidents:
            say(f"  {incident.line}")
        for example in verdict.examples:
            say(f"  {example}")
        say(f"verdict: {verdict.words}{'' if good else ' - FAILED'}")
        return {
            "good": good,
            "verdict": verdict.words,
            "calls": verdict,
            "incidents": [
                {"what": i.words, "role": i.role, "replica": i.replica,
                 "secondsWithoutService": round(i.gap_s, 3), "problem": i.problem}
                for i in incidents
            ],
        }  # fmt: skip


def _missed(kind: str, role: str) -> Incident:
    from deathless.cli.demo.faults import WORDS, Incident

    return Incident(
        WORDS[kind].format(role=role), role, "-", time.monotonic(), 0, over=True, problem=f"there was no {role}"
    )


class Screen:
    """What the user sees: lines, and with a terminal the table below them."""

    def __init__(self, *, quiet: bool, live: bool) -> None:
        self.counted: Verdict | None = None  # the last comparison while calls went on
        self._quiet = quiet
        self._started = time.monotonic()
        self._live = None
        if live:
            from rich.live import Live

            self._live = Live(console=console(), auto_refresh=False, transient=True)
            self._live.start()

    def say(self, text: str) -> None:
        """Tell one thing."""
        if self._quiet:
            return
        line = f"{time.monotonic() - self._started:6.1f} s  {text}" if text else ""
        if self._live is not None:
            from rich.text import Text

            self._live.console.print(Text(line))
        else:
            print(line, flush=True)

    def view(self, view: ServiceView, load: Load, faults: Faults) -> None:
        """Draw the table anew; without a terminal nothing."""
        if self._live is not None:
            self._live.update(_picture(view, load, faults, self.counted), refresh=True)

    def close(self) -> None:
        """Let the terminal go."""
        if self._live is not None:
            self._live.stop()
            self._live = None


def _picture(view: ServiceView, load: Load, faults: Faults, counted: Verdict | None) -> RenderableType:
    from rich.console import Group
    from rich.text import Text

    waiting = time.monotonic() - faults.last_answer
    sent, answered = load.sent, load.answered
    counts = Text(f"calls sent {sent:,}   answered {answered:,}   ")
    if counted is not None:
        bad = counted.lost or counted.doubled
        counts.append(f"applied {counted.applied:,}   ")
        counts.append(
            f"lost {counted.lost:,}   doubled {counted.doubled:,}   ", style="bold red" if bad else "bold green"
        )
    counts.append(
        f"no answer for {waiting:.1f} s" if waiting > 0.1 else "answers flow",
        style="bold red" if waiting > 0.1 else "green",
    )
    lines = [
        Text(f"  {incident.line}", style="red" if incident.problem else "") for incident in faults.incidents[-TAIL:]
    ]
    title = Text(
        f"{view.primary or 'nobody'} is primary, epoch {view.epoch}", style="bold green" if view.serving else "bold red"
    )
    return Group(Text(), title, Text(), live_table(view), Text(), counts, *lines, Text(), Text(HELP, style="dim"))


@contextlib.contextmanager
def keys() -> Iterator[asyncio.Queue[str]]:
    """Give the keys that are pressed, one by one, without echo; Ctrl-C is a q, so that it ends with a verdict too.

    The terminal is as it was afterwards.
    """
    import termios
    import tty

    descriptor = sys.stdin.fileno()
    loop = asyncio.get_running_loop()
    pressed: asyncio.Queue[str] = asyncio.Queue(64)

    def readable() -> None:
        data = os.read(descriptor, 64)
        for key in data.decode(errors="replace") or "q":  # the terminal is gone: as if q
            if not pressed.full():
                pressed.put_nowait(key)
        if not data:
            loop.remove_reader(descriptor)

    def interrupted() -> None:
        if not pressed.full():
            pressed.put_nowait("q")

    before = termios.tcgetattr(descriptor)
    tty.setcbreak(descriptor, termios.TCSANOW)  # keys pressed before are kept
    loop.add_reader(descriptor, readable)
    loop.add_signal_handler(signal.SIGINT, interrupted)
    try:
        yield pressed
    finally:
        loop.remove_signal_handler(signal.SIGINT)
        loop.remove_reader(descriptor)
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)
