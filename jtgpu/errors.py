"""Every error that jtgpu raises on purpose.

All of them derive from `JtgpuError`, so that one ``except`` catches what a file, a network, a piece of
evidence or a machine can do wrong, and nothing that is a bug of jtgpu itself.
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
    "ParseError",
    "PlanError",
    "TableTooLarge",
    "UnknownState",
    "UnknownVariable",
    "closest",
    "format_bytes",
]


class JtgpuError(Exception):
    """Base class of every error that jtgpu raises on purpose."""


class NetworkError(JtgpuError):
    """A model that contradicts itself: shapes, cycles, undeclared parents, rows that are no distribution."""


class ParseError(JtgpuError):
    """A file that cannot be read, with the place where reading stopped.

    Parameters
    ----------
    message : str
        What was found and what was expected.
    source : str
        The file's name as the user gave it.
    line, column : int or None
        One-based place in the decoded text; None where the whole file is meant.
    """

    def __init__(self, message: str, source: str = "<text>", line: int | None = None, column: int | None = None):
        self.message, self.source, self.line, self.column = message, source, line, column
        place = source if line is None else f"{source}:{line}:{1 if column is None else column}"
        super().__init__(f"{place}: {message}")

    def __reduce__(self) -> tuple[type[ParseError], tuple[str, str, int | None, int | None]]:
        return type(self), (self.message, self.source, self.line, self.column)


class FormatError(JtgpuError):
    """A file whose format is unknown, or a model that a format cannot carry."""


class OrderError(JtgpuError):
    """An elimination order that is no permutation of the model's variables, or that names unknown ones."""


class PlanError(JtgpuError):
    """A plan that breaks one of its own rules (see `jtgpu.plans.plan.Plan.check`), or a saved one that cannot be read."""


class TableTooLarge(JtgpuError):
    """The work asked for does not fit. Raised before memory is taken.

    Attributes
    ----------
    entries : int
        Entries of the largest table that would be built.
    needed, limit : int
        Bytes needed and bytes allowed; -1 where the limit is one of entries.
    """

    def __init__(self, message: str, entries: int = -1, needed: int = -1, limit: int = -1):
        self.message, self.entries, self.needed, self.limit = message, entries, needed, limit
        super().__init__(message)

    def __reduce__(self) -> tuple[type[TableTooLarge], tuple[str, int, int, int]]:
        return type(self), (self.message, self.entries, self.needed, self.limit)


class EvidenceError(JtgpuError):
    """Evidence that cannot be understood: wrong type, wrong length, negative likelihoods."""


class ImpossibleEvidence(EvidenceError):
    """Evidence of probability zero under the model: no posterior exists."""


class UnknownVariable(EvidenceError, KeyError):
    """A variable's name or number that the model does not have."""

    def __str__(self) -> str:  # KeyError would show the quoted representation
        return str(self.args[0]) if self.args else ""


class UnknownState(EvidenceError, KeyError):
    """A state's name or number that the variable does not have."""

    def __str__(self) -> str:
        return str(self.args[0]) if self.args else ""


class BackendUnavailable(JtgpuError):
    """A backend that cannot run here: no device, no driver, or a package that is not installed."""


def closest(word: str, known: Iterable[str], n: int = 3) -> str:
    """A phrase that names the entries of `known` most like `word`, or an empty string.

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
    """`n` bytes for people: ``"1.5 GiB"``."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(n) < 1024:
            return f"{n:.0f} {unit}" if unit == "B" else f"{n:.1f} {unit}"
        n /= 1024
    return f"{n:.1f} TiB"
