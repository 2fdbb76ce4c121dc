"""A network made to break pages: names with markup, very long names, other scripts, equal states, 1,000 states."""

from __future__ import annotations

import numpy as np

import jtgpu

MARKUP = '<img src=x onerror="alert(1)">'
SCRIPT = "</title><script>alert(2)</script>"
LONG = "a very long name of a variable " * 7
RTL = "\u202eabc \u05d0\u05d1\u05d2"
EMOJI = "\U0001f9ea \u6e2c\u8a66"
PROTO = "__proto__"
COMMA = 'x=1,"2"&y:3#4%'
MANY = "many states"
EQUAL = "equal"


def hostile_network() -> jtgpu.BayesianNetwork:
    """Nine variables; the last one has all arcs."""
    states = {
        MARKUP: ["<b>yes</b>", "no & never"],
        SCRIPT: ["javascript:alert(3)", "'\"`"],
        LONG: ["s" * 200, "t" * 200],
        RTL: ["\u202e1", "\u05d3"],
        EMOJI: ["\U0001f600", "\u0000\u0001"],
        PROTO: ["constructor", "toString"],
        COMMA: ["a,b:c", "#1"],
        MANY: [f"state {i}" for i in range(1000)],
        EQUAL: ["same", "same", "", "other"],
    }
    parents = {SCRIPT: [MARKUP], RTL: [MARKUP], EQUAL: [COMMA, PROTO], MANY: [EMOJI], LONG: [SCRIPT]}
    random = np.random.default_rng(1)

    def table(name: str) -> np.ndarray:
        shape = [len(states[p]) for p in parents.get(name, [])] + [len(states[name])]
        numbers = random.uniform(0.2, 1, shape)
        return np.asarray(numbers / numbers.sum(-1, keepdims=True))

    return jtgpu.BayesianNetwork(states, parents, {name: table(name) for name in states})
