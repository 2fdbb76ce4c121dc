"""Causal questions: what may be adjusted for, which effects data determine, effects, counterfactuals."""

from ..util.late_imports import public_names

__all__ = ["CausalClass", "CausalGraph", "Estimand", "EstimatedEffect", "NotIdentified", "Reason", "cpdag", "graph"]

__getattr__, __dir__ = public_names(
    __name__,
    {"adjustment": "NotIdentified Reason", "causal_graph": "CausalClass CausalGraph cpdag graph",
     "identify": "EstimatedEffect Estimand"},
)
