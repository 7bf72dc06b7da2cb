"""The files of the proof that both ends of a connection stand in the same directory (core.access.directory_proof).

    Secrets   the answerer's: writes a secret into members/ after somebody connected, and takes it away again
    Door      asks who connects, and knows which replicas are of a build that can show nothing
    Asker     the asker's: reads the secret that it was told of in its own directory

One secret serves all who connected before it was written, and one is written each PAUSE_S at most, so a flood of
strangers costs little. Nobody but a worker may wait for the log's storage: supervisors, ingresses and tools read and
write these files in threads. A worker, which writes its log inline, does this inline too.

A storage that takes no new file (full, read-only, out of inodes), or gives no answer: a symbolic link may still find
room; else the newest secret that could be written goes on to serve, so that operators are told of it. Guarantees: at
most a handful of files stand at a time, and those of a process that was killed are swept at the next start. Does not:
decide who is asked. Imports core and base.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import os
import threading
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple, Protocol

from deathless.base.errors import DeathlessError, OtherDirectory
from deathless.base.safeguards import ALL_SAFEGUARDS, Safeguards
from deathless.codec.wire import Challenge, Hello, Type, struct_packet
from deathless.core.access.directory_proof import (
    KINDS,
    NONCE_BYTES,
    SECRET_BYTES,
    answer_of,
    answerer_shows,
    check_answer,
    is_file_name,
    is_word,
    refusal_without_word,
)
from deathless.shell.directory.members import Member

_LOG: Final = logging.getLogger("deathless.proof")
FOLDER: Final = "members"
MODE: Final = 0o640  # who may read the directory's files by the group may ask for its status
PAUSE_S: Final = 0.01  # between two secrets of a process
KEPT_S: Final = 6.0  # a secret's file, longer than a connection may take to show that it knows it
SWEPT_S: Final = 3600.0  # a file that is older was left by a process that was killed
LOOKS_MAX: Final = 4  # an asker looks so often: on network storage a new name may take a moment to be seen
LOOK_AGAIN_S: Final = 0.1
HANGS_S: Final = 0.5  # a storage that has not taken a file by then may hang
END_S: Final = 0.5  # a hung storage keeps nobody from ending longer than this


class Secret(NamedTuple):
    """One that stands, or stood, in members/."""

    file: str
    value: bytes


class Secrets:
    """Those of one process that is connected to.

    Args:
        directory: the shared one.
        in_thread: the storage may hang while this process must go on.
        safeguards: what is kept.
    """

    def __init__(self, directory: str, *, in_thread: bool, safeguards: Safeguards = ALL_SAFEGUARDS) -> None:
        self._folder = Path(directory) / FOLDER
        self._in_thread = in_thread
        self.safeguards = safeguards
        self._waiting: list[Callable[[Secret | None], None]] = []
        self._busy = False
        self._hangs = False  # a thread waits for the storage, longer than HANGS_S
        self._made_at = float("-inf")
        self._standing: deque[tuple[float, str]] = deque()  # when written, and the file; the newest always stands
        self._newest: Secret | None = None
        self._closed = False

    def asks(self, kind: str) -> bool:
        """Is whoever connects as this asked?"""
        return kind in KINDS and self.safeguards.same_directory

    def sweep(self) -> None:
        """Take away what killed processes left, and write the first secret. Called once, while the storage answers."""
        with contextlib.suppress(OSError):
            self._folder.mkdir(parents=True, exist_ok=True)
            for path in self._folder.glob(".proof.*"):
                with contextlib.suppress(OSError):
                    if time.time() - path.lstat().st_mtime > SWEPT_S:
                        path.unlink()
        self._write()

    def fresh(self, made: Callable[[Secret | None], None]) -> None:
        """Have a secret written that nobody has seen before; None: the storage took none, ever."""
        if self._hangs:
            asyncio.get_running_loop().call_soon(made, self._newest)
            return
        self._waiting.append(made)
        if not self._busy:
            self._busy = True
            loop = asyncio.get_running_loop()
            loop.call_later(max(0.0, self._made_at + PAUSE_S - loop.time()), self._make, loop)

    def close(self) -> None:
        """Take all away, as far as the storage answers; whoever writes later than that takes it away again."""
        self._closed = True
        if self._in_thread:
            thread = threading.Thread(target=self._remove_all, daemon=True)
            thread.start()
            thread.join(END_S)
        else:
            self._remove_all()

    def _make(self, loop: asyncio.AbstractEventLoop) -> None:
        waiting, self._waiting = self._waiting, []
        if not self._in_thread:
            self._deliver(loop, waiting, self._write())
            return

        late = loop.call_later(HANGS_S, self._give_newest, waiting)

        def done(secret: Secret | None) -> None:
            late.cancel()
            self._hangs = False
            self._deliver(loop, waiting, secret)

        def work() -> None:
            secret = self._write()
            with contextlib.suppress(RuntimeError):  # the loop has ended
                loop.call_soon_threadsafe(done, secret)

        threading.Thread(target=work, name="proof", daemon=True).start()

    def _give_newest(self, waiting: list[Callable[[Secret | None], None]]) -> None:
        """The storage gives no answer: whoever waits, and whoever comes until it does, gets the newest secret."""
        self._hangs = True
        both = [*waiting, *self._waiting]
        waiting.clear()
        self._waiting.clear()
        _LOG.warning(
            "can't write a file for the proof of the directory", extra={"why": f"no answer within {HANGS_S:g} s"}
        )
        for made in both:
            made(self._newest)

    def _deliver(
        self, loop: asyncio.AbstractEventLoop, waiting: list[Callable[[Secret | None], None]], secret: Secret | None
    ) -> None:
        self._busy, self._made_at = False, loop.time()
        for made in waiting:
            made(secret)
        if self._waiting and not self._busy:
            self._busy = True
            loop.call_later(PAUSE_S, self._make, loop)

    def _write(self) -> Secret | None:
        now = time.monotonic()
        secret = Secret(f".proof.{os.urandom(16).hex()}", os.urandom(SECRET_BYTES).hex().encode())
        try:
            _put(self._folder / secret.file, secret.value)
        except OSError as error:
            _LOG.warning("can't write a file for the proof of the directory", extra={"why": str(error)})
            return self._newest
        self._newest = secret
        self._standing.append((now, secret.file))
        if self._closed:  # looked at behind `append`: `close` finds the file there, or is seen here
            self._remove_all()
        while len(self._standing) > 1 and now - self._standing[0][0] > KEPT_S:
            with contextlib.suppress(OSError):
                (self._folder / self._standing.popleft()[1]).unlink()
        return secret

    def _remove_all(self) -> None:
        for _, file in list(self._standing):
            with contextlib.suppress(OSError):
                (self._folder / file).unlink()


class LetIn(Protocol):
    """Takes a connection in; not `proved`: a replica of a build from before the proof."""

    def __call__(self, hello: Hello, *, proved: bool) -> None:
        """See there."""
        ...


class Door:
    """Asks whoever connects to one process.

    Args:
        secrets: of the process.
        announced: gives what members/ says of a replica, None where it says nothing.
    """

    def __init__(self, secrets: Secrets, announced: Callable[[str], Member | None]) -> None:
        self.secrets = secrets
        self.announced = announced

    def asks(self, kind: str) -> bool:
        """Is whoever connects as this asked?"""
        return self.secrets.asks(kind)

    def ask(
        self, hello: Hello, send: Callable[[bytes], None], let_in: LetIn, refuse: Callable[[DeathlessError], None]
    ) -> Asked | None:
        """Ask one who connects; None: it is let in already. Raises: OtherDirectory for one who can show nothing."""
        if is_word(hello.proof):
            return Asked(self, hello, send, let_in, refuse)
        self.check_without(hello)
        let_in(hello, proved=False)
        return None

    def check_without(self, hello: Hello, *, any_build: bool = False) -> None:
        """Look whether somebody is let in who shows nothing. Raises: OtherDirectory."""
        member = self.announced(hello.name)
        shows = member is not None and member.proves and not any_build
        refusal = refusal_without_word(hello.kind, hello.name, announced=member is not None, shows=shows)
        if refusal is not None:
            raise refusal


class Asked:
    """One connection that was asked, until it has shown where it stands."""

    def __init__(
        self,
        door: Door,
        hello: Hello,
        send: Callable[[bytes], None],
        let_in: LetIn,
        refuse: Callable[[DeathlessError], None],
    ) -> None:
        self._door = door
        self._hello = hello
        self._send = send
        self._let_in = let_in
        self._refuse = refuse
        self._nonce = os.urandom(NONCE_BYTES)
        self._secret: Secret | None = None
        door.secrets.fresh(self._made)

    def _made(self, secret: Secret | None) -> None:
        self._secret = secret
        if secret is not None:
            shown = answerer_shows(secret.value, self._hello.proof, self._nonce)
            self._send(struct_packet(Type.CHALLENGE, Challenge(secret.file, self._nonce, shown)))
            return
        try:  # nothing can be written here since we began: nobody can show anything
            self._door.check_without(self._hello, any_build=True)
            self._let_in(self._hello, proved=False)
        except DeathlessError as error:
            self._refuse(error)

    def shown(self, shown: bytes) -> None:
        """Take what it shows, and let it in. Raises: OtherDirectory."""
        secret = self._secret
        check_answer(self._hello, secret.value if secret is not None else None, self._nonce, shown)
        self._let_in(self._hello, proved=True)


def _put(path: Path, value: bytes) -> None:
    """Write a small file, whole before its name stands; without room for a block, as a symbolic link."""
    temporary = path.with_name(f".new{path.name}")
    try:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, MODE)
        try:
            os.write(descriptor, value)
        finally:
            os.close(descriptor)
        temporary.rename(path)
    except OSError as error:
        with contextlib.suppress(OSError):
            temporary.unlink()
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        path.symlink_to(value.decode())


def read_secret(directory: str, file: str) -> bytes | None:
    """Give what stands there; None: nothing does, or it can't be read."""
    if not is_file_name(file):
        return None
    path = Path(directory) / FOLDER / file
    with contextlib.suppress(OSError):
        return os.readlink(path).encode()
    with contextlib.suppress(OSError):
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            return os.read(descriptor, 4 * SECRET_BYTES)
        finally:
            os.close(descriptor)
    return None


class Asker:
    """What one connection that we open shows of where we stand.

    Args:
        directory: ours; empty: we stand in none, and show nothing.
        in_thread: this process must go on, and keep its deadlines, while the storage hangs.
    """

    def __init__(self, directory: str, *, in_thread: bool = True) -> None:
        self.word = os.urandom(NONCE_BYTES).hex() if directory else ""
        self._directory = directory
        self._in_thread = in_thread

    def look(self, challenge: Challenge, found: Callable[[bytes | OtherDirectory], None], tries: int = 1) -> None:
        """Look for the secret in our directory; `found` gets what to show, or why the other end is not of here."""
        loop = asyncio.get_running_loop()
        if not self._in_thread:
            self._looked(loop, challenge, found, tries, read_secret(self._directory, challenge.file))
            return

        def work() -> None:
            secret = read_secret(self._directory, challenge.file)
            with contextlib.suppress(RuntimeError):  # the loop has ended
                loop.call_soon_threadsafe(self._looked, loop, challenge, found, tries, secret)

        threading.Thread(target=work, name="proof", daemon=True).start()

    def _looked(
        self,
        loop: asyncio.AbstractEventLoop,
        challenge: Challenge,
        found: Callable[[bytes | OtherDirectory], None],
        tries: int,
        secret: bytes | None,
    ) -> None:
        shown = answer_of(secret, self.word, challenge.nonce, challenge.shown)
        if shown is not None:
            found(shown)
        elif tries < LOOKS_MAX:
            loop.call_later(LOOK_AGAIN_S, self.look, challenge, found, tries + 1)
        else:
            found(OtherDirectory(f"the other end is not in {self._directory}, or this user can't read its files"))
