"""A watch over keys of etcd that outlives connections, members and leaders.

    async with client.watch(b"/a/", prefix=True, from_revision=seen + 1) as watch:
        async for batch in watch: ...

- **Resume.** The watch knows the revision it will ask for next: one above the last it handed out. Whatever
  ends a stream (connection, member, leader, token), the next stream starts there, at the next endpoint.
- **Silent death.** A frozen member, or a connection that a middlebox forgot, sends nothing, and so does a
  quiet store. A stream silent for `watch_idle_s` is therefore opened anew: a live member confirms that at
  once, a dead one does not, and then the next endpoint is asked. So an event is seen at most about
  `watch_idle_s + attempt_timeout_s` late, whatever dies how.
- **No leader.** Streams carry `hasleader`: a member cut off from its leader ends them.
- **Compaction.** History that etcd dropped raises `EtcdCompacted`; so does a store that was replaced (other
  cluster id) or restored from a backup (its revision lies below what this watch has seen): there the start
  revision would lie in a future that never comes as it was. The caller reads the keys and watches anew.

Guarantees: every event from `from_revision` on, once, in order of revision, or an error. Does not: queue
(the consumer's pace is the connection's), or promise how soon. Ends only by an error or `close`.
"""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import Final, Self

import msgspec

from deathless.base.errors import Closed
from deathless.shell import etcd_wire as wire
from deathless.shell.etcd_errors import EtcdCompacted, EtcdRefused, EtcdUnavailable
from deathless.shell.etcd_gateway import RETRY_PAUSE_MAX_S, RETRY_PAUSE_MIN_S, Gateway, LineStream, refusal, stale_token

_PERMISSION_TEXT: Final = "PermissionDenied"
_PERMISSION_DENIED: Final = 7


class Watch:
    """An async iterator of `WatchBatch`; made by `EtcdClient.watch`, closed by leaving its `async with`."""

    def __init__(self, gateway: Gateway, key: bytes, *, prefix: bool, from_revision: int) -> None:
        assert from_revision >= 1, "read first, then watch from the read's revision + 1"
        self._gateway = gateway
        self._key = key
        self._prefix = prefix
        self._next_revision = from_revision
        self._cluster_id = 0  # 0: no answer yet
        self._stream: LineStream | None = None
        self._confirmed = False  # etcd said that the stream's watch exists
        self._pause_s = 0.0  # before the next stream; grows while streams fail at once
        self._ended = False

    @property
    def next_revision(self) -> int:
        """The first revision not handed out yet."""
        return self._next_revision

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __aiter__(self) -> Self:
        return self

    def close(self) -> None:
        """End the watch."""
        self._ended = True
        self._drop()

    async def __anext__(self) -> wire.WatchBatch:
        """Wait for the next events.

        Raises:
            EtcdCompacted: read the keys again and watch from there.
            EtcdAuth, EtcdRefused: etcd does not let us watch these keys.
            Closed: the watch was closed, or ended by an error before.
        """
        while True:
            if self._ended:
                raise Closed("the watch has ended")
            try:
                batch = await self._step()
            except EtcdUnavailable:
                # No endpoint gave an answer, or a stream broke: another one goes on where it ended.
                self._failed()
            except BaseException as error:
                # A cancelled wait loses nothing: lines not yet read stay in the stream's buffer.
                if not isinstance(error, asyncio.CancelledError):
                    self.close()
                raise
            else:
                if batch is not None:
                    return batch

    async def _step(self) -> wire.WatchBatch | None:
        """Open a stream where there is none, else take one message from it."""
        if self._stream is None:
            if self._pause_s:
                await asyncio.sleep(self._pause_s)
            body = wire.encode_watch(self._key, prefix=self._prefix, start_revision=self._next_revision)
            self._stream = await self._gateway.stream("watch", body)
            self._confirmed = False
        settings = self._gateway.settings
        line = await self._stream.line(settings.watch_idle_s if self._confirmed else settings.attempt_timeout_s)
        if line is None:
            if not self._confirmed:
                raise EtcdUnavailable(f"{self._stream.endpoint}: the watch was not confirmed")
            self._drop()  # silent: quiet or dead, opening anew tells
            return None
        answer = _parse(line)
        self._check(answer)
        if answer.created:
            self._confirmed = True
            if answer.header.revision < self._next_revision - 1:
                await self._check_not_restored()
        if not answer.events:
            return None  # progress
        self._pause_s = 0.0
        batch = answer.batch()
        if batch.revision < self._next_revision:
            raise EtcdRefused(f"etcd sent an event of revision {batch.revision}, asked from {self._next_revision}")
        self._next_revision = batch.revision + 1
        return batch

    def _check(self, answer: wire.WatchAnswer) -> None:
        """Raise what a message says against going on."""
        cluster_id = answer.header.cluster_id
        if cluster_id and self._cluster_id and cluster_id != self._cluster_id:
            raise EtcdCompacted(f"the store was replaced: cluster id {cluster_id:x}, before {self._cluster_id:x}")
        self._cluster_id = cluster_id or self._cluster_id
        if not answer.canceled:
            return
        if answer.compact_revision:
            raise EtcdCompacted(
                f"watch from revision {self._next_revision}: compacted up to {answer.compact_revision}",
                revision=answer.compact_revision,
            )
        if stale_token(0, answer.cancel_reason):
            self._gateway.forget_token()
            raise EtcdUnavailable(answer.cancel_reason)
        if _PERMISSION_TEXT in answer.cancel_reason:
            raise refusal(_PERMISSION_DENIED, answer.cancel_reason)
        raise EtcdUnavailable(f"watch cancelled: {answer.cancel_reason or 'no reason given'}")

    async def _check_not_restored(self) -> None:
        """The member is behind what we saw: it lags, or the whole store went back. A linearizable read tells."""
        body = wire.encode_range(self._key, prefix=False, limit=1, serializable=False)
        revision = (await self._gateway.call("kv/range", body, wire.RANGE, repeatable=True)).revision
        if revision < self._next_revision - 1:
            raise EtcdCompacted(f"the store went back: revision {revision}, seen before {self._next_revision - 1}")

    def _failed(self) -> None:
        if self._stream is not None:
            self._gateway.failed(self._stream.endpoint)
        self._drop()
        self._pause_s = min(max(2 * self._pause_s, RETRY_PAUSE_MIN_S), RETRY_PAUSE_MAX_S)

    def _drop(self) -> None:
        if self._stream is not None:
            self._stream.close()
            self._stream = None


def _parse(line: bytes) -> wire.WatchAnswer:
    try:
        parsed = wire.WATCH.decode(line)
    except msgspec.DecodeError as error:
        raise EtcdUnavailable(f"a watch sent what is not etcd's: {error}") from error
    if parsed.error is not None:
        raise EtcdUnavailable(f"watch: {parsed.error.message}")
    if parsed.result is None:
        raise EtcdRefused("a watch sent an empty message")
    return parsed.result
