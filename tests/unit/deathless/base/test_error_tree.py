"""Every error that stands in a module of its own is found where all errors are."""

from __future__ import annotations

import pkgutil
from importlib import import_module

import pytest

from deathless.base import error_tree, errors

MODULES = sorted(each.name for each in pkgutil.iter_modules(error_tree.__path__))


@pytest.mark.parametrize("name", MODULES)
def test_all_of_a_module_can_be_imported_from_errors(name: str) -> None:
    module = import_module(f"{error_tree.__name__}.{name}")
    kinds = [each for each in vars(module).values() if isinstance(each, type)]
    own = {kind.__name__: kind for kind in kinds if kind.__module__ == module.__name__}
    assert own
    assert {each: getattr(errors, each, None) for each in own} == own
    assert own.keys() <= set(errors.__all__)
