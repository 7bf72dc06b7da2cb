"""Reads the rows of one topic over HTTP: of one shard, by their positions, exactly or not at all.

    RemoteTopic(["https://airports-0:8080", "https://airports-1:8080"], "departures", token_file="/run/token")

It has what `TopicReader` has, for programs that do not see the files. Its first answer says of which source positions
are; from then on each request names it, so that a service that was restored meanwhile is met as TopicSourceDiffers and
never as other rows. An answer that ends before its end is asked for again, from behind the last batch that was whole.

One thread at a time may use it. It can be pickled: what goes along are its arguments, and names of files in the place
of what stands in them.

Guarantees: no row is given twice or left out, whichever replica ends in the middle of an answer. Does not: cache rows.
Imports the rest of this package.
"""

from __future__ import annotations

import http.client
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing
from typing import TYPE_CHECKING, Final, TypeVar

import msgspec

from deathless.base.errors import InvalidArgument, PeerUnreachable, TopicAnswerTorn, TopicGap
from deathless.base.topics.state import WAIT_MAX_S, TopicState
from deathless.codec.untrusted import read_json
from deathless.topics.arrow import arrow_schema, fit
from deathless.topics.http_port import HttpPort
from deathless.topics.reader import LOOKS, PAUSE_S, chosen
from deathless.topics.row_source import Bounds, Extent, follow_rows
from deathless.topics.source import TopicSource, parse_source
from deathless.topics.wire import AnswerTorn, received, schema_text

if TYPE_CHECKING:
    import pyarrow as pa

T = TypeVar("T")
TORN_MAX: Final = 8  # answers in a row that end before anything new came


class _List(msgspec.Struct):
    """Answer to /topics."""

    topics: list[TopicState]


class _Dropped(msgspec.Struct):
    """Answer to a hold that was dropped."""

    dropped: bool


class RemoteTopic:
    """Reads one topic over HTTP.

    Args:
        urls: of one replica's HTTP port, or of several.
        topic: its name.
        shard: of the service.
        source: whose rows: `<service id>.<incarnation>`; empty: of the one that publishes when it is first asked.
        token_file: see `HttpPort`, as the others.
        ca_file: authorities that are trusted.
        certificate_file: to show.
        key_file: of that.
        timeout_s: without a byte after this the next replica is asked.
        patience_s: so long a request is repeated.
        sleep: pauses for so many seconds; does not go along with a pickle.

    Raises: InvalidConfig.
    """

    def __init__(  # noqa: PLR0913  each is a setting of its own
        self,
        urls: str | Sequence[str],
        topic: str,
        shard: int = 0,
        source: str | TopicSource = "",
        *,
        token_file: str = "",
        ca_file: str = "",
        certificate_file: str = "",
        key_file: str = "",
        timeout_s: float = 30.0,
        patience_s: float = 60.0,
        sleep: Callable[[float], object] = time.sleep,
    ) -> None:
        self.topic, self.shard = topic, shard
        self._source = source.folder if isinstance(source, TopicSource) else source
        self._settings: dict[str, object] = {
            "token_file": token_file, "ca_file": ca_file, "certificate_file": certificate_file, "key_file": key_file,
            "timeout_s": timeout_s, "patience_s": patience_s,
        }  # fmt: skip
        self._urls = (urls,) if isinstance(urls, str) else tuple(urls)
        self._sleep = sleep
        self._port = HttpPort(
            self._urls,
            token_file=token_file,
            ca_file=ca_file,
            certificate_file=certificate_file,
            key_file=key_file,
            timeout_s=timeout_s,
            patience_s=patience_s,
            sleep=sleep,
        )

    def __reduce__(self) -> tuple[object, ...]:
        """Give what makes another one, with the source that was met."""
        return _made, (self._urls, self.topic, self.shard, self._source, self._settings)

    # ---- what there is ---------------------------------------------------------------------------------------

    def state(self, *, above: int | None = None, wait_s: int = 0) -> TopicState:
        """Give which rows there are.

        Args:
            above: wait until `next` is above it.
            wait_s: but no longer, [0, WAIT_MAX_S] seconds.

        Raises: TopicSourceDiffers; TopicNotReadable; InvalidArgument; PeerUnreachable.
        """
        query: dict[str, object] = {"above": above, "wait": wait_s} if above is not None else {}
        state = _read(self._port.ask("GET", self._path(), query | self._sourced(), wait_s=wait_s), TopicState)
        self._source = self._source or state.source
        return state

    def source(self) -> TopicSource:
        """Give whose rows are read. Raises: InvalidArgument when there are none; as `state`."""
        source = parse_source(self._source or self._published().source)
        if source is None:
            raise InvalidArgument(f"{self._source!r} is no source of a topic")
        return source

    def bounds(self) -> Bounds:
        """Give which rows there are now. Raises: as `source`."""
        state = self._published()
        return Bounds(state.floor, state.first, state.next)

    def extent(self) -> Extent:
        """Give how much there is. Raises: as `source`."""
        state = self._published()
        return Extent(state.files, state.bytes, state.time_us, state.columns)

    def schema(self, columns: Sequence[str] | None = None) -> pa.Schema:
        """Give the columns of the newest rows, or those of them. Raises: as `source`."""
        return chosen(arrow_schema(self._published().columns), columns)

    # ---- rows ------------------------------------------------------------------------------------------------

    def read(
        self, start: int, end: int, columns: Sequence[str] | None = None, *, schema: pa.Schema | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Give the rows from position `start` up to `end`, as `TopicReader.read`.

        Raises: as that; TopicSourceDiffers; TopicNotReadable; TopicAnswerTorn; PeerUnreachable.
        """
        if start < 1:
            raise InvalidArgument(f"positions begin with 1, not with {start}")
        position, failures, looks = start, 0, 0
        while position < end:
            before = position
            try:
                with closing(self._parts(position, end, columns, schema)) as parts:
                    for behind, batch in parts:
                        schema, position = schema or batch.schema, behind
                        if batch.num_rows:
                            yield fit(batch, schema)
            except (AnswerTorn, OSError, http.client.HTTPException) as error:
                failures = 1 if position > before else failures + 1
                if failures > TORN_MAX:
                    raise TopicAnswerTorn(f"topic {self.topic!r}, position {position}: {error}") from None
                self._port.pause(failures)
            except TopicGap:
                looks = 1 if position > before else looks + 1
                if looks > LOOKS:
                    raise
                self._sleep(PAUSE_S)

    def _parts(
        self, start: int, end: int, columns: Sequence[str] | None, schema: pa.Schema | None
    ) -> Generator[tuple[int, pa.RecordBatch], None, None]:
        query: dict[str, object] = {"from": start, "to": end} | self._sourced()
        if schema is not None:
            query |= {"columns": ",".join(schema.names), "schema": _text(schema)}
        elif columns is not None:
            query["columns"] = ",".join(columns)
        with self._port.open([*self._path(), "rows"], query) as answer:
            yield from received(answer, start, end)

    def follow(
        self, start: int, columns: Sequence[str] | None = None, *, pause_s: float = PAUSE_S
    ) -> Iterator[pa.RecordBatch]:
        """Give the rows from `start` on, for ever, as they come. Raises: as `read`."""
        return follow_rows(self, start, columns, pause_s=pause_s)

    def wait(self, position: int, *, pause_s: float = PAUSE_S, pauses: int | None = None) -> int:
        """Wait until a position is there; gives the one up to which all are.

        The service answers when there is something new, so no time passes between two looks.

        Args:
            position: that is waited for.
            pause_s: with `pauses`, how long one lasts.
            pauses: after so many give up, and give what is there; None: never.

        Raises: as `state`.
        """
        left_s = float(WAIT_MAX_S) if pauses is None else pause_s * pauses
        while True:
            wait_s = min(int(left_s), WAIT_MAX_S)
            state = self.state(above=position, wait_s=wait_s)
            if position < state.next or (pauses is not None and left_s <= 0):
                return state.next
            if pauses is not None:
                if not wait_s:
                    self._sleep(left_s)
                left_s = left_s - wait_s if wait_s else 0.0

    # ---- what is kept ----------------------------------------------------------------------------------------

    def hold(self, name: str, position: int, *, owner: str = "", since: str = "") -> None:
        """Keep the rows from a position on; the same name again moves the hold.

        Args:
            name: of the hold.
            position: from which on rows are kept.
            owner: who registers it, where the service does not know who asks.
            since: when, for people.

        Raises: TopicRowsDropped when they may be gone already; TopicNotReadable when it is another caller's;
            as `state`.
        """
        told = {"position": position, "owner": owner, "since": since}
        query = {key: value for key, value in told.items() if value} | self._sourced()
        self._port.ask("PUT", [*self._path(), "holds", name], query)

    def drop_hold(self, name: str) -> bool:
        """Let go of a hold; False: there is none. Raises: as `hold`."""
        return _read(self._port.ask("DELETE", [*self._path(), "holds", name], self._sourced()), _Dropped).dropped

    def _path(self) -> list[str]:
        return ["topics", self.topic, str(self.shard)]

    def _sourced(self) -> dict[str, object]:
        return {"source": self._source} if self._source else {}

    def _published(self) -> TopicState:
        state = self.state()
        if not state.source:
            raise InvalidArgument(f"topic {self.topic!r} of shard {self.shard} has no rows")
        return state


def list_topics(port: HttpPort) -> list[TopicState]:
    """Give the topics that may be read, of all shards. Raises: as `HttpPort.ask`."""
    return _read(port.ask("GET", ["topics"], {}), _List).topics


def _read(body: bytes, kind: type[T]) -> T:
    try:
        return read_json(body, kind)
    except msgspec.MsgspecError as error:
        raise PeerUnreachable(f"this is no answer of a service: {error}", remedy="check the URL") from None


def _text(schema: pa.Schema) -> str:
    try:
        return schema_text(schema)
    except ValueError as error:
        raise InvalidArgument(str(error)) from None


def _made(urls: Sequence[str], topic: str, shard: int, source: str, settings: dict[str, object]) -> RemoteTopic:
    return RemoteTopic(urls, topic, shard, source, **settings)  # type: ignore[arg-type]  # as they were given
