"""Cases as ``name=state`` lines."""

from __future__ import annotations

from collections.abc import Iterator

from ...errors import EvidenceError, shown
from ...model.discrete import DiscreteModel
from ...model.findings import parse_finding
from ..common.text import BLANKS, Source
from .case import Case
from .numbered_cases import LINE

MAX_LINE = 1 << 14  # characters; every '=' of a line is a place where a name may end


def line_cases(source: Source, net: DiscreteModel) -> Iterator[Case]:
    """The cases of a text of ``name=state`` lines."""
    case = Case()
    for found in LINE.finditer(source.text):
        line, at = found[0].strip(BLANKS), found.start()
        at += len(found[0]) - len(found[0].lstrip(BLANKS))
        if not line or line.startswith("#"):
            continue
        if line == "---":
            yield case
            case = Case()
            continue
        if len(line) > MAX_LINE:
            raise source.error(at, f"found a line of {len(line):,} characters, expected name=state")
        if "=" not in line:
            raise source.error(at, f"found {shown(line)}, expected name=state, UAI's numbers, or JSON")
        try:
            name, value = parse_finding(net, line)
        except EvidenceError as error:
            raise source.error(at, str(error)) from None
        if name in case:
            raise source.error(at, f"found {name!r} a second time; several states are written {name}=a,b")
        case[name] = value
    yield case
