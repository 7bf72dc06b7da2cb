"""Errors of sinks; `errors` draws the whole tree, and everybody imports them from there.

Imports the kinds of errors.
"""

from __future__ import annotations

from deathless.base.error_tree.kinds import Invalid


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
