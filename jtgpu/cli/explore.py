"""``jtgpu explore``: from a table of cases to a network, its certainty, its accuracy and its page."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

import numpy as np
from click import BadParameter

from ..draw import arcs
from ..errors import DataError, JtgpuError, closest
from ..formats.registry import file_suffixes
from ..learn.column_facts import ColumnFacts, facts_of, n_repeated, without_nan
from ..learn.dags.best_graph import TimeLimit
from ..learn.dags.task import require_feasible
from ..learn.discretisation import discretise
from ..learn.exploration import MAX_VARIABLES, Exploration, Learning, numeric_options, options_of
from ..learn.validation_result import NumberValidation
from ..options.tables import ReadOptions
from ..util import late_imports
from ..util.atomic_file import write_text
from ..util.text_table import counted
from .console import print_json, read_cases, reading, warn
from .declared import Explore
from .networks import check_outputs, check_picture, split_names
from .saving import output_format, save_network
from .tables import on_terminal, print_note, print_rows, status

if TYPE_CHECKING:
    from ..learn.validation_result import Validation

def explore(o: Explore, read: ReadOptions) -> None:
    """Run ``jtgpu explore``."""
    if o.data.lower().endswith(file_suffixes()):
        raise DataError(f"{o.data} is a network, and explore reads tables: jtgpu info, jtgpu serve or jtgpu query")
    writer = output_format(o.output, o.continuous)
    check_outputs(o.force, o.output)
    check_picture(o.draw, o.force, "--draw")
    limit = TimeLimit.of(o.seconds or None)
    with status("reading", o.progress), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UserWarning)
        require_feasible(o.data, time=limit, dialect=reading(o.data, read))
        table = without_nan(read_cases(o.data, read))
        left_out = split_names(o.exclude or [], table.column_names, "column")
        described = [facts_of(table, name, o.bins, name in left_out, o.continuous) for name in table.column_names]
    facts = [of_column for of_column, _ in described]
    notes = [str(w.message).partition("; ")[0] for w in caught]
    notes += [note for _, of_column in described for note in of_column]
    if n := n_repeated(table, facts):
        notes.append(f"{counted(n, 'row')} equal to earlier ones in every column, which count again")
    kept = [f.name for f in facts if f.is_kept]
    result = Exploration(o.data, table.num_rows, facts, goal=_target(o.target, kept, facts) if len(kept) > 1 else "")
    if not o.json:
        _print_columns(result, o.seconds)
    with _printed(notes):
        _target(o.target, kept, facts)
    is_certain = len(kept) <= MAX_VARIABLES and o.seconds > 0
    if o.draw is not None and not is_certain:
        raise DataError(f"--draw needs probabilities of arcs: --seconds above 0, at most {MAX_VARIABLES} variables")
    cases, numeric = table.select(kept), [f.name for f in facts if f.kind == "numbers"]
    with _printed(notes), status("finding intervals", o.progress) as step, warnings.catch_warnings(record=True) as more:
        warnings.simplefilter("always", UserWarning)
        try:
            if numeric and not o.continuous:
                cases = discretise(cases, bins=o.bins, columns=numeric).apply(cases)
            result.options = numeric_options(cases, numeric, o.seed) if o.continuous else options_of(cases, o.seed)
            learn = Learning(cases, numeric if o.continuous else None, result.options, limit, notes)
            result.learn(learn, step, is_certain)
        except KeyboardInterrupt:
            if result.network is None:
                raise
            notes.append("interrupted: the rest is left out")
    network = result.network
    assert network is not None
    said = (str(w.message).partition("; ")[0] for w in more)
    notes += [text for text in dict.fromkeys(said) if not text.startswith("states that are nearly")]  # named above
    if o.draw is not None and result.certainty is not None:
        write_text(o.draw, arcs(result.certainty).text(o.draw.suffix))
    refused = save_network(network, o.output, writer)
    if o.json:
        print_json(result.as_json() | {"output": o.output, "notes": notes})
    else:
        _print_results(result)
    for note in dict.fromkeys(notes):
        warn(note)
    if refused is not None:
        raise refused
    if on_terminal() and not o.json if o.serve is None else o.serve:
        with network.compile() as tree, late_imports.serving().serve(tree) as server:
            print(f"\n{server.url}  (Ctrl-C ends)", flush=True)
            with suppress(KeyboardInterrupt):
                server.wait()


@contextmanager
def _printed(notes: Sequence[str]) -> Iterator[None]:
    """Print the notes before an error."""
    try:
        yield
    except JtgpuError:
        for note in dict.fromkeys(notes):
            warn(note)
        raise


def _target(given: str | None, kept: Sequence[str], facts: Sequence[ColumnFacts]) -> str:
    """The column whose prediction is judged."""
    if len(kept) < 2:
        raise DataError(f"{counted(len(kept), 'column')} can be used; a network needs two")
    if given is None:
        return kept[-1]
    if given not in kept:
        why = [f"the column {given!r} is {f.use}" for f in facts if f.name == given]
        reason = why[0] if why else f"there is no column {given!r}{closest(given, kept)}"
        raise BadParameter(reason, param_hint="--target")
    return given


def _print_columns(result: Exploration, time: float) -> None:
    """Print the columns, before anything is learned from them."""
    print_note(f"{result.data}: {counted(result.n, 'row')}, {counted(len(result.facts), 'column')}")
    print_rows(
        ("column", "kind", "distinct", "missing", "use"),
        [
            (f.name, f.kind, f"{f.distinct:,}", f"{100 * f.missing:.1f} %" if f.missing else "", f.use)
            for f in result.facts
        ],
    )
    n = sum(f.is_kept for f in result.facts)
    how_long = f"about {time:g} s at most (--seconds)" if time else "no limit of time"
    print()
    print_note(f"Learning from {counted(n, 'column')}: {how_long}; Ctrl-C ends the current step")


def _print_results(result: Exploration) -> None:
    """Print arcs and accuracy."""
    assert result.learned is not None
    used = result.n - result.learned.n_dropped
    how = {
        "drop": f", by {used:,} of {result.n:,} rows: those without gaps" * (used < result.n),
        "available": ", each family by the rows that are complete in it",
    }
    arcs = counted(len(result.learned.arcs), "arc")
    print_note(f"Network: {arcs}{how.get(result.options.get('missing', ''), '')}")
    if result.certainty is None:
        print_rows(("parent", "child"), result.learned.arcs)
    else:
        p = result.certainty.edge_probabilities
        print_rows(
            ("parent", "child", "P(arc)", "P(link)"),
            [
                (u, v, f"{p[u, v]:.3f}", f"{min(p[u, v] + p[v, u], 1.0):.3f}")
                for u, v in sorted(result.learned.arcs, key=lambda arc: -p[arc])
            ],
        )
        print_note(result.certainty.summary())
    judged = result.accuracy
    if judged is None:
        return
    print()
    of = f"of {counted(len(judged.observed), 'row')}, {_how(judged)}"
    if isinstance(judged, NumberValidation):
        print_note(
            f"Error for {result.goal}: {judged.rmse:.4g} (root mean square) {of} (mean: {judged.baseline:.4g}), "
            f"{100 * judged.coverage(0.9):.1f} % in 90 % intervals"
        )
    else:
        most = f"most frequent state: {100 * judged.baseline:.1f} %"
        print_note(
            f"Accuracy for {result.goal}: {100 * judged.accuracy:.1f} % {of} ({most}), log loss {judged.log_loss:.3f}"
        )


def _how(judged: Validation | NumberValidation) -> str:
    """How a figure was found."""
    n = len(np.unique(judged.fold))
    return f"by {n}-fold cross-validation" if n > 1 else "of a fifth that was held out, because of the time limit"
