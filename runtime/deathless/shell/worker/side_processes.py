"""What operators are told of the processes beside a primary: sources and sinks, as they said last.

What they say stands in files beside the log (`shell.link.source_status`, `sink_status`), which whoever leads reads, so
an answer may be older than what it tells of: each entry has the time `atUs` of its last word.

Guarantees: an answer fits a packet, however many streams there are and however long their problems are. Does not: speak
with these processes, or with what they read and write. Imports base and link.
"""

from __future__ import annotations

import itertools
from typing import Final

from deathless.base.config import ReplicaConfig
from deathless.base.errors import PermissionRefused
from deathless.base.listings.sources import STREAMS_SHOWN_MAX
from deathless.shell.link.sink_status import describe_sink
from deathless.shell.link.source_status import describe_streams

CHARS_MAX: Final = 512  # of a problem and a name


def list_sources(config: ReplicaConfig, first: int = 0) -> dict[str, object]:
    """Give the streams of all sources that are read beside a shard, STREAMS_SHOWN_MAX at most.

    What each shard of the service has taken of a stream is left out: it would not fit an answer.

    Args:
        config: of the shard.
        first: so many entries are left out, which an answer before had. `from` of the answer says so where it is
            above 0; a primary of before gives its first entries again, and no `from`.

    Raises: PermissionRefused for a file that can't be read.
    """
    try:
        found = (
            each
            for source in config.sources
            for each in describe_streams(config.directory, config.shard, source)
        )  # fmt: skip
        listed = [_bounded(each) for each in itertools.islice(found, first, first + STREAMS_SHOWN_MAX + 1)]
    except OSError as error:
        raise PermissionRefused(f"what the sources said last can't be read: {error}") from None
    told: dict[str, object] = {"sources": listed[:STREAMS_SHOWN_MAX], "more": len(listed) > STREAMS_SHOWN_MAX}
    return told | ({"from": first} if first else {})


def list_sinks(config: ReplicaConfig) -> dict[str, object]:
    """Give the sinks of a shard. Raises: PermissionRefused for a file that can't be read."""
    try:
        return {"sinks": [_bounded(describe_sink(config.directory, config.shard, sink)) for sink in config.sinks]}
    except OSError as error:
        raise PermissionRefused(f"what the sinks said last can't be read: {error}") from None


def _bounded(entry: dict[str, object]) -> dict[str, object]:
    """Give an entry as one of many: the page names its shard where there are several."""
    kept = {name: value for name, value in entry.items() if name not in ("shard", "shards")}
    return {name: value[:CHARS_MAX] if isinstance(value, str) else value for name, value in kept.items()}
