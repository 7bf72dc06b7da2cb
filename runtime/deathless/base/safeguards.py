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

    # The log's writer (design 0003, "The log").
    sync_before_release: bool = True  # a frame is synced before `append` returns (I1)
    sync_copies: bool = True  # cut and copies are synced before head is set
    sync_folder: bool = True  # new names are synced in their folder
    roll_file_first: bool = True  # the next file stands, synced, before the ROLL frame is written
    sync_roll: bool = True  # the ROLL frame is synced before a frame goes to the next file
    fail_stop: bool = True  # an error after a write closes the writer for ever (I8)
    keep_spare: bool = True  # a spare segment is kept for the next takeover (I8)
    reserve_before_run: bool = True  # space is reserved before messages are run (I6)
    give_back_space: bool = True  # an epoch keeps no more space than twice what it wrote; the spare stays whole

    # The log's readers.
    follow_cuts: bool = True  # bytes beyond a cut are ignored
    missing_is_error: bool = True  # a missing head or rolled file is never an end of log
    reread_bad_frame: bool = True  # a bad frame is read again through a fresh descriptor
    look_beyond_bad_frame: bool = True  # a valid frame behind a bad one means corruption, not an end
    judge_tail_by_bytes: bool = True  # a frame at the log's end that was whole and changed is no torn write
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
    remove_unread: bool = True  # files that no cut leads to any more are removed by who proved that head is its own
    unread_after_proof: bool = True  # and not before head is set, since a successor may have to begin from them
    refuse_older_store: bool = True  # an opening above head stops the start

    # The directory lock.
    probe_names: bool = True  # names are looked up one by one; a listing is only a hint
    exclusive_links: bool = True  # a lock name is linked whole and never overwritten

    # Release (I1).
    prove_before_release: bool = True  # nothing leaves before a proof
    proof_after_sync: bool = True  # the proof began after the sync that it covers
    proof_for_query: bool = True  # a linearizable query waits for a proof begun after it arrived
    hold_without_answer: bool = True  # a proof without an answer holds release, it does not allow it

    # Copies and what speaks for a directory.
    check_place: bool = True  # a copied directory is refused before anything is dialled or started from it
    same_directory: bool = True  # who reports, orders or follows shows that it stands in the same directory
    own_reports_only: bool = True  # a supervisor reports of itself, and of no other replica
    hold_outside_as_new: bool = True  # a service made of a copy keeps its outward effects until it is let go
    fork_cut_consistent: bool = True  # services are forked where each has what the others sent or forgot, and no more

    # What other replicas say.
    claims_expire: bool = True  # a claimed lsn is forgotten with who said it, and replaced by its next word
    claims_bounded: bool = True  # an epoch above the lock's is not believed before the lock was asked

    # The witness of what is confirmed.
    page_before_release: bool = True  # what is confirmed stands in the page before anything that shows it leaves
    witness_checked: bool = True  # a log that does not pass through what a witness calls confirmed is refused
    witness_chain: bool = True  # a witness names a chain hash, not an lsn alone
    witness_of_confirmed: bool = True  # a witness names what is confirmed, never what is synced alone
    witness_of_unknown_incarnation: bool = True  # a point of an incarnation that nobody gave up is refused
    witness_at_stop: bool = True  # an orderly stop writes the lock store's witness in the transaction that releases
    witness_before_handover: bool = True  # the lock store hears of the last confirmed place before a successor is told
    witness_guarded: bool = True  # the lock store's witness is written only while the lock is one's own
    witness_own_revision: bool = True  # and only over what this holder wrote or read there itself

    # Messages and replies (I3, I5).
    next_expected_only: bool = True  # a sender's message is accepted only if it is the next expected
    dedup: bool = True  # a message seen before is answered, not run again
    reack_confirmed_only: bool = True  # a duplicate is re-acknowledged only once confirmed
    session_owner: bool = True  # a session is spoken in only by who registered it or shows its secret
    newest_session_connection: bool = True  # of two connections that may speak in a session the newer one alone does
    record_replies: bool = True  # replies are kept, for whoever asks again; without it a retry has no answer

    # Peers and activities (I1, I2, I3, I7).
    send_confirmed_only: bool = True  # a message leaves the outbox only once its turn's frame is confirmed
    fence_peer_connections: bool = True  # a peer's older connections end before the newest is told from where to send
    peer_history: bool = True  # two services compare what one has sent to the other before more is sent
    admit_by_id: bool = True  # of a stream what follows by its source's ids is admitted, not whatever comes next
    welcome_confirmed: bool = True  # who opens a stream is told how far it is once that is confirmed
    remember_end: bool = True  # an end of a stream behind which nothing came is not taken in again
    run_input_once: bool = True  # a refused input that is run again leaves the list in the frame of its effect
    forget_unused: bool = True  # a stream is forgotten only while nobody owns it and nothing of it is under way
    log_attempt_first: bool = True  # an at-most-once activity begins once its attempt is logged and confirmed
    wait_for_once: bool = True  # a planned hand-over waits for activities that must run at most once

    # Time.
    age_without_clock: bool = True  # what is forgotten is forgotten by time of service, whatever wall clocks say
    floor_for_every_key: bool = True  # no UUIDv7 at or before one that was ever forgotten runs
    believe_late: bool = True  # a wall clock that stepped ahead is believed once that stood for a while
    gap_by_own_clock: bool = True  # what passed between two primaries is told by a steady clock, where one can

    # Replay (I6, I11).
    compare_digests: bool = True  # replicas compare the digest of each message
    park_killers: bool = True  # a message that killed its process too often is parked
    try_out_suspects: bool = True  # what may kill is run in a copy of the process first, which may die
    check_fingerprint: bool = True  # other code never replays a log
    upgrade_confirmed_only: bool = True  # other code goes on only behind what is confirmed, all of it
    compare_before_take: bool = True  # whose code can't lead does not take the lock
    compare_generation: bool = True  # a state of another generation than the log's is never gone on with
    compare_former: bool = True  # other code goes on only with a state that was made at just the log's end
    checkpoint_before_head: bool = True  # what other code begins with is durable before head names it
    verify_first_checkpoint: bool = True  # and was read back before that
    changes_since_ready: bool = True  # what was made ready ahead of an upgrade gives way to what changed since
    refuse_newer_level: bool = True  # a log of a format level that this build does not know is not read
    write_by_level: bool = True  # what a log's readers of its level can't read is not written to it
    lower_on_the_way_back: bool = True  # older code is given its own shapes, which the code that serves makes

    # Who may do what.
    check_callers: bool = True  # a certificate that names somebody opens what its name may do, and nothing else
    end_untrusted_connections: bool = True  # a connection ends with the trust in who vouched for its other end
    topic_readers_only: bool = True  # over HTTP a topic is read by whom the manifest names, and by operators

    # Topics over HTTP.
    check_topic_source: bool = True  # who has positions of another source gets no rows
    rows_to_their_end: bool = True  # an answer with rows counts once it says that it covers all that was asked for

    # Detection.
    adapt_to_slow_storage: bool = True  # a storage that is slow for everybody deposes nobody

    # A replica's supervisor and its worker.
    end_still_workers: bool = True  # a worker in which nothing moves for turn_max_s is ended
    forgive_sleep: bool = True  # a replica that stood still as a whole ends no worker for it
    end_at_deadline: bool = True  # a worker that was told to stop, or says that it does, is ended at its deadline
    ordered_ends_kill_no_message: bool = True  # a worker that its supervisor ends died of no message (I11)
    hold_worker: bool = True  # a fenced replica, and one whose later instance runs, starts no worker
    stop_worker: bool = True  # and has the one that runs stop in order

    # Checkpoints and collection.
    checkpoints_of_this_log: bool = True  # a checkpoint counts only if the log's chain hash at its lsn is its own
    checkpoints_of_this_generation: bool = True  # and only if the code that runs now took it
    verify_checkpoint: bool = True  # a checkpoint counts for collection only once another replica read it
    sync_checkpoint: bool = True  # a checkpoint is synced before it gets its name
    collect_when_full: bool = True  # a log without room is collected by one checkpoint, of whoever, taken if need be
    collect_below_confirmed: bool = True  # nothing above a confirmed lsn in a synced header is collected
    collect_oldest_first: bool = True  # files go oldest first, each removal durable before the next


ALL_SAFEGUARDS = Safeguards()
"""What everything but a test uses."""
