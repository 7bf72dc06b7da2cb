"""Topics over HTTP: what a service publishes, for programs that do not see its files.

    GET    /topics                                      those that the caller may read, of all shards
    GET    /topics/{topic}/{shard}                      which rows there are: floor, first, next; source; columns; bytes
               ?above=N&wait=S                          answered when `next` is above N, or after S seconds
    GET    /topics/{topic}/{shard}/rows?from=N&to=M     the rows from N up to M, without it: an Arrow IPC stream
               ?columns=a,b  ?schema=TEXT               only these columns; columns of this row schema
               ?format=ndjson, or Accept                lines of JSON
    PUT    /topics/{topic}/{shard}/holds/{hold}?position=N    keeps the rows from N on; again moves it
    DELETE /topics/{topic}/{shard}/holds/{hold}         lets go of it

`?source=ID.INCARNATION` says of which source positions are; where that is not the one that is served, it is a 409.

Every replica answers from the files that all of them share, so no primary is needed, and a takeover is not noticed.
Reading blocks, so it is done in READS_MAX threads, a block at a time: whoever takes an answer slowly has no thread
meanwhile, and one block in memory.

Guarantees: an answer 200 with rows that came to its end holds all rows that were asked for; one that can't be brought
to its end is cut (`StreamedBody`). Requests under way, and requests that wait, have a maximum (I10). Does not: know
Arrow or files: what reads rows is a layer above, which `serve` loads by its name. Imports shell.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from typing import Final, NamedTuple, Protocol, TypeVar

import msgspec

from deathless.base.config import ReplicaConfig
from deathless.base.errors import DeathlessError, InvalidArgument, InvalidConfig, Overloaded, StorageFailed
from deathless.base.shards import shard_directory
from deathless.base.topics.settings import FOLDER
from deathless.base.topics.state import ARROW, NDJSON, WAIT_MAX_S, TopicState
from deathless.shell.ingress.callers import Admitted
from deathless.shell.ingress.operators import Operators
from deathless.shell.ingress.routes import parse_query, unescape
from deathless.shell.ingress.topic_readers import TopicReaders, readers_at
from deathless.shell.web.request import Request
from deathless.shell.web.streamed_body import ClientLeft

_LOG: Final = logging.getLogger("deathless.ingress")
T = TypeVar("T")
TOPICS: Final = b"topics"
READS_MAX: Final = 4  # threads that read
REQUESTS_MAX: Final = 64  # under way
ROWS_MAX: Final = 48  # of them, that send rows, which may take long: the others find a place all the same
WAITS_MAX: Final = 256  # that wait for rows
LOOK_S: Final = 0.05  # between two looks at a topic that somebody waits for
TEXT_MAX: Final = 256  # characters of an owner
NOT_HERE: Final = 501  # pyarrow is not installed
_NUMBER: Final = re.compile(r"[0-9]{1,18}")
_SHARD: Final = re.compile(rb"0|[1-9][0-9]{0,2}")
_GET: Final = (b"GET", b"HEAD")


class Rows(Protocol):
    """Rows of one answer, as bytes; each method blocks."""

    def next(self) -> bytes | None:
        """Give the next piece; None: there are no more."""
        ...

    def close(self) -> None:
        """Let go of what is open."""
        ...


class ServedTopics(Protocol):
    """What reads the files of topics, in threads; `deathless.topics.serving` says what each method does."""

    def state(self, topic: str, shard: int, source: str) -> TopicState:
        """Give which rows there are."""
        ...

    def rows(
        self,
        topic: str,
        shard: int,
        source: str,
        *,
        start: int | None,
        end: int | None,
        columns: Sequence[str] | None,
        schema: str | None,
        lines: bool,
    ) -> Rows:
        """Give rows."""
        ...

    def hold(
        self, topic: str, shard: int, source: str, name: str, position: int, *, owner: str, since: str, of_others: bool
    ) -> None:
        """Register or move a hold."""
        ...

    def drop_hold(self, topic: str, shard: int, source: str, name: str, *, owner: str, of_others: bool) -> bool:
        """Drop a hold; False: there is none."""
        ...


class TopicPage(NamedTuple):
    """One address, found."""

    methods: tuple[bytes, ...]
    topic: str = ""  # empty: the list of all
    shard: int = 0
    rows: bool = False
    hold: str = ""


class TopicPages:
    """Answers requests for topics.

    Args:
        readers: say who may read which.
        shards: of the service.
        served: makes what reads files; called in a thread, at the first request.
    """

    def __init__(self, readers: TopicReaders, shards: int, served: Callable[[], ServedTopics]) -> None:
        self._readers = readers
        self._shards = shards
        self._make = served
        self._served: ServedTopics | None = None
        self._threads = ThreadPoolExecutor(READS_MAX, "topics")
        self._open = 0  # requests under way
        self._waits = 0
        self._looks: dict[tuple[str, int, str], tuple[float, TopicState]] = {}  # the last one of those waited for
        self._stopping = asyncio.Event()

    def find(self, parts: Sequence[bytes]) -> TopicPage | None:
        """Give the page of an address, divided at its slashes; None: it is none of ours."""
        if parts[1:2] != [TOPICS]:
            return None
        match parts[2:]:
            case []:
                return TopicPage(_GET)
            case [topic, shard] if _SHARD.fullmatch(shard):
                return TopicPage(_GET, unescape(topic, "the topic"), int(shard))
            case [topic, shard, b"rows"] if _SHARD.fullmatch(shard):
                return TopicPage(_GET, unescape(topic, "the topic"), int(shard), rows=True)
            case [topic, shard, b"holds", hold] if hold and _SHARD.fullmatch(shard):
                name = unescape(hold, "the hold")
                return TopicPage((b"PUT", b"DELETE"), unescape(topic, "the topic"), int(shard), hold=name)
            case _:
                return None

    async def answer(self, request: Request, page: TopicPage, who: Admitted) -> bytes | None:
        """Give the JSON of a page; None: the answer was given, or its client left.

        Args:
            request: of one of the page's methods.
            page: that was asked for.
            who: asks.

        Raises: TopicNotReadable, UnknownHandler; TopicSourceDiffers, TopicGap, TopicRowsDropped; InvalidArgument;
            Overloaded; StorageFailed; InvalidConfig when pyarrow is missing, see `status_of`.
        """
        named = _once(parse_query(request.query))
        if not page.topic:
            _only(named, ())
            return await self._list(who)
        self._readers.admit(page.topic, who)
        if page.shard >= self._shards:
            raise InvalidArgument(f"there are shards 0 to {self._shards - 1}")
        if page.rows:
            await self._send(request, page, named)
            return None
        if page.hold:
            return await self._hold(request.method, page, named, who)
        return await self._state(request, page, named)

    # ---- which rows there are --------------------------------------------------------------------------------

    async def _list(self, who: Admitted) -> bytes:
        may = [topic for topic in sorted(self._readers.topics) if self._readers.may(topic, who)]
        pairs = [(topic, shard) for topic in may for shard in range(self._shards)]
        with self._place():
            found = [await self._look(TopicPage(_GET, topic, shard), "") for topic, shard in pairs]
        return msgspec.json.encode({"topics": found})

    async def _state(self, request: Request, page: TopicPage, named: dict[str, str]) -> bytes | None:
        _only(named, ("source", "above", "wait"))
        source, above = named.get("source", ""), _number(named, "above")
        wait_s = _number(named, "wait") or 0
        if wait_s > WAIT_MAX_S or (wait_s and above is None):
            raise InvalidArgument(f"wait is at most {WAIT_MAX_S} seconds, and goes with `above` - at `$.wait`")
        with self._place():
            state = await self._look(page, source)
        if above is None or state.next > above or not wait_s:
            return msgspec.json.encode(state)
        if self._waits >= WAITS_MAX:
            raise Overloaded(f"{WAITS_MAX} requests wait for rows")
        self._waits += 1
        try:
            return msgspec.json.encode(await self._wait(request, page, source, above, wait_s))
        finally:
            self._waits -= 1

    async def _wait(self, request: Request, page: TopicPage, source: str, above: int, wait_s: int) -> TopicState:
        loop = asyncio.get_running_loop()
        until = loop.time() + wait_s
        key = (page.topic, page.shard, source)
        try:
            while True:
                # All who wait for one topic share a look at it.
                looked_at, state = self._looks.get(key, (0.0, None))
                if state is None or loop.time() - looked_at >= LOOK_S:
                    if state is not None:
                        self._looks[key] = loop.time(), state  # the others wait for this one
                    state = await self._look(page, source)
                    self._looks[key] = loop.time(), state
                if state.next > above or loop.time() >= until or self._stopping.is_set() or request.answered:
                    return state
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._stopping.wait(), LOOK_S)
        finally:
            self._looks.pop(key, None)

    async def _look(self, page: TopicPage, source: str) -> TopicState:
        return await self._run(lambda served: served.state(page.topic, page.shard, source))

    # ---- rows ------------------------------------------------------------------------------------------------

    async def _send(self, request: Request, page: TopicPage, named: dict[str, str]) -> None:
        _only(named, ("source", "from", "to", "columns", "schema", "format"))
        if request.version == "1.0":
            raise InvalidArgument("rows are sent in chunks, which HTTP/1.0 does not have")
        lines = _lines(request, named)
        start, end = _number(named, "from"), _number(named, "to")
        if start == 0:
            raise InvalidArgument("positions begin with 1 - at `$.from`")
        columns = named["columns"].split(",") if "columns" in named else None
        with self._place(ROWS_MAX):
            rows = await self._run(
                lambda served: served.rows(
                    page.topic, page.shard, named.get("source", ""), start=start, end=end, columns=columns,
                    schema=named.get("schema"), lines=lines,
                )
            )  # fmt: skip
            try:
                first = await self._run(lambda _: rows.next())  # what is wrong with it is answered
                await self._stream(request, rows, first, NDJSON if lines else ARROW)
            finally:
                # In a thread: one may still be in the middle of a piece.
                asyncio.get_running_loop().run_in_executor(self._threads, rows.close)

    async def _stream(self, request: Request, rows: Rows, piece: bytes | None, kind: str) -> None:
        content_type = kind.encode()
        if request.method == b"HEAD":
            request.respond(200, b"", content_type=content_type)
            return
        body = request.stream(200, content_type=content_type, headers=((b"cache-control", b"no-store"),))
        if body is None:
            return
        try:
            while piece is not None:
                await body.write(piece)
                piece = await self._run(lambda _: rows.next())
            body.end()
        except ClientLeft:
            return
        except DeathlessError as error:
            _LOG.warning("rows of a topic were cut", extra={"why": str(error)})
        finally:
            body.tear()  # not after its end

    # ---- holds -----------------------------------------------------------------------------------------------

    async def _hold(self, method: bytes, page: TopicPage, named: dict[str, str], who: Admitted) -> bytes:
        operator = self._readers.is_operator(who)
        _only(named, ("source", "position", "owner", "since") if method == b"PUT" else ("source", "owner"))
        source = named.get("source", "")
        owner, since = who.name or named.get("owner", ""), named.get("since", "")
        if max(len(owner), len(since)) > TEXT_MAX:
            raise InvalidArgument(f"owner and since have at most {TEXT_MAX} characters - at `$.owner`")
        with self._place():
            if method == b"DELETE":
                gone = await self._run(
                    lambda served: served.drop_hold(
                        page.topic, page.shard, source, page.hold, owner=owner, of_others=operator
                    )
                )
                return msgspec.json.encode({"hold": page.hold, "dropped": gone})
            position = _number(named, "position")
            if not position:
                raise InvalidArgument("a hold has a position, from 1 on - at `$.position`")
            await self._run(
                lambda served: served.hold(
                    page.topic, page.shard, source, page.hold, position, owner=owner, since=since, of_others=operator
                )
            )
            return msgspec.json.encode({"hold": page.hold, "position": position})

    # ---- threads ---------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def _place(self, places: int = REQUESTS_MAX) -> Iterator[None]:
        """Take one of the places of requests. Raises: Overloaded."""
        if self._open >= places:
            raise Overloaded(f"{self._open} requests for topics are under way")
        self._open += 1
        try:
            yield
        finally:
            self._open -= 1

    async def _run(self, work: Callable[[ServedTopics], T]) -> T:
        """Do what blocks. Raises: StorageFailed, and what reading raises."""

        def run() -> T:
            served = self._served = self._served or self._make()
            return work(served)

        try:
            return await asyncio.get_running_loop().run_in_executor(self._threads, run)
        except InvalidConfig as error:
            raise InvalidConfig(
                f"this replica can't read rows: {error.message}",
                remedy="install deathless[topics] where the replicas run",
            ) from None
        except OSError as error:
            raise StorageFailed(f"the files of a topic can't be read: {error}", remedy="look at the volume") from None

    def stop(self) -> None:
        """Answer those who wait; they ask again, somewhere else."""
        self._stopping.set()

    def close(self) -> None:
        """End; a thread that is in the middle of something is not waited for."""
        self._threads.shutdown(wait=False, cancel_futures=True)


def status_of(error: DeathlessError) -> int:
    """Give the status of an answer with an error; 0: the error's own."""
    if isinstance(error, InvalidConfig):
        return NOT_HERE
    return 0


def _once(named: dict[str, list[str]]) -> dict[str, str]:
    for name, texts in named.items():
        if len(texts) > 1:
            raise InvalidArgument(f"`{name}` stands there twice - at `$.{name}`")
    return {name: texts[0] for name, texts in named.items()}


def _only(named: dict[str, str], known: Sequence[str]) -> None:
    for name in named:
        if name not in known:
            raise InvalidArgument(f"this page has no parameter `{name}` - at `$.{name}`")


def _number(named: dict[str, str], name: str) -> int | None:
    if name not in named:
        return None
    if not _NUMBER.fullmatch(named[name]):
        raise InvalidArgument(f"{name} must be a number - at `$.{name}`")
    return int(named[name])


def _lines(request: Request, named: dict[str, str]) -> bool:
    """Are lines of JSON wanted?"""
    if "format" not in named:
        return NDJSON.encode() in request.headers.get(b"accept", b"").lower()
    if named["format"] not in {"arrow", "ndjson"}:
        raise InvalidArgument("format is arrow or ndjson - at `$.format`")
    return named["format"] == "ndjson"


def topics_of(config: ReplicaConfig, operators: Operators) -> TopicPages:
    """Give what answers for topics at the ingress of a replica."""
    readers = readers_at(config, operators)
    folders = {
        topic: [
            f"{shard_directory(config.service_directory, shard, config.shards).rstrip('/')}/{FOLDER}/{topic}"
            for shard in range(config.shards)
        ]
        for topic in readers.topics
    }

    def served() -> ServedTopics:
        made: ServedTopics = import_module("deathless.topics.serving").ServedTopics(folders)
        return made

    return TopicPages(readers, config.shards, served)


def no_topics() -> TopicPages:
    """Give what answers for topics where there are none."""

    def served() -> ServedTopics:
        raise AssertionError("there is no topic to be read")

    return TopicPages(TopicReaders({}, Operators(refusal="nobody reads")), 1, served)
