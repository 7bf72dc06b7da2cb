"""Errors of topics; `errors` draws the whole tree, and everybody imports them from there.

Imports the kinds of errors.
"""

from __future__ import annotations

from deathless.base.error_tree.kinds import Invalid, RetryLater


class TopicRowsMissing(Invalid):
    """A topic's files lack rows that were durable: their storage was rolled back. The topic stops until it is told."""

    code = "DL3065"
    remedy = "bring the files back, or give the rows up: `deathless topics skip`"


class TopicGap(Invalid):
    """Rows that a reader asked for are in no whole block of the topic's files."""

    code = "DL3066"
    http_status = 404
    remedy = "read up to `next` of `deathless topics show`; below it, bring the named files back from a backup"


class TopicRowsDropped(Invalid):
    """Rows that a reader asked for are below the topic's floor: they are kept no longer."""

    code = "DL3067"
    http_status = 410
    remedy = "go on at the floor, and register a hold before rows are needed"


class TopicNotKept(Invalid):
    """The code declares a topic that the manifest does not name, so nobody would keep its rows."""

    code = "DL3068"
    exit_code = 78
    remedy = "name the topic under spec.topics of the manifest, and start the replicas again"


class TopicNotReadable(Invalid):
    """Who asks for a topic over HTTP is none of its readers."""

    code = "DL3069"
    http_status = 403
    exit_code = 77
    remedy = "name the caller under `readers` of the topic in the manifest; files can be read without"


class TopicSourceDiffers(Invalid):
    """Positions belong to another source than the one that publishes now: the service was restored, or made anew."""

    code = "DL3062"
    http_status = 409
    remedy = "positions of two sources have nothing to do with each other: begin at `first` of the present source"


class TopicAnswerTorn(RetryLater):
    """An answer with rows of a topic ended before its end, each time that it was asked for."""

    code = "DL1025"
    remedy = "read again from the position behind the last row; the log of the replica's ingress may say why"
