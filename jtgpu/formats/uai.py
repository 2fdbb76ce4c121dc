"""UAI, the format of the inference competitions: reader and writer of ``BAYES`` and ``MARKOV`` files.

``BAYES`` or ``MARKOV``; the number of variables and their cardinalities; the number of tables and their scopes, each
preceded by its length; the tables, each preceded by its size, the last variable of the scope fastest. Any white space
separates. Lines that begin with ``c`` are comments (2016), and so is text after a ``#`` (pyAgrum).

The format has no names: variables are called ``v0``, ``v1`` ..., states ``0``, ``1`` ... In a ``BAYES`` file the child
of a table is the last variable of its scope. Files with the child elsewhere, in the scope or in the order of the
numbers, raise an error.

aGrUM (as of pyAgrum 3.3) uses the reverse order of parents: the first one is the fastest after the child. Its ``BAYES``
files are recognised by the names after their scopes (``3 0 2 1   # c``) and read accordingly, with a note. In its
``MARKOV`` files, recognised by ``# nbr Nodes``, the order of three or more variables is ambiguous and raises an error.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np

from ..errors import FormatError, shown
from ..model.discrete import MAX_AXES, DiscreteModel, Factor
from ..model.markov import MarkovNetwork
from ..model.network import BayesianNetwork
from ..util.arrays import Floats
from ..util.options import Decisions, ZeroRows
from .draft import Draft, FamilyDraft
from .finish import finish, shape_tables
from .number_cursor import NumberCursor, inexact, reject_transposed, state_names, without_comments
from .text import BLANKS, SourceText, number

_SKIP = rf"(?:[{BLANKS}]++|(?:\A|(?<=[\r\n]))c[^\r\n]*+|#[^\r\n]*+)*+"
_START = re.compile(_SKIP + r"(?P<kind>BAYES|MARKOV)(?=[ \t\r\n\f\v]|\Z)", re.IGNORECASE)
_WORD = re.compile(_SKIP + rf"(?P<word>[^{BLANKS}]++|\Z)")
_AGRUM_SCOPE = re.compile(r"[0-9]+(?: [0-9]+)*   # [^\r\n]+")
_AGRUM_HEAD = re.compile(r"MARKOV[ \t]*(?:\r\n?|\n)[0-9]+ # nbr Nodes[ \t]*[\r\n]")
_EXACT = re.compile(r"(?:\A|(?<=[\r\n]))c jtgpu_rows exact((?: [0-9]{1,9})+)[ \t]*+(?=[\r\n]|\Z)")


def sniff(text: str) -> bool:
    """Whether a text begins like a UAI model."""
    return _START.match(text) is not None


def parse(
    text: str, source: str = "<text>", *, zero_rows: ZeroRows = "error", decisions: Decisions = "network"
) -> BayesianNetwork | MarkovNetwork:
    """Read the text of a UAI model."""
    # source: The file's name, for error messages
    # decisions: Ignored: the format has none
    # zero_rows: {"error", "uniform"}: Whether a CPT row of zeros in a ``BAYES`` file is an error or stands for the
    #     uniform distribution
    # raises ParseError: If the text is malformed; the message gives line and column.
    read = UaiReader(SourceText(text, source))
    return finish(read.draft(), zero_rows) if read.bayes else read.markov()


def parse_draft(text: str, source: str = "<text>") -> Draft:
    """Read the text of a ``BAYES`` file, with the numbers as written."""
    read = UaiReader(SourceText(text, source))
    if not read.bayes:
        raise FormatError(f"{source}: a MARKOV file does not contain a Bayesian network")
    draft = read.draft()
    shape_tables(draft)
    return draft


class UaiReader:
    """Reads the kind, cardinalities and scopes of a file first, then the tables."""

    def __init__(self, source: SourceText):
        self.source = source
        match = _START.match(source.text)
        if match is None:
            word = _WORD.match(source.text)
            at = word.start("word") if word else 0
            what = shown(word["word"]) if word and word["word"] else "the end of the file"
            raise source.error(at, f"found {what}, expected 'BAYES' or 'MARKOV'")
        self.bayes = match["kind"].upper() == "BAYES"
        numbers = self.numbers = NumberCursor(source, without_comments(source.text), match.end("kind"))
        self.n = numbers.whole("the number of variables")
        if self.n > numbers.values.size:
            raise numbers.error(0, f"found {self.n:,} variables, and fewer numbers after it")
        self.cards = [numbers.whole(f"the number of states of v{i}, 1 at least", 1) for i in range(self.n)]
        self.states = {f"v{i}": names for i, names in enumerate(state_names(numbers, self.cards, range(1, 1 + self.n)))}
        self.n_tables = numbers.whole("the number of tables")
        if self.n_tables > numbers.values.size:
            raise numbers.error(numbers.at - 1, f"found {self.n_tables:,} tables, and fewer numbers after it")
        self.first = numbers.at  # the token where the scopes begin
        self.scopes = self.plain_scopes() or [self.scope(k) for k in range(self.n_tables)]

    def plain_scopes(self) -> list[tuple[int, ...]]:
        """All scopes at once if they are valid; else an empty list, and `scope` reports the error."""
        n, at, window = self.n, self.first, 8 * self.n_tables + 8
        numbers = self.numbers.values[at : at + window].tolist()
        scopes: list[tuple[int, ...]] = []
        i = 0
        try:
            for _ in range(self.n_tables):
                length = int(numbers[i])
                if i + length >= len(numbers):
                    more = self.numbers.values[at + len(numbers) : at + 2 * len(numbers) + length].tolist()
                    numbers += more
                ids = tuple(map(int, numbers[i + 1 : i + 1 + length]))
                if not length == len(ids) == len(set(ids)) or (ids and not 0 <= min(ids) <= max(ids) < n):
                    return []
                scopes.append(ids)
                i += 1 + length
        except (IndexError, ValueError, OverflowError):  # too few numbers, or infinity
            return []
        read = self.numbers.values[at : at + i]
        if not np.array_equal(read, np.floor(read)):
            return []
        self.numbers.at = at + i
        return scopes

    def scope(self, k: int) -> tuple[int, ...]:
        """One scope, number by number, with specific errors."""
        numbers = self.numbers
        length = numbers.whole(f"the number of variables of table {k}", 0, self.n)
        at = numbers.at
        ids = tuple(
            [numbers.whole(f"a variable of table {k}, 0 to {self.n - 1}", 0, self.n - 1) for _ in range(length)]
        )
        if len(set(ids)) < length:
            twice = next(i for i in range(length) if ids[i] in ids[:i])
            raise numbers.error(at + twice, f"v{ids[twice]} occurs twice in the scope of table {k}")
        return ids

    def scope_at(self, k: int) -> int:
        """Index of the number that gives a scope's length."""
        return self.first + k + sum(map(len, self.scopes[:k]))

    def tables(self) -> list[Floats]:
        """All tables as views of the file's numbers; the last one ends the file."""
        numbers, cards = self.numbers, self.cards
        for k, ids in enumerate(self.scopes):
            if len(ids) > MAX_AXES:
                raise numbers.error(
                    self.scope_at(k), f"table {k} has {len(ids)} variables, more than an array has axes"
                )
        first = numbers.at
        tables = [numbers.table(tuple([cards[v] for v in ids]), f"table {k}") for k, ids in enumerate(self.scopes)]
        numbers.finish()
        # includes the sizes, which are valid, too
        numbers.probabilities(first, numbers.values.size - first, "a table")
        return tables

    def markov(self) -> MarkovNetwork:
        """The model of a ``MARKOV`` file."""
        tables = self.tables()
        if _AGRUM_HEAD.match(self.source.text):
            for k, ids in enumerate(self.scopes):
                if len(ids) > 2:
                    raise self.numbers.error(
                        self.scope_at(k),
                        f"table {k} has {len(ids)} variables and this file is aGrUM's, whose "
                        "order of variables differs from the format's and is ambiguous here; this is not supported",
                    )
        self.numbers.values.flags.writeable = False
        for table in tables:
            table.flags.writeable = False
        return MarkovNetwork.of_checked(self.states, list(map(Factor, self.scopes, tables)))

    def draft(self) -> Draft:
        """The network of a ``BAYES`` file."""
        numbers = self.numbers
        if self.n_tables != self.n:
            raise numbers.error(
                self.first - 1, f"found {self.n_tables:,} tables, expected one for each of {self.n:,} variables"
            )
        names = list(self.states)
        draft = Draft(self.source, "UAI", states=self.states)
        # positions of all variables and of the members of all scopes
        draft.declared = dict(zip(names, numbers.offsets(np.arange(1, 1 + self.n)).tolist(), strict=True))
        places = iter(numbers.offsets(np.arange(self.first, numbers.at)).tolist())
        marked = self.source.text.find("c jtgpu_rows")  # much faster than the pattern alone
        marks = _EXACT.finditer(self.source.text, marked) if marked >= 0 else ()
        exact = {int(k) for mark in marks for k in mark[1].split()}
        agrum = self.is_agrums()
        for k, ids in enumerate(self.scopes):
            spots = [next(places) for _ in range(1 + len(ids))]
            if not ids:
                raise self.source.error(spots[0], f"found no variables in the scope of table {k}, expected a child")
            child = names[ids[-1]]
            if child in draft.families:
                raise self.source.error(
                    spots[-1],
                    f"found {child} as the last variable of a second scope; in a BAYES file the last one is the child, "
                    "and every variable is that of one table",
                )
            before = [(names[v], at) for v, at in zip(ids[:-1], spots[1:-1], strict=True)]
            if agrum and len(before) > 1:
                before.reverse()
                draft.note(spots[0], f"aGrUM's order of numbers: the first parent of {child} is the fastest")
            draft.families[child] = FamilyDraft(child, before, spots[-1], exact=k in exact)
        first = numbers.at + 1
        for k, (family, table) in enumerate(zip(draft.families.values(), self.tables(), strict=True)):
            reject_transposed(numbers, first, table, f"table {k}")  # the order of the parents does not matter here
            family.numbers, family.locate = table.ravel(), numbers.locator(first)
            first += 1 + table.size
        return draft

    def is_agrums(self) -> bool:
        """Whether the child's name follows every scope, as written by aGrUM."""
        if "   # " not in self.source.text:
            return False
        begin, end = self.numbers.offsets(np.array([self.first, self.numbers.at])).tolist()
        lines = [line for line in self.source.text[begin:end].splitlines() if line.strip(BLANKS)]
        return len(lines) == self.n_tables and all(_AGRUM_SCOPE.fullmatch(line.rstrip(BLANKS)) for line in lines)


# Writing ------------------------------------------------------------------------------------------------------


def dumps(net: DiscreteModel) -> str:
    """The text of a UAI file with a model: ``BAYES`` for Bayesian networks, else ``MARKOV``.

    All numbers read back bit for bit; names and attributes are lost. Tables whose rows sum to 1 only approximately are
    listed in a comment after the last table, which solvers ignore.
    """
    # raises FormatError: If the model is neither.
    if not isinstance(net, (BayesianNetwork, MarkovNetwork)):
        raise FormatError(f"a UAI file holds a Bayesian or a Markov network, not a {type(net).__name__}")
    lines = [
        "BAYES" if isinstance(net, BayesianNetwork) else "MARKOV",
        str(len(net)),
        " ".join(map(str, net.cardinality.tolist())),
    ]
    lines.append(str(len(net.factors)))
    lines += [" ".join(map(str, (len(scope), *scope))) for scope, _ in net.factors]
    for _, table in net.factors:
        lines += ["", str(table.size), *number_lines(table)]
    exact = inexact(net) if isinstance(net, BayesianNetwork) else ()
    if exact:
        lines.append(f"c jtgpu_rows exact {' '.join(str(k) for k, v in enumerate(net.variables) if v in exact)}")
    return "\n".join([*lines, ""])


def number_lines(table: Floats) -> Iterator[str]:
    """The numbers of a table, one line per row of its last axis."""
    rows = table.reshape(-1, table.shape[-1]) if table.ndim else table.reshape(1, 1)
    return (" ".join(map(number, row)) for row in rows.tolist())
