"""What a handler kept is given in the words of other code before it is run again."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from tests.unit.deathless.execution.executor_bench import Keys
from tests.unit.deathless.execution.messaging_bench import Hub, executor_of
from tests.unit.deathless.execution.saga_versions import begun, make

from deathless.execution.executor import HandlerExecutor
from deathless.execution.invocations.translation import IDENTITY, Translation, Translator
from deathless.execution.maps.map import Map

KEPT = begun()
STATE, SUSPENDED = dict(KEPT.executor.state()), KEPT.executor.suspended()


class Shelf2(msgspec.Struct):
    """Another shape: `seen` has another name, and texts are in capitals."""

    names: list[str] = []
    items: Map[str, int] = msgspec.field(default_factory=Map)

    @property
    def seen(self) -> Any:
        return self.names


class Names(Translation):
    """To a version with other names."""

    def handler(self, method: str) -> str:
        return {"saga": "transfer", "take": "grasp"}.get(method, method)

    def activity(self, name: str) -> str:
        return {"charge": "pay"}.get(name, name)

    def schedule(self, name: str) -> str:
        return name.replace("tick/", "tock/")


class Shape(Translation):
    """To a version with another state."""

    def state(self, key: bytes, state: bytes) -> bytes:
        value = msgspec.msgpack.decode(state)
        value["names"] = value.pop("seen")
        return msgspec.msgpack.encode(value)

    def item(self, key: bytes, field: str, item: bytes, value: bytes) -> bytes:
        assert (key, field, item) == (b"a", "items", b"sa")
        return msgspec.msgpack.encode(msgspec.msgpack.decode(value) + 1)


class Arguments(Translation):
    """To a version whose parcels have another shape."""

    def arguments(self, method: str, arguments: bytes) -> bytes:
        value = msgspec.msgpack.decode(arguments)
        if "parcel" in value:
            value["parcel"] = {"label": value["parcel"]["name"]}
        return msgspec.msgpack.encode(value)


class Label(msgspec.Struct, forbid_unknown_fields=True):
    label: str

    @property
    def name(self) -> str:
        return self.label


def restored(service: Any, translation: Translation, state: dict[bytes, bytes] | None = None) -> HandlerExecutor:
    executor = executor_of(service, Keys())
    executor.restore(STATE if state is None else state, SUSPENDED, same_code=False, translation=translation)
    return executor


def test_renamed_handlers_activities_and_schedules_fit() -> None:
    service = make(saga="transfer", activity="pay", take="grasp", schedules=(("*/10 * * * *", "tock"),))
    executor = restored(service, IDENTITY)
    assert [misfit.code for misfit in executor.restoration.misfits()] == ["HandlerGone"]
    assert [change.kind for change in executor.restoration.schedule_changes()] == ["gone", "new"]
    executor = restored(service, Names())
    assert executor.restoration.misfits() == []
    assert executor.restoration.schedule_changes() == []
    assert [start.name for start in executor.activities()] == ["pay"]
    again = executor_of(service, Keys())  # from here on it is in the words of this code
    again.restore(dict(executor.state()), executor.suspended())
    assert again.suspended() == executor.suspended()


def test_state_and_items_in_another_shape_fit() -> None:
    hub = Hub(make())
    hub.call("quick", "a", text="before")
    hub.call("put", "a", name="a")
    hub.begin("saga", "a", parcel={"name": "box"})
    hub.call("beside", "a")  # so that the state behind its last turn is kept by itself
    shape, suspended = Shape(), hub.executor.suspended()
    state = {
        key: shape.item(b"a", "items", b"sa", value) if key[:1] == b"\0" else shape.state(key, value)
        for key, value in hub.executor.state().items()
    }
    for translation, codes in ((shape, []), (IDENTITY, ["StateDiffers"])):
        executor = executor_of(make(shelf=Shelf2), Keys())
        executor.restore(state, suspended, same_code=False, translation=translation)
        assert [misfit.code for misfit in executor.restoration.misfits()] == codes


def test_arguments_in_another_shape_fit() -> None:
    service = make(parcel=Label)
    assert restored(service, Arguments()).restoration.misfits() == []  # and those of calls of others stay as they are
    [misfit] = restored(service, IDENTITY).restoration.misfits()
    assert "fails in turn 1 with DL3003 InvalidArgument" in misfit.what
    assert Translator(IDENTITY, "shop").idle
    assert not Translator(Arguments(), "shop").idle


def test_translation_that_raises_holds_the_invocation_and_leaves_messages() -> None:
    class Broken(Translation):
        def arguments(self, method: str, arguments: bytes) -> bytes:
            raise ValueError(f"no {method}")

    executor = restored(make(), Broken())
    [misfit] = executor.restoration.misfits()
    assert (misfit.code, misfit.what) == ("Untranslated", "can't be translated: ValueError: no saga")
    assert executor.crowd()[:2] == (3, 1)
    executor = restored(make(), IDENTITY)
    assert executor.suspended() == SUSPENDED


@pytest.mark.parametrize("translation", [IDENTITY, Translation()])
def test_identity_changes_nothing(translation: Translation) -> None:
    assert restored(make(), translation).suspended() == SUSPENDED
    assert translation.state(b"a", b"s") == b"s"
    assert translation.item(b"a", "items", b"sa", b"1") == b"1"
    assert translation.arguments("m", b"\x80") == translation.activity_arguments("m", b"\x80") == b"\x80"
    assert (translation.handler("m"), translation.activity("m"), translation.schedule("m")) == ("m", "m", "m")
