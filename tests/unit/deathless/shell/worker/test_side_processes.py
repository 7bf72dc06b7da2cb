"""What a primary tells operators of the sources and sinks beside it: what they said last, and no more than fits."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from deathless.base.config import ReplicaConfig, SinkConfig, SourceConfig
from deathless.base.errors import PermissionRefused
from deathless.base.listings.sources import STREAMS_SHOWN_MAX
from deathless.shell.link import sink_status, source_status
from deathless.shell.worker.side_processes import CHARS_MAX, list_sinks, list_sources

FLIGHTS = SourceConfig(name="flights", kind="files", input="departed")
OTHER = SourceConfig(name="other", kind="kafka", input="landed")
SINK = SinkConfig(name="facts", topic="t", topic_directory="/t", store="postgresql", table="f")


def config_in(folder: Path, shard: int = 0) -> ReplicaConfig:
    return ReplicaConfig(
        service="bank", module="m:a", directory=str(folder), replica="r0", shard=shard, shards=2,
        sources=(FLIGHTS, OTHER), sinks=(SINK,),
    )  # fmt: skip


def say(folder: Path, streams: int, problem: str = "") -> None:
    found = tuple(
        source_status.StreamStatus(stream=each, name=f"p{each}", state="reading", taken_in=4, end=9, problem=problem)
        for each in range(streams)
    )
    status = source_status.SourceStatus(
        source="flights", kind="files", input="departed", state="reading", streams=found, at_us=7
    )
    source_status.write_status(str(folder), status)


def test_streams_are_told_as_their_process_said_last(tmp_path: Path) -> None:
    say(tmp_path, 2)
    told = msgspec.to_builtins(list_sources(config_in(tmp_path)))
    assert told["more"] is False
    assert [(each["source"], each["stream"], each["takenIn"]) for each in told["sources"]] == [
        ("flights", "0", 4), ("flights", "1", 4), ("other", "", ""),
    ]  # fmt: skip
    assert told["sources"][0] == {
        "source": "flights", "input": "departed", "stream": "0", "name": "p0", "state": "reading", "takenIn": 4,
        "behind": 4, "code": "", "problem": "", "atUs": 7,
    }  # fmt: skip
    assert told["sources"][2]["state"] == "never ran"


def test_a_source_without_streams_is_told_of_beside_the_first_shard_alone(tmp_path: Path) -> None:
    told = msgspec.to_builtins(list_sources(config_in(tmp_path)))
    assert [each["source"] for each in told["sources"]] == ["flights", "other"]
    assert list_sources(config_in(tmp_path, shard=1)) == {"sources": [], "more": False}


def test_an_answer_fits_a_packet(tmp_path: Path) -> None:
    say(tmp_path, STREAMS_SHOWN_MAX + 1, "\0" * (CHARS_MAX + 1))
    told = msgspec.to_builtins(list_sources(config_in(tmp_path)))
    assert (len(told["sources"]), told["more"]) == (STREAMS_SHOWN_MAX, True)
    assert {len(each["problem"]) for each in told["sources"]} == {CHARS_MAX}
    assert len(msgspec.json.encode(told)) < 4 << 20


def test_an_answer_begins_behind_those_before_it(tmp_path: Path) -> None:
    say(tmp_path, STREAMS_SHOWN_MAX + 1)
    told = msgspec.to_builtins(list_sources(config_in(tmp_path), STREAMS_SHOWN_MAX))
    assert [each["stream"] for each in told["sources"]] == [str(STREAMS_SHOWN_MAX), ""]
    assert (told["from"], told["more"]) == (STREAMS_SHOWN_MAX, False)


def test_sinks_are_told_as_their_processes_said_last(tmp_path: Path) -> None:
    (never,) = msgspec.to_builtins(list_sinks(config_in(tmp_path)))["sinks"]
    assert (never["sink"], never["state"], never["atUs"]) == ("facts", "never ran", 0)
    status = sink_status.SinkStatus(
        sink="facts", topic="t", state="stopped", position=3, next=9, code="DL3070", problem="p" * 2000, at_us=7
    )
    sink_status.write_status(str(tmp_path), status)
    (only,) = msgspec.to_builtins(list_sinks(config_in(tmp_path)))["sinks"]
    assert (only["state"], only["position"], only["lagRows"], only["code"]) == ("stopped", 3, 6, "DL3070")
    assert len(only["problem"]) == CHARS_MAX


def test_what_can_not_be_read_is_an_answer_too(tmp_path: Path) -> None:
    for kind, name in (("sources", "flights"), ("sinks", "facts")):
        (tmp_path / kind / f"{name}.json").mkdir(parents=True)
    with pytest.raises(PermissionRefused, match="sources"):
        list_sources(config_in(tmp_path))
    with pytest.raises(PermissionRefused, match="sinks"):
        list_sinks(config_in(tmp_path))
