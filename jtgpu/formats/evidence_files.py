"""Evidence files: UAI (all layouts of the competitions), ``name=state`` lines, JSON.

The content decides the format:

* white space only: nothing is observed;
* numbers: a count and as many pairs of a variable's and a state's number (UAI 2014; Ergo, after ``/* Evidence */``), or
  the number of cases followed by each case in that form (UAI 2008, 2010). If both layouts match, the first number is
  the number of cases if it is alone on its line and that many lines follow, each with one case. Lines that begin with
  the word ``c`` are comments;
* ``{`` or ``[``: JSON, an object per case or a list of them. A value is one of: a state's name or number; a list of
  names, one of which is the true state; weights (virtual evidence), as a list with one number per state or as an object
  from state to weight; null for "not observed";
* a network of Netica or GeNIe: the findings that were entered in it, or its cases;
* otherwise lines ``name=state``, as on the command line. Lines that begin with ``#`` are comments, a line ``---``
  separates two cases.
"""

from __future__ import annotations

import os
import re

import numpy as np

from ..errors import EvidenceError
from ..model.discrete import DiscreteModel
from . import dne, xdsl
from .evidence_cases import LINE, NUMBERS, Case, JsonCases, NumberedCases, line_cases
from .files import read_bytes
from .number_cursor import NumberCursor
from .text import BLANKS, SourceText, decode

# Reading evidence files: the content decides the format.

# Query files of the inference competitions: the variables of a marginal MAP query.

def read_query(path: str | os.PathLike[str], net: DiscreteModel) -> list[int]:
    """Read a query file of the competitions: the number of variables and their numbers, or one name per line."""
    # returns list of int: The variables' numbers.
    # raises ParseError: If the file is malformed; the message gives ``file:line:column``.
    # raises FileError: If the operating system cannot read the file; also an `OSError`.
    name = os.fspath(path)
    source = SourceText(decode(read_bytes(name)), name)
    variables: list[tuple[int, int]] = []  # variable, offset
    if NUMBERS.fullmatch(source.text):
        numbers = NumberCursor(source, source.text)
        n = numbers.whole("the number of query variables", 0, numbers.values.size)
        places = numbers.offsets(np.arange(1, 1 + n)).tolist()
        variables += [
            (numbers.whole(f"the number of a variable, 0 to {len(net) - 1}", 0, len(net) - 1), at) for at in places
        ]
        numbers.finish()
    else:
        for line in LINE.finditer(source.text):
            if line[0].strip(BLANKS):
                at = line.start() + len(line[0]) - len(line[0].lstrip(BLANKS))
                try:
                    variables.append((net.index(line[0].strip(BLANKS)), at))
                except EvidenceError as error:
                    raise source.error(at, str(error)) from None
    seen: set[int] = set()
    for v, at in variables:
        if v in seen:
            raise source.error(at, f"found {net.variables[v]!r} a second time")
        seen.add(v)
    return [v for v, _ in variables]


_COMMENT = re.compile(r"/\*[^*]*+(?:\*(?!/)[^*]*+)*+(?:\*/|\Z)")  # an unclosed one extends to the end
_C_LINE = re.compile(rf"(?:\A|(?<=[\r\n]))c(?=[{BLANKS}]|\Z)[^\r\n]*+")


def read_evidence(path: str | os.PathLike[str], net: DiscreteModel) -> Case:
    """Read an evidence file that contains one case: UAI, ``name=state`` lines, or JSON.

    Parameters
    ----------
    path : path-like
        A file, plain or compressed by gzip.
    net : DiscreteModel
        The network whose variables the file refers to, by name or by number.

    Returns
    -------
    Case
        A mapping, empty if nothing is observed: ``tree.posteriors(jtgpu.read_evidence(path, net))``.

    Raises
    ------
    ParseError
        If the file is malformed or names unknown variables or states; the message gives ``file:line:column``.
    EvidenceError
        If the file contains several cases; `read_evidence_cases` reads them.
    FileError
        If the operating system cannot read the file; also an `OSError`.
    """
    cases = read_evidence_cases(path, net)
    if len(cases) > 1:
        raise EvidenceError(
            f"{os.fspath(path)}: found {len(cases)} cases, expected one; "
            "jtgpu.formats.read_evidence_cases reads them all"
        )
    return cases[0] if cases else Case()


def read_evidence_cases(path: str | os.PathLike[str], net: DiscreteModel) -> list[Case]:
    """Read all cases of an evidence file; parameters and errors as for `read_evidence`."""
    name = os.fspath(path)
    return parse_evidence(decode(read_bytes(name)), net, name)


def parse_evidence(text: str, net: DiscreteModel, source: str = "<text>") -> list[Case]:
    """The cases in the text of an evidence file; see `read_evidence`."""
    place = SourceText(text, source)
    for network in (dne, xdsl):
        if network.sniff(text):
            cases = network.parse_draft(text, source).findings
            return [Case({v: _state(place, net, v, *state) for v, state in case.items()}) for case in cases]
    start = text.lstrip(BLANKS)[:1]
    if start in ("{", "["):
        return list(JsonCases(place, net).cases())
    bare = _COMMENT.sub(lambda match: " " * len(match[0]), text) if "/*" in text else text
    ergo = bare != text
    bare = _C_LINE.sub(lambda match: " " * len(match[0]), bare)
    # a variable may be called c: a file that consists of comment lines only is not a file of numbers
    if NUMBERS.fullmatch(bare) and (bare.strip(BLANKS) or ergo or not text.strip(BLANKS)):
        return NumberedCases(place, bare, net).cases(ergo=ergo)
    return list(line_cases(place, net))


def _state(source: SourceText, net: DiscreteModel, variable: str, state: str, at: int) -> int:
    try:
        return net.state_index(variable, state)
    except EvidenceError as error:
        raise source.error(at, str(error)) from None
