"""What the kernel's table says of a connection over loopback."""

from __future__ import annotations

import os
import socket
import sys

from deathless.shell.foreign.tcp_table import End, end_of_peer, find_end, waiting_for_peer

# Little-endian machines write 127.0.0.1 so.
TABLE = """\
  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 11 1 0 100 0 0 10 0
   1: 0100007F:1F90 0100007F:C350 01 00000007:00000000 00:00000000 00000000  1000        0 12 1 0 20 4 30 10 -1
   2: 0100007F:C350 0100007F:1F90 01 00000000:0001B198 00:00000000 00000000  1001        0 13 1 0 20 4 30 10 -1
""".splitlines()
OURS, OTHER = ("127.0.0.1", 0x1F90), ("127.0.0.1", 0xC350)


def test_both_ends_are_found_by_their_addresses() -> None:
    assert sys.byteorder == "little", "the table above is one of such a machine"
    assert find_end(TABLE, OURS, OTHER) == End(uid=1000, unread=0)
    assert find_end(TABLE, OTHER, OURS) == End(uid=1001, unread=111_000)


def test_a_connection_that_is_not_there_is_not_found() -> None:
    assert find_end(TABLE, OURS, ("127.0.0.1", 1)) is None
    assert find_end([], OURS, OTHER) is None


def test_end_of_a_connection_that_was_reset_is_not_found() -> None:
    """A process that dies with something unread leaves such a one, and whoever looks need not know it yet."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        reader = socket.create_connection(listener.getsockname())
        with listener.accept()[0] as writer:
            writer.sendall(bytes(1000))
            reader.close()
            assert end_of_peer(writer) is None
            assert waiting_for_peer(writer) == 0


def test_what_lies_unread_in_the_others_socket_is_seen_though_ours_is_empty() -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as listener,
        socket.create_connection(listener.getsockname()) as reader,
        listener.accept()[0] as writer,
    ):
        assert waiting_for_peer(writer) == 0
        writer.sendall(bytes(50_000))
        assert waiting_for_peer(writer) == 50_000
        reader.recv(20_000, socket.MSG_WAITALL)
        assert waiting_for_peer(writer) == 30_000
        peer = end_of_peer(writer)
        assert peer is not None
        assert peer.uid == os.geteuid()
