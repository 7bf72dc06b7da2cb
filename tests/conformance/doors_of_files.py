"""The doors of files: of the shared directory, of pods, of people, of sinks; the log and checkpoints."""

from __future__ import annotations

import hashlib
import io
import tarfile
from collections.abc import Callable
from pathlib import Path

import msgspec
from bank_fake import bank
from tests.conformance.door import Door, Feed, at, golden, of
from tests.conformance.hostile import json_bytes, msgpack_bytes, packed_bytes, yaml_bytes
from tests.encoded import chunk_reader
from tests.unit.deathless.topics.topic_lab import FOLDER as TOPIC_FOLDER
from tests.unit.deathless.topics.topic_lab import file_bytes, put, spans

from deathless.base.config import ReplicaConfig
from deathless.base.limits import Limits
from deathless.base.pipelines.agents import AgentConfig, AgentStatus
from deathless.codec import checkpoint, checkpoint_ahead, frames, generations, map_entries, messages
from deathless.codec.witness import decode_slot
from deathless.core.access.place import Place, Spot
from deathless.core.primary.suspicion import method_of
from deathless.drivers.files import FileSink, Line
from deathless.drivers.files import Place as SinkPlace
from deathless.engine.log.route import decode_cut
from deathless.execution.interface.interface import (
    decode_interface,
    encode_interface,
    interface_as_json,
    interface_of,
)
from deathless.execution.invocations.journal import SuspendedSchedule, decode_record, encode_record
from deathless.shell.directory.adopted import Adoption, read_adoption
from deathless.shell.directory.identity import Identity, read_identities
from deathless.shell.directory.members import Member, announced_in
from deathless.shell.directory.place import read_place
from deathless.shell.directory.service_record import ServiceCopy, Shards, read_copy, read_shards
from deathless.shell.disk.filesystem import RealFileSystem
from deathless.shell.link.config_file import read_config
from deathless.shell.link.settings_file import SettingsFile
from deathless.shell.lock_stores.exported import Exported, read_exported
from deathless.shell.operate.agents import look_at_drivers, read_agent_config
from deathless.shell.operate.log_history import ReplicaHistory
from deathless.shell.operate.log_import import read_import
from deathless.shell.operate.manifest_file import read_manifest
from deathless.shell.operate.replica_log import parse_log_line
from deathless.shell.operate.target import read_config as read_written_config
from deathless.shell.pod.pod_config import read_pod_config, read_shared_config
from deathless.shell.service_code import code_record, interface_record
from deathless.shell.service_code import fingerprint_report as code_check
from deathless.shell.service_code.description import fingerprint_of
from deathless.topics.index import SourceIndex
from deathless.topics.keeping import lowest_hold
from deathless.topics.source import FileName
from deathless_operator.cluster.errors import NoCluster
from deathless_operator.cluster.kubeconfig import from_kubeconfig

CONFIG = msgspec.convert({"service": "bank", "module": "a.py:a", "directory": "data", "replica": "r0"}, ReplicaConfig)
EXPORTED = Exported(
    name="bank",
    service_id=bytes(16),
    incarnation=1,
    seed=bytes(32),
    hash_seed=1,
    fence="seal",
    store_id="s",
    head=1,
    first_lsn=0,
    last_lsn=1,
    confirmed_lsn=1,
    fingerprint="",
    exported_at="",
    version="0",
)
PLACE = Place("0" * 32, "/data", "m", Spot(1, ""), Spot(2, ""))
INTERFACE = interface_of(bank, Limits())
PARTS = {"python": "3.11", "source a": "0" * 8}
ENVIRONMENT = {"POD_NAME": "bank-0", "POD_UID": "u", "POD_IP": "10.0.0.1"}
SHARED = msgspec.json.encode({"service": "bank", "module": "a.py:a", "directory": "data"})


def _archive(digests: bytes) -> bytes:
    """An exported log without a log, with these digests."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        for name, data in (("exported.json", msgspec.json.encode(EXPORTED)), ("digests.json", digests)):
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return out.getvalue()


MANIFEST = b"""apiVersion: deathless.dev/v1alpha1
kind: DeathlessService
metadata:
  name: bank
spec:
  module: bank.py:bank
"""
KUBECONFIG = b"""current-context: a
contexts: [{name: a, context: {cluster: c}}]
clusters: [{name: c, cluster: {server: https://k}}]
"""


def manifest(data: bytes, folder: Path) -> object:
    """A manifest beside the module that it names."""
    (folder / "bank.py").touch()
    return at("bank.yaml", read_manifest)(data, folder)


AGENT = AgentConfig(pipeline="p", name="d0", module="m:b", directory="/d", services={"a": "/a"}, conf={"b": "c"})


def agent_status(data: bytes, folder: Path) -> object:
    """The status of an agent."""
    (folder / "agents" / "d0").mkdir(parents=True, exist_ok=True)
    (folder / "agents" / "d0" / "config.json").touch()
    (folder / "agents" / "d0" / "status.json").write_bytes(data)
    return look_at_drivers(folder)


def history(path: Path) -> object:
    """All lines of a log."""
    return [(line.text, line.level) for line in ReplicaHistory("r0", path.parent).past()]


def sink_files(suffix: str) -> Feed:
    """The file of a sink, or its position."""

    def feed(data: bytes, folder: Path) -> object:
        (folder / f"out{suffix}").write_bytes(data)
        sink = FileSink(folder / "out")
        return sink._read_place() if suffix else sink._read_lines(0)

    return feed


def topic_file(data: bytes, folder: Path) -> object:
    """A file of rows, whose blocks a reader looks at."""
    put(folder, FileName(1, 1, 1), data)
    index = SourceIndex(RealFileSystem(folder), TOPIC_FOLDER)
    index.refresh()
    index.look_at_all()
    return spans(index)


FILES = [
    Door(
        "members/",
        ("shell/directory/members.py::announced_in",),
        at("members/r0.json", lambda path: announced_in(str(path)), parents=2),
        msgspec.json.encode(Member("r0", "h:1")),
        json_bytes,
    ),
    Door(
        "place",
        ("shell/directory/place.py::find_place",),
        at("place", lambda path: read_place(str(path)), parents=1),
        msgspec.json.encode(PLACE),
        json_bytes,
    ),
    Door(
        "adopted.json",
        ("shell/directory/adopted.py::read_adoption",),
        at("adopted.json", lambda path: read_adoption(str(path)), parents=1),
        msgspec.json.encode(Adoption()),
        json_bytes,
    ),
    Door(
        "exported.json",
        ("shell/lock_stores/exported.py::decode_exported",),
        at("exported.json", lambda path: read_exported(str(path)), parents=1),
        msgspec.json.encode(EXPORTED),
        json_bytes,
    ),
    Door(
        "an exported log's digests",
        ("shell/operate/log_import.py::_unpack",),
        lambda data, folder: read_import(io.BytesIO(_archive(data)), "it", folder / "made", lambda _: None),
        msgspec.json.encode({"exported.json": hashlib.sha256(msgspec.json.encode(EXPORTED)).hexdigest()}),
        json_bytes,
    ),
    Door(
        "identity.json",
        ("shell/directory/identity.py::read_identities",),
        at("replicas/r0/identity.json", lambda path: read_identities(str(path)), parents=3),
        msgspec.json.encode(Identity("bank", bytes(16), 1, "seal", "s")),
        json_bytes,
    ),
    Door(
        "service.json of a service with shards",
        ("shell/directory/service_record.py::read_shards",),
        at("service.json", lambda path: read_shards(str(path)), parents=1),
        msgspec.json.encode(Shards("bank", 2)),
        json_bytes,
    ),
    Door(
        "service.json",
        ("shell/directory/service_record.py::read_copy",),
        at("service.json", lambda path: read_copy(str(path)), parents=1),
        msgspec.json.encode(ServiceCopy("bank", bytes(16), 1, bytes(32), 3, "seal")),
        json_bytes,
    ),
    Door(
        "code/*.json",
        ("shell/service_code/code_record.py::recorded",),
        at(
            f"code/{fingerprint_of(PARTS).hex()}.json",
            lambda path: code_record.recorded(path, fingerprint_of(PARTS)),
            parents=2,
        ),
        msgspec.json.encode(PARTS),
        json_bytes,
    ),
    Door(
        "code/*/parts.json",
        ("shell/service_code/code_record.py::read_record",),
        at(
            f"code/{fingerprint_of(PARTS).hex()}/parts.json",
            lambda path: code_record.recorded(path, fingerprint_of(PARTS)),
            parents=3,
        ),
        msgspec.json.encode(code_record.CodeRecord(parts=PARTS)),
        json_bytes,
    ),
    Door(
        "code/*.interface.json",
        ("execution/interface/interface.py::<module>",),
        at(
            f"code/{fingerprint_of(PARTS).hex()}.interface.json",
            lambda path: interface_record.recorded(path, fingerprint_of(PARTS)),
            parents=2,
        ),
        interface_as_json(INTERFACE),
        json_bytes,
    ),
    Door(
        "an interface in msgpack",
        ("execution/interface/interface.py::<module>",),
        of(decode_interface),
        encode_interface(INTERFACE),
        msgpack_bytes,
    ),
    Door(
        "a replica's config",
        ("shell/link/config_file.py::read_config",),
        at("r0.json", lambda path: read_config(str(path))),
        msgspec.json.encode(CONFIG),
        json_bytes,
    ),
    Door(
        "a replica's config, for tools",
        ("shell/operate/target.py::read_config",),
        at("r0.json", read_written_config),
        msgspec.json.encode(CONFIG),
        json_bytes,
    ),
    Door(
        "a config of a pipeline's agent",
        ("shell/operate/agents.py::read_agent_config",),
        at("config.json", read_agent_config),
        msgspec.json.encode(AGENT),
        json_bytes,
    ),
    Door(
        "what a pipeline's agent tells",
        ("shell/operate/agents.py::_view",),
        agent_status,
        msgspec.json.encode(AgentStatus(pid=1, agent="a", role="driver", number=1, driver_pid=2, ui="http://h:1")),
        json_bytes,
    ),
    Door(
        "a pod's config",
        ("shell/pod/pod_config.py::_read_shared", "shell/pod/pod_config.py::pod_config"),
        at("replica.json", lambda path: read_pod_config(str(path), ENVIRONMENT)),
        SHARED,
        json_bytes,
    ),
    Door(
        "a pod's config, for tools",
        ("shell/pod/pod_config.py::read_plain_config",),
        at("replica.json", lambda path: read_shared_config(str(path))),
        SHARED,
        json_bytes,
    ),
    Door(
        "settings that may change",
        ("shell/link/settings_file.py::SettingsFile._read",),
        at("replica.json", lambda path: SettingsFile(str(path)).has_changed()),
        SHARED,
        json_bytes,
    ),
    Door(
        "a config whose code is checked",
        ("shell/service_code/fingerprint_report.py::_read",),
        at("replica.json", lambda path: code_check._read(str(path))),
        SHARED,
        json_bytes,
    ),
    Door(
        "a replica's log",
        ("shell/operate/log_history.py::_fields",),
        at("replica.log", history),
        b'{"text":"a"}\n',
        json_bytes,
    ),
    Door(
        "last words", ("shell/operate/replica_log.py::parse_log_line",), of(parse_log_line), b'{"text":"a"}', json_bytes
    ),
    Door(
        "a sink's position",
        ("drivers/files.py::FileSink._read_place",),
        sink_files(".position"),
        msgspec.json.encode(SinkPlace("s", 0, "", 1, 1, 0, 1)),
        json_bytes,
    ),
    Door(
        "a sink's lines",
        ("drivers/files.py::FileSink._read_lines",),
        sink_files(""),
        msgspec.json.encode(Line(1, "m", "k", {}, "i")) + b"\n",
        json_bytes,
    ),
    Door(
        "a manifest",
        ("shell/operate/manifest_file.py::_Reader._compose", "shell/operate/manifest_file.py::read_manifest"),
        manifest,
        MANIFEST,
        yaml_bytes,
    ),
    Door(
        "a kubeconfig",
        ("deathless_operator/cluster/kubeconfig.py::from_kubeconfig",),
        at("config", from_kubeconfig),
        KUBECONFIG,
        yaml_bytes,
        (NoCluster,),
    ),
    Door(
        "a file of a topic's rows",
        ("topics/blocks.py::read_header", "topics/blocks.py::read_block_head"),
        topic_file,
        file_bytes(1, [[1, 2], [3]]),
        packed_bytes,
    ),
    Door(
        "a hold of a topic's rows",
        ("topics/keeping.py::_read",),
        at("source/holds/report.json", lambda path: lowest_hold(RealFileSystem(path.parents[2]), "source")),
        b'{"position":3,"owner":"nightly","since":"today","sure":true}',
        json_bytes,
    ),
    Door(
        "a witness in a page or file",
        ("codec/witness.py::decode_slot",),
        of(decode_slot),
        golden("witness_slot"),
        packed_bytes,
    ),
]


def frame(data: bytes) -> object:
    """A frame of the log, and what is in it."""
    frames.frame_length(data)
    found = frames.decode_frame(data)
    if found is not None and found.kind == frames.FrameKind.DATA:
        return frames.decode_data(found)
    return decode_cut(found, "log/x") if found is not None and found.kind == frames.FrameKind.CUT else found


def forged(read: Callable[[frames.Frame], object], name: str) -> Callable[[bytes], object]:
    """A frame whose checksums are right, with this payload."""
    real = frames.decode_frame(golden(name))
    assert real is not None
    return lambda data: read(real._replace(payload=data))


def payload(name: str) -> bytes:
    """Of a recorded frame."""
    found = frames.decode_frame(golden(name))
    assert found is not None
    return found.payload


def checkpoint_of(data: bytes) -> object:
    """A checkpoint, read whole."""
    return checkpoint.decode(chunk_reader([data]))


def checkpoint_ahead_of(data: bytes) -> object:
    """A checkpoint whose state was written ahead, read whole, and its end by who wrote it."""
    checkpoint_of(data)
    states = checkpoint_ahead.begin({b"ann": b"1", b"bob": b"2"})
    begun = b"".join(states)
    return checkpoint_ahead.verify_finished(
        chunk_reader([data]), checkpoint_ahead.read_begun(chunk_reader([begun]), len(begun))
    )


def message(data: bytes) -> object:
    """A message as it stands in the log, with everything that is taken out of it."""
    method_of(data)
    found = messages.decode(data)
    if found.kind == messages.Kind.TIME:
        messages.decode_time(found.args)
    return found


LOG = [
    Door(
        "a frame",
        ("codec/frames.py::decode_frame", "codec/frames.py::frame_length"),
        of(frame),
        golden("frame_data"),
        packed_bytes,
    ),
    Door(
        "a DATA frame that is forged",
        ("codec/frames.py::decode_data",),
        of(forged(frames.decode_data, "frame_data")),
        payload("frame_data"),
        packed_bytes,
    ),
    Door(
        "a CUT frame that is forged",
        ("engine/log/route.py::decode_cut",),
        of(forged(lambda found: decode_cut(found, "x"), "frame_cut")),
        payload("frame_cut"),
        msgpack_bytes,
    ),
    Door(
        "a checkpoint",
        tuple(
            f"codec/checkpoint.py::{each}"
            for each in (
                "read_file_header",
                "read_section",
                "_read_head_section",
                "_sections",
                "_read_state",
                "_read_sessions",
                "_read_replies",
                "_read_keys",
                "_read_parked",
            )
        ),
        of(checkpoint_of),
        golden("checkpoint_messaging"),
        packed_bytes,
    ),
    Door(
        "a checkpoint whose state was written ahead",
        (
            "codec/checkpoint.py::_read_gone",
            "codec/checkpoint_ahead.py::_file_hash",
            "codec/checkpoint_ahead.py::verify_finished",
        ),
        of(checkpoint_ahead_of),
        golden("checkpoint_ahead"),
        packed_bytes,
    ),
    Door(
        "a message",
        ("codec/messages.py::decode", "codec/messages.py::decode_time", "core/primary/suspicion.py::method_of"),
        of(message),
        golden("message_call"),
        packed_bytes,
    ),
    Door(
        "a record of an upgrade",
        ("codec/generations.py::decode_upgraded",),
        of(generations.decode_upgraded),
        messages.decode(golden("message_upgraded")).args,
        msgpack_bytes,
    ),
    Door(
        "a record that a checkpoint keeps of a handler",
        ("execution/invocations/journal.py::<module>",),
        of(decode_record),
        encode_record(SuspendedSchedule(0, "a", "* * * * *", "UTC", 1, 0, "")),
        msgpack_bytes,
    ),
    Door(
        "an item of a map",
        ("codec/map_entries.py::take_apart", "codec/map_entries.py::decode_item"),
        of(map_entries.show_key),
        map_entries.prefix_of(b"a", "items") + b"sx",
        packed_bytes,
    ),
]
