"""Query files of the inference competitions: the variables of a marginal MAP query."""

from __future__ import annotations

import os

import numpy as np

from ...errors import EvidenceError
from ...model.discrete import DiscreteModel
from ..common.files import read_bytes
from ..common.number_cursor import NumberCursor
from ..common.text import BLANKS, Source, decode
from .numbered_cases import LINE, NUMBERS


def read_query(path: str | os.PathLike[str], net: DiscreteModel) -> list[int]:
    """Read a query file of the competitions: the number of variables and their numbers, or one name per line."""
    # returns list of int: The variables' numbers.
    # raises ParseError: If the file is malformed; the message gives ``file:line:column``.
    # raises FileError: If the operating system cannot read the file; also an `OSError`.
    name = os.fspath(path)
    source = Source(decode(read_bytes(name)), name)
    found: list[tuple[int, int]] = []  # variable, offset
    if NUMBERS.fullmatch(source.text):
        numbers = NumberCursor(source, source.text)
        n = numbers.whole("the number of query variables", 0, numbers.values.size)
        places = numbers.offsets(np.arange(1, 1 + n)).tolist()
        found += [
            (numbers.whole(f"the number of a variable, 0 to {len(net) - 1}", 0, len(net) - 1), at) for at in places
        ]
        numbers.finish()
    else:
        for line in LINE.finditer(source.text):
            if line[0].strip(BLANKS):
                at = line.start() + len(line[0]) - len(line[0].lstrip(BLANKS))
                try:
                    found.append((net.index(line[0].strip(BLANKS)), at))
                except EvidenceError as error:
                    raise source.error(at, str(error)) from None
    seen: set[int] = set()
    for v, at in found:
        if v in seen:
            raise source.error(at, f"found {net.variables[v]!r} a second time")
        seen.add(v)
    return [v for v, _ in found]
