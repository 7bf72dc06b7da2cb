"""Errors of streams; `errors` draws the whole tree, and everybody imports them from there.

Imports the kinds of errors.
"""

from __future__ import annotations

from deathless.base.error_tree.kinds import Invalid, RetryLater


class StreamFenced(Invalid):
    """Another owner has taken the stream: who owned it before ends, and does not open it again."""

    code = "DL3080"
    http_status = 409
    remedy = "one process reads a source at a time; end the others"


class InputRefused(Invalid):
    """A handler refused an input, so its stream stands at it: the input is neither acknowledged nor lost."""

    code = "DL3081"
    http_status = 409
    remedy = "mend the handler or the input and have it tried again, or have it passed over"


class StreamNotStopped(Invalid):
    """The stream does not stand at the input that was named: it goes on already, or stands at another one."""

    code = "DL3082"
    http_status = 409
    remedy = "look at which input the stream stands now"


class InputNotKept(Invalid):
    """No refused input is listed there that can be run again: it was run or discarded, or its reason alone is kept."""

    code = "DL3076"
    http_status = 409
    remedy = "`deathless sources refused` shows which rows are kept, and under which lsn"


class StreamNotForgotten(Invalid):
    """The stream can't be forgotten now: somebody owns it, what it brought is under way or kept, or it is not known."""

    code = "DL3077"
    http_status = 409
    remedy = "take the source out of the manifest, or end its client; replay or discard the rows that are kept of it"


class SourceUnavailable(RetryLater):
    """A source can't be read now; nothing is lost, its process tries again."""

    code = "DL1026"
    remedy = "`deathless sources list` shows what it meets; it goes on by itself"


class SourceGap(Invalid):
    """What a source was to read next is gone, or what stands there is not what was read before: its stream stops."""

    code = "DL3083"
    http_status = 409
    remedy = (
        "bring back what is missing, and it goes on by itself; or decide where it goes on: `deathless sources skip`"
    )


class SourceRecordsGone(SourceGap):
    """What a source was to read next is no longer kept by its broker."""

    code = "DL3087"
    remedy = "decide where it goes on: `deathless sources skip`; and keep records for longer than sources stand still"


class SourceTopicReplaced(SourceGap):
    """The topic of a source is another one than the one that was read before."""

    code = "DL3088"
    remedy = "name the former topic again, or decide where it goes on in this one: `deathless sources skip`"


class SourceLogCut(SourceGap):
    """A broker has lost records that a source had taken in, or has others in their place."""

    code = "DL3089"
    remedy = "bring the records back, or decide where it goes on: `deathless sources skip`"


class InputUnreadable(Invalid):
    """What a source brought can't be made an input: no JSON, not of the declared class, without a key, or too long."""

    code = "DL3084"
    remedy = "`deathless sources refused` shows it; what becomes of such inputs is onRefusal of the source"


class SourceKeyChanged(Invalid):
    """A source places rows otherwise than before, while some shards lack rows that others have."""

    code = "DL3085"
    http_status = 409
    remedy = "set `key` and limits as they were until all shards are equally far, and change them then"


class ConnectorStreamsFull(Invalid):
    """A client of a connector's source names one more stream than the source may know."""

    code = "DL3090"
    http_status = 409
    remedy = (
        "send streams that are known; or raise maxStreams of the source, if these are meant to be streams of its own"
    )


class ConnectorBusy(Invalid):
    """A connector's source has as many connections as it may have."""

    code = "DL3091"
    http_status = 409
    remedy = "end connections that are not needed, or raise maxConnections of the source"


class ConnectorSilent(Invalid):
    """A client of a connector's source does not say what it has to, or takes nothing of what is said to it."""

    code = "DL3092"
    http_status = 408
    remedy = "connect again, and say HELLO at once, whole frames, and read what comes"


class ConnectorContended(Invalid):
    """Two clients of a connector's source call themselves the same instance, and take a stream from each other."""

    code = "DL3093"
    http_status = 409
    remedy = "let one of them send it, or give each an instance name of its own"
