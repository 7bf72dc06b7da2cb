"""Named traces: what once failed, or what the design says must hold, as directed runs of whole clusters.

Each scenario builds a cluster, does one thing to it at one moment, lets it come to its end and gives what was wrong:
the checkers' violations, and its own under the name "scenario". With all safeguards on it must give none; the tests of
the safeguards run the same scenario with one off.
"""

from __future__ import annotations

from typing import Final

from tests.sim.scenarios_claims import liar
from tests.sim.scenarios_copies import (
    clone_that_talks_to_a_peer,
    cloned_beside_a_dead_primary,
    cloned_volume,
    copied_by_files,
    copied_by_halves,
    copied_to_another_store,
    copied_with_its_store,
)
from tests.sim.scenarios_handlers import (
    burst_of_killers,
    differing_handler,
    differing_primary,
    killing_handler,
    slow_handler,
)
from tests.sim.scenarios_release import (
    FREEZE_POINTS,
    acknowledgements_alone,
    cut_off_from_the_lock_store,
    duplicates_before_the_proof,
    early_batch,
    freeze_at,
    late_batch,
    late_proof,
    read_at_a_frozen_primary,
    switchover,
)
from tests.sim.scenarios_rollback import (
    directory_put_back_with_its_lock,
    killed_again_and_again,
    log_put_back_after_a_power_cut,
    log_put_back_after_an_orderly_stop,
)
from tests.sim.scenarios_services import (
    hand_over_while_activities_run,
    late_packets_of_a_deposed_primary,
    own_work_above_the_maximum,
    peer_created_anew,
)
from tests.sim.scenarios_sessions import thief
from tests.sim.scenarios_storage import (
    collected_under_a_laggard,
    failed_sync,
    full_disk_keeps_the_primary,
    half_written_frames,
    killed_before_head_is_set,
    missing_rolled_file,
    power_cut_after_collection,
    power_cut_after_copies_served,
    power_cut_after_head,
    power_cut_before_cut_is_synced,
    primaries_that_confirm_nothing,
    read_only_for_a_while,
    reader_of_unconfirmed,
    rotten_end_with_all_dead,
    rotten_frame_before_others,
    rotten_frame_behind_a_laggard,
    rotten_last_frame,
    slow_for_everybody,
    takeover_on_full_disk,
    takeovers_on_a_small_volume,
    volume_smaller_than_the_log,
)
from tests.sim.scenarios_supervisor import (
    fence_comes_and_goes,
    fenced_in_a_message,
    frozen_whole,
    late_words,
    still_loop,
    stopped_at_an_ordered_stop,
    superseded,
)
from tests.sim.scenarios_takeover import (
    collected_behind_a_look,
    cut_from_each_other,
    empty_volume,
    frozen_before_reading,
    frozen_through_two_epochs,
    head_set_late,
    killed_before_the_cut,
    killed_with_the_lock,
    lock_store_away_for_all,
    names_believed_absent,
    replaced_when_cut_off,
    restored_store,
    stale_listing,
    start_beside_a_takeover,
    stop_and_start_all,
    successor_that_came_and_went,
    two_take_the_lock,
)
from tests.sim.stage import Scenario

from deathless.base.safeguards import ALL_SAFEGUARDS, Safeguards
from deathless.simulation.checkers import Violation

SCENARIOS: Final[dict[str, Scenario]] = {
    **{f"primary frozen at {' '.join(filter(None, point))}": freeze_at(point) for point in FREEZE_POINTS},
    "a frozen primary's late batch": late_batch,
    "a read at a frozen primary": read_at_a_frozen_primary,
    "a batch that comes too early": early_batch,
    "a message in another's session": thief,
    "a liar among the supervisors": liar,
    "a worker whose loop stands still": still_loop,
    "a replica that is frozen whole": frozen_whole,
    "a stopped worker at an ordered stop": stopped_at_an_ordered_stop,
    "a worker that is fenced in a message": fenced_in_a_message,
    "a fence that comes and goes": fence_comes_and_goes,
    "a replica whose later instance runs": superseded,
    "a dead worker's last words that come late": late_words,
    "names believed absent": names_believed_absent,
    "collected behind a look": collected_behind_a_look,
    "two take the lock": two_take_the_lock,
    "a reader of unconfirmed frames": reader_of_unconfirmed,
    "a cached listing at takeover": stale_listing,
    "power cut before the cut is synced": power_cut_before_cut_is_synced,
    "power cut after head is set": power_cut_after_head,
    "power cut after copies served": power_cut_after_copies_served,
    "power cut after collection": power_cut_after_collection,
    "head set late": head_set_late,
    "killed before the cut": killed_before_the_cut,
    "frozen through two epochs": frozen_through_two_epochs,
    "cut off from the lock store": cut_off_from_the_lock_store,
    "replaced when cut off from the lock store": replaced_when_cut_off,
    "lock store away for all": lock_store_away_for_all,
    "lock store restored from a backup": restored_store,
    "empty volume": empty_volume,
    "last confirmed frame rotten": rotten_last_frame,
    "a frame before others rotten": rotten_frame_before_others,
    "rotten frame behind a laggard": rotten_frame_behind_a_laggard,
    "rotten end with all dead": rotten_end_with_all_dead,
    "log put back after a power cut": log_put_back_after_a_power_cut,
    "log put back after an orderly stop": log_put_back_after_an_orderly_stop,
    "directory put back with its lock": directory_put_back_with_its_lock,
    "all killed again and again": killed_again_and_again,
    "missing rolled file": missing_rolled_file,
    "half-written frames read live": half_written_frames,
    "a handler that kills its process": killing_handler,
    "a burst of messages that kill": burst_of_killers,
    "a handler that differs": differing_handler,
    "a primary that differs": differing_primary,
    "a handler that takes 400 ms": slow_handler,
    "two replicas cut from each other": cut_from_each_other,
    "takeover on a full disk": takeover_on_full_disk,
    "a full disk keeps the primary": full_disk_keeps_the_primary,
    "a sync that fails": failed_sync,
    "slow for everybody": slow_for_everybody,
    "read-only for a while": read_only_for_a_while,
    "a volume smaller than the log": volume_smaller_than_the_log,
    "takeovers on a small volume": takeovers_on_a_small_volume,
    "primaries that confirm nothing": primaries_that_confirm_nothing,
    "killed before head is set": killed_before_head_is_set,
    "a proof answered late": late_proof,
    "duplicates before the proof": duplicates_before_the_proof,
    "switchover under load": switchover,
    "all stop in order and start again": stop_and_start_all,
    "a successor that came and went": successor_that_came_and_went,
    "collected under a laggard": collected_under_a_laggard,
    "killed with the lock": killed_with_the_lock,
    "frozen before reading": frozen_before_reading,
    "start beside a takeover": start_beside_a_takeover,
    "acknowledgements alone": acknowledgements_alone,
    "a peer created anew": peer_created_anew,
    "late packets of a deposed primary": late_packets_of_a_deposed_primary,
    "own work above the outbox's maximum": own_work_above_the_maximum,
    "hand-over while activities run": hand_over_while_activities_run,
    "a directory copied by files": copied_by_files,
    "a directory copied by halves": copied_by_halves,
    "a cloned volume": cloned_volume,
    "a clone beside a dead primary": cloned_beside_a_dead_primary,
    "a copy with another lock store": copied_to_another_store,
    "a copy with the same lock store": copied_with_its_store,
    "a clone that talks to a peer": clone_that_talks_to_a_peer,
}


def run(name: str, safeguards: Safeguards = ALL_SAFEGUARDS) -> list[Violation]:
    """Run a scenario by its name."""
    return SCENARIOS[name](safeguards)
