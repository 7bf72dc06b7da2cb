"""What an author declares about a version of a service: how what stands becomes what the code expects.

    bank = Service("bank", state=Account, version=2)

    @bank.migrate(from_=1)                       state of a key, from its old type to its new one
    @bank.migrate(from_=2, to=1)                 the way back
    @bank.migrate_map("orders", from_=1)         one item of a map
    @bank.migrate_key(from_=1)                   the name of a key
    @bank.accepts("deposit", from_=1, args=...)  arguments of callers that still have the old code
    @bank.accepts("deposit", from_=2, to=1, ...) arguments of what waits, on the way back
    @bank.carry("saga", from_=1)                 handlers that wait, and that do something else now
    bank.changes(from_=1, ...)                   what went, on purpose

A version is a number of the author's. A function leads from one version to the next, or to another that it names; a way
over several versions is composed of these, and a version without a function keeps its types.

Guarantees: what is declared can be run, or InvalidService names it when the module is imported; what only the whole
module can tell (a way with a gap, a name that does not exist) is found by the comparison. Does not: run anything. May
import base and codec.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, ParamSpec, Protocol, TypeVar, cast

import msgspec

from deathless.base.errors import InvalidService
from deathless.execution.author.carry import Continue, Suspended
from deathless.execution.author.change_signature import (
    read_accepted,
    read_carry,
    read_item_step,
    read_key_step,
    read_state_step,
    scope_of,
)
from deathless.execution.author.foreign_methods import PREFIX
from deathless.execution.author.migration import Migration
from deathless.execution.values.function import Function, place

if TYPE_CHECKING:
    from deathless.execution.author.service import HandlerSpec

Pending = Literal["fail", "refuse"]
"""What becomes of a message that waits for a handler which is removed: it fails, or the upgrade is refused."""

ASPECTS: Final = ("reply", "calls", "state", "times")
"""What of a handler may be declared as changed; times are those of a schedule."""

P = ParamSpec("P")
R = TypeVar("R")
Old = TypeVar("Old")
New = TypeVar("New")
Item = TypeVar("Item", bound=str | int | bytes)
Given = TypeVar("Given")
_SAME: Final = ...  # of a result: as the handler's own


class Step(NamedTuple):
    """A function that leads from one version to another."""

    from_: int
    to: int
    function: Function
    old: object  # annotation of what it takes
    new: object  # annotation of what it gives


class Accepted(NamedTuple):
    """How arguments of an older version become those of a handler."""

    handler: str
    from_: int
    function: Function
    args_type: type[msgspec.Struct]  # what callers of that version send
    result_type: object  # what they expect; `...`: what the handler gives now


class Carried(NamedTuple):
    """How a suspended handler of an older version goes on where the new code does something else."""

    handler: str  # its name in that version
    from_: int
    function: Function


class Lowered(NamedTuple):
    """How arguments of a handler become those of an older version, for what waits when a service goes back."""

    handler: str
    from_: int
    to: int
    function: Function
    args_type: type[msgspec.Struct]  # arguments of the version that is gone back from


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """What went or changed since a version, on purpose."""

    from_: int
    renamed: Mapping[str, str] = field(default_factory=dict)  # old name -> new name
    removed: Mapping[str, Pending] = field(default_factory=dict)
    drops: frozenset[str] = frozenset()  # "Class.field", "limits.name"
    changed: Mapping[str, Mapping[str, str]] = field(default_factory=dict)  # handler or schedule -> aspect -> why


class Hop(NamedTuple):
    """One stretch of a way: what of a key changes between two versions."""

    from_: int
    to: int
    state: Step | None
    maps: Mapping[str, Step]  # by field
    key: Step | None
    old: type  # of the state before
    new: type  # of the state behind it


class Gap(NamedTuple):
    """A way that does not lead there."""

    at: int  # the version behind which a function is missing
    why: str


class _Versioned(Protocol):
    """What declarations know of their service."""

    @property
    def name(self) -> str: ...
    @property
    def state(self) -> type: ...
    @property
    def specs(self) -> Mapping[str, HandlerSpec]: ...
    @property
    def single(self) -> bool: ...


class Changes:
    """All declarations of a service.

    Args:
        service: whose they are.
        version: its own, from 1.

    Raises: InvalidService, as all methods that add do.
    """

    __slots__ = ("accepted", "blocks", "carried", "keys", "lowered", "maps", "service", "states", "version")

    def __init__(self, service: _Versioned, version: int) -> None:
        if type(version) is not int or version < 1:
            raise InvalidService(
                f"service {service.name}: version must be a whole number of at least 1, not {version!r}"
            )
        self.service = service
        self.version = version
        self.states: dict[tuple[int, int], Step] = {}
        self.maps: dict[tuple[str, int, int], Step] = {}
        self.keys: dict[tuple[int, int], Step] = {}
        self.accepted: dict[tuple[str, int], Accepted] = {}
        self.lowered: dict[tuple[str, int], Lowered] = {}  # by handler and the version that is gone back from
        self.carried: dict[tuple[str, int], Carried] = {}
        self.blocks: dict[int, Block] = {}

    # ---- what is declared -----------------------------------------------------------------------------------

    def add_state(self, function: Function, from_: int, to: int, scope: Mapping[str, object]) -> None:
        """Take a migration of states in."""
        where = place(function)
        to = self._stretch(from_, to, where)
        old, new = read_state_step(function, scope)
        step = Step(from_, to, function, old, new)
        if (from_, to) in self.states:
            raise InvalidService(f"{where}: a migration from version {from_} to {to} stands at "
                                 f"{place(self.states[from_, to].function)} already")  # fmt: skip
        for version, stated in ((from_, old), (to, new)):
            known = self.type_of(version)
            if known is not None and known is not stated:
                raise InvalidService(
                    f"{where}: the state of version {version} is {known.__name__} elsewhere, and "
                    f"{getattr(stated, '__name__', stated)} here; a version has one type"
                )
        self.states[from_, to] = step

    def add_map(self, function: Function, name: str, from_: int, to: int, scope: Mapping[str, object]) -> None:
        """Take a migration of items in."""
        where = place(function)
        to = self._stretch(from_, to, where)
        if not name.isidentifier():
            raise InvalidService(f"{where}: migrate_map names the field of the map, not {name!r}")
        if (name, from_, to) in self.maps:
            raise InvalidService(
                f"{where}: items of map {name!r} have a migration from version {from_} to {to} already"
            )
        old, new = read_item_step(function, scope)
        self.maps[name, from_, to] = Step(from_, to, function, old, new)

    def add_key(self, function: Function, from_: int, to: int, scope: Mapping[str, object]) -> None:
        """Take a migration of keys in."""
        where = place(function)
        if self.service.single:
            raise InvalidService(f"{where}: a service of one object has no keys to rename")
        to = self._stretch(from_, to, where)
        if (from_, to) in self.keys:
            raise InvalidService(f"{where}: keys have a migration from version {from_} to {to} already")
        read_key_step(function, scope)
        self.keys[from_, to] = Step(from_, to, function, str, str)

    def add_accepted(
        self, function: Function, handler: str, from_: int, args: type, result: object, scope: Mapping[str, object]
    ) -> None:
        """Take a conversion of arguments in."""
        where = place(function)
        if type(from_) is not int or not 1 <= from_ < self.version:
            raise InvalidService(
                f"{where}: accepts is for callers of an older version, 1 to {self.version - 1}, not {from_!r}"
            )
        _check_named(handler, where)
        if (handler, from_) in self.accepted:
            raise InvalidService(f"{where}: {handler!r} accepts arguments of version {from_} already")
        arguments = read_accepted(function, args, result, scope)
        self.accepted[handler, from_] = Accepted(handler, from_, function, arguments, result)

    def add_lowered(
        self, function: Function, handler: str, stretch: tuple[int, int], args: type, scope: Mapping[str, object]
    ) -> None:
        """Take a conversion of arguments to those of an older version in.

        Args:
            function: it.
            handler: its name now.
            stretch: the versions from which and to which it leads.
            args: what it takes.
            scope: names that its annotations may use.
        """
        where, (from_, to) = place(function), stretch
        if type(from_) is not int or type(to) is not int or not 1 <= to < from_ <= self.version:
            raise InvalidService(
                f"{where}: accepts with to= is the way back, from a version of at most {self.version} to a lower one, "
                f"not from {from_!r} to {to!r}"
            )
        _check_named(handler, where)
        if (handler, from_) in self.lowered:
            raise InvalidService(f"{where}: arguments of {handler!r} have a way back from version {from_} already")
        self.lowered[handler, from_] = Lowered(handler, from_, to, function, read_accepted(function, args, ..., scope))

    def add_carried(self, function: Function, handler: str, from_: int, scope: Mapping[str, object]) -> None:
        """Take in how a suspended handler is carried."""
        where = place(function)
        if type(from_) is not int or not 1 <= from_ < self.version:
            raise InvalidService(
                f"{where}: carry is for handlers of an older version, 1 to {self.version - 1}, not {from_!r}"
            )
        _check_named(handler, where)
        if (handler, from_) in self.carried:
            raise InvalidService(f"{where}: {handler!r} of version {from_} is carried already")
        read_carry(function, self.service.state, scope)
        self.carried[handler, from_] = Carried(handler, from_, function)

    def add_block(self, block: Block) -> None:
        """Take a block in."""
        where = f"service {self.service.name}: changes(from_={block.from_!r})"
        if type(block.from_) is not int or not 1 <= block.from_ <= self.version:
            raise InvalidService(f"{where}: from_ must be an older version, 1 to {self.version - 1}, or this one; "
                                 f"the service has version={self.version}")  # fmt: skip
        if block.from_ == self.version and (block.renamed or block.removed or block.drops):
            raise InvalidService(f"{where}: within a version only `changed` can be said; "
                                 f"for the rest write Service(..., version={self.version + 1})")  # fmt: skip
        if block.from_ in self.blocks:
            raise InvalidService(f"{where}: there is such a block already; write all of it in one")
        for name, pending in block.removed.items():
            if pending not in ("fail", "refuse"):
                raise InvalidService(f"{where}: removed={{{name!r}: ...}} must be 'fail' or 'refuse', not {pending!r}")
        both = sorted(block.renamed.keys() & block.removed.keys())
        if both:
            raise InvalidService(f"{where}: {both[0]!r} is both renamed and removed; say one of the two")
        for name in (*block.renamed, *block.renamed.values()):
            _check_named(name, where)
        targets = list(block.renamed.values())
        twice = next((name for name in targets if targets.count(name) > 1), "")
        if twice:
            raise InvalidService(f"{where}: two names are renamed to {twice!r}")
        for dropped in block.drops:
            if "." not in dropped:
                raise InvalidService(f'{where}: drops names a field as "Class.field", not {dropped!r}')
        for name, aspects in block.changed.items():
            wrong = sorted(set(aspects) - set(ASPECTS))
            if wrong:
                raise InvalidService(f"{where}: of {name!r} may change {', '.join(ASPECTS)}; {wrong[0]!r} is none")
        self.blocks[block.from_] = block

    def _stretch(self, from_: int, to: int, where: str) -> int:
        """Give where a function leads, if it may; `to` 0 is the next version."""
        if type(from_) is not int or from_ < 1:
            raise InvalidService(f"{where}: from_ must be a version, at least 1, not {from_!r}")
        to = to or from_ + 1
        if type(to) is not int or to < 1 or to == from_:
            raise InvalidService(f"{where}: to must be another version, at least 1, not {to!r}")
        if max(from_, to) > self.version:
            raise InvalidService(
                f"{where}: it leads from version {from_} to {to}, but the service has version={self.version}; "
                f"write Service({self.service.name!r}, ..., version={max(from_, to)})"
            )
        for other_from, other_to in self._stretches():
            if other_from == from_ and (other_to > from_) == (to > from_) and other_to != to:
                raise InvalidService(
                    f"{where}: one function leads from version {from_} to {other_to} and this one to {to}; "
                    "all that begin at a version lead to the same one"
                )
        return to

    def _stretches(self) -> Iterator[tuple[int, int]]:
        yield from self.states
        yield from ((from_, to) for _, from_, to in self.maps)
        yield from self.keys

    # ---- what is asked --------------------------------------------------------------------------------------

    def type_of(self, version: int) -> type | None:
        """Give the type of the state of a version, as far as it is said; None: nothing says."""
        if version == self.version:
            return self.service.state
        for (from_, to), step in self.states.items():
            stated = step.old if from_ == version else step.new if to == version else None
            if stated is not None:
                return cast("type", stated)
        return None

    def way(self, before: int, target: int = 0) -> list[Hop] | Gap:
        """Give how what stands of one version becomes that of another, in order; empty: its types stand.

        Args:
            before: the version that stands.
            target: 0: the service's own.
        """
        target = target or self.version
        up = before <= target
        ends = {from_: to for from_, to in self._stretches() if (to > from_) == up}
        hops: list[Hop] = []
        at = before
        held = self._type_ahead(before, up=up)
        while at != target:
            to = ends.get(at)
            if to is None:
                to = at + 1 if up else at - 1
                stated = self.type_of(to)
                if stated is not None and stated is not held and hops:
                    return Gap(at, f"nothing leads from version {at} to {to}")
                held = stated or held
            else:
                if (to > target) == up and to != target:
                    return Gap(at, f"the function of version {at} leads to {to}, past {target}")
                state = self.states.get((at, to))
                after = cast("type", state.new) if state is not None else self.type_of(to) or held
                old = cast("type", state.old) if state is not None else held
                if state is None and after is not old:
                    if hops:
                        return Gap(at, f"no @migrate leads the state from version {at} to {to}")
                    old = after
                maps = {name: step for (name, from_, end), step in self.maps.items() if (from_, end) == (at, to)}
                hops.append(Hop(at, to, state, maps, self.keys.get((at, to)), old, after))
                held = after
            at = to
        return hops

    def _type_ahead(self, before: int, *, up: bool) -> type:
        """Give the type of the first version ahead that says one: those before it have the same."""
        at = before
        while at != self.version:
            known = self.type_of(at)
            if known is not None:
                return known
            at += 1 if up else -1
        return self.service.state

    def carries(self, before: int) -> frozenset[str]:
        """Give the handlers of an older version that are carried where they do not fit."""
        return frozenset(handler for handler, from_ in self.carried if from_ == before)

    def drops(self, before: int) -> frozenset[str]:
        """Give what may be lost on the way from a version: fields as Class.field, limits as limits.name."""
        return frozenset(name for block in self._since(before) for name in block.drops)

    def _since(self, before: int) -> list[Block]:
        return [block for from_, block in sorted(self.blocks.items()) if from_ >= before]

    def name_now(self, name: str, before: int) -> str:
        """Give what a handler, activity or schedule of an older version is called now; empty: it was removed."""
        for block in self._since(before):
            if name in block.removed:
                return ""
            name = block.renamed.get(name, name)
        return name

    def former_names(self) -> dict[str, str]:
        """Give the present name of each handler and query by every name that an older version had for it.

        Whoever knows an older version goes on calling it by that name, so it stays one until the block is deleted. A
        name that a handler of the present version has means that one.
        """
        specs = self.service.specs
        found: dict[str, str] = {}
        for from_, block in sorted(self.blocks.items()):
            for name in block.renamed:
                now = self.name_now(name, from_)
                if now in specs and name not in specs:
                    found[name] = now
        return found

    def older_arguments(self, name: str) -> list[type[msgspec.Struct]]:
        """Give the types of arguments of older versions that a handler or query takes, the newest version first."""
        found = {version: each.args_type for (handler, version), each in self.accepted.items() if handler == name}
        return [found[version] for version in sorted(found, reverse=True)]

    def name_then(self, name: str, target: int) -> str:
        """Give what a handler, activity or schedule of this code was called in an older version, if it was there."""
        for block in reversed(self._since(target)):
            name = next((old for old, now in block.renamed.items() if now == name), name)
        return name

    def removed(self, name: str, before: int) -> Pending | None:
        """Give what becomes of what waits for it, if a name of an older version was removed; None: it was not."""
        for block in self._since(before):
            if name in block.removed:
                return block.removed[name]
            name = block.renamed.get(name, name)
        return None

    def changed(self, name: str, before: int) -> dict[str, str]:
        """Give what is declared as changed of a handler or schedule, by its name now or then: aspect -> why."""
        found: dict[str, str] = {}
        for block in self._since(before):
            found |= block.changed.get(name, {})
            name = block.renamed.get(name, name)
            found |= block.changed.get(name, {})
        return found


def _check_named(name: str, where: str) -> None:
    """Refuse a method where a handler is named: it is called by its number, and takes what its codec says."""
    if name.startswith(PREFIX):
        raise InvalidService(
            f"{where}: {name!r} is called by its number; only removed={{{name!r}: ...}} can be said of it"
        )


def renamed_key(step: Step, key: str) -> str:
    """Give the new name of a key. Raises: what the function raises; TypeError where it gives no text."""
    new = step.function(key)
    if not isinstance(new, str):
        raise TypeError(f"{place(step.function)} gave {type(new).__name__} for a key, not str")
    return new


class Versioned:
    """The part of a Service with which its author declares what a version changed.

    Raises: InvalidService, as all methods do.
    """

    __slots__ = ("declared",)
    declared: Changes

    @property
    def version(self) -> int:
        """The author's number of this code."""
        return self.declared.version

    def migrate(
        self, *, from_: int, to: int = 0
    ) -> Callable[[Callable[[Old, Migration], New]], Callable[[Old, Migration], New]]:
        """Register the function that makes the state of a key of one version that of another.

        It is pure: a function of its arguments alone. What its old type does not name must not stand in any state.

        Args:
            from_: the version of what it takes.
            to: of what it gives; left out: the next version. A lower one is the way back.
        """
        scope = scope_of()

        def register(function: Callable[[Old, Migration], New]) -> Callable[[Old, Migration], New]:
            self.declared.add_state(cast("Function", function), from_, to, scope)
            return function

        return register

    def migrate_map(
        self, name: str, *, from_: int, to: int = 0
    ) -> Callable[[Callable[[str, Item, Old], New]], Callable[[str, Item, Old], New]]:
        """Register the function that makes one item of a map that of another version.

        It takes the key of the state, the key of the item, and the item. What it gives is the new item, None to take
        it away, or (key, item) to rename it; its annotation says which.

        Args:
            name: the field that is the map.
            from_: as for `migrate`.
            to: likewise.
        """
        scope = scope_of()

        def register(function: Callable[[str, Item, Old], New]) -> Callable[[str, Item, Old], New]:
            self.declared.add_map(cast("Function", function), name, from_, to, scope)
            return function

        return register

    def migrate_key(self, *, from_: int, to: int = 0) -> Callable[[Callable[[str], str]], Callable[[str], str]]:
        """Register the function that gives the new name of a key; no two keys may get the same one.

        It is applied for ever to keys that callers with the older code name. With several shards a key stays on its
        shard, so its `{tag}` must stay.

        Args:
            from_: as for `migrate`.
            to: likewise.
        """
        scope = scope_of()

        def register(function: Callable[[str], str]) -> Callable[[str], str]:
            self.declared.add_key(cast("Function", function), from_, to, scope)
            return function

        return register

    def accepts(
        self, handler: str, *, from_: int, args: type[Given], result: object = _SAME, to: int = 0
    ) -> Callable[[Callable[[Given], Mapping[str, object]]], Callable[[Given], Mapping[str, object]]]:
        """Register the function that makes arguments of an older version those of a handler.

        Args:
            handler: its name now.
            from_: the version of the callers.
            args: a Struct with their arguments as fields.
            result: what they expect; left out: what the handler gives now.
            to: left out: this version. A lower one is the way back: `args` has the arguments of version `from_`, and
                what the function gives are those of the older handler, for messages that wait.
        """
        scope = scope_of()

        def register(function: Callable[[Given], Mapping[str, object]]) -> Callable[[Given], Mapping[str, object]]:
            if not to:
                self.declared.add_accepted(cast("Function", function), handler, from_, args, result, scope)
            elif result is _SAME:
                self.declared.add_lowered(cast("Function", function), handler, (from_, to), args, scope)
            else:
                raise InvalidService(
                    f"{place(cast('Function', function))}: on the way back nobody expects a result; leave result= out"
                )
            return function

        return register

    def carry(
        self, handler: str, *, from_: int
    ) -> Callable[[Callable[[Suspended, Old], Continue]], Callable[[Suspended, Old], Continue]]:
        """Register the function that says how a suspended handler goes on which this code does not fit.

        It takes the handler as the older version left it, and the state of its key as it is now; it changes neither.
        What it gives begins in the handler's place, and who waits for the handler gets that one's reply. It is pure.

        Args:
            handler: its name in the older version.
            from_: that version.
        """
        scope = scope_of()

        def register(function: Callable[[Suspended, Old], Continue]) -> Callable[[Suspended, Old], Continue]:
            self.declared.add_carried(cast("Function", function), handler, from_, scope)
            return function

        return register

    def changes(
        self,
        *,
        from_: int,
        renamed: Mapping[str, str] | None = None,
        removed: Mapping[str, Pending] | None = None,
        drops: Sequence[str] = (),
        changed: Mapping[str, Mapping[str, str]] | None = None,
    ) -> None:
        """Say what went or changed since an older version, on purpose. The block goes once nobody has that code.

        Args:
            from_: the older version; this very version for what former code of it did otherwise, in `changed` alone.
            renamed: new names of handlers, activities and schedules, by their old ones.
            removed: handlers, activities and schedules that are gone, by their old names, and what becomes of
                messages that wait for them: "fail", or "refuse" the upgrade while there are any.
            drops: fields that may be lost, as "Class.field", and limits that may fall, as "limits.name".
            changed: handlers whose "reply", "calls" or "state" is another one, and schedules with other "times", each
                with the reason.
        """
        if isinstance(drops, str):
            raise InvalidService(f"service {self.declared.service.name}: drops is a list of fields, not a text")
        self.declared.add_block(
            Block(
                from_=from_,
                renamed=dict(renamed or {}),
                removed=dict(removed or {}),
                drops=frozenset(drops),
                changed={name: dict(aspects) for name, aspects in (changed or {}).items()},
            )
        )
