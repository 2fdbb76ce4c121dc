"""JAX: ln P of cases and posteriors as differentiable functions of CPTs and likelihoods.

JAX is imported when a function is called. The functions are host callbacks (``jax.pure_callback``) with derivatives of
their own (``jax.custom_vjp``), so they work under ``jax.jit`` and ``jax.grad``. Gradients are exact, from expected
counts (`jtgpu.JunctionTree.evidence_function`), and are computed on the CPU. Results are float64 if JAX has 64-bit
numbers enabled (``jax.config.update("jax_enable_x64", True)``), else float32.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from ..errors import JtgpuError
from ..util.arguments import several
from ..util.options import OnProblem

__all__ = ["log_evidence", "posteriors"]


def log_evidence(
    tree: Any, cases: Any, cpts: Mapping[str, Any] | None = None, likelihood: Mapping[str, Any] | None = None,
    *, on_error: OnProblem = "error",
) -> Any:  # fmt: skip
    """Compute ln P of every case as a differentiable function.

    Parameters
    ----------
    tree : JunctionTree
        Of a Bayesian network.
    cases : table
        See `jtgpu.JunctionTree.posteriors_batch`; not a traced array: under ``jax.jit`` the cases are constants.
    cpts : mapping, optional
        Variable to an array of the shape of its CPT, >= 0. Entries are free parameters: rows need not sum to 1.
        Default: the CPTs of the network, as constants.
    likelihood : mapping, optional
        Variable to weights >= 0, (B, card) or (card,) for all cases.
    on_error : {"error", "flag"}
        Whether a case of probability 0 is an error, or has -inf and a gradient of 0.

    Returns
    -------
    (B,) array
    """
    function = tree.evidence_function(cases, on_error=on_error)
    given = _inputs(function, cpts, likelihood)

    def gradient(weights: Any, *given: Any) -> Any:
        return function.gradient(weights[0], *given, variables=[*given[0]])

    return _differentiable(function, lambda *given: [function.log_evidence(*given)], gradient, [()])(*given)[0]


def posteriors(
    tree: Any, cases: Any, targets: str | Iterable[str], cpts: Mapping[str, Any] | None = None,
    likelihood: Mapping[str, Any] | None = None, *, on_error: OnProblem = "error",
) -> dict[str, Any]:  # fmt: skip
    """Compute posteriors as differentiable functions.

    Parameters
    ----------
    tree, cases, cpts, likelihood, on_error
        See `log_evidence`.
    targets : str, or iterable of str

    Returns
    -------
    mapping of str to (B, card) array
    """
    function = tree.evidence_function(cases, on_error=on_error)
    model = function.model
    wanted = [targets] if isinstance(targets, str) else list(several(targets) or ())
    wanted = [model.variables[model.index(v)] for v in wanted]

    def gradient(weights: Any, *given: Any) -> Any:
        return function.posterior_gradient(dict(zip(wanted, weights, strict=True)), *given, variables=[*given[0]])

    def values(*given: Any) -> Any:
        return function.posteriors(wanted, *given)

    shapes = [(len(model.states(v)),) for v in wanted]
    result = _differentiable(function, values, gradient, shapes)(*_inputs(function, cpts, likelihood))
    return dict(zip(wanted, result, strict=True))


def _jax() -> Any:
    try:
        return importlib.import_module("jax")
    except ImportError:
        raise JtgpuError("jtgpu.interop.jax needs JAX: pip install jax") from None


def _inputs(function: Any, cpts: Any, likelihood: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """CPTs and likelihoods by the names of their variables; likelihoods for every case."""
    jnp, model = _jax().numpy, function.model
    tables = {model.variables[model.index(v)]: jnp.asarray(x) for v, x in (cpts or {}).items()}
    weights = {model.variables[model.index(v)]: jnp.asarray(x) for v, x in (likelihood or {}).items()}
    return tables, {
        v: jnp.broadcast_to(x, (function.n_cases, *x.shape)) if x.ndim == 1 else x for v, x in weights.items()
    }


def _differentiable(
    function: Any, values: Callable[..., Any], gradient: Callable[..., Any], shapes: Sequence[tuple[int, ...]]
) -> Callable[..., Any]:
    """A function of CPTs and likelihoods, and its gradient, as a function that JAX differentiates."""
    jax: Any = _jax()
    dtype = jax.numpy.zeros(0, np.float64 if jax.config.jax_enable_x64 else np.float32).dtype
    outputs = [jax.ShapeDtypeStruct((function.n_cases, *shape), dtype) for shape in shapes]

    def host(given: object) -> Any:
        return jax.tree_util.tree_map(lambda x: np.asarray(x, np.float64), given)

    def compute(cpts: object, likelihood: object) -> Any:
        return [np.asarray(x, dtype) for x in values(*host((cpts, likelihood)))]

    def differentiate(weights: Any, cpts: Any, likelihood: Any) -> Any:
        gradients = gradient(host(weights), *host((cpts, likelihood)))
        pairs = ((cpts, gradients.cpts), (likelihood, gradients.likelihood))
        return tuple({v: np.asarray(own[v], x.dtype) for v, x in given.items()} for given, own in pairs)

    @jax.custom_vjp  # type: ignore[untyped-decorator,unused-ignore]
    def answer(cpts: Any, likelihood: Any) -> Any:
        return jax.pure_callback(compute, outputs, cpts, likelihood, vmap_method="sequential")

    @jax.custom_jvp  # type: ignore[untyped-decorator,unused-ignore]
    def slope(weights: Any, cpts: Any, likelihood: Any) -> Any:
        like = jax.tree_util.tree_map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), (cpts, likelihood))
        return jax.pure_callback(differentiate, like, weights, cpts, likelihood, vmap_method="sequential")

    @slope.defjvp  # type: ignore[untyped-decorator,unused-ignore]
    def refuse(primals: object, tangents: object) -> Any:
        raise JtgpuError("jtgpu.interop.jax.log_evidence and posteriors have no second derivatives")

    answer.defvjp(
        lambda cpts, likelihood: (answer(cpts, likelihood), (cpts, likelihood)),
        lambda saved, weights: slope(weights, *saved),
    )
    return answer  # type: ignore[no-any-return]
