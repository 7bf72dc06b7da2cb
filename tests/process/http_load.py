"""Calls over the HTTP ingresses of a replica set, each with an Idempotency-Key and repeated until it is answered."""

from __future__ import annotations

import http.client
import json
import threading
from types import TracebackType
from typing import Self

from replica_set import DEADLINE_S, KEYS, PACE_S, ReplicaSet, now_us

from deathless.shell.directory.members import read_members
from deathless.simulation.checkers.history import History, Outcome

ANSWER_S = 3.0  # a connection that says nothing for so long is given up; the call goes on elsewhere


class HttpLoad:
    """One caller in a thread of its own.

    Args:
        name: what its tags begin with.
    """

    def __init__(self, replicas: ReplicaSet, name: str = "http") -> None:
        self.history = History()
        self.errors: list[BaseException] = []
        self._replicas = replicas
        self._name = name
        self._ingress = 0  # which one is asked
        self._connection: http.client.HTTPConnection | None = None
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join(DEADLINE_S)
        if error is None:
            assert not self._thread.is_alive(), "an HTTP call was never answered"
            if self.errors:
                raise self.errors[0]

    def _run(self) -> None:
        try:
            count = 0
            while not self._stop.is_set():
                key, tag = f"k{count % KEYS}", f"{self._name}.{count}"
                adding = self.history.invoke(
                    caller=self._name, action="add", keys=(key,), argument=1, tag=tag, now_us=now_us()
                )
                total = self._until_answered(key, tag)
                self.history.complete(adding, outcome=Outcome.OK, result=total, now_us=now_us())
                count += 1
                self._stop.wait(PACE_S)
        except BaseException as error:
            self.errors.append(error)
            raise
        finally:
            self._hang_up()

    def _until_answered(self, key: str, tag: str) -> int:
        pause = threading.Event()
        while True:
            status, body = self._post(key, tag)
            if status == 200:
                return int(json.loads(body))
            assert status in (0, 429, 500, 503, 504), (status, body)
            self._hang_up()
            self._ingress += 1
            pause.wait(0.01)

    def _post(self, key: str, tag: str) -> tuple[int, bytes]:
        """Ask the present ingress; status 0: no answer."""
        try:
            if self._connection is None:
                self._connection = self._connect()
            headers = {"Content-Type": "application/json", "Idempotency-Key": tag}
            self._connection.request("POST", f"/ledger/{key}/note", json.dumps({"tag": tag}), headers)
            answer = self._connection.getresponse()
            return answer.status, answer.read()
        except (OSError, http.client.HTTPException, LookupError):
            return 0, b""

    def _connect(self) -> http.client.HTTPConnection:
        addresses = [m.ingress for m in read_members(str(self._replicas.directory)).values() if m.ingress]
        if not addresses:
            raise LookupError("no replica announces an ingress yet")
        return http.client.HTTPConnection(addresses[self._ingress % len(addresses)], timeout=ANSWER_S)

    def _hang_up(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None
