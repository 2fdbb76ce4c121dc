"""Cases as numbers of variables and states: UAI and Ergo."""

from __future__ import annotations

import re

from ...model.discrete import DiscreteModel
from ...model.state_values import StateNumber
from ..common.number_cursor import NumberCursor
from ..common.text import BLANKS, Source
from .case import Case

MAX_CASES = 1 << 20
NUMBERS = re.compile(rf"[0-9{BLANKS}.+\-]*+")
LINE = re.compile(r"[^\r\n]+")


class NumberedCases:
    """Reads cases given by the numbers of variables and states."""

    def __init__(self, source: Source, text: str, net: DiscreteModel):
        self.net, self.text = net, text
        self.numbers = NumberCursor(source, text)

    def cases(self, *, ergo: bool) -> list[Case]:
        """All cases; an Ergo file contains one, without a number of cases."""
        numbers = self.numbers
        if numbers.values.size == 0:
            return [Case()]
        if not ergo and self.counted():
            return [self.case() for _ in range(numbers.whole("the number of cases", 0, MAX_CASES))] or [Case()]
        case = self.case()
        numbers.finish()
        return [case]

    def counted(self) -> bool:
        """Whether the first number is the number of cases."""
        values = self.numbers.values
        first, *rest = [line.split() for line in LINE.findall(self.text) if line.strip(BLANKS)]
        by_lines = len(rest) == values[0] and all(len(words) == 1 + 2 * float(words[0]) for words in rest)
        if len(first) == 1 and by_lines:
            return True
        if values.size == 1 + 2 * values[0]:
            return False
        at, left = 1, float(values[0])
        while left > 0 and at < values.size and values[at] >= 0 and values[at].is_integer():
            at, left = at + 1 + 2 * int(values[at]), left - 1
        # neither fits, so an error will follow; the layout decides which one
        return (left == 0 and at == values.size) or (len(first) == 1 and len(rest) > 0)

    def case(self) -> Case:
        """The next case."""
        numbers, net = self.numbers, self.net
        case = Case()
        for _ in range(numbers.whole("the number of observed variables", 0, numbers.values.size)):
            at = numbers.at
            v = numbers.whole(f"the number of a variable, 0 to {len(net) - 1}", 0, len(net) - 1)
            name = net.variables[v]
            last = int(net.cardinality[v]) - 1
            state = StateNumber(numbers.whole(f"the number of a state of {name!r}, 0 to {last}", 0, last))
            if case.setdefault(name, state) != state:
                raise numbers.error(at, f"found {name!r} a second time, in state {state} and not {case[name]}")
        return case
