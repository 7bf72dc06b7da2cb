"""An exception becomes the same reply in every process, or no reply at all (I5)."""

import msgspec
import pytest

from deathless.base import errors
from deathless.base.errors import (
    ActivityFailed,
    CallFailed,
    CallRefused,
    Closed,
    ForbiddenInTurn,
    HandlerFailed,
    Invalid,
    InvalidArgument,
    InvalidAwait,
    InvalidUse,
    OutcomeUnknown,
    Overloaded,
    RetryLater,
    TooLarge,
)
from deathless.codec.wire import ReplyError
from deathless.execution.values.failure import (
    TEXT_MAX,
    ProcessEnds,
    activity_failed,
    bad_arguments,
    bounded,
    failed,
    is_bug,
    is_fatal,
    query_failed,
)

TREE = [each for each in vars(errors).values() if isinstance(each, type) and issubclass(each, errors.DeathlessError)]


def read(reply: bytes) -> tuple[str, str, str]:
    assert reply[0] == 1
    error = msgspec.msgpack.decode(reply[1:], type=ReplyError)
    return error.code, error.type, error.text


class NotEnough(Invalid):
    code = "BANK01"


class Mute(Exception):
    def __str__(self) -> str:
        raise ValueError("no text")


class Deep(Exception):
    def __str__(self) -> str:
        raise RecursionError


class Leaving(Exception):
    def __str__(self) -> str:
        raise SystemExit(1)


class Odd(str):
    __slots__ = ()

    def __str__(self) -> str:
        raise ValueError("no text")

    def __len__(self) -> int:
        raise ValueError("no length")


class NoNames(type):
    @property
    def __name__(cls) -> str:  # type: ignore[override]  # as an author may have it
        raise ValueError("no name")


class Nameless(Exception, metaclass=NoNames):
    def __str__(self) -> str:
        return Odd("z")


class Numbered(Invalid):
    code = 7  # type: ignore[assignment]  # what an author may get wrong


def test_exception_is_told_by_code_type_and_text() -> None:
    assert read(failed(ValueError("too little"))) == ("DL3014", "ValueError", "too little")


def test_error_that_tells_the_caller_what_to_change_keeps_its_code() -> None:
    assert read(failed(NotEnough("a holds 3", remedy="pay in"))) == ("BANK01", "NotEnough", "a holds 3")
    assert read(failed(TooLarge("9 bytes"))) == ("DL3006", "TooLarge", "9 bytes")


class Poor(HandlerFailed):
    """Without a code of its own."""


@pytest.mark.parametrize("kind", [CallRefused, HandlerFailed, Invalid, Poor])
def test_refusal_without_a_code_of_its_own_is_a_refused_call(kind: type[Invalid]) -> None:
    assert read(failed(kind("no"))) == ("DL3048", kind.__name__, "no")
    assert not is_bug(kind("no"))


@pytest.mark.parametrize(
    "error",
    [
        ZeroDivisionError(),
        KeyError("x"),
        RecursionError(),
        SystemExit(3),
        Closed("kept"),
        OutcomeUnknown("no answer"),
        ForbiddenInTurn("os.fork"),
        InvalidAwait("a future"),
        InvalidUse("a race of nothing"),
        CallFailed("x", failure_code="DL3014", kind="KeyError"),
        ActivityFailed("x", failure_code="DL3014"),
    ],
)
def test_what_nobody_means_is_a_bug_of_the_service(error: BaseException) -> None:
    assert is_bug(error)
    assert errors.HandlerFailed.http_status == 500
    recorded = read(failed(error))[0]
    assert next(each for each in TREE if each.code == recorded).http_status == 500


@pytest.mark.parametrize(
    "error", [NotEnough(), TooLarge("x"), InvalidArgument("x"), CallFailed("x", failure_code="BANK01")]
)
def test_what_the_author_means_is_none(error: BaseException) -> None:
    assert not is_bug(error)


def test_other_errors_of_ours_are_failures_of_the_handler() -> None:
    assert read(failed(Closed("ended")))[:2] == ("DL3014", "Closed")


@pytest.mark.parametrize("kind", [OutcomeUnknown, Overloaded])
def test_what_tells_a_caller_to_send_again_is_recorded_as_a_failure_of_the_handler(kind: type[RetryLater]) -> None:
    assert read(failed(kind("no answer"))) == ("DL3014", kind.__name__, "no answer")


def test_an_activity_may_say_that_nobody_knows_whether_it_was_done() -> None:
    assert read(activity_failed(OutcomeUnknown("no answer"))) == ("DL1006", "OutcomeUnknown", "no answer")
    assert read(activity_failed(Overloaded("full"))) == ("DL3014", "Overloaded", "full")
    assert activity_failed(ValueError("x")) == failed(ValueError("x"))


def test_code_that_is_no_text_is_not_used() -> None:
    assert read(failed(Numbered("x")))[0] == "DL3014"


def test_addresses_are_masked() -> None:
    code, _, text = read(failed(ValueError(f"bad {object()!r}")))
    assert (code, text) == ("DL3014", "bad <object object at 0x?>")


def test_text_is_bounded_after_masking() -> None:
    assert read(failed(ValueError("x" * 10_000)))[2] == "x" * (TEXT_MAX - 3) + "..."
    assert bounded("0x7f0000000000 " * 40) == "0x? " * 40


def test_text_with_lone_surrogates_can_be_told() -> None:
    assert read(failed(ValueError("\ud800")))[2] == "\\ud800"


def test_exception_without_text_is_told_by_its_type() -> None:
    assert read(failed(Mute())) == ("DL3014", "Mute", "(its text can't be given)")


@pytest.mark.parametrize(
    "error",
    [
        ProcessEnds(),
        MemoryError(),
        ExceptionGroup("both", [ValueError(), ExceptionGroup("", [MemoryError()])]),
    ],
)
def test_what_depends_on_the_process_is_never_a_reply(error: BaseException) -> None:
    assert is_fatal(error)
    with pytest.raises(type(error)):
        failed(error)
    with pytest.raises(type(error)):
        bad_arguments(error)


def test_recursion_is_told_in_words_that_depend_on_nothing() -> None:
    assert failed(RecursionError("in comparison")) == failed(RecursionError("while calling a Python object"))
    assert read(failed(RecursionError()))[:2] == ("DL3014", "RecursionError")


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt("3"), GeneratorExit("3")])
def test_what_is_no_exception_is_a_reply_as_well(error: BaseException) -> None:
    assert read(failed(error)) == ("DL3014", type(error).__name__, "3")


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (Deep(), "Deep"),
        (Leaving(), "Leaving"),
        (InvalidArgument(7), "InvalidArgument"),  # type: ignore[arg-type]  # what an author may get wrong
        (InvalidArgument(Odd("x")), "InvalidArgument"),
        (Nameless("y"), "Nameless"),
    ],
)
def test_error_whose_text_goes_wrong_is_still_a_reply(error: BaseException, kind: str) -> None:
    assert read(failed(error))[1] == kind


def test_group_of_groups_is_looked_through_to_its_bottom() -> None:
    group: BaseException = ValueError("x")
    for _ in range(5_000):
        group = BaseExceptionGroup("", [group])
    assert not is_fatal(group)


def test_group_of_ordinary_exceptions_is_a_reply() -> None:
    assert read(failed(ExceptionGroup("two", [ValueError(), KeyError()])))[1] == "ExceptionGroup"


def test_arguments_that_do_not_fit_are_told_with_their_path() -> None:
    class Wanted(msgspec.Struct):
        amount: int

    with pytest.raises(msgspec.ValidationError) as caught:
        msgspec.msgpack.decode(msgspec.msgpack.encode({"amount": "x"}), type=Wanted)
    code, kind, text = read(bad_arguments(caught.value))
    assert (code, kind) == ("DL3003", "InvalidArgument")
    assert "$.amount" in text


def test_exception_of_the_authors_own_while_decoding_is_a_failure() -> None:
    assert read(bad_arguments(KeyError("x")))[:2] == ("DL3014", "KeyError")


@pytest.mark.parametrize("error", [MemoryError(), SystemExit(3)])
def test_query_answers_whatever_it_raises(error: BaseException) -> None:
    assert read(query_failed(error)) == ("DL3014", type(error).__name__, "the query could not be finished")


def test_query_tells_ordinary_exceptions_as_handlers_do() -> None:
    assert query_failed(ValueError("x")) == failed(ValueError("x"))
