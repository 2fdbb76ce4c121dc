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
* otherwise lines ``name=state``, as on the command line. Lines that begin with ``#`` are comments, a line ``---``
  separates two cases.
"""

from __future__ import annotations

from .cases import Case
from .reading import parse_evidence, read_evidence, read_evidence_cases, read_query

__all__ = ["Case", "parse_evidence", "read_evidence", "read_evidence_cases", "read_query"]
