"""Score tables from a user's function, and from score files of GOBNILP (``.jkl``, ``.jaa``), which are written, too.

A score file is text: the number of variables, then for each variable a line with its name and the number of its sets
of parents, and for each of these a line with the score, the number of parents and their names. Families that a file
leaves out have the score -inf.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import NamedTuple, cast

import numpy as np

from ....errors import ArgumentError, FormatError, ParseError, TableTooLarge, closest, format_bytes, shown
from ....util.arrays import Floats, Ints
from ....util.system import free_memory
from .coded import CodedTable
from .numeric_scores import bge_scores, bic_cg_scores
from .numeric_table import NumericTable, require_takes_numbers
from .ranks import binomial_table, family_of, n_parent_sets, parent_index
from .rules import CellFunctions, ScoreFunction, ScoreRule
from .set_values import MAX_CELLS, score_child, set_values

SUFFIXES = (".jkl", ".jaa")


def empty_scores(n: int, max_parents: int, limit: int | None) -> Floats:
    """Scores of -inf for all families; raises `TableTooLarge` before they are allocated."""
    n_sets = n_parent_sets(n, max_parents)
    limit = int(0.8 * free_memory()) if limit is None else limit
    if 8 * n * n_sets > limit:
        raise TableTooLarge(
            f"the scores of {n * n_sets:,} families need {format_bytes(8 * n * n_sets)}, more than the limit of "
            f"{format_bytes(limit)}; lower max_parents",
            n * n_sets, 8 * n * n_sets, limit,
        )  # fmt: skip
    return np.full((n, n_sets), -np.inf)


def function_scores(
    coded: CodedTable, function: ScoreFunction, max_parents: int, max_cells: int, limit: int | None
) -> Floats:
    """Scores of a function, called once for each family, in the order of their indices."""
    if coded.has_gaps:
        raise ArgumentError("a function scores counts of complete rows; use missing='drop'")
    n, card = len(coded.names), coded.cardinality.tolist()
    scores = empty_scores(n, max_parents, limit)
    of_child = {v: part for part, members in coded.parts for v in members}
    for v in range(n):
        weights, codes = of_child[v].weights, of_child[v].codes.astype(np.int64)
        first = v * scores.shape[1]
        for i in range(scores.shape[1]):
            parents = family_of(first + i, n, max_parents)[1]
            shape = [card[p] for p in parents] + [card[v]]
            if math.prod(shape) > max_cells:
                continue
            cells = np.ravel_multi_index([*codes[[*parents, v]]], shape)
            counts = np.bincount(cells, weights, math.prod(shape)).astype(np.int64).reshape(-1, card[v])
            scores[v, i] = _checked(function, counts, coded, v, parents)
    return scores


def _checked(
    function: ScoreFunction, counts: np.ndarray, coded: CodedTable, v: int, parents: tuple[int, ...]
) -> float:
    names = tuple(coded.names[p] for p in parents)
    given = function(counts, coded.names[v], names)
    family = f"P({coded.names[v]} | {', '.join(names)})" if names else f"P({coded.names[v]})"
    try:
        score = float(given)
    except (TypeError, ValueError):
        raise ArgumentError(f"the score of {family} must be a number, got {shown(given)}") from None
    if math.isnan(score) or score == math.inf:
        raise ArgumentError(f"the score of {family} is {score}; expected a finite number, or -inf to exclude it")
    return score


# Score files


def scores_text(names: tuple[str, ...], scores: Floats, max_parents: int) -> str:
    """The contents of a score file; families of score -inf are left out."""
    for name in names:
        if not name or len(name.split()) != 1:
            raise FormatError(f"a score file cannot have the name {name!r}: names must be words without spaces")
    lines, n = [str(len(names))], len(names)
    for v, name in enumerate(names):
        kept = np.flatnonzero(np.isfinite(scores[v])).tolist()
        lines.append(f"{name} {len(kept)}")
        for i in kept:
            parents = family_of(v * scores.shape[1] + i, n, max_parents)[1]
            lines.append(" ".join([repr(float(scores[v, i])), str(len(parents)), *(names[p] for p in parents)]))
    return "\n".join(lines) + "\n"


class _Word(NamedTuple):
    text: str
    line: int
    column: int


class _ScoreFile:
    def __init__(self, text: str, source: str):
        self.source, self.last = source, _Word("", 1, 1)
        self.words = self._words(text)

    def _words(self, text: str) -> Iterator[_Word]:
        for number, line in enumerate(text.split("\n"), 1):
            for match in re.finditer(r"\S+", line):
                self.last = _Word(match[0], number, match.start() + 1)
                yield self.last

    def error(self, message: str, at: _Word | None = None) -> ParseError:
        at = at or self.last
        return ParseError(message, self.source, at.line, at.column)

    def word(self, what: str) -> _Word:
        for word in islice(self.words, 1):
            return word
        raise self.error(f"the file ends where {what} is expected")

    def whole(self, what: str) -> int:
        word = self.word(what)
        if not re.fullmatch(r"[0-9]{1,9}", word.text):
            raise self.error(f"expected {what}, got {shown(word.text)}")
        return int(word.text)

    def number(self, what: str) -> float:
        word = self.word(what)
        try:
            score = float(word.text)
        except ValueError:
            score = math.nan
        if not math.isfinite(score):
            raise self.error(f"expected {what}, got {shown(word.text)}")
        return score


def read_scores(path: Path) -> tuple[tuple[str, ...], int, Floats]:
    """Names, largest number of parents, and scores of a score file."""
    # raises ParseError: If the file is wrong, with line and column.
    try:
        reader = _ScoreFile(path.read_text("utf-8"), str(path))
    except UnicodeDecodeError as error:
        raise FormatError(f"{path}: not a text: {error}") from None
    names: dict[str, int] = {}
    families: list[tuple[int, float, list[_Word], _Word]] = []
    for v in range(reader.whole("the number of variables")):
        word = reader.word("the name of a variable")
        if names.setdefault(word.text, v) != v:
            raise reader.error(f"there are two variables {word.text!r}")
        for _ in range(reader.whole(f"the number of parent sets of {word.text!r}")):
            score = reader.number("a score")
            at = reader.last
            parents = [reader.word("a parent") for _ in range(reader.whole("the number of parents"))]
            families.append((v, score, parents, at))
    for word in reader.words:
        raise reader.error(f"expected the end of the file, got {shown(word.text)}")
    if len(names) < 2:
        raise reader.error(f"{len(names)} variables; expected at least two")
    n, most = len(names), max((len(parents) for _, _, parents, _ in families), default=0)
    scores = empty_scores(n, min(most, n - 1), None)
    for v, score, parents, at in families:
        numbers: list[int] = []
        for word in parents:
            if word.text not in names:
                raise reader.error(f"there is no variable {word.text!r}{closest(word.text, names)}", word)
            numbers.append(names[word.text])
            if numbers[-1] == v or len({*numbers}) < len(numbers):
                raise reader.error(f"{word.text!r} is its own parent, or a parent twice", word)
        index = parent_index(v, numbers, n, min(most, n - 1))
        if scores.flat[index] > -np.inf:
            raise reader.error("this set of parents is given twice", at)
        scores.flat[index] = score
    return tuple(names), min(most, n - 1), scores


# Scores of each variable with every set of a few candidate parents.

def counted_scores(
    table: CodedTable, rule: ScoreRule, max_parents: int, functions: CellFunctions | None = None
) -> Floats:
    """Scores of the last variable with every set of at most `max_parents` others, by size and rank."""
    n, penalty = len(table.names), rule.penalty(table.n_cases)
    if functions is None:
        functions = rule.functions(table.cardinality, max_parents + 1, MAX_CELLS, table.n_cases)
    values = set_values(table, functions, max_parents, ess=float(rule.ess), threads=1, only_last=True)
    scores = np.empty(n_parent_sets(n, max_parents))
    score_child(n - 1, table.cardinality, functions, values, penalty, binomial_table(n, max_parents + 2), scores)
    return scores


def numeric_scores(
    table: NumericTable, rule: ScoreRule, candidates: Sequence[Ints], max_parents: int, threads: int | None = None
) -> list[Floats]:
    """Scores of each variable with every set of at most `max_parents` candidates, by size and rank."""
    # candidates: of each variable, ascending
    scores: list[Floats] = [np.zeros(0)] * len(candidates)
    for part, members in table.parts:
        few = [own if v in members else own[:0] for v, own in enumerate(candidates)]
        if rule.name == "bge":
            values = bge_scores(cast(NumericTable, part), few, max_parents, threads)
        else:
            values = bic_cg_scores(cast(NumericTable, part), few, max_parents, counted_scores, threads)
        for v in members:
            scores[v] = values[v]
    return scores


def candidate_scores(
    coded: CodedTable, rule: ScoreRule, candidates: Sequence[Ints], max_parents: int, threads: int | None = None
) -> Callable[[int], Floats]:
    """A function from a variable to its scores with every set of at most `max_parents` candidates."""
    require_kind(coded, rule)
    if isinstance(coded, NumericTable):
        return numeric_scores(coded, rule, candidates, max_parents, threads).__getitem__
    of_child = {}
    for part, members in coded.parts:
        functions = rule.functions(part.cardinality, max_parents + 1, MAX_CELLS, part.n_cases, part.has_gaps)
        of_child.update(dict.fromkeys(members, (part, functions)))

    def scores(v: int) -> Floats:
        chosen = [*candidates[v].tolist(), v]  # the child is the last variable: sets with it have the last ranks
        names, states = tuple(coded.names[u] for u in chosen), tuple(coded.states[u] for u in chosen)
        part, functions = of_child[v]
        few = CodedTable(names, states, part.codes[chosen], part.weights)
        return counted_scores(few, rule, min(max_parents, len(chosen) - 1), functions)

    return scores


def require_kind(coded: CodedTable, rule: ScoreRule) -> None:
    """Reject a score of states for a table with numbers."""
    if isinstance(coded, NumericTable):
        require_takes_numbers(rule)
    elif rule.takes_numbers:
        raise ArgumentError(
            f"score={rule.name!r} takes tables with numbers; give continuous=True, or a list of columns"
        )
