"""The machine's xxHash64 gives what ours gives, and ours is used where there is none, or another one."""

import ctypes
import random

import pytest

from deathless.protocols.ambrosia.check_bytes import xxhash64
from deathless.shell.foreign.check_bytes import LIBRARY, fastest_check

LIBC = "libc.so.6"


def test_native_values_are_those_of_our_own() -> None:
    """Of all lengths around stripes, with zeros in them."""
    chance = random.Random(1)
    for size in (*range(70), 1000, 4097):
        data = chance.randbytes(size) if size % 2 else bytes(size)
        assert fastest_check()(data) == xxhash64(data)


@pytest.mark.parametrize("library", ["libnobody-has-this.so.0", LIBC])
def test_machine_without_the_library_uses_our_own(library: str) -> None:
    """Also where what is found is another library."""
    assert fastest_check(library) is xxhash64


def test_library_that_computes_something_else_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """It may be of another version, or of another seed."""

    class Other:
        """A library whose function gives the length."""

        def __init__(self, _name: str) -> None:
            self.XXH64 = ctypes.CFUNCTYPE(ctypes.c_uint64, ctypes.c_char_p, ctypes.c_size_t, ctypes.c_uint64)(
                lambda _data, size, _seed: size
            )

    monkeypatch.setattr("deathless.shell.foreign.check_bytes.ctypes.CDLL", Other)
    assert fastest_check("other") is xxhash64


def test_library_of_this_name_is_used_where_the_loader_finds_it() -> None:
    """So that the fast one is not lost by a wrong name."""
    try:
        ctypes.CDLL(LIBRARY)
    except OSError:
        pytest.skip("this machine has no libxxhash; install the package libxxhash0 to run it")
    assert fastest_check() is not xxhash64
