"""Errors of pipelines; `errors` draws the whole tree, and everybody imports them from there.

Imports the kinds of errors.
"""

from __future__ import annotations

from deathless.base.error_tree.kinds import Invalid


class SparkMissing(Invalid):
    """PySpark, or a Java that it runs on, is not on this machine."""

    code = "DL3063"
    exit_code = 78
    remedy = "pip install deathless[spark], and install Java 17 or newer"


class StateRefused(Invalid):
    """A query keeps state in Spark in a way that can't be handed over to another driver."""

    code = "DL3064"
    exit_code = 78
    remedy = "keep the state in the service that the rows go to: a handler adds up what it is sent"


class StateFolderMissing(Invalid):
    """A query keeps state in Spark, and its drivers have no folder for it."""

    code = "DL3098"
    exit_code = 78
    remedy = "run the drivers where the folder of the pipeline's service is"


class StateMissing(Invalid):
    """The state that a query is to go on from is not there, or not whole."""

    code = "DL3099"
    exit_code = 64
    remedy = "give the query another name: it begins anew, with the rows that its topics still keep"
