"""A pipeline's service, as drivers, agents and people call it.

Guarantees: what the service refused raises the class it was refused with. Does not: decide anything. Imports sdk.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar

import msgspec

from deathless.base.errors import HandlerFailed, InvalidConfig
from deathless.base.pipelines.agents import AgentConfig
from deathless.base.shards import shard_of
from deathless.base.tls import TlsConfig
from deathless.pipelines.assignment import Assignment
from deathless.pipelines.ledger import (
    Batch,
    BlockMissing,
    DriverDeposed,
    PositionTaken,
    QueryStopped,
    StageFull,
)
from deathless.pipelines.service import DRIVERS, DriversView, Opened, QueryView, RefusedView
from deathless.sdk.client import SyncClient
from deathless.shell.disk.small_files import read_small
from deathless.shell.operate.target import find_target

if TYPE_CHECKING:
    from deathless.shell.operate.target import Target

T = TypeVar("T")
RESIGN_S: Final = 5.0  # an agent that ends waits no longer for a service that does not answer
FULL_PAUSE_S: Final = 0.2  # before a block for which there was no room is staged again
_REFUSALS: Final = {
    kind.__name__: kind for kind in (BlockMissing, DriverDeposed, PositionTaken, QueryStopped, StageFull)
}


class PipelineClient:
    """Calls the service of a pipeline; use it as a context manager.

    Args:
        name: of the pipeline.
        addresses: of its service, as for `SyncClient`.
        token: where the service wants one; a callable is asked at each connection.
        tls: certificates, where it wants TLS.
        shards: how many it has; 0: as its directory says.
        sleep: pauses for so many seconds.
    """

    def __init__(
        self,
        name: str,
        addresses: Sequence[str],
        *,
        token: str | Callable[[], str] | None = None,
        tls: TlsConfig | None = None,
        shards: int = 0,
        sleep: Callable[[float], object] = time.sleep,
    ) -> None:
        self.name = name
        self._client = SyncClient(name, addresses, token=token, tls=tls, name="pipeline", shards=shards)
        self._sleep = sleep

    @classmethod
    def of(cls, found: Target) -> Self:
        """Give one of a service that was found on this machine, with what its ports want to be shown."""
        config, access = found.config, found.access
        folder = f"dir:{config.service_directory}"
        return cls(config.service, [folder], token=access.token or None, tls=access.tls, shards=config.shards)

    @classmethod
    def as_agent(cls, config: AgentConfig) -> Self:
        """Give one for an agent or its driver. Raises: InvalidConfig, InvalidArgument, PermissionRefused."""
        if config.directory:
            return cls.of(find_target("", config.directory, every=True))
        token = ShownToken(config.service_token_file) if config.service_token_file else None
        return cls(config.pipeline, config.addresses, token=token, tls=config.tls, shards=1)

    def __enter__(self) -> Self:
        self._client.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._client.close()

    # ---- for drivers -------------------------------------------------------------------------------------------

    def open(self, query: str, number: int) -> Opened:
        """Make a driver known to a query. Raises: DriverDeposed; as `SyncClient.call`."""
        return self._call("open", query, Opened, number=number)

    def stage(self, query: str, number: int, attempt: int, block: str, rows: int, data: bytes) -> None:
        """Keep a block; while there is no room, this waits. Raises: DriverDeposed, QueryStopped; as above."""
        while True:
            try:
                self._call("stage", query, None, number=number, attempt=attempt, block=block, rows=rows, data=data)
            except StageFull:
                self._sleep(FULL_PAUSE_S)
            else:
                return

    def plan(self, query: str, batch: Batch) -> bool:
        """Keep a batch that a store is about to get; False: it was decided before. Raises: as `commit`."""
        return self._call("plan", query, bool, batch=batch)

    def commit(self, query: str, batch: Batch) -> bool:
        """Decide a batch; False: it was before. Raises: DriverDeposed, QueryStopped, PositionTaken; as above."""
        return self._call("commit", query, bool, batch=batch)

    def stop(self, query: str, number: int, why: str) -> None:
        """Have a query take no batch until somebody resumes it. Raises: DriverDeposed; as above."""
        self._call("stop", query, None, number=number, why=why)

    def adopted(self, query: str) -> None:
        """Say that the store's count was made ours. Raises: as above."""
        self._call("adopt", query, None, why="")

    def incarnation(self, query: str) -> int:
        """Give what tells the service, which has answered before, from any other and from a restored one."""
        return self._client.read(lambda client: client.shard(shard_of(query.encode(), client.shards)).incarnation)

    def declare(self, number: int, queries: Sequence[str]) -> None:
        """Say which queries a driver runs. Raises: as `SyncClient.call`."""
        self._call("declare", DRIVERS, None, number=number, queries=list(queries))

    # ---- for agents --------------------------------------------------------------------------------------------

    def report(self, agent: str, *, warm: bool) -> Future[Assignment]:
        """Say that an agent is there; what is given says whether it drives, as soon as the service has answered.

        Its errors are those of `SyncClient.submit`.
        """
        given: Future[Assignment] = Future()

        def answered(asked: Future[Any]) -> None:
            try:
                given.set_result(msgspec.convert(asked.result(), Assignment))
            except Exception as error:  # noqa: BLE001  whoever waits is told
                given.set_exception(error)

        asked = self._client.submit("report", DRIVERS, {"agent": agent, "warm": warm})
        asked.add_done_callback(answered)
        return given

    def resign(self, agent: str, number: int, *, progressed: bool, ordered: bool) -> None:
        """Say that a driver has ended, for RESIGN_S seconds at most. Raises: as `SyncClient.call`."""
        arguments = {"agent": agent, "number": number, "progressed": progressed, "ordered": ordered}
        self._client.request("resign", DRIVERS, arguments, timeout=RESIGN_S)

    # ---- for people --------------------------------------------------------------------------------------------

    def drivers(self) -> DriversView:
        """Give who drives, and who could. Raises: as above."""
        found: DriversView = self._client.query("show_drivers", DRIVERS, result=DriversView)
        return found

    def show(self, query: str) -> QueryView:
        """Give where a query stands. Raises: as above."""
        found: QueryView = self._client.query("show", query, result=QueryView)
        return found

    def refused(self, query: str, above: int = 0, most: int = 100) -> list[RefusedView]:
        """Give rows that were refused, those above an id, `most` or fewer; none: that is all. Raises: as above."""
        found: list[RefusedView] = self._client.query(
            "show_refused", query, result=list[RefusedView], above=above, most=most
        )
        return found

    def hand_over(self) -> str:
        """Have another agent drive once a warm one is there; gives who drives. Raises: as above."""
        return self._call("hand_over", DRIVERS, str)

    def suspend(self, *, suspended: bool) -> None:
        """Have nobody drive, or somebody again. Raises: as above."""
        self._call("suspend", DRIVERS, None, suspended=suspended)

    def resume(self, query: str) -> None:
        """Let a stopped query go on. Raises: as above."""
        self._call("resume", query, None)

    def adopt(self, query: str, why: str) -> None:
        """Have a query whose rows go to a table go on from where it stands here. Raises: as above."""
        self._call("adopt", query, None, why=why)

    def retry(self, query: str, ids: Sequence[int]) -> list[int]:
        """Send refused rows once more; gives those that were refused again. Raises: as above."""
        return self._call("send_again", query, list[int], ids=list(ids))

    def drop(self, query: str, ids: Sequence[int]) -> int:
        """Let go of refused rows; gives how many there were. Raises: as above."""
        return self._call("drop_refused", query, int, ids=list(ids))

    def _call(self, handler: str, key: str, result: type[T] | None, **arguments: Any) -> T:
        try:
            found: T = self._client.call(handler, key, result=result, **arguments)
        except HandlerFailed as error:
            refusal = _REFUSALS.get(error.kind)
            if refusal is None:
                raise
            raise refusal(error.message) from None
        return found


class ShownToken:
    """The token to show, in a file, which may be replaced; while the file can't be read it is the one of before.

    Args:
        path: of the file.

    Raises: InvalidConfig where it can't be read for the first time.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._last = _token_in(path)

    def __call__(self) -> str:
        """Give it as the file has it now."""
        with contextlib.suppress(InvalidConfig):
            self._last = _token_in(self._path)
        return self._last


def _token_in(path: str) -> str:
    """Read a token. Raises: InvalidConfig."""
    try:
        return read_small(path).decode().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidConfig(f"{path}: the token can't be read: {error}") from None
