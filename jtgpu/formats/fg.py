"""Factor graphs of libDAI, ``.fg``: reader and writer.

The number of factors; for each factor the number of its variables, their labels, their cardinalities, and the number of
non-zero entries, followed by these entries as lines ``index value``; the first variable is fastest. Comments begin with
``#``.

Labels are arbitrary non-negative integers, which become the variables ``v<label>``, in ascending order. States are
``0``, ``1`` ... The model is always a `MarkovNetwork`.
"""

from __future__ import annotations

import math
import re

import numpy as np

from ..errors import FormatError
from ..model.discrete import MAX_AXES, DiscreteModel, Factor
from ..model.markov import MarkovNetwork
from ..model.network import BayesianNetwork
from ..util.arrays import Floats
from .number_cursor import NumberCursor, state_names, without_comments
from .text import SourceText, number

# As written by libDAI: the number of factors alone on its line, followed by an empty line.
_SKIP = r"(?:[ \t\f\v]*+(?:#[^\r\n]*+)?(?:\r\n?|\n))*+"
_START = re.compile(_SKIP + r"[ \t]*+[0-9]++[ \t]*+(?:\r\n?|\n)[ \t]*+(?:#[^\r\n]*+)?(?:\r\n?|\n)")
MAX_LABEL = 1 << 31
# Most zeros that a file may omit: a constant, and a number for each entry that it contains.
MAX_IMPLIED, IMPLIED_EACH = 1 << 24, 64


def sniff(text: str) -> bool:
    """Whether a text begins like a factor graph of libDAI's."""
    return _START.match(text) is not None


def parse(text: str, source: str = "<text>", *, zero_rows: str = "error", decisions: str = "network") -> MarkovNetwork:
    """Read the text of a factor graph."""
    # source: The file's name, for error messages
    # zero_rows, decisions: Ignored: factors have no rows, and the format no decisions
    # raises ParseError: If the text is malformed; the message gives line and column.
    return FgReader(SourceText(text, source)).network()


class FgReader:
    def __init__(self, source: SourceText):
        self.numbers = NumberCursor(source, without_comments(source.text))
        self.cards: dict[int, tuple[int, int]] = {}  # of each label, and the index of the number that gives it
        self.filled = 0  # entries of the tables so far

    def network(self) -> MarkovNetwork:
        numbers = self.numbers
        n = numbers.whole("the number of factors")
        if n > numbers.values.size:
            raise numbers.error(0, f"found {n:,} factors, and fewer numbers after it")
        factors = [self.factor(k) for k in range(n)]
        numbers.finish()
        labels = sorted(self.cards)
        names = state_names(numbers, *zip(*(self.cards[label] for label in labels), strict=True)) if labels else []
        ids = {label: i for i, label in enumerate(labels)}
        states = {f"v{label}": known for label, known in zip(labels, names, strict=True)}
        return MarkovNetwork.of_checked(states, [Factor(tuple([ids[x] for x in scope]), t) for scope, t in factors])

    def factor(self, k: int) -> tuple[list[int], Floats]:
        """Labels and table of a factor, the slowest axis first."""
        numbers = self.numbers
        at = numbers.at
        n = numbers.whole(f"the number of variables of factor {k}")
        if n > MAX_AXES:
            raise numbers.error(at, f"found {n:,} variables of factor {k}, more than an array has axes")
        labels = [numbers.whole(f"a variable's label in factor {k}", 0, MAX_LABEL) for _ in range(n)]
        if len(set(labels)) < n:
            twice = next(i for i in range(n) if labels[i] in labels[:i])
            raise numbers.error(at + 1 + twice, f"the variable {labels[twice]} occurs twice in factor {k}")
        cards = []
        for label in labels:
            place = numbers.at
            card = numbers.whole(f"the number of states of variable {label}, 1 at least", 1)
            known, _ = self.cards.setdefault(label, (card, place))
            if card != known:
                raise numbers.error(place, f"found {card:,} states of variable {label}, expected {known:,} as before")
            cards.append(card)
        size = math.prod(cards)
        place = numbers.at
        n_entries = numbers.whole(f"the number of entries of factor {k}, 0 to {size:,}", 0, size)
        self.filled += size - n_entries
        if self.filled > MAX_IMPLIED + IMPLIED_EACH * numbers.values.size:
            raise numbers.error(
                place, f"factor {k} has {size:,} entries and {n_entries:,} numbers: too many implied zeros"
            )
        return labels[::-1], self.table(k, tuple(cards[::-1]), n_entries)

    def table(self, k: int, shape: tuple[int, ...], n_entries: int) -> Floats:
        numbers = self.numbers
        first = numbers.at
        entries = numbers.take(2 * n_entries, f"the entries of factor {k}").reshape(-1, 2)
        size = math.prod(shape)
        where = entries[:, 0]
        wrong = (where < 0) | (where >= size) | (where != np.floor(where))
        if wrong.any():
            at = first + 2 * int(wrong.argmax())
            raise numbers.expected(at, f"an index of factor {k}, 0 to {size - 1:,}")
        index = where.astype(np.int64)
        if np.unique(index).size < n_entries:
            order = np.argsort(index, kind="stable")
            again = int(order[1:][index[order[1:]] == index[order[:-1]]].min())
            raise numbers.error(first + 2 * again, f"the index {index[again]} of factor {k} occurs a second time")
        table = np.zeros(size)
        table[index] = entries[:, 1]
        values = entries[:, 1]
        if not (values.min(initial=0.0) >= 0 and values.max(initial=0.0) < np.inf):
            at = first + 2 * int((~((values >= 0) & (values < np.inf))).argmax()) + 1
            raise numbers.expected(at, f"a number >= 0 in factor {k}")
        table = table.reshape(shape)
        table.flags.writeable = False
        return table


def dumps(net: DiscreteModel) -> str:
    """The text of a ``.fg`` file with a model's factors, which read back bit for bit, over variables ``v0`` ...

    The format has neither names nor the direction of a Bayesian network's arcs. A variable without factors gets a
    factor of ones, which changes no distribution: the format declares variables by factors only.
    """
    # raises FormatError: If the model is neither a Bayesian nor a Markov network.
    if not isinstance(net, (BayesianNetwork, MarkovNetwork)):
        raise FormatError(f"a factor graph holds a Bayesian or a Markov network, not a {type(net).__name__}")
    used = {v for scope, _ in net.factors for v in scope}
    factors = [*net.factors]
    factors += [Factor((v,), np.ones(int(net.cardinality[v]))) for v in range(len(net)) if v not in used]
    lines = [str(len(factors))]
    for scope, table in factors:
        values = table.ravel()  # the last axis is fastest, and comes first in the file
        entries = np.flatnonzero(values)
        lines += ["", str(len(scope)), " ".join(map(str, scope[::-1]))]
        lines += [" ".join(map(str, table.shape[::-1])), str(entries.size)]
        lines += map("{} {}".format, entries.tolist(), map(number, values[entries].tolist()))
    return "\n".join([*lines, ""])
