"""A process that runs a service's activities, one at a time: `python -m ...activity_process FD PARENT ...`.

    primary's worker <--READY-- this process: the service is imported
                     --START--> the author's function, in the main thread
                     <--BEAT--- each `current_activity().heartbeat()`
                     <--ENDED-- its reply: status byte and body, as a handler's
                     --BACK---> forget what waits here and has not begun
                     <--RETURNED-- how many did

A thread reads the pipe, so that its end is seen while a function runs: this process ends at once then, and by the
kernel's hand when its parent dies. An `async def` function gets an event loop of its own for its call.

Guarantees: every START is answered in its turn, unless it is returned or the process ends. What a function raises is
its reply. Does not: keep time (its parent does, and kills).
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import os
import signal
import socket
import sys
import threading
from collections import deque
from collections.abc import Callable
from typing import Final, cast

import msgspec

from deathless.base.errors import InvalidArgument, TooLarge, UnknownHandler
from deathless.codec.peer_messages import ActivityStart
from deathless.codec.untrusted import read_msgpack
from deathless.codec.wire import PacketReader, decode_struct, ok_reply, packet
from deathless.execution.author.service import Service
from deathless.execution.handlers.plan import encoder
from deathless.execution.turn import activity_call
from deathless.execution.turn.activity import ActivitySpec
from deathless.execution.values.failure import activity_failed, is_fatal, not_retryable
from deathless.shell.process.forked import die_with_parent
from deathless.shell.process.logs import configure
from deathless.shell.process.output import never_wait
from deathless.shell.service_code.loading import load_kept, load_service
from deathless.shell.worker.activities import BACK, BEAT, COUNT, ENDED, PIPE_BYTES_MAX, READY, RETURNED, START, TRACE

_LOG: Final = logging.getLogger("deathless.activity")
RECEIVE_BYTES: Final = 1 << 16
RESULT_BYTES_MAX: Final = PIPE_BYTES_MAX - 4096  # what is longer has no room in the pipe; a shard's own limit is lower


class Pipe:
    """The way to the primary's worker."""

    def __init__(self, pair: socket.socket) -> None:
        self._pair = pair
        self._starts: deque[tuple[ActivityStart, str]] = deque()  # those that have not begun, with their traceparent
        self._changed = threading.Condition()  # of those
        self._writing = threading.Lock()  # a function may give signs of life from threads of its own

    def send(self, kind: int, body: bytes = b"") -> None:
        """Write a packet."""
        with self._writing:
            try:
                self._pair.sendall(packet(kind, body))
            except OSError:  # the other end is gone; `read` finds that too, in its own time
                os.kill(os.getpid(), signal.SIGKILL)

    def read(self) -> None:
        """Read until the other end is gone, and end this process then.

        One step takes all that waits: had the main thread its turn in between, it could begin one that is returned.
        """
        reader = PacketReader(PIPE_BYTES_MAX)
        trace = ""
        try:
            while data := self._pair.recv(RECEIVE_BYTES):
                for kind, body in reader.take(data):
                    if kind == TRACE:
                        trace = body.decode()
                    elif kind == START:
                        with self._changed:
                            self._starts.append((decode_struct(ActivityStart, body), trace))
                            self._changed.notify()
                        trace = ""
                    elif kind == BACK:
                        with self._changed:
                            count = len(self._starts)
                            self._starts.clear()
                        self.send(RETURNED, COUNT.pack(count))
        finally:
            os.kill(os.getpid(), signal.SIGKILL)

    def next(self) -> tuple[ActivityStart, str]:
        """Wait for the next one to begin; gives its traceparent, too."""
        with self._changed:
            while not self._starts:
                self._changed.wait()
            return self._starts.popleft()


def run_activity(service: Service, start: ActivityStart, beat: Callable[[], None], trace: str = "") -> bytes:
    """Run one activity's function; gives its reply."""
    spec = service.activities.get(start.name)
    if spec is None:  # an older version of the code asked for it
        return not_retryable(UnknownHandler.__name__, f"{service.name} has no activity {start.name!r}")
    return run_function(spec, start, beat, trace)


def run_function(spec: ActivitySpec, start: ActivityStart, beat: Callable[[], None], trace: str = "") -> bytes:
    """Run the function of an activity; gives its reply."""
    activity_call.begin(activity_call.ActivityCall(start.name, start.key, start.attempt, beat, trace))
    try:
        try:
            arguments = read_msgpack(start.arguments, spec.args_type)
        except msgspec.MsgspecError as error:
            return not_retryable(InvalidArgument.__name__, str(error))
        named = {name: getattr(arguments, name) for name in arguments.__struct_fields__}
        result = spec.function(**named)
        if inspect.iscoroutine(result):
            result = asyncio.run(result)
        return _reply_of(result, spec.result_type)
    except Exception as error:  # noqa: BLE001  whatever it raises is its reply
        _LOG.warning("activity raised", exc_info=error, extra={"activity": start.name, "key": start.key})
        return activity_failed(error)
    finally:
        activity_call.end()


def _reply_of(result: object, stated: object) -> bytes:
    """Give the reply that carries a result, or says why it can't be one: to run it again would change nothing."""
    try:
        encoded = encoder(stated)(result)
        msgspec.msgpack.Decoder(cast("type[object]", stated)).decode(encoded)
    except Exception as error:
        if is_fatal(error):
            raise
        _LOG.warning("the value that an activity returned can't be its result", exc_info=error)
        return not_retryable("InvalidResult", f"what it gave can't be its result: {type(error).__name__}: {error}")
    if len(encoded) > RESULT_BYTES_MAX:
        return not_retryable(TooLarge.__name__, f"it gave {len(encoded)} bytes, at most {RESULT_BYTES_MAX}")
    return ok_reply(encoded)


def main(arguments: list[str]) -> None:
    """Serve until the parent is gone.

    Args:
        arguments: number of the inherited socket, process id of the parent, module, log level, name of the replica,
            folder of the kept code; empty: the module as it stands.
    """
    descriptor, parent, module, level, replica, code = arguments
    die_with_parent(int(parent))
    configure(level, replica, "activity")
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    pipe = Pipe(socket.socket(fileno=int(descriptor)))
    threading.Thread(target=pipe.read, name="pipe", daemon=True).start()
    service = load_kept(code, module) if code else load_service(module)
    pipe.send(READY)
    while True:
        start, trace = pipe.next()
        pipe.send(ENDED, run_activity(service, start, lambda: pipe.send(BEAT), trace))


if __name__ == "__main__":
    never_wait()
    main(sys.argv[1:])
