"""What a fork reads of logs, what it refuses, and what it writes; tests/process forks services that run."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import msgspec
import pytest

from deathless.base.config import ReplicaConfig
from deathless.base.errors import ForkRefused, InvalidArgument
from deathless.base.ids import ChainHash, Lsn
from deathless.base.limits import Limits
from deathless.codec.frames import Run
from deathless.codec.messages import Kind, encode
from deathless.codec.peer_messages import PeerHello, Sender, Target, Trim, encode_record
from deathless.core.access.fork import ForkedService
from deathless.core.replica.fork_cut import ForkPlace, Known
from deathless.engine.log.checkpoint_store import CheckpointStore
from deathless.engine.shard.assembly import open_shard
from deathless.engine.shard.shard import Shard
from deathless.execution.author.service import Service
from deathless.execution.turn.context import Context
from deathless.shell.directory.adopted import read_adoption
from deathless.shell.directory.identity import prepare
from deathless.shell.disk.filesystem import RealFileSystem
from deathless.shell.lock_stores.inspection import inspect
from deathless.shell.operate.forking import directory, fork, originals
from deathless.shell.operate.forking.in_replay import ForkOrder, place_behind, write_checkpoint
from deathless.shell.operate.forking.manifest import forked_manifest
from deathless.shell.operate.manifest_file import read_manifest
from deathless.shell.operate.replay import ReplayOrder, ReplayResult
from deathless.shell.operate.verification import verify_log
from deathless.simulation.models.log_driver import LogDriver

CONFIG = ReplicaConfig(service="bank", module="m:a", directory=".", replica="r0", allow_any_file_system=True)
STOCK = ForkedService(b"s" * 16, 7, b"S" * 16, 70)
BANK = ForkedService(b"0123456789abcdef", 7, b"B" * 16, 71)
FORKED = {"bank": BANK, "stock": STOCK}
MANIFEST = """\
apiVersion: deathless.dev/v1alpha1
kind: DeathlessService
metadata: {name: bank}
spec:
  module: bank.py:bank
  replicas: 2
  tokenFile: bank.token
  ingress: {port: 8090}
  logStorage: {path: data/bank}
  peers:
  - {name: stock, path: ../stock}
  - {name: mail, path: ../mail}
  drivers:
  - {name: rows, kind: postgresql, options: {dsnFile: rows.dsn, statements: {a: SELECT 1}}}
"""


READS = """\
  topics:
  - {name: facts}
  sinks:
  - {name: facts-table, kind: columns, topic: facts, options: {store: postgresql, dsnFile: rows.dsn, table: facts}}
  sources:
  - {name: lines, kind: files, input: rows, options: {folder: in, glob: "*.jsonl"}}
  - {name: gate, kind: connector, input: rows, options: {listen: "127.0.0.1:7500", cookieFile: cookie}}
  - name: broker
    kind: kafka
    input: rows
    options:
      bootstrapServers: kafka:9092
      topic: facts
      tls: {caFile: ca.pem}
      sasl: {mechanism: PLAIN, username: us, passwordFile: word}
  - {name: plain, kind: connector, input: rows}
"""


class Account(msgspec.Struct):
    """State of one key."""

    paid: int = 0


@dataclass
class Folder:
    """A log with a checkpoint behind its second message."""

    config: ReplicaConfig
    driver: LogDriver


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    (tmp_path / "bank").mkdir()
    driver = LogDriver(RealFileSystem(str(tmp_path / "bank")), "r0", [])
    driver.start()
    driver.take_over()
    for number in (b"1", b"2", b"3"):
        driver.call(number)
    driver.idle()
    return Folder(msgspec.structs.replace(CONFIG, directory=str(tmp_path / "bank")), driver)


def quiet(how_far: str) -> None:
    assert how_far


def place(lsn: int, **more: dict[str, int]) -> ForkPlace:
    nothing: dict[str, dict[str, int]] = {"sent": {}, "forgotten": {}, "received": {}}
    return ForkPlace(lsn, bytes(16), **{**nothing, **more}, knows={})


# ---- in the run of a log -----------------------------------------------------------------------------------------


def talking_shard() -> Shard:
    """A bank that has sent three messages to stock, of which one is confirmed, and taken in two."""
    service = Service("bank", state=Account)

    @service.handler
    def pay(account: Account, ctx: Context) -> None:
        account.paid += 1
        ctx.fork("stock", "apples", "refill", {"count": account.paid})

    shard = open_shard(service, Limits(), bytes(32))
    shard.execute([(Run(0, 0, 0, 1), [encode_record(PeerHello("stock", 0, STOCK.service_id, STOCK.incarnation))])])
    session = shard.peers.peers()[0].session
    envelope = msgspec.msgpack.encode(Sender())
    sent = [encode(Kind.FORK, method=b"pay", key=b"k", idempotency_key=envelope, args=b"\x80") for _ in range(3)]
    shard.execute([(Run(session, 1, 0, 2), sent[:2]), (Run(session, 3, 0, 1), sent[2:])])
    shard.execute([(Run(0, 0, 0, 1), [encode_record(Trim("stock", 0, 1))])])
    return shard


def test_place_says_how_far_a_service_has_got_with_others() -> None:
    shard = talking_shard()
    session = shard.peers.peers()[0].session
    known = {"stock": Known(session, STOCK.service_id, STOCK.incarnation)}
    found = place_behind(shard, ["stock", "mail"])
    assert found == ForkPlace(
        5, shard.place.chain, {"stock": 3, "mail": 0}, {"stock": 1, "mail": 0}, {"stock": 3}, known
    )


def test_checkpoint_of_a_fork_keeps_positions_and_knows_the_forked_ones(tmp_path: Path) -> None:
    shard = talking_shard()
    order = ForkOrder(directory=str(tmp_path), service="bank", forked=FORKED, epoch=4, fingerprint=b"f" * 16)
    write_checkpoint(shard, order)
    store = CheckpointStore(RealFileSystem(str(tmp_path)), "r0")
    found = store.load_newest()
    assert found is not None
    assert (found.service_id, found.incarnation, found.lsn) == (BANK.forked_id, BANK.forked_incarnation, 5)
    again = open_shard(Service("bank", state=Account), Limits(), bytes(32))
    again.restore(found, same_code=False)
    (peer,) = again.peers.peers()
    assert (peer.service_id, peer.incarnation) == (STOCK.forked_id, STOCK.forked_incarnation)
    before, after = place_behind(shard, ["stock"]), place_behind(again, ["stock"])
    assert (after.sent, after.forgotten, after.received) == (before.sent, before.forgotten, before.received)
    assert again.outbox.messages_from(Target("stock", 0), 2, 1000) == shard.outbox.messages_from(
        Target("stock", 0), 2, 1000
    )


# ---- the originals -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "why"),
    [({"shards": 2}, "2 shards"), ({"lock": "etcd"}, "has its lock in etcd")],
    ids=["shards", "etcd"],
)
@pytest.mark.asyncio
async def test_what_can_not_be_forked_is_refused_by_name(changes: dict[str, object], why: str) -> None:
    with pytest.raises(ForkRefused, match=why):
        await originals.original_of(msgspec.structs.replace(CONFIG, **changes), ".")


@pytest.mark.asyncio
async def test_position_is_the_one_behind_the_frame_and_of_this_log(folder: Folder) -> None:
    original = await originals.original_of(folder.config, ".")
    assert (original.record.service_id, original.name) == (BANK.service_id, "bank")
    chain = original.look.reader.chain_at(original.look.view.head, 2)
    assert chain
    found = originals.position_of(original, ForkPlace(2, chain, {}, {}, {}, {}))
    assert (found.lsn, found.chain) == (2, chain)
    with pytest.raises(ForkRefused, match="does not pass through lsn 2"):
        originals.position_of(original, place(2))


# ---- the plan ----------------------------------------------------------------------------------------------------


async def planned(
    folder: Folder, monkeypatch: pytest.MonkeyPatch, logs: dict[str, list[list[ForkPlace]]]
) -> fork.ForkPlan:
    """Plan a fork of services whose logs are read as these places, first from a checkpoint and then from further."""
    path = Path(folder.config.directory).parent / "bank.yaml"
    (path.parent / "bank.py").touch()
    (path.parent / "bank.token").write_text("x" * 32)
    path.write_text(MANIFEST)
    loaded = read_manifest(path)

    async def read(original: originals.Original, others: list[str], *, oldest: bool) -> list[ForkPlace]:
        assert original.name not in others
        return logs[original.name][int(oldest)]

    monkeypatch.setattr(fork, "places_of", read)
    monkeypatch.setattr(fork, "position_of", lambda _original, each: each.lsn)
    sources = [fork.Source(msgspec.structs.replace(folder.config, service=name), loaded) for name in logs]
    return await fork.plan_fork(sources, {}, quiet)


@pytest.mark.asyncio
async def test_log_is_read_from_further_where_the_cut_is_below_its_checkpoint(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    bank = [place(1, sent={"stock": 1})]
    stock = [place(3, received={"bank": 2}), place(4, received={"bank": 3})]
    earlier = [place(2, received={"bank": 0}), *stock, place(5, received={"bank": 4})]
    plan = await planned(folder, monkeypatch, {"bank": [bank, bank], "stock": [stock, earlier]})
    assert [(each.original.name, each.place.lsn) for each in plan.services] == [("bank", 1), ("stock", 2)]
    assert plan.between() == {("bank", "stock"): 1, ("stock", "bank"): 0}
    with pytest.raises(ForkRefused, match="stock can't be cut where the others fit: it has received more of bank"):
        await planned(folder, monkeypatch, {"bank": [bank, bank], "stock": [stock, stock]})


@pytest.mark.asyncio
async def test_service_that_is_not_forked_or_named_twice_is_refused(folder: Folder) -> None:
    path = Path(folder.config.directory).parent / "bank.yaml"
    path.write_text(MANIFEST.replace("  tokenFile: bank.token\n", "").replace("bank.py:bank", "bank:bank"))
    source = fork.Source(folder.config, read_manifest(path))
    with pytest.raises(InvalidArgument, match="named twice"):
        await fork.plan_fork([source, source], {}, quiet)
    with pytest.raises(InvalidArgument, match="--at names stock"):
        await fork.plan_fork([source], {"stock": 3}, quiet)


# ---- what is written ---------------------------------------------------------------------------------------------


@pytest.mark.asyncio
async def test_directory_goes_on_at_the_cut_as_another_service(
    folder: Folder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = await originals.original_of(folder.config, ".")
    chain = original.look.reader.chain_at(original.look.view.head, 2)
    assert chain
    at = ForkPlace(2, chain, {}, {}, {}, {})

    async def run(config: ReplicaConfig, order: ReplayOrder) -> ReplayResult | None:
        assert (config, order.to) == (original.config, 2)
        assert order.fork is not None
        store = CheckpointStore(RealFileSystem(order.fork.directory), "fork")
        snapshot = folder.driver.snapshot()
        snapshot.lsn, snapshot.chain = Lsn(at.lsn), ChainHash(at.chain)
        store.announce(store.write(snapshot))
        return None

    monkeypatch.setattr(directory, "replay", run)
    made = tmp_path / "fork" / "bank"
    await directory.write_directory(directory.Forking(original, at, originals.position_of(original, at)), made, FORKED)
    config = msgspec.structs.replace(CONFIG, directory=str(made))
    look = await inspect(config)
    assert (look.record.service_id, look.record.incarnation) == (BANK.forked_id, BANK.forked_incarnation)
    assert (look.record.seed, look.view.head) == (original.record.seed, look.view.epoch)
    assert look.reader.routes.cut(look.view.head).base.lsn == 2
    assert (await verify_log(config, run=False)).problems == []
    adoption = read_adoption(str(made))
    assert (adoption.hold_outside, adoption.forked_with) == (True, ["stock"])
    assert (await prepare(config)).service_id == BANK.forked_id
    assert [each.name for each in (made / "replicas").iterdir()] == ["r0"]


def test_manifest_of_a_fork_names_the_same_files_from_another_folder(tmp_path: Path) -> None:
    (tmp_path / "here").mkdir()
    path = tmp_path / "here" / "bank.yaml"
    path.write_text(MANIFEST)
    for name in ("bank.py", "rows.dsn"):
        (path.parent / name).touch()
    (path.parent / "bank.token").write_text("x" * 32)
    (tmp_path / "fork").mkdir()
    written = tmp_path / "fork" / "bank.yaml"
    written.write_text(forked_manifest(read_manifest(path), ["bank", "stock"]))
    found = read_manifest(written)
    spec = found.manifest.spec
    assert (found.module, found.token) == (f"{path.parent}/bank.py:bank", "x" * 32)
    assert found.directory == tmp_path / "fork" / ".deathless" / "bank"
    assert spec.ingress is not None
    assert (spec.replicas, spec.ingress.port) == (2, 0)
    assert {peer.name: peer.path for peer in spec.peers} == {"mail": str(tmp_path / "mail")}
    assert spec.drivers[0].options == {"dsnFile": str(path.parent / "rows.dsn"), "statements": {"a": "SELECT 1"}}
    assert "podTemplate" not in written.read_text()


def test_manifest_of_a_fork_has_its_sinks_and_sources_read_the_same_files_and_listen_elsewhere(tmp_path: Path) -> None:
    here = tmp_path / "here"
    here.mkdir()
    path = here / "bank.yaml"
    path.write_text(MANIFEST + READS)
    for name in ("bank.py", "rows.dsn", "facts", "cookie"):
        (here / name).touch()
    (here / "bank.token").write_text("x" * 32)
    (tmp_path / "fork").mkdir()
    written = tmp_path / "fork" / "bank.yaml"
    written.write_text(forked_manifest(read_manifest(path), ["bank"]))
    spec = read_manifest(written).manifest.spec
    assert (spec.sinks[0].options.dsn_file, spec.sinks[0].topic) == (str(here / "rows.dsn"), "facts")
    lines, gate, broker, plain = (each.options for each in spec.sources)
    assert lines == {"folder": str(here / "in"), "glob": "*.jsonl"}
    assert gate == {"listen": "127.0.0.1:0", "cookieFile": str(here / "cookie")}
    assert plain == {"listen": "127.0.0.1:0"}, "the original has the port that is the default"
    files = {"tls": {"caFile": str(here / "ca.pem")}, "sasl": {"passwordFile": str(here / "word")}}
    assert {name: broker[name] for name in ("topic", "tls")} == {"topic": "facts", "tls": files["tls"]}
    assert broker["sasl"] == {"mechanism": "PLAIN", "username": "us", **files["sasl"]}


@pytest.mark.asyncio
async def test_folder_that_is_there_is_left_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "there" / "file").parent.mkdir()
    (tmp_path / "there" / "file").touch()
    with pytest.raises(InvalidArgument, match="is not empty"):
        await fork.carry_out(fork.ForkPlan([], []), tmp_path / "there", quiet)
    (tmp_path / "new.new").mkdir()
    with pytest.raises(InvalidArgument, match="left of a fork that did not end"):
        fork.check_folder(tmp_path / "new")
    await fork.carry_out(fork.ForkPlan([], []), tmp_path / "empty", quiet)
    assert (tmp_path / "empty").is_dir()
