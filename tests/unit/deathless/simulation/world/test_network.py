"""Bytes keep their order within a connection and nothing else is promised."""

from collections.abc import Callable

from deathless.simulation.world.network import Endpoint, Network, NetworkProfile
from deathless.simulation.world.scheduler import Process, Scheduler

CALM = NetworkProfile(spike_share=0.0, split_share=0.0)


class Bench:
    """A server on host `s`, a client on host `c`, and what each saw."""

    def __init__(self, seed: int = 1, profile: NetworkProfile = CALM) -> None:
        self.scheduler = Scheduler(seed)
        self.network = Network(self.scheduler, self.scheduler.fork("network"), profile)
        self.server = self.scheduler.process("server", "s", lambda p, _: self.network.process_died(p))
        self.client = self.scheduler.process("client", "c", lambda p, _: self.network.process_died(p))
        self.at_server: list[bytes] = []
        self.at_client: list[bytes] = []
        self.told: list[str] = []
        self.server_ends: list[Endpoint] = []
        self.client_ends: list[Endpoint] = []
        self.server.start(lambda: self.network.listen(self.server, "s:1", self.accept))
        self.client.start(lambda: None)

    def accept(self, end: Endpoint) -> None:
        self.server_ends.append(end)
        end.on_data = self.at_server.append
        end.on_closed = lambda why: self.told.append(f"server {why}")

    def opened(self, end: Endpoint) -> None:
        self.client_ends.append(end)
        end.on_data = self.at_client.append
        end.on_closed = lambda why: self.told.append(f"client {why}")

    def connect(self, address: str = "s:1") -> None:
        self.client.post(lambda: self.network.connect(self.client, address, self.opened, self.told.append))
        self.run(10_000)

    def run(self, us: int) -> None:
        self.scheduler.run_until(self.scheduler.now_us + us)

    def by(self, process: Process, do: Callable[[], None], us: int = 0) -> None:
        process.post(do)
        self.run(us)


def test_pieces_arrive_in_order_whatever_their_latency() -> None:
    bench = Bench(profile=NetworkProfile(spike_share=0.5, split_share=0.5))
    bench.connect()
    sent = [bytes([n]) * 10 for n in range(50)]
    for piece in sent:
        bench.by(bench.client, lambda piece=piece: bench.client_ends[0].send(piece), 10)  # type: ignore[misc]
    bench.run(1_000_000)
    assert b"".join(bench.at_server) == b"".join(sent)
    assert len(bench.at_server) > 50
    assert bench.client_ends[0].buffered_bytes == 0


def test_a_late_piece_of_an_old_connection_may_arrive_after_a_newer_one() -> None:
    bench = Bench()
    bench.connect()
    bench.connect()
    bench.network.slow("c", 100_000)
    bench.by(bench.client, lambda: bench.client_ends[0].send(b"old"))
    bench.network.slow("c", 0)
    bench.by(bench.client, bench.client_ends[0].close)
    bench.by(bench.client, lambda: bench.client_ends[1].send(b"new"), 500_000)
    assert bench.at_server == [b"new", b"old"]
    assert bench.told == ["server closed"]


def test_connecting_where_nobody_listens_is_refused() -> None:
    bench = Bench()
    bench.connect("s:2")
    assert bench.told == ["refused"]


def test_connecting_over_a_held_link_times_out() -> None:
    bench = Bench()
    bench.network.hold("c", "s")
    bench.connect()
    bench.run(2_000_000)
    assert bench.told == ["timeout"]


def test_a_held_link_delivers_when_it_heals() -> None:
    bench = Bench()
    bench.connect()
    bench.network.hold("c", "s")
    bench.by(bench.client, lambda: bench.client_ends[0].send(b"1"))
    bench.by(bench.client, lambda: bench.client_ends[0].send(b"2"), 1_000_000)
    assert bench.at_server == []
    bench.by(bench.server, lambda: bench.server_ends[0].send(b"other way"), 10_000)
    assert bench.at_client == [b"other way"]
    bench.network.heal("c", "s")
    bench.run(10_000)
    assert bench.at_server == [b"1", b"2"]


def test_two_holds_need_two_heals() -> None:
    bench = Bench()
    bench.connect()
    bench.network.hold("c", "s")
    bench.network.hold("c", "s")
    bench.by(bench.client, lambda: bench.client_ends[0].send(b"1"))
    bench.network.heal("c", "s")
    bench.run(10_000)
    assert bench.at_server == []
    bench.network.heal("c", "s")
    bench.run(10_000)
    assert bench.at_server == [b"1"]


def test_a_cut_link_times_both_ends_out() -> None:
    bench = Bench()
    bench.connect()
    bench.network.cut("c", "s")
    bench.run(3_000_000)
    assert sorted(bench.told) == ["client timeout", "server timeout"]


def test_a_killed_process_is_heard_before_its_end_is() -> None:
    bench = Bench()
    bench.connect()
    bench.by(bench.client, lambda: bench.client_ends[0].send(b"last words"))
    bench.client.kill()
    bench.run(10_000)
    assert bench.at_server == [b"last words"]
    assert bench.told == ["server closed"]


def test_a_host_without_power_says_nothing_until_it_is_back() -> None:
    bench = Bench()
    bench.connect()
    bench.network.host_lost_power("s")
    bench.server.kill()
    bench.by(bench.client, lambda: bench.client_ends[0].send(b"1"), 10_000)
    assert bench.told == []
    bench.network.host_has_power("s")
    bench.by(bench.client, lambda: bench.client_ends[0].send(b"2"), 10_000)
    assert bench.told == ["client reset"]


def test_a_frozen_reader_keeps_its_connection_and_the_sender_sees_its_buffer_grow() -> None:
    bench = Bench()
    bench.connect()
    bench.server.freeze()
    bench.by(bench.client, lambda: bench.client_ends[0].send(b"12345"), 1_000_000)
    assert bench.client_ends[0].buffered_bytes == 5
    bench.server.thaw()
    bench.run(10)
    assert bench.at_server == [b"12345"]
    assert bench.client_ends[0].buffered_bytes == 0


def test_a_reset_tells_both_ends_and_nothing_arrives_at_a_closed_one() -> None:
    bench = Bench()
    bench.connect()
    bench.network.reset(bench.client_ends[0])
    bench.run(100_000)
    assert sorted(bench.told) == ["client reset", "server reset"]
    bench.by(bench.client, lambda: bench.client_ends[0].send(b"1"), 10_000)
    assert bench.at_server == []


def test_a_half_open_end_learns_it_when_it_sends() -> None:
    bench = Bench()
    bench.connect()
    bench.network.reset(bench.client_ends[0], half_open=True)
    bench.run(1_000_000)
    assert bench.told == ["client reset"]
    bench.by(bench.server, lambda: bench.server_ends[0].send(b"?"), 10_000)
    assert bench.told == ["client reset", "server reset"]


def test_ghosts_send_an_old_connections_bytes_once_more() -> None:
    bench = Bench(profile=NetworkProfile(spike_share=0.0, split_share=0.0, ghosts_share=1.0))
    bench.connect()
    bench.by(bench.client, lambda: bench.client_ends[0].send(b"once"), 10_000)
    bench.by(bench.client, bench.client_ends[0].close, 10_000_000)
    assert bench.at_server == [b"once", b"once"]
    assert len(bench.server_ends) == 2


def test_taps_see_what_leaves_even_if_it_never_arrives() -> None:
    bench = Bench()
    seen: list[bytes] = []
    bench.network.taps.append(lambda _, data: seen.append(data))
    bench.connect()
    bench.network.hold("c", "s")
    bench.by(bench.client, lambda: bench.client_ends[0].send(b"gone"))
    bench.client.kill()
    assert seen == [b"gone"]


def test_open_connections_can_be_asked_for_by_host() -> None:
    bench = Bench()
    bench.connect()
    assert bench.network.open_connections("c") == bench.client_ends
    assert bench.network.open_connections("x") == []
    bench.by(bench.client, bench.client_ends[0].close, 10_000)
    assert bench.network.open_connections() == []
