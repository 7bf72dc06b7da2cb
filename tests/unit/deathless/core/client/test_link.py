"""Periods and maxima of a client stand in the right relation."""

from __future__ import annotations

from deathless.base.limits import Limits
from deathless.core.client.events import LinkId
from deathless.core.client.link import (
    ACK_S,
    BACKOFF_MAX_S,
    BACKOFF_MIN_S,
    BATCH_BYTES_MAX,
    BATCH_COUNT_MAX,
    GREET_MAX_S,
    GREET_S,
    PING_S,
    REPLY_PACKET_BYTES_MAX,
    RESEND_MAX_S,
    RESEND_S,
    SUSPECT_S,
    WATCH_S,
    WINDOW_BYTES_MAX,
    WINDOW_MAX,
    Link,
    LinkState,
)


def test_a_replica_is_pinged_before_it_is_suspected_and_given_time_to_answer() -> None:
    assert 0 < PING_S < SUSPECT_S < GREET_S < WATCH_S
    assert SUSPECT_S < RESEND_S < RESEND_MAX_S
    assert GREET_S < GREET_MAX_S
    assert 0 < BACKOFF_MIN_S < BACKOFF_MAX_S


def test_defaults_fit_the_servers_limits() -> None:
    limits = Limits()
    assert limits.session_window_max >= WINDOW_MAX
    assert limits.message_bytes_max >= BATCH_BYTES_MAX, "a batch is never longer than the longest message"
    assert limits.frame_bytes_max <= WINDOW_BYTES_MAX
    assert limits.frame_messages_max >= BATCH_COUNT_MAX
    assert limits.reply_bytes_max < REPLY_PACKET_BYTES_MAX
    assert limits.session_idle_max_s > ACK_S


def test_link_begins_by_dialing() -> None:
    link = Link(LinkId(1), "a", 3.0)
    assert link.state is LinkState.DIALING
    assert link.deadline == 3.0
