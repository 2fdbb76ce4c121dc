"""``jtgpu explore``: from a table of cases to a network, its certainty, its accuracy and its page."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cached_property
from time import monotonic
from typing import TYPE_CHECKING, Any

import numpy as np
from click import BadParameter

from ..columns.files import read_file
from ..draw import arcs
from ..errors import DataError, FormatError, JtgpuError, TableTooLarge, closest
from ..formats import writer_of
from ..learn.dags.best_graph import TimeLimit
from ..learn.dags.posterior.posterior import posterior
from ..learn.dags.structure import Structure, structure
from ..learn.dags.task import require_feasible
from ..learn.discretisation import discretise
from ..learn.number_validation import NumberValidation
from ..learn.parameters.fit import fit
from ..learn.parameters.sources import open_source
from ..learn.validation import validate
from ..model.network import BayesianNetwork
from ..options.compute import Compute
from ..util import late_imports
from ..util.atomic_file import write_text
from ..util.text_table import counted
from .column_facts import ColumnFacts, facts_of, without_nan
from .console import print_json, reading, warn
from .declared import CsvOptions, Explore
from .networks import check_output, check_picture, split_names
from .numbers import numeric_writer_of
from .saving import save_network
from .tables import on_terminal, print_rows, status

if TYPE_CHECKING:
    from ..learn.dags.posterior.result import StructurePosterior
    from ..learn.validation_result import Validation

MIN_COMPLETE = 0.5  # share of the rows without a missing cell from which the others are left out for the structure
MAX_VARIABLES = 60  # whose arcs get probabilities
FOLDS = 5  # of the cross-validation
SHARE_OF_STRUCTURE, SHARE_OF_EM, SHARE_OF_CHAINS = 0.3, 0.2, 0.5  # of the time that is left when they begin
LEAST = 0.2  # seconds of a step
LEAST_PASSES = 10  # of EM: if so many do not fit into the time, it does not begin
SECONDS_OF_ENTRY = 2e-9  # of a clique table and row, of a pass over the rows


def explore(o: Explore, csv: CsvOptions) -> None:
    """Run ``jtgpu explore``."""
    writer = None
    if o.output is not None:
        writer = (numeric_writer_of if o.continuous else writer_of)(o.output)
        check_output(o.output, o.force)
    if o.draw is not None:
        check_picture(o.draw, o.force, "--draw")
    limit = TimeLimit.of(o.seconds or None)
    with status("reading", o.progress), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UserWarning)
        require_feasible(o.data, time=limit, dialect=reading(o.data, csv.dialect()))
        table = without_nan(read_file(o.data, dialect=reading(o.data, csv.dialect()), na_values=csv.na_values))
        left_out = split_names(o.exclude or [], table.column_names, "column")
        described = [facts_of(table, name, o.bins, name in left_out, o.continuous) for name in table.column_names]
    facts = [of_column for of_column, _ in described]
    notes = [str(w.message).partition("; ")[0] for w in caught]
    notes += [note for _, of_column in described for note in of_column]
    kept = [f.name for f in facts if f.is_kept]
    result = _Exploration(o.data, table.num_rows, facts, goal=_target(o.target, kept, facts) if len(kept) > 1 else "")
    if not o.json:
        result.print_columns(o.seconds)
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
            result.options = numeric_options(cases, numeric, o.seed) if o.continuous else _options(cases, o.seed)
            learn = _Learning(cases, numeric if o.continuous else None, result.options, limit, notes)
            result.learn(learn, step, is_certain)
        except KeyboardInterrupt:
            if result.network is None:
                raise
            notes.append("interrupted: the rest is left out")
    network = result.network
    assert network is not None
    notes += dict.fromkeys(str(w.message).partition("; ")[0] for w in more)
    if o.draw is not None and result.certainty is not None:
        write_text(o.draw, arcs(result.certainty).text(o.draw.suffix))
    refused: FormatError | None = None
    if o.output is not None and writer is not None:
        try:
            save_network(network, o.output, writer)
        except FormatError as error:
            refused = error
    if o.json:
        print_json(result.as_json() | {"output": o.output, "notes": notes})
    else:
        result.print_results()
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
        why = [f"the column {given!r} is left out: {f.distinct:,} values, {f.kind}" for f in facts if f.name == given]
        reason = why[0] if why else f"there is no column {given!r}{closest(given, kept)}"
        raise BadParameter(reason, param_hint="--target")
    return given


def _options(cases: Any, seed: int) -> dict[str, Any]:
    """Options of the structure: rows with gaps are left out, or, where too few remain, families use what they have."""
    n = cases.num_rows
    complete = n - int(np.logical_or.reduce([column.is_null().to_numpy() for column in cases.columns]).sum())
    if complete == n:
        return {"seed": seed}
    if complete >= MIN_COMPLETE * n:
        return {"seed": seed, "missing": "drop"}
    return {"seed": seed, "missing": "available", "score": "bic"}


def numeric_options(cases: Any, numeric: Sequence[str], seed: int) -> dict[str, Any]:
    """Options of the structure of a table with numbers."""
    gaps = any(column.null_count for column in cases.columns)
    only_numbers = len(numeric) == cases.num_columns
    return {
        "seed": seed, "score": "bge" if only_numbers else "bic-cg", "continuous": list(numeric),
        "missing": "drop" if gaps else "error",
    }  # fmt: skip


@dataclass(frozen=True)
class _Learning:
    """How networks are learned from the columns that are kept, in a limited time."""

    cases: Any
    numeric: Sequence[str] | None  # columns that are numbers. None: they are intervals
    options: dict[str, Any]  # of the structure
    limit: TimeLimit
    notes: list[str]  # what users should know

    @property
    def kinds(self) -> dict[str, str] | None:
        """The argument `numbers` of `jtgpu.learn.fit`."""
        return None if self.numeric is None else dict.fromkeys(self.numeric, "gaussian")

    @cached_property
    def has_gaps(self) -> bool:
        """Whether cells are missing."""
        return any(column.null_count for column in self.cases.columns)

    @cached_property
    def declared(self) -> dict[str, list[str]]:
        """The states of all columns, which parts of the rows may not have."""
        names = [name for name in self.cases.column_names if name not in (self.numeric or ())]
        return {name: [*own] for name, own in open_source(self.cases, names).schema(names).states.items()}

    def seconds(self, share: float) -> float | None:
        """A share of the time that is left; None: there is no limit."""
        return max(share * self.limit.left, LEAST) if self.limit.is_set else None

    def structure(self, cases: Any, seconds: float | None) -> Structure:
        """The graph of some rows."""
        return structure(cases, states=self.declared, seconds=seconds, **self.options)

    def network(self, learned: Structure, cases: Any, seconds: float | None) -> Any:
        """The network of a graph: by EM where cells are missing, unless that takes too long."""
        until, options = TimeLimit.of(seconds), dict[str, Any]()
        if self.numeric is None and seconds is not None and self.has_gaps:
            pass_seconds = SECONDS_OF_ENTRY * _entries(learned) * self.cases.num_rows
            if LEAST_PASSES * pass_seconds > seconds:
                options["missing"] = "available"
                self.notes.append(
                    "the CPTs are by the rows that are complete in each family, not by EM, because of the time limit"
                )

        def out_of_time(entry: Any) -> None:
            if self.has_gaps and entry.number and not until.left:  # before the first one there is nothing to keep
                self.notes.append("EM ended before it had converged, because of the time limit")
                raise KeyboardInterrupt

        return fit(
            learned, cases, pseudo_counts="bdeu:1", states=self.declared, continuous=self.kinds,
            compute=Compute(progress=out_of_time), **options,
        ).network  # fmt: skip

    def judged(self, target: str, seconds_of_one: float, entries: float) -> Validation | NumberValidation | None:
        """Predictions of networks that the rows did not help to learn; None: there are too few rows, or no time."""
        # seconds_of_one: that learning a network has taken
        cases, n = self.cases, self.cases.num_rows
        one = seconds_of_one + SECONDS_OF_ENTRY * entries * n / FOLDS
        folds = FOLDS if FOLDS * one <= self.limit.left else 1
        if folds == 1 and one > self.limit.left + LEAST:
            self.notes.append("predictions were not judged, because of the time limit")
            return None

        def network(training: Any) -> Any:
            share = self.seconds(0.5 / folds)
            return self.network(self.structure(training, share), training, share)

        with suppress(JtgpuError):  # too few rows, or a network that is too large for exact inference
            if folds > 1:
                return validate(network, cases, target, folds=folds, seed=self.options["seed"])
            order = np.random.Generator(np.random.Philox(key=[self.options["seed"], 1])).permutation(n)
            fifth = n // FOLDS
            return validate(network(cases.take(order[fifth:])), cases.take(order[:fifth]), target, on_error="flag")
        return None


def _entries(learned: Structure) -> float:
    """Entries of the clique tables of the network; infinity: more than any machine has."""
    try:
        return learned.clique_entries
    except TableTooLarge:
        return math.inf


@dataclass
class _Exploration:
    """A table and what was learned from it, as far as the time allowed."""

    data: str
    n: int  # rows
    facts: Sequence[ColumnFacts]
    goal: str
    options: dict[str, Any] = field(default_factory=dict)  # of the structure
    learned: Structure | None = None
    network: BayesianNetwork | None = None
    certainty: StructurePosterior | None = None
    accuracy: Validation | NumberValidation | None = None

    def learn(self, learn: _Learning, step: Callable[[str], None], is_certain: bool) -> None:
        """Learn one thing after the other."""
        begin = monotonic()
        step("learning the structure")
        self.learned = learn.structure(learn.cases, learn.seconds(SHARE_OF_STRUCTURE))
        step("estimating the CPTs")
        self.network = learn.network(self.learned, learn.cases, learn.seconds(SHARE_OF_EM))
        seconds = monotonic() - begin
        if is_certain:
            step("computing the probabilities of the arcs")
            self.certainty = posterior(learn.cases, seconds=learn.seconds(SHARE_OF_CHAINS), **self.options)
        step("judging the predictions")
        entries = _entries(self.learned) if learn.numeric is None and learn.limit.is_set else 0.0
        self.accuracy = learn.judged(self.goal, seconds, entries)

    def print_columns(self, time: float) -> None:
        """Print the columns, before anything is learned from them."""
        prefix = "" if on_terminal() else "# "
        print(f"{prefix}{self.data}: {counted(self.n, 'row')}, {counted(len(self.facts), 'column')}")
        print_rows(
            ("column", "kind", "distinct", "missing", "use"),
            [
                (f.name, f.kind, f"{f.distinct:,}", f"{100 * f.missing:.1f} %" if f.missing else "", f.use)
                for f in self.facts
            ],
        )
        n = sum(f.is_kept for f in self.facts)
        how_long = f"about {time:g} s at most (--seconds)" if time else "no limit of time"
        print(f"\n{prefix}Learning from {counted(n, 'column')}: {how_long}; Ctrl-C ends the current step", flush=True)

    def print_results(self) -> None:
        """Print arcs and accuracy."""
        assert self.learned is not None
        prefix = "" if on_terminal() else "# "
        used = self.n - self.learned.n_dropped
        how = {
            "drop": f", by {used:,} of {self.n:,} rows: those without gaps" * (used < self.n),
            "available": ", each family by the rows that are complete in it",
        }
        arcs = counted(len(self.learned.arcs), "arc")
        print(f"{prefix}Network: {arcs}{how.get(self.options.get('missing', ''), '')}")
        if self.certainty is None:
            print_rows(("parent", "child"), self.learned.arcs)
        else:
            p = self.certainty.edge_probabilities
            print_rows(
                ("parent", "child", "P(arc)", "P(link)"),
                [
                    (u, v, f"{p[u, v]:.3f}", f"{min(p[u, v] + p[v, u], 1.0):.3f}")
                    for u, v in sorted(self.learned.arcs, key=lambda arc: -p[arc])
                ],
            )
            print(f"{prefix}{self.certainty.summary()}")
        if isinstance(self.accuracy, NumberValidation):
            by = self.accuracy
            print(
                f"\n{prefix}Error for {self.goal}: {by.rmse:.4g} (root mean square) of "
                f"{counted(len(by.observed), 'row')}, {_how(by)} (mean: {by.baseline:.4g}), "
                f"{100 * by.coverage(0.9):.1f} % in 90 % intervals"
            )
        elif self.accuracy is not None:
            a = self.accuracy
            of = f"{100 * a.accuracy:.1f} % of {counted(len(a.observed), 'row')}"
            most = f"most frequent state: {100 * a.baseline:.1f} %"
            print(
                f"\n{prefix}Accuracy for {self.goal}: {of}, {_how(a)} ({most}), "
                f"log loss {a.log_loss:.3f}"
            )

    def as_json(self) -> dict[str, Any]:
        """The same as values that JSON can hold."""
        edges = None if self.certainty is None else [list(arc) for arc in self.certainty.edges(0.01)]
        return {
            "data": self.data, "rows": self.n, "columns": [vars(f) for f in self.facts],
            "arcs": [list(arc) for arc in (self.learned.arcs if self.learned else ())], "edges": edges,
            "target": self.goal, "accuracy": self._accuracy(),
        }

    def _accuracy(self) -> dict[str, Any] | None:
        a = self.accuracy
        if isinstance(a, NumberValidation):
            return {"n": len(a.observed), "rmse": a.rmse, "baseline_rmse": a.baseline, "coverage_90": a.coverage(0.9)}
        if a is None:
            return None
        return {"n": len(a.observed), "accuracy": a.accuracy, "baseline": a.baseline, "log_loss": a.log_loss}


def _how(judged: Validation | NumberValidation) -> str:
    """How a figure was found."""
    n = len(np.unique(judged.fold))
    return f"by {n}-fold cross-validation" if n > 1 else "of a fifth that was held out, because of the time limit"
