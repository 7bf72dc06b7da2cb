"""How values and failures become bytes, the same in every process."""
