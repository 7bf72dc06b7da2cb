"""How a replica stands, as its supervisor tells the processes beside it: JSON lines over a socket pair.

    supervisor --Standing--> announcer   what the pod's labels and annotations shall say
               --Standing--> health      what probes and metrics are told
               <--Fenced---- announcer   an operator keeps the worker stopped, or does not any more
               <--Program--- application how the program beside the replica is

Guarantees: a record is the whole truth at its moment, so a reader needs the last one only. Does not: decide anything.
Imports msgspec only: the announcer's process stays small.
"""

from __future__ import annotations

import msgspec

BEAT_S = 1.0  # a standing that does not change is told again after this
HEARD_MAX_S = 10.0  # a supervisor that has told nothing for so long is not well
SERVING = frozenset({"primary", "checkpointer", "standby", "taking-over"})
"""Roles of a replica that answers callers, by itself or by the primary."""

SHARED = (
    "replica", "instance", "generation", "role", "state", "epoch", "lsn", "full", "outbox_full", "clock", "condition",
    "problem", "client", "ingress",
)  # fmt: skip
"""Fields that are as in the supervisor's report to the others."""


class Program(msgspec.Struct, tag="program", frozen=True, kw_only=True):
    """How the program beside a replica is, as the process that keeps it says; it changes seldom, so nothing counts."""

    state: str  # serving; loading: it is started, and not there yet; ended: it has no process; failing: again and again
    text: str = ""  # why it ended last, `DLnnnn text (remedy)`; empty while it serves, or if it never ended
    differs: str = ""  # the last message that it sent otherwise when it was run again; empty: none
    skipped: int = 0  # rows of which an operator has it skip something


PROGRAM_SERVES = "serving"
PROGRAM_TEXT_MAX = 500  # characters of each text


class Standing(msgspec.Struct, tag="standing", frozen=True, kw_only=True):
    """One replica at one moment; times in seconds of the wall clock."""

    service: str
    replica: str
    instance: str = ""
    generation: int = 0
    role: str = "starting"
    state: str = "starting"  # of the worker, as the detector names it
    epoch: int = 0
    lsn: int = 0
    full: bool = False  # of a primary: the log has no room, calls are refused
    outbox_full: bool = False  # of a primary: messages to peers have no room, calls are refused
    clock: str = ""  # of a primary: its wall clock is "ahead" of logical time, or "behind"; empty: they go together
    lag: int = 0  # messages behind the replica that is farthest
    condition: str = ""  # code of the error that keeps the worker stopped
    problem: str = ""  # code of the error that the worker is started again after
    text: str = ""  # that error, `DLnnnn text (remedy)`
    fingerprint: str = ""  # hexadecimal; empty: not known yet
    service_id: str = ""  # hexadecimal
    incarnation: int = 0
    since: float = 0.0  # when the role began
    settings: str = ""  # hash of the settings that the replica was started with; empty: they are not watched
    takeovers: int = 0  # how often this replica became primary since its supervisor started
    client: str = ""  # address of the worker's client port; empty: it does not listen
    ingress: str = ""  # address of the HTTP port; empty: there is none
    stopping: bool = False  # told to end
    waits_for: int = 0  # of a primary: activities that it lets end before it hands over
    waits_since: int = 0  # when that began, seconds
    waits_until: int = 0  # when it hands over all the same
    outside_held: bool = False  # of a primary: what it sends to the outside is held until an operator lets it go
    others: tuple[str, ...] = ()  # names of the other replicas
    led: bool = False  # it leads, or hears who does
    program: Program | None = None  # None: the code is a module, or nothing was said of its program yet
    silent: dict[str, str] = {}  # of a primary: instances that it has not heard for SILENT_S, by replica


class Fenced(msgspec.Struct, tag="fenced", frozen=True):
    """An operator's word: the worker is to stay stopped, or may run."""

    fenced: bool
