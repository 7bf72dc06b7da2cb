"""What one correct machine would answer, one operation at a time.

A model's state is a hashable value; ``step`` gives the state after an operation and the result its caller must see.
The names of actions and the shape of arguments and results are the contract with the workloads:

    register   write(value) -> None; cas(old, new) -> 1 or 0; read() -> value
    counter    add(amount) -> new total; read() -> total
    bank       deposit(amount) -> new balance; transfer(source key, target key; amount) -> None or ("error", "funds");
               balance() -> balance; total() over its keys -> sum

Imports nothing of ours but the history.
"""

from __future__ import annotations

from typing import Protocol

from deathless.simulation.checkers.history import Operation, Value

State = tuple[tuple[str, Value], ...]
"""Values by key, sorted by key; a key that is absent has the model's initial value."""

FUNDS = ("error", "funds")


class Model(Protocol):
    """One correct machine."""

    actions: frozenset[str]

    def initial(self, keys: tuple[str, ...]) -> State:
        """Give the state before the first operation, for the keys that a history touches."""
        ...

    def step(self, state: State, operation: Operation) -> tuple[State, Value]:
        """Give the state after the operation, and the result that its caller must see."""
        ...


def _get(state: State, key: str) -> Value:
    for name, value in state:
        if name == key:
            return value
    raise KeyError(key)


def _put(state: State, key: str, value: Value) -> State:
    return tuple((name, value if name == key else old) for name, old in state)


def _int(value: Value) -> int:
    assert isinstance(value, int)
    return value


class RegisterModel:
    """A register per key, None at first."""

    actions = frozenset({"write", "cas", "read"})

    def initial(self, keys: tuple[str, ...]) -> State:
        """All None."""
        return tuple((key, None) for key in sorted(keys))

    def step(self, state: State, operation: Operation) -> tuple[State, Value]:
        """Write, compare and swap, or read."""
        key = operation.keys[0]
        if operation.action == "write":
            return _put(state, key, operation.argument), None
        if operation.action == "cas":
            argument = operation.argument
            assert isinstance(argument, tuple)
            old, new = argument
            if _get(state, key) == old:
                return _put(state, key, new), 1
            return state, 0
        assert operation.action == "read", operation.action
        return state, _get(state, key)


class CounterModel:
    """A counter per key, 0 at first."""

    actions = frozenset({"add", "read"})

    def initial(self, keys: tuple[str, ...]) -> State:
        """All 0."""
        return tuple((key, 0) for key in sorted(keys))

    def step(self, state: State, operation: Operation) -> tuple[State, Value]:
        """Add or read."""
        key = operation.keys[0]
        value = _int(_get(state, key))
        if operation.action == "add":
            value += _int(operation.argument)
            return _put(state, key, value), value
        assert operation.action == "read", operation.action
        return state, value


class BankModel:
    """Accounts, 0 at first; a transfer that the source cannot pay changes nothing."""

    actions = frozenset({"deposit", "transfer", "balance", "total"})

    def initial(self, keys: tuple[str, ...]) -> State:
        """All 0."""
        return tuple((key, 0) for key in sorted(keys))

    def step(self, state: State, operation: Operation) -> tuple[State, Value]:
        """Deposit, transfer, or read."""
        key = operation.keys[0]
        if operation.action == "deposit":
            value = _int(_get(state, key)) + _int(operation.argument)
            return _put(state, key, value), value
        if operation.action == "transfer":
            amount = _int(operation.argument)
            source = _int(_get(state, key))
            if source < amount:
                return state, FUNDS
            state = _put(state, key, source - amount)
            target = operation.keys[1]
            return _put(state, target, _int(_get(state, target)) + amount), None
        if operation.action == "total":
            return state, sum(_int(_get(state, name)) for name in operation.keys)
        assert operation.action == "balance", operation.action
        return state, _get(state, key)


MODELS: dict[str, Model] = {"register": RegisterModel(), "counter": CounterModel(), "bank": BankModel()}
"""By the name that workloads use."""
