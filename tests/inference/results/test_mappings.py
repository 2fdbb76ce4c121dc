"""Posteriors behave as the mappings that they look like."""

from __future__ import annotations

import pickle
from collections.abc import Mapping

import numpy as np
import pytest

import jtgpu
from jtgpu.inference.results.marginals import Posterior


@pytest.fixture
def posterior() -> Posterior:
    return Posterior("rain", ("no", "yes", "maybe"), np.array([0.5, 0.25, 0.25]))


def test_a_posterior_is_a_mapping_of_states(posterior: Posterior) -> None:
    assert isinstance(posterior, Mapping)
    assert dict(posterior) == {"no": 0.5, "yes": 0.25, "maybe": 0.25} == posterior.as_dict()
    assert list(posterior) == list(posterior.keys()) == ["no", "yes", "maybe"]
    assert list(posterior.values()) == [0.5, 0.25, 0.25]
    assert next(iter(posterior.items())) == ("no", 0.5)
    assert len(posterior) == 3
    assert ("yes" in posterior, "perhaps" in posterior) == (True, False)
    assert (posterior["yes"], posterior[1], posterior.get("perhaps", 0.0)) == (0.25, 0.25, 0.0)
    assert max(posterior, key=posterior.__getitem__) == posterior.mode == "no"
    assert posterior == {"no": 0.5, "yes": 0.25, "maybe": 0.25}
    assert np.asarray(posterior).tolist() == [0.5, 0.25, 0.25]
    assert pickle.loads(pickle.dumps(posterior)) == posterior
    with pytest.raises(jtgpu.UnknownState, match="'perhaps'"):
        posterior["perhaps"]
    with pytest.raises(KeyError):
        posterior[3]


def test_states_that_share_a_name_are_numbered() -> None:
    posterior = Posterior("v", ("a", "a", "b"), np.array([0.5, 0.25, 0.25]))
    assert dict(posterior) == {"a#0": 0.5, "a#1": 0.25, "b": 0.25}
    assert sum(posterior.values()) == 1.0
    with pytest.raises(jtgpu.UnknownState, match="2 states named 'a'"):
        posterior["a"]
