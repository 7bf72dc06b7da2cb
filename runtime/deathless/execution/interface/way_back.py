"""Can a service go back to an older version by what the code that serves declares: types and names alone.

    way_back(now, former, changes) -> WayBack      `exists`, or misfits that say what is missing

The code that serves makes the older version's bytes of its own, because the older code knows nothing of a later one
(design 0026, "Going back"). So it is asked here for the interface of both, and for what the author of the later code
declares: `migrate`, `migrate_map` and `accepts` with `to=`, and `renamed`.

Fields that the later version added are no misfit here: whether a key holds one is seen when the older code reads what
was made, which refuses what it does not know.

Guarantees: a function of its arguments. Does not: look at values. Imports nothing but the declarations and the shapes.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from deathless.base.topics.row_schema import columns_gone
from deathless.execution.author.changes import Changes, Gap, Hop
from deathless.execution.interface.comparison import (
    UnderWay,
    Use,
    items_apart,
    no_down_migration,
    once,
    without_items,
)
from deathless.execution.interface.interface import Interface
from deathless.execution.interface.misfit import Misfit
from deathless.execution.interface.reading import reads
from deathless.execution.interface.shapes import Shapes

SEEN_IN_VALUES: Final = ("FieldDropped", "MapGone")
"""Mismatches of types that the older code finds in what was made, with counts."""


@dataclass(slots=True, kw_only=True)
class WayBack:
    """What came of it."""

    hops: list[Hop] = field(default_factory=list)  # from the version that serves to the older one, in order
    misfits: list[Misfit] = field(default_factory=list)
    notes: list[Misfit] = field(default_factory=list)  # what is another again, and may be

    @property
    def exists(self) -> bool:
        """Nothing is missing."""
        return not self.misfits

    @property
    def runs(self) -> bool:
        """Functions of the author's make other states."""
        return any(hop.state or hop.maps for hop in self.hops)


def way_back(now: Interface, former: Interface, changes: Changes, under_way: UnderWay | None = None) -> WayBack:
    """Look for a way back.

    Args:
        now: interface of the code that serves, or is to serve.
        former: of the older code, whose version is lower.
        changes: what the author of the later code declares.
        under_way: what waits, by the names of the later code; None: nobody knows.
    """
    return _Looking(now, former, changes, under_way or UnderWay()).run()


class _Looking:
    """One look."""

    def __init__(self, now: Interface, former: Interface, changes: Changes, under_way: UnderWay) -> None:
        self._now = now
        self._former = former
        self._changes = changes
        self._under_way = under_way
        self._found = WayBack()
        self._versions = f"from_={now.version}, to={former.version}"
        self._name = changes.service.name.replace("-", "_")

    def run(self) -> WayBack:
        """Look at all."""
        now, former = self._now, self._former
        if now.single != former.single:
            words = ("one object", "keys")
            has, had = words if now.single else reversed(words)
            what = f"the service has {has} in version {now.version} and had {had} in version {former.version}"
            self._misfit("KeyingChanged", "single", what, "no migration does that yet; go on with the code that serves")
            return self._found
        self._state()
        self._handlers()
        self._activities()
        self._schedules()
        self._topics()
        self._limits()
        return self._found

    def _misfit(self, word: str, subject: str, what: str, remedy: str, use: Use | None = None) -> None:
        use = use or Use(0)
        self._found.misfits.append(Misfit(word, subject, what, remedy, use.count, "message", 0, use.first))

    def _state(self) -> None:
        changes, former, version = self._changes, self._former, self._now.version
        up, back = changes.way(former.version), changes.way(version, former.version)
        if isinstance(back, Gap):
            what = f"{former.state_name} has no way back to version {former.version}: {back.why}"
            self._misfit("NoDownMigration", former.state_name, what, f"write @{self._name}.migrate({self._versions})")
            return
        missing = None if isinstance(up, Gap) else no_down_migration(changes, up, former, version)
        if missing is not None:
            self._found.misfits.append(missing)
            return
        if any(hop.key for hop in back):
            what = "keys would be renamed, and callers would go on with the names of the version that serves"
            self._misfit("KeysRenamed", "keys", what, "keep the names of keys")
        self._found.hops = back
        made = back[-1].new if back else changes.service.state
        shapes, apart = Shapes(), items_apart(back)
        writer = shapes.state(made)
        readers, writers = (
            without_items(former.classes, former.state, apart),
            without_items(shapes.classes, writer, apart),
        )
        reading = reads(former.state, readers, writer, writers, subject=made.__name__)
        for each in once(reading.mismatches):
            if each.word not in SEEN_IN_VALUES:
                what = each.what.format(old=f"version {version}", new=f"version {former.version}")
                self._misfit(each.word, each.subject, what, f"give it in @{self._name}.migrate({self._versions})")

    def _then(self, name: str) -> str:
        return self._changes.name_then(name, self._former.version)

    def _handlers(self) -> None:
        """A handler that waits goes on only as one of the same kind; one that is not there is told by what waits."""
        before = {each.name: each for each in self._former.rows}
        for each in (*self._now.handlers, *self._now.rows):
            waiting = self._under_way.handlers.get(each.name)
            then = before.get(each.name) or self._former.handler(self._then(each.name))
            if waiting is not None and then is not None and then.way != each.way:
                what = f"{each.name} is a {each.way} and was a {then.way}"
                self._misfit("KindChanged", each.name, what, "let what waits for it end", waiting)

    def _activities(self) -> None:
        known = self._under_way.activities
        if known is not None and not known:
            return  # none is pending
        former = {each.name: each for each in self._former.activities}
        for each in self._now.activities:
            then = former.get(self._then(each.name))
            if then is not None and then.at_most_once != each.at_most_once:
                ways = ("at most once", "at least once")
                runs, ran = ways if each.at_most_once else reversed(ways)
                what = f"activity {each.name} runs {runs} and ran {ran}"
                self._misfit("KindChanged", each.name, what, "let what is pending end")

    def _schedules(self) -> None:
        former = {each.name: each for each in self._former.schedules}
        for each in self._now.schedules:
            then = former.get(self._then(each.name))
            if then is None:
                what = f"schedule {each.name} of version {self._now.version} ends"
                self._found.notes.append(Misfit("ScheduleGone", each.name, what))
            elif (then.times, then.method, then.key) != (each.times, self._then(each.method), each.key):
                what = f"schedule {then.name} runs {then.method} again ({then.times}, key {then.key!r})"
                self._found.notes.append(Misfit("ScheduleChanged", each.name, what))

    def _topics(self) -> None:
        """Readers have rows of the later code already, and go on with those of the older one."""
        former = self._former.schemas
        for name, held in self._now.schemas.items():
            if name not in former:
                what = f"topic {name} of version {self._now.version} gets no more rows"
                self._found.notes.append(Misfit("TopicGone", name, what))
            elif why := former[name].misfit(held):
                what = f"rows of topic {name} in version {self._former.version}: {why}"
                self._misfit("TopicChanged", name, what, "go on with the code that serves")
            elif gone := columns_gone(held, former[name]):
                what = f"rows of topic {name} get no more values in {', '.join(gone)}"
                self._found.notes.append(Misfit("ColumnGone", name, what))

    def _limits(self) -> None:
        for name, held in self._now.limits.items():
            then = self._former.limits.get(name, held)
            if then < held:
                what = f"limit {name} is {held:,} and would be {then:,}"
                self._misfit("LimitLowered", name, what, "keep the limit")
