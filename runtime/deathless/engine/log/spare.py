"""The spare segment of a replica: space put aside, so that a takeover fits on a full disk (I8).

Why it exists: the one moment when the log must grow is a takeover (cut and copies), and a full disk is a likely
cause of trouble to begin with. So each replica keeps one preallocated file, `replicas/<replica>/spare`. Where there is
no room for its next epoch's first segment otherwise, that file becomes it, linked under the segment's name; its writer
gives back at once what cut and copies do not take, and the next spare is made of that. Where several instances of one
replica may live at once (a pod that was cut off and its replacement) the name carries the instance: `spare.<instance>`.

    no spare --prepare--> spare stands --link_as--> linked twice --unlink, sync--> a segment; no spare

One file under two names would be one segment written by two epochs. Hence: the spare's own name is gone, durably,
before anything is written to the segment, so a spare that stands after a crash was never written to; and at its first
`prepare` a process replaces a spare that it finds by a file of its own, so that no older process can hold the same
one. No instance ever links a name of another's; it only takes such names away, at its first `prepare`, because what a
former instance left is lost space. One that still lives then has no spare and makes its next file as if the disk had
been full: it loses no more than that.

Guarantees: a spare that `link_as` gives away reads as zeros and has its space. Does not: spend the spare on new
messages (the writer refuses those when there is none, so that a takeover still fits). May import codec and base.
"""

from __future__ import annotations

import contextlib
from typing import Final

from deathless.base.storage import Trouble, Use, trouble_of, waits
from deathless.codec.frames import BLOCK
from deathless.engine.file_names import keep_only
from deathless.engine.ports import FileSystem, Handle

LEAST_BYTES: Final = 8 * BLOCK


def is_full(error: OSError) -> bool:
    """Does the error mean that there is no space, no quota or no inode?"""
    return trouble_of(error) is Trouble.FULL


class Spare:
    """One replica's spare.

    Args:
        fs: the shared directory.
        replica: its name.
        size: bytes of the spare.
        instance: which of several that call themselves this replica; empty: there is one at a time.
    """

    def __init__(self, fs: FileSystem, replica: str, size: int, *, instance: str = "") -> None:
        self._fs = fs
        self._folder = f"replicas/{replica}"
        name = f"spare.{instance}" if instance else "spare"
        self._path = f"{self._folder}/{name}"
        self._new = f"{self._folder}/{name}.new"
        self._instance = instance
        self._cleared = not instance  # what former instances left is gone
        self._size = size
        self._own = False  # the file that stands was made, or taken over for lack of space, by this object
        self._whole = False  # it has all of `size`. Invariant: only meaningful while `_own`

    @property
    def ready(self) -> bool:
        """Is there a spare of the whole size?"""
        return self._own and self._whole

    def prepare(self) -> bool:
        """Make a spare if there is none of this process. False: no space for one, or the volume is read-only.

        Raises: OSError that says anything else (`base.storage`).
        """
        return self.ready or self._try(self._size)

    def prepare_least(self) -> None:
        """Where there is no room for a whole one: put aside what a takeover takes that has next to nothing to copy.

        Nothing is admitted without a whole one, so such a takeover is what comes next on a full disk. Raises: OSError.
        """
        if not (self.prepare() or self._own):
            self._try(min(self._size, LEAST_BYTES))

    def _try(self, size: int) -> bool:
        try:
            return self._prepare(size)
        except OSError as error:
            if waits(error, Use.ROOM):
                return False
            raise

    def _prepare(self, size: int) -> bool:
        self._fs.make_folder(self._folder)
        if not self._cleared:
            self._clear()
        with contextlib.suppress(FileNotFoundError):
            self._fs.unlink(self._new)
        try:
            handle = self._fs.create(self._new)
        except OSError as error:
            return self._keep_found(error)
        try:
            self._fs.allocate(handle, 0, size)
        except OSError as error:
            with contextlib.suppress(FileNotFoundError):
                self._fs.unlink(self._new)
            return self._keep_found(error)
        finally:
            self._fs.close(handle)
        try:
            self._fs.rename(self._new, self._path)
        except FileNotFoundError:  # a later instance took it away; the next call makes another
            return False
        self._own, self._whole = True, size == self._size
        return True

    def link_as(self, path: str) -> Handle | None:
        """Turn the spare into the file `path` and open it for writing; None: there is no spare.

        Raises: FileExistsError when `path` stands. OSError.
        """
        if not self._own:
            return None
        try:
            self._fs.link(self._path, path)
        except FileNotFoundError:  # a later instance of this replica took it for a leftover
            self._own = False
            return None
        self._own = False
        return keep_only(self._fs, path, self._path)

    def recheck(self) -> None:
        """Look whether it still stands: a helper process of this replica may have given it up. Raises: OSError."""
        self._own = self._own and self._fs.exists(self._path)

    def free(self) -> None:
        """Give the space back, for something that matters more (a checkpoint)."""
        self._own = False
        with contextlib.suppress(FileNotFoundError):
            self._fs.unlink(self._path)

    def _clear(self) -> None:
        """Take away what other instances left, or still have."""
        own = {self._path, self._new}
        for name in self._fs.listing(self._folder):
            path = f"{self._folder}/{name}"
            if (name == "spare" or name.startswith("spare.")) and path not in own:
                with contextlib.suppress(FileNotFoundError):
                    self._fs.unlink(path)
        self._cleared = True

    def _keep_found(self, error: OSError) -> bool:
        """No space for a new file: the one that an earlier process left will do, if it is untouched."""
        if not is_full(error):
            raise error
        if self._own:
            return False
        try:
            handle = self._fs.open(self._path)
        except FileNotFoundError:
            return False
        try:
            untouched = self._fs.size(handle) == self._size and not self._fs.read(handle, 0, BLOCK).strip(b"\0")
        finally:
            self._fs.close(handle)
        self._own = self._whole = untouched
        return untouched
