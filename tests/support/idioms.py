"""Turns of phrase that the project does not use; `tests/test_words.py` looks for them in sources and documents.

A regular expression, without regard to case, and what to write instead: subject, verb, object; active voice; the terms
of the field.
"""

from __future__ import annotations

__all__ = ["IDIOMS"]

IDIOMS = {
    r"\banew\b": "again",
    r"\b(is|are|be|was) (?-i:none) for\b": "does not support",
    r"\bnone for the\b": "not supported by",
    r"\bplayed\b": "emulated",
    r"\b(the )?host plays\b": "is emulated",
    r"\bwhoever\b": "name the actor: the caller, an idle worker",
    r"\bdealt\b": "distributed",
    r"\btold\b": "reported, logged, passed",
    r"\basked (of|about|for|again|alone|together|what)\b": "queried, requested",
    r"\b(is|are|was|were|be|been) asked\b": "is queried, is requested",
    r"\blies? (in|at|on|beside|below|within|beyond|behind|there|where|next)\b": "is in, is stored in",
    r"\blying\b": "stored",
    r"\bbeside\b": "next to, in addition to, compared with, while",
    r"\bthe way down\b": "the downward pass, distribution",
    r"\bthe way up\b": "the upward pass, collection",
    r"\btaken apart\b": "split",
    r"\btakes? apart\b": "splits",
    r"\blongest way\b": "critical path",
    r"\bgives? back\b": "returns, releases",
    r"\bgiven back\b": "released",
    r"\bgave back\b": "released",
    r"\bcrews?\b": "worker pool",
    r"\breplanning\b": "pattern cache",
    r"\bhas to be there\b": "is required",
    r"\bmended\b": "repaired, fixed",
    r"\bto be called\b": "is automatic",
    r"\bsays so\b": "reports it",
    r"\bshall be\b": "must be",
    r"\btaking part\b": "contributing",
    r"\bis the judge of\b": "is compared with",
}
