"""All errors that jtgpu raises deliberately.

They derive from `JtgpuError`: one ``except`` clause catches every problem with a file, a network, evidence or the
machine, but does not hide bugs in jtgpu.
"""

from __future__ import annotations

import reprlib
from collections.abc import Callable, Iterable
from itertools import islice
from typing import Self

MAX_MESSAGE = 4000  # characters of a message; names and values from files may be megabytes long
MAX_WORD = 100  # characters of a word for which similar ones are searched


class JtgpuError(Exception):
    """Base class of all errors that jtgpu raises deliberately."""

    def __str__(self) -> str:
        return _without_middle(super().__str__())


class ArgumentError(JtgpuError, ValueError, TypeError):
    """An argument of the wrong type or out of range; also a `ValueError` and a `TypeError`."""


class UnknownAttribute(JtgpuError, AttributeError):
    """An attribute that an object or a package does not have; also an `AttributeError`."""

    hint: Callable[[], str] | None = None  # what to write instead: looked for when it is printed, not by hasattr()

    def __str__(self) -> str:
        return str(self.args[0]) + (self.hint() if self.hint is not None else "")

    def __reduce__(self) -> tuple[type[Self], tuple[str]]:
        return type(self), (str(self),)


class NetworkError(JtgpuError):
    """An invalid model: wrong shapes, a cycle, undeclared parents, rows that are not distributions."""


class ParseError(JtgpuError):
    """A file that cannot be parsed.

    Parameters
    ----------
    message : str
        What was found and what was expected.
    source : str
        Name of the file as the user gave it.
    line, column : int or None
        Position in the decoded text, starting at 1; None if the error concerns the whole file.

    Attributes
    ----------
    nodes : tuple of str
        All nodes of a network file that cannot be read, with place and reason, if the error is about the first of them.
    """

    nodes: tuple[str, ...] = ()

    def __init__(self, message: str, source: str = "<text>", line: int | None = None, column: int | None = None):
        self.message, self.source, self.line, self.column = message, source, line, column
        place = source if line is None else f"{source}:{line}:{1 if column is None else column}"
        super().__init__(f"{place}: {message}")

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.message, self.source, self.line, self.column), {"nodes": self.nodes}


class FileError(JtgpuError, OSError):
    """A file that the operating system cannot read or write; also an `OSError`."""

    def __str__(self) -> str:  # OSError would show the errno
        return _without_middle(str(self.args[0])) if self.args else ""


class MissingFileError(FileError, FileNotFoundError):
    """A file or folder that does not exist; also a `FileNotFoundError`."""


class FormatError(JtgpuError):
    """An unknown file format, or a model that a format cannot represent."""


class UnknownSuffix(FormatError, ArgumentError):
    """The name of an output whose suffix is not that of a format that can be written."""


class OrderError(JtgpuError):
    """An elimination order that is not a permutation of the model's variables."""


class OutputExists(JtgpuError, FileExistsError):
    """An output that exists already and is not replaced unless ``force`` is given."""


class PlanError(JtgpuError):
    """A plan that violates an invariant (see `jtgpu.Plan.check`), or a saved plan that cannot be read."""


class PlanFileError(PlanError, OSError):
    """A file of a plan that cannot be read or written; also an `OSError`."""

    def __str__(self) -> str:
        return _without_middle(str(self.args[0])) if self.args else ""


class TableTooLarge(JtgpuError):
    """A computation that exceeds a limit of memory or table size. Raised before memory is allocated.

    Attributes
    ----------
    entries : int
        Entries of the largest table.
    needed, limit : int
        Bytes needed and bytes allowed; -1 if the limit is a number of entries.
    row : int
        Row of a table of cases, from 0; -1 if the computation is not that of a case of a table.
    """

    def __init__(self, message: str, entries: int = -1, needed: int = -1, limit: int = -1, row: int = -1):
        self.message, self.entries, self.needed, self.limit, self.row = message, entries, needed, limit, row
        super().__init__(message)

    def __reduce__(self) -> tuple[type[TableTooLarge], tuple[str, int, int, int, int]]:
        return type(self), (self.message, self.entries, self.needed, self.limit, self.row)

    def saying(self, message: str) -> TableTooLarge:
        """This error with another message."""
        return TableTooLarge(message, self.entries, self.needed, self.limit, self.row)


class DataError(JtgpuError, ValueError):
    """A table of training data that cannot be learned from: its shape, missing cells, undeclared values, weights."""


class EvidenceError(JtgpuError):
    """Invalid evidence: wrong type, wrong length, negative likelihoods."""


class ImpossibleEvidence(EvidenceError):
    """Evidence of probability zero under the model: no posterior exists."""


class UnknownVariable(EvidenceError, KeyError):
    """A variable name or number that the model does not have."""

    def __str__(self) -> str:  # KeyError would show the quoted representation
        return _without_middle(str(self.args[0])) if self.args else ""


class UnknownState(EvidenceError, KeyError, IndexError):
    """A state name or number that the variable does not have."""

    def __str__(self) -> str:
        return _without_middle(str(self.args[0])) if self.args else ""


class BackendUnavailable(JtgpuError):
    """A backend that cannot run on this machine: no device, no driver, or a package that is not installed."""


def closest(word: str, known: Iterable[str], n: int = 3) -> str:
    """A phrase with the entries of `known` that are most similar to `word`, or an empty string."""
    # returns For example ``"; did you mean 'lung' or 'bronc'?"``. Empty for words of more than 100 characters, too.
    if len(word) > MAX_WORD:
        return ""
    import difflib  # takes milliseconds, and most processes suggest nothing

    known = [k for k in known if len(k) <= 2 * MAX_WORD]
    similar = difflib.get_close_matches(word, known, n=n, cutoff=0.6)
    if not similar:
        folded = {k.casefold(): k for k in known}
        similar = [folded[f] for f in difflib.get_close_matches(word.casefold(), list(folded), n=n, cutoff=0.6)]
    return f"; did you mean {' or '.join(map(repr, similar))}?" if similar else ""


def near(word: str, known: Iterable[str]) -> str:
    """`closest` for names from files, whose number and length are unbounded.

    Comparison takes time quadratic in a name's length, so only a limited number of short names are considered.
    """
    short = [k for k in islice(known, 5000) if abs(len(k) - len(word)) < 20]
    return closest(word, short) if len(word) <= 60 else ""


class _Repr(reprlib.Repr):
    """Representations of values for messages: of a few elements and the first characters, however large the value."""

    def __init__(self) -> None:
        super().__init__()
        self.maxlevel, self.maxlist, self.maxtuple, self.maxdict, self.maxset, self.maxfrozenset = 3, 8, 8, 8, 8, 8
        self.maxstring, self.maxlong, self.maxother = 60, 60, 120

    def repr_str(self, x: str, level: int) -> str:
        return repr(x) if len(x) <= self.maxstring else f"{x[: self.maxstring]!r}..."

    def repr_dict(self, x: dict[object, object], level: int) -> str:
        """In the order of the dict; reprlib sorts."""
        if level <= 0:
            return "{...}"
        parts = [f"{self.repr1(k, level - 1)}: {self.repr1(x[k], level - 1)}" for k in list(x)[: self.maxdict]]
        return "{" + ", ".join([*parts, "..."] if len(x) > self.maxdict else parts) + "}"


_REPR = _Repr()


def shown(value: object, most: int = 60) -> str:
    """`repr` of a value for a message, shortened: the first `most` characters of a text, some elements of a container.

    Takes time and memory that do not grow with the value.
    """
    if getattr(getattr(value, "dtype", None), "kind", None) in tuple("biufU") and getattr(value, "shape", None) == ():
        value = value.item()  # type: ignore[attr-defined]  # 7, not np.int64(7)
    if isinstance(value, str):
        return repr(value) if len(value) <= most else f"{value[:most]!r}..."
    try:
        return _REPR.repr(value)
    except ValueError:  # Python does not write integers of more than 4,300 digits
        return f"an {type(value).__name__} of too many digits"


def _without_middle(message: str) -> str:
    if len(message) <= MAX_MESSAGE:
        return message
    return f"{message[: MAX_MESSAGE - 1000]} [...] {message[-1000:]}"


def format_bytes(n: float) -> str:
    """Format a number of bytes: ``"1.5 GiB"``."""
    n = min(n, 2**1000)  # an integer may be larger than every float
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(n) < 1024:
            return f"{n:.0f} {unit}" if unit == "B" else f"{n:.1f} {unit}"
        n /= 1024
    return f"{n:.1f} TiB"
