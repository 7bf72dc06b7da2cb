"""Records of agent and driver come whole and in order, however they are cut on their way."""

import json
import socket
from collections.abc import Iterator

import pytest

from deathless.spark.line import Ended, Fact, Line, Order


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, Line[Fact]]]:
    """A socket, and the line at the other end."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield theirs, Line(ours, Fact)


def test_records_come_as_they_were_sent() -> None:
    """In both directions."""
    one, other = socket.socketpair()
    with one, other:
        agent, driver = Line(one, Fact), Line(other, Order)
        agent.send(Order(7))
        driver.send(Fact(warm=True))
        driver.send(Fact(decided=3))
        assert driver.receive(1.0) == [Order(7)]
        assert agent.receive(1.0) == [Fact(warm=True), Fact(decided=3)]
        assert agent.receive(0.0) == []


def test_a_record_in_parts_is_waited_for(pair: tuple[socket.socket, Line[Fact]]) -> None:
    """And what is behind it is not lost."""
    theirs, line = pair
    theirs.sendall(b'{"decid')
    assert line.receive(0.0) == []
    theirs.sendall(b'ed":1}\n' + json.dumps({"decided": 2}).encode() + b"\n{")
    assert line.receive(1.0) == [Fact(decided=1), Fact(decided=2)]


def test_the_end_of_the_line_is_told(pair: tuple[socket.socket, Line[Fact]]) -> None:
    """To who reads and to who sends."""
    theirs, line = pair
    theirs.close()
    with pytest.raises(Ended):
        line.receive(1.0)
    with pytest.raises(Ended):
        line.send(Order(1))
