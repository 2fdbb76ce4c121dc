"""The columns of a table that are evidence: those with the name of a variable."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence

from ..errors import EvidenceError, UnknownVariable, closest, shown
from ..model.discrete import DiscreteModel

DELIMITERS = (",", ";", "\t", "|")
MIN_LENGTH = 4  # characters of names that may be misspelled
MAX_LENGTH = 200  # characters of the names of variables that are compared
MIN_SUBSTITUTED = 5  # and of those in which one character may differ


def evidence_columns(
    model: DiscreteModel, columns: Sequence[str], targets: Collection[int] = (), *, source: str = "the table"
) -> list[str]:
    """The columns that are variables, in the order of the table.

    Columns that are not variables are ignored, but a column whose name is almost that of a variable is an error: one
    that differs in case, spaces, punctuation, or in one letter.
    """
    # columns: sequence of str: Names of the table's columns
    # targets: collection of int: Variables whose columns are not evidence
    # source: Name of the table in messages
    # raises UnknownVariable: If no column is a variable, or a name is almost that of a variable.
    # raises EvidenceError: If the only columns that are variables are targets, or a column occurs twice.
    excluded = {model.variables[v] for v in targets}
    variables = set(model.variables)
    names = [c for c in columns if c in variables and c not in excluded]
    _reject_misspelled(model, columns, source)
    if not names and columns:
        raise _no_evidence(model, columns, bool(excluded & set(columns)), source)
    reject_repeated(names, columns, source)
    return names


def reject_repeated(names: Sequence[str], columns: Sequence[str], source: str) -> None:
    """Raise `EvidenceError` if one of some names is that of several columns."""
    if len(set(columns)) == len(columns):
        return
    count = Counter(columns)
    for name in names:
        if count[name] > 1:
            raise EvidenceError(f"{source} has {count[name]} columns named {name!r}; rename one")


def _no_evidence(model: DiscreteModel, columns: Sequence[str], are_targets: bool, source: str) -> EvidenceError:
    """The error for a table without a column of evidence."""
    if are_targets:
        return EvidenceError(
            f"{source} has no evidence: its only columns that are variables are the targets; pass evidence_columns to "
            "use them as evidence"
        )
    some = _some(columns)
    hint = closest(columns[0], model.variables)
    of = repr(model.name) if model.name else f"the network ({_some(model.variables)})"
    return UnknownVariable(f"no column of {source} is a variable of {of}: {some}{delimiter_hint(columns) or hint}")


def delimiter_hint(columns: Sequence[str]) -> str:
    """Advice where the name of the only column has the delimiter of several."""
    likely = next((d for d in DELIMITERS if d in columns[0]), None) if len(columns) == 1 else None
    return "" if likely is None else f"; the delimiter seems to be {likely!r}: delimiter={likely!r} (--delimiter)"


def _some(names: Sequence[str]) -> str:
    """The first names of a list, for a message."""
    return ", ".join(map(shown, list(names)[:5])) + (", ..." if len(names) > 5 else "")


def _reject_misspelled(model: DiscreteModel, columns: Sequence[str], source: str) -> None:
    """Raise for a column whose name is almost that of a variable without a column."""
    known = set(columns)
    other = [c for c in known.difference(model.variables) if c]
    if not other:
        return
    meant: dict[str, list[str]] = {}  # folded names of variables, and these without one letter -> the variables
    longest = 0  # the work for a name is quadratic in its length
    for v in model.variables:
        if v not in known and len(v) <= MAX_LENGTH:
            longest = max(longest, len(_folded(v)))
            for key in _keys(_folded(v)):
                meant.setdefault(key, []).append(v)
    at = {c: i for i, c in enumerate(columns)}
    for name in sorted(other, key=at.__getitem__):
        folded = _folded(name)
        if len(folded) > longest + 1:
            continue
        for v in dict.fromkeys(v for key in _keys(folded) for v in meant.get(key, ())):
            if _is_almost(folded, _folded(v)):
                raise UnknownVariable(
                    f"{source} has a column {name!r}, but the variable is named {v!r}: rename the column, or drop it"
                )


def _keys(name: str) -> Iterator[str]:
    """A name, and the name without each of its characters: names that differ in one letter share a key."""
    yield name
    if len(name) >= MIN_LENGTH - 1:
        for i in range(len(name)):
            yield name[:i] + name[i + 1 :]


def _is_almost(a: str, b: str) -> bool:
    """Whether two folded names are equal, or differ by one letter added, missing or changed, or by a swap of two.

    Names that differ in a digit are different: x1 and x2, x1 and x11.
    """
    if a == b:
        return True
    short, long = sorted((a, b), key=len)
    if len(long) < MIN_LENGTH or len(long) - len(short) > 1:
        return False
    i = next((i for i, (x, y) in enumerate(zip(short, long, strict=False)) if x != y), len(short))
    if len(short) < len(long):
        return short[i:] == long[i + 1 :] and not long[i].isdigit()
    if short[i : i + 2].isdigit() or long[i : i + 2].isdigit() or short[i].isdigit() or long[i].isdigit():
        return False
    swapped = short[i + 1 : i + 2] == long[i] and short[i] == long[i + 1 : i + 2] and short[i + 2 :] == long[i + 2 :]
    return swapped or (len(long) >= MIN_SUBSTITUTED and short[i + 1 :] == long[i + 1 :])


def _folded(name: str) -> str:
    return "".join(c for c in name.casefold() if c.isalnum()) or name
