"""The next segment of an epoch, made ahead of time: filled with zeros, so that a frame's sync changes no metadata.

Why it exists: where a file grows, or has space that nobody wrote to, each sync of a frame is a commit of the file
system's journal too. In blocks that were written before, it is not, and takes some two thirds of the time (design 0025
has the figures). Filling a file takes long, so a helper does it beside the replica, under a name of its own:

    nothing --order--> being made --made--> ready --link_as--> a segment; nothing
       ^                   | not made         | free
       '-------------------+------------------'

One file under two names would be one segment written by two epochs. So the name `prepared.<nonce>` is this process's
alone, it is gone, durably, before anything is written to the segment, and no process ever uses a name of another's; it
only takes such names away when it starts, because what a former process left is lost space. A process that finds its
file taken away goes on without one. The same nonce keeps apart what two helpers write: that of a process before may
have been frozen while it wrote.

Guarantees: what `link_as` gives away was written with zeros from end to end, durably. Does not: write the zeros, or
decide when a file is made and when it is used (the writer of segments does). May import codec and base.
"""

from __future__ import annotations

from deathless.base.storage import Use, waits
from deathless.engine.file_names import keep_only, remove_name
from deathless.engine.ports import FileSystem, Handle, SegmentMaker


class PreparedSegment:
    """One process's.

    Args:
        fs: the shared directory.
        replica: its name.
        size: bytes of the file, a multiple of a block.
        maker: fills it; None: nobody does, and there never is one.
        nonce: that no other process of this replica ever has.
    """

    def __init__(self, fs: FileSystem, replica: str, size: int, maker: SegmentMaker | None, nonce: str) -> None:
        self.size = size
        self.ready = False
        self._fs = fs
        self._folder = f"replicas/{replica}"
        self._path = f"{self._folder}/prepared.{nonce}"
        self._new = f"{self._path}.new"
        self._maker = maker
        self._making = False
        self._before = 0  # bytes of this epoch's files before the one that is written
        self._not_before = 0  # another one is ordered once this epoch has written so many bytes

    def clear(self) -> None:
        """Take away what former processes left, or others that still live have. Raises: OSError."""
        if self._maker is None:
            return
        for name in self._fs.listing(self._folder):
            path = f"{self._folder}/{name}"
            if name.startswith("prepared.") and path not in (self._path, self._new):
                remove_name(self._fs, path)

    def begin(self) -> None:
        """An epoch begins."""
        self._before = self._not_before = 0

    def rolled(self, size: int) -> None:
        """The epoch goes on in its next file, behind so many bytes in this one."""
        self._before += size

    def due(self, offset: int) -> bool:
        """Has this epoch written as much as such a file has? One that ends soon then leaves little behind.

        Args:
            offset: where the next frame stands in the file that is written.
        """
        return self._maker is not None and self._before + offset >= self.size

    def order(self, offset: int) -> None:
        """Have one made, if there is none, none is being made, and none could not be made just now; as for `due`."""
        written = self._before + offset
        if self._maker is None or self.ready or self._making or written < self._not_before:
            return
        self._making = True
        self._not_before = written + self.size
        self._maker.make(self._new, self.size, self._made)

    def _made(self, good: bool) -> None:
        """It was filled, or could not be. Raises: OSError."""
        self._making = False
        if not good:
            remove_name(self._fs, self._new)
            return
        try:
            self._fs.rename(self._new, self._path)
        except FileNotFoundError:  # a later process took it away
            return
        except OSError as error:
            if not waits(error, Use.ROOM):
                raise
            return
        self.ready = True
        self._not_before = 0

    def link_as(self, path: str) -> Handle | None:
        """Turn the file into the segment `path` and open it for writing; None: it is not there, or has no room there.

        Raises: FileExistsError when `path` stands. OSError.
        """
        if not self.ready:
            return None
        self.ready = False
        try:
            self._fs.link(self._path, path)
        except FileNotFoundError:  # as above
            return None
        except OSError as error:
            if not waits(error, Use.ROOM):
                raise
            remove_name(self._fs, self._path)
            return None
        return keep_only(self._fs, path, self._path)

    def free(self) -> bool:
        """Give its space back, for something that needs it. False: there was none."""
        if not self.ready:
            return False
        self.ready = False
        remove_name(self._fs, self._path)
        return True
