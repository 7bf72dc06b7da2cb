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
