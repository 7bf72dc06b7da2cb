"""An HTTP port that serves a topic from a folder, in a thread of its own: readers over HTTP block."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from bank_fake import bank

from deathless.base.limits import Limits
from deathless.base.safeguards import ALL_SAFEGUARDS, Safeguards
from deathless.shell.client.shard_client import Client
from deathless.shell.ingress.ingress import Ingress
from deathless.shell.ingress.operators import Operators
from deathless.shell.ingress.topic_pages import Rows, TopicPages
from deathless.shell.ingress.topic_pages import ServedTopics as Served
from deathless.shell.ingress.topic_readers import TopicReaders
from deathless.shell.web.protocol import HttpServer
from deathless.shell.web.request import HttpLimits
from deathless.topics import RemoteTopic
from deathless.topics.serving import ServedTopics

TOPIC = "departures"


class TornRows:
    """Rows that can't be read to their end: the first time after one piece."""

    def __init__(self, rows: Rows, pieces: int) -> None:
        self.rows = rows
        self.left = pieces

    def next(self) -> bytes | None:
        """See Rows."""
        self.left -= 1
        if self.left < 0:
            raise OSError("the disk is gone")
        return self.rows.next()

    def close(self) -> None:
        """See Rows."""
        self.rows.close()


class Site:
    """What runs in the thread."""

    def __init__(self, served: Served, readers: TopicReaders, shards: int) -> None:
        self.pages: TopicPages | None = None
        self.ingress: Ingress | None = None
        self.url = ""
        self.sleeps: list[float] = []
        self._served, self._readers, self._shards = served, readers, shards
        self._ready = threading.Event()
        self._ended: Callable[[], object] = lambda: None

    def run(self) -> None:
        """Serve until `stop`."""
        asyncio.run(self._serve())

    async def _serve(self) -> None:
        loop, ended = asyncio.get_running_loop(), asyncio.Event()
        self._ended = lambda: loop.call_soon_threadsafe(ended.set)
        async with Client("bank", ["127.0.0.1:1"]) as client:
            self.ingress = Ingress(bank, client, limits=Limits(), labels={})
            self.pages = self.ingress.topics = TopicPages(self._readers, self._shards, lambda: self._served)
            http = HttpServer(self.ingress, HttpLimits(), now=loop.time, wall=lambda: 0.0)
            self.url = f"http://{await http.start('127.0.0.1:0')}"
            self._ready.set()
            await ended.wait()
            self.pages.stop()
            await http.stop(1.0)
            await self.ingress.close()

    def wait(self) -> None:
        """Wait until it listens."""
        self._ready.wait()

    def stop(self) -> None:
        """End; once it has ended this changes nothing."""
        with contextlib.suppress(RuntimeError):  # its loop is closed
            self._ended()

    def topic(self, source: str = "", *, urls: Sequence[str] = (), **settings: object) -> RemoteTopic:
        """A reader of the topic, whose pauses are only counted."""
        return RemoteTopic(
            urls or self.url,
            TOPIC,
            source=source,
            sleep=self.sleeps.append,
            **settings,  # type: ignore[arg-type]
        )


@contextmanager
def topic_site(
    folder: Path,
    *,
    readers: Sequence[str] = ("*",),
    shards: int = 1,
    wrap: Callable[[Served], Served] = lambda served: served,
    safeguards: Safeguards = ALL_SAFEGUARDS,
) -> Iterator[Site]:
    """Serve a topic from its folder, or from those of its shards."""
    folders = [str(folder)] if shards == 1 else [str(folder / str(shard)) for shard in range(shards)]
    may = TopicReaders({TOPIC: frozenset(readers)}, Operators(refusal="nobody"), safeguards=safeguards)
    site = Site(wrap(ServedTopics({TOPIC: folders}, safeguards)), may, shards)
    thread = threading.Thread(target=site.run)
    thread.start()
    try:
        site.wait()
        yield site
    finally:
        site.stop()
        thread.join()
