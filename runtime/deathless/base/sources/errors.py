"""Errors of streams and sources: a branch of the tree in `deathless.base.errors`.

    Invalid
    |- StreamFenced      another owner has taken the stream
    |- InputRefused      a handler refused an input, and its stream stands until an operator says how it goes on
    |- StreamNotStopped  an operator named an input at which its stream does not stand

Guarantees: as there. Imports base.errors.
"""

from __future__ import annotations

from deathless.base.errors import Invalid


class StreamFenced(Invalid):
    """Another owner has taken the stream: who owned it before ends, and does not open it again."""

    code = "DL3080"
    exit_code = 76
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
