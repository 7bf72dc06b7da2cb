"""The ways to the process of the former code; what is said over them is in `test_former` and `test_former_server`."""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from pathlib import Path

import msgspec
import pytest

from deathless.base.config import UpgradeConfig
from deathless.base.errors import UpgradeCalledOff
from deathless.shell.upgrade import former_link
from deathless.shell.upgrade.former_link import PREAMBLE, OwnProcess, ServedBeside, Use, environment_of, link_of

UPGRADE = UpgradeConfig(id="ab" * 16, from_generation=1, from_fingerprint="cd" * 16, from_version=1)


def test_the_config_names_the_way() -> None:
    assert isinstance(link_of(msgspec.structs.replace(UPGRADE, interpreter=sys.executable), 1), OwnProcess)
    assert isinstance(link_of(msgspec.structs.replace(UPGRADE, former="/tmp/former.sock"), 1), ServedBeside)


def test_the_process_has_the_hash_seed_of_the_service_and_no_time_zone_of_its_own() -> None:
    told = environment_of(41)
    assert (told["PYTHONHASHSEED"], told["TZ"], told["PATH"]) == ("41", "UTC", os.environ["PATH"])


def test_a_server_that_comes_later_is_waited_for_and_told_the_hash_seed(tmp_path: Path) -> None:
    path = str(tmp_path / "former.sock")
    link = ServedBeside(path, 41)

    async def run() -> None:
        opening = asyncio.create_task(link.open())
        await asyncio.sleep(0)
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(path)
            listener.listen()
            with await opening, listener.accept()[0] as line:
                assert line.recv(64) == PREAMBLE.pack(41, Use.UPGRADE)
                line.sendall(b"its last words")
                line.shutdown(socket.SHUT_WR)
                link.close()
                assert line.recv(1) == b"", "it is told that nobody has more to say"

    asyncio.run(run())


def test_one_that_does_not_end_its_line_is_waited_for_no_longer_than_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(former_link, "END_S", 0.01)
    path = str(tmp_path / "former.sock")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen()
        link = ServedBeside(path, 0)
        with asyncio.run(link.open()):
            link.close()
            link.close()


def test_where_nobody_listens_the_socket_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(former_link, "CONNECT_S", 0.0)
    path = str(tmp_path / "none.sock")
    with pytest.raises(UpgradeCalledOff, match=f"nobody serves the former code at {path}"):
        asyncio.run(ServedBeside(path, 0).open())
    ServedBeside(path, 0).close()
    OwnProcess(sys.executable, 0).close()
