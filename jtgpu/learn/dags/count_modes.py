"""How `jtgpu.learn.dags.loops.counts.count_sets` evaluates the table of a set."""

from __future__ import annotations

BY_CELLS = 0  # one value, by the function that belongs to the number of cells
BY_ROWS = 1  # one value by each function
BY_FAMILY = 2  # BDs scores with each member as the child
MAX_COMBOS = 256  # AND-combinations of a set, above which its rows are scanned
