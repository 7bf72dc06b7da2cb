"""What stops a replica, as one of our errors: whatever is raised while effects are carried out (I8).

Guarantees: every exception becomes an error with a code and a page. Does not: retry. Imports base.
"""

from __future__ import annotations

from deathless.base.errors import DeathlessError, Internal
from deathless.base.storage import storage_error


def as_ours(error: Exception, during: str) -> DeathlessError:
    """Give one of our errors for whatever was raised: our own as it is, the operating system's naming the file."""
    if isinstance(error, DeathlessError):
        return error
    if not isinstance(error, OSError):
        return Internal(f"{during}: {type(error).__name__}: {error}")
    ours = storage_error(error)
    if ours is not None:
        return ours
    what = f"{error.strerror or error} ({error.filename})" if error.filename else str(error)
    return Internal(f"input/output: {what}", remedy="check the log's storage; the replica restarts automatically")
