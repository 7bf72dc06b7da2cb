"""What a process finds that starts with a log, its checkpoints and a lock store, in the model of upgrades.

Why it exists: in every state of ``upgrade_model`` everybody may end, and be started again. So each state is judged by
what the starts find then: which generations may lead or upgrade, and with which history.

What it guarantees: an answer is a function of what is durable and of the generation, and is found once. Does not:
change anything. Imports ``upgrade_log``, ``upgrade_rules``, of ``takeover_log`` the error of a missing file. Pure.
"""

from enum import StrEnum
from typing import NamedTuple

from deathless.simulation.models.takeover_log import MissingFileError
from deathless.simulation.models.upgrade_log import (
    Checkpoint,
    Files,
    Log,
    Place,
    Ran,
    Upgraded,
    View,
    first_record,
    opened_above,
    read_log,
    route,
)
from deathless.simulation.models.upgrade_rules import Check, Generation, Loading, Rules, Told


class Violation(StrEnum):
    """What must never be reached."""

    LOST = "a released frame is lost, or two orders were released"
    OTHER_CODE = "code runs what other code wrote and answered, or loads its state"
    TWO_VERSIONS = "a former generation releases something that the log of the new one does not hold"
    STALL = "everybody is started again and nobody can lead"
    OUTAGE = "a replica that can not lead deposes one that serves"


class Durable(NamedTuple):
    """All that outlives the processes, and that a start looks at."""

    files: Files
    checkpoints: frozenset[Checkpoint]
    head: int
    # The generation in a key of its own; moved by rules that have one.
    key: Generation
    # The log and the checkpoints of the former generation are gone.
    collected: bool
    # Whether the migration works; None: nobody has tried.
    migration: bool | None


class Start(NamedTuple):
    """What a process finds that begins with head's log."""

    may: bool
    upgrades: bool = False
    view: View = ()
    # Frames before the place of the checkpoint that it loaded.
    loaded: int = 0
    why: str = ""


class BrokenError(Exception):
    """A step does what must never happen."""


class Starts:
    """What starts find under one reading of the protocol."""

    def __init__(self, rules: Rules) -> None:
        """Args: rules: the reading. Raises nothing."""
        self._rules = rules
        self._starts: dict[tuple[Durable, Generation, bool], Start] = {}
        self._judged: dict[tuple[Durable, View], str] = {}

    def judge(self, durable: Durable, released: View) -> str:
        """Return what must never be found if everybody is started again, or an empty string."""
        known = (durable, released)
        if known not in self._judged:
            try:
                self._judged[known] = self._start_all(durable, released)
            except BrokenError as error:
                self._judged[known] = str(error)
            except MissingFileError as error:
                self._judged[known] = f"{Violation.STALL}: {error}"
        return self._judged[known]

    def _start_all(self, durable: Durable, released: View) -> str:
        if self._rules.restores_max and opened_above(durable.files, durable.head):
            durable = durable._replace(head=opened_above(durable.files, durable.head))  # The operator adopts.
        refusals = []
        for who in self._rules.generations:
            start = self.start(durable, who)
            if start.may and not start.upgrades:
                if start.view[: len(released)] != released:
                    return f"{Violation.LOST}: a start of generation {who.number}{who.code} serves another history"
            else:
                refusals.append(start.why or "it could only upgrade")
        return f"{Violation.STALL}: {'; '.join(refusals)}" if len(refusals) == len(self._rules.generations) else ""

    def start(self, durable: Durable, who: Generation, *, hot: bool = False) -> Start:
        """Return what a process of this generation finds.

        Args:
            durable: what there is.
            who: its generation.
            hot: it was started earlier, and goes by what it found then where the rules say so.

        Raises:
            BrokenError: it does what must never happen.
            MissingFileError: something that the log refers to is not there.
        """
        known = (durable, who, hot)
        if known not in self._starts:
            self._starts[known] = self._find_start(durable, who, hot=hot)
        return self._starts[known]

    def _find_start(self, durable: Durable, who: Generation, *, hot: bool) -> Start:
        rules = self._rules
        if rules.restores_max and opened_above(durable.files, durable.head):
            return Start(may=False, why="the log is newer than the lock store")
        log = read_log(durable.files, durable.head)
        of_head = self._of_head(durable)
        if who == of_head or (not rules.number_compared and who.code == of_head.code):
            return self._lead(durable, who, log)
        if who.number == of_head.number + 1:
            fed = self.start(durable, of_head)
            return fed._replace(upgrades=True) if fed.may else fed._replace(why=f"nobody feeds it: {fed.why}")
        if rules.check is Check.NEVER or (hot and rules.check is Check.AT_START):
            return self._lead(durable, who, log)
        if 1 < who.number <= of_head.number and not rules.from_under_lock:
            former = next(each for each in rules.generations if each.number == who.number - 1)
            return Start(may=True, upgrades=True, view=run_with(log, former.code))
        return Start(may=False, why=f"generation {who.number}{who.code} meets {of_head.number}{of_head.code}")

    def _of_head(self, durable: Durable) -> Generation:
        """Return the generation that head says goes on."""
        if self._rules.told in {Told.KEY_THEN_HEAD, Told.HEAD_THEN_KEY}:
            return durable.key
        return first_record(durable.files, durable.head).writer

    def _lead(self, durable: Durable, who: Generation, log: Log) -> Start:
        """Return how a process of the generation gets its state: by a checkpoint of its own, or from the log alone."""
        rules = self._rules
        if rules.told is Told.MESSAGE:
            if durable.migration is False and any(isinstance(name, Upgraded) for name in log.place):
                return Start(may=False, why="the migration that the log asks for fails")
            return Start(may=True, view=tuple(Ran(each.frame.name, each.frame.writer.code) for each in log.frames))
        if who.number == 1:
            newest = max(durable.checkpoints, key=newest_last, default=None)
            if not rules.others_passed_over and newest is not None and newest.of != who:
                return Start(may=False, why="the newest checkpoint is of another generation")
            if durable.collected:
                return Start(may=False, why="the log of generation 1 is collected")
            view = run_with(log, who.code)
            check_code(log, view)
            return Start(may=True, view=view)
        for checkpoint in self._loadable(durable, who, log):
            if checkpoint.of != who:
                raise BrokenError(f"{Violation.OTHER_CODE}: the state of generation {checkpoint.of.number} is loaded")
            loaded = len(checkpoint.name[0])
            view = checkpoint.view + run_with(log, who.code)[loaded:]
            check_code(log, view)
            return Start(may=True, view=view, loaded=loaded)
        if rules.former_code_again and not durable.collected:
            again = 0 if rules.migration_repeats else -1
            ran = (Ran(f.name, f.writer.code, again if isinstance(f.name, Upgraded) else 0) for f, _ in log.frames)
            return Start(may=True, view=tuple(ran))
        return Start(may=False, why=f"there is no checkpoint of generation {who.number}{who.code}")

    def _loadable(self, durable: Durable, who: Generation, log: Log) -> list[Checkpoint]:
        """Return the checkpoints that a process of the generation may load, the one that it loads first."""
        first, place = self.first_checkpoint(durable, log), log.place
        own = sorted((each for each in durable.checkpoints if each.of == who), key=newest_last)
        if self._rules.loading is Loading.NEWEST:
            longest = [each for each in own if len(each.name[0]) == len(own[-1].name[0])]
            return sorted(longest, key=lambda each: each.name[0] == place[: len(each.name[0])])
        if first is None:
            return []
        named = [each for each in durable.checkpoints if each.name == first]
        length = len(first[0])
        return named + [
            each for each in own if len(each.name[0]) > length and each.name[0] == place[: len(each.name[0])]
        ]

    def first_checkpoint(self, durable: Durable, log: Log) -> tuple[Place, int] | None:
        """Return the name of the checkpoint that the last upgrade in the log made."""
        if self._rules.told is Told.RECORD:
            at = max((i for i, name in enumerate(log.place) if isinstance(name, Upgraded)), default=None)
            return None if at is None else (log.place[: at + 1], self.number_in_name(self._of_head(durable)))
        cuts = (first_record(durable.files, epoch).first for epoch in route(durable.files, durable.head))
        return next((name for name in cuts if name is not None), None)

    def number_in_name(self, generation: Generation) -> int:
        """Return what a checkpoint's name tells of its generation: the number, or 0 where names hold none."""
        return generation.number if self._rules.generation_in_name else 0


def check_code(log: Log, view: View) -> None:
    """Compare the code that ran each frame of the log with the code that wrote it.

    Raises:
        BrokenError: they differ.
    """
    wrote = {placed.frame.name: placed.frame.writer.code for placed in log.frames}
    for ran in view:
        if wrote.get(ran.name, ran.code) != ran.code:
            name = "UPGRADED" if isinstance(ran.name, Upgraded) else f"{ran.name.epoch}.{ran.name.number}"
            raise BrokenError(f"{Violation.OTHER_CODE}: code {ran.code} runs {name} of code {wrote[ran.name]}")


def run_with(log: Log, code: str) -> View:
    """Return what a state is made of that ran the whole log with one code."""
    return tuple(Ran(name, code) for name in log.place)


def newest_last(checkpoint: Checkpoint) -> tuple[int, str]:
    """Return what sorts checkpoints by their lsn, and those of one lsn always in the same order."""
    return len(checkpoint.name[0]), repr(checkpoint)
