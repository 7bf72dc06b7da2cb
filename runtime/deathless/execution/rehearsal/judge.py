"""Runs new code on what the former code was told, step by step, and says where others would see a difference.

Between two steps every key of the new code stands as the migration of its former state gives it. So each step is judged
by itself: it is run, compared, and where a key then stands otherwise it is set to what it should be. One bug is counted
as often as it is met, and does not make everything behind it differ.

What can't be set is where a handler that waits has come to. One that asks for something else than it did leaves the
comparison, and with it the key that it holds, until the former one has ended:

    gone    what the former code runs and the new one does not any more     by lsn of the message that began it
    out     keys that the former code holds for one of these; nothing is run for them, their states follow

Guarantees: a function of code, checkpoint and steps; memory grows with the state and with what is under way, not with
the steps. Does not: compare ticks and times of schedules (interfaces say them), nor the order in which peers are sent
to. Imports base and codec.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from deathless.base.errors import CorruptFrame
from deathless.base.limits import Limits
from deathless.base.shards import Sharding
from deathless.codec.frames import Run
from deathless.codec.map_entries import PREFIX, prefix_of, take_apart
from deathless.codec.messages import BEGINNING, Kind, Message, decode, encode
from deathless.codec.peer_messages import SELF, Attempt, Order, Outcome, Target, decode_body
from deathless.codec.snapshot import Snapshot
from deathless.execution.author.service import Service
from deathless.execution.author.signature import map_types
from deathless.execution.executor import Hide, nothing_hidden
from deathless.execution.interface.interface import Interface
from deathless.execution.interface.misfit import Misfit, merged
from deathless.execution.invocations.translation import IDENTITY, Translator
from deathless.execution.migration.items import NO_ITEMS, Items
from deathless.execution.migration.messages import BUILT_IN, Fitting, Refused, Waiting
from deathless.execution.migration.state import Migrator
from deathless.execution.migration.translation import Versions
from deathless.execution.rehearsal.findings import ASPECTS, Coverage, Difference, Findings
from deathless.execution.rehearsal.mirror import Mirror, entries_of
from deathless.execution.rehearsal.recorder import Recorder
from deathless.execution.rehearsal.sameness import Pair, Sameness, same_item, shown_reply, told_apart
from deathless.execution.rehearsal.steps import (
    Advanced,
    Again,
    Called,
    Did,
    Moved,
    Recorded,
    Replaced,
    Sent,
    Step,
    Turned,
)
from deathless.execution.snapshot_migration import Migrated
from deathless.execution.turn.running import PAGE_BYTES, Cells
from deathless.execution.values.key_table import NoKeys

_NOT_RUN: Final = frozenset({"HandlerGone", "AcceptRaised", "AcceptUnfit"})
"""Why a message has no words in the new code; one that merely does not fit is run, and refused by the handler."""
_SHOWN_KEY: Final = 100


class Judge:
    """One run of the new code.

    Args:
        service: with the new code.
        before: interface of the former code.
        start: what that one holds where the run begins.
        migrated: what became of it; it fits.
        limits: of the new code.
        seed: 32 bytes of the service.
        time_us: that migrations are shown, as for `migrated`.
        sharding: which shard this is; None: of a service of one.
        hide: called around turns.
        resync: False where the keys are left as they are, for a test of what that would lead to.

    Raises: InvalidService where states have no way to the new version; CorruptCheckpoint.
    """

    def __init__(  # noqa: PLR0913 - what a run is made of, each by its name
        self,
        service: Service,
        before: Interface,
        start: Snapshot,
        migrated: Migrated,
        *,
        limits: Limits,
        seed: bytes,
        time_us: int,
        sharding: Sharding | None = None,
        hide: Hide = nothing_hidden,
        resync: bool = True,
    ) -> None:
        shards = (sharding or Sharding()).shards
        migrator, translation, self._fitting = None, IDENTITY, None
        if not migrated.compatible:
            migrator = Migrator(service, before, time_us=time_us, limits=limits, shards=shards)
            self._fitting = Fitting(service, before)
            translation = Versions(migrator, self._fitting, before)
        old_state = before.classes[before.state.at]
        maps = bool(map_types(service.state)) or any(each.type.kind == "map" for each in old_state.fields)
        self._mirror = Mirror(start.state, migrator, maps=maps)
        self._declared = service.declared
        self._before = before
        self._version = before.version
        self._resync = resync
        self._executor = executor = Recorder(
            service, limits, seed, NoKeys(), Cells(bytearray(PAGE_BYTES)), hide, sharding
        )
        executor.moved(start.times)
        executor.restore(dict(migrated.snapshot.state), migrated.snapshot.invocations, same_code=False)
        translator = Translator(translation, service.name)
        self._same = Sameness(service, before, executor.comparison(), translator)
        self._findings = Findings()
        specs = (*service.specs.values(), *service.inputs.values())
        self._coverage = {each.name: Coverage(each.name) for each in specs if each.kind != "query"}
        unfit = executor.drop_unfit()

        self._gone = set(unfit)
        self._out: set[bytes] = set()
        for key in unfit.values():
            self._shut(key)

    # ---- what came of it --------------------------------------------------------------------------------------

    @property
    def differences(self) -> list[Difference]:
        """What was found so far."""
        return self._findings.differences()

    @property
    def coverage(self) -> list[Coverage]:
        """How often each handler was met, in the order of the code."""
        return list(self._coverage.values())

    def finish(self, migrated: Migrated) -> list[Misfit]:
        """Compare all states at the end of the run; gives what would not fit if the upgrade were made there.

        Args:
            migrated: all that the former code holds at the end, migrated.
        """
        if not migrated.misfits:
            there, here = migrated.snapshot.state, self._executor.state()
            for entry in there.keys() | here.keys():
                if (pair := self._entries_apart(entry, there.get(entry), here.get(entry))) is not None:
                    self._add("StateDiffers", "", 0, entry, pair)
        return merged(migrated.misfits, self._mirror.misfits)

    def _entries_apart(self, entry: bytes, expected: bytes | None, found: bytes | None) -> Pair | None:
        """Give the difference between two entries of a state; None: there is none, or it is not looked at."""
        if expected == found:
            return None
        if entry[:1] != b"\0":
            return None if entry in self._out else self._same.state(expected, found)
        if not entry.startswith(PREFIX) or take_apart(entry).key in self._out or same_item(expected, found):
            return None
        return _items_in_words(expected, found)

    def _add(self, kind: str, handler: str, lsn: int, key: bytes, pair: Pair) -> None:
        aspect = ASPECTS[kind]
        declared = self._declared.changed(handler, self._version).get(aspect, "")
        shown = key.decode(errors="backslashreplace")[:_SHOWN_KEY]

        self._findings.add(Difference(kind, handler, lsn, shown, pair[0], pair[1], 1, declared))

    # ---- steps ------------------------------------------------------------------------------------------------

    def step(self, step: Step, did: Did) -> Did | None:
        """Run one step and compare.

        Args:
            step: what both codes are told.
            did: what the former one did.

        Returns: what the new code did; None: it was not run.
        Raises: what ends a process (see failure).
        """
        self._mirror.take(did)
        if not did.ran:
            return None

        run = self._run(step)
        spoiled = self._compare(step, did, run)
        self._states(step, did, run, spoiled)
        self._let_in(did)
        return run

    def _run(self, step: Step) -> Did | None:
        """Run a step in the words of the new code; None: it is left out."""
        if isinstance(step, Called | Sent | Again) and (self._fitting is not None or self._out):
            try:
                taken = decode(step.message)
            except CorruptFrame:
                return self._perform(step)
            if taken.kind in BEGINNING:
                fitted = self._fitted(step, taken)
                if fitted is None:
                    return None
                if self._out:
                    named = decode(fitted)
                    if not self._out.isdisjoint(self._executor.keys_named(named.method, named.key, named.args)):
                        return None
                step = msgspec.structs.replace(step, message=fitted)
        return self._perform(step)

    def _fitted(self, step: Called | Sent | Again, taken: Message) -> bytes | None:
        """Give a message that begins a handler in the words of the new code; None: it has none, which was counted."""
        method = taken.method.decode(errors="replace")
        if self._fitting is None or BUILT_IN in method:
            return step.message
        try:
            new = self._fitting.fit(Waiting("", method, taken.key, taken.args))
        except Refused as refused:
            word, _, what, _ = refused.misfit
            if word not in _NOT_RUN or self._before.handler(method) is None:
                return step.message
            if word != "HandlerGone" or self._declared.removed(method, self._version) is None:
                self._add("NotRun", method, step.lsn, taken.key, ("it is run", f"{word}: {what}"))
            return None
        if (new.method, new.arguments) == (method, taken.args):
            return step.message
        return encode(
            taken.kind,
            method=new.method.encode(),
            key=new.key,
            idempotency_key=taken.idempotency_key,
            args=new.arguments,
        )

    def _perform(self, step: Step) -> Did:
        """Tell the executor. Handlers run as deep below `open` as in a shard, so they may recurse as deep there."""
        executor = self._executor
        executor.open()
        try:
            if isinstance(step, Called):
                executor.execute_runs([(Run(1, 1, 0, 1), [step.message])], step.lsn, step.now_us)
            else:
                self._tell(step)
        finally:
            executor.close()
        executor.take_outputs()
        executor.rolling_update()
        [(_, run)] = executor.taken()
        return run

    def _tell(self, step: Step) -> None:
        executor = self._executor
        match step:
            case Sent(lsn, now_us, message, service, shard):
                target = Target(service, shard) if service else SELF
                executor.execute_peer(target, 1, lsn, now_us, [message])
            case Moved(_, times):
                executor.moved(times)
            case Advanced(lsn, times, caught_up):
                executor.advance(lsn, times, caught_up=caught_up)
            case Recorded(lsn, now_us, Kind.OUTCOME, body):
                executor.outcome(lsn, now_us, decode_body(Outcome, body))
            case Recorded(lsn, now_us, Kind.ATTEMPT, body):
                executor.attempt(lsn, now_us, decode_body(Attempt, body))
            case Recorded(lsn, now_us, _, body):
                executor.order(lsn, now_us, decode_body(Order, body))
            case Again(lsn, now_us, parked, message):
                executor.retry(lsn, now_us, parked, message)
            case Replaced(lsn, now_us, service, shard):
                executor.peer_replaced(lsn, now_us, Target(service, shard))
            case _:
                raise AssertionError(f"{step} is told by who calls")

    # ---- turns ------------------------------------------------------------------------------------------------

    def _compare(self, step: Step, did: Did, run: Did | None) -> set[bytes]:
        """Compare the turns of a step; gives the keys whose states are not compared in it."""
        spoiled: set[bytes] = set()
        theirs = _by_invocation(() if run is None else run.turns)
        for invocation, before in _by_invocation(did.turns).items():
            after = theirs.pop(invocation, None)
            keys = _keys_of(before)
            ended = bool(before[-1].reply)
            known = invocation not in self._gone and spoiled.isdisjoint(keys)
            self._cover(before, known=known and run is not None)
            if known and after is not None:
                if not self._differ(step, before, after):
                    continue
            elif known and run is not None and not spoiled:  # else what has left may have caused it
                pair = ("a turn of it", "none, or not yet")
                self._add("TurnsDiffer", self._now(before[0].handler), step.lsn, before[0].key, pair)
            spoiled |= keys
            self._leave(invocation, keys, did, lives=not ended)
        for invocation, after in theirs.items():
            keys = _keys_of(after)
            lives = did.waits if invocation == step.lsn else True
            if invocation not in self._gone and spoiled.isdisjoint(keys) and self._out.isdisjoint(keys):
                self._add("TurnsDiffer", after[0].handler, step.lsn, after[0].key, ("no turn of it yet", "one"))
            spoiled |= keys
            self._leave(invocation, keys, did, lives=lives)
            if lives and invocation != step.lsn:
                for key in keys:  # it waited for one of these with the former code, and does so still
                    self._shut(key)
        if run is None and did.waits:
            self._gone.add(step.lsn)
        elif run is not None and run.waits and not did.waits:
            self._executor.drop(step.lsn)
        return spoiled

    def _differ(self, step: Step, before: Sequence[Turned], after: Sequence[Turned]) -> bool:
        """Compare the turns of one invocation; True: they do not go on alike."""
        handler = after[-1].handler or self._now(before[-1].handler)
        key = before[0].key
        asked = self._same.asked(_asked(before), _asked(after))
        expected, found = before[-1].reply, after[-1].reply
        if asked is None and bool(expected) != bool(found):
            asked = (shown_reply(expected), shown_reply(found))
        if asked is not None:
            self._add("CallsDiffer", handler, step.lsn, key, asked)
        if not (expected and found):
            return asked is not None
        if kind := self._same.reply(handler, expected, found):
            pair = (shown_reply(expected), shown_reply(found))
            if pair[0] == pair[1] and expected[:1] == found[:1]:
                pair = told_apart(expected[1:], found[1:])
            self._add(kind, handler, step.lsn, key, pair)
        return False

    def _leave(self, invocation: int, keys: Iterable[bytes], did: Did, *, lives: bool) -> None:
        """Take an invocation out of the comparison, with what waits for it.

        Args:
            invocation: which.
            keys: that it works on.
            did: what the former code did in this step.
            lives: it goes on there.
        """
        self._executor.drop(invocation)
        if lives:
            self._gone.add(invocation)
        else:
            self._gone.discard(invocation)
        for key in keys:
            if did.held.get(key) or key in self._out:
                self._shut(key)

    def _shut(self, key: bytes) -> None:
        """Take a key out of the comparison, with all that holds it or waits for it."""
        self._out.add(key)
        self._gone.update(self._executor.drop_key(key))
        self._executor.hold_key(key)

    def _cover(self, turns: Sequence[Turned], *, known: bool) -> None:
        name = self._now(turns[0].handler)
        coverage = self._coverage.get(name)
        if coverage is not None:
            if known:
                coverage.turns += len(turns)
            else:
                coverage.left_out += len(turns)

    def _now(self, handler: str) -> str:
        """Give the name of a handler in the new code; of one that is gone, its former one."""
        return self._declared.name_now(handler, self._version) or handler

    # ---- states -----------------------------------------------------------------------------------------------

    def _states(self, step: Step, did: Did, run: Did | None, spoiled: set[bytes]) -> None:
        """Compare the states that either code wrote, and set those that differ to what they should be."""
        written = () if run is None else run.states
        for key in dict.fromkeys((*did.states, *written)):
            follow = key in spoiled or key in self._out
            if self._mirror.migrates and self._mirror.has_many(key) and not follow:
                continue  # as it is at the end
            before = did.states.get(key)
            if before is None and not self._mirror.keeps:
                state, items = self._executor.before().get(key), NO_ITEMS
            else:
                expected = self._mirror.expected(key, before)
                if expected is None:
                    continue  # what can't be migrated is told as such
                state, items = expected
            pair = None if follow else self._pair_of(key, state, items, did, run)
            if pair is not None:
                self._add("StateDiffers", self._wrote(key, did, run), step.lsn, key, pair)
            if follow or (pair is not None and self._resync):
                self._executor.put(key, state, items)

    def _pair_of(self, key: bytes, state: bytes | None, items: Items, did: Did, run: Did | None) -> Pair | None:
        """Give the first difference of a key's state and items; None: there is none."""
        pair = self._same.state(state, self._executor.state_of(key))
        if pair is not None or not self._mirror.keeps:
            return pair
        if self._mirror.migrates:
            found = self._executor.items_of(key)
            wanted = {field: held for field, held in items.items() if held}
            for field in wanted.keys() | found.keys():
                here, there = wanted.get(field, {}), found.get(field, {})
                for item in here.keys() | there.keys():
                    if not same_item(here.get(item), there.get(item)):
                        return _items_in_words(here.get(item), there.get(item))
            return None
        changes = entries_of((*did.maps, *(() if run is None else run.maps)))
        for entry, prefix in changes.items():
            if take_apart(entry).key != key:
                continue
            expected = self._mirror.item(entry)
            if not same_item(expected, now := self._executor.item(prefix, entry)):
                return _items_in_words(expected, now)
        return None

    def _wrote(self, key: bytes, did: Did, run: Did | None) -> str:
        """Give the handler that a state's difference is put down to.

        Where several turns of a step are of the key: the first that left another state of it, or another item; else
        the last one.
        """
        turns = [turned for turned in did.turns if key in turned.states]
        others = [] if run is None else [turned for turned in run.turns if key in turned.states]
        for turned in turns if len(turns) > 1 else ():
            expected = self._mirror.expected(key, turned.states[key])
            found = next((other.states[key] for other in others if other.invocation == turned.invocation), None)
            if expected is not None and self._same.state(expected[0], found) is not None:
                return self._now(turned.handler)
        of_items = [
            turned
            for turned in turns
            if any(change.prefix.startswith(prefix_of(key, "")[:-1]) for change in turned.maps)
        ]
        last = (of_items or turns or others)[-1:]
        return self._now(last[0].handler) if last else ""

    def _let_in(self, did: Did) -> None:
        """Have keys come back that the former code does not hold any more."""
        for key, held in did.held.items():
            if key in self._out and not held:
                self._out.discard(key)
                self._gone.update(self._executor.drop_key(key))


def _by_invocation(turns: Iterable[Turned]) -> dict[int, list[Turned]]:
    found: dict[int, list[Turned]] = {}
    for turned in turns:
        found.setdefault(turned.invocation, []).append(turned)
    return found


def _keys_of(turns: Iterable[Turned]) -> set[bytes]:
    """Give the keys that turns are of, and those that they wrote besides."""
    return {key for turned in turns for key in (turned.key, *turned.states)}


def _asked(turns: Iterable[Turned]) -> list[bytes]:
    return [asked for turned in turns for asked in turned.asked]


def _items_in_words(expected: bytes | None, found: bytes | None) -> Pair:
    if expected is not None and found is not None:
        return told_apart(expected, found)
    return ("an item", "none") if found is None else ("no item", "one")
