"""From an address and a request's bytes to typed arguments, and from a recorded result to JSON.

Types are the handlers' own (see execution.author.signature), so what does not fit is refused here, with the path of the
field (`$.amount`), before it costs the log anything. Guarantees: what `from_json` and `from_query` give encodes to what
the executor decodes. Does not: check that a handler would succeed. Imports execution and errors.
"""

from __future__ import annotations

import contextlib
import logging
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple
from urllib.parse import unquote_to_bytes

import msgspec

from deathless.base.errors import DeathlessError, InvalidArgument, Overloaded, TooLarge
from deathless.execution.author.service import HandlerSpec
from deathless.execution.declared.unknown_fields import unknown_fields, unknown_in
from deathless.shell.web.json_bodies import check_body
from deathless.shell.web.json_results import result_as_json
from deathless.shell.web.request import JSON

RAW: Final = b"application/octet-stream"
_LOG: Final = logging.getLogger("deathless.ingress")
_PATH: Final = re.compile(r"`(\$[^`]*)`")
_NAMED: Final = re.compile(r"(?:required field|unknown field) `([^`]*)`")
_ESCAPE: Final = re.compile(rb"%(?![0-9A-Fa-f]{2})")


def _given(arguments: type[msgspec.Struct]) -> type[msgspec.Struct]:
    """Give the type of arguments that go on without those that the caller did not give.

    A request that is repeated with its key must be the same message when the handler has got an optional argument more
    meanwhile. What the caller gives goes on also where it equals the default: another version may have another one.
    """
    optional = [
        (each.name, each.type | msgspec.UnsetType, msgspec.UNSET)
        for each in msgspec.structs.fields(arguments)
        if not each.required
    ]
    return msgspec.defstruct(arguments.__name__, optional, bases=(arguments,), forbid_unknown_fields=True, kw_only=True)


class Answer(NamedTuple):
    """How a recorded result goes out."""

    status: int
    body: bytes
    content_type: bytes = JSON


class _Form:
    """One form in which arguments come: those of the handler, or those that an older version of the code sent.

    Args:
        kind: the Struct with an argument in each field.
        first_key: argument that the {key} of the URL stands for; empty: none.
    """

    __slots__ = ("_decode", "_find", "_first_key", "_kind")

    def __init__(self, kind: type[msgspec.Struct], first_key: str) -> None:
        given = _given(kind)
        self._kind = kind if kind.__struct_config__.forbid_unknown_fields else given
        self._first_key = first_key
        self._decode: Callable[[bytes], msgspec.Struct] = msgspec.json.Decoder(given).decode
        self._find = unknown_fields(kind)

    def knows(self, body: bytes) -> bool:
        """Does the type know each field, at any depth, of a body that it decodes?"""
        return not unknown_in(self._find, body, msgspec.json.decode)

    def from_json(self, body: bytes, key: str) -> msgspec.Struct:
        """Give the arguments of a body. Raises: msgspec.MsgspecError, InvalidArgument; what the type raises."""
        if self._first_key:
            named: dict[str, msgspec.Raw] = msgspec.json.decode(body, type=dict[str, msgspec.Raw])
            self._put_key(named, msgspec.Raw(msgspec.json.encode(key)))
            body = msgspec.json.encode(named)
        return self._decode(body)

    def _put_key(self, named: dict[str, msgspec.Raw], key: msgspec.Raw) -> None:
        given = named.setdefault(self._first_key, key)
        if given is not key and msgspec.json.decode(given) != msgspec.json.decode(key):
            raise _other_key(self._first_key)

    def from_query(self, named: dict[str, list[str]], key: str) -> msgspec.Struct:
        """Give the arguments of a query string. Raises: as `from_json`."""
        if self._first_key and named.setdefault(self._first_key, [key]) != [key]:
            raise _other_key(self._first_key)
        once = {name: texts[0] if len(texts) == 1 else texts for name, texts in named.items()}
        try:
            return msgspec.convert(once, self._kind, strict=False)
        except msgspec.ValidationError:
            # A sequence that was given one value looks like a value; try again with each as a sequence in turn.
            lists = {name: texts if self._is_sequence(name) else once[name] for name, texts in named.items()}
            return msgspec.convert(lists, self._kind, strict=False)

    def _is_sequence(self, name: str) -> bool:
        kinds = (msgspec.inspect.ListType, msgspec.inspect.VarTupleType, msgspec.inspect.SetType)
        for field in msgspec.structs.fields(self._kind):
            if field.encode_name == name:
                return isinstance(msgspec.inspect.type_info(field.type), kinds)
        return False


def _other_key(name: str) -> InvalidArgument:
    return InvalidArgument(f"`{name}` must equal the key in the path, or be left out - at `$.{name}`")


class Route:
    """One handler or query, made ready: how its arguments come in and its result goes out.

    Args:
        spec: what is called.
        name: by which it is called; empty: its own. By a former one the same request has the same hash as ever.
        older: types of arguments that older versions sent, the newest first. Such arguments go on as they came: whoever
            runs the message makes the present ones of them (execution.handlers.older_arguments).
    """

    __slots__ = ("_form", "_older", "decode_result", "name", "query", "spec")

    def __init__(self, spec: HandlerSpec, name: str = "", older: Sequence[type[msgspec.Struct]] = ()) -> None:
        self.spec = spec
        self.name = name or spec.name
        self.query = spec.kind == "query"
        first_key = spec.keys[0] if spec.keys else ""
        self._form = _Form(spec.args_type, first_key)
        self._older = [_Form(kind, first_key if first_key in kind.__struct_fields__ else "") for kind in older]
        self.decode_result: Callable[[bytes], object] = msgspec.msgpack.Decoder(spec.result_type).decode

    def from_json(self, body: bytes, key: str) -> msgspec.Struct:
        """Give the arguments of a POST. Raises: InvalidArgument."""
        body = body or b"{}"
        check_body(body)
        return self._read(lambda form: form.from_json(body, key), lambda form: form.knows(body))

    def from_query(self, named: dict[str, list[str]], key: str) -> msgspec.Struct:
        """Give the arguments of a GET; texts become what the handler's types say.

        Raises: InvalidArgument.
        """
        return self._read(lambda form: form.from_query(dict(named), key), lambda _form: True)

    def _read(self, read: Callable[[_Form], msgspec.Struct], knows: Callable[[_Form], bool]) -> msgspec.Struct:
        """Read arguments in the present form; where they are not quite of that, in an older one that they are of."""
        try:
            value = read(self._form)
        except Exception as error:
            older = next(self._older_values(read, knows), None)
            if older is None:
                raise misfit(error) from error
            return older
        if self._older and not knows(self._form):
            return next(self._older_values(read, knows), value)
        return value

    def _older_values(
        self, read: Callable[[_Form], msgspec.Struct], knows: Callable[[_Form], bool]
    ) -> Iterator[msgspec.Struct]:
        """Yield arguments as each older form has them that they are of."""
        for form in self._older:
            with contextlib.suppress(Exception):  # it is of another form, whose types are the author's
                older = read(form)
                if knows(form):
                    yield older

    def answer(self, result: bytes) -> Answer:
        """Give what is answered with a msgpack result. Raises: ResultUnreadable."""
        return Answer(200, self.result_to_json(result))

    def result_to_json(self, result: bytes) -> bytes:
        """Give the JSON of a msgpack result. Raises: ResultUnreadable."""
        return result_as_json(result, self.decode_result)


def misfit(error: Exception) -> DeathlessError:
    """Give the refusal of arguments whose decoding raised `error`.

    What the decoder itself finds is the caller's to mend. What the author's types raise is told to the caller too,
    since other arguments would not have met it, and logged for the author, who may not have meant it.
    """
    if isinstance(error, DeathlessError):
        return error
    if isinstance(error, msgspec.MsgspecError | UnicodeError):
        return InvalidArgument(str(error))
    if isinstance(error, RecursionError):
        return InvalidArgument("the arguments are nested too deeply")
    if isinstance(error, MemoryError):
        return Overloaded("there is no memory left to read the arguments")
    _LOG.warning("arguments can't be decoded", exc_info=error)
    return InvalidArgument(f"the arguments can't be decoded: {type(error).__name__}: {_text_of(error)}")


def _text_of(error: Exception) -> str:
    try:
        return str(error)[:500].encode("utf-8", "backslashreplace").decode()
    except Exception:  # noqa: BLE001  the text is the author's code
        return "(its text can't be given)"


def field_of(error: DeathlessError) -> str:
    """Give the path of the argument an error is about, `$.amount`; empty: it is about none."""
    if not isinstance(error, InvalidArgument | TooLarge):
        return ""
    path = _PATH.search(error.message)
    named = _NAMED.search(error.message)
    base = path.group(1) if path is not None else "$"
    if named is not None:
        return f"{base}.{named.group(1)}"
    return path.group(1) if path is not None else ""


def unescape(raw: bytes, what: str) -> str:
    """Undo percent-encoding. Raises: InvalidArgument."""
    if b"%" not in raw:
        plain = raw
    elif _ESCAPE.search(raw):
        raise InvalidArgument(f"{what} holds a % without two hexadecimal digits")
    else:
        plain = unquote_to_bytes(raw)
    try:
        return plain.decode()
    except UnicodeDecodeError:
        raise InvalidArgument(f"{what} is not UTF-8") from None


def parse_query(query: bytes) -> dict[str, list[str]]:
    """Take `a=1&b=2` apart; '+' is a space. Raises: InvalidArgument."""
    named: dict[str, list[str]] = {}
    for pair in query.split(b"&"):
        if pair:
            name, _, value = pair.replace(b"+", b" ").partition(b"=")
            named.setdefault(unescape(name, "the query string"), []).append(unescape(value, "the query string"))
    return named
