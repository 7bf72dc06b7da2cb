"""Who accepts gzip, by RFC 9110; and which bodies are compressed."""

from __future__ import annotations

import gzip
import os

import pytest

from deathless.shell.web.compression import LEAST_BYTES, MOST_BYTES, accepts_gzip, compressed


@pytest.mark.parametrize(
    ("accepted", "gzipped"),
    [
        (b"gzip", True),
        (b"GZIP, deflate, br", True),
        (b"br;q=1.0, gzip;q=0.8, *;q=0.1", True),
        (b"x-gzip", True),
        (b"*", True),
        (b"gzip;q=0", False),
        (b"gzip; q=0.000, *", False),
        (b"*;q=0", False),
        (b"identity", False),
        (b"", False),
        (b"gzip;q=0.5", True),
    ],
)
def test_header_says_whether_gzip_is_accepted(accepted: bytes, gzipped: bool) -> None:
    assert accepts_gzip(accepted) is gzipped


def test_what_is_short_long_or_random_stays_as_it_is() -> None:
    assert compressed(b"a" * (LEAST_BYTES - 1)) is None
    assert compressed(b"a" * (MOST_BYTES + 1)) is None
    assert compressed(os.urandom(LEAST_BYTES)) is None


def test_compressed_body_reads_back() -> None:
    body = b"of words " * 1000
    packed = compressed(body)
    assert packed is not None
    assert len(packed) < len(body) / 10
    assert gzip.decompress(packed) == body
