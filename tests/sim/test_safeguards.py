"""Each safeguard that a cluster can show, switched off: the scenario that fails without it, and by which checker.

The same scenarios pass with everything on (test_scenarios.py), so a failure here is the switch's doing alone. The
switches of `ELSEWHERE` can't be told apart in a cluster, because another safeguard stands behind them or because no
fault of the simulation reaches them; the tests named there switch them off.
"""

from dataclasses import fields, replace

import pytest
from tests.sim.recorded_seeds import check_recorded
from tests.sim.scenarios import run

from deathless.base.safeguards import ALL_SAFEGUARDS, Safeguards
from deathless.simulation.runs.faults import DRAWN, FaultKind
from deathless.simulation.runs.run import Options, run_seed

SHOWN = (
    # The log's writer.
    ("sync_before_release", "power cut before the cut is synced", "recovery"),
    ("sync_copies", "power cut after head is set", "stopped"),
    ("sync_folder", "power cut before the cut is synced", "recovery"),
    ("sync_roll", "power cut before the cut is synced", "recovery"),
    ("reserve_before_run", "a full disk keeps the primary", "scenario"),
    ("adapt_to_slow_storage", "slow for everybody", "scenario"),
    ("collect_when_full", "a volume smaller than the log", "liveness"),
    ("give_back_space", "takeovers on a small volume", "scenario"),
    # The log's readers.
    ("follow_cuts", "primary frozen at seal sync log/ before", "stopped"),
    ("missing_is_error", "missing rolled file", "scenario"),
    ("look_beyond_bad_frame", "a frame before others rotten", "scenario"),
    ("judge_tail_by_bytes", "rotten end with all dead", "scenario"),
    ("witness_checked", "directory put back with its lock", "scenario"),
    ("witness_at_stop", "log put back after an orderly stop", "scenario"),
    ("witness_before_handover", "log put back after a stop whose successor ended", "scenario"),
    ("confirmed_only", "a reader of unconfirmed frames", "stopped"),
    ("check_confirmed_end", "rotten frame behind a laggard", "scenario"),
    # Takeover.
    ("seal_before_read", "primary frozen at seal sync log/ before", "released"),
    ("seal_every_epoch", "frozen through two epochs", "released"),
    ("ask_confirmed", "rotten frame behind a laggard", "scenario"),
    ("cut_at_confirmed", "power cut after copies served", "recovery"),
    ("cut_before_head", "killed before the cut", "stopped"),
    ("remove_unread", "primaries that confirm nothing", "scenario"),
    ("unread_after_proof", "killed before head is set", "stopped"),
    ("opening_frame", "lock store restored from a backup", "scenario"),
    ("guard_head", "head set late", "stopped"),
    ("refuse_older_store", "lock store restored from a backup", "scenario"),
    # The directory lock.
    ("probe_names", "primary frozen at seal write log/ after", "agreement"),
    ("exclusive_links", "two take the lock", "stopped"),
    # Release (I1).
    ("prove_before_release", "primary frozen at seal sync log/ before", "released"),
    ("proof_after_sync", "a proof answered late", "released"),
    ("hold_without_answer", "cut off from the lock store", "released"),
    ("proof_for_query", "a read at a frozen primary", "linearizability"),
    # Messages and replies (I3, I5).
    ("next_expected_only", "a batch that comes too early", "exactly_once"),
    ("dedup", "primary frozen at seal write log/ after", "linearizability"),
    ("session_owner", "a message in another's session", "exactly_once"),
    ("reack_confirmed_only", "duplicates before the proof", "released"),
    ("record_replies", "primary frozen at seal write log/ after", "agreement"),
    # A replica's supervisor and its worker.
    ("end_still_workers", "a worker whose loop stands still", "scenario"),
    ("forgive_sleep", "a replica that is frozen whole", "scenario"),
    ("end_at_deadline", "a worker that is fenced in a message", "scenario"),
    ("ordered_ends_kill_no_message", "a worker that is fenced in a message", "scenario"),
    ("hold_worker", "a fence that comes and goes", "scenario"),
    ("stop_worker", "a fence that comes and goes", "scenario"),
    # Activities (I7).
    ("wait_for_once", "hand-over while activities run", "scenario"),
    # Upgrades.
    ("upgrade_confirmed_only", "a hand-over to an upgrader that nobody sent", "stopped"),
    ("compare_before_take", "a standby of the former code is cut off from the new primary", "scenario"),
    ("compare_generation", "a standby frozen through an upgrade and back", "scenario"),
    ("compare_former", "a former code that loses a frame", "scenario"),
    ("checkpoint_before_head", "an upgrader is killed as it opens, before its first reply", "scenario"),
    ("verify_first_checkpoint", "a first checkpoint that was never good", "scenario"),
    ("refuse_newer_level", "an older build at a later format level", "scenario"),
    ("changes_since_ready", "changed since it was made ready", "recovery"),
    ("lower_on_the_way_back", "upgraded, backed out and upgraded again under kills", "agreement"),
    # Copies.
    ("check_place", "a directory copied by files", "copies"),
    ("check_place", "a directory copied by halves", "scenario"),
    ("same_directory", "a cloned volume", "scenario"),
    ("same_directory", "a clone beside a dead primary", "copies"),
    ("peer_history", "a clone that talks to a peer", "scenario"),
    # What other replicas say.
    ("claims_expire", "a liar among the supervisors", "scenario"),
    ("claims_bounded", "a liar among the supervisors", "scenario"),
    ("own_reports_only", "a liar among the supervisors", "scenario"),
    # Replay (I6, I11), checkpoints.
    ("compare_digests", "a handler that differs", "agreement"),
    ("park_killers", "a handler that kills its process", "scenario"),
    ("try_out_suspects", "a burst of messages that kill", "scenario"),
    ("sync_checkpoint", "power cut after collection", "stopped"),
)

ELSEWHERE = {
    "admit_by_id": "tests/sim/test_streams.py; needs sources",
    "welcome_confirmed": "tests/sim/test_streams.py; likewise",
    "remember_end": "tests/sim/test_streams.py; likewise",
    "write_by_level": "core/primary/test_inputs.py; no program runs beside a replica in the simulation",
    "forget_unused": "core/primary/test_inputs.py; nobody forgets a stream in the simulation",
    "run_input_once": "tests/sim/test_streams.py; likewise",
    # Switched off by the tests of their modules, below tests/unit/deathless/.
    "fail_stop": "engine/log/test_segment_writer.py; the engine stops as well",
    "keep_spare": "engine/log/test_segment_writer.py",
    "roll_file_first": "engine/test_crash_points.py; a takeover on a full disk needs no roll any more",
    "reread_bad_frame": "engine/log/test_segment_scan.py; needs a page cache that lies",
    "check_chain": "engine/log/test_reader.py; needs a writer that is broken",
    "check_identity": "engine/log/test_route.py; needs another service's directory",
    "epoch_in_frame": "engine/log/test_segment_scan.py; needs blocks of another file",
    "fork_cut_consistent": "core/replica/test_fork_cut.py; nothing is forked in the simulation",
    "hold_outside_as_new": "shell/worker/test_outward.py; needs an operator who adopts a copy",
    "topic_readers_only": "shell/ingress/test_topic_readers.py; nothing reads topics in the simulation",
    "check_topic_source": "topics/test_remote.py; likewise",
    "rows_to_their_end": "topics/test_wire.py; likewise",
    "check_callers": "shell/net/test_port_guard.py; needs certificates",
    "end_untrusted_connections": "shell/net/test_port_guard.py; needs certificates",
    "age_without_clock": "core/tables/test_logical_time.py, core/primary/test_primary.py, tests/models/test_time.py",
    "floor_for_every_key": "core/tables/test_keys.py and tests/models/test_time.py",
    "believe_late": "core/tables/test_logical_time.py and tests/models/test_time.py",
    "gap_by_own_clock": "core/tables/test_logical_time.py, tests/models/test_time.py and tests/sim/test_timers.py",
    "page_before_release": "engine/replica/test_witness_keeper.py; needs a death between a note and a reply",
    "witness_chain": "core/replica/test_witness.py; needs a log that regrew unseen",
    "witness_of_confirmed": "engine/replica/test_witness_keeper.py",
    "witness_of_unknown_incarnation": "core/replica/test_witness.py; needs a restore before",
    "witness_guarded": "engine/replica/test_witness_keeper.py",
    "witness_own_revision": "engine/replica/test_witness_keeper.py; needs a machine that is put back while it runs",
    "check_fingerprint": "engine/replica/test_replica_engine.py",
    "checkpoints_of_this_log": "engine/log/test_own_history.py; needs files of another history beside the log",
    "checkpoints_of_this_generation": "core/primary/test_checkpoint_plan.py; what it keeps nobody needs but people",
    "verify_checkpoint": "engine/log/test_checkpoint_store.py",
    "collect_below_confirmed": "engine/log/test_store.py",
    "collect_oldest_first": "engine/log/test_store.py",
    "newest_session_connection": "core/primary/test_session_owners.py; needs two copies of one client",
    "send_confirmed_only": "core/primary/test_sending.py, and by a seed of services tests/sim/test_mutants.py",
    "fence_peer_connections": "core/primary/test_receiving.py, and by a seed of services tests/sim/test_mutants.py",
    "log_attempt_first": "core/primary/test_activities.py, and by a seed of services tests/sim/test_mutants.py",
}

ALL_KINDS = DRAWN
FOUND_BY_CHANCE = (
    ("seal_before_read", 0, "released", ALL_KINDS),
    ("prove_before_release", 0, "released", ALL_KINDS),
    ("probe_names", 0, "stopped", ALL_KINDS),
    ("dedup", 9, "exactly_once", ALL_KINDS),
    ("record_replies", 10, "agreement", ALL_KINDS),
    ("collect_when_full", 94, "liveness", None),
    ("same_directory", 34, "copies", None),
    ("check_place", 53, "copies", None),
    ("sync_copies", 4, "recovery", (FaultKind.STEAL, FaultKind.POWER_CUT)),  # a successor's tail, and a second crash
)
"""Switch, a seed that fails without it, checker, kinds of faults (None: all, and small volumes): chance finds these."""

SEEDS_TRIED_MAX = 120


def without(name: str) -> Safeguards:
    return replace(ALL_SAFEGUARDS, **{name: False})


@pytest.mark.parametrize(("name", "scenario", "checker"), SHOWN, ids=[name for name, _, _ in SHOWN])
def test_without_the_safeguard_its_scenario_fails(name: str, scenario: str, checker: str) -> None:
    violations = run(scenario, without(name))
    assert checker in {violation.checker for violation in violations}


@pytest.mark.parametrize(
    ("name", "seed", "checker", "kinds"), FOUND_BY_CHANCE, ids=[each[0] for each in FOUND_BY_CHANCE]
)
def test_without_the_safeguard_its_seed_fails(
    name: str, seed: int, checker: str, kinds: tuple[FaultKind, ...] | None
) -> None:
    """The recorded seed does; where it no longer does the program has changed, and the seed to record is named."""

    def found(tried: int) -> bool:
        result = run_seed(tried, Options(kinds=kinds, safeguards=without(name)))
        return checker in {violation.checker for violation in result.violations}

    check_recorded(seed, found, f"what {name} is for", tried_max=SEEDS_TRIED_MAX)
    sound = run_seed(seed, Options(kinds=kinds))
    assert sound.good, "\n".join(map(str, sound.violations[:5]))


def test_every_switch_is_shown_here_or_named_elsewhere() -> None:
    shown = {name for name, _, _ in SHOWN}
    assert shown.isdisjoint(ELSEWHERE)
    assert shown | set(ELSEWHERE) == {field.name for field in fields(Safeguards)}
