"""Reads answers of HTTP servers up to a limit, so that none fills the memory of whoever asked.

Guarantees: no more than the limit and one piece of the network is held; what is longer is closed and an error, before
anything is decoded. Does not: retry. Imports aiohttp.
"""

from __future__ import annotations

from typing import Final

import aiohttp

from deathless.base.errors import TooLarge

ANSWER_BYTES_MAX: Final = 64 << 20  # a list of five hundred pods has about ten megabytes


async def read_whole(answer: aiohttp.ClientResponse, what: str, bytes_max: int | None = None) -> bytes:
    """Give the body of an answer.

    Args:
        answer: whose head has come.
        what: for the error, who answers or what was asked for.
        bytes_max: None: ANSWER_BYTES_MAX.

    Raises: TooLarge; what aiohttp raises.
    """
    most = ANSWER_BYTES_MAX if bytes_max is None else bytes_max
    content = bytearray()
    async for piece in answer.content.iter_any():
        content += piece
        if len(content) > most:
            answer.close()
            raise TooLarge(
                f"{what}: the answer has more than {most} bytes",
                remedy="check what answers at this address; if it is a service, request less at a time",
            )
    return bytes(content)
