"""The last word of a replica that ends or stays stopped: `DLnnnn text (remedy)`, where its operator looks for it.

In a pod that is the container's termination message, which Kubernetes shows in the pod's status. Guarantees: never
fails and never waits for the log's storage. Does not: keep anything but the last one. Imports nothing of ours.
"""

from __future__ import annotations

import logging
import os
from typing import Final

_LOG: Final = logging.getLogger("deathless.termination")
BYTES_MAX: Final = 4096  # Kubernetes takes no more


def leave_word(path: str, text: str) -> None:
    """Write `text` over what stands at `path`; an empty path: nowhere. The file is a mount: it can't be replaced."""
    if not path:
        return
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
        try:
            os.write(descriptor, text.encode(errors="replace")[:BYTES_MAX])
        finally:
            os.close(descriptor)
    except OSError as error:
        _LOG.warning("can't write the termination message", extra={"path": path, "why": str(error)})
