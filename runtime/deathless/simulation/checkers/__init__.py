"""Judges of what a cluster did, by its outside alone.

Why apart: a checker that shares code or beliefs with what it judges shares its mistakes. Nothing here imports any
other part of the project; the input is a history of operations as their callers saw them, bytes seen on the wire,
and the log that was left at the end. Real processes are judged by the same code.
"""

from deathless.simulation.checkers.conservation import check_conservation
from deathless.simulation.checkers.exactly_once import check_exactly_once
from deathless.simulation.checkers.history import History, Operation, Outcome, Value, Violation
from deathless.simulation.checkers.linearizability import InconclusiveError, check_linearizable
from deathless.simulation.checkers.liveness import check_liveness
from deathless.simulation.checkers.log_order import check_log_order
from deathless.simulation.checkers.models import MODELS, BankModel, CounterModel, Model, RegisterModel
from deathless.simulation.checkers.order import check_session_order
from deathless.simulation.checkers.peers import (
    Began,
    Told,
    check_activities,
    check_answers,
    check_pair,
    check_told,
    check_wire,
)
from deathless.simulation.checkers.released import Released, check_released
from deathless.simulation.checkers.replies import check_replies

__all__ = [
    "MODELS",
    "BankModel",
    "Began",
    "CounterModel",
    "History",
    "InconclusiveError",
    "Model",
    "Operation",
    "Outcome",
    "RegisterModel",
    "Released",
    "Told",
    "Value",
    "Violation",
    "check_activities",
    "check_answers",
    "check_conservation",
    "check_exactly_once",
    "check_linearizable",
    "check_liveness",
    "check_log_order",
    "check_pair",
    "check_released",
    "check_replies",
    "check_session_order",
    "check_told",
    "check_wire",
]
