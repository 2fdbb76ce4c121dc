"""What is sent to a cluster and where to, and the documents on clusters; without one."""

from __future__ import annotations

import json
import os
import pickle
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import jtgpu
from jtgpu.cases.query import TableQuery
from jtgpu.cluster import Cluster
from jtgpu.cluster.connect import Share, as_cluster, connect
from jtgpu.cluster.parts import PartReader, PartTarget, WorkerSpec
from jtgpu.cluster.worker import PartWorker, WorkerJob
from jtgpu.errors import JtgpuError
from jtgpu.options.tables import CsvDialect, TableOptions
from tests.conftest import ROOT

pa = pytest.importorskip("pyarrow", reason="pyarrow is not installed")
pq = pytest.importorskip("pyarrow.parquet", reason="pyarrow is not installed")


@pytest.fixture(scope="module")
def plan() -> Any:
    return jtgpu.read(ROOT / "nets" / "asia.net").plan("min-fill")


@pytest.fixture(scope="module")
def tree(plan: Any) -> jtgpu.JunctionTree:
    made: jtgpu.JunctionTree = plan.compile("reference")
    return made


# What is sent, and where to ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["asia.net", "munin2.net.xz"])
def test_models_and_plans_can_be_sent(name: str) -> None:
    net = jtgpu.read(ROOT / "nets" / name)
    plan = net.plan("min-fill", memory_limit=float("inf"), max_table=None)
    plan.plan.cost()
    sent = pickle.loads(pickle.dumps(plan))
    assert sent.plan == plan.plan
    assert sent.model == net
    assert dict(sent.model.attributes) == dict(net.attributes)
    assert not any(f.table.flags.writeable for f in sent.model.factors)
    assert not sent.plan.table_off.flags.writeable
    with pytest.raises(TypeError):
        sent.model.attributes["net"] = {}


def test_a_tree_is_sent_as_a_plan_and_compiled_there(tree: jtgpu.JunctionTree) -> None:
    sent = pickle.loads(pickle.dumps(tree))
    assert sent.backend == "reference"
    e = {"xray": "yes"}
    np.testing.assert_array_equal(np.asarray(sent.posterior("lung", e)), np.asarray(tree.posterior("lung", e)))
    sent.close()
    with pytest.raises(JtgpuError, match="closed"):
        pickle.dumps(sent)
    markov = jtgpu.MarkovNetwork({"a": ["x", "y"]}, [(("a",), [1.0, 3.0])])
    assert pickle.loads(pickle.dumps(markov.compile("reference"))).posterior("a")["y"] == 0.75


def job_of(plan: Any, **more: Any) -> WorkerJob:
    """A job without work."""
    spec = WorkerSpec(plan, Share("cpu", 1, 1, 0), {}, TableQuery((), ()), TableOptions(), **more)
    return WorkerJob(spec, PartReader(plan.model, CsvDialect(), [], [], 1, False), PartTarget("", "", None, ""))


def test_a_part_does_not_depend_on_the_parts_before() -> None:
    """An adaptive tree is compiled for each part, so a part that is repeated has the same answers."""
    plan = jtgpu.read(ROOT / "nets" / "water.net").plan("min-fill")
    job = job_of(plan)
    made: list[Any] = []

    class Tree:
        is_adaptive = True

        def close(self) -> None:
            made.remove(self)

    class Adaptive(PartWorker):
        def _compile(self) -> Any:
            made.append(Tree())
            return made[-1]

    worker = Adaptive(job)
    first = worker.tree()
    assert worker.tree() is not first
    assert len(made) == 1
    Tree.is_adaptive = False
    assert worker.tree() is worker.tree()


@pytest.mark.parametrize(
    ("cluster", "resources", "backend", "share"),
    [
        (Cluster(), {"CPU": 8.0}, "auto", Share("cpu", 8, 1.0, 0.0)),
        (Cluster(), {"CPU": 64.0, "GPU": 8.0}, "auto", Share("gpu", 8, 8.0, 1.0)),
        (Cluster(), {"CPU": 4.0, "GPU": 8.0}, "gpu", Share("gpu", 4, 1.0, 1.0)),
        (Cluster(cpus=4), {"CPU": 10.0}, "cpu", Share("cpu", 2, 4.0, 0.0)),
        (Cluster(workers=3, gpus=0), {"CPU": 64.0, "GPU": 8.0}, "auto", Share("cpu", 3, 1.0, 0.0)),
        (Cluster(workers=100), {"CPU": 2.0}, "cpu", Share("cpu", 20, 1.0, 0.0)),  # there are twenty parts
        (Cluster(workers=16), {}, "cpu", Share("cpu", 16, 1.0, 0.0)),  # a cluster that grows
        (Cluster(gpus=0.5), {"CPU": 8.0, "GPU": 1.0}, "gpu", Share("gpu", 2, 4.0, 0.5)),
    ],
)
def test_a_cluster_is_divided_among_workers(
    cluster: Cluster, resources: dict[str, float], backend: Any, share: Share
) -> None:
    assert Share.of(cluster, resources, backend, 20) == share


def test_clusters_that_cannot_be() -> None:
    with pytest.raises(JtgpuError, match="2 cores and 0 GPUs, but a worker needs 1 cores and 1 GPUs"):
        Share.of(Cluster(), {"CPU": 2.0}, "gpu", 5)
    for wrong in ({"workers": 0}, {"cpus": -1}, {"gpus": -0.5}):
        with pytest.raises(ValueError, match="must be a positive number"):
            Cluster(**wrong)
    with pytest.raises(ValueError, match="cluster must be 'auto'"):
        as_cluster("")
    assert Share("cpu", 1, 2.0, 0.0).options({"threads": 7, "devices": [1], "lanes": 3}) == {"threads": 2, "lanes": 3}
    assert Share("gpu", 1, 2.0, 1.0).options({"device": 3}) == {}


def test_a_worker_of_another_version_is_refused(plan: Any) -> None:
    worker = PartWorker(job_of(plan, version="0.0.0"))
    with pytest.raises(JtgpuError, match=r"this worker has jtgpu .*, but the run was started by jtgpu 0\.0\.0"):
        worker.tree()


@pytest.mark.slow
def test_ray_is_imported_on_use_and_named_where_it_is_missing(tmp_path: Path) -> None:
    cases = tmp_path / "cases.parquet"
    pq.write_table(pa.table({"xray": ["yes", "no"]}), cases)
    code = (
        "import sys; sys.modules['ray'] = None\n"
        "import jtgpu, jtgpu.cluster\n"
        f"plan = jtgpu.read({str(ROOT / 'nets' / 'asia.net')!r}).plan('min-fill')\n"
        f"try: jtgpu.cluster.answer_files(plan, {str(cases)!r}, {str(tmp_path / 'out')!r}, targets='lung')\n"
        "except jtgpu.JtgpuError as error: print(error)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True, env=dict(os.environ)
    )
    assert "pip install '.[ray]' in a checkout" in done.stdout
    code = "import sys, jtgpu, jtgpu.cluster, jtgpu.cli; print('ray' in sys.modules, 'pyarrow' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False"]


# Documents --------------------------------------------------------------------------------------------------------

EXAMPLES = ROOT / "docs" / "examples"


def held_to_the_command(line: str) -> None:
    """A ``jtgpu batch`` of an example has options that there are, and targets that alarm has."""
    import click

    from jtgpu.cli.commands import app

    words = shlex.split(line)
    assert words[:2] == ["jtgpu", "batch"]
    batch: Any = app.get_command(click.Context(app), "batch")
    known = {o for p in batch.params for o in (*p.opts, *p.secondary_opts)}
    assert {w for w in words if w.startswith("-")} <= known
    net = jtgpu.read(ROOT / "nets" / "alarm.net")
    for target in words[words.index("-t") + 1].split(","):
        net.index(target)
    assert {"--resume", "--cluster"} <= set(words)


def test_the_job_for_kubernetes() -> None:
    yaml = pytest.importorskip("yaml", reason="PyYAML is not installed")
    job = yaml.safe_load((EXAMPLES / "rayjob.yaml").read_text())
    assert (job["apiVersion"], job["kind"]) == ("ray.io/v1", "RayJob")
    held_to_the_command(job["spec"]["entrypoint"])
    cluster = job["spec"]["rayClusterSpec"]
    groups = [cluster["headGroupSpec"], *cluster["workerGroupSpecs"]]
    for group in groups:
        assert all(isinstance(v, str) for v in group["rayStartParams"].values())
        for container in group["template"]["spec"]["containers"]:
            assert container["resources"]["requests"] == container["resources"]["limits"]
            assert all(isinstance(e["value"], str) for e in container["env"])
    words = shlex.split(job["spec"]["entrypoint"])
    options = {w: words[words.index(w) + 1] for w in ("--workers", "--threads")}
    workers = cluster["workerGroupSpecs"][0]
    limits = workers["template"]["spec"]["containers"][0]["resources"]["limits"]
    assert str(workers["replicas"] * int(limits["nvidia.com/gpu"])) == options["--workers"]
    assert limits["cpu"] == options["--threads"]


def test_the_job_for_slurm() -> None:
    path = EXAMPLES / "slurm.sh"
    bash = shutil.which("bash")
    if bash is None:
        pytest.skip("there is no bash")
    subprocess.run([bash, "-n", str(path)], check=True)
    script = path.read_text().replace("\\\n", " ")
    held_to_the_command(script[script.index("jtgpu batch") :].strip().splitlines()[0])


def test_what_the_page_on_clusters_names_is_there() -> None:
    page = "".join((ROOT / "docs" / name).read_text() for name in ("cluster.rst", "cluster-sizing.rst"))
    named = set(re.findall(r"<(examples/[\w.]+)>`_", page))
    assert {"examples/rayjob.yaml", "examples/slurm.sh"} <= named
    for name in named:
        assert (ROOT / "docs" / name).is_file(), name
    for name in re.findall(r"``(bench/[\w/.]+?\.(?:py|jsonl))", page):
        assert (ROOT / name).is_file(), name


def test_the_arithmetic_of_ten_thousand_million_cases() -> None:
    """Every row of the page's table follows from a row of the results."""
    page = (ROOT / "docs" / "cluster-sizing.rst").read_text()
    rows = [json.loads(line) for line in (ROOT / "bench" / "results" / "cluster.jsonl").read_text().splitlines()]
    measured = {(f"{r['network']}, {r['columns']}", r["targets"]): r for r in rows if "columns" in r}
    table = page.partition(".. arithmetic begin")[2].partition(".. arithmetic end")[0]
    documented = [[c.strip().lstrip("*- ") for c in row.splitlines()] for row in table.split("\n   * - ")[2:]]
    assert len(documented) == len(measured)
    for network, targets, rate, hours, _, read, written, *_ in documented:
        r = measured[network, {"three": "3", "all": "all"}[targets]]
        a_case = {name: r[name] / r["cases"] for name in ("bytes_in", "bytes_csv", "bytes_out")}
        assert float(rate.replace(",", "")) == pytest.approx(r["cases_per_second"], rel=0.006)
        assert float(hours.replace(",", "")) == pytest.approx(1e10 / r["cases_per_second"] / 3600, rel=0.03)
        assert read == f"{a_case['bytes_in'] / 100:.2f} ({a_case['bytes_csv'] / 100:.1f})"
        assert written == f"{a_case['bytes_out'] / 100:.2f}"


@pytest.mark.parametrize("address", ["127.0.0.1:1", "ray://127.0.0.1:1", "127.0.0.1:99999", "no.such.host.invalid:1"])
def test_addresses_where_nothing_listens_are_refused_at_once(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jtgpu.cluster.connect.import_ray", lambda: SimpleNamespace(is_initialized=lambda: False))
    with pytest.raises(JtgpuError, match=f"no cluster at '{address}'"):
        connect(Cluster(address))
