"""The defects that protocols of exactly-once messaging are known to have, each with the run that shows it here.

A defect is told by what goes wrong, not by how ours would be written to have it. Beside it stands who shows that a
checker sees it: a case of test_mutants.py, or a switch of test_safeguards.py. Where several would do, the closest one.

Guarantees: nothing; test_mutants.py looks whether every name is there, and whether every case stands here.
Does not: list what only ours could get wrong, such as its segments and seals; the switches do that.
"""

from __future__ import annotations

from typing import Final

RULES: Final = {
    # A restart is consistent with all that was released.
    "sent before it is durable": "sync_before_release",
    "who waits is called back before the commit": "sync_before_release",
    "sent by who does not know whether somebody else took over": "prove_before_release",
    "looked whether somebody took over, and written only then": "proof_after_sync",
    "handed to the network inside of a turn that is not committed": "send_confirmed_only",
    "acknowledged from memory": "acknowledged_from_memory",
    "a repetition is acknowledged while the first is not durable": "reack_confirmed_only",
    "the counter of what is sent stands outside of the commit, so that a number is used again": (
        "positions_outside_the_commit"
    ),
    "a checkpoint without what is still to be sent": "checkpoints_without_outbox",
    "what waits to be sent is deleted with the wrong acknowledgement": "pieces_released_too_early",
    "a successor builds on a tail that it did not sync again, and crashes too": "sync_copies",
    # What is sent arrives.
    "retries have a maximum": "retries_with_a_maximum",
    "what is to be sent is in memory": "outbox_in_memory",
    "deleted when it is sent": "deleted_when_sent",
    "acknowledged before it is processed": "acknowledged_from_memory",
    "given up and told as failed, though it was processed or may yet be": "calls_given_up",
    # It arrives once, in order.
    "no duplicate is recognised": "dedup",
    "the mark of a duplicate is durable before the effect, and a crash comes between": "positions_persisted_first",
    "any number above the highest is taken, and what was left out is a duplicate then": "next_expected_only",
    "duplicates are remembered for a time": "peers_forgotten_by_time",
    "duplicates are remembered up to a number": "positions_in_a_bounded_cache",
    "a checkpoint without what was received": "checkpoints_without_peers_positions",
    "rolled back, and the number in memory stays: the repetition is a duplicate": "positions_not_rolled_back",
    "the order of a pair is lost where messages are taken together": "runs_without_order",
    "an older connection of the same peer still counts": "fence_peer_connections",
    "sent to who does not hold the key": "keys_on_another_shard",
    # Each input is processed once.
    "the position of an input is committed after its effect": "read_positions_after_the_effect",
    "an input is logged twice when its sender connects anew": "inputs_logged_again_on_reconnect",
    "a second message runs inside of a turn that waits, and is undone by its end": "second_message_nested",
    # Each request has one reply, the same for every retry.
    "a reply is computed again": "replies_computed_again",
    "a reply is not kept": "record_replies",
    "a reply is forgotten before its caller has it": "replies_trimmed_unacknowledged",
    "a reply is kept for a time": "results_forgotten_by_time",
    "a reply is made after the commit, and lost with the process": "replies_in_memory",
    "what a handler gave when it had waited is told, and not recorded": "results_unrecorded",
    "an error is no reply, and not recorded": "errors_unrecorded",
    "a retry is told that the first attempt is in progress": "progress_leaked",
    # An output is attempted at least once, and one that must not be twice is not.
    "marked as done before it is attempted": "activities_done_before_begun",
    "who takes over leaves out what was asked for and not recorded as done": "activities_not_begun_again",
    "attempted before the attempt is recorded": "log_attempt_first",
}
"""What goes wrong -> the case, or the switch, that shows it."""
