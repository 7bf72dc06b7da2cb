"""The interface of a code as data: what of it others, and what stands, depend on.

    state        shape of the state with its maps     handlers     kind, arguments, result of each, queries too
    activities   arguments and result of each         schedules    when which handler runs for which key
    topics       columns of the rows of each          limits       those that the state is a function of
    inputs       the row that each takes

It is written down beside what a code consists of, so that a later code can be compared with it when neither the old
code nor its interpreter is there any more. Drivers are not in it: what they deliver is what handlers send.

Guarantees: equal codes have equal bytes, in every process; names of classes and modules are not in the hash, for bytes
do not hold them. Does not: say what handlers do. Imports base and codec.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Final

import msgspec

from deathless.base.errors import InvalidConfig, InvalidService
from deathless.base.limits import REPLICATED, Limits
from deathless.base.topics.row_schema import RowSchema, parse_row_schema
from deathless.codec.untrusted import JsonReader, MsgpackReader
from deathless.execution.author.foreign_methods import PREFIX, ForeignSpec
from deathless.execution.author.service import HandlerSpec, Service
from deathless.execution.interface.shapes import Classes, FieldShape, Shape, Shapes

HASH_BYTES: Final = 16
FORMAT: Final = 1
"""Of the bytes; one that a build does not know is refused."""
FORMAT_WITH_TOPICS: Final = 2
"""Of a code that has topics: a build that knows none of them is not to pass over them."""
FORMAT_WITH_INPUTS: Final = 3
"""Of a code that has inputs, and maybe topics; likewise."""
_FORMATS: Final = (FORMAT, FORMAT_WITH_TOPICS, FORMAT_WITH_INPUTS)


class HandlerShape(msgspec.Struct, frozen=True, omit_defaults=True):
    """One handler, query or input."""

    name: str
    kind: str  # handler, query, input; `foreign`, and its codec, of a method that is called by its number
    arguments: tuple[FieldShape, ...]
    result: Shape
    waits: bool = False  # an `async def`
    shared: bool = False
    keys: tuple[str, ...] = ()

    @property
    def by_number(self) -> bool:
        """Whether it is a method that is called by its number."""
        return self.name.startswith(PREFIX)

    @property
    def way(self) -> str:
        """Say how it runs, for people."""
        words = ["shared"] * self.shared + ["async def" if self.waits else "def"]
        if self.keys:
            words.append(f"of keys {', '.join(self.keys)}")
        return f"{self.kind} ({' '.join(words)})"


class ActivityShape(msgspec.Struct, frozen=True, omit_defaults=True):
    """One activity."""

    name: str
    arguments: tuple[FieldShape, ...]
    result: Shape
    at_most_once: bool = False


class ScheduleShape(msgspec.Struct, frozen=True, omit_defaults=True):
    """One schedule."""

    name: str
    expression: str
    zone: str
    method: str
    key: str
    missed: str

    @property
    def times(self) -> str:
        """Say when it runs, for people."""
        return f"{self.expression!r} {self.zone}, missed={self.missed}"


class TopicShape(msgspec.Struct, frozen=True):
    """One topic."""

    name: str
    schema: str  # text of its rows' schema


class Interface(msgspec.Struct, frozen=True, kw_only=True):
    """One code's."""

    format: int = FORMAT
    version: int  # the author's
    single: bool  # the service is one object
    state: Shape
    classes: Classes  # what shapes refer to
    handlers: tuple[HandlerShape, ...]  # by name, ascending, as all below
    activities: tuple[ActivityShape, ...]
    schedules: tuple[ScheduleShape, ...]
    limits: dict[str, int]  # in the order of their names
    topics: tuple[TopicShape, ...] | msgspec.UnsetType = msgspec.UNSET  # unset where there is none, as it ever was
    inputs: tuple[HandlerShape, ...] | msgspec.UnsetType = msgspec.UNSET  # likewise; by the names of their methods

    def handler(self, name: str) -> HandlerShape | None:
        """Give a handler or query by name; None: there is none."""
        return next((each for each in self.handlers if each.name == name), None)

    @property
    def rows(self) -> tuple[HandlerShape, ...]:
        """The inputs, none where there are none."""
        return () if isinstance(self.inputs, msgspec.UnsetType) else self.inputs

    @property
    def schemas(self) -> dict[str, RowSchema]:
        """Columns of the rows of each topic, by its name."""
        topics = () if isinstance(self.topics, msgspec.UnsetType) else self.topics
        return {each.name: parse_row_schema(each.schema) for each in topics}

    @property
    def state_name(self) -> str:
        """What the class of the state is called."""
        return self.classes[self.state.at].name


def interface_of(service: Service, limits: Limits) -> Interface:
    """Give the interface of a service's code.

    Raises: InvalidService for a type that can't be described.
    """
    shapes = Shapes()
    try:
        state = shapes.state(service.state)
        handlers = tuple(_handler_shape(shapes, spec) for _, spec in sorted(service.specs.items()))
        methods = (_method_shape(shapes, spec) for _, spec in sorted(service.methods.items()))
        handlers = tuple(sorted((*handlers, *methods), key=lambda shape: shape.name))
        activities = tuple(
            ActivityShape(
                spec.name, shapes.arguments(spec.args_type), shapes.of(spec.result_type), spec.policy.at_most_once
            )
            for _, spec in sorted(service.activities.items())
        )
        inputs = tuple(_handler_shape(shapes, spec) for _, spec in sorted(service.inputs.items()))
    except TypeError as error:
        raise InvalidService(f"service {service.name} can't be described: {error}") from None
    schedules = tuple(
        ScheduleShape(spec.name, spec.cron.expression, spec.zone, spec.method, spec.key, spec.missed)
        for _, spec in sorted(service.schedules.items())
    )
    topics = tuple(TopicShape(name, topic.schema.text) for name, topic in sorted(service.topics.items()))
    return Interface(
        format=FORMAT_WITH_INPUTS if inputs else FORMAT_WITH_TOPICS if topics else FORMAT,
        version=service.version,
        single=service.single,
        state=state,
        classes=shapes.classes,
        handlers=handlers,
        activities=activities,
        schedules=schedules,
        limits={name: getattr(limits, name) for name in sorted(REPLICATED)},
        topics=topics or msgspec.UNSET,
        inputs=inputs or msgspec.UNSET,
    )


def _handler_shape(shapes: Shapes, spec: HandlerSpec) -> HandlerShape:
    return HandlerShape(
        spec.name,
        spec.kind,
        shapes.arguments(spec.args_type),
        shapes.of(spec.result_type),
        spec.waits,
        spec.shared,
        spec.keys,
    )


def _method_shape(shapes: Shapes, spec: ForeignSpec) -> HandlerShape:
    """A method beside the handlers `call` and `send`, which call it: one that is gone, or that takes other bytes."""
    arguments, result = shapes.arguments(spec.args_type), shapes.of(spec.result_type)
    return HandlerShape(spec.name, spec.kind, arguments, result, spec.waits, spec.shared)


_reader: Final = MsgpackReader(Interface)
_json_reader: Final = JsonReader(Interface)
_encode: Final = msgspec.msgpack.Encoder(order="deterministic").encode


def encode_interface(interface: Interface) -> bytes:
    """Give its bytes: equal for equal interfaces."""
    return _encode(interface)


def decode_interface(data: bytes) -> Interface:
    """Read the bytes of an interface, whoever wrote them.

    Raises: InvalidConfig naming what is wrong.
    """
    return _read(_reader.decode, data)


def interface_as_json(interface: Interface) -> bytes:
    """Give an interface as JSON, to be looked at and to be read by `interface_from_json`."""
    return msgspec.json.format(msgspec.json.encode(interface, order="deterministic"), indent=1)


def interface_from_json(data: bytes) -> Interface:
    """Read what `interface_as_json` gave, whoever wrote it.

    Raises: InvalidConfig naming what is wrong.
    """
    return _read(_json_reader.decode, data)


def _read(decode: Callable[[bytes], Interface], data: bytes) -> Interface:
    try:
        found = decode(data)
    except msgspec.DecodeError as error:
        raise InvalidConfig(f"the record of an interface can't be read: {error}") from None
    if found.format not in _FORMATS:
        known = f"{FORMAT} to {FORMAT_WITH_INPUTS} are"
        raise InvalidConfig(f"the record of an interface has format {found.format}, and {known} known here")
    _check_places(found)
    try:
        found.schemas  # noqa: B018  it is read to see whether it can be
    except ValueError as error:
        raise InvalidConfig(f"the record of an interface is broken: {error}") from None
    return found


def _check_places(found: Interface) -> None:
    """Refuse shapes of classes that are not there, or that have not the parts which their kind needs."""
    called: list[HandlerShape | ActivityShape] = [*found.handlers, *found.rows, *found.activities]
    shapes = [found.state, *(each.result for each in called)]
    fields = [field for each in found.classes for field in each.fields]
    fields += [field for each in called for field in each.arguments]
    open_ = shapes + [field.type for field in fields]
    while open_:
        shape = open_.pop()
        known = 0 <= shape.at < len(found.classes) if shape.kind == "class" else shape.at == -1
        if not known or len(shape.parts) < _PARTS.get(shape.kind, 0):
            raise InvalidConfig(f"the record of an interface is broken: a {shape.kind!r} has not what belongs to it")
        open_ += shape.parts
    if found.state.kind != "class":
        raise InvalidConfig(f"the record of an interface is broken: the state is a {found.state.kind!r}")


_PARTS: Final = {"vartuple": 1, "dict": 2, "map": 2}
"""Parts of kinds that are always shown with so many."""


def interface_hash(interface: Interface) -> bytes:
    """Give the 16 bytes that stand for an interface, without the names of its classes."""
    classes = tuple(
        msgspec.structs.replace(each, name="", fields=_unnamed_fields(each.fields)) for each in interface.classes
    )
    handlers, rows = (
        tuple(
            msgspec.structs.replace(each, arguments=_unnamed_fields(each.arguments), result=_unnamed(each.result))
            for each in some
        )
        for some in (interface.handlers, interface.rows)
    )
    activities = tuple(
        msgspec.structs.replace(each, arguments=_unnamed_fields(each.arguments), result=_unnamed(each.result))
        for each in interface.activities
    )
    bare = msgspec.structs.replace(
        interface, classes=classes, handlers=handlers, activities=activities, inputs=rows or msgspec.UNSET
    )
    return hashlib.blake2b(_encode(bare), digest_size=HASH_BYTES).digest()


def _unnamed_fields(fields: tuple[FieldShape, ...]) -> tuple[FieldShape, ...]:
    return tuple(msgspec.structs.replace(each, type=_unnamed(each.type)) for each in fields)


def _unnamed(shape: Shape) -> Shape:
    return msgspec.structs.replace(shape, name="", parts=tuple(_unnamed(part) for part in shape.parts))
