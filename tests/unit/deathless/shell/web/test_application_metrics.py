"""Metrics of programs: numbers of one that runs, and that one of which nothing is said shows."""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec

from deathless.base.config import BindingConfig, ReplicaConfig
from deathless.shell.link.application_status import ApplicationStatus
from deathless.shell.net.abstract_socket import listen_local
from deathless.shell.net.status_port import StatusPort
from deathless.shell.web.application_metrics import (
    application_metrics,
    application_socket,
    ask_application,
    expose_application,
)

STATUS = ApplicationStatus(
    replica="r0", state="leading", position=40, waiting_bytes=70, behind_rows=4, behind_bytes=300, differences=2,
    too_long=3, unnamed=1, impulses=9, impulses_lost=5, starts=6, ends={"DL3101": 4, "stopped": 1},
    keeps_failing=True, skipped=1, checkpoint_position=30, checkpoint_bytes=99, checkpoint_at_us=2_000_000,
    checkpoint_s=0.5, checkpoints=8, checkpoint_failures=7, at_us=5_500_000,
)  # fmt: skip


def config(folder: Path, binding: BindingConfig | None) -> ReplicaConfig:
    return ReplicaConfig(service="bank", module="m:m", directory=str(folder), replica="r0", binding=binding)


def test_numbers_of_a_program_are_shown() -> None:
    lines = set(expose_application(STATUS, {"service": "bank"}).decode().splitlines())
    ours = 'service="bank"'
    wanted = {
        "up": 1.0, "serving": 1.0, "failing": 1.0, "position": 40.0, "behind_rows": 4.0, "behind_bytes": 300.0,
        "unlogged_bytes": 70.0, "skipped_rows": 1.0, "checkpoint_position": 30.0, "checkpoint_age_seconds": 3.5,
        "checkpoint_bytes": 99.0, "checkpoint_seconds": 0.5, "starts_total": 6.0, "differences_total": 2.0,
        "unnamed_total": 1.0, "impulses_total": 9.0, "impulses_lost_total": 5.0, "checkpoints_total": 8.0,
        "checkpoint_failures_total": 7.0,
    }  # fmt: skip
    assert {f"deathless_program_{name}{{{ours}}} {value}" for name, value in wanted.items()} <= lines
    assert f'deathless_program_state{{{ours},state="leading"}} 1.0' in lines
    assert f'deathless_program_ends_total{{reason="DL3101",{ours}}} 4.0' in lines
    assert f'deathless_program_ends_total{{reason="stopped",{ours}}} 1.0' in lines
    assert f"deathless_program_too_long_total{{{ours}}} 3.0" in lines


def test_program_that_loads_does_not_serve() -> None:
    loading = msgspec.structs.replace(STATUS, state="loading", keeps_failing=False)
    text = expose_application(loading, {}).decode()
    assert 'state="loading"} 1.0' in text
    assert "program_serving 0.0" in text and "program_failing 0.0" in text


def test_process_is_asked_on_its_local_socket(tmp_path: Path) -> None:
    found = config(tmp_path, BindingConfig(command=("./counter",), instance="bank"))

    async def asked() -> ApplicationStatus | None:
        name = application_socket(found.directory, found.owner)
        server = await listen_local(lambda: StatusPort(STATUS), name)
        try:
            return await ask_application(found)
        finally:
            server.close()

    assert asyncio.run(asked()) == STATUS
    assert asyncio.run(ask_application(found)) is None
    silent = asyncio.run(application_metrics(found, {})).decode()
    assert "deathless_program_up 0.0" in silent and "program_serving 0" not in silent
    assert asyncio.run(application_metrics(config(tmp_path, None), {})) == b""
