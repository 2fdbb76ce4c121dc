"""Options that are declared once: records whose fields have a type, a default, bounds and one sentence of help.

Signatures of Python, the command line and the description of HTTP read the same fields. Nothing here imports NumPy, so
that help and completion are quick; annotations are evaluated, so no module imports annotations from ``__future__``.
"""
