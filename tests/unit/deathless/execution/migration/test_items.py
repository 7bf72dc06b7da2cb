"""Items of an old map: what a function sees of them, in their order."""

from __future__ import annotations

from deathless.codec.map_entries import encode_item, prefix_of
from deathless.execution.migration.items import OldItems, chain_of

KEY = b"shelf"
PREFIX = prefix_of(KEY, "items")


def test_old_items_are_given_in_order_and_asking_is_noted() -> None:
    held = {encode_item(name): name.encode() for name in "ca"}
    table = OldItems(KEY, {"items": held})
    assert not table.looked
    first = table.after(PREFIX, PREFIX)
    assert first == PREFIX + b"sa"
    assert table.after(PREFIX, first or b"") == PREFIX + b"sc"
    assert table.after(PREFIX, PREFIX + b"sc") is None
    assert (table.get(PREFIX, PREFIX + b"sc"), table.get(PREFIX, PREFIX + b"sx")) == (b"c", None)
    assert table.get(prefix_of(KEY, "other"), b"") is None
    assert table.after(prefix_of(KEY, "other"), b"") is None
    assert table.looked


def test_the_chain_names_what_was_and_the_upgrade() -> None:
    assert len(chain_of(b"c", b"u")) == 16
    assert len({chain_of(b"c", b"u"), chain_of(b"d", b"u"), chain_of(b"c", b"v")}) == 3
