"""Tests of services in one process: logical time that is skipped, fake activities and peers, kills at chosen points."""

from deathless.testing.activities import ActivityCall, FakeActivity
from deathless.testing.caller import Pending
from deathless.testing.environment import Environment
from deathless.testing.everywhere import KillReport, Outcome, kill_everywhere
from deathless.testing.fake_peer import FakePeer, Message
from deathless.testing.feeding import RefusedRow
from deathless.testing.moments import MOMENTS, Moment, Point
from deathless.testing.published import Published
from deathless.testing.replaying import replay

__all__ = [
    "MOMENTS",
    "ActivityCall",
    "Environment",
    "FakeActivity",
    "FakePeer",
    "KillReport",
    "Message",
    "Moment",
    "Outcome",
    "Pending",
    "Point",
    "Published",
    "RefusedRow",
    "kill_everywhere",
    "replay",
]
