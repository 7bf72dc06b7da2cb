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


class SinkRowNotKept(Invalid):
    """The store keeps no refused row of that position: it was stored or discarded, or was never refused."""

    code = "DL3078"
    remedy = "`deathless sinks refused` shows which rows are kept"


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


class SinkEngineUnfit(Invalid):
    """The engine of a sink's table, or what hangs on the table, can't keep each row exactly once."""

    code = "DL3095"
    remedy = "write to a table of the engine MergeTree, without a TTL and without views that are fed by it"


class SinkServerChanged(Invalid):
    """A sink wrote through another server, or as another user, whose running statements can't be seen from here."""

    code = "DL3096"
    remedy = "name that server and that user; or if neither runs any statement: `deathless sinks adopt NAME`"


class SinkJournalUnsound(Invalid):
    """What a sink has written down of its blocks contradicts itself: two have written, or somebody changed it."""

    code = "DL3097"
    remedy = "compare the table's rows with the topic's; then `deathless sinks adopt NAME`"
