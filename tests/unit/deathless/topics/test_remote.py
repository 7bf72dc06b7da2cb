"""A reader over HTTP gets what a reader of the files gets, or an error that says what is wrong."""

from __future__ import annotations

import json
import pickle
import shlex
from pathlib import Path
from shutil import which
from subprocess import run
from urllib.request import urlopen

import pyarrow as pa
import pytest
from tests.unit.deathless.topics.topic_lab import FOLDER, SERVICE_ID, file_bytes, positions, put
from tests.unit.deathless.topics.topic_site import TOPIC, TornRows, topic_site

from deathless.base.errors import (
    InvalidArgument,
    TopicAnswerTorn,
    TopicGap,
    TopicNotReadable,
    TopicRowsDropped,
    TopicSourceDiffers,
)
from deathless.base.safeguards import Safeguards
from deathless.shell.disk.filesystem import RealFileSystem
from deathless.shell.ingress.topic_pages import Rows
from deathless.topics import Bounds, RemoteTopic, RowSource, TopicReader, TopicSource
from deathless.topics.keeping import publish_floor
from deathless.topics.reader import LOOKS
from deathless.topics.remote import TORN_MAX, list_topics
from deathless.topics.serving import ServedTopics
from deathless.topics.source import FileName


@pytest.fixture(name="three")
def three_files(tmp_path: Path) -> Path:
    """Positions 1 to 9, of two epochs that overlap; 6 has no row, nor 10."""
    put(tmp_path, FileName(1, 1, 1), file_bytes(1, [[1, 2], [3, 4, 5]]))
    put(tmp_path, FileName(4, 2, 1), file_bytes(4, [[4], [5, 7]], epoch=2))
    put(tmp_path, FileName(8, 2, 2), file_bytes(8, [[8, 9]], epoch=2))
    return tmp_path


def test_rows_are_those_of_the_files(three: Path) -> None:
    files: RowSource = TopicReader(three)
    with topic_site(three) as site:
        remote: RowSource = site.topic()
        assert (remote.bounds(), remote.source()) == (Bounds(1, 1, 10), TopicSource(SERVICE_ID.hex(), 1))
        assert (remote.extent(), remote.schema()) == (files.extent(), files.schema())
        for start in range(1, 10):
            for end in (start, start + 1, 10):
                found = [row for batch in remote.read(start, end) for row in batch.to_pylist()]
                assert found == [row for batch in files.read(start, end) for row in batch.to_pylist()]
        assert remote.wait(9) == 10


def test_columns_and_schemas_are_those_that_were_asked_for(three: Path) -> None:
    with topic_site(three) as site:
        remote = site.topic()
        (first, *_) = remote.read(1, 10, ["minutes", "_position"])
        assert first.schema.names == ["minutes", "_position"]
        wider = pa.schema([*remote.schema(["_position", "minutes"]), pa.field("gate", pa.utf8())])
        (first, *_) = remote.read(1, 10, schema=wider)
        assert (first.schema, first.to_pylist()[0]) == (wider, {"_position": 1, "minutes": 7, "gate": None})
        with pytest.raises(InvalidArgument, match="no column 'hours'"):
            next(remote.read(1, 10, ["hours"]))
        with pytest.raises(InvalidArgument, match="no column of a topic"):
            next(remote.read(1, 10, schema=pa.schema([pa.field("a", pa.int8())])))
        with pytest.raises(InvalidArgument, match="positions begin with 1"):
            next(remote.read(0, 10))


def test_rows_are_followed_as_they_come(three: Path) -> None:
    with topic_site(three) as site:
        rows = site.topic().follow(8)
        assert positions([next(rows)]) == [8, 9]
        put(three, FileName(10, 2, 3), file_bytes(10, [[10]], epoch=2))
        assert positions([next(rows)]) == [10]


def test_a_wait_ends_after_its_pauses(three: Path) -> None:
    with topic_site(three) as site:
        assert site.topic().wait(10, pauses=0) == 10
        assert site.topic().wait(10, pause_s=0.25, pauses=2) == 10
        assert site.sleeps == [0.5]
        assert site.topic().wait(10, pause_s=1, pauses=1) == 10


def test_a_topic_without_rows_is_told(tmp_path: Path) -> None:
    with topic_site(tmp_path / "none") as site:
        remote = site.topic()
        for ask in (remote.bounds, remote.source, remote.schema, lambda: next(remote.read(1, 2))):
            with pytest.raises(InvalidArgument, match="no rows"):
                ask()
        assert remote.wait(1, pauses=0) == 1
        with pytest.raises(TopicSourceDiffers):
            site.topic(f"{SERVICE_ID.hex()}.1").bounds()


def test_a_gap_is_looked_for_again_and_then_an_error_that_names_it(three: Path) -> None:
    with topic_site(three) as site:
        rows = site.topic().read(8, 12)
        assert positions([next(rows)]) == [8, 9]
        with pytest.raises(TopicGap, match="position 10 of 10 to 11"):
            next(rows)
        assert len(site.sleeps) == LOOKS + 1, "the answer was cut once, behind the rows that are there"


def test_rows_below_the_floor_are_told_from_a_gap(three: Path) -> None:
    (three / FOLDER / FileName(1, 1, 1).text).unlink()
    publish_floor(RealFileSystem(three), FOLDER, 4, "retention")
    with topic_site(three) as site:
        with pytest.raises(TopicRowsDropped, match="position 3 is below the floor"):
            next(site.topic().read(3, 5))
        with pytest.raises(TopicRowsDropped):
            site.topic().hold("report", 3)
        assert site.topic().bounds() == Bounds(4, 4, 10)


def test_holds_are_kept_moved_and_dropped(three: Path) -> None:
    files = TopicReader(three)
    with topic_site(three) as site:
        remote = site.topic()
        remote.hold("report", 4, owner="me", since="now")
        (hold,) = files.holds()
        assert hold.hold is not None
        assert (hold.hold.position, hold.hold.owner, hold.hold.since) == (4, "me", "now")
        remote.hold("report", 6, owner="me")
        with pytest.raises(TopicNotReadable, match="is of me"):
            remote.hold("report", 7, owner="another")
        files.drop_hold("report")
        remote.hold("ours", 5)
        assert (remote.drop_hold("ours"), remote.drop_hold("ours")) == (True, False)


def restored(folder: Path) -> None:
    """A service with another history publishes from now on."""
    data = file_bytes(1, [[1, 2, 3]], epoch=9)
    other = folder / TopicSource(SERVICE_ID.hex(), 7).folder
    other.mkdir()
    (other / FileName(1, 9, 1).text).write_bytes(data)


def test_positions_of_another_source_give_no_rows(three: Path) -> None:
    with topic_site(three) as site:
        remote = site.topic()
        assert remote.bounds().next == 10
        restored(three)
        for ask in (remote.bounds, lambda: next(remote.read(1, 3)), lambda: remote.hold("a", 2)):
            with pytest.raises(TopicSourceDiffers, match=r"has rows of .*\.7, and not of .*\.1"):
                ask()
        assert site.topic().bounds().next == 4


def test_rows_of_another_source_are_given_without_the_safeguard(three: Path) -> None:
    with topic_site(three, safeguards=Safeguards(check_topic_source=False)) as site:
        remote = site.topic()
        assert remote.bounds().next == 10
        restored(three)
        assert remote.bounds().next == 4, "positions of the one are taken for those of the other"


def test_an_answer_that_is_torn_is_asked_for_again(three: Path) -> None:
    class Torn(ServedTopics):
        begun: list[int | None] = []  # noqa: RUF012  of this test alone

        def rows(self, *args: object, **named: object) -> Rows:  # type: ignore[override]
            self.begun.append(named["start"])  # type: ignore[arg-type]
            return TornRows(super().rows(*args, **named), 1)  # type: ignore[arg-type]

    with topic_site(three, wrap=lambda _: Torn({TOPIC: [str(three)]})) as site:
        assert positions(list(site.topic().read(1, 10))) == [1, 2, 3, 4, 5, 7, 8, 9]
        assert Torn.begun == [1, 3, 6, 8]


def test_answers_that_are_torn_before_anything_comes_are_an_error_in_the_end(three: Path) -> None:
    class Torn(ServedTopics):
        def rows(self, *args: object, **named: object) -> Rows:  # type: ignore[override]
            whole = super().rows(*args, **named)  # type: ignore[arg-type]
            schema = whole.next() or b""
            whole.close()
            return TornRows(Schema(schema), 1)

    with topic_site(three, wrap=lambda _: Torn({TOPIC: [str(three)]})) as site:
        with pytest.raises(TopicAnswerTorn, match="position 1"):
            list(site.topic().read(1, 10))
        assert len(site.sleeps) == TORN_MAX


class Schema:
    """The beginning of a stream."""

    def __init__(self, data: bytes) -> None:
        self.data = data[:100]

    def next(self) -> bytes | None:
        """See Rows."""
        return self.data

    def close(self) -> None:
        """See Rows."""


def test_it_goes_along_with_its_source_and_names_of_files(three: Path, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("secret-of-ours")
    with topic_site(three) as site:
        remote = RemoteTopic([site.url], TOPIC, token_file=str(token))
        assert remote.bounds().next == 10
        data = pickle.dumps(remote)
        assert b"secret-of-ours" not in data
        again = pickle.loads(data)
        restored(three)
        with pytest.raises(TopicSourceDiffers):
            again.bounds()


DOCS = Path(__file__).parents[4] / "docs" / "topics.md"
CURL = [line for line in DOCS.read_text().splitlines() if line.startswith("curl ")]


@pytest.mark.skipif(which("curl") is None, reason="there is no curl")
def test_what_the_page_says_to_type_does_what_it_says(three: Path, tmp_path: Path) -> None:
    assert len(CURL) > 7
    with topic_site(three) as site:
        for line in CURL:
            words = shlex.split(line.replace("http://127.0.0.1:8080", site.url))
            got = run([*words, "--silent", "--show-error", "--fail"], cwd=tmp_path, capture_output=True, check=True)
            if "ndjson" in line:
                assert json.loads(got.stdout.splitlines()[0])["_position"] == 1
    with pa.ipc.open_stream(str(tmp_path / "rows.arrows")) as reader:
        assert positions(list(reader)) == [2, 3, 4, 5, 7, 8, 9]


def test_topics_are_listed(three: Path) -> None:
    with topic_site(three) as site:
        (state,) = list_topics(site.topic()._port)
        assert (state.topic, state.shard, state.next) == (TOPIC, 0, 10)
        with urlopen(f"{site.url}/topics/{TOPIC}/0/rows?from=8&format=ndjson") as answer:
            assert [json.loads(line)["_position"] for line in answer] == [8, 9]
