"""Everything that a query returns can be pickled, and says the same afterwards."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import jtgpu
from jtgpu.errors import JtgpuError
from jtgpu.util.options import BackendName
from tests.conftest import ROOT
from tests.support.trees import compiled

RESULTS: dict[str, Callable[[jtgpu.JunctionTree], Any]] = {
    "posteriors": lambda t: t.posteriors({"xray": "yes"}),
    "posterior": lambda t: t.posterior("lung"),
    "cases": lambda t: t.posteriors_batch({"xray": ["yes", None]}),
    "joint": lambda t: t.joint(["lung", "xray"]),
    "joint cost": lambda t: t.joint_cost(["lung"]),
    "conditional": lambda t: t.conditional("lung", ["xray"]),
    "explanation": lambda t: t.mpe({"xray": "yes"}),
    "explanations": lambda t: t.mpe(k=5),
    "marginal explanation": lambda t: t.map(["lung", "xray"], k=2),
    "map cost": lambda t: t.map_cost(["lung"]),
    "explanations of cases": lambda t: t.mpe_batch({"xray": ["yes", None]}),
    "samples": lambda t: t.sample(3, seed=1),
    "imputed": lambda t: t.impute({"xray": ["yes", None]}, seed=1),
    "sensitivity": lambda t: t.sensitivity(("lung", "yes")),
    "bars": lambda t: t.sensitivity(("lung", "yes")).tornado(3),
    "parameters": lambda t: t.sensitivity(("lung", "yes")).top(3),
    "information": lambda t: t.mutual_information("lung"),
    "observations": lambda t: t.value_of_information("lung"),
    "importances": lambda t: t.evidence_importance("lung", {"xray": "yes"}),
    "plan": lambda t: t.plan,
    "plan of slices": lambda t: t.model.plan(slices=["lung"]),
    "network": lambda t: t.model,
    "cost": lambda t: t.plan.cost(),
}


@pytest.mark.parametrize("backend", ["reference", "cpu"])
@pytest.mark.parametrize("name", RESULTS)
def test_results(name: str, backend: BackendName) -> None:
    with compiled(jtgpu.read(ROOT / "nets" / "asia.net"), backend) as tree:
        result = RESULTS[name](tree)
        again = pickle.loads(pickle.dumps(result))
        shallow = copy.copy(result)
    for other in (again, shallow):
        assert type(other) is type(result)
        assert repr(other) == repr(result)
        if hasattr(result, "items") and name != "sensitivity":
            assert str(dict(other.items())) == str(dict(result.items()))
        for attribute in ("log_evidence", "probabilities", "log_joint", "states"):
            if not callable(found := getattr(result, attribute, len)):
                assert np.array_equal(getattr(other, attribute), found)


def test_a_tree_and_a_session_answer_in_another_place() -> None:
    with compiled(jtgpu.read(ROOT / "nets" / "asia.net"), "cpu") as tree:
        session = tree.session({"xray": "yes"}, do={"smoke": "no"})
        expected = session.posteriors()["lung"]["yes"]
        moved = pickle.loads(pickle.dumps(session))
        assert moved.known == session.known
        assert moved.posteriors()["lung"]["yes"] == expected
        other = pickle.loads(pickle.dumps(tree))
        assert other.posteriors({"xray": "yes"}, do={"smoke": "no"})["lung"]["yes"] == expected
        session.close()
        with pytest.raises(JtgpuError, match="closed"):
            pickle.dumps(session)
    with pytest.raises(JtgpuError, match="closed"):
        pickle.dumps(tree)


def test_explanations_share_what_they_have_in_common() -> None:
    with compiled(jtgpu.read(ROOT / "nets" / "alarm.net"), "cpu") as tree:
        best = tree.mpe(k=2000)
        assert len(pickle.dumps(best.ranked)) < 2000 * 600
        again = pickle.loads(pickle.dumps(best.ranked[7]))
        assert again.ranked[7] is again
        assert len(again.ranked) == 2000
        assert again == best.ranked[7]
        assert again.log_posterior == best.ranked[7].log_posterior
        assert not again.states.flags.writeable
        late = tree.mpe({"HYPOVOLEMIA": 0})
    again = pickle.loads(pickle.dumps(late))
    assert again == late
    with pytest.raises(JtgpuError, match="closed before this explanation was pickled"):
        _ = again.probability


@pytest.mark.parametrize("backend", ["reference", "cpu"])
@pytest.mark.parametrize("again", [lambda x: pickle.loads(pickle.dumps(x)), copy.copy, copy.deepcopy])
def test_resolved_evidence_finds_its_backend_in_another_place(
    backend: BackendName, again: Callable[[Any], Any]
) -> None:
    with compiled(jtgpu.read(ROOT / "nets" / "asia.net"), backend) as tree:
        for more in ({}, {"do": {"smoke": "no"}}):
            resolved = tree.resolve({"xray": "yes"}, **more)
            other = again(resolved)
            assert other.log_shift == resolved.log_shift
            answers = [x.backend.run_case(x.case, []).log_evidence for x in (resolved, other)]
            assert answers[0] == answers[1]
