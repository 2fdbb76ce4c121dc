"""Turns of phrase that the project does not use; `tests/test_words.py` looks for them in sources and documents.

A regular expression, without regard to case, and what to write instead: subject, verb, object; active voice; the terms
of the field.
"""

from __future__ import annotations

__all__ = ["DOCUMENT_IDIOMS", "IDIOMS"]

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

# of what users read: documents, and the help of the command line
DOCUMENT_IDIOMS = {
    r"\bsame bits\b": "bit-identical",
    r"\banswer(s|ed|ing)? (a |the |its )(table|row|case|question|query|request|slice)s?\b": "predict for, compute",
    r"\banswers? (tables|cases|questions|queries|requests)\b": "predict for, compute",
    r"\banswers? (are|is) (compared|exact|bit)": "results",
    r"\bholes?\b": "missing values",
    r"\b(same|the) (kind of )?cards?\b": "GPU",
    r"\bdo(es)? not belong\b": "outlier",
    r"\bthat matter\b|\bwhat matters\b|\b(numbers|findings) matter\b": "that are influential, relevant",
    r"\bwith nothing\b": "without evidence",
    r"\b(published|system|engine|report|thesis|kernels?|program) (system )?(of|in) 20(12|14)\b": "name the authors",
    r"\bhardly (tell|change|any)\b": "say what is measured",
    r"\btake away\b": "export",
    r"\bnot (been )?(built|measured|tested) (yet|again)\b": "experimental, or measure it",
}
