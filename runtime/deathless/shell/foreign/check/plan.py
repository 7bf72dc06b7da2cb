"""Which calls a program gets in a check, in which records, all of it drawn from one seed.

Why it exists: a program has to behave the same however its log is cut into records and wherever it is started. So calls
are numbered one by one, and cut into records anew for each run. Which calls mean something to a program its author
knows: he names methods that take any bytes, or gives a file of calls.

Guarantees: one seed gives one plan. Does not: deliver. Imports base, codec and the protocol's messages.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from typing import Final, Literal, NamedTuple

import msgspec

from deathless.base.errors import InvalidConfig
from deathless.codec.untrusted import read_json
from deathless.protocols.ambrosia.messages import SELF, Kind, Rpc, make_call

CALLER: Final = "check"
"""The service that awaited calls come from."""
CALLS: Final = 240
RECORD_CALLS_MAX: Final = 24
BATCH_BYTES: Final = 1 << 18
"""One record has so many bytes, if the calls are large enough for it."""
BATCH_CALLS_MAX: Final = 1000
ARGUMENT_BYTES_MAX: Final = 64
LARGE_BYTES: Final = 100_000
_KINDS: Final = {"fork": Kind.FORK, "async": Kind.ASYNC, "impulse": Kind.IMPULSE}


class CallSpec(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One call, as an author writes it down: a line of JSON."""

    method: int
    text: str = ""
    hex: str = ""
    kind: Literal["fork", "async", "impulse"] = "fork"

    @property
    def arguments(self) -> bytes:
        """Its arguments. Raises: ValueError."""
        return bytes.fromhex(self.hex) if self.hex else self.text.encode()


def read_calls(data: bytes) -> list[CallSpec]:
    """Read calls, one in each line; empty lines are left out. Raises: InvalidConfig."""
    calls = []
    for number, line in enumerate(data.splitlines(), 1):
        if not line.strip():
            continue
        try:
            call = read_json(line, CallSpec)
            _ = call.arguments
        except (msgspec.DecodeError, ValueError) as error:
            raise InvalidConfig(
                f"line {number} of the calls: {error}",
                remedy='write one call in a line: {"method": 1, "text": "..."} or {"method": 1, "hex": "00ff"}',
            ) from None
        if not -(1 << 31) <= call.method < 1 << 31:
            raise InvalidConfig(f"line {number} of the calls: method {call.method} has more than 32 bits")
        calls.append(call)
    if not calls:
        raise InvalidConfig("there is no call in the file of calls")
    return calls


def any_calls(methods: Sequence[int], chance: random.Random) -> list[CallSpec]:
    """Give calls to methods that take any bytes: short ones, one that is long, some of which are awaited."""
    calls = []
    for number in range(CALLS):
        size = LARGE_BYTES if number == CALLS // 2 else chance.randrange(ARGUMENT_BYTES_MAX)
        kind: Literal["fork", "async"] = "async" if chance.random() < 0.2 else "fork"
        calls.append(CallSpec(method=chance.choice(methods), hex=chance.randbytes(size).hex(), kind=kind))
    return calls


class Record(NamedTuple):
    """Some messages of the log, delivered together."""

    lsn: int  # of the last of them
    rpcs: tuple[Rpc, ...]


def rpcs_of(calls: Iterable[CallSpec], *, first: int = 1) -> list[Rpc]:
    """Give calls as a log has them; those that are awaited are numbered from `first`."""
    rpcs = []
    for number, call in enumerate(calls, first):
        kind = _KINDS[call.kind]
        name, sequence = (CALLER, number) if kind is Kind.ASYNC else ("", 0)
        rpcs.append(make_call(SELF, call.method, kind, call.arguments, name=name, sequence=sequence))
    return rpcs


def batches(calls: Sequence[CallSpec], chance: random.Random) -> list[list[CallSpec]]:
    """Cut calls into records: of one, of many, and one of very many."""
    whole = list(calls)
    if len(whole) < CALLS:
        whole = [whole[index % len(whole)] for index in range(CALLS)]
    cut = []
    at = 0
    while at < len(whole):
        count = 1 if chance.random() < 0.3 else chance.randint(1, RECORD_CALLS_MAX)
        cut.append(whole[at : at + count])
        at += count
    large: list[CallSpec] = []
    size = 0
    while size < BATCH_BYTES and len(large) < BATCH_CALLS_MAX:
        large.append(chance.choice(whole))
        size += len(large[-1].arguments) + 8
    cut.insert(len(cut) // 2, large)
    return cut


def cut_again(log: Sequence[Rpc], after: int, first_lsn: int, chance: random.Random) -> list[Record]:
    """Cut what the log has behind a place into other records.

    Args:
        log: its messages, of which the one at index k has lsn `first_lsn` + k.
        after: lsn that they begin behind.
        first_lsn: of the first message.
        chance: where to cut.
    """
    records = []
    at = max(0, after + 1 - first_lsn)
    while at < len(log):
        end = min(len(log), at + chance.randint(1, 2 * RECORD_CALLS_MAX))
        records.append(Record(first_lsn + end - 1, tuple(log[at:end])))
        at = end
    return records
