"""Topics over HTTP: addresses, statuses, limits. Readers of rows: tests/unit/deathless/topics/test_remote.py."""

from __future__ import annotations

import http.client
import io
import json
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.unit.deathless.topics.topic_lab import FOLDER, SERVICE_ID, file_bytes, put
from tests.unit.deathless.topics.topic_site import TOPIC, Site, TornRows, topic_site

from deathless.base.errors import InvalidConfig
from deathless.base.safeguards import Safeguards
from deathless.base.topics.state import ARROW, NDJSON, TopicState
from deathless.shell.ingress import topic_pages
from deathless.shell.ingress.callers import Admitted
from deathless.shell.ingress.topic_pages import REQUESTS_MAX, ROWS_MAX, Rows, TopicPage
from deathless.shell.web.request import Request
from deathless.topics.serving import ServedTopics
from deathless.topics.source import FileName
from deathless.topics.wire import received

SOURCE = f"{SERVICE_ID.hex()}.1"
AT = f"/topics/{TOPIC}/0"


class Got:
    """An answer."""

    def __init__(self, answer: http.client.HTTPResponse) -> None:
        self.status, self.headers = answer.status, answer.headers
        self.body = answer.read()

    @property
    def code(self) -> str:
        """The code of an error."""
        return str(json.loads(self.body)["code"])


@contextmanager
def connected(site: Site) -> Iterator[http.client.HTTPConnection]:
    connection = http.client.HTTPConnection(site.url.removeprefix("http://"))
    try:
        yield connection
    finally:
        connection.close()


def ask(site: Site, path: str, method: str = "GET", **headers: str) -> Got:
    with connected(site) as connection:
        connection.request(method, path, headers=headers)
        return Got(connection.getresponse())


@pytest.fixture(name="folder")
def folder_of_rows(tmp_path: Path) -> Path:
    put(tmp_path, FileName(1, 1, 1), file_bytes(1, [[1, 2], [3]]))
    return tmp_path


def test_rows_come_as_an_arrow_stream_or_as_lines(folder: Path) -> None:
    with topic_site(folder) as site:
        got = ask(site, f"{AT}/rows?from=2&to=4")
        assert (got.status, got.headers["content-type"], got.headers["transfer-encoding"]) == (200, ARROW, "chunked")
        batches = list(received(io.BytesIO(got.body), 2, 4))
        assert [(behind, batch.num_rows) for behind, batch in batches] == [(3, 1), (4, 1), (4, 0)]
        for path, headers in ((f"{AT}/rows?format=ndjson", {}), (f"{AT}/rows", {"Accept": NDJSON})):
            got = ask(site, path, **headers)
            assert got.headers["content-type"] == NDJSON
            assert [json.loads(line)["_position"] for line in got.body.splitlines()] == [1, 2, 3]
        got = ask(site, f"{AT}/rows?format=ndjson&columns=flight,_position&from=3")
        assert json.loads(got.body) == {"flight": "LH 3", "_position": 3}
        assert ask(site, f"{AT}/rows", "HEAD").status == 200


def test_topics_are_described(folder: Path) -> None:
    with topic_site(folder) as site:
        told = json.loads(ask(site, AT).body)
        assert (told["source"], told["floor"], told["first"], told["next"]) == (SOURCE, 1, 1, 4)
        assert (told["columns"], told["files"], told["timeUs"]) == ("flight:utf8,minutes:int64?", 1, 3_000_000)
        assert json.loads(ask(site, "/topics").body) == {"topics": [told]}
    with topic_site(folder / "none", shards=2) as site:
        assert [(each["shard"], each["source"]) for each in json.loads(ask(site, "/topics").body)["topics"]] == [
            (0, ""), (1, ""),
        ]  # fmt: skip


@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [
        ("GET", f"{AT}/rows?from=4&to=5", 404, "DL3066"),
        ("GET", f"{AT}/rows?source={SERVICE_ID.hex()}.2", 409, "DL3062"),
        ("GET", f"{AT}?source={SERVICE_ID.hex()}.2", 409, "DL3062"),
        ("PUT", f"{AT}/holds/a?position=1&source={SERVICE_ID.hex()}.2", 409, "DL3062"),
        ("GET", "/topics/other/0", 403, "DL3069"),
        ("GET", f"/topics/{TOPIC}/1", 400, "DL3003"),
        ("GET", f"/topics/{TOPIC}/x", 404, "DL3005"),
        ("GET", f"/topics/{TOPIC}/0/holds", 404, "DL3004"),
        ("POST", f"{AT}/rows", 405, "DL3003"),
        ("GET", f"{AT}/holds/a", 405, "DL3003"),
        ("GET", f"{AT}/rows?from=x", 400, "DL3003"),
        ("GET", f"{AT}/rows?from=0", 400, "DL3003"),
        ("GET", f"{AT}/rows?from=1&from=2", 400, "DL3003"),
        ("GET", f"{AT}/rows?form=1", 400, "DL3003"),
        ("GET", f"{AT}/rows?format=csv", 400, "DL3003"),
        ("GET", f"{AT}/rows?columns=hours", 400, "DL3003"),
        ("GET", f"{AT}/rows?schema=hours", 400, "DL3003"),
        ("GET", f"{AT}?above=1&wait=31", 400, "DL3003"),
        ("GET", f"{AT}?wait=1", 400, "DL3003"),
        ("PUT", f"{AT}/holds/a", 400, "DL3003"),
        ("PUT", f"{AT}/holds/a%20b?position=1", 400, "DL3003"),
        ("PUT", f"{AT}/holds/a?position=1&owner={'x' * 300}", 400, "DL3003"),
    ],
)
def test_what_can_not_be_answered_is_told_with_a_status_that_fits(
    folder: Path, method: str, path: str, status: int, code: str
) -> None:
    with topic_site(folder) as site:
        got = ask(site, path, method)
        assert (got.status, got.code) == (status, code)
        assert "openapi" not in json.loads(got.body)["remedy"] or status in {404, 405}


def test_who_is_no_reader_is_refused_and_sees_no_topic(folder: Path) -> None:
    with topic_site(folder, readers=["reports"]) as site:
        for method, path in (("GET", AT), ("GET", f"{AT}/rows"), ("PUT", f"{AT}/holds/a?position=1")):
            got = ask(site, path, method)
            assert (got.status, got.code) == (403, "DL3069")
        assert json.loads(ask(site, "/topics").body) == {"topics": []}
    with topic_site(folder, readers=["reports"], safeguards=Safeguards(topic_readers_only=False)) as site:
        assert ask(site, f"{AT}/rows").status == 200, "the refusal is the safeguard's"


def test_a_service_without_topics_has_an_empty_list(folder: Path) -> None:
    with topic_site(folder) as site:
        assert site.ingress is not None
        site.ingress.topics = topic_pages.no_topics()
        assert json.loads(ask(site, "/topics").body) == {"topics": []}
        assert ask(site, AT).status == 403


def test_http10_can_not_tell_the_end_of_rows(folder: Path) -> None:
    with topic_site(folder) as site, connected(site) as connection:
        connection._http_vsn_str = "HTTP/1.0"  # type: ignore[attr-defined]
        connection.request("GET", f"{AT}/rows", headers={"Host": "x"})
        assert connection.getresponse().status == 400


def test_a_wait_ends_when_rows_come_and_when_time_is_over(folder: Path) -> None:
    with topic_site(folder) as site, ThreadPoolExecutor(2) as threads:
        assert json.loads(ask(site, f"{AT}?above=3&wait=30").body)["next"] == 4
        waiting = [threads.submit(ask, site, f"{AT}?above=4&wait=30") for _ in range(2)]
        assert json.loads(ask(site, f"{AT}?above=4&wait=1").body)["next"] == 4
        put(folder, FileName(4, 1, 2), file_bytes(4, [[4]]))
        assert [json.loads(each.result().body)["next"] for each in waiting] == [5, 5]
        last = threads.submit(ask, site, f"{AT}?above=9&wait=30")
        while not site.pages or not site.pages._waits:
            ask(site, "/healthz")
        site.stop()
        assert json.loads(last.result().body)["next"] == 5, "a stop does not wait for it"


def test_a_replica_without_pyarrow_says_what_is_missing(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def library() -> None:
        raise InvalidConfig("rows of topics need pyarrow")

    monkeypatch.setattr("deathless.topics.serving.library", library)
    with topic_site(folder) as site:
        got = ask(site, f"{AT}/rows")
        assert (got.status, got.code) == (501, "DL3001")
        assert "install deathless[topics]" in json.loads(got.body)["remedy"]
        assert ask(site, AT).status == 200, "which needs none"


def test_files_that_can_not_be_read_are_a_503_and_in_the_middle_a_torn_answer(folder: Path) -> None:
    class Broken(ServedTopics):
        pieces = 0

        def rows(self, *args: object, **named: object) -> Rows:  # type: ignore[override]
            return TornRows(super().rows(*args, **named), self.pieces)  # type: ignore[arg-type]

    broken = Broken({TOPIC: [str(folder)]})
    with topic_site(folder, wrap=lambda _: broken) as site:
        got = ask(site, f"{AT}/rows")
        assert (got.status, got.code) == (503, "DL1013")
        broken.pieces = 1
        with pytest.raises(http.client.IncompleteRead):
            ask(site, f"{AT}/rows")


class Slow(ServedTopics):
    """Whoever asks for its state waits."""

    def __init__(self) -> None:
        super().__init__({})
        self.let = threading.Event()

    def state(self, topic: str, shard: int, source: str) -> TopicState:
        """See ServedTopics."""
        self.let.wait()
        return TopicState(topic=topic, shard=shard)


def test_requests_under_way_have_a_maximum_and_calls_go_on(folder: Path) -> None:
    slow = Slow()
    with topic_site(folder, wrap=lambda _: slow) as site, ThreadPoolExecutor(REQUESTS_MAX) as threads:
        waiting = [threads.submit(ask, site, AT) for _ in range(REQUESTS_MAX)]
        while not site.pages or site.pages._open < REQUESTS_MAX:
            ask(site, "/healthz")
        got = ask(site, AT)
        assert (got.status, got.code, got.headers["retry-after"]) == (429, "DL1002", "1")
        assert ask(site, "/healthz").status == 200
        slow.let.set()
        assert {each.result().status for each in waiting} == {200}


def test_a_reader_that_stands_still_holds_no_thread(folder: Path) -> None:
    class Endless(ServedTopics):
        def rows(self, *args: object, **named: object) -> Rows:  # type: ignore[override]
            return Many()

    with topic_site(folder, wrap=lambda _: Endless({TOPIC: [str(folder)]})) as site:
        still = [http.client.HTTPConnection(site.url.removeprefix("http://")) for _ in range(ROWS_MAX)]
        for each in still:
            each.request("GET", f"{AT}/rows")
            each.getresponse()
        assert ask(site, f"{AT}/rows").status == 429
        assert ask(site, AT).status == 200, "which is no such request"
        for each in still:
            each.close()


class Many:
    """Rows without an end."""

    def next(self) -> bytes | None:
        """See Rows."""
        return bytes(1 << 20)

    def close(self) -> None:
        """See Rows."""


class Line:
    """A connection."""

    date_line = b""
    transport = None

    def answered(self) -> None:
        """See Sender."""


@pytest.mark.asyncio
async def test_addresses_are_told_apart_from_those_of_handlers() -> None:
    pages = topic_pages.no_topics()
    try:
        found = pages.find([b"", b"topics", b"a%20b", b"7", b"holds", b"h"])
        assert found == TopicPage((b"PUT", b"DELETE"), "a b", 7, hold="h")
        for path in (b"/topics/key/handler", b"/topics/key/01", b"/topics/key", b"/topic", b"/topics/a/0/rows/x"):
            assert pages.find(path.split(b"/")) is None
        request = Request(Line())
        assert await pages.answer(request, TopicPage((b"GET",)), Admitted(b"", "")) == b'{"topics":[]}'
    finally:
        pages.close()


def test_rows_of_shards_are_apart(tmp_path: Path) -> None:
    put_in = tmp_path / "1" / FOLDER
    put_in.mkdir(parents=True)
    (put_in / FileName(1, 1, 1).text).write_bytes(file_bytes(1, [[1]]))
    with topic_site(tmp_path, shards=2) as site:
        assert json.loads(ask(site, f"/topics/{TOPIC}/1").body)["next"] == 2
        assert json.loads(ask(site, f"/topics/{TOPIC}/0").body)["next"] == 1
