"""Services that send to each other without disks and sockets: primaries over logs in memory, on bad connections.

A `Service` has a log and one primary after another, each made by replaying what its predecessor left. A primary that
was taken over from may live on and talk (I2). A `Link` is one connection: bytes arrive in order or not at all; its two
ends learn of its end at different times, so what an older one carried may arrive when a newer one stands already.

A message to a service says what is to be sent on: `b>c>x` at a makes a send `c>x` to b, b send `x` to c; `self>x` goes
to the own service. What a service received is what its log says, replayed.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from tests.unit.deathless.core.primary_world import SECRET, WALL_US, Echo, batch, call, owners_showing

from deathless.base.ids import ChainHash, Epoch, Incarnation, Lsn
from deathless.base.limits import Limits
from deathless.base.safeguards import ALL_SAFEGUARDS, Safeguards
from deathless.base.times import Times
from deathless.codec.frames import Frame, FrameKind, chain_after
from deathless.codec.messages import Kind, decode, encode
from deathless.codec.peer_messages import SELF, SELF_SESSION, Outputs, PeerHello, Target
from deathless.codec.session_proof import nonce_of
from deathless.codec.wire import (
    PacketReader,
    PeerIntroduction,
    PeerWelcome,
    Registered,
    Type,
    decode_batch,
    decode_peer_commit,
    decode_replies,
    decode_struct,
    struct_packet,
)
from deathless.core import effects as fx
from deathless.core import events as ev
from deathless.core.primary.admission import cut_messages
from deathless.core.primary.messaging import Tables
from deathless.core.primary.primary import Primary
from deathless.core.replica.replica import ShardPlace
from deathless.engine.shard.assembly import shard_around

LIMITS = Limits(
    clock_step_us=1 << 62,
    message_bytes_max=1000,
    frame_messages_max=8,
    frame_bytes_max=2000,
    segment_bytes_max=1 << 20,
    peer_window_bytes_max=1000,
    outbox_bytes_max=6000,
)
CLIENT = ev.Conn(1)
WINDOW = 3  # calls that a client has under way


class Relay(Echo):
    """Executor: sends on what a message says, keeps what it got."""

    def __init__(self) -> None:
        super().__init__()
        self.got: list[tuple[str, bytes]] = []  # (sender, text) of each message of a peer that ran
        self.sent: list[tuple[Target, bytes]] = []  # everything ever sent, in order
        self.fresh: list[tuple[Target, bytes]] = []

    def execute(
        self, session: int, first_seq: int, first_lsn: int, now_us: int, messages: Sequence[bytes]
    ) -> tuple[list[bytes], list[int]]:
        for message in messages:
            for part in decode(message).args.split(b";"):
                self._send_on(part)
        return super().execute(session, first_seq, first_lsn, now_us, messages)

    def execute_peer(
        self,
        peer: Target,
        first_seq: int,
        first_lsn: int,
        now_us: int,
        messages: Sequence[bytes],
        session: int = SELF_SESSION,
    ) -> list[int]:
        for message in messages:
            text = decode(message).args
            self.got.append((peer.service, text))
            self._send_on(text)
        return super().execute_peer(peer, first_seq, first_lsn, now_us, messages, session)

    def _send_on(self, text: bytes) -> None:
        name, arrow, rest = text.partition(b">")
        if arrow:
            target = SELF if name == b"self" else Target(name.decode(), 0)
            self.fresh.append((target, encode(Kind.FORK, args=rest)))

    def take_outputs(self) -> Outputs | None:
        if not self.fresh:
            return None
        messages, self.fresh = self.fresh, []
        self.sent += messages
        return Outputs(messages, [], [], [], [])


@dataclass(eq=False)
class Link:
    """One connection from a primary to another's."""

    sender: Life
    target: Target
    receiver: Life
    conn: ev.Conn
    there: deque[tuple[int, bytes]] = field(default_factory=deque)
    back: deque[tuple[int, bytes]] = field(default_factory=deque)
    ready: bool = False
    sender_open: bool = True
    receiver_open: bool = True


class Life:
    """One primary of a service, from its takeover on."""

    def __init__(self, net: Net, service: Service, epoch: int, frames: Sequence[Frame]) -> None:
        self.net = net
        self.service = service
        self.epoch = epoch
        self.frames = list(frames)
        self.dead = False
        self.dialed: set[Target] = set()
        self.links: dict[Target, Link] = {}
        self.accepted: dict[ev.Conn, Link] = {}
        self.todo: list[fx.RunFrame | fx.WriteControl] = []
        self.proofs: list[tuple[int, bool]] = []  # (number, the answer)
        self.place = ShardPlace(times=Times.at(WALL_US))
        self.executor = Relay()
        self.shard = shard_around(self.executor, net.limits, place=self.place)
        self.sessions = self.shard.sessions
        for frame in frames:
            self.shard.apply(frame)
        self.primary = Primary(
            replica=f"{service.name}{epoch}",
            epoch=epoch,
            sessions=self.sessions,
            limits=net.limits,
            safeguards=net.safeguards,
            lsn=self.place.lsn,
            chain=self.place.chain,
            times=self.place.times,
            wall_us=WALL_US,
            now=net.now,
            deaths={},
            tables=Tables(
                outbox=self.shard.outbox, peers=self.shard.peers, results=self.shard.results,
                undelivered=self.shard.undelivered,
                unknown=self.shard.unknown,
                due=lambda: self.place.due,
            ),
            owners=owners_showing(CLIENT, net.safeguards),
        )  # fmt: skip

    def begin(self) -> None:
        """Serve; everything replayed is confirmed by the opening."""
        self.service.proved = max(self.service.proved, self.place.lsn)
        self.do(self.primary.begin(self.net.now, WALL_US))

    def do(self, effects: Sequence[fx.Effect]) -> None:
        """Carry effects out."""
        for effect in effects:
            match effect:
                case fx.Send(conn, data):
                    self._send(conn, data)
                case fx.SendPeer(target, data):
                    link = self.links.get(target)
                    if link is not None and link.ready:
                        self._record(target, data)
                        link.there.extend(PacketReader(1 << 20).feed(data))
                case fx.DialPeer(target):
                    self.dialed.add(target)
                case fx.DropPeer(target):
                    self.dialed.discard(target)
                    self.hang_up(target, tell=False)
                case fx.Disconnect(conn):
                    link = self.accepted.pop(conn)
                    link.receiver_open = False
                case fx.Prove(number):
                    owned = self.service.life is self
                    if owned:
                        self.service.proved = max(self.service.proved, self.primary.synced_lsn)
                    self.proofs.append((number, owned))
                case fx.RunFrame() | fx.WriteControl():
                    self.todo.append(effect)
                case fx.NoteConfirmed():
                    pass  # nobody puts a log back here
                case fx.StopReplica():
                    self.dead = True
                case _:
                    raise AssertionError(effect)
        self.primary.check_invariants()
        self.sessions.check_invariants()
        self.shard.outbox.check_invariants()

    def _record(self, target: Target, data: bytes) -> None:
        """Keep what left, for the verdict."""
        for _, body in PacketReader(1 << 20).feed(data):
            sent = decode_batch(body)
            for index, message in enumerate(cut_messages(sent)):
                self.net.wire.append((self.service.name, target, sent.run.first_seq + index, message))

    def _send(self, conn: ev.Conn, data: bytes) -> None:
        packets = list(PacketReader(1 << 20).feed(data))
        if conn == CLIENT:
            self.service.answered(packets)
        elif conn in self.accepted:
            self.accepted[conn].back.extend(packets)

    def tell(self, event: ev.OfMessaging) -> None:
        """An event for messaging."""
        if not self.dead:
            self.do(self.primary.message_received(event, self.net.now, WALL_US))

    def step(self) -> None:
        """Write the frame that is due, and answer a proof."""
        if self.todo:
            effect = self.todo.pop(0)
            if isinstance(effect, fx.RunFrame):
                self.do(self.primary.frame_synced(self._run(effect), self.net.now, WALL_US))
            else:
                self.do(self.primary.control_synced(effect.confirmed_lsn, self.net.now, WALL_US))

    def prove(self) -> None:
        """Answer the proof that is under way."""
        if self.proofs and not self.dead:
            number, owned = self.proofs.pop(0)
            self.do(self.primary.proof_answered(number, owned, self.net.now, WALL_US))

    def _run(self, run: fx.RunFrame) -> ev.FrameSynced:
        first, prev = self.place.lsn + 1, ChainHash(self.place.chain)
        done = self.shard.execute(run.runs)
        chain = chain_after(prev, first, done.payload)
        frame = Frame(
            FrameKind.DATA, Epoch(self.epoch), Lsn(first), Lsn(run.confirmed_lsn), done.count, Incarnation(1),
            prev, chain, 0, done.payload,
        )  # fmt: skip
        self.place.chain = chain
        self.frames.append(frame)
        self.primary.digest = self.place.digest
        return ev.FrameSynced(
            frame, done.payload, 0, 4096, done.results, done.registered, self.place.times,
            done.sent, done.starts, done.stops, done.finished,
        )  # fmt: skip

    def hang_up(self, target: Target, *, tell: bool = True) -> None:
        """Our end of a connection to a peer ends; what is under way to it may still arrive."""
        link = self.links.pop(target, None)
        if link is not None:
            link.sender_open = False
            if tell and link.ready:
                self.tell(ev.PeerLost(target))

    def end(self) -> None:
        """The process ends."""
        self.dead = True
        for target in list(self.links):
            self.hang_up(target, tell=False)
        for link in self.accepted.values():
            link.receiver_open = False
        self.accepted.clear()


class Service:
    """A service: its name, its primary, and one client that asks again until it is answered."""

    def __init__(self, net: Net, name: str, asks: Sequence[bytes]) -> None:
        self.net = net
        self.name = name
        self.proved = 0
        self.hello = PeerHello(name, 0, name.encode().ljust(16, b"."), 1)
        self.asks = list(asks)
        self.session = 0
        self.answers = 0
        self.life = Life(net, self, 1, [])
        self.life.begin()
        self.former: list[Life] = []

    def answered(self, packets: Sequence[tuple[int, bytes]]) -> None:
        """The client reads."""
        for kind, body in packets:
            if kind == Type.REGISTERED:
                self.session = decode_struct(Registered, body).session
            elif kind == Type.REPLIES:
                for seq in decode_replies(body)[1]:
                    self.answers += seq == self.answers + 1

    @property
    def served(self) -> bool:
        return self.answers == len(self.asks)

    def ask(self) -> None:
        """The client sends, or sends again, what has no answer."""
        life = self.life
        if not self.session:
            life.do(life.primary.register_received(CLIENT, nonce_of(SECRET)))
        elif not self.served:
            texts = self.asks[self.answers : self.answers + WINDOW]
            sent = batch(self.session, self.answers + 1, list(map(call, texts)), acked=self.answers)
            life.do(life.primary.batches_received([(CLIENT, sent)]))
        life.do(life.primary.buffers_drained(self.net.now, WALL_US))

    def take_over(self, chance: random.Random, *, zombie: bool) -> None:
        """Another replica leads, from what stands in the log: all that was ever proved, and maybe more."""
        old = self.life
        ends = [frame.last_lsn for frame in old.frames if frame.last_lsn >= self.proved]
        cut = chance.choice([self.proved, *ends])
        if zombie:
            self.former.append(old)
        self.life = Life(self.net, self, old.epoch + 1, [f for f in old.frames if f.last_lsn <= cut])
        self.life.begin()
        if not zombie:
            old.end()


class Net:
    """All services, and all connections."""

    def __init__(
        self, asks: dict[str, list[bytes]], *, limits: Limits = LIMITS, safeguards: Safeguards = ALL_SAFEGUARDS
    ) -> None:
        self.now = 100.0
        self.limits = limits
        self.safeguards = safeguards
        self.links: list[Link] = []
        self.wire: list[tuple[str, Target, int, bytes]] = []  # (sender, target, position, message): all that left
        self.conns = 10
        self.services = {name: Service(self, name, texts) for name, texts in asks.items()}

    def lives(self) -> list[Life]:
        """Every primary that is alive, deposed ones too."""
        return [life for s in self.services.values() for life in (s.life, *s.former) if not life.dead]

    def connect(self, life: Life, target: Target, receiver: Life) -> None:
        """Make a connection, and say who we are."""
        self.conns += 1
        link = Link(life, target, receiver, ev.Conn(self.conns))
        life.links[target] = link
        receiver.accepted[link.conn] = link
        self.links.append(link)
        outreach = life.primary.messaging.outreach
        said = struct_packet(Type.PEER_HELLO, outreach.introduction(target, life.service.hello, life.epoch))
        link.there.extend(PacketReader(1 << 20).feed(said))

    def connect_all(self, chance: random.Random | None = None) -> None:
        """Whoever wants a connection gets one: to the primary, or by chance to one that was."""
        for life in self.lives():
            for target in sorted(life.dialed - life.links.keys()):
                service = self.services[target.service]
                known = [service.life] if chance is None else [service.life, service.life, *service.former]
                receiver = known[0] if chance is None else chance.choice(known)
                if not receiver.dead:
                    self.connect(life, target, receiver)

    def carry_there(self, link: Link) -> None:
        """The next packet to a receiver arrives."""
        if not link.there:
            return
        kind, body = link.there.popleft()
        if not link.receiver_open or link.receiver.dead:
            return
        life = link.receiver
        if kind == Type.PEER_HELLO:
            said = decode_struct(PeerIntroduction, body)
            life.tell(ev.PeerHelloReceived(link.conn, said))
        else:
            life.do(life.primary.batches_received([(link.conn, decode_batch(body))]))
            life.do(life.primary.buffers_drained(self.now, WALL_US))

    def carry_back(self, link: Link) -> None:
        """The next packet to a sender arrives."""
        if not link.back:
            return
        kind, body = link.back.popleft()
        life = link.sender
        if life.links.get(link.target) is not link or life.dead:
            return
        if kind == Type.PEER_WELCOME:
            told = decode_struct(PeerWelcome, body)
            link.ready = True
            life.tell(ev.PeerReady(link.target, told.session, told.next_position, told.history))
        elif kind == Type.PEER_COMMIT:
            life.tell(ev.PeerCommitted(link.target, decode_peer_commit(body)[1]))
        else:
            life.hang_up(link.target)

    def lose(self, link: Link, chance: random.Random) -> None:
        """One end learns that the connection ended, or both do; what was under way is lost, or arrives late."""
        if chance.random() < 0.5:
            link.there.clear()
        if chance.random() < 0.5:
            self._receiver_learns(link)
        if link.sender.links.get(link.target) is link:
            link.sender.hang_up(link.target)

    @staticmethod
    def _receiver_learns(link: Link) -> None:
        life = link.receiver
        link.receiver_open = False
        if life.accepted.pop(link.conn, None) is not None and not life.dead:
            life.do(life.primary.connection_lost(link.conn, life.net.now, WALL_US))

    def settle(self, steps: int = 3000, *, must: bool = True) -> None:
        """Let everything come to its end, which it must: no more faults, deposed primaries learn that they are."""
        for service in self.services.values():
            for life in service.former:
                life.end()
            service.former.clear()
        for _ in range(steps):
            for link in self.links:
                if link.sender.dead or not link.sender_open:
                    self._receiver_learns(link)
                if not link.receiver_open and link.sender.links.get(link.target) is link:
                    link.sender.hang_up(link.target)
            self.links = [link for link in self.links if link.sender_open or link.receiver_open]
            self.connect_all()
            for link in list(self.links):
                while link.there or link.back:
                    self.carry_there(link)
                    self.carry_back(link)
            for service in self.services.values():
                service.ask()
                service.life.step()
                service.life.prove()
            self.now += 0.2
            for life in self.lives():
                life.do(life.primary.timer_fired(self.now, WALL_US))
            if self.quiet:
                return
        assert not must, "it does not come to its end"

    @property
    def quiet(self) -> bool:
        """Everybody is served, every outbox is empty."""
        return all(
            s.served and not s.life.shard.outbox.bytes and s.life.primary.drained for s in self.services.values()
        )

    # ---- the verdict -----------------------------------------------------------------------------------------

    def verdict(self) -> list[str]:
        """What is wrong: each log is replayed in a fresh process, and compared with the others and with the wire."""
        wrong: list[str] = []
        replayed: dict[str, Relay] = {}
        for name, service in self.services.items():
            executor = Relay()
            shard = shard_around(executor, self.limits, place=ShardPlace(times=Times.at(WALL_US)))
            for frame in service.life.frames:
                shard.apply(frame)
            replayed[name] = executor
        for name, executor in replayed.items():
            for other, peer in replayed.items():
                target = SELF if other == name else Target(other, 0)
                sent = [decode(message).args for to, message in executor.sent if to == target]
                got = [text for sender, text in peer.got if sender == ("" if other == name else name)]
                if sent != got:
                    wrong.append(f"{name} sent {sent} to {other}, which got {got}")
        for name, target, position, message in self.wire:
            meant = [m for to, m in replayed[name].sent if to == target]
            if position > len(meant) or meant[position - 1] != message:
                wrong.append(f"{name} sent {message!r} at {position} to {target}, its log does not")
        return wrong


def rough_run(
    seed: int, asks: dict[str, list[bytes]], *, safeguards: Safeguards = ALL_SAFEGUARDS, steps: int = 400
) -> Net:
    """Let services talk while connections break and primaries are taken over from, then come to an end."""
    chance = random.Random(seed)
    net = Net(asks, safeguards=safeguards)
    for _ in range(steps):
        lives = net.lives()
        life = chance.choice(lives)
        what = chance.random()
        if what < 0.2:
            life.step()
        elif what < 0.4:
            life.prove()
        elif what < 0.5:
            chance.choice(list(net.services.values())).ask()
        elif what < 0.55:
            net.connect_all(chance)
        elif what < 0.93:
            if net.links:
                link = chance.choice(net.links[-6:])
                chance.choice((net.carry_there, net.carry_back))(link)
        elif what < 0.95:
            if net.links:
                net.lose(chance.choice(net.links[-6:]), chance)
        elif what < 0.97:
            service = chance.choice(list(net.services.values()))
            service.take_over(chance, zombie=chance.random() < 0.5)
        else:
            net.now += chance.choice((0.01, 0.06, 1.5))
            life.do(life.primary.timer_fired(net.now, WALL_US))
    net.settle()
    return net
