"""Options that are declared once: records whose fields have a type, a default, bounds and one sentence of help.

The command line and the description of HTTP read these fields; functions of Python take them as keywords. Nothing here
imports NumPy, and annotations are evaluated when the fields of a record are first read, so that help and completion
are quick.
"""
