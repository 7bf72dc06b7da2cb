"""Arguments of a handler in the form in which an older version of the code sent them.

Callers and peers are upgraded at times of their own, so the old arguments go on coming behind the cut, beside those
that waited at it. Functions of `accepts` make the new ones of them.

    Form(kind).read(data)       a value of just this type: fields that the type does not know are refused at any depth
    OlderForm.renew(value)      the present arguments, as bytes
    OlderForms.decode(data)     the present arguments, in whichever form the bytes are

**Bytes have one form.** What one type calls `amount`, another one would read as nothing at all, since decoders pass
over what they do not know. So a form is told by all names that are in the bytes. Code with two forms that one text
could have is refused by the check of an upgrade (`ArgumentsAmbiguous`). A caller can't be asked for its version: what
comes over HTTP bears none.

Guarantees: what a form is depends on the bytes and the code alone, so each replica tells the same. Does not: say which
version a caller is of. Imports author and declared.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Generic, TypeVar

import msgspec

from deathless.codec.nesting import is_too_deep
from deathless.execution.author.changes import Accepted
from deathless.execution.author.service import HandlerSpec, Service
from deathless.execution.declared.unknown_fields import unknown_fields, unknown_in
from deathless.execution.values.ordered import encode_any

T = TypeVar("T")
Drops = frozenset[tuple[str, str]]


class Form(Generic[T]):
    """Arguments of one type and nothing else.

    Args:
        kind: a Struct with an argument in each field.
        drops: (class, field) that need not be known.
    """

    __slots__ = ("_decode", "_find")

    def __init__(self, kind: type[T], drops: Drops = frozenset()) -> None:
        self._decode = msgspec.msgpack.Decoder(kind).decode
        self._find = unknown_fields(kind, drops)

    def read(self, data: bytes) -> T:
        """Give the value. Raises: msgspec.MsgspecError where the bytes are of no such form; what the type raises."""
        if is_too_deep(data):
            raise msgspec.ValidationError("they are nested too deep")
        value = self._decode(data)
        if unknown := unknown_in(self._find, data):
            cls, field = unknown[0]
            raise msgspec.ValidationError(f"{cls} has no field `{field}`")
        return value


class Unfit(Exception):
    """What a function of `accepts` gave is not what its handler takes."""


class OlderForm:
    """The form that an older version sends, and the way from it to the present one.

    Args:
        spec: the handler.
        accepted: how it takes arguments of that version.
        drops: as for Form, of that version.
    """

    __slots__ = ("_new", "_spec", "accepted", "form")

    def __init__(self, spec: HandlerSpec, accepted: Accepted, drops: Drops = frozenset()) -> None:
        self.accepted = accepted
        self.form = Form(accepted.args_type, drops)
        self._spec = spec
        self._new = Form(spec.args_type, drops)

    def renew(self, value: msgspec.Struct) -> bytes:
        """Give the present arguments. Raises: Unfit; what the function raises."""
        new = encode_any(dict(self.accepted.function(value)))  # type: ignore[call-overload]  # a mapping, or it raises
        try:
            self._new.read(new)
        except msgspec.MsgspecError as error:
            # No file is named: this may become a reply, which is the same wherever the code lies.
            name = getattr(self.accepted.function, "__name__", "accepts")
            raise Unfit(f"what {name} gave is no arguments of {self._spec.name}: {error}") from None
        return new


class OlderForms:
    """All older forms of one handler, the newest first.

    Args:
        spec: the handler.
        forms: by their versions, at least one.
    """

    __slots__ = ("_forms", "_present")

    def __init__(self, spec: HandlerSpec, forms: Mapping[int, OlderForm]) -> None:
        self._present = Form(spec.args_type)
        self._forms = [forms[version] for version in sorted(forms, reverse=True)]

    def decode(self, data: bytes, lenient: Callable[[bytes], msgspec.Struct]) -> msgspec.Struct:
        """Give the present arguments.

        Args:
            data: in whichever form.
            lenient: decodes what is in no form that is known; it raises, or passes over what it does not know.

        Raises: Unfit; what the function, `lenient` and types of the author raise.
        """
        value = _value(self._present, data)
        if value is not None:
            return value
        found = self._older(data)
        return lenient(data if found is None else found[0].renew(found[1]))

    def renewed(self, data: bytes) -> bytes:
        """Give the present arguments as bytes; those that are in no older form as they are.

        Raises: Unfit; what the function and types of the author raise.
        """
        found = self._find(data)
        return data if found is None else found[0].renew(found[1])

    def meaning(self, data: bytes) -> bytes | None:
        """Give what arguments in an older form mean, as the handler of then encoded it; None: they are in none."""
        found = self._find(data)
        return None if found is None else encode_any(found[1])

    def _find(self, data: bytes) -> tuple[OlderForm, msgspec.Struct] | None:
        return None if _value(self._present, data) is not None else self._older(data)

    def _older(self, data: bytes) -> tuple[OlderForm, msgspec.Struct] | None:
        """Give the form of bytes that are not in the present one, and what they say; None: none that is known."""
        for older in self._forms:
            value = _value(older.form, data)
            if value is not None:
                return older, value
        return None


def _value(form: Form[T], data: bytes) -> T | None:
    """Give the value; None: the bytes are of another form."""
    try:
        return form.read(data)
    except msgspec.MsgspecError:
        return None


def older_forms(service: Service, spec: HandlerSpec) -> OlderForms | None:
    """Give the older forms in which a handler takes its arguments; None: there are none."""
    declared = service.declared
    forms = {
        version: OlderForm(spec, accepted, drops_of(service, version))
        for (name, version), accepted in declared.accepted.items()
        if name == spec.name
    }
    return OlderForms(spec, forms) if forms else None


def drops_of(service: Service, version: int) -> Drops:
    """Give the fields (class, field) that may be lost on the way from a version."""
    return frozenset(
        (cls, field) for cls, _, field in (each.rpartition(".") for each in service.declared.drops(version))
    )
