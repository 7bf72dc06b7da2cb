"""Frames and transaction messages as hypothesis draws them."""

from __future__ import annotations

from typing import Final

from hypothesis import strategies as st

from deathless.protocols.connector.frames import (
    Ack,
    AnyFrame,
    EosMessage,
    Error,
    Hello,
    Message,
    Notify,
    NotifyAck,
    Ok,
    Restart,
    WorkersLeft,
)
from deathless.protocols.connector.transactions import (
    AnyTransaction,
    ListUncommitted,
    Phase1,
    Phase2,
    Range,
    Reply,
    ReplyUncommitted,
)

U32: Final = st.integers(0, 2**32 - 1)
U64: Final = st.integers(0, 2**64 - 1)
I64: Final = st.integers(-(2**63), 2**63 - 1)
BYTES: Final = st.binary(max_size=20)
TEXT: Final = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
NAMES: Final = st.lists(BYTES, max_size=4).map(tuple)
WORKERS: Final = st.builds(WorkersLeft, rtag=U64, workers=NAMES)
FRAMES: Final[st.SearchStrategy[AnyFrame]] = st.one_of(
    st.builds(Hello, version=TEXT, cookie=BYTES, program=TEXT, instance=TEXT),
    st.builds(Ok, credits=U32),
    st.builds(Error, text=TEXT),
    st.builds(Notify, stream=U64, name=BYTES, position=U64),
    st.builds(NotifyAck, success=st.booleans(), stream=U64, position=U64),
    st.builds(Message, stream=U64, id=U64, event_time=I64, key=BYTES, payload=BYTES),
    st.builds(Ack, credits=U32, positions=st.lists(st.tuples(U64, U64), max_size=4).map(tuple)),
    st.builds(Restart, address=TEXT),
    st.builds(EosMessage, stream=U64),
    WORKERS,
)
RANGES: Final = st.lists(st.builds(Range, stream=U64, start=U64, end=U64), max_size=4).map(tuple)
TRANSACTIONS: Final[st.SearchStrategy[AnyTransaction]] = st.one_of(
    st.builds(ListUncommitted, rtag=U64),
    st.builds(ReplyUncommitted, rtag=U64, transactions=NAMES),
    st.builds(Phase1, transaction=BYTES, ranges=RANGES),
    st.builds(Reply, transaction=BYTES, commit=st.booleans()),
    st.builds(Phase2, transaction=BYTES, commit=st.booleans()),
    WORKERS,
)
