"""The switches of every safeguard, for tests that prove each one by leaving it out.

Why it exists: a safeguard that no test can switch off may have stopped working long ago. Every field names one
thing that must not be left out; all are True, and the real programs never pass anything else: no manifest, flag or
environment variable reaches this class. A test sets one field to False and shows the loss it leads to.

Guarantees: each field is read by the code that keeps the safeguard (the tree's tests look). Does not: do anything, or
hold what there is no second way to do: that a session's id is never given twice, that a turn keeps nothing until it
succeeded, that the predecessor is the lock's head and ownership its value, that a checkpoint names lsn and chain hash.
The models of `tests/models` and the tests of their modules show those.
It lives in `base` because the pure core, which may import nothing further left, reads it too.
Imports nothing of ours.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Safeguards:
    """What must not be left out; one field each, True everywhere but in the test that breaks it."""

    # The log's writer (design section 5).
    sync_before_release: bool = True  # a frame is synced before `append` returns (I1)
    sync_copies: bool = True  # cut and copies are synced before head is set
    sync_folder: bool = True  # new names are synced in their folder
    roll_file_first: bool = True  # the next file stands, synced, before the ROLL frame is written
    sync_roll: bool = True  # the ROLL frame is synced before a frame goes to the next file
    fail_stop: bool = True  # an error after a write closes the writer for ever (I8)
    keep_spare: bool = True  # a spare segment is kept for the next takeover (I8)
    reserve_before_run: bool = True  # space is reserved before messages are run (I6)

    # The log's readers.
    follow_cuts: bool = True  # bytes beyond a cut are ignored
    missing_is_error: bool = True  # a missing head or rolled file is never an end of log
    reread_bad_frame: bool = True  # a bad frame is read again through a fresh descriptor
    look_beyond_bad_frame: bool = True  # a valid frame behind a bad one means corruption, not an end
    check_chain: bool = True  # chain hash, index and lsn of each frame continue the one before
    check_identity: bool = True  # another service, incarnation, fence or lock store is refused
    confirmed_only: bool = True  # followers get confirmed frames only
    check_confirmed_end: bool = True  # an end below a known confirmed lsn is an error
    epoch_in_frame: bool = True  # a frame of another epoch than its file's is no frame of that file

    # Takeover, in its order.
    seal_before_read: bool = True  # seals stand before the predecessor's log is read
    seal_every_epoch: bool = True  # every epoch from head to one's own is sealed, not just the last
    ask_confirmed: bool = True  # reachable replicas are asked for their confirmed lsn
    cut_at_confirmed: bool = True  # the cut names the confirmed position; what lies behind is copied
    cut_before_head: bool = True  # cut and copies are durable before head is set
    guard_head: bool = True  # head is set only while the lock is still one's own
    opening_frame: bool = True  # an opening frame is synced before the first release
    refuse_older_store: bool = True  # an opening above head stops the start

    # The directory lock.
    probe_names: bool = True  # names are looked up one by one; a listing is only a hint
    exclusive_links: bool = True  # a lock name is linked whole and never overwritten

    # Release (I1).
    prove_before_release: bool = True  # nothing leaves before a proof
    proof_after_sync: bool = True  # the proof began after the sync that it covers
    proof_for_query: bool = True  # a linearizable query waits for a proof begun after it arrived
    hold_without_answer: bool = True  # a proof without an answer holds release, it does not allow it

    # Messages and replies (I3, I5).
    next_expected_only: bool = True  # a sender's message is accepted only if it is the next expected
    dedup: bool = True  # a message seen before is answered, not run again
    reack_confirmed_only: bool = True  # a duplicate is re-acknowledged only once confirmed
    record_replies: bool = True  # replies are kept, for whoever asks again; without it a retry has no answer

    # Peers and activities (I1, I2, I3, I7).
    send_confirmed_only: bool = True  # a message leaves the outbox only once its turn's frame is confirmed
    fence_peer_connections: bool = True  # a peer's older connections end before the newest is told from where to send
    log_attempt_first: bool = True  # an at-most-once activity begins once its attempt is logged and confirmed

    # Replay (I6, I11).
    compare_digests: bool = True  # replicas compare the digest of each message
    bound_time_jumps: bool = True  # logical time never goes back and jumps forward by a bounded step
    park_killers: bool = True  # a message that killed its process too often is parked
    check_fingerprint: bool = True  # other code never replays a log

    # Checkpoints and collection.
    verify_checkpoint: bool = True  # a checkpoint counts for collection only once another replica read it
    sync_checkpoint: bool = True  # a checkpoint is synced before it gets its name
    collect_below_confirmed: bool = True  # nothing above a confirmed lsn in a synced header is collected
    collect_oldest_first: bool = True  # files go oldest first, each removal durable before the next


ALL_SAFEGUARDS = Safeguards()
"""What everything but a test uses."""
