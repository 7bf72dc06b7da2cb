"""Errors of streams; `errors` draws the whole tree, and everybody imports them from there.

Imports the kinds of errors.
"""

from __future__ import annotations

from deathless.base.error_tree.kinds import Invalid


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
