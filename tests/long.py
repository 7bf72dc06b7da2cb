"""Tests that `make quick` leaves out for their length: it is to end within two minutes on two cores, to be run often.

`make test` runs all of them. Each module here took more than three seconds in all its tests together. A run of
`make quick` names at its end the modules that have grown beyond that and are not listed.

Does not: leave anything out of `make test`.
"""

from __future__ import annotations

from typing import Final

MODULE_S: Final = 3.0
"""A module whose tests take longer together is listed."""

FOLDERS: Final = ("models", "sim", "spec")
"""Whole folders: what they run are runs of models and of simulated clusters."""

MODULES: Final = (
    "conformance/test_doors.py",
    "conformance/test_reference_peer.py",
    "test_tooling.py",
    "test_typed_peers.py",
    "unit/charts/test_alerts.py",
    "unit/charts/test_chart_rendering.py",
    "unit/deathless/codec/test_wire.py",
    "unit/deathless/drivers/test_postgresql.py",
    "unit/deathless/drivers/test_postgresql_says.py",
    "unit/deathless/engine/test_crash_points.py",
    "unit/deathless/execution/test_messaging_properties.py",
    "unit/deathless/protocols/connector/test_sink_pair.py",
    "unit/deathless/protocols/connector/test_source_pair.py",
    "unit/deathless/protocols/test_both_ends.py",
    "unit/deathless/protocols/test_upgrade_of_both_ends.py",
    "unit/deathless/shell/ingress/test_ingress.py",
    "unit/deathless/shell/lock_stores/etcd/test_client.py",
    "unit/deathless/shell/lock_stores/etcd/test_gateway.py",
    "unit/deathless/shell/lock_stores/etcd/test_lock.py",
    "unit/deathless/shell/lock_stores/test_erasing.py",
    "unit/deathless/shell/net/test_issuer.py",
    "unit/deathless/shell/net/test_silent_connections.py",
    "unit/deathless/shell/pod/test_announcer.py",
    "unit/deathless/shell/process/test_turn_guards.py",
    "unit/deathless/shell/service_code/check/test_compare.py",
    "unit/deathless/shell/service_code/check/test_run.py",
    "unit/deathless/shell/service_code/test_code_process.py",
    "unit/deathless/shell/service_code/test_fingerprint.py",
    "unit/deathless/shell/service_code/test_fingerprint_report.py",
    "unit/deathless/shell/service_code/test_sources.py",
    "unit/deathless/shell/supervisor/test_supervisor.py",
    "unit/deathless/shell/test_operators_over_http.py",
    "unit/deathless/shell/test_running_on_bad_storage.py",
    "unit/deathless/shell/test_start_on_bad_storage.py",
    "unit/deathless/shell/test_supervisor_held.py",
    "unit/deathless/shell/test_supervisor_settings.py",
    "unit/deathless/shell/test_supervisor_starting.py",
    "unit/deathless/shell/test_supervisor_waiting.py",
    "unit/deathless/shell/upgrade/test_former.py",
    "unit/deathless/shell/upgrade/test_former_server.py",
    "unit/deathless/shell/worker/test_activities.py",
    "unit/deathless/shell/worker/test_worker.py",
    "unit/deathless/sinks/test_host.py",
    "unit/deathless/sinks/test_postgresql.py",
    "unit/deathless_operator/cli/test_plugin.py",
    "unit/deathless_operator/cli/test_plugin_adopt.py",
    "unit/deathless_operator/cli/test_plugin_holds.py",
    "unit/deathless_operator/cli/test_plugin_operators.py",
    "unit/deathless_operator/drill/test_runner.py",
    "unit/deathless_operator/plan/service/test_erasure.py",
    "unit/deathless_operator/plan/service/test_lock_users.py",
    "unit/deathless_operator/plan/service/test_pod_settings.py",
    "unit/deathless_operator/plan/test_convergence.py",
    "unit/deathless_operator/plan/test_hands.py",
    "unit/deathless_operator/plan/test_ready_means_served.py",
    "unit/deathless_operator/plan/test_refused.py",
    "unit/deathless_operator/plan/test_rewritten_fields.py",
    "unit/deathless_operator/plan/test_truth.py",
    "unit/tools/test_code_in_documents.py",
)
"""Paths below `tests/`."""


def is_long(path: str) -> bool:
    """Is a test module, by its path below `tests/`, left out of `make quick`?"""
    return path in MODULES or path.partition("/")[0] in FOLDERS
