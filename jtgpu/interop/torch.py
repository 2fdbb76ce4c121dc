"""PyTorch: ln P of cases and posteriors as differentiable functions of CPTs and likelihoods.

PyTorch is imported when a function is called. Tensors are exchanged by DLPack, without a copy where they are contiguous
float64 in host memory. Gradients are exact, from expected counts (`jtgpu.JunctionTree.evidence_function`), and are
computed on the CPU.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any

import numpy as np

from ..errors import EvidenceError, JtgpuError
from ..util.arguments import several
from ..util.options import OnProblem

__all__ = ["log_evidence", "posteriors"]


def log_evidence(
    tree: Any, cases: Any, cpts: Mapping[str, Any] | None = None, likelihood: Mapping[str, Any] | None = None,
    *, on_error: OnProblem = "error",
) -> Any:  # fmt: skip
    """Compute ln P of every case as a differentiable tensor.

    Parameters
    ----------
    tree : JunctionTree
        Of a Bayesian network.
    cases : table
        See `jtgpu.JunctionTree.posteriors_batch`; also an integer tensor, (B, V).
    cpts : mapping, optional
        Variable to a tensor of the shape of its CPT, >= 0. Entries are free parameters: rows need not sum to 1.
        Default: the CPTs of the network, as constants.
    likelihood : mapping, optional
        Variable to a tensor of weights >= 0, (B, card) or (card,) for all cases.
    on_error : {"error", "flag"}
        Whether a case of probability 0 raises `ImpossibleEvidence`, or has -inf and a gradient of 0.

    Returns
    -------
    (B,) tensor of float64

    Examples
    --------
    ::

        logits = torch.zeros(2, 2, dtype=torch.float64, requires_grad=True)
        loss = -jtgpu.interop.torch.log_evidence(tree, cases, {"wet": logits.softmax(-1)}).sum()
        loss.backward()
    """
    torch, function = _torch(), tree.evidence_function(cases, on_error=on_error)
    names, tensors = _inputs(torch, function, cpts, likelihood)
    return _functions()[0].apply(function, names, None, *tensors)[0]


def posteriors(
    tree: Any, cases: Any, targets: str | Iterable[str], cpts: Mapping[str, Any] | None = None,
    likelihood: Mapping[str, Any] | None = None, *, on_error: OnProblem = "error",
) -> dict[str, Any]:  # fmt: skip
    """Compute posteriors as differentiable tensors.

    Parameters
    ----------
    tree, cases, cpts, likelihood, on_error
        See `log_evidence`.
    targets : str, or iterable of str

    Returns
    -------
    mapping of str to (B, card) tensor of float64
    """
    torch, function = _torch(), tree.evidence_function(cases, on_error=on_error)
    names, tensors = _inputs(torch, function, cpts, likelihood)
    wanted = [targets] if isinstance(targets, str) else list(several(targets) or ())
    wanted = [function.model.variables[function.model.index(v)] for v in wanted]
    if not wanted:
        return {}
    return dict(zip(wanted, _functions()[0].apply(function, names, wanted, *tensors), strict=True))


def _torch() -> Any:
    try:
        return importlib.import_module("torch")
    except ImportError:
        raise JtgpuError("jtgpu.interop.torch needs PyTorch: pip install torch") from None


def _inputs(torch: Any, function: Any, cpts: Any, likelihood: Any) -> tuple[list[tuple[str, str]], list[Any]]:
    """Kind and variable of each input, and the inputs as tensors of float64."""
    names, tensors = [], []
    for kind, given in (("cpt", cpts or {}), ("likelihood", likelihood or {})):
        for variable, value in given.items():
            v = function.model.variables[function.model.index(variable)]
            tensor = torch.as_tensor(value) if isinstance(value, (list, tuple)) else value
            tensor = torch.from_dlpack(tensor) if isinstance(tensor, np.ndarray) else tensor
            if not isinstance(tensor, torch.Tensor):
                raise EvidenceError(f"the {kind} of {v!r} must be a tensor, not {type(value).__name__}")
            if tensor.device.type != "cpu":
                raise EvidenceError(f"the {kind} of {v!r} is on {tensor.device}, but gradients are computed on the CPU")
            if tensor.is_complex() or tensor.dtype == torch.bool:
                raise EvidenceError(f"the {kind} of {v!r} has dtype {tensor.dtype}; expected real numbers")
            tensor = tensor.to(torch.float64)
            if kind == "likelihood" and tensor.ndim == 1:
                tensor = tensor.expand(function.n_cases, -1)
            names.append((kind, v))
            tensors.append(tensor)
    return names, tensors


def _given(names: list[tuple[str, str]], tensors: Iterable[Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """CPTs and likelihoods as arrays that share the memory of their tensors."""
    entries: dict[str, dict[str, Any]] = {"cpt": {}, "likelihood": {}}
    for (kind, v), tensor in zip(names, tensors, strict=True):
        entries[kind][v] = np.from_dlpack(tensor.detach())
    return entries["cpt"], entries["likelihood"]


@cache
def _functions() -> tuple[Any, Any]:
    """The function and its gradient, as subclasses of ``torch.autograd.Function``."""
    torch: Any = _torch()

    class TorchAnswer(torch.autograd.Function):  # type: ignore[misc,name-defined,unused-ignore]
        """ln P, or posteriors of some targets."""

        @staticmethod
        def forward(ctx: Any, function: Any, names: Any, targets: Any, *tensors: Any) -> Any:
            ctx.function, ctx.names, ctx.targets = function, names, targets
            ctx.save_for_backward(*tensors)
            given = _given(names, tensors)
            answers = [function.log_evidence(*given)] if targets is None else function.posteriors(targets, *given)
            return tuple(torch.from_dlpack(np.ascontiguousarray(x)) for x in answers)

        @staticmethod
        def backward(ctx: Any, *cotangents: Any) -> Any:
            tensors, needed = ctx.saved_tensors, tuple(ctx.needs_input_grad[3:])
            cotangents = tuple(
                g if g is not None else torch.zeros(0, dtype=torch.float64) for g in cotangents
            )
            arguments = ctx.function, ctx.names, ctx.targets, needed, len(tensors)
            gradients = TorchGradient.apply(*arguments, *tensors, *cotangents)
            return (None, None, None, *(g if n else None for g, n in zip(gradients, needed, strict=True)))

    class TorchGradient(torch.autograd.Function):  # type: ignore[misc,name-defined,unused-ignore]
        """The gradient, a function of its own so that its derivative can be refused by name."""

        @staticmethod
        def forward(ctx: Any, function: Any, names: Any, targets: Any, needed: Any, n: int, *tensors: Any) -> Any:
            given = _given(names, tensors[:n])
            variables = [v for (kind, v), is_needed in zip(names, needed, strict=True) if kind == "cpt" and is_needed]
            weights = [np.from_dlpack(t.detach().contiguous()) for t in tensors[n:]]
            if targets is None:
                gradient = function.gradient(weights[0], *given, variables=variables)
            else:
                each = {v: w for v, w in zip(targets, weights, strict=True) if w.size}
                gradient = function.posterior_gradient(each, *given, variables=variables)
            by = {"cpt": gradient.cpts, "likelihood": gradient.likelihood}
            empty = torch.zeros(0, dtype=torch.float64)
            return tuple(torch.from_dlpack(by[kind][v]) if v in by[kind] else empty.clone() for kind, v in names)

        @staticmethod
        def backward(ctx: object, *cotangents: object) -> Any:
            raise JtgpuError(
                "jtgpu.interop.torch.log_evidence and posteriors have no second derivatives (double backward)"
            )

    return TorchAnswer, TorchGradient
