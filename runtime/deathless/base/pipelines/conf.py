"""What may be set of Spark in a pipeline, and what is set whatever its user says.

Why here: a manifest is refused where it is read, long before there is a Spark to ask.

Guarantees: a function of names and values. Does not: know what other names mean to Spark. Imports nothing of ours.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

FIXED: Final = {
    # Over TCP each batch waits for Python's workers, and the other manager forks processes for each file.
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
    # A batch that was computed twice at once is harmless to services, and costs twice.
    "spark.speculation": "false",
}
"""What every driver has: another value is refused."""

FIELDS: Final = {
    "spark.master": "spec.drivers.cores",
    "spark.driver.cores": "spec.drivers.cores",
    "spark.driver.memory": "spec.drivers.memory",
    "spark.app.name": "metadata.name",
}
"""What a manifest says with a field of its own."""

REFUSED: Final = {
    "spark.remote": "a pipeline's driver holds its session itself",
    "spark.api.mode": "a pipeline's driver holds its session itself",
    "spark.dynamicAllocation.enabled": "a driver that takes over would have to wait for executors",
}
"""What no pipeline can work with, and why."""

NO_SECRETS: Final = "would be a secret that whoever sees the manifest, or the processes of a driver, sees as well"
BY_FILE: Final = "leave it out; read it from a file where the queries are built, and set it there: spark.conf.set"


_SECRET: Final = re.compile(
    r"(password|passphrase|secret|token|(secret|access|account|private)[._-]?key)$|account\.key\.", re.IGNORECASE
)


def holds_secret(name: str) -> bool:
    """Say whether what is set under this name is a secret, which whoever sees a manifest or a process would see."""
    return _SECRET.search(name) is not None


class Refused(NamedTuple):
    """A name that may not be set so."""

    name: str
    value: str
    what: str
    remedy: str


def refused(conf: Mapping[str, str]) -> Iterator[Refused]:
    """Yield what a manifest's `spec.conf` may not say."""
    for name, value in conf.items():
        if name in FIXED and value != FIXED[name]:
            yield Refused(name, value, f"is {FIXED[name]} in a pipeline", "leave it out")
        elif name in FIELDS:
            yield Refused(name, value, f"is said by {FIELDS[name]}", f"set {FIELDS[name]} instead")
        elif name in REFUSED:
            yield Refused(name, value, f"can't be set: {REFUSED[name]}", "leave it out")
        elif holds_secret(name):
            yield Refused(name, "***", NO_SECRETS, BY_FILE)
        elif not name.startswith("spark."):
            yield Refused(name, value, "is no name of Spark's: they begin with spark.", "write spark.<name>")
