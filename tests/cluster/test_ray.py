"""On a local Ray cluster: tables in files, datasets, frames and slices, with workers and leaders that are killed."""

from __future__ import annotations

import importlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import jtgpu
from jtgpu.backends.wrappers import cutset as sliced
from jtgpu.cases import answer_file
from jtgpu.cli import app
from jtgpu.cluster import Cluster, RaySlices, answer_dataset, answer_files
from jtgpu.cluster import datasets as slices
from tests.conftest import ROOT
from tests.support.patience import patience

if find_spec("ray") is None:  # importing it takes seconds, also where its tests are not selected
    pytest.skip("ray is not installed", allow_module_level=True)
pa = pytest.importorskip("pyarrow", reason="pyarrow is not installed")
pq = pytest.importorskip("pyarrow.parquet", reason="pyarrow is not installed")

ASIA = ROOT / "nets" / "asia.net"
NAMES = ["smoke", "xray", "dysp", "asia"]
ASK: dict[str, Any] = {"targets": "lung", "keep": "id", "log_evidence": True}
SETTINGS = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_AUTH_MODE": "disabled"}


@pytest.fixture(scope="module")
def ray() -> Iterator[Any]:
    """A cluster of two workers on this machine, whose processes end with it."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in SETTINGS.items():
            patch.setenv(name, value)
        patch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]))
        found: Any = importlib.import_module("ray")
        found.init(
            address="local", num_cpus=2, include_dashboard=False, object_store_memory=100 << 20, log_to_driver=False,
            logging_level="ERROR", configure_logging=False,
        )  # fmt: skip
        yield found
        mine = [p for p, _ in processes("ray::")]
        found.shutdown()
        until(lambda: not any(Path(f"/proc/{p}").exists() for p in mine), 20)


def processes(name: str) -> list[tuple[int, str]]:
    """Processes whose command begins so, with what they are called; only those of this session's cluster."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            command = (folder / "cmdline").read_bytes().split(b"\0")[0].decode(errors="replace")
            environment = (folder / "environ").read_bytes()
            if command.startswith(name) and CACHE in environment:
                found.append((int(folder.name), command))
    return sorted(found)


CACHE = b"JTGPU_CACHE_DIR=" + os.environ.get("JTGPU_CACHE_DIR", "").encode()


def until(true: Any, seconds: float = 120.0) -> None:
    """Wait for something."""
    end = time.monotonic() + patience(seconds)
    while not true():
        assert time.monotonic() < end, "waited for too long"
        time.sleep(0.05)


@pytest.fixture(scope="module")
def tree() -> jtgpu.JunctionTree:
    made: jtgpu.JunctionTree = jtgpu.read(ASIA).compile("reference")
    return made


def table(n: int, seed: int = 3) -> Any:
    random = np.random.default_rng(seed)
    kinds = np.array(["yes", "no", None], object)
    columns = {v: pa.array(kinds[random.choice(3, n, p=[0.4, 0.4, 0.2])], pa.string()) for v in NAMES}
    return pa.table({"id": np.arange(n), **columns})


def in_order(folder: Path) -> Any:
    return pa.concat_tables([pq.read_table(p) for p in sorted(folder.glob("part-*.parquet"))])


def local_answers(tree: jtgpu.JunctionTree, cases: Path, **more: Any) -> Any:
    """What one process answers."""
    out = cases.with_suffix(".expected.parquet")
    answer_file(tree, cases, out, force=True, **{**ASK, **more})
    return pq.read_table(out)


# Files ------------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_answers_are_those_of_one_process_bit_for_bit(ray: Any, tmp_path: Path) -> None:
    """On the CPU, where the order of the cases decides how they are computed together, and the last digits."""
    net = jtgpu.read(ROOT / "nets" / "alarm.net")
    plan = net.plan("min-fill")
    n, step = 24_000, 2_000
    with plan.compile("cpu", threads=1) as tree:
        states = tree.sample(n, seed=4).states
        random = np.random.default_rng(4)
        seen = sorted(random.permutation(len(net))[:11].tolist())
        empty = random.random((n, len(seen))) < 0.1
        labels = {
            net.variables[v]: pa.array(np.array(net.states(v), object)[states[:, v]], pa.string(), mask=empty[:, j])
            for j, v in enumerate(seen)
        }
        cases = tmp_path / "cases.parquet"
        pq.write_table(pa.table({"id": np.arange(n), **labels}), cases, row_group_size=7_000)
        more: dict[str, Any] = {"targets": None, "conflict": True, "chunk": step}
        expected = local_answers(tree, cases, **more)
    report = answer_files(
        plan, cases, tmp_path / "out", backend="cpu", cluster=Cluster(workers=2), part_rows=4_000, **{**ASK, **more}
    )
    assert (report.parts, report.workers, report.backend, report.cases) == (6, 2, "cpu", n)
    assert in_order(tmp_path / "out").equals(expected)


@pytest.fixture(scope="module")
def slow(tmp_path_factory: pytest.TempPathFactory, tree: jtgpu.JunctionTree) -> tuple[Path, Any]:
    """Cases whose parts take a while, and their answers."""
    cases = tmp_path_factory.mktemp("slow") / "cases.parquet"
    pq.write_table(table(SLOW * PARTS), cases, row_group_size=SLOW)
    return cases, local_answers(tree, cases, chunk=100)


SLOW, PARTS = 2_000, 6  # cases of a part: about half a second on the reference; parts


@pytest.mark.slow
def test_a_killed_worker_neither_loses_nor_repeats_rows(
    ray: Any, tree: jtgpu.JunctionTree, slow: tuple[Path, Any], tmp_path: Path
) -> None:
    cases, expected = slow
    unfinished = tmp_path / "out.unfinished"
    killed: list[int] = []

    def writing(process: int) -> bool:
        with suppress(OSError):
            return any("_tmp-part-" in os.readlink(f) for f in Path(f"/proc/{process}/fd").iterdir())
        return False

    def kill() -> None:
        until(lambda: any(unfinished.glob("part-*")))
        until(lambda: any(writing(p) for p, _ in processes("ray::MapWorker")))
        for victim in [p for p, _ in processes("ray::MapWorker") if writing(p)][:1]:
            os.kill(victim, signal.SIGKILL)
            killed.append(victim)

    killer = threading.Thread(target=kill)
    killer.start()
    report = answer_files(
        tree, cases, tmp_path / "out", cluster=Cluster(workers=2), chunk=100, part_rows=SLOW, **ASK
    )
    killer.join()
    assert killed
    assert report.cases == SLOW * PARTS
    assert in_order(tmp_path / "out").equals(expected)
    names = sorted(p.name for p in (tmp_path / "out").iterdir())
    assert names == ["_SUCCESS", "_run.json", *(f"part-{i:06d}.parquet" for i in range(PARTS))]


@pytest.mark.slow
def test_a_run_resumes_after_its_leading_process_is_killed(
    ray: Any, tree: jtgpu.JunctionTree, slow: tuple[Path, Any], tmp_path: Path
) -> None:
    cases, expected = slow
    out = tmp_path / "out"

    def done() -> int:
        return len(list((tmp_path / "out.unfinished").glob("part-*")))

    words = [
        "batch", str(ASIA), str(cases), "-o", str(out), "-t", "lung", "--keep", "id", "--log-evidence",
        "--chunk", "100", "--part-rows", str(SLOW), "--backend", "reference",
        "--cluster", ray.get_runtime_context().gcs_address,
    ]  # fmt: skip
    with subprocess.Popen(
        [sys.executable, "-m", "jtgpu", *words], cwd=ROOT, env={**os.environ, **SETTINGS},
        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
    ) as leader:  # fmt: skip
        try:
            until(lambda: done() >= 2 or leader.poll() is not None, 60)
            assert leader.poll() is None, leader.stderr and leader.stderr.read().decode()
        finally:
            leader.kill()
    until(lambda: not processes("ray::MapWorker"))  # workers end with the one who leads them
    assert not out.exists()
    n_done = done()
    assert 2 <= n_done < PARTS
    result = CliRunner().invoke(app, [*words[:-1], "auto", "--workers", "2", "--json", "--resume"])
    assert result.exit_code == 0, result.output
    report = json.loads(result.stdout)
    assert report["resumed"] == SLOW * n_done
    assert report["cases"] == SLOW * PARTS
    assert in_order(out).equals(expected)
    assert not (tmp_path / "out.unfinished").exists()


@pytest.mark.slow
def test_an_invalid_row_is_named_by_the_worker_that_reads_it(
    ray: Any, tree: jtgpu.JunctionTree, tmp_path: Path
) -> None:
    found = table(4_000)
    smoke = found["smoke"].to_pylist()
    smoke[2_345] = "sometimes"
    cases = tmp_path / "cases.parquet"
    pq.write_table(found.set_column(1, "smoke", pa.array(smoke, pa.string())), cases)
    words = ["batch", str(ASIA), str(cases), "-t", "lung", "--backend", "reference", "--cluster", "auto"]
    words += ["--chunk", "100", "--part-rows", "1000", "--workers", "2"]
    result = CliRunner().invoke(app, [*words, "-o", str(tmp_path / "out")])
    assert result.exit_code == 2
    assert f"{cases}: row 2346: column 'smoke': 'sometimes' is not a state" in result.stderr
    assert not (tmp_path / "out").exists()
    assert (tmp_path / "out.unfinished" / "part-000001.parquet").exists()
    until(lambda: not processes("ray::MapWorker"))
    out = tmp_path / "out.parquet"
    result = CliRunner().invoke(app, [*words, "-o", str(out), "--on-error", "flag"])
    assert result.exit_code == 0, result.output
    errors = pq.read_table(out)["error"].to_pylist()
    assert [i for i, e in enumerate(errors) if e] == [2_345]


@pytest.mark.slow
def test_a_run_can_be_monitored_from_outside_the_cluster(ray: Any, tree: jtgpu.JunctionTree, tmp_path: Path) -> None:
    """By Ray's client, ``ray://``: a process of the cluster leads."""
    pytest.importorskip("grpc", reason="grpcio is not installed, which Ray's client needs: ray[client]")
    cases = tmp_path / "cases.parquet"
    pq.write_table(table(3_000), cases)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    address = f"ray://127.0.0.1:{port}"
    words = ["-t", "lung", "--keep", "id", "--log-evidence", "--backend", "reference", "--chunk", "100", "--json"]
    words += ["--part-rows", "1000", "--workers", "2", "--cluster", address]
    server = [sys.executable, "-m", "ray.util.client.server", "--host", "127.0.0.1", "--port", str(port)]
    server += ["--mode", "legacy", "--address", ray.get_runtime_context().gcs_address]
    with subprocess.Popen(server, cwd=ROOT, env={**os.environ, **SETTINGS}, stderr=subprocess.DEVNULL) as served:
        try:
            def batch(cases: str) -> subprocess.CompletedProcess[str]:
                return subprocess.run(
                    [sys.executable, "-m", "jtgpu", "batch", str(ASIA), cases, "-o", str(tmp_path / "out"), *words],
                    cwd=ROOT, env={**os.environ, **SETTINGS}, capture_output=True, text=True, check=False,
                    timeout=patience(90),
                )  # fmt: skip

            wrong = batch(str(tmp_path / "nothing.csv"))
            assert wrong.returncode == 1
            assert wrong.stderr.splitlines()[-1] == f"jtgpu: error: {tmp_path}/nothing.csv: no such file or folder"
            done = batch(str(cases))
            assert done.returncode == 0, done.stderr
            assert json.loads(done.stdout)["parts"] == 3
        finally:
            served.kill()
    assert in_order(tmp_path / "out").equals(local_answers(tree, cases, chunk=100))


# Datasets and frames ----------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_dataset_of_cases_becomes_a_dataset_of_answers(ray: Any, tree: jtgpu.JunctionTree, tmp_path: Path) -> None:
    data: Any = importlib.import_module("ray.data")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(data.DataContext.get_current(), "enable_progress_bars", False)
        patch.setattr(data.DataContext.get_current().execution_options, "preserve_order", True)
        cases = table(3_000)
        folder = tmp_path / "cases"
        folder.mkdir()
        for i in range(3):
            pq.write_table(cases.slice(1_000 * i, 1_000), folder / f"{i}.parquet")
        read = data.read_parquet(str(folder), include_paths=True)
        answered = tree.predict_proba(read, "lung", keep="id", log_evidence=True, cluster=Cluster(workers=1))
        assert type(answered).__name__ == "Dataset"
        frame = answered.to_pandas().sort_values("id")
        expected = tree.predict_proba(cases, "lung", keep="id", log_evidence=True).to_pandas()
        np.testing.assert_array_equal(frame["id"], expected["id"])
        np.testing.assert_allclose(frame["lung=yes"], expected["lung=yes"], rtol=0, atol=1e-12)

        pq.write_table(table(50).set_column(2, "xray", pa.array(["yes"] * 49 + ["gone"])), folder / "1.parquet")
        wrong = answer_dataset(tree, data.read_parquet(str(folder), include_paths=True), targets="lung", keep="id")
        with pytest.raises(jtgpu.errors.UnknownState, match=r"path '.*1\.parquet', id 49\): column 'xray': 'gone'"):
            wrong.materialize()


@pytest.mark.slow
def test_a_frame_has_the_same_answers_as_locally(
    ray: Any, tree: jtgpu.JunctionTree, monkeypatch: pytest.MonkeyPatch
) -> None:
    from jtgpu.cases import query

    monkeypatch.setattr(query, "MAX_ROWS", 1024)  # so that there are several blocks
    cases = table(2_500)
    more: dict[str, Any] = {"keep": "id", "log_evidence": True, "conflict": True, "mpe": True}
    expected = tree.predict_proba(cases, "lung", **more)
    assert tree.predict_proba(cases, "lung", cluster=Cluster(workers=2), **more).equals(expected)
    assert tree.predict(cases.slice(0, 0), "lung", cluster="auto").num_rows == 0
    soft = {"xray": ["[0.4;0.8]", "yes", "[1;0.25]"]}
    assert tree.predict_proba(pa.table(soft), "lung", cluster="auto").equals(tree.predict_proba(pa.table(soft), "lung"))
    pandas = pytest.importorskip("pandas", reason="pandas is not installed")
    frame = cases.slice(0, 30).to_pandas().drop(columns="id")
    frame.index = [f"case {i}" for i in range(30)]
    pandas.testing.assert_frame_equal(tree.predict(frame, "lung", cluster="auto"), tree.predict(frame, "lung"))
    frame.loc["case 7", "dysp"] = "loud"
    with pytest.raises(jtgpu.errors.UnknownState, match=r"index 'case 7'.*'loud'"):
        tree.predict(frame, "lung", cluster="auto")


# Slices -----------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_slices_have_the_same_bits_after_a_worker_is_killed(
    ray: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sliced, "MIN_WORK", 1)  # one slice per task
    net = jtgpu.read(ROOT / "nets" / "alarm.net")
    plan = net.plan("min-fill", slices=["HR", "CATECHOL", "VENTLUNG"])
    states = np.full((12, len(net)), -1, np.int32)
    states[:, net.index("PAP")] = np.arange(12) % 3
    states[:, net.index("HR")] = np.arange(12) % 4 - 1
    with plan.compile("reference") as one, plan.compile("reference", executor=RaySlices(Cluster(workers=2))) as many:
        case = {"PAP": "LOW", "BP": "HIGH"}
        expected, found = one.posteriors(case), many.posteriors(case)
        assert found.log_evidence == expected.log_evidence
        assert all(np.array_equal(found[v], expected[v]) for v in net.variables)
        table_here = one.posteriors_batch(states)
        until(lambda: len(processes("ray::_SliceActor")) == 2)
        victim = processes("ray::_SliceActor")[0][0]
        working = threading.Event()
        give = slices._RayExecutor._submit

        def kill() -> None:
            working.wait()
            os.kill(victim, signal.SIGKILL)

        def noted(*args: Any) -> Any:
            noted.calls += 1  # type: ignore[attr-defined]
            if noted.calls == 20:  # type: ignore[attr-defined]
                working.set()
            return give(*args)

        noted.calls = 0  # type: ignore[attr-defined]
        monkeypatch.setattr(slices._RayExecutor, "_submit", staticmethod(noted))
        killer = threading.Thread(target=kill)
        killer.start()
        table_there = many.posteriors_batch(states)
        killer.join()
        until(lambda: victim not in [p for p, _ in processes("ray::_SliceActor")])
        assert noted.calls > 100  # type: ignore[attr-defined]
        np.testing.assert_array_equal(table_there.flat, table_here.flat)
        np.testing.assert_array_equal(table_there.log_evidence, table_here.log_evidence)
    with jtgpu.read(ASIA).plan("min-fill", slices=["smoke"]).compile("reference", executor=RaySlices()) as small:
        assert small.posterior("lung", {"smoke": "yes"})["yes"] == pytest.approx(0.1)
        with pytest.raises(jtgpu.ImpossibleEvidence, match="lung = 'yes'"):
            small.posteriors({"lung": "yes", "either": "no"})
    until(lambda: not processes("ray::_SliceActor"))


# Clusters that are not there ---------------------------------------------------------------------------------------


def test_a_missing_cluster_is_an_error(tmp_path: Path) -> None:
    pq.write_table(table(10), tmp_path / "cases.parquet")
    words = ["batch", str(ASIA), str(tmp_path / "cases.parquet"), "-o", str(tmp_path / "out"), "-t", "lung"]
    environment = {k: v for k, v in os.environ.items() if k != "RAY_ADDRESS"}
    done = subprocess.run(
        [sys.executable, "-m", "jtgpu", *words, "--cluster", "nowhere"], cwd=ROOT, capture_output=True, text=True,
        check=False, env={**environment, **SETTINGS}, timeout=patience(120),
    )  # fmt: skip
    assert done.returncode == 1, done.stderr
    assert "no cluster at 'nowhere'" in done.stderr
    assert sorted(p.name for p in tmp_path.iterdir()) == ["cases.parquet"]
