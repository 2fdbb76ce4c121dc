"""Timing of networks, and how times are printed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import jtgpu
from jtgpu.cli.console import format_seconds
from jtgpu.errors import (
    JtgpuError,
)
from jtgpu.formats.bundled import order_file
from jtgpu.model.network import BayesianNetwork
from jtgpu.model.states import StateNumber
from jtgpu.timing import (
    Spread,
    check_answers,
    measure,
    sample_cases,
    time_network,
)
from tests.cli.commands import ALARM, ASIA, run
from tests.decisions.test_policies import oil
from tests.dynamic.test_posteriors import umbrella


def test_spread_has_median_and_quartiles() -> None:
    s = Spread.of([4.0, 1.0, 2.0, 3.0, 5.0])
    assert (s.runs, s.median, s.minimum, s.maximum, s.low, s.high) == (5, 3.0, 1.0, 5.0, 2.0, 4.0)
    assert Spread.of([2.0]) == Spread(1, 2.0, 2.0, 2.0, 2.0, 2.0)
    calls: list[int] = []
    assert measure(lambda: calls.append(1), 3).runs == len(calls) == 3


def test_sampled_cases_are_possible_and_observe_the_same_variables() -> None:
    net = jtgpu.read(ALARM)
    assert isinstance(net, BayesianNetwork)
    cases = sample_cases(net, 5, 0.3, seed=7)
    assert cases == sample_cases(net, 5, 0.3, seed=7)
    assert len({tuple(c) for c in cases}) == 1
    assert len(cases[0]) == round(0.3 * len(net))
    tree = net.compile("reference")
    assert all(tree.log_evidence(c) < 0 for c in cases)


def test_inconsistent_answers_are_rejected() -> None:
    net = jtgpu.read(ASIA)
    good = net.compile("reference").posteriors({"xray": "yes"})
    check_answers(good, observed={"xray": StateNumber(0)})
    with pytest.raises(JtgpuError, match="'xray' is observed"):
        check_answers(good, observed={"xray": 1})
    import numpy as np

    wrong = jtgpu.Posteriors(net, np.full(16, 0.4), np.arange(0, 18, 2), 0.0)
    with pytest.raises(JtgpuError, match="not a distribution"):
        check_answers(wrong)


def test_time_network_reports_its_steps_in_order() -> None:
    steps: list[str] = []
    found = time_network(ASIA, backend="reference", runs=1, step=steps.append)
    assert steps == ["read", "plan", "compile", "propagate"]
    assert found.variables == 8
    assert order_file("nets/link.net.gz") == Path("nets/link.num")


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.0, "0.00 us"),
        (1.234e-5, "12.3 us"),
        (9.999e-4, "1.00 ms"),
        (0.0456, "45.6 ms"),
        (1.0, "1.00 s"),
        (123.4, "123 s"),
    ],
)
def test_seconds_have_three_digits_and_a_unit(seconds: float, text: str) -> None:
    assert format_seconds(seconds) == text


@pytest.mark.parametrize(
    ("net", "said"),
    [(umbrella(), "is a dynamic network, whose time depends on the sequences: jtgpu dynamic filter ..."),
     (oil(), "has decisions: jtgpu decide finds")],
)  # fmt: skip
def test_networks_without_a_plan_say_what_to_run(net: Any, said: str, tmp_path: Path) -> None:
    file = tmp_path / ("x.dynamic.json" if isinstance(net, jtgpu.DynamicNetwork) else "x.xdsl")
    jtgpu.write(net, file)
    done = run("time", str(file))
    words = " ".join(done.stderr.split())
    assert (done.exit_code, said in words, "compile()" in words) == (2, True, False)
