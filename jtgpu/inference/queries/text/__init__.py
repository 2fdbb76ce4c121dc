"""Queries as text: ``P(lung | xray=yes)``, ``MPE(3 | xray=yes)``, ``MI(lung; smoke, bronc)``.

A question is its kind and, in parentheses, its variables; evidence follows after ``|``:

====================================  ================================================================================
``P(a)``, ``P(a, b)``                 posterior of a variable, joint posterior of several variables
``P(a | b, c=x)``                     table of P(a | b) given c = x, one row for each state of b
``P(a=x, b=y)``, ``lnP(a=x)``         probability of an event, and its natural logarithm
``H(a)``, ``H(a, b)``                 entropy, in nats
``MI(a)``, ``MI(a; b, c)``            mutual information of a and each other variable, or each of b and c
``VOI(a)``, ``VOI(a; b, c)``          which variable to observe next to learn about a; all candidates, or b and c
``IMPORTANCE(a | b=x, c=y)``          effect of each finding on the posterior of a
``CONFLICT(b=x, c=y)``                conflict measure of the findings
``MPE(| b=x)``, ``MPE(3 | b=x)``      most probable configuration of all variables, or the three most probable ones
``MAP(a, b | c=x)``                   most probable configuration of some variables, the others summed out
====================================  ================================================================================

Evidence is ``a=x`` (observed), ``a={x, y}`` (one of these states), ``likelihood(a: x=0.9, y=0.2)``,
``soft(a: x=0.7, y=0.3)`` or ``do(a=x)``. Numbers without states are in the order of the states: ``soft(a: 0.7, 0.3)``.
States are given by name or number. Names may contain any character: the longest matching name of the model is used.
Quotes around a name are optional: ``P(churn | "Has Kids?"=True)``.
"""

from __future__ import annotations

from .as_json import UNITS, as_json
from .evaluate import ask
from .grammar import KINDS, Question, parse

__all__ = ["KINDS", "UNITS", "Question", "as_json", "ask", "parse"]
