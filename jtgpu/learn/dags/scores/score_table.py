"""`ScoreTable`: the scores of every family, in the published order of the combinatorial number system."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from ....errors import ArgumentError, FormatError, UnknownVariable, closest
from ....formats.files import require_file, write_bytes
from ....model.network import BayesianNetwork
from ....options.compute import Compute
from ....options.tables import ReadOptions
from ....util.arguments import check_keywords, choice, file_path, whole_number
from ....util.arrays import Floats, Ints
from ....util.options import Data, Devices, Interventions, LearnBackend, MissingCells
from ....util.system import free_memory, parse_bytes
from ...state_file import DAMAGED, archive, read_arrays
from .coded import MISSING_CHOICES
from .given_scores import (
    SUFFIXES,
    empty_scores,
    function_scores,
    numeric_scores,
    read_scores,
    require_kind,
    scores_text,
)
from .gpu_device import MAX_PARENTS, gpu_can_score
from .gpu_numbers import gpu_bge_scores
from .gpu_scores import gpu_scores
from .numeric_table import NumericTable, table_of
from .ranks import binomial_table, family_of, n_parent_sets, parent_index
from .rules import GIVEN, Score, ScoreFunction, ScoreRule
from .set_values import MAX_CELLS, run_chunks, score_child, set_values, set_values_on

if TYPE_CHECKING:
    from .coded import CodedTable

VERSION = 1


@check_keywords()
@dataclass(frozen=True, eq=False)
class ScoreTable:
    """Scores of every family of at most `max_parents` parents.

    Attributes
    ----------
    names : tuple of str
        Names of the n variables.
    states : tuple of tuple of str
    rule : ScoreRule
    max_parents : int
    scores : (n, M) ndarray of float64
        ln score of each child with each set of parents, by `parent_index`; -inf for a family that was left out because
        its table is too large.
    n_cases : int
        Number of cases, with their weights.
    digest : str
        SHA-256 of the data.

    Examples
    --------
    >>> import jtgpu
    >>> data = jtgpu.load("asia").compile("cpu").sample(500, seed=1)
    >>> table = jtgpu.learn.score_table(data, max_parents=2)
    >>> [(parents, round(score, 3)) for parents, score in table.best("dysp", 2)]
    [(('bronc', 'either'), -222.437), (('lung', 'bronc'), -226.11)]
    """

    names: tuple[str, ...]
    states: tuple[tuple[str, ...], ...]
    rule: ScoreRule
    max_parents: int
    scores: Floats
    n_cases: int
    digest: str

    def __len__(self) -> int:
        return int(self.scores.size)

    def __repr__(self) -> str:
        return (
            f"<ScoreTable: {len(self.names)} variables, {len(self):,} families of up to {self.max_parents} parents, "
            f"{self.rule.name}>"
        )

    @cached_property
    def cardinality(self) -> Ints:
        """Number of states of each variable, (n,)."""
        return np.array([len(s) for s in self.states], np.int64)

    @property
    def n_left_out(self) -> int:
        """Number of families without a score, because their tables are too large."""
        return int(np.isneginf(self.scores).sum())

    def number(self, name: str) -> int:
        """Number of a variable.

        Raises
        ------
        UnknownVariable
        """
        try:
            return self.names.index(name)
        except ValueError:
            raise UnknownVariable(f"there is no variable {name!r}{closest(str(name), self.names)}") from None

    def score(self, child: str, parents: Iterable[str] = ()) -> float:
        """Score of a family; -inf if it was left out.

        Raises
        ------
        UnknownVariable
        ArgumentError
            If there are more parents than `max_parents`, or the child is its own parent.
        """
        v, numbers = self.number(child), sorted({self.number(p) for p in parents})
        if v in numbers:
            raise ArgumentError(f"{child!r} cannot be its own parent")
        if len(numbers) > self.max_parents:
            raise ArgumentError(f"{len(numbers)} parents, but the table has scores of up to {self.max_parents}")
        return float(self.scores.flat[parent_index(v, numbers, len(self.names), self.max_parents)])

    def best(self, child: str, k: int = 1) -> list[tuple[tuple[str, ...], float]]:
        """The k parent sets of the highest scores, best first, as (parents, score)."""
        whole_number("k", k, 1)
        v, n = self.number(child), len(self.names)
        row = self.scores[v]
        rows = np.lexsort((np.arange(len(row)), -row))[:k]
        first = v * n_parent_sets(n, self.max_parents)
        sets = (family_of(first + int(i), n, self.max_parents)[1] for i in rows)
        return [(tuple(self.names[p] for p in s), float(row[i])) for s, i in zip(sets, rows, strict=True)]

    def with_max_parents(self, max_parents: int) -> ScoreTable:
        """The part of the table with at most so many parents."""
        few = min(max_parents, self.max_parents)
        scores = self.scores[:, : n_parent_sets(len(self.names), few)]
        return ScoreTable(self.names, self.states, self.rule, few, scores, self.n_cases, self.digest)

    def save(self, path: str | Path) -> None:
        """Write the table to a file.

        The format is NumPy's ``.npz``, or, by the suffix ``.jkl`` or ``.jaa``, the text of GOBNILP's score files, which
        have names and scores only. Equal tables give equal bytes.

        Raises
        ------
        FormatError
            If a score file cannot have the name of a variable, because of a space.
        """
        path = file_path("path", path)
        if Path(path).suffix in SUFFIXES:
            write_bytes(path, scores_text(self.names, self.scores, self.max_parents).encode())
            return
        header = {
            "version": VERSION,
            "names": self.names,
            "states": self.states,
            "score": self.rule.name,
            "ess": self.rule.ess,
            "max_parents": self.max_parents,
            "n_cases": self.n_cases,
            "digest": self.digest,
        }
        write_bytes(path, archive(header, {"scores": self.scores}))

    @classmethod
    def load(cls, path: str | Path) -> ScoreTable:
        """Read a table that `save` wrote, or a score file (``.jkl``, ``.jaa``), whose score is ``"given"``.

        Raises
        ------
        FormatError
            If the file is no score table, or damaged.
        ParseError
            If a score file is wrong, with line and column.
        OSError
            If it cannot be read.
        """
        path = file_path("path", path)
        if Path(path).suffix in SUFFIXES:
            names, most, scores = read_scores(Path(path))
            return cls(names, ((),) * len(names), ScoreRule(GIVEN), most, scores, 0, "")
        try:
            require_file(path)
            arrays = read_arrays(path)
            header, scores = json.loads(bytes(arrays["header"])), arrays["scores"]
            if header["version"] != VERSION:
                raise FormatError(f"{path}: a score table of version {header['version']}; expected {VERSION}")
            names, states = tuple(header["names"]), tuple(map(tuple, header["states"]))
            shape = len(names), n_parent_sets(len(names), header["max_parents"])
            if scores.shape != shape or scores.dtype != np.float64 or len(states) != len(names):
                raise FormatError(f"{path}: scores of shape {scores.shape}, expected {shape}")
            rule = ScoreRule(header["score"], header["ess"])
            return cls(names, states, rule, header["max_parents"], scores, header["n_cases"], header["digest"])
        except DAMAGED as error:
            raise FormatError(f"{path}: not a score table of jtgpu: {error}") from None


def score_table(  # noqa: PLR0913
    data: Data | CodedTable,
    *,
    score: Score | ScoreFunction = "bdeu",
    ess: float = 1.0,
    max_parents: int = 3,
    states: Mapping[str, Sequence[object]] | BayesianNetwork | None = None,
    continuous: bool | Iterable[str] | None = None,
    missing: MissingCells = "error",
    weights: object = None,
    interventions: Interventions = None,
    max_cells: int = MAX_CELLS,
    read: ReadOptions = ReadOptions(),
    compute: Compute | LearnBackend | Literal["auto"] = Compute(),
) -> ScoreTable:
    """Score every family of at most `max_parents` parents.

    Parameters
    ----------
    data : data frame, mapping of columns, list of mappings, (N, n) array, or path of a CSV or Parquet file
        Discrete data.
    score, ess : str or callable, float
        Name and equivalent sample size of a `jtgpu.learn.ScoreRule`; or a function that is called once for each family
        with its counts, a (q, r) array of int64 with a row for each configuration of the parents and a column for each
        state of the child, and the names of the child and of its parents. It returns the score, or -inf to exclude the
        family, and must be deterministic. It is called in this process and thread: the score is ``"given"``, and
        ``learn.structure(data, score="given", search=Search(scores=...))`` takes the table.
    max_parents : int
        All sets of up to this many parents are scored: the time and memory grow like ``n ** (max_parents + 1)``.
    states : mapping or network, optional
        States of variables, in order. Default: the categories of a categorical column, otherwise the values in the
        data, sorted.
    missing : {"error", "drop", "available"}
        How to treat rows with missing cells: refuse them, leave them out, or score each family by the rows in which its
        variables are known (with ``score="bic"``; see `jtgpu.learn.ScoreRule`).
    weights : (N,) array_like of int, optional
        How often each row occurs.
    interventions : str or mapping, optional
        See `jtgpu.learn.structure`.
    continuous : bool or list of str, optional
        Columns that are numbers; see `jtgpu.learn.structure`.
    max_cells : int
        Families whose tables have more cells are left out: their score is -inf.
    read : ReadOptions
        See `jtgpu.learn.structure`.
    compute : Compute or {"cpu", "gpu"}
        Where families are scored; scores of the two differ by rounding only. GPUs compute no ``"bds"`` and ``"bic-cg"``
        scores, and families of at most 5 parents. A cluster counts the largest sets on its CPUs. The scores do not
        depend on threads, devices and cluster.

    Raises
    ------
    DataError
        If the data cannot be learned from; the message names column and row.
    TableTooLarge
        If the table exceeds the memory limit.
    ValueError
        If an option has no such value.

    Examples
    --------
    >>> import jtgpu
    >>> data = {"rain": ["no", "no", "yes", "yes", "no"], "wet": ["no", "no", "yes", "yes", "yes"]}
    >>> table = jtgpu.learn.score_table(data, max_parents=1)
    >>> round(table.score("wet", ["rain"]) - table.score("wet"), 3)
    0.393
    """
    rule = ScoreRule(GIVEN if callable(score) else score, ess)
    choice("missing", missing, MISSING_CHOICES)
    coded = table_of(
        data, rule, continuous, states=states, missing=missing, weights=weights, read=read,
        interventions=interventions,
    )  # fmt: skip
    compute = Compute.of(compute, "backend threads devices memory_limit cluster", "score_table")
    backend, max_cells = learn_backend(compute), whole_number("max_cells", max_cells, 1)
    limit = None if compute.memory_limit is None else parse_bytes(compute.memory_limit)
    if callable(score):
        if backend == "gpu" or compute.cluster is not None:
            raise ArgumentError("a function scores in this process; leave out backend= and cluster=")
        return table_of_function(coded, score, max_parents, max_cells=max_cells, memory_limit=limit)
    return score_families(
        coded, rule, max_parents, max_cells=max_cells, memory_limit=limit, threads=compute.threads,
        backend=backend, devices=compute.devices, cluster=compute.cluster,
    )  # fmt: skip


def learn_backend(compute: Compute) -> LearnBackend:
    """Where families are scored: on the CPU, unless a GPU is named."""
    backend = choice("backend", compute.backend, ("auto", "cpu", "gpu"))
    if compute.devices is not None and backend == "cpu":
        raise ArgumentError(f"devices={compute.devices!r} are GPUs, but backend={backend!r}; use backend='gpu'")
    return "gpu" if backend == "gpu" or compute.devices is not None else "cpu"


def table_of_function(
    coded: CodedTable, function: ScoreFunction, max_parents: int, *, max_cells: int = MAX_CELLS,
    memory_limit: int | None = None,
) -> ScoreTable:  # fmt: skip
    """The scores of a user's function."""
    most = min(whole_number("max_parents", max_parents, 0), len(coded.names) - 1)
    scores = function_scores(coded, function, most, max_cells, memory_limit)
    return ScoreTable(coded.names, coded.states, ScoreRule(GIVEN), most, scores, coded.n_cases, coded.digest)


def score_families(  # noqa: PLR0913
    coded: CodedTable, rule: ScoreRule, max_parents: int, *, max_cells: int = MAX_CELLS,
    memory_limit: int | None = None, threads: int | None = None, backend: LearnBackend = "cpu", devices: Devices = None,
    cluster: object = None,
) -> ScoreTable:  # fmt: skip
    """`score_table` of coded data."""
    choice("backend", backend, ("cpu", "gpu"))
    if cluster is not None and backend == "gpu":
        raise ArgumentError("a cluster counts on CPUs; use backend='cpu', or the GPUs of this machine without cluster=")
    n, card = len(coded.names), coded.cardinality
    max_parents = min(whole_number("max_parents", max_parents, 0), n - 1)
    limit = int(0.8 * free_memory()) if memory_limit is None else memory_limit
    scores = empty_scores(n, max_parents, limit)
    require_kind(coded, rule)
    if backend == "gpu" and coded.interventions is not None:
        raise ArgumentError("families of tables with interventions are scored on the CPU; leave out backend=")
    if isinstance(coded, NumericTable):
        if cluster is not None or (backend == "gpu" and not gpu_can_score(rule, max_parents)):
            most = f" with more than {MAX_PARENTS} parents" if gpu_can_score(rule, 0) else ""
            what = "cluster=" if cluster is not None else "backend="
            raise ArgumentError(f"score={rule.name!r}{most} runs on the CPU of this machine; leave out {what}")
        if backend == "gpu":
            scores = gpu_bge_scores(coded, max_parents, devices)
            return ScoreTable(coded.names, coded.states, rule, max_parents, scores, coded.n_cases, coded.digest)
        others = [np.array([u for u in range(n) if u != v], np.int64) for v in range(n)]
        scores[:] = numeric_scores(coded, rule, others, max_parents, threads)
        return ScoreTable(coded.names, coded.states, rule, max_parents, scores, coded.n_cases, coded.digest)
    if backend == "gpu":
        if coded.has_gaps:
            raise ArgumentError("backend='gpu' requires complete rows; use backend='cpu', or missing='drop'")
        functions = rule.functions(card, max_parents + 1, max_cells, coded.n_cases)
        scores = gpu_scores(coded, rule, functions, max_parents, max_cells, devices=devices)
        return ScoreTable(coded.names, coded.states, rule, max_parents, scores, coded.n_cases, coded.digest)
    options: dict[str, Any] = {
        "ess": float(rule.ess),
        "max_cells": max_cells,
        "memory_limit": limit,
        "threads": threads,
    }
    binomials = binomial_table(n, max_parents + 2)
    for part, members in coded.parts:
        functions = rule.functions(card, max_parents + 1, max_cells, part.n_cases, part.has_gaps)
        if cluster is None:
            values = set_values(part, functions, max_parents, **options)
        else:
            values = set_values_on(cluster, part, functions, max_parents, **options)
        score = partial(
            score_child, card=card, functions=functions, values=values, penalty=rule.penalty(part.n_cases),
            binomials=binomials,
        )  # fmt: skip

        def fill(chunk: tuple[int, int], score: Any = score, members: list[int] = members) -> None:
            for v in members[slice(*chunk)]:
                score(v, scores=scores[v])

        run_chunks(fill, 0, len(members), scores.size * len(members) // n, threads)
    return ScoreTable(coded.names, coded.states, rule, max_parents, scores, coded.n_cases, coded.digest)
