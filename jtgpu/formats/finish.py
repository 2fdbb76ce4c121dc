"""A `Draft` becomes a network: everything is checked, errors have the place of their cause, rows are normalised."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol, cast

import numpy as np

from ..errors import NetworkError, ParseError
from ..model.cpts import ROW_TOLERANCE, RowReport, normalize_rows
from ..model.decisions import DecisionNetwork
from ..model.discrete import MAX_AXES
from ..model.dynamic import DynamicNetwork
from ..model.gaussian import Gaussian
from ..model.mixed import MixedNetwork
from ..model.network import BayesianNetwork
from ..model.templates import of_tables
from ..util.arrays import Floats
from ..util.options import Decisions, ZeroRows
from .canonical_nodes import turned_back
from .draft import MAX_NOTES, Draft, FamilyDraft, settle, utility_table
from .number_cursor import restore_ends
from .text import shortened

# Numbers that a file implies without containing them (a node without a table is uniform). The limit prevents a short
# file from exhausting the memory.
MAX_IMPLIED = 1 << 24
BATCH = 1 << 14  # numbers normalised in one call


def shape_tables(draft: Draft, *, chance_only: bool = False) -> None:
    """Fill `tables`: check names and counts, create implied tables, reshape all tables."""
    # chance_only: see `jtgpu.formats.decision_nodes.settle`
    # raises ParseError: With the position of the wrong name or data.
    draft.is_mixed = not chance_only and accept(draft)
    settle(draft, chance_only=chance_only)
    implied = 0
    for family in draft.families.values():
        draft.check_names(family)
    for v, states in draft.states.items():
        family = draft.families.get(v) or FamilyDraft(v, [], draft.declared[v])
        if family.noisy is not None:
            continue
        shape = (*(len(draft.states[p]) for p, _ in family.parents), len(states))
        size = math.prod(shape)
        if v in draft.decisions and not chance_only:
            continue
        if family.numbers is None:
            implied += size
            if implied > MAX_IMPLIED:
                raise draft.source.error(
                    family.at,
                    f"{v!r} has no numbers, and a uniform table of {size} entries is too large to be implied",
                )
            draft.note(family.at, f"{v!r} {'is a decision' if v in draft.decisions else 'has no numbers'}: uniform")
            draft.tables[v] = np.full(shape, 1.0 / len(states))
            continue
        if family.numbers.size != size:
            axes = " x ".join(f"{len(draft.states[n])} ({n!r})" for n in [*(p for p, _ in family.parents), v])
            raise draft.source.error(
                family.data_at, f"found {family.numbers.size} numbers for {v!r}, expected {size} = {axes}"
            )
        draft.tables[v] = family.numbers.reshape(shape)
        if family.n_open >= 0:
            _note_depth(draft, family)


def _note_depth(draft: Draft, family: FamilyDraft) -> None:
    """Note parentheses that do not reflect the table's axes: one pair per parent configuration at each depth."""
    expected, rows = 1, 1
    for p, _ in family.parents:
        rows *= len(draft.states[p])
        expected += rows
    if family.n_open != expected:
        draft.note(
            family.data_at,
            f"the data of {family.child!r} have {family.n_open} pairs of parentheses where its "
            f"{len(family.parents)} parents make {expected}; read by the order of the numbers",
        )


def finish(draft: Draft, zero_rows: ZeroRows = "error", decisions: Decisions = "network") -> BayesianNetwork:
    """Check everything, normalise the rows and return the network, which takes over the arrays."""
    # zero_rows: {"error", "uniform"}: Whether a CPT row of zeros is an error or stands for the uniform distribution
    # decisions: {"network", "chance"}: Whether decisions make a decision network, or are uniform chance variables
    # raises ParseError: If the file is wrong, with the position.
    if not draft.tables:
        shape_tables(draft, chance_only=decisions == "chance")
    utilities = {u: utility_table(draft, u) for u in draft.utilities}
    exact = {v for v, family in draft.families.items() if family.exact}
    reports = [RowReport(sum(draft.tables[v][..., 0].size for v in draft.tables if v in exact))]
    try:
        for names in _batches(draft):
            for v in names:
                _check_numbers(draft, v, draft.tables[v], zero_rows)
            tables = {v: draft.tables[v] for v in names if v not in exact}
            tables, report = normalize_rows(tables, zero_rows=zero_rows, in_place=True)
            draft.tables |= tables
            reports.append(report)
        for family in draft.families.values():
            family.numbers = None  # releases the numbers that normalisation has copied
        for table in draft.tables.values():
            _freeze(table)
        noisy = {v: family.noisy for v, family in draft.families.items() if family.noisy is not None}
        parts = turned_back(draft, draft.parents(), {**draft.tables, **noisy})
        more: dict[str, Any] = {
            "name": draft.name, "attributes": _all_attributes(draft), "row_report": _all_in_one(reports),
        }  # fmt: skip
        if decisions == "chance" or not (draft.decisions or utilities):
            net = BayesianNetwork(**parts, **more)
            if draft.slices is not None:
                return cast(BayesianNetwork, dynamic_network(draft, net))
            return cast(BayesianNetwork, mixed_network(draft, net)) if draft.is_mixed else net
        made = DecisionNetwork(
            draft.states, draft.parents(), draft.tables, decisions=[*draft.decisions], utilities=utilities, **more
        )
        if draft.slices is not None:
            raise no_decisions(draft)
        return cast(BayesianNetwork, made)
    except NetworkError as error:
        at = _cycle_at(draft)
        place = (None, None) if at is None else draft.source.place(at)
        raise ParseError(shortened(str(error)), draft.source.name, *place) from None


def _batches(draft: Draft) -> Iterator[list[str]]:
    """The variables in batches, large enough to amortise a call and small enough to need little memory."""
    names: list[str] = []
    size = 0
    for v, table in draft.tables.items():
        names.append(v)
        size += table.size
        if size > BATCH:
            yield names
            names, size = [], 0
    yield names


def _check_numbers(draft: Draft, v: str, table: Floats, zero_rows: ZeroRows) -> None:
    if not (table.min(initial=0.0) >= 0 and table.max(initial=0.0) < np.inf):  # also catches NaN
        flat = table.ravel()
        at = int((~((flat >= 0) & (flat < np.inf))).argmax())
        raise _number_error(draft, v, at, f"the table of {v!r} holds {flat[at]:g}, which is not a probability")
    if v in draft.families and draft.families[v].exact:
        sums = table.sum(axis=-1)
        off = np.abs(sums - 1.0) > ROW_TOLERANCE
        what = "a row of the table of {v!r} sums to {sum:.9g}, not to 1, though it is marked as exact"
    elif zero_rows == "error":
        sums = table.max(axis=-1)
        off = sums == 0
        what = (
            "a row of the table of {v!r} is all zeros ({n} of {n_rows} are), which is not a distribution "
            '(zero_rows="uniform" makes them uniform)'
        )
    else:
        return
    if off.any():
        row = int(off.argmax())
        what = what.format(v=v, n=int(off.sum()), n_rows=off.size, sum=float(sums.flat[row]))
        raise _number_error(draft, v, row * table.shape[-1], what)


def _number_error(draft: Draft, v: str, position: int, message: str) -> ParseError:
    family = draft.families[v]
    return draft.source.error(family.locate(position) if family.locate else family.at, message)


def _cycle_at(draft: Draft) -> int | None:
    """Offset of the first table whose child is on a cycle or a descendant of one; None if there is no cycle."""
    waiting = {v: set(p) for v, p in draft.parents().items()}
    children: dict[str, list[str]] = {v: [] for v in waiting}
    for v, before in waiting.items():
        for p in sorted(before):
            children[p].append(v)
    ready = [v for v, before in waiting.items() if not before]
    while ready:
        p = ready.pop()
        for v in children[p]:
            waiting[v].discard(p)
            if not waiting[v]:
                ready.append(v)
    return min((draft.families[v].at for v, before in waiting.items() if before), default=None)


def _all_attributes(draft: Draft) -> dict[str, dict[str, Any]]:
    for kept in draft.attributes["node"].values():
        restore_ends(kept)
    notes = [
        f"{draft.source.name}:{line}:{column}: {text}"
        for (line, column), text in ((draft.source.place(at), text) for at, text in draft._notes)
    ]
    if draft._n_notes > MAX_NOTES:
        notes.append(f"{draft.source.name}: {draft._n_notes - MAX_NOTES} more like these")
    read = {"format": draft.format, "notes": tuple(notes)}
    return {**draft.attributes, "read": {**read, "skipped": draft.skipped} if draft.skipped else read}


def _freeze(table: Floats) -> None:
    """Make a table and the arrays that it is a view of read-only, so that the network does not copy it."""
    array: Any = table
    while isinstance(array, np.ndarray):
        array.flags.writeable = False
        array = array.base


def _all_in_one(reports: Sequence[RowReport]) -> RowReport:
    """Combine the reports of several calls of `normalize_rows`."""
    uneven = [r for r in reports if r.worst_variable is not None]
    worst = max(uneven, key=lambda r: max(r.worst_sum, 1.0 / r.worst_sum), default=RowReport())
    return RowReport(
        n_rows=sum(r.n_rows for r in reports),
        n_off=sum(r.n_off for r in reports),
        worst_variable=worst.worst_variable,
        worst_sum=worst.worst_sum,
        variables=tuple(v for r in reports for v in r.variables),
        zero_rows=tuple(z for r in reports for z in r.zero_rows),
    )


class Parse(Protocol):
    """The signature of every format's ``parse``."""

    def __call__(
        self, text: str, source: str = "<text>", *, zero_rows: ZeroRows = "error", decisions: Decisions = "network"
    ) -> BayesianNetwork:
        """Parse the text of a network."""
        # source: The file's name, for error messages
        # zero_rows, decisions: See `finish`
        # returns With ``attributes`` and ``row_report``; ``attributes["read"]["notes"]`` lists irregularities.
        # raises ParseError: With line and column.


def parsers_of(read: Callable[[str, str], Draft]) -> tuple[Callable[..., Draft], Parse]:
    """``parse_draft`` and ``parse`` of a format, from the function that reads a text with the name of its source."""

    def parse_draft(text: str, source: str = "<text>") -> Draft:
        draft = read(text, source)
        shape_tables(draft)
        return draft

    def parse(
        text: str, source: str = "<text>", *, zero_rows: ZeroRows = "error", decisions: Decisions = "network"
    ) -> BayesianNetwork:
        return finish(read(text, source), zero_rows, decisions)

    return parse_draft, parse


def accept(draft: Draft) -> bool:
    """Whether the file is a mixed network; its numbers are then no longer refused."""
    # raises ParseError: If a number has a child with states.
    if not draft.numbers or draft.decisions or draft.utilities or set(draft.refused) - set(draft.numbers):
        return False
    if any(not node.densities for node in draft.numbers.values()):
        return False
    for family in draft.families.values():
        for p, at in family.parents:
            if p in draft.numbers:
                raise draft.source.error(
                    at, f"the number {p!r} is a parent of {family.child!r}, which has states: exact answers need arcs "
                    "from states to numbers only"
                )  # fmt: skip
    draft.refused.clear()
    return True


def mixed_network(draft: Draft, discrete: BayesianNetwork) -> MixedNetwork:
    """The network of a draft whose numbers were accepted, with the finished network of its states."""
    # raises ParseError, NetworkError: If parents are not declared, or a density does not fit them.
    gaussians: dict[str, Gaussian] = {}
    parents = {v: discrete.parents(v) for v in discrete}
    for v, node in draft.numbers.items():
        for p, at in node.parents:
            if p not in draft.numbers and p not in draft.states:
                raise draft.source.error(at, f"{v!r} has the parent {p!r}, which is not declared")
        parents[v] = tuple(p for p, _ in node.parents)
        numeric = [p for p in parents[v] if p in draft.numbers]
        shape = tuple(len(draft.states[p]) for p in parents[v] if p not in draft.numbers)
        if len(shape) >= MAX_AXES:
            raise draft.source.error(node.at, f"{v!r} has {len(shape)} parents, more than an array has axes")
        if len(node.densities) != math.prod(shape):
            axes = " x ".join(str(c) for c in shape) or "1"
            raise draft.source.error(
                node.data_at, f"found {len(node.densities)} densities for {v!r}, expected {math.prod(shape)} = {axes}"
            )
        for row in node.densities:
            odd = next((p for p in row.coefficients if p not in numeric), None)
            if odd is not None:
                raise draft.source.error(
                    node.data_at, f"the density of {v!r} depends on {odd!r}; its numeric parents are {numeric}"
                )
        gaussians[v] = Gaussian(
            np.reshape([row.constant for row in node.densities], shape),
            {p: np.reshape([row.coefficients.get(p, 0.0) for row in node.densities], shape) for p in numeric},
            np.reshape([row.sd for row in node.densities], shape),
        )
    at_of = {v: draft.declared[v] for v in draft.states} | {v: node.at for v, node in draft.numbers.items()}
    order = draft.order if set(draft.order) == set(at_of) and len(draft.order) == len(at_of) else ()
    names = order or sorted(at_of, key=lambda v: at_of[v])
    net = MixedNetwork(
        {v: float if v in gaussians else draft.states[v] for v in names},
        parents,
        {v: gaussians[v] if v in gaussians else discrete.cpt(v) for v in names},
        name=draft.name,
    )
    if net.discrete == discrete:
        net.discrete = discrete  # with its attributes and the report of its rows
    return net


def dynamic_network(draft: Draft, net: BayesianNetwork) -> DynamicNetwork:
    """The template of a draft, with the finished network of its tables."""
    # raises ParseError: If the file has decisions, or the arcs are not those of a template.
    slices = draft.slices
    assert slices is not None
    families = {}
    for v, tables in slices.families.items():
        present = [label for label in tables if label in net]
        if present and len(present) < len(tables):
            raise draft.source.error(slices.at, f"a parent of {v!r} in an earlier slice cannot be read")
        if present:
            families[v] = present
    try:
        made = of_tables(net, slices.pairs, families, [v for v in slices.static if v in families])
        for v, axes in slices.axes.items():
            if v in families:
                _reorder(made, v, axes)
        return DynamicNetwork(**made, name=draft.name)
    except NetworkError as error:
        words = (re.sub(r"\[t(-\d+)?\]$", "", v) for v in re.findall(r"'([^']*)'", str(error)))
        named = next((v for v in words if v in families), None)
        at = slices.at if named is None else draft.declared.get(families[named][0], slices.at)
        raise draft.source.error(at, str(error)) from None


def no_decisions(draft: Draft) -> ParseError:
    """The error about a dynamic network with decisions."""
    assert draft.slices is not None
    return draft.source.error(
        draft.slices.at, "found decisions or utilities in a dynamic network; decisions='chance' or --chance-only makes "
        "decisions uniform chance variables, and leaves out utilities"
    )  # fmt: skip


def _reorder(made: dict[str, Any], v: str, axes: Sequence[int]) -> None:
    """Put the parents of a variable into the order that the file has for them."""
    before: list[tuple[str, int]] = made["parents"][v]
    if sorted(axes) != list(range(len(before))):
        return
    after = [before[i] for i in axes]
    made["parents"][v], made["cpts"][v] = after, _moved(made["cpts"][v], before, after)
    m = max((lag for _, lag in before), default=0)
    if m:
        tables = [made["start"][v]] if m == 1 else made["start"][v]
        moved = [
            _moved(table, [p for p in before if p[1] <= t], [p for p in after if p[1] <= t])
            for t, table in enumerate(tables)
        ]
        made["start"][v] = moved[0] if m == 1 else moved


def _moved(table: Any, before: Sequence[object], after: Sequence[object]) -> Any:
    return np.ascontiguousarray(np.transpose(table, [*map(before.index, after), len(before)]))
