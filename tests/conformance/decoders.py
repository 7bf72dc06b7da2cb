"""Finds every call that takes bytes apart, and says why some of them are no doors of their own."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TREES = ("runtime/deathless", "operator/deathless_operator")
READERS = {"read_json", "read_msgpack", "JsonReader", "MsgpackReader"}
WHOLE = {"msgspec.convert", "json.load", "json.loads", "tomllib.load", "tomllib.loads", "ast.literal_eval"}
UNPACK = {"unpack", "unpack_from", "iter_unpack"}
ANSWERS = ("answer", "response", "urlopen", "content", "reader", "stderr", "stdout")  # what a stream is called
LIBRARIES = ("msgspec.json.", "msgspec.msgpack.", "msgspec.yaml.", "msgspec.toml.", "pickle.", "marshal.")


def sources() -> Iterator[tuple[str, str]]:
    """Give (path, text) of every module that may decode, but for the simulation, whose bytes are its own."""
    for tree in TREES:
        for path in sorted((ROOT / tree).rglob("*.py")):
            if "simulation" not in path.parts:
                short = path.relative_to(ROOT / "runtime/deathless" if tree == TREES[0] else ROOT / "operator")
                yield short.as_posix(), path.read_text()


def decoders(path: str, text: str) -> list[str]:
    """Give path::function of every call of a decoder in a module."""
    found: list[str] = []

    def visit(node: ast.AST, where: str) -> None:
        for inner in ast.iter_child_nodes(node):
            name = where
            if isinstance(inner, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                name = f"{where}.{inner.name}" if where else inner.name
            if isinstance(inner, ast.Call) and _decodes(inner):
                found.append(f"{path}::{name or '<module>'}")
            visit(inner, name)

    visit(ast.parse(text), "")
    return sorted(set(found))


def unbounded(path: str, text: str) -> list[str]:
    """Give path:line of every place that reads an answer of the network or of a program to its end, however long."""
    found = set()
    for node in ast.walk(ast.parse(text)):
        call = node.value if isinstance(node, ast.Await) else node
        if not (isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute)):
            continue
        whole = not call.keywords and [ast.unparse(one) for one in call.args] in ([], ["-1"], ["None"])
        named = any(word in ast.unparse(call.func.value) for word in ANSWERS)
        awaited = isinstance(node, ast.Await) and call.func.attr in {"json", "text"}
        # What a program says goes on for as long as it likes, unless it is known to say nothing.
        says = call.func.attr == "communicate" and isinstance(node, ast.Call)
        if says or (whole and (awaited or (named and call.func.attr in {"read", "readlines", "readall"}))):
            found.add(f"{path}:{call.lineno}")
    return sorted(found)


def _decodes(call: ast.Call) -> bool:
    if any(isinstance(node, ast.Call) for node in ast.walk(call.func)):
        return False  # of what a call gave: `Decoder(kind).decode` is found by its Decoder
    name = ast.unparse(call.func)
    last = name.rpartition(".")[2]
    if name in READERS or name in WHOLE or last in UNPACK:
        return True
    if name.startswith("yaml."):
        return any(part in last for part in ("load", "compose", "parse"))
    return name.startswith(LIBRARIES) and last in {"decode", "decode_lines", "Decoder", "load", "loads"}


OURS = "what this process, its parent, its child or its fork just wrote"
GUARD = "the guard itself, which doors call"
LET_IN = "of a message or result that was let in: what it raises is that call's answer (tests of execution and shell)"
CHECKED = "of a frame or checkpoint whose checksums are right, behind the doors of both"
ANSWERED = "of an answer that `what a tool is answered` let in; a misfit is an error of ours"
COPY = "a value of ours, encoded in the same line"
READ = "`read_json` or `read_msgpack`, whose one error its function or the caller of it answers"
TREE = "of what a door read already, in types of ours; a misfit is an error that names the field"
KERNEL = "what the kernel wrote"
TESTED = "of a service under test, in the process of its author's test; what it raises fails that test"
ELSEWHERE: dict[str, str] = {
    "base/config.py::ReplicaConfig.make_limits": TREE,
    "base/schema_check.py::_check_leaf": TREE,
    "cli/look/checkpoint.py::show": CHECKED,
    "cli/look/log.py::_read": CHECKED,
    "cli/output.py::_text_of": COPY,
    "codec/messaging_sections.py::Reader._read_histories": CHECKED,
    "codec/messaging_sections.py::Reader._read_outbox": CHECKED,
    "codec/messaging_sections.py::Reader._read_peers": CHECKED,
    "codec/messaging_sections.py::Reader._read_results": CHECKED,
    "codec/messaging_sections.py::Reader._read_undelivered": CHECKED,
    "codec/messaging_sections.py::Reader._read_unknown": CHECKED,
    "codec/messaging_sections.py::_read_blobs": CHECKED,
    "codec/nesting.py::<module>": GUARD,
    "codec/streams/sections.py::_read": CHECKED,
    "codec/untrusted.py::JsonReader.__init__": GUARD,
    "codec/untrusted.py::MsgpackReader.__init__": GUARD,
    "codec/untrusted.py::read_json": GUARD,
    "codec/untrusted.py::read_msgpack": GUARD,
    "core/primary/admission.py::Admission.space_refused": OURS,
    "core/tables/spool.py::Run.load": OURS,
    "cli/change/pipelines.py::_shown": COPY,
    "deathless_operator/cli/plugin_cluster.py::fitted": ANSWERED,
    "deathless_operator/cli/plugin_operators.py::order": READ,
    "deathless_operator/cli/plugin_upgrade.py::_noted": READ,
    "deathless_operator/cluster/kubeconfig.py::Login._run": "of a command of the user's own kubeconfig: NoCluster",
    "deathless_operator/cluster/lock_store.py::_read": READ,
    "deathless_operator/cluster/prometheus.py::read_answer": READ,
    "deathless_operator/drill/front_door.py::HttpFrontDoor.read": READ,
    "deathless_operator/model/resource_parts.py::spec_in": TREE,
    "deathless_operator/model/schema.py::structural": COPY,
    "deathless_operator/plan/service/access.py::_is_former_store": READ,
    "deathless_operator/plan/service/upgrading/accepted.py::_besides": READ,
    "deathless_operator/plan/service/upgrading/accepted.py::_running_code": READ,
    "deathless_operator/plan/service/upgrading/accepted.py::noted_code": READ,
    "deathless_operator/plan/service/upgrading/accepted.py::noted_upgrade": READ,
    "deathless_operator/plan/service/upgrading/upgrade.py::outcome_of": READ,
    "deathless_operator/plan/service/objects.py::peer_of": COPY,
    "deathless_operator/plan/service/objects.py::replica_config": COPY,
    "deathless_operator/plan/service/placement.py::_as_json": COPY,
    "deathless_operator/plan/service/placement.py::as_object": COPY,
    "drivers/port.py::Settings.typed": TREE,
    "drivers/topic.py::_emitted": "`msgspec.convert` of a message that was let in; a misfit is refused by its position",
    "shell/link/side_status.py::read_record": READ,
    "shell/net/status_port.py::ask_status": READ,
    "base/source_kinds/connector.py::connector_options": TREE,
    "sources/port.py::Settings.typed": TREE,
    "engine/lock/directory_lock.py::DirectoryLock._read_record": READ,
    "engine/log/overview.py::_opening": READ,
    "engine/log/overview.py::describe_segment": READ,
    "engine/log/reader.py::_roll_of": READ,
    "engine/log/store.py::ShardLog.write_cut": OURS,
    "engine/replica/replica_engine.py::ReplicaEngine.frames_received": CHECKED,
    "engine/shard/shard.py::Shard._run_system": CHECKED,
    "execution/executor.py::HandlerExecutor._run": LET_IN,
    "execution/maps/map.py::decode_map": LET_IN,
    "execution/turn/operations.py::_decoder_of": LET_IN,
    "execution/turn/operations.py::decoder": LET_IN,
    "execution/author/peer.py::named_arguments": COPY,
    "execution/author/foreign_methods.py::_check_json": COPY,
    "execution/author/foreign_methods.py::read_argument": LET_IN,
    "execution/author/foreign_methods.py::write_result": COPY,
    "shell/ingress/by_number.py::<module>": LET_IN,
    "shell/ingress/results.py::<module>": LET_IN,
    "execution/handlers/plan.py::Plan.__init__": LET_IN,
    "shell/operate/upgrading/migration_child.py::_migrated": OURS,
    "shell/operate/upgrading/migration_child.py::run": OURS,
    "shell/operate/upgrading/upgrade_check.py::_checked": OURS,
    "shell/operate/upgrading/upgrade_check.py::_in_another_process": OURS,
    "shell/operate/upgrading/upgrade_check.py::check_upgrade": OURS,
    "execution/declared/unknown_fields.py::<module>": CHECKED,
    "execution/migration/hop.py::_ItemStretch.__init__": CHECKED,
    "execution/migration/hop.py::_decoder": CHECKED,
    "execution/handlers/older_arguments.py::Form.__init__": LET_IN,
    "execution/handlers/plan.py::StatePlan.__init__": LET_IN,
    "execution/handlers/plan.py::map_field": LET_IN,
    "execution/handlers/probe.py::<module>": OURS,
    "execution/handlers/request_hash.py::hashes": LET_IN,
    "execution/invocations/schedules.py::Schedules.ended": READ,
    "execution/declared/declared_types.py::check_type": COPY,
    "execution/author/signature.py::check_state": COPY,
    "execution/turn/topic.py::<module>": CHECKED,
    "execution/turn/turn.py::Asked.run": COPY,
    "cli/ambrosia/registrations.py::all_registrations": READ,
    "cli/ambrosia/registrations.py::registration_of": READ,
    "shell/foreign/check/plan.py::read_calls": READ,
    "sinks/postgresql.py::PostgresqlStore.retry": "of a row that we packed, in a table that is ours alone",
    "sinks/refused_rows.py::shown": "of a row that we packed, in a table that is ours alone",
    "shell/worker/activities.py::_Worker.data_received": "of a packet whose length it looks at first",
    "shell/worker/activity_process.py::_reply_of": COPY,
    "shell/worker/activity_process.py::run_function": READ,
    "shell/net/admin_call.py::fitted": ANSWERED,
    "shell/worker/admin_commands.py::<module>": READ,
    "protocols/ambrosia/check_bytes.py::_of_stripes": "of bytes that are about to be sent, which may be any",
    "shell/pod/announcer.py::Announcer.read_line": OURS,
    "shell/service_code/check/calls.py::Drawer.message": COPY,
    "shell/service_code/check/compare.py::_reply_text": OURS,
    "shell/service_code/check/compare.py::_run": OURS,
    "shell/service_code/check/compare.py::_value_text": OURS,
    "shell/service_code/check/child.py::main": OURS,
    "shell/worker/checkpoints.py::Checkpoints.begin_first.begun": OURS,
    "shell/worker/checkpoints.py::Checkpoints.count.counted": OURS,
    "shell/client/shard_client.py::Client._waiter": LET_IN,
    "shell/ingress/pending.py::<module>": READ,
    "shell/net/issuer.py::Issuer._read_keys": READ,
    "shell/pod/kubernetes_api.py::Api._exchange": READ,
    "shell/pod/kubernetes_api.py::Api.watch_pod": READ,
    "shell/net/abstract_socket.py::is_own": KERNEL,
    "shell/worker/messaging.py::Messaging._order": READ,
    "shell/worker/messaging.py::Messaging.answer": READ,
    "shell/worker/messaging.py::shown": READ,
    "shell/link/orders.py::LineProtocol.__init__": OURS,
    "shell/directory/place.py::_spot_of_opened": KERNEL,
    "shell/worker/bug_log.py::<module>": OURS,
    "execution/rehearsal/sameness.py::Sameness.__init__": LET_IN,
    "execution/rehearsal/sameness.py::_is_bug": READ,
    "execution/rehearsal/sameness.py::same_item": CHECKED,
    "execution/rehearsal/sameness.py::shown_reply": READ,
    "execution/rehearsal/sameness.py::shown_state": CHECKED,
    "execution/rehearsal/steps.py::decode_trace": OURS,
    "shell/operate/upgrading/digest_run.py::DigestRun.apply": OURS,
    "shell/operate/upgrading/rehearsal.py::Side.hear": OURS,
    "shell/operate/upgrading/rehearsal.py::_Run._compare_digests": OURS,
    "shell/operate/upgrading/rehearsal.py::_Run._compare": OURS,
    "shell/operate/upgrading/rehearsal.py::_Run.run": OURS,
    "shell/operate/upgrading/rehearsal_child.py::_NewCode.__init__": OURS,
    "shell/operate/upgrading/rehearsal_child.py::serve": OURS,
    "shell/operate/replay.py::_plain": CHECKED,
    "shell/operate/replay.py::_floor_in": CHECKED,
    "shell/operate/replay.py::main": OURS,
    "shell/operate/replay.py::replay": OURS,
    "shell/service_code/separate_process.py::_heard": OURS,
    "shell/service_code/code_process.py::_described": OURS,
    "shell/service_code/import_trial.py::_tried": OURS,
    "shell/web/replica_metrics.py::ask_status": READ,
    "shell/worker/span_exporter.py::serve": OURS,
    "shell/worker/spans.py::Spans._told": READ,
    "execution/invocations/comparison.py::Comparison._reader": CHECKED,
    "execution/migration/lowering.py::_lowered": "of an admitted message; a misfit refuses the way back",
    "execution/invocations/comparison.py::_any_again": CHECKED,
    "execution/author/carry.py::Suspended.arguments": "of arguments that a handler began with",
    "execution/author/carry.py::Suspended.given": "of a recorded result; what the author's function raises is a misfit",
    "execution/invocations/carrying.py::_failure": READ,
    "execution/invocations/difference.py::_end_of": READ,
    "execution/turn/asked_operation.py::<module>": CHECKED,
    "execution/turn/asked_operation.py::_value": READ,
    "shell/service_code/code_process.py::describe_code_of": OURS,
    "shell/upgrade/former.py::FormerProcess._look_at_lowered": READ,
    "shell/upgrade/former.py::FormerProcess._packet": READ,
    "shell/upgrade/former_main.py::FormerCode.__init__": OURS,
    "shell/upgrade/former_main.py::checkpoint_at": OURS,
    "shell/upgrade/former_main.py::serve": OURS,
    "shell/upgrade/former_server.py::FormerServer._start": "just 8 bytes: any number is read, and checked",
    "testing/activities.py::FakeActivity.run": TESTED,
    "pipelines/client.py::PipelineClient.report.answered": LET_IN,
    "pipelines/position.py::position_of": "of a file that Spark has just written for us; a misfit is an error of ours",
    "spark/line.py::Line.__init__": OURS,
    "spark/holds.py::_places": "of offsets that `position_of` read",
    "spark/options.py::known_services": READ,
    "testing/caller.py::ServiceCaller._of_spec": TESTED,
    "testing/caller.py::_decoder": TESTED,
    "testing/fake_peer.py::FakePeer.taken": TESTED,
    "testing/feeding.py::_message": TESTED,
    "testing/published.py::published": TESTED,
    "shell/worker/helpers/witness_writer.py::order_of": "a slot that was cut to its length before",
}
