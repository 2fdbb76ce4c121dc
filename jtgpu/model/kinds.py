"""Which question works with which kind of network: one record, which trees, the docs and their tests read."""

from __future__ import annotations

KINDS = ("Bayesian", "Markov", "mixed", "dynamic", "mixed dynamic", "decision")
TREES = {
    "JunctionTree": "Bayesian", "MixedTree": "mixed", "DynamicTree": "dynamic", "MixedDynamicTree": "mixed dynamic",
    "DecisionTree": "decision",
}  # fmt: skip

_SLICES = "filter() and smooth() answer it in every slice"
_POLICY = "under(policy) is the Bayesian network's tree under a policy, which has it"
_JOINTS = "filter() and smooth() take joints= of variables with states"
_UNITS = "the highest density depends on the units of the numbers; use posteriors, or sample"
_TABLE = "filter(), smooth() and predict() take tables of sequences"
_ARCS = "a Markov network has no arcs that an intervention could remove"
_STATES = "it is known for variables with states only"
_ALL = dict.fromkeys(KINDS, "")


def _but(**reasons: str) -> dict[str, str]:
    return {**_ALL, **{kind.replace("_", " "): reason for kind, reason in reasons.items()}}


# question -> kind -> "" where it works, else what to use in its place
VERBS: dict[str, dict[str, str]] = {
    "posteriors": _but(dynamic=_SLICES, mixed_dynamic=_SLICES),
    "posterior": _but(dynamic=_SLICES, mixed_dynamic=_SLICES),
    "log_evidence": _but(
        dynamic="log_likelihood() is that of sequences", mixed_dynamic="log_likelihood() is that of sequences"
    ),
    "joint": _but(
        dynamic="filter() and smooth() take joints= of a slice", mixed_dynamic=_JOINTS, decision=_POLICY,
    ),
    "conditional": _but(
        mixed="joint() of variables with states, divided by that of the given ones, is it",
        dynamic="filter() and smooth() take joints= of a slice", mixed_dynamic=_JOINTS, decision=_POLICY,
    ),
    "ask": _but(dynamic=_SLICES, mixed_dynamic=_SLICES),
    "session": _but(
        dynamic="stream() takes the slices of a sequence one by one",
        mixed_dynamic="stream() takes the slices of a sequence one by one",
    ),
    "posteriors_batch": _but(
        dynamic=_TABLE, mixed_dynamic=_TABLE, decision="options_batch() has the expected utilities of a table"
    ),
    "predict_proba": _but(dynamic=_TABLE, mixed_dynamic=_TABLE, decision=_POLICY),
    "predict": _but(decision=_POLICY),
    "sample": _but(decision=_POLICY),
    "impute": _but(
        dynamic="sample() draws the missing cells of sequences", mixed_dynamic="sample() draws sequences",
        decision=_POLICY,
    ),
    "mpe": _but(mixed=_UNITS, decision=_POLICY),
    "map": _but(
        dynamic="mpe() finds the most probable states of all slices",
        mixed_dynamic="mpe() finds the most probable states of all slices", decision=_POLICY,
    ),
    "value_of_information": _but(
        mixed_dynamic="filter() of sequences with and without the finding shows what it tells",
    ),
    "mutual_information": _but(
        dynamic="value_of_information() has it for the last slice",
        mixed_dynamic="filter() and smooth() have the joints that it is computed from",
        decision=_POLICY,
    ),
    "entropy": _but(
        dynamic="filter() and smooth() have the posteriors that it is computed from",
        mixed_dynamic="filter() and smooth() have the posteriors that it is computed from", decision=_POLICY,
    ),
    "contributions": _but(
        dynamic="dyn.unroll(n) is a Bayesian network, whose tree has it",
        mixed_dynamic="dyn.unroll(n) is a mixed network, whose tree has it",
    ),
    "evidence_importance": _but(
        mixed="contributions() says what each finding contributes",
        dynamic="dyn.unroll(n) is a Bayesian network, whose tree has it",
        mixed_dynamic="dyn.unroll(n) is a mixed network, whose tree has contributions()", decision=_POLICY,
    ),
    "sensitivity": _but(
        Markov="factors have no rows that sum to 1", mixed="it is of CPTs; compare posteriors of net.replace(cpt=...)",
        dynamic="dyn.unroll(n) is a Bayesian network, whose tree has it", mixed_dynamic="compare dyn.replace(cpt=...)",
        decision=_POLICY,
    ),
    "conflict": _but(
        mixed="densities of numbers have units, which a ratio to their product keeps",
        dynamic="dyn.unroll(n) is a Bayesian network, whose tree has it",
        mixed_dynamic="densities of numbers have units", decision=_POLICY,
    ),
    "effect": _but(
        Markov=_ARCS, mixed="posteriors(do=...) for each state of the cause are it", dynamic="smooth(do=...) is it",
        mixed_dynamic="smooth(do=...) is it", decision=_POLICY,
    ),
    "probability_of_causation": _but(
        Markov=_ARCS, mixed=_STATES, dynamic="dyn.unroll(n) is a Bayesian network, whose tree has it",
        mixed_dynamic=_STATES, decision=_POLICY,
    ),
    "counterfactual": _but(
        Markov=_ARCS, mixed=_STATES, dynamic="dyn.unroll(n) is a Bayesian network, whose tree has it",
        mixed_dynamic=_STATES, decision=_POLICY,
    ),
}  # fmt: skip


_LINKS = "a link keeps the findings of all slices"
_TABLES = "jtgpu dynamic answers tables of sequences"
_BATCH = "jtgpu batch and predict_proba() answer tables of its cases"
# what the page of `jtgpu serve` does with a network of each kind; as above
PAGE: dict[str, dict[str, str]] = {
    "map and posteriors": _ALL, "open and save files": _ALL, "edit": _ALL, "report": _ALL, "links": _ALL,
    "scenarios": _but(dynamic=_LINKS, mixed_dynamic=_LINKS),
    "table of cases": _but(mixed=_BATCH, dynamic=_TABLES, mixed_dynamic=_TABLES),
}  # fmt: skip


def why_not(tree: str, verb: str) -> str:
    """The question to use in place of one that the tree of a class lacks; empty if none is recorded."""
    return VERBS.get(verb, {}).get(TREES.get(tree, ""), "")
