"""Errors of topics and of sinks, which read them; `base.errors` draws the tree, and has them as well.

Imports the kinds of errors.
"""

from __future__ import annotations

from deathless.base.error_groups.kinds import Invalid


class TopicRowsMissing(Invalid):
    """A topic's files lack rows that were durable: their storage was rolled back. The topic stops until it is told."""

    code = "DL3065"
    remedy = "bring the files back, or give the rows up: `deathless topics skip`"


class TopicGap(Invalid):
    """Rows that a reader asked for are in no whole block of the topic's files."""

    code = "DL3066"
    remedy = "read up to `next` of `deathless topics show`; below it, bring the named files back from a backup"


class TopicRowsDropped(Invalid):
    """Rows that a reader asked for are below the topic's floor: they are kept no longer."""

    code = "DL3067"
    remedy = "go on at the floor, and register a hold before rows are needed"


class TopicNotKept(Invalid):
    """The code declares a topic that the manifest does not name, so nobody would keep its rows."""

    code = "DL3068"
    exit_code = 78
    remedy = "name the topic under spec.topics of the manifest, and start the replicas again"


class SinkRowRefused(Invalid):
    """A sink's store refuses a row for good: the sink stops at its position."""

    code = "DL3070"
    remedy = (
        "make the table take it, and the sink goes on by itself; or give the row up: `deathless sinks skip NAME "
        "--position N`"
    )


class SinkTableUnfit(Invalid):
    """The table of a sink is missing, lacks a column, or its role may not write to it."""

    code = "DL3071"
    remedy = "create or change the table; the sink looks again by itself"


class SinkTipMismatch(Invalid):
    """The store is not as this sink left it: it was restored, or the rows come from a restored service."""

    code = "DL3072"
    remedy = "if the store shall go on as it stands: `deathless sinks adopt NAME`"


class SinkTaken(Invalid):
    """Another service writes, or wrote, under the name of this sink."""

    code = "DL3073"
    remedy = "choose another name for one of the two; or take the name over: `deathless sinks adopt NAME`"


class SinkColumnsChanged(Invalid):
    """The columns that a sink writes, or their types in the table, are not those that it began with."""

    code = "DL3074"
    remedy = "if rows shall go on with these columns: `deathless sinks adopt NAME`"


class SinkRowsDropped(Invalid):
    """Rows that a sink has not stored are kept no longer: its hold was dropped, or came too late."""

    code = "DL3075"
    remedy = "give them up: `deathless sinks skip NAME --to N`; raise holdBytesMax for the next time"
