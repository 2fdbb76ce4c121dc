"""What other libraries answer about sequences: pyAgrum's KTBN, hmmlearn, dynamax, and a dense chain in JAX.

Each class is made from a dynamic network; `available` says which libraries are installed. The chain of a network with
several variables between slices has their joint configurations as states. JAX computes in float64 on one CPU core.
"""

from __future__ import annotations

import importlib
import importlib.util
import itertools
import os
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Codes = NDArray[np.int64]  # (B, T, O) states of the observed variables

os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1")


def available(name: str) -> bool:
    """Whether a library is installed."""
    return importlib.util.find_spec(name) is not None


class Ktbn:
    """The interface algorithm of pyAgrum, one sequence a call."""

    def __init__(self, net: Any, hidden: list[str], observed: list[str]):
        self.hidden, self.observed = hidden, observed
        gum: Any = importlib.import_module("pyagrum")
        self.ktbn: Any = importlib.import_module("pyagrum.ktbn")
        model = self.ktbn.KTBN(2)
        for v in net.variables:
            model.addTemporal(gum.LabelizedVariable(v, v, list(net.states(v))))
        for v in net.variables:
            for t in (0, 1):
                for p, lag in net.parents(v):
                    if lag <= t:
                        model.addArc(p, t - lag, v, t)
        for v in net.variables:
            for t in (0, 1):
                table, axes = np.asarray(net.cpt(v, t)), [(p, t - lag) for p, lag in net.parents(v) if lag <= t]
                cpt, names = model.cpt(v, t), [f"{p}[{s}]" for p, s in (*axes, (v, t))]
                for at in np.ndindex(*table.shape):
                    cpt[dict(zip(names, at, strict=True))] = float(table[at])
        self.model = model

    def smooth(self, codes: Codes) -> tuple[Floats, Floats]:
        """(B, T, H, states) posteriors of the hidden variables, and ln P of each sequence."""
        answers, log_p = [], []
        for one in codes:
            engine = self.ktbn.KTBNInference(self.model)
            for v in self.hidden:
                engine.addTarget(v)
            for i, v in enumerate(self.observed):
                for t, s in enumerate(one[:, i].tolist()):
                    engine.addObservation(v, t, s)
            engine.makeInference(len(one))
            answers.append(np.stack([[p.toarray() for p in engine.posteriors(v)] for v in self.hidden], axis=1))
            log_p.append(engine.logObservationProbability())
        return np.array(answers), np.array(log_p)


class Chain:
    """The joint states of the hidden variables as one chain; tables for any library of hidden Markov models."""

    def __init__(self, net: Any, hidden: list[str], observed: list[str]):
        # parents of hidden variables: hidden ones, one slice earlier; of an observed one: a hidden one of its slice
        self.shape = tuple(len(net.states(v)) for v in hidden)
        configurations = list(itertools.product(*map(range, self.shape)))
        place = {v: i for i, v in enumerate(hidden)}
        now = np.array(configurations)  # (K, H)
        self.start, self.transition = np.ones(len(now)), np.ones((len(now), len(now)))
        for v in hidden:
            self.start *= np.asarray(net.cpt(v, 0))[now[:, place[v]]]
            earlier = tuple(now[:, place[p], None] for p, _ in net.parents(v))
            self.transition *= np.asarray(net.cpt(v))[(*earlier, now[None, :, place[v]])]
        self.emissions = [np.asarray(net.cpt(v))[now[:, place[net.parents(v)[0][0]]]] for v in observed]  # (K, symbols)

    def weights(self, codes: Codes) -> Floats:
        """(B, T, K) P(observations | state)."""
        made = np.ones((*codes.shape[:2], len(self.start)))
        for i, table in enumerate(self.emissions):
            made *= table.T[codes[:, :, i]]
        return made

    def marginals(self, joint: Any) -> Floats:
        """(B, T, H, states) of (B, T, K); all hidden variables have the same number of states."""
        table = np.asarray(joint)
        table = table.reshape(*table.shape[:2], *self.shape)
        axes = range(2, table.ndim)
        return np.stack([table.sum(axis=tuple(a for a in axes if a != keep)) for keep in axes], axis=2)


class DenseChain(Chain):
    """Forward and backward by `lax.scan`, all sequences in one product of matrices, compiled by JAX."""

    def __init__(self, net: Any, hidden: list[str], observed: list[str]):
        super().__init__(net, hidden, observed)
        jax: Any = importlib.import_module("jax")
        jax.config.update("jax_enable_x64", True)
        jnp = jax.numpy
        start, transition = jnp.asarray(self.start), jnp.asarray(self.transition)
        emissions = [jnp.asarray(e.T) for e in self.emissions]

        def smooth(codes: Any) -> tuple[Any, Any]:
            weights = jnp.ones((*codes.shape[:2], len(self.start)))
            for i, table in enumerate(emissions):
                weights = weights * table[codes[:, :, i]]
            by_slice = jnp.swapaxes(weights, 0, 1)

            def forward(alpha: Any, w: Any) -> tuple[Any, Any]:
                alpha = alpha * w
                c = alpha.sum(axis=1, keepdims=True)
                return (alpha / c) @ transition, (alpha / c, jnp.log(c[:, 0]))

            def backward(beta: Any, w: Any) -> tuple[Any, Any]:
                after = (w * beta) @ transition.T
                return after / after.sum(axis=1, keepdims=True), beta

            first = jnp.broadcast_to(start, by_slice.shape[1:])
            _, (alphas, log_c) = jax.lax.scan(forward, first, by_slice)
            _, betas = jax.lax.scan(backward, jnp.ones_like(first), by_slice, reverse=True)
            gamma = alphas * betas
            gamma = (gamma / gamma.sum(axis=2, keepdims=True)).reshape(*gamma.shape[:2], *self.shape)
            axes = range(2, gamma.ndim)
            each = jnp.stack([gamma.sum(axis=tuple(a for a in axes if a != keep)) for keep in axes], axis=2)
            return jnp.swapaxes(each, 0, 1), log_c.sum(axis=0)

        self._smooth = jax.jit(smooth)

    def smooth(self, codes: Codes) -> tuple[Floats, Floats]:
        """Posteriors and ln P as of `Ktbn`."""
        posteriors, log_p = self._smooth(codes)
        return np.asarray(posteriors), np.asarray(log_p)


class Dynamax(Chain):
    """`hmm_smoother` of dynamax, compiled, over all sequences by `vmap`."""

    def __init__(self, net: Any, hidden: list[str], observed: list[str]):
        super().__init__(net, hidden, observed)
        jax: Any = importlib.import_module("jax")
        jax.config.update("jax_enable_x64", True)
        library: Any = importlib.import_module("dynamax.hidden_markov_model")
        start, transition = jax.numpy.asarray(self.start), jax.numpy.asarray(self.transition)
        logs = [jax.numpy.log(e.T) for e in map(jax.numpy.asarray, self.emissions)]

        def smooth(codes: Any) -> tuple[Any, Any]:
            weights = sum(table[codes[:, i]] for i, table in enumerate(logs))
            done = library.hmm_smoother(start, transition, weights)  # transitions are not returned, so XLA drops them
            return done.smoothed_probs, done.marginal_loglik

        self._smooth = jax.jit(jax.vmap(smooth))

    def smooth(self, codes: Codes) -> tuple[Floats, Floats]:
        """Posteriors and ln P as of `Ktbn`."""
        joint, log_p = self._smooth(codes)
        return self.marginals(joint), np.asarray(log_p)


class Hmmlearn(Chain):
    """`CategoricalHMM` of hmmlearn; one observed variable."""

    def __init__(self, net: Any, hidden: list[str], observed: list[str], implementation: str = "scaling"):
        super().__init__(net, hidden, observed)
        self._library: Any = importlib.import_module("hmmlearn.hmm")
        self._implementation = implementation
        self.model = self._made(1)

    def _made(self, n_iter: int) -> Any:
        model = self._library.CategoricalHMM(
            len(self.start), implementation=self._implementation, n_iter=n_iter, tol=-np.inf, init_params="",
            n_features=self.emissions[0].shape[1],
        )  # fmt: skip
        model.startprob_, model.transmat_, model.emissionprob_ = self.start, self.transition, self.emissions[0]
        return model

    def smooth(self, codes: Codes) -> tuple[Floats, Floats]:
        """Posteriors and ln P as of `Ktbn`; the latter of all sequences together."""
        rows, lengths = codes.reshape(-1, 1), [codes.shape[1]] * len(codes)
        log_p, joint = self.model.score_samples(rows, lengths)
        return self.marginals(joint.reshape(*codes.shape[:2], -1)), np.array(log_p)

    def most_probable(self, codes: Codes) -> tuple[Codes, float]:
        """(B, T) states of the most probable sequences, and the sum of ln P(states, observations)."""
        log_p, states = self.model.decode(codes.reshape(-1, 1), [codes.shape[1]] * len(codes))
        return states.reshape(codes.shape[:2]), float(log_p)

    def em(self, codes: Codes, n_iter: int = 1) -> tuple[Floats, Floats]:
        """CPTs of states and symbols after some passes of EM from the network's own."""
        model = self._made(n_iter)
        model.fit(codes.reshape(-1, 1), [codes.shape[1]] * len(codes))
        return model.transmat_, model.emissionprob_
