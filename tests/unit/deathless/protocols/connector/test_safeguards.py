"""Each check of the connector protocol is left out once, and then a test of its module fails.

The checks that only a run of both ends shows are left out in test_source_pair.py and test_sink_pair.py.
"""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any, Final, NamedTuple

import pytest
from tests.unit.deathless.protocols.connector import (
    test_fields,
    test_frame_reader,
    test_frames,
    test_handshake,
    test_sink_coordinator,
    test_sink_participant,
    test_source_client,
    test_source_worker,
    test_transactions,
)
from tests.unit.deathless.protocols.connector.helpers import mutant_of

from deathless.base.errors import InvalidUse, TooLarge
from deathless.protocols.connector.fields import SHORT_BYTES_MAX
from deathless.protocols.connector.frames import Message, MessageId, StreamId
from deathless.protocols.connector.source_events import StreamAdmitted

COUNT: Final = b"\xff\xff\xff\xff1234"


class Left(NamedTuple):
    """A check that is left out, and the test that shows it."""

    tests: ModuleType  # of the module
    old: str
    new: str
    test: Callable[..., None]
    args: tuple[Any, ...] = ()
    only: str = ""  # of the module's names this one alone is changed, since samples are made of the others


fields, frames, handshake = test_fields, test_frames, test_handshake
worker, client = test_source_worker, test_source_client
coordinator, participant = test_sink_coordinator, test_sink_participant
unreadable = fields.test_what_is_not_there_is_named_with_its_field_and_a_remedy
CHECKS: Final[dict[str, Left]] = {
    "counts are held against the bytes": Left(
        fields,
        "if value * item_bytes > self.left:",
        "if False:",
        unreadable,
        (lambda f: f.count("n", item_bytes=16), COUNT, "n: 4294967295 items"),
    ),
    "lengths are held against the bytes": Left(
        fields,
        "if size > self.left:",
        "if False:",
        unreadable,
        (lambda f: f.short("n"), b"\xff\xffab", "n: needs 65535"),
    ),
    "numbers have all their bytes": Left(
        fields, "if self.left < form.size:", "if False:", unreadable, (lambda f: f.u32("n"), b"abc", "n: needs 4 bytes")
    ),
    "truth is 0 or 1": Left(
        fields, "if value > 1:", "if False:", unreadable, (lambda f: f.flag("n"), b"\x02", "n: 2, where")
    ),
    "nothing follows": Left(
        fields, "        if self.left:\n", "        if False:\n", unreadable, (lambda f: f.end(), b"abc", "end: 3 more")
    ),
    "no length is wrapped": Left(
        fields,
        "if len(value) > SHORT_BYTES_MAX:",
        "value = value[:0]\n    if False:",
        fields.test_what_does_not_fit_its_field_is_never_written_wrapped,
        (lambda: vars(fields)["put_short"]("F", "n", bytes(SHORT_BYTES_MAX + 1)), TooLarge),
    ),
    "a frame ends with its last field": Left(
        frames,
        "frame = read(fields)\n    fields.end()",
        "frame = read(fields)",
        frames.test_a_frame_that_is_cut_or_goes_on_is_refused,
        ("ok",),
        "decode",
    ),
    "a key ends within its frame": Left(
        frames,
        "if end > len(data):",
        "if False:",
        frames.test_what_is_wrong_with_a_frame_is_named,
        (b"\x05" + bytes(24) + b"\x00\x03ab", "key: needs 3"),
    ),
    "an end of 16 bytes is read": Left(
        frames, "if fields.left == 8:", "if False:", frames.test_the_end_of_a_stream_is_read_with_and_without_an_id
    ),
    "an unknown version may go on otherwise": Left(
        frames,
        "        if version in VERSIONS:\n            raise\n",
        "        raise\n",
        frames.test_a_hello_of_an_unknown_version_is_read_as_far_as_its_cookie,
    ),
    "no position is no id": Left(
        frames,
        "return None if position == NO_POSITION else position",
        "return position",
        frames.test_no_position_is_below_all_ids_and_never_one,
    ),
    "a transaction message stands alone in its frame": Left(
        test_transactions,
        'if (frame.id, frame.event_time, frame.key) != (0, 0, b""):',
        "if False:",
        test_transactions.test_what_is_wrong_with_a_transaction_message_is_named,
        (Message(StreamId(0), MessageId(1), 0, b"", b"\xc9" + bytes(8)), "have to be 0"),
    ),
    "a transaction message ends with its last field": Left(
        test_transactions,
        "    fields.end()\n",
        "",
        test_transactions.test_a_transaction_message_that_is_cut_or_goes_on_is_refused,
        ("reply",),
        "decode",
    ),
    "a long frame is refused by its length": Left(
        test_frame_reader,
        "if length > self._max:",
        "if False:",
        test_frame_reader.test_the_longest_frame_passes_and_a_longer_one_is_refused_by_its_length_alone,
    ),
    "the version is looked at": Left(
        handshake,
        "if hello.version not in versions:",
        "if False:",
        handshake.test_any_other_version_is_refused_and_those_accepted_are_named,
        ("0.0.2",),
    ),
    "the cookie is looked at": Left(
        handshake,
        "if not hmac.compare_digest(hello.cookie, cookie):",
        "if False:",
        handshake.test_a_wrong_cookie_is_refused_and_no_error_repeats_one,
        (b"", b"c"),
    ),
    "a cookie that nobody expects is refused": Left(
        handshake,
        "if not hmac.compare_digest(hello.cookie, cookie):",
        "if cookie and not hmac.compare_digest(hello.cookie, cookie):",
        handshake.test_a_wrong_cookie_is_refused_and_no_error_repeats_one,
        (b"c", b""),
    ),
    "no secret is echoed": Left(
        handshake,
        '"the cookie is wrong" if cookie',
        'f"the cookie is wrong, wanted {cookie!r}" if cookie',
        handshake.test_a_wrong_cookie_is_refused_and_no_error_repeats_one,
        (b"x", handshake.SECRET),
    ),
}
WORKER: Final[dict[str, tuple[str, str, Callable[..., None], tuple[Any, ...]]]] = {
    "frames are held against the table": (
        "            LEGAL.check_frame(self._state, type(frame), self.stream_state(frame.stream)",
        "            (lambda *_, **__: None)(self._state, type(frame), self.stream_state(frame.stream)",
        worker.test_what_is_not_in_the_table_is_refused_and_ends_this_connection_alone,
        ("ending", "MESSAGE"),
    ),
    "the runtime's words are held against the table": (
        "LEGAL.check_event(self._state, type(event), self.stream_state(ident)",
        "(lambda *_, **__: None)(self._state, type(event), self.stream_state(ident)",
        worker.test_what_is_not_in_the_table_is_refused_and_ends_this_connection_alone,
        ("open", "admitted"),
    ),
    "no position is no message's id": (
        "if ident == NO_POSITION:",
        "if False:",
        worker.test_the_id_that_stands_for_no_position_is_no_id,
        (),
    ),
    "only what is confirmed is dropped": (
        "if ident <= stream.confirmed:",
        "if ident <= stream.highest:",
        worker.test_only_what_is_confirmed_is_dropped_here_and_all_else_is_the_primarys_to_judge,
        (),
    ),
    "what never came can't be confirmed": (
        "if not stream.confirmed <= through <= stream.highest:",
        "if False:",
        worker.test_what_never_came_and_what_goes_back_can_not_be_confirmed,
        (7,),
    ),
    "an end is confirmed behind its messages": (
        "if stream.confirmed < stream.highest:",
        "if False:",
        worker.test_the_end_is_forwarded_behind_the_messages_and_acknowledged_by_the_last_id,
        (),
    ),
    "an end that is known is not forwarded again": (
        "        if stream.ended:  #",
        "        if False:  #",
        worker.test_an_end_that_was_confirmed_before_is_acknowledged_and_not_forwarded_again,
        (),
    ),
    "settled is not confirmed": (
        "                self._settle(stream, through)\n            case",
        "                self._confirm(ident, stream, through)\n            case",
        worker.test_what_is_settled_gives_its_credits_back_and_is_acknowledged_once_it_is_confirmed,
        (),
    ),
    "a stream is asked for again once its end is confirmed": (
        "            stream.again = frame\n",
        "            self._ask(frame, out)\n",
        worker.test_a_stream_that_is_opened_again_is_asked_for_once_its_end_is_confirmed,
        (),
    ),
    "a service that went back ends the client": (
        "if last < stream.confirmed:",
        "if False:",
        worker.test_a_service_that_has_lost_what_was_confirmed_ends_the_client,
        (),
    ),
    "another sender's messages end the client": (
        "if last > stream.highest:",
        "if False:",
        worker.test_a_service_that_has_more_than_came_was_given_it_by_another_sender,
        (),
    ),
    "no position is no last id": (
        "    if last == NO_POSITION:\n",
        "    if False:\n",
        worker.test_what_stands_for_no_position_on_the_wire_is_no_last_id,
        (StreamAdmitted,),
    ),
    "nothing is kept of streams that ended": (
        "        del self._streams[ident]\n        if stream.again",
        "        stream.state = StreamState.CLOSED\n        if stream.again",
        worker.test_streams_that_ended_make_room_for_others,
        (),
    ),
    "streams have a maximum": (
        "if len(self._streams) >= self._settings[2]:",
        "if False:",
        worker.test_no_more_streams_than_the_maximum_are_opened,
        (),
    ),
    "a client that sends too much is read no further": (
        "and self._kept_bytes < self._settings[3]",
        "",
        worker.test_a_client_that_sends_more_than_its_credits_is_read_no_further_and_not_refused,
        (),
    ),
    "credits are held back": (
        "given = 0 if self._held else self._owed",
        "given = self._owed",
        worker.test_credits_that_are_held_back_are_given_later_and_positions_at_once,
        (),
    ),
    "streams are given up with the connection": (
        "        if self._streams:\n",
        "        if False:\n",
        worker.test_a_connection_that_goes_gives_up_each_stream_it_has_or_asks_for,
        (worker.asked,),
    ),
    "RESTART is said to those who know it": (
        "if self.program.startswith(RESTART_PROGRAMS):",
        "if True:",
        worker.test_a_drain_tells_only_those_who_understand_it_where_to_go,
        ("prog", []),
    ),
}
CLIENT: Final[dict[str, tuple[str, str, Callable[..., None], tuple[Any, ...]]]] = {
    "nothing without a credit": (
        "if wanted > self.credits:",
        "if False:",
        client.test_nothing_is_sent_without_a_credit_for_it,
        (),
    ),
    "ids grow from where the worker is": (
        "if not before < message.id < NO_POSITION:",
        "if False:",
        client.test_ids_grow_from_the_one_that_the_worker_named,
        ([3], InvalidUse),
    ),
    "no hole is left in silence": (
        "if stream.forgotten is not None and",
        "if False and",
        client.test_a_worker_that_wants_what_can_not_be_sent_again_gets_an_error,
        (4, False),
    ),
    "no position is below what was forgotten": (
        "(last is None or last < stream.forgotten)",
        "(last is not None and last < stream.forgotten)",
        client.test_a_worker_that_wants_what_can_not_be_sent_again_gets_an_error,
        (2**64 - 1, False),
    ),
    "what was never sent is not acknowledged": (
        "if last is not None and last > stream.sent:",
        "if False:",
        client.test_a_worker_that_acknowledges_what_was_never_sent_gets_an_error,
        (2,),
    ),
    "credits stay within their field": (
        "if self.credits + frame.credits > U32_MAX:",
        "if False:",
        client.test_credits_beyond_their_field_are_refused,
        (),
    ),
    "frames stay within the worker's limit": (
        "if len(data) - PREFIX_BYTES > self._frame_bytes_max:",
        "if False:",
        client.test_a_message_that_the_worker_would_close_at_is_not_sent_and_nothing_before_it,
        (),
    ),
}
COORDINATOR: Final[dict[str, tuple[str, str, Callable[..., None], tuple[Any, ...]]]] = {
    "a vote to abort is kept": (
        "if commit and not self._vote:",
        "if False:",
        coordinator.test_a_vote_to_abort_is_never_turned_into_a_commit,
        (),
    ),
    "only what is in doubt is decided": (
        "elif transaction not in self._doubt:",
        "elif False:",
        coordinator.test_only_what_was_voted_on_is_decided,
        (coordinator.resolving,),
    ),
    "a list answers its question": (
        "if said.rtag != self._rtag:",
        "if False:",
        coordinator.test_a_list_that_answers_another_question_is_refused,
        (coordinator.listing,),
    ),
    "what is still listed is not done": (
        "        if undone:\n",
        "        if False:\n",
        coordinator.test_what_is_still_listed_is_said_again_when_that_is_wanted,
        (),
    ),
    "a late answer is no vote": (
        "elif transaction not in self._decided:",
        "else:",
        coordinator.test_answers_to_phase_two_are_passed_over,
        (),
    ),
    "an attempt has its own name": (
        "if event.transaction in self._decided:",
        "if False:",
        coordinator.test_an_attempt_that_was_decided_has_another_name_next_time,
        (),
    ),
    "names fit their field": (
        "if len(event.transaction) > SHORT_BYTES_MAX:",
        "if False:",
        coordinator.test_a_name_that_no_frame_can_hold_is_refused_before_anything_is_sent,
        (),
    ),
    "a block has its planned end": (
        "if offset > block.end:",
        "if False:",
        coordinator.test_more_bytes_than_planned_are_not_sent,
        (),
    ),
    "a vote that changes is refused": (
        "and commit == self._vote:",
        "and True:",
        coordinator.test_a_vote_that_changes_is_refused,
        (),
    ),
}
PARTICIPANT: Final[dict[str, tuple[str, str, Callable[..., None], tuple[Any, ...]]]] = {
    "a vote to abort is kept": (
        "if said.commit and voted and not self._vote:",
        "if False:",
        participant.test_a_vote_to_abort_is_never_committed,
        (),
    ),
    "offsets follow each other": (
        "if said.id != stream.end and not self._spoiled:",
        "if False:",
        participant.test_a_message_that_does_not_begin_where_the_last_ended_leads_to_an_abort,
        (11,),
    ),
    "ranges are those that came": (
        "problem = self._spoiled or self._misfit(said)",
        "problem = self._spoiled",
        participant.test_a_question_about_other_bytes_than_came_leads_to_an_abort,
        (participant.ask(10, 14), "(10, 14) is asked for"),
    ),
    "one transaction is open": (
        "            if said != self._open:\n",
        "            if False:\n",
        participant.test_the_same_question_gets_the_same_vote_and_another_an_error,
        (),
    ),
    "a decision that comes again moves nothing": (
        "if voted or asked.transaction in self._doubt:",
        "if True:",
        participant.test_a_decision_that_comes_again_goes_to_the_storage_and_changes_nothing_else,
        (True,),
    ),
    "the storage answers what it was asked": (
        "if asked is None or event.transaction != asked.transaction:",
        "if asked is None:",
        participant.test_an_answer_about_another_transaction_is_a_bug_of_the_storage,
        (),
    ),
    "stream 0 is not opened": (
        "        if ident == TRANSACTION_STREAM:\n",
        "        if False:\n",
        participant.test_stream_zero_and_more_streams_than_the_maximum_are_not_opened,
        (),
    ),
}
MACHINES: Final = {worker: WORKER, client: CLIENT, coordinator: COORDINATOR, participant: PARTICIPANT}
ALL: Final = {
    **CHECKS,
    **{
        f"{tests.__name__.rpartition('test_')[2]}: {name}": Left(tests, *left)
        for tests, table in MACHINES.items()
        for name, left in table.items()
    },
}


@pytest.mark.parametrize("name", ALL)
def test_a_check_that_is_left_out_is_missed_by_a_test_of_its_module(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    left = ALL[name]
    put_in(left, left.old, monkeypatch)
    left.test(*left.args)  # with the check it passes, from the same changed module
    put_in(left, left.new, monkeypatch)
    with pytest.raises(BaseException):  # noqa: B017, PT011  whatever the test fails with
        left.test(*left.args)


def put_in(left: Left, new: str, patch: pytest.MonkeyPatch) -> None:
    """Let the tests of a module use it with one place changed."""
    mutant = mutant_of(left.tests.__name__.rpartition(".test_")[2], left.old, new)
    for attribute, value in vars(mutant).items():
        own = getattr(value, "__module__", "") == mutant.__name__ and left.only in ("", attribute)
        if own and hasattr(left.tests, attribute):
            patch.setattr(left.tests, attribute, value)
