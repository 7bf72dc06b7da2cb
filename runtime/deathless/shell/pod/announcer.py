"""The process that tells Kubernetes what this replica is, and hears from it whether its worker is to stay stopped.

    supervisor --Standing--> reader --.
                                      |--> announcing: patch our pod; leading, take the labels off the others
    API server --watch--> watcher ----'
                             '-----------Fenced--> supervisor

Three threads, each blocking on one thing; what they know is in `Announcer` under one lock. The API server may be away
for as long as it likes: attempts go on with a back-off, and the supervisor, which writes to a socket that it never
waits for, does not notice.

Guarantees: after each change the last standing is what is announced, nothing in between need be: roles of a replica
that does not lead are announced once they have lasted; ends with its supervisor. Does not: decide what is written
(announcement does), touch log or lock. Imports the small modules only.
"""

from __future__ import annotations

import http.client
import logging
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Mapping
from typing import Final

import msgspec

from deathless.base.backoff import next_pause
from deathless.base.config import ReplicaConfig
from deathless.shell.link.config_file import read_config
from deathless.shell.link.standing import Fenced, Standing
from deathless.shell.pod.announcement import (
    PRIMARY,
    Comeback,
    comes_back,
    is_fenced,
    is_older,
    may_wait,
    own_patch,
    relief_patch,
    uid_of,
)
from deathless.shell.pod.kubernetes_api import Api, ApiError, Place
from deathless.shell.pod.pod_config import pod_of, set_and_ordinal
from deathless.shell.process.forked import die_with_parent
from deathless.shell.process.logs import configure
from deathless.shell.process.output import never_wait

_LOG: Final = logging.getLogger("deathless.announcer")
RETRY_MIN_S, RETRY_MAX_S = 0.1, 5.0
SETTLE_S: Final = 0.5  # a role that may wait is announced once it has lasted so long
RELIEVE_S: Final = 10.0  # a primary looks again after this whether another pod has its label
FAILURES: Final = (ApiError, OSError, http.client.HTTPException, msgspec.MsgspecError, ValueError)
"""What a request may end in while the API server is away, busy or changing its certificate."""


class Announcer:
    """What the threads know together.

    Args:
        place: where the API server is.
        pod: our pod's name.
        uid: and uid.
        line: to the supervisor.
    """

    def __init__(self, place: Place, pod: str, uid: str, line: socket.socket) -> None:
        self._place = place
        self._pod = pod
        self._set, _ = set_and_ordinal(pod)
        self._uid = uid
        self._line = line
        self._changed = threading.Condition()
        self._standing: Standing | None = None
        self._seen: dict[str, object] | None = None  # our pod
        self._fenced: bool | None = None  # as the supervisor was told
        self._led_at: float | None = None  # monotonic: when we led last
        self._role_at = 0.0  # monotonic: when our role or its epoch changed
        self._relieved = (0, 0.0)  # the epoch for which the others' labels were taken off, and when
        self._passed_over: dict[str, str] = {}  # `silent` as it was then
        self._comeback = Comeback()

    # ---- what comes in ---------------------------------------------------------------------------------------

    def read_line(self) -> None:
        """Take standings in until the supervisor is gone, which ends the process."""
        decode = msgspec.json.Decoder(Standing).decode
        try:
            with self._line.makefile("rb") as lines:
                for line in lines:
                    self.take(decode(line))
        finally:
            os._exit(0)  # the other threads may be waiting for the API server

    def take(self, standing: Standing) -> None:
        """Take in how our replica stands now."""
        with self._changed:
            before, self._standing = self._standing, standing
            if before is None or (before.role, before.epoch) != (standing.role, standing.epoch):
                self._role_at = time.monotonic()
            if standing.role == PRIMARY:
                self._led_at = time.monotonic()
            self._changed.notify_all()

    def watch(self) -> None:
        """See our own pod, for ever."""
        pause = RETRY_MIN_S
        while True:
            api, began, why = Api(self._place), time.monotonic(), ""
            try:
                self.see(api.get_pod(self._pod), anew=True)
                for event in api.watch_pod(self._pod):
                    pod = event.get("object")
                    if event.get("type") in ("ADDED", "MODIFIED") and isinstance(pod, dict):
                        self.see(pod)
                    elif event.get("type") == "ERROR":
                        why = str(pod)
                        break
            except FAILURES as error:
                why = str(error)
            finally:
                api.close()
            if time.monotonic() - began > RETRY_MAX_S:
                pause = RETRY_MIN_S
            if why:
                _LOG.info("can't watch our pod", extra={"why": why, "again_in_s": pause})
            time.sleep(pause)  # also after a watch that ended in order: nothing may spin
            pause = next_pause(pause, first_s=RETRY_MIN_S, most_s=RETRY_MAX_S)

    def see(self, pod: dict[str, object], *, anew: bool = False) -> None:
        """Take our pod in, as the API server has it. Raises: ValueError for another pod of that name.

        Args:
            pod: as it was answered, or as the watch told it.
            anew: it was asked for before a watch began: it counts though its version is older than what was seen, as it
                is once the API server's data were restored from an older copy. What it misses the watch tells.
        """
        if self._uid and uid_of(pod) != self._uid:
            raise ValueError(f"pod {self._pod} has been replaced, its uid is now {uid_of(pod)}")
        with self._changed:
            if self._seen is not None and not anew and is_older(pod, self._seen):
                return  # an answer and the watch may overtake each other
            self._seen = pod
            self._changed.notify_all()
            fenced = is_fenced(pod)
            if fenced == self._fenced:
                return
            self._fenced = fenced
            self._line.sendall(msgspec.json.encode(Fenced(fenced)) + b"\n")

    # ---- what goes out ---------------------------------------------------------------------------------------

    def announce(self) -> None:
        """Announce each change, for ever."""
        api, pause = Api(self._place), RETRY_MIN_S
        while True:
            self._wait_for_work()
            try:
                self._announce_own(api)
                self._relieve_others(api)
                pause = RETRY_MIN_S
            except FAILURES as error:
                _LOG.warning("not announced", extra={"why": str(error), "again_in_s": pause})
                api.close()
                time.sleep(pause)
                pause = next_pause(pause, first_s=RETRY_MIN_S, most_s=RETRY_MAX_S)

    def _wait_for_work(self) -> None:
        with self._changed:
            while not self.has_work():
                # A label that is given up, a role that waits and a look at the others come with time alone.
                self._changed.wait(SETTLE_S)

    def has_work(self) -> bool:
        """Is there anything to announce now?"""
        return self._own_patch() is not None or self._must_relieve()

    def _own_patch(self) -> dict[str, object] | None:
        if self._standing is None or self._seen is None:
            return None
        now = time.monotonic()
        ceased_s = float("inf") if self._led_at is None else now - self._led_at
        back = self._is_back(now)
        if not back and now - self._role_at < SETTLE_S and may_wait(self._seen, self._standing):
            return None
        return own_patch(self._seen, self._standing, ceased_s=ceased_s, back=back)

    def _is_back(self, now: float) -> bool:
        """Does our replica take itself back in now?"""
        assert self._seen is not None
        assert self._standing is not None
        return comes_back(self._seen, self._standing) and self._comeback.allowed(now, self._standing.role)

    def _announce_own(self, api: Api) -> None:
        began = time.monotonic()
        with self._changed:
            patch = self._own_patch()
            back = patch is not None and self._is_back(began)
        if patch is None:
            return
        self.see(api.patch_pod(self._pod, patch))
        if back:
            self._comeback.done(began)
        _LOG.info("announced", extra={"patch": patch, "seconds": round(time.monotonic() - began, 4)})

    def _must_relieve(self) -> bool:
        standing = self._standing
        if standing is None or standing.role != PRIMARY or self._seen is None or self._own_patch() is not None:
            return False  # our own label comes first
        epoch, at = self._relieved
        changed = epoch != standing.epoch or standing.silent != self._passed_over
        return changed or time.monotonic() - at > RELIEVE_S

    def _relieve_others(self, api: Api) -> None:
        with self._changed:
            standing = self._standing
            if standing is None or not self._must_relieve():
                return
        refused: ApiError | None = None  # by the first that was: the others are relieved all the same
        for replica in standing.others:
            name = pod_of(self._set, replica)
            for _ in range(2 if name else 0):  # once more where it changed between look and patch
                try:
                    patch = relief_patch(api.get_pod(name), standing.epoch, standing.silent.get(replica, ""))
                    if patch is not None:
                        api.patch_pod(name, patch)
                        _LOG.info("corrected the labels of another pod", extra={"pod": name, "patch": patch})
                except ApiError as error:
                    if error.status == http.HTTPStatus.CONFLICT:
                        continue
                    if error.status not in (http.HTTPStatus.NOT_FOUND, http.HTTPStatus.FORBIDDEN):
                        refused = refused or error
                break
        if refused is not None:
            raise refused
        self._relieved = standing.epoch, time.monotonic()
        self._passed_over = standing.silent


def run(config: ReplicaConfig, line: socket.socket, environment: Mapping[str, str]) -> None:
    """Announce until the supervisor is gone. Raises: KeyError for a variable that is missing."""
    announcer = Announcer(Place.from_environment(environment), environment["POD_NAME"], config.instance, line)
    for work in (announcer.read_line, announcer.watch):
        threading.Thread(target=work, daemon=True).start()
    announcer.announce()


def main(arguments: list[str]) -> int:
    """`python -m deathless.shell.pod.announcer CONFIG.json DESCRIPTOR PARENT`."""
    path, descriptor, parent = arguments
    die_with_parent(int(parent))
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # it ends with its supervisor, which has more to tell
    config = read_config(path)
    configure(config.log_level, config.replica, "announcer")
    try:
        run(config, socket.socket(fileno=int(descriptor)), os.environ)
    except KeyError as error:
        _LOG.error("not in a pod: %s is missing in the environment", error)
    return 1


if __name__ == "__main__":
    never_wait()
    sys.exit(main(sys.argv[1:]))
