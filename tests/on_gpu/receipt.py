"""The receipt of the last run of the GPU tests, and whether it still describes these sources.

    python tests/on_gpu/receipt.py --check     exit code 1 when a GPU source changed since the tests last ran on a GPU
    python tests/on_gpu/receipt.py --write     run pytest over tests/on_gpu and write receipt.json (``make gpu-test``)

A machine without a GPU cannot run those tests. The receipt tells it that they passed, on which device, and for exactly
these sources. Sources are compared by content: a file that only moved or was renamed needs no new run. Plain Python,
no dependencies.
"""

from __future__ import annotations

import argparse
import datetime
import hashlib
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ElementTree
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
RECEIPT = Path(__file__).with_name("receipt.json")
WATCHED = (
    "cuda/**/*.cu",
    "cuda/**/*.cuh",
    "jtgpu/backends/auto.py",
    "jtgpu/backends/base.py",
    "jtgpu/backends/published/**/*.py",
    "jtgpu/backends/wrappers/**/*.py",
    "jtgpu/**/gpu.py",
    "jtgpu/**/gpu/**/*.py",
    "jtgpu/device/**/*.py",
    "jtgpu/inference/compiled.py",
    "jtgpu/plans/conditioning/**/*.py",
    "tests/on_gpu/*.py",
)


def watched_files() -> list[Path]:
    """Every file that the outcome of the GPU tests depends on, sorted by name."""
    found = {p for pattern in WATCHED for p in ROOT.glob(pattern) if p.is_file()}
    return sorted(found, key=lambda p: p.relative_to(ROOT).as_posix())


def digests() -> dict[str, str]:
    """Name and SHA-256 of every watched file that is not empty, with line ends as in the repository."""
    contents = {p.relative_to(ROOT).as_posix(): p.read_bytes().replace(b"\r\n", b"\n") for p in watched_files()}
    return {name: hashlib.sha256(content).hexdigest() for name, content in contents.items() if content}


def digest(files: dict[str, str]) -> str:
    """One SHA-256 over all contents, whatever their names."""
    return hashlib.sha256("\n".join(sorted(files.values())).encode()).hexdigest()


def check() -> int:
    """Compare with the receipt; 0 when it describes these sources and a run without failures."""
    now = digests()
    try:
        receipt = json.loads(RECEIPT.read_text(encoding="utf-8"))
    except FileNotFoundError:
        print("no receipt: the GPU tests have not been run yet; on a GPU machine: make gpu-test", file=sys.stderr)
        return 1
    then = receipt["files"]
    if digest(then) != digest(now):
        unknown = [name for name, content in now.items() if content not in then.values()]
        gone = [name for name, content in then.items() if content not in now.values()]
        print("the GPU tests have not been run on these sources", file=sys.stderr)
        for name in unknown or gone:
            print(f"  {'unknown content' if unknown else 'no longer there'}: {name}", file=sys.stderr)
        print("on a GPU machine: make gpu-test", file=sys.stderr)
        return 1
    if receipt["failed"] or not receipt["passed"]:
        print(f"the last run on a GPU had {receipt['failed']} failures", file=sys.stderr)
        return 1
    print(f"receipt of {receipt['date']}: {receipt['passed']} passed on {receipt['device']}")
    return 0


def write(pytest_arguments: list[str]) -> int:
    """Run the GPU tests, which needs a GPU, and write the receipt; return pytest's exit code."""
    before = digests()
    counts = {"passed": 0, "failed": 0, "skipped": 0}
    code = 0
    for selected in _passes():
        with tempfile.TemporaryDirectory() as folder:
            report = Path(folder, "report.xml")
            command = [sys.executable, "-m", "pytest", "tests/on_gpu", f"--junitxml={report}", *selected]
            environment = {**os.environ, "JTGPU_REQUIRE_GPU": "1"}
            done = subprocess.run([*command, *pytest_arguments], cwd=ROOT, env=environment, check=False)
            if not report.is_file():
                return done.returncode or 1
            for what, n in _counts(report).items():
                counts[what] += n
        code = code or done.returncode
    after = digests()
    if after != before:
        print("a source changed while the tests ran: no receipt", file=sys.stderr)
        return 1
    receipt = {
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        **_machine(),
        **counts,
        "digest": digest(after),
        "files": after,
    }
    RECEIPT.write_text(json.dumps(receipt, indent=1) + "\n", encoding="utf-8")
    return code


def _passes() -> list[list[str]]:
    """Arguments of each run of pytest.

    Tests run one after another. With JTGPU_TEST_WORKERS above 1 and pytest-xdist they run in parallel, and those marked
    ``alone``, which need all of the GPU's memory, follow in a second run. Eight workers took as long as one, since they
    share the GPU and Numba's compilation. Names are printed as tests end, because a run may be cut off.
    """
    usual = ["-v", "-o", "faulthandler_timeout=200"]
    workers = int(os.environ.get("JTGPU_TEST_WORKERS", "1"))
    if workers < 2 or importlib.util.find_spec("xdist") is None:
        return [usual]
    return [[*usual, "-m", "not alone", "-n", str(workers)], [*usual, "-m", "alone"]]


def _counts(report: Path) -> dict[str, int]:
    suite = ElementTree.parse(report).getroot().find("testsuite")
    assert suite is not None
    failed = int(suite.get("failures", 0)) + int(suite.get("errors", 0))
    skipped = int(suite.get("skipped", 0))
    return {"passed": int(suite.get("tests", 0)) - failed - skipped, "failed": failed, "skipped": skipped}


def _machine() -> dict[str, str]:
    query = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
    try:
        line = subprocess.run(query, capture_output=True, text=True, check=True).stdout.splitlines()[0]
        device, driver = (part.strip() for part in line.split(",")[:2])
    except (OSError, subprocess.CalledProcessError, IndexError, ValueError):
        device, driver = "unknown", "unknown"
    try:
        version = subprocess.run(["nvcc", "--version"], capture_output=True, text=True, check=True).stdout
        toolkit = version.split("release ")[1].split(",")[0]
    except (OSError, subprocess.CalledProcessError, IndexError):
        toolkit = "unknown"
    return {"device": device, "driver": driver, "cuda": toolkit, "python": sys.version.split()[0]}


def main() -> int:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--check", action="store_true")
    what.add_argument("--write", action="store_true")
    arguments, rest = parser.parse_known_args()
    return check() if arguments.check else write(rest)


if __name__ == "__main__":
    sys.exit(main())
