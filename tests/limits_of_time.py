"""Every limit that compares times: which clock it goes by, why, and the test that drives it through steps of clocks.

`test_limits_of_time.py` finds such limits in the sources and fails when one is not here, when one here is gone, when a
wall clock is read in a module that did not, and when a test does not exist.

Does not: drive anything; the tests that it names do.
"""

from __future__ import annotations

import enum
from typing import Final, NamedTuple

from tests.steady_limits import STEADY


class Clock(enum.Enum):
    """What a limit goes by."""

    STEADY = "a clock that nobody sets: monotonic seconds, in the core the `now` of each event"
    SERVICE = "the shard's own counters in the log: age, elapsed or time (core.tables.logical_time)"
    WALL = "the clock that people and time daemons set, because what is compared was written by somebody else's"
    ANOTHER = "the clock of another program, which is told how long"
    NONE = "none: a unit, or a bound of values"


class Limit(NamedTuple):
    """Some limits of one module.

    Attributes:
        path: of the module.
        names: of constants, or of fields as Class.field.
        clock: that they go by.
        why: this one.
        driven: tests that drive them through steps, as key of FILES:name.
    """

    path: str
    names: tuple[str, ...]
    clock: Clock
    why: str = ""
    driven: tuple[str, ...] = ()


FILES: Final = {
    "kept_code": "tests/unit/deathless/shell/service_code/test_kept_code.py",
    "kubeconfig": "tests/unit/deathless_operator/cluster/test_kubeconfig.py",
    "activities": "tests/unit/deathless/core/primary/test_activities.py",
    "authority": "tests/unit/deathless_operator/cluster/test_authority.py",
    "clocks": "tests/sim/test_clocks.py",
    "clocks_apart": "tests/unit/deathless_operator/plan/test_clocks_apart.py",
    "asked_for": "tests/unit/deathless_operator/plan/service/upgrading/test_asked_for.py",
    "ramp": "tests/unit/deathless_operator/plan/service/upgrading/test_ramp.py",
    "drill_budget": "tests/unit/deathless_operator/plan/drill/test_budget.py",
    "drill_outcome": "tests/unit/deathless_operator/plan/drill/test_outcome.py",
    "due_times": "tests/unit/deathless/execution/test_due_times.py",
    "erasure": "tests/unit/deathless_operator/plan/service/test_erasure.py",
    "etcd_lock": "tests/unit/deathless/shell/lock_stores/etcd/test_lock.py",
    "image_check": "tests/unit/deathless_operator/plan/service/upgrading/test_image_check.py",
    "issuer": "tests/unit/deathless/shell/net/test_issuer.py",
    "jumps": "tests/process/test_clock_jumps.py",
    "keyed_session": "tests/unit/deathless/drivers/test_keyed_session.py",
    "keys": "tests/unit/deathless/core/tables/test_keys.py",
    "logical_time": "tests/unit/deathless/core/tables/test_logical_time.py",
    "loss": "tests/unit/deathless_operator/plan/service/test_loss.py",
    "machine_clock": "tests/unit/deathless/shell/link/test_machine_clock.py",
    "observe": "tests/unit/deathless_operator/cluster/test_observe.py",
    "plan": "tests/unit/deathless_operator/plan/service/test_plan.py",
    "proof": "tests/unit/deathless/shell/net/test_proof.py",
    "rule": "tests/test_limits_of_time.py",
    "schedules": "tests/unit/deathless/execution/invocations/test_schedules.py",
    "timers": "tests/sim/test_timers.py",
    "trouble": "tests/unit/deathless_operator/plan/service/test_trouble.py",
    "upgrade": "tests/unit/deathless_operator/plan/service/upgrading/test_upgrade.py",
}
"""Where the tests are that the tables name."""

RULE: Final = "rule:test_what_goes_by_a_steady_clock_stands_where_no_wall_clock_is_read"
CLUSTER: Final = "clocks:test_nothing_is_forgotten_or_doubled_whatever_is_done_to_clocks"
SERVICES: Final = "clocks:test_services_lose_and_double_nothing_whatever_is_done_to_clocks"
JUMPS: Final = "jumps:test_step_of_days_forgets_no_key_and_refuses_no_fresh_one"

OTHERS: Final = (
    Limit(
        "operator/deathless_operator/cluster/kubeconfig.py",
        ("EXPIRES_EARLY_S",),
        Clock.WALL,
        "a credential says at which moment it expires",
        ("kubeconfig:test_login_command_is_run_again_when_what_it_gave_has_expired",),
    ),
    Limit(
        "runtime/deathless/base/lock_stores/etcd.py",
        ("EtcdConfig.lease_ttl_s",),
        Clock.ANOTHER,
        "etcd counts; nothing is decided by a lease (I2)",
        ("etcd_lock:test_renewing_goes_on_after_the_lease_ended_and_after_etcd_was_away",),
    ),
    Limit(
        "runtime/deathless/base/config.py",
        ("DriverConfig.age_max_s",),
        Clock.STEADY,
        "",
        (RULE, "keyed_session:test_what_is_too_old_is_given_up"),
    ),
    Limit(
        "runtime/deathless/base/config.py",
        ("AuthenticationConfig.leeway_s",),
        Clock.WALL,
        "a token says by its issuer's clock when it ends",
        ("issuer:test_leeway_covers_a_clock_that_differs", "issuer:test_token_that_was_good_expires"),
    ),
    Limit(
        "runtime/deathless/base/limits.py",
        ("Limits.idempotency_window_s",),
        Clock.SERVICE,
        "age: no step and no stop forgets a key; a UUIDv7's own time is compared with time and the wall clock",
        (CLUSTER, "keys:test_age_alone_forgets_an_opaque_key_whatever_the_wall_clock_says", JUMPS),
    ),
    Limit(
        "runtime/deathless/base/limits.py",
        ("Limits.time_jump_max_s",),
        Clock.WALL,
        "a UUIDv7 carries its caller's wall clock; the later of time and ours counts",
        ("keys:test_a_timed_key_is_judged_by_the_later_of_time_and_the_wall_clock", JUMPS),
    ),
    Limit(
        "runtime/deathless/base/limits.py",
        ("Limits.session_idle_max_s", "Limits.results_kept_s"),
        Clock.SERVICE,
        "age, as for keys",
        (CLUSTER, "logical_time:test_step_of_the_wall_clock_moves_neither_age_nor_elapsed"),
    ),
    Limit(
        "runtime/deathless/base/limits.py",
        ("Limits.clock_step_us",),
        Clock.SERVICE,
        "from one time record to the next, by what passed",
        ("logical_time:test_whatever_the_clocks_do_age_and_elapsed_are_what_passed_and_time_is_bounded_by_them",),
    ),
    Limit(
        "runtime/deathless/base/manifest.py",
        ("ServiceSpec.replace_after_seconds",),
        Clock.WALL,
        "a node is unready since when the control plane says",
        ("loss:test_replica_is_replaced_after_the_time_of_the_spec",),
    ),
    Limit(
        "runtime/deathless/base/manifest_ingress.py",
        ("OidcCallers.leeway_seconds",),
        Clock.WALL,
        "as AuthenticationConfig.leeway_s",
        ("issuer:test_leeway_covers_a_clock_that_differs",),
    ),
    Limit(
        "runtime/deathless/base/lock_stores/etcd_settings.py",
        ("EtcdSpec.lease_ttl_s",),
        Clock.ANOTHER,
        "as EtcdConfig.lease_ttl_s",
        ("etcd_lock:test_renewing_goes_on_after_the_lease_ended_and_after_etcd_was_away",),
    ),
    Limit(
        "runtime/deathless/base/manifest_parts.py",
        ("Driver.age_max_s",),
        Clock.STEADY,
        "",
        (RULE, "keyed_session:test_what_is_too_old_is_given_up"),
    ),
    Limit(
        "runtime/deathless/base/manifest_pod.py",
        ("Toleration.toleration_seconds", "PodTemplate.termination_grace_period_seconds"),
        Clock.ANOTHER,
        "Kubernetes counts",
    ),
    Limit(
        "runtime/deathless/base/config.py",
        ("UpgradeConfig.time_us",),
        Clock.NONE,
        "",
    ),
    Limit(
        "runtime/deathless/base/times.py",
        ("BUILT_US",),
        Clock.NONE,
        "",
    ),
    Limit(
        "runtime/deathless/core/tables/logical_time.py",
        ("BELIEVE_S", "FOLLOW_US", "JUMP_MAX_US", "LOOK_AGAIN_S"),
        Clock.WALL,
        "what brings logical time to the wall clock",
        (
            "logical_time:test_step_ahead_is_believed_once_it_has_stood_and_not_before",
            "logical_time:test_clock_beyond_the_longest_jump_is_believed_only_where_time_was_none",
            "logical_time:test_timer_by_a_moment_is_looked_at_again_when_the_clock_may_be_believed",
            CLUSTER,
        ),
    ),
    Limit(
        "runtime/deathless/core/replica/replica.py",
        ("KEY_STEP_US",),
        Clock.NONE,
        "",
    ),
    Limit(
        "runtime/deathless/core/replica/witness.py",
        ("YEAR_9999_S",),
        Clock.NONE,
        "",
    ),
    Limit(
        "runtime/deathless/execution/turn/activity.py",
        ("Policy.first_delay", "Policy.delay_max"),
        Clock.SERVICE,
        "elapsed: logged with the failure, so that each replica waits as long",
        ("activities:test_one_that_is_tried_again_later_waits_for_its_time", SERVICES),
    ),
    Limit(
        "runtime/deathless/execution/turn/activity.py",
        ("Policy.timeout", "Policy.heartbeat"),
        Clock.STEADY,
        "",
        (RULE, SERVICES),
    ),
    Limit(
        "runtime/deathless/execution/turn/activity.py",
        ("SECOND_US", "DURATION_MAX_US"),
        Clock.NONE,
        "",
    ),
    Limit(
        "runtime/deathless/execution/turn/context.py",
        ("call.deadline", "timer.after"),
        Clock.SERVICE,
        "elapsed: no step moves it; time for a moment that is named",
        (
            "due_times:test_timer_by_a_duration_goes_by_what_passed_whatever_logical_time_says",
            "due_times:test_deadline_goes_by_its_counter_and_others_are_told_logical_time",
            "timers:test_no_timer_by_a_duration_is_early",
        ),
    ),
    Limit(
        "runtime/deathless/execution/turn/context.py",
        ("MOMENT_MAX_US",),
        Clock.NONE,
        "",
    ),
    Limit(
        "runtime/deathless/execution/author/cron.py",
        ("SECOND_US",),
        Clock.NONE,
        "",
    ),
    Limit(
        "runtime/deathless/execution/invocations/schedules.py",
        ("ON_TIME_US", "NEW_US"),
        Clock.SERVICE,
        "time: a schedule names moments",
        (
            "schedules:test_ticks_wait_until_logical_time_has_caught_up",
            "jumps:test_each_minute_of_a_schedule_comes_once_though_its_primary_is_killed_around_it",
        ),
    ),
    Limit(
        "runtime/deathless/shell/service_code/check/calls.py",
        ("FIRST_US",),
        Clock.NONE,
        "",
    ),
    Limit(
        "runtime/deathless/shell/lock_stores/etcd/lock.py",
        ("LEASE_TTL_S",),
        Clock.ANOTHER,
        "etcd counts; nothing is decided by a lease (I2)",
        ("etcd_lock:test_renewing_goes_on_after_the_lease_ended_and_after_etcd_was_away",),
    ),
    Limit(
        "runtime/deathless/shell/pod/kubernetes_api.py",
        ("WATCH_S",),
        Clock.ANOTHER,
        "the API server counts, and WATCH_SILENCE_S ends it otherwise",
    ),
    Limit(
        "runtime/deathless/sources/kafka_options.py",
        ("FETCH_WAIT_MS",),
        Clock.ANOTHER,
        "a broker holds an answer back for so long if it has nothing",
    ),
    Limit(
        "runtime/deathless/sources/gate/work.py",
        ("KEEP_ALIVE_S",),
        Clock.ANOTHER,
        "the kernel counts",
    ),
    Limit(
        "runtime/deathless/shell/net/connections.py",
        ("DEAD_PEER_MS",),
        Clock.ANOTHER,
        "the kernel counts",
    ),
    Limit(
        "runtime/deathless/shell/link/status_page.py",
        ("CLOCK_TOLD_US",),
        Clock.WALL,
        "how far it is off is what people are told",
        ("machine_clock:test_page_tells_how_far_the_wall_clock_is_off",),
    ),
    Limit(
        "runtime/deathless/shell/net/proof.py",
        ("SWEPT_S",),
        Clock.WALL,
        "a file says when it was written; one that is swept too early is asked for anew",
        ("proof:test_a_clock_that_stepped_ahead_sweeps_secrets_and_keeps_nobody_out",),
    ),
    Limit(
        "runtime/deathless/shell/service_code/kept_code.py",
        ("ABANDONED_S",),
        Clock.WALL,
        "a folder says when it was written; of one that is removed too early its writer says that nothing is kept",
        ("kept_code:test_a_clock_that_stepped_ahead_removes_a_half_written_copy_and_keeps_nobody_from_starting",),
    ),
    Limit(
        "operator/deathless_operator/cli/certificates.py",
        ("AUTHORITY_LIFE_S",),
        Clock.WALL,
        "stands in certificates",
        ("authority:test_certificate_never_outlives_its_authority_and_bears_a_clock_that_is_behind",),
    ),
    Limit(
        "operator/deathless_operator/cli/certificates.py",
        ("DAY_S",),
        Clock.NONE,
        "",
    ),
    Limit(
        "operator/deathless_operator/cluster/authority.py",
        ("BACKDATED_S", "OVERLAP_S"),
        Clock.WALL,
        "stands in certificates",
        (
            "authority:test_certificate_never_outlives_its_authority_and_bears_a_clock_that_is_behind",
            "authority:test_next_authority_is_trusted_a_day_before_it_signs_and_the_old_one_while_it_lives",
        ),
    ),
    Limit(
        "operator/deathless_operator/cluster/observe.py",
        ("WARNINGS_S",),
        Clock.WALL,
        "events say when they happened; nothing but words depends on it",
        ("observe:test_warning_stands_until_its_controller_has_tried_again",),
    ),
    Limit(
        "operator/deathless_operator/model/drill.py",
        (
            "AbortIf.unavailable_budget_seconds",
            "AbortIf.budget_window_seconds",
            "DrillSpec.starting_deadline_seconds",
            "DrillSpec.active_deadline_seconds",
        ),
        Clock.WALL,
        "runs say when they began",
        ("drill_budget:test_runs_that_a_broken_clock_dated_ahead_are_put_together_and_count",),
    ),
    Limit(
        "operator/deathless_operator/model/drill.py",
        (
            "DrillRun.unavailable_seconds",
            "DrillRun.takeover_seconds",
            "DrillStatus.unavailable_seconds",
            "DrillStatus.takeover_seconds",
        ),
        Clock.NONE,
        "what a run measured",
    ),
    Limit(
        "operator/deathless_operator/model/log_run.py",
        ("LogRunSpec.active_deadline_seconds",),
        Clock.ANOTHER,
        "the kubelet ends the pod",
    ),
    Limit(
        "operator/deathless_operator/model/rehearsal.py",
        ("RehearsalSpec.follow_seconds",),
        Clock.ANOTHER,
        "the program in the pod follows the log for so long",
    ),
    Limit(
        "operator/deathless_operator/model/live_upgrade.py",
        ("Window.duration_seconds",),
        Clock.WALL,
        "a window opens at a time of day",
        ("asked_for:test_it_waits_for_its_window_with_everything_ready",),
    ),
    Limit(
        "operator/deathless_operator/model/live_upgrade.py",
        ("RampStep.hold_seconds",),
        Clock.WALL,
        "the operator's clock, from a time in the status: a jump makes a hold longer or shorter, and costs no safety",
        ("ramp:test_the_next_shards_wait_until_those_before_have_served_for_as_long_as_the_step_says",),
    ),
    Limit(
        "operator/deathless_operator/model/live_upgrade.py",
        ("ShardUpgrade.unavailable_seconds", "LiveUpgradeStatus.unavailable_seconds"),
        Clock.NONE,
        "what an upgrade measured",
    ),
    Limit(
        "operator/deathless_operator/model/grace.py",
        ("DRAIN_S", "END_S"),
        Clock.ANOTHER,
        "the kubelet counts",
    ),
    Limit(
        "operator/deathless_operator/plan/pipelines/objects.py",
        ("GRACE_S",),
        Clock.ANOTHER,
        "the kubelet counts",
    ),
    Limit(
        "operator/deathless_operator/model/settings.py",
        ("OperatorSettings.certificate_life_s", "OperatorSettings.authority_life_s"),
        Clock.WALL,
        "stands in certificates",
        ("authority:test_two_thirds_of_a_life_make_a_certificate_due",),
    ),
    Limit(
        "operator/deathless_operator/model/settings.py",
        ("OperatorSettings.check_deadline_s", "OperatorSettings.check_retry_s"),
        Clock.WALL,
        "the API server says when a pod was made",
        ("image_check:test_check_that_does_not_start_is_told_at_its_deadline",),
    ),
    Limit(
        "operator/deathless_operator/model/settings.py",
        ("OperatorSettings.step_deadline_s",),
        Clock.WALL,
        "as check_deadline_s; it is told, and nothing is done",
        ("plan:test_roll_stops_at_a_replica_that_does_not_come_back",),
    ),
    Limit(
        "operator/deathless_operator/plan/drill/outcome.py",
        ("CLOCK_SLACK_S",),
        Clock.WALL,
        "agents say when they began",
        ("drill_outcome:test_verdict_takes_the_fault_into_account",),
    ),
    Limit(
        "operator/deathless_operator/plan/drill/pods.py",
        ("AGENT_DEADLINE_S", "DEADLINE_MARGIN_S", "DEADLINE_MIN_S", "START_ALLOWANCE_S"),
        Clock.ANOTHER,
        "Kubernetes and the pod count",
    ),
    Limit(
        "operator/deathless_operator/plan/service/upgrading/driving.py",
        ("DRIVE_S", "DEADLINE_S"),
        Clock.ANOTHER,
        "the pod and Kubernetes count",
    ),
    Limit(
        "operator/deathless_operator/plan/service/erasure.py",
        ("RETRY_S",),
        Clock.WALL,
        "a kubelet says when a pod ended",
        ("erasure:test_lock_store_that_is_away_is_tried_until_it_is_back",),
    ),
    Limit(
        "operator/deathless_operator/plan/service/erasure.py",
        ("WAIT_S", "DEADLINE_S"),
        Clock.ANOTHER,
        "the pod and Kubernetes count",
    ),
    Limit(
        "operator/deathless_operator/plan/service/loss.py",
        ("FORMER_S",),
        Clock.WALL,
        "as SETTLE_S",
        ("clocks_apart:test_former_instance_is_made_anew_though_its_node_has_another_clock",),
    ),
    Limit(
        "operator/deathless_operator/plan/service/reading.py",
        ("CLOCKS_APART_S",),
        Clock.WALL,
        "what another machine wrote",
        ("clocks_apart:test_pod_of_other_settings_is_made_anew_though_its_node_has_another_clock",),
    ),
    Limit(
        "operator/deathless_operator/plan/service/pods.py",
        ("OTHER_SETTINGS_S",),
        Clock.WALL,
        "as SETTLE_S",
        ("clocks_apart:test_pod_of_other_settings_is_made_anew_though_its_node_has_another_clock",),
    ),
    Limit(
        "operator/deathless_operator/plan/service/rollout.py",
        ("SETTLE_S", "CATCH_UP_S", "FENCE_WAIT_S"),
        Clock.WALL,
        "a kubelet says since when a pod is ready, an operator when it fenced one",
        (
            "clocks_apart:test_service_is_suspended_though_its_replica_was_fenced_by_another_clock",
            "clocks_apart:test_roll_goes_on_beside_nodes_whose_clocks_are_an_hour_apart",
        ),
    ),
    Limit(
        "operator/deathless_operator/plan/service/trouble.py",
        ("MADE_TOGETHER_S",),
        Clock.WALL,
        "the API server says both",
        ("trouble:test_refusal_of_pods_stands_until_a_later_pod_of_that_set_is_made",),
    ),
    Limit(
        "operator/deathless_operator/plan/service/upgrading/upgrade.py",
        ("UP_S",),
        Clock.WALL,
        "the API server says when a pod was made",
        ("upgrade:test_upgraders_that_can_not_be_placed_are_told",),
    ),
)
"""What goes by another clock than a steady one, or has tests of its own."""


DRIVEN: Final = {
    "runtime/deathless/base/limits.py": (RULE, CLUSTER, JUMPS),
    "runtime/deathless/core/": (RULE, CLUSTER, SERVICES),
    "runtime/deathless/engine/": (RULE, CLUSTER, SERVICES),
    "runtime/deathless/shell/": (RULE, JUMPS),
    "": (RULE,),
}
"""What drives those, by how the path begins: no step reaches them, and long stops end all of them at once."""

LIMITS: Final = (
    *OTHERS,
    *(
        Limit(path, names, Clock.STEADY, "", next(tests for begin, tests in DRIVEN.items() if path.startswith(begin)))
        for path, names in STEADY.items()
    ),
)

WALL_READS: Final = {
    "runtime/deathless/cli/look/logs.py": (1, "lines say when they were written"),
    "runtime/deathless/cli/look/status.py": (1, "how much longer a hand-over waits, for people"),
    "runtime/deathless/cli/run/up.py": (4, "what is told says when"),
    "runtime/deathless/drivers/source_link.py": (1, "a caller's deadline is a moment; beyond it nothing is begun"),
    "runtime/deathless/sinks/host.py": (1, "a status says when it was told, and rows how old they are"),
    "runtime/deathless/sources/host.py": (1, "a status says when it was told"),
    "runtime/deathless/foreign/host.py": (1, "a status says when it was told"),
    "runtime/deathless/foreign/skips.py": (1, "a skip says when it was decided"),
    "runtime/deathless/shell/net/callers.py": (1, "given to the issuer: tokens say when they end"),
    "runtime/deathless/shell/service_code/kept_code.py": (3, "which of several codes was used last, and ABANDONED_S"),
    "runtime/deathless/shell/upgrade/planning.py": (1, "the one time that migrations are shown"),
    "runtime/deathless/shell/operate/log_export.py": (1, "the file says when it was made"),
    "runtime/deathless/shell/pod/health_port.py": (1, "the date header"),
    "runtime/deathless/shell/ingress/ingress.py": (1, "the date header"),
    "runtime/deathless/shell/net/proof.py": (2, "SWEPT_S"),
    "runtime/deathless/shell/supervisor/standing_view.py": (2, "people are told since when a role is held"),
    "runtime/deathless/shell/link/machine_clock.py": (1, "given to the engine: logical time is drawn to it"),
    "runtime/deathless/shell/worker/worker.py": (3, "people are told when a hand-over or a span ends"),
    "operator/deathless_operator/cli/certificates.py": (1, "stands in certificates"),
    "operator/deathless_operator/cli/drill_run.py": (1, "what is told says when"),
    "operator/deathless_operator/cli/plugin.py": (1, "ages of conditions, for people"),
    "operator/deathless_operator/cluster/kubeconfig.py": (1, "credentials say when they expire"),
    "operator/deathless_operator/cluster/lease.py": (1, "for people who read the lease"),
    "operator/deathless_operator/cluster/observe.py": (
        1,
        "`now` of a snapshot, beside the API server's times",
    ),
    "operator/deathless_operator/cluster/observe_drill.py": (1, "as observe"),
    "operator/deathless_operator/drill/agent.py": (6, "a report says when a fault began and ended"),
    "operator/deathless_operator/drill/runner.py": (1, "a report says when calls began and ended"),
    "operator/deathless_operator/handlers/process.py": (2, "events say when; certificates are due"),
}
"""Modules that read a wall clock, how often, and what for: look at what one more is compared with."""

UNITS: Final = ("_s", "_ms", "_us", "_ns", "_seconds", "_seconds_max", "_per_hour_max")
"""How the names of constants and of settings end that are measured in time."""

SETTINGS: Final = (
    "runtime/deathless/base/limits.py",
    "runtime/deathless/base/config.py",
    "runtime/deathless/base/lock_stores/*.py",
    "runtime/deathless/base/manifest*.py",
    "operator/deathless_operator/model/*.py",
)
"""Modules whose classes are settings; `LimitsSpec` of the manifest is `Limits` once more."""

POLICY: Final = "runtime/deathless/execution/turn/activity.py"
COUNTS: Final = frozenset({"attempts_max", "factor", "at_most_once"})
"""Fields of an activity's Policy that are no times."""

CONTEXT: Final = "runtime/deathless/execution/turn/context.py"
