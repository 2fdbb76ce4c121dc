"""The receipt of the last run of the GPU tests, and whether it still describes these sources.

    python tests/on_gpu/receipt.py --check     exit code 1 when a GPU source changed since the tests last ran on a GPU
    python tests/on_gpu/receipt.py --write     run pytest over tests/on_gpu and write receipt.json (``make gpu-test``)

A machine without a GPU cannot run those tests. The receipt tells it that they passed, on which device, and for exactly
this code. Only what can change a result counts: not comments, docstrings, imports and ``__all__``, and not the file in
which a definition stands, so that a clean-up needs no new run. Plain Python, no dependencies.
"""

from __future__ import annotations

import argparse
import ast
import datetime
import hashlib
import importlib.util
import json
import os
import re
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
    "jtgpu/backends/make.py",
    "jtgpu/backends/answers.py",
    "jtgpu/backends/base.py",
    "jtgpu/backends/table.py",
    "jtgpu/published/**/*.py",
    "jtgpu/backends/wrappers/**/*.py",
    "jtgpu/**/gpu.py",
    "jtgpu/**/gpu_*.py",
    "jtgpu/**/*_gpu.py",
    "jtgpu/**/gpu/**/*.py",
    "jtgpu/device/**/*.py",
    "jtgpu/inference/compiled.py",
    "jtgpu/plans/conditioning.py",
    "tests/on_gpu/*.py",
    "tests/backends/gpu/conftest.py",
    "tests/backends/gpu/engines.py",
    "tests/backends/gpu/test_counts.py",
    "tests/**/gpu_checks.py",
)

CUDA_COMMENT = re.compile(r'"(?:\\.|[^"\\\n])*"|//[^\n]*|/\*.*?\*/', re.DOTALL)


def watched_files() -> list[Path]:
    """Every file that the outcome of the GPU tests depends on, sorted by name."""
    found = {p for pattern in WATCHED for p in ROOT.glob(pattern) if p.is_file()}
    return sorted(found, key=lambda p: p.relative_to(ROOT).as_posix())


def python_code(text: str) -> list[str]:
    """The top-level statements of a module without docstrings, imports and ``__all__``, in a form of our own.

    ``ast.dump`` and ``ast.unparse`` differ between Python versions, and CI need not have that of the GPU machine.
    """
    return [code for node in ast.parse(text).body if (code := _code_of(node))]


def _code_of(node: object) -> str:
    if isinstance(node, (ast.Import, ast.ImportFrom)):
        return ""
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
        return ""
    if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and node.targets[0].id == "__all__":
        return ""
    if isinstance(node, list):
        return ",".join(filter(None, map(_code_of, node)))
    if isinstance(node, ast.Constant):
        return repr(node.value)
    if isinstance(node, ast.AST):
        # fields without a value are left out: newer versions of Python have more of them
        fields = [(name, _code_of(value)) for name, value in ast.iter_fields(node) if value not in (None, [])]
        return f"{type(node).__name__}({';'.join(f'{name}={code}' for name, code in fields)})"
    return repr(node)


def cuda_code(text: str) -> list[str]:
    """The lines of a CUDA source without comments and without blanks at both ends."""
    bare = CUDA_COMMENT.sub(lambda match: match[0] if match[0].startswith('"') else " ", text)
    return ["\n".join(line for raw in bare.splitlines() if (line := raw.strip()))]


def digests() -> dict[str, str]:
    """Name and digest of every watched file that holds code; of a Python file, one for each top-level statement."""
    out = {}
    for path in watched_files():
        text = path.read_text(encoding="utf-8")
        parts = python_code(text) if path.suffix == ".py" else cuda_code(text)
        if any(parts):
            name = path.relative_to(ROOT).as_posix()
            out[name] = " ".join(hashlib.sha256(part.encode()).hexdigest()[:16] for part in parts)
    return out


def digest(files: dict[str, str]) -> str:
    """One SHA-256 over all code, whichever files hold it."""
    return hashlib.sha256("\n".join(sorted(" ".join(files.values()).split())).encode()).hexdigest()


def _files_with_parts_outside(files: dict[str, str], others: dict[str, str]) -> list[str]:
    known = set(" ".join(others.values()).split())
    return [name for name, parts in files.items() if not known.issuperset(parts.split())]


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
        unknown = _files_with_parts_outside(now, then)
        gone = _files_with_parts_outside(then, now)
        print("the GPU tests have not been run on these sources", file=sys.stderr)
        for name in (unknown or gone)[:20]:
            print(f"  {'unknown code' if unknown else 'no longer there'}: {name}", file=sys.stderr)
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
    ``alone``, which need all of the GPU's memory, follow in a second run: 205 s with six workers and built loops, above
    600 s with one worker and loops that Numba compiles. Names are printed as tests end, because a run may be cut off.
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
