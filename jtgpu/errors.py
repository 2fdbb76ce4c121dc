"""All errors that jtgpu raises deliberately.

They derive from `JtgpuError`: one ``except`` clause catches every problem with a file, a network, evidence or the
machine, but does not hide bugs in jtgpu.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable

__all__ = [
    "BackendUnavailable",
    "EvidenceError",
    "FormatError",
    "ImpossibleEvidence",
    "JtgpuError",
    "NetworkError",
    "OrderError",
    "OutputExists",
    "ParseError",
    "PlanError",
    "TableTooLarge",
    "UnknownState",
    "UnknownVariable",
    "closest",
    "format_bytes",
]


class JtgpuError(Exception):
    """Base class of all errors that jtgpu raises deliberately."""


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
    """

    def __init__(self, message: str, source: str = "<text>", line: int | None = None, column: int | None = None):
        self.message, self.source, self.line, self.column = message, source, line, column
        place = source if line is None else f"{source}:{line}:{1 if column is None else column}"
        super().__init__(f"{place}: {message}")

    def __reduce__(self) -> tuple[type[ParseError], tuple[str, str, int | None, int | None]]:
        return type(self), (self.message, self.source, self.line, self.column)


class FormatError(JtgpuError):
    """An unknown file format, or a model that a format cannot represent."""


class OrderError(JtgpuError):
    """An elimination order that is not a permutation of the model's variables."""


class OutputExists(JtgpuError, FileExistsError):
    """An output that exists already and is not replaced unless ``force`` is given."""


class PlanError(JtgpuError):
    """A plan that violates an invariant (see `jtgpu.plans.plan.Plan.check`), or a saved plan that cannot be read."""


class TableTooLarge(JtgpuError):
    """A computation that exceeds a limit of memory or table size. Raised before memory is allocated.

    Attributes
    ----------
    entries : int
        Entries of the largest table.
    needed, limit : int
        Bytes needed and bytes allowed; -1 if the limit is a number of entries.
    """

    def __init__(self, message: str, entries: int = -1, needed: int = -1, limit: int = -1):
        self.message, self.entries, self.needed, self.limit = message, entries, needed, limit
        super().__init__(message)

    def __reduce__(self) -> tuple[type[TableTooLarge], tuple[str, int, int, int]]:
        return type(self), (self.message, self.entries, self.needed, self.limit)


class EvidenceError(JtgpuError):
    """Invalid evidence: wrong type, wrong length, negative likelihoods."""


class ImpossibleEvidence(EvidenceError):
    """Evidence of probability zero under the model: no posterior exists."""


class UnknownVariable(EvidenceError, KeyError):
    """A variable name or number that the model does not have."""

    def __str__(self) -> str:  # KeyError would show the quoted representation
        return str(self.args[0]) if self.args else ""


class UnknownState(EvidenceError, KeyError):
    """A state name or number that the variable does not have."""

    def __str__(self) -> str:
        return str(self.args[0]) if self.args else ""


class BackendUnavailable(JtgpuError):
    """A backend that cannot run on this machine: no device, no driver, or a package that is not installed."""


def closest(word: str, known: Iterable[str], n: int = 3) -> str:
    """A phrase with the entries of `known` that are most similar to `word`, or an empty string.

    Returns
    -------
    str
        For example ``"; did you mean 'lung' or 'bronc'?"``.
    """
    known = list(known)
    found = difflib.get_close_matches(word, known, n=n, cutoff=0.6)
    if not found:
        folded = {k.casefold(): k for k in known}
        found = [folded[f] for f in difflib.get_close_matches(word.casefold(), list(folded), n=n, cutoff=0.6)]
    return f"; did you mean {' or '.join(repr(f) for f in found)}?" if found else ""


def format_bytes(n: float) -> str:
    """Format a number of bytes: ``"1.5 GiB"``."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(n) < 1024:
            return f"{n:.0f} {unit}" if unit == "B" else f"{n:.1f} {unit}"
        n /= 1024
    return f"{n:.1f} TiB"
