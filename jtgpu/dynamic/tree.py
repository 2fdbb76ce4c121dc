"""`DynamicTree`: queries of dynamic networks, exact."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import ArgumentError, EvidenceError, shown
from ..inference.compiled_network import CompiledNetwork
from ..inference.queries.information import Observation, observation
from ..inference.queries.posteriors import as_list
from ..inference.results.rankings import Ranking
from ..model.dynamic import DynamicNetwork
from ..options.learning import Keys
from ..util.arguments import check_keywords, choice, several, whole_number
from ..util.lru import LRU
from .explain import most_probable, posterior_samples, prior_samples
from .posteriors import At, check_size, posteriors, predictions
from .results import SequenceExplanations, SequencePosteriors, SequenceStates
from .sequences import Sequences, read_sequences
from .step import Step
from .stream import Stream

if TYPE_CHECKING:
    from ..model.states import CodesByVariable
    from ..util.arrays import Floats
    from ..util.options import BackendName, InformationUnit, OnProblem


@check_keywords()
class DynamicTree(CompiledNetwork[DynamicNetwork]):
    """A compiled dynamic network; created by ``dyn.compile()``.

    One slice is planned, whatever the length of the sequences: its junction tree keeps the interfaces to the slices
    before and after it together (Murphy, Dynamic Bayesian Networks, 2002, section 3.5). Sequences are a long frame with
    columns ``id`` and ``time``, a list of frames, a mapping of variables to (B, T) arrays, or (B, T, V) state numbers.
    None, NaN and -1 mean "not observed".

    Parameters
    ----------
    net : DynamicNetwork
    backend, options
        See `BayesianNetwork.compile`.

    Raises
    ------
    TableTooLarge
        If the interface between slices has too many configurations; the message names it.
    """

    def __init__(self, net: DynamicNetwork, backend: BackendName = "auto", **options: Any):
        super().__init__(net, backend, options)
        self._steps: LRU[Any, Step] = LRU(8)
        self._name = self.step_of(()).tree(0).backend  # an interface that is too large is an error here

    @property
    def backend(self) -> str:
        """Name of the backend."""
        return self._name

    def _parts(self) -> Iterable[Step]:
        return self._steps.values()

    @property
    def step(self) -> Step:
        """The compiled slice, without joints."""
        return self.step_of(())

    def step_of(self, joints: tuple[tuple[int, ...], ...]) -> Step:
        """The compiled slice that keeps some sets together."""
        self._check_open()
        backend, options = self._arguments["backend"], {k: x for k, x in self._arguments.items() if k != "backend"}
        return self._steps.get_or_make(joints, lambda: Step(self._net, backend, options, joints))

    def reload(self, net: DynamicNetwork) -> None:
        """Replace the CPTs by those of a network with the same variables, states and arcs; the plan stays.

        Raises
        ------
        PlanError
            If the network has other variables, states or arcs.
        """
        self._check_structure(net, self._net.has_structure_of(net))
        for step in self._steps.values():
            step.reload(net)
        self._net = net

    # Posteriors -----------------------------------------------------------------------------------------------

    def filter(  # noqa: PLR0913
        self, sequences: object, *, keys: Keys = Keys(), likelihood: Mapping[Any, object] | None = None,
        do: Mapping[Any, object] | None = None, targets: object = None, at: At = None, joints: object = None,
        on_error: OnProblem = "error", codes: CodesByVariable | None = None,
    ) -> SequencePosteriors:  # fmt: skip
        """Compute posteriors in every slice given the evidence up to this slice.

        Parameters
        ----------
        sequences : data frame, list of data frames, mapping of (B, T) arrays, or (B, T, V) array of int
        keys : Keys
            Columns of a long frame: ``Keys(id=...)``, the sequence of each row, and ``time=``, its time. Times must
            increase in each sequence. Without `id` the frame is one sequence. ``on_gap="empty"``: a missing integer
            time is a slice without observations, and no error.
        likelihood : mapping, optional
            Variable to P(observation | state): (states,), (rows, states), or (B, T, states). That of a static variable
            counts once, in the first slice.
        do : mapping, optional
            Interventions: variable to the state that it is set to in all slices, or to ``{slice: state}``.
        targets : str or iterable of str, optional
            Default: all variables.
        at : "last", int, or iterable of int, optional
            Slices of the result, counted from 0. Default: all.
        joints : list of tuples, optional
            Sets whose joint posteriors are computed as well, such as ``[("rain[t]", "rain[t-1]")]``.
        on_error : {"error", "flag"}
            Whether an impossible sequence raises an error, or has zeros from its first impossible slice on.
        codes : optional
            What cells mean; see `jtgpu.JunctionTree.posteriors_batch`.

        Returns
        -------
        SequencePosteriors

        Raises
        ------
        ImpossibleEvidence
            If the evidence of a sequence has probability zero; names sequence and slice.
        DataError
            If times do not increase, or one is missing.
        """
        choice("on_error", on_error, ("error", "flag"))
        read = self._read(sequences, keys, likelihood, do, codes)
        return self._posteriors(read, targets, at, joints, on_error, smooth=False)

    def smooth(  # noqa: PLR0913
        self, sequences: object, *, keys: Keys = Keys(), likelihood: Mapping[Any, object] | None = None,
        do: Mapping[Any, object] | None = None, targets: object = None, at: At = None, joints: object = None,
        on_error: OnProblem = "error", codes: CodesByVariable | None = None,
    ) -> SequencePosteriors:  # fmt: skip
        """Compute posteriors in every slice given the evidence of the whole sequence; parameters as of `filter`.

        Messages of about sqrt(T) slices are stored; the others are recomputed.
        """
        choice("on_error", on_error, ("error", "flag"))
        read = self._read(sequences, keys, likelihood, do, codes)
        return self._posteriors(read, targets, at, joints, on_error, smooth=True)

    def predict(  # noqa: PLR0913
        self, sequences: object, *, ahead: int = 1, keys: Keys = Keys(), likelihood: Mapping[Any, object] | None = None,
        do: Mapping[Any, object] | None = None, targets: object = None, on_error: OnProblem = "error",
        codes: CodesByVariable | None = None,
    ) -> SequencePosteriors:  # fmt: skip
        """Compute posteriors of the slices that follow each sequence, in which nothing is observed.

        Parameters
        ----------
        ahead : int
            Number of slices.
        sequences, keys, likelihood, do, targets, on_error, codes
            See `filter`.

        Returns
        -------
        SequencePosteriors
            Arrays (B, ahead, states); ``log_evidence`` is that of the sequences.
        """
        choice("on_error", on_error, ("error", "flag"))
        ahead = whole_number("ahead", ahead, 1)
        read = self._read(sequences, keys, likelihood, do, codes)
        return predictions(self.step, read, self._targets(targets), ahead, on_error)

    def log_likelihood(
        self, sequences: Any, *, keys: Keys = Keys(), likelihood: Mapping[Any, object] | None = None,
        do: Mapping[Any, object] | None = None, codes: CodesByVariable | None = None,
    ) -> Floats:  # fmt: skip
        """Compute ln P(evidence) of each sequence, (B,): -inf if it is impossible; parameters as of `filter`."""
        read = self._read(sequences, keys, likelihood, do, codes)
        return self._posteriors(read, (), "last", None, "flag", smooth=False).log_evidence

    # Other questions ------------------------------------------------------------------------------------------

    def mpe(
        self, sequences: object, *, keys: Keys = Keys(), likelihood: Mapping[Any, object] | None = None,
        do: Mapping[Any, object] | None = None, on_error: OnProblem = "error", codes: CodesByVariable | None = None,
    ) -> SequenceExplanations:  # fmt: skip
        """Find the most probable states of all variables in all slices given the evidence; parameters as of `filter`.

        From the last slice to the first, of equally probable configurations of the variables with children in later
        slices the first one is chosen, the last variable counting fastest. The method is Viterbi's, with the junction
        tree of a slice (A. J. Viterbi, IEEE Transactions on Information Theory 13, 1967).

        Returns
        -------
        SequenceExplanations
            ``["rain"]`` has the names of the states, (B, T); ``.log_joint`` is ln P(states, evidence), (B,).
        """
        choice("on_error", on_error, ("error", "flag"))
        read = self._read(sequences, keys, likelihood, do, codes)
        check_size((read.n, int(read.lengths.max())), len(self._net), "long sequences in a call of their own")
        return SequenceExplanations(self._net, read, *most_probable(self.step, read, on_error))

    def sample(  # noqa: PLR0913
        self, n: int, sequences: object = None, *, length: int | None = None, seed: object = None, keys: Keys = Keys(),
        likelihood: Mapping[Any, object] | None = None, do: Mapping[Any, object] | None = None,
        codes: CodesByVariable | None = None,
    ) -> SequenceStates:  # fmt: skip
        """Draw sequences, or n exact samples of all variables given the evidence of each sequence.

        Parameters
        ----------
        n : int
        sequences : optional
            See `filter`. Without them n sequences of `length` slices are drawn.
        length : int, optional
            Slices of each sequence.
        seed : optional
            See `numpy.random.default_rng`. The same seed gives the same samples.
        keys, likelihood, do, codes
            Of `sequences`; see `filter`.

        Returns
        -------
        SequenceStates
            ``["rain"]`` has the names of the states, (n, length), or (n, B, T) given B sequences.
        """
        n = whole_number("n", n, 0)
        if sequences is None:
            if length is None:
                raise ArgumentError("sample needs length=, the number of slices, or sequences")
            if keys != Keys() or likelihood or do or codes is not None:
                raise ArgumentError("sample takes keys=, likelihood=, do= and codes= with sequences only")
            length = whole_number("length", length, 1)
            check_size((n, length), len(self._net), "fewer sequences")
            rows = prior_samples(self._net, n, length, seed).reshape(n * length, len(self._net))
            return SequenceStates(self._net, Sequences(rows, np.arange(n + 1) * length), rows)
        if length is not None:
            raise ArgumentError("sample takes length= without sequences only; they have their own lengths")
        read = self._read(sequences, keys, likelihood, do, codes)
        check_size((n, read.n, int(read.lengths.max())), len(self._net), "fewer samples, and long sequences alone")
        return SequenceStates(self._net, read, posterior_samples(self.step, read, n, seed))

    def value_of_information(
        self, target: str, candidates: str | Iterable[str] | None = None, sequences: object = None, *,
        keys: Keys = Keys(), unit: InformationUnit = "nats", codes: CodesByVariable | None = None,
    ) -> Ranking[Observation]:  # fmt: skip
        """Rank what could be observed in the last slice of a sequence by what it says about a variable there.

        Parameters
        ----------
        target : str
            A variable of a slice, in the last slice.
        candidates : str or iterable of str, optional
            Variables of the last slice. Default: all that are not observed there.
        sequences
            One sequence, whose last slice may have missing cells; see `filter`. Default: one slice without
            observations.
        keys, codes
            See `filter`.
        unit : {"nats", "bits"}
            Of gains and entropies.

        Returns
        -------
        list of Observation
            As `jtgpu.JunctionTree.value_of_information`, best first.
        """
        net = self._net
        t = net.index(target)
        given = {net.variables[0]: np.full((1, 1), None)} if sequences is None else sequences
        read = self._read(given, keys, None, None, codes)
        if read.n != 1:
            raise ArgumentError(f"value_of_information takes one sequence, got {read.n}: ask for each on its own")
        last = read.codes[-1]
        if candidates is None:
            others = [v for v in range(len(net)) if v != t and last[v] < 0]
        else:
            others = [net.index(v) for v in as_list(candidates, "candidates")]
        if t in others:
            raise ArgumentError(f"{net.variables[t]!r} is the target and among the candidates")
        sets = [(f"{net.variables[t]}[t]", f"{net.variables[v]}[t]") for v in others]
        tables = [*self._posteriors(read, [t], "last", sets, "error", smooth=False).joint.values()] if sets else []
        title = f"Value of information about {net.variables[t]}, in {unit}, best first"
        ranked = [observation(net.variables[v], table[0], unit) for v, table in zip(others, tables, strict=True)]
        return Ranking(sorted(ranked, key=lambda one: (-one.gain, net.index(one.variable))), Observation, title)

    def stream(self) -> Stream:
        """Start a sequence whose slices come one by one."""
        return Stream(self.step)

    # Helpers --------------------------------------------------------------------------------------------------

    def _read(self, sequences: Any, keys: Keys, likelihood: Any, do: Any, codes: Any) -> Sequences:
        return read_sequences(self._net.with_codes(codes), sequences, keys=keys, likelihood=likelihood, do=do)

    def _targets(self, targets: object) -> list[int]:
        given = self._net.variables if targets is None else as_list(targets, "targets")
        return list(dict.fromkeys(self._net.index(v) for v in given))

    def _posteriors(
        self, read: Sequences, targets: object, at: At, joints: object, on_error: str, *, smooth: bool
    ) -> SequencePosteriors:
        step = self.step_of(() if joints is None or several(joints) == [] else self._joints(joints))
        return posteriors((step, self.step), read, self._targets(targets), at, joints, on_error, smooth=smooth)

    def _joints(self, joints: object) -> tuple[tuple[int, ...], ...]:
        """The sets of ``joints`` as numbers of the step network."""
        known = {name: i for i, name in enumerate(self.step.names)}
        known |= {f"{v}[t]": i for i, v in enumerate(self._net.variables)}
        sets = []
        for one in several(joints) or (joints,):
            names = several(one)
            if names is None or len(names) < 2 or len({*names}) < len(names):
                raise EvidenceError(
                    f"joints must be a list of tuples such as [('rain[t]', 'rain[t-1]')], not {shown(joints)}"
                )
            for v in names:
                if v not in known:
                    raise EvidenceError(f"joints has {v!r}; a slice has {', '.join(known)}")
            sets.append(tuple(known[v] for v in names))
        return tuple(sets)
