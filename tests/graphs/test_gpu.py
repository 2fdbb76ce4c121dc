"""Betweenness on the emulated GPU."""

from __future__ import annotations

from functools import partial

import networkx as nx
import pytest

from jtgpu import graphs
from jtgpu.cli.commands import app
from jtgpu.graphs import gpu
from jtgpu.published import betweenness as published
from tests.graphs.gpu_checks import *  # noqa: F403 (tests of both GPUs)

pytestmark = pytest.mark.usefixtures("emulated_gpu")


def test_small_graphs_stay_on_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu, "group_sums", lambda *_, **__: pytest.fail("the GPU is used"))
    graph = nx.cycle_graph(40)
    assert graphs.betweenness(graph) == pytest.approx(nx.betweenness_centrality(graph), rel=1e-12)


@pytest.mark.slow
def test_the_command_prints_the_published_program_with_ours(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = [published.Setting(5), published.Setting(5, graph_capture=True)]
    monkeypatch.setattr(published, "measure", partial(published.measure, settings=settings))
    with pytest.raises(SystemExit) as ended:
        app(["rank", "asia", "--published"])
    assert not ended.value.code
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["program", "streams", "neighbours", "block", "seconds", "sources", "measured"]
    assert [line.split()[0] for line in lines[1:]] == ["jtgpu.graphs.betweenness", "published", "published"]
    assert "256, graph" in lines[-1]
