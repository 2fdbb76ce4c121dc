"""The receipt of the GPU tests: by content, without dependencies."""

from __future__ import annotations

import importlib.util
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import ROOT


def receipt_module() -> Any:
    spec = importlib.util.spec_from_file_location("receipt", ROOT / "tests" / "on_gpu" / "receipt.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_receipt_describes_these_contents_or_names_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    receipt = receipt_module()
    monkeypatch.setattr(receipt, "RECEIPT", tmp_path / "receipt.json")
    assert receipt.check() == 1
    assert "make gpu-test" in capsys.readouterr().err
    files = receipt.digests()
    monkeypatch.setattr(receipt, "digests", lambda: files)  # which takes seconds
    assert {"cuda/published/job.cuh", "jtgpu/device/context.py", "tests/on_gpu/receipt.py"} <= set(files)
    kept = {"date": "2026-01-01", "device": "x", "passed": 3, "failed": 0, "files": files}
    receipt.RECEIPT.write_text(json.dumps(kept))
    assert receipt.check() == 0
    moved = {name.replace("cuda/", "kernels/"): value for name, value in files.items()}
    receipt.RECEIPT.write_text(json.dumps({**kept, "files": moved}))
    assert receipt.check() == 0
    capsys.readouterr()
    receipt.RECEIPT.write_text(json.dumps({**kept, "files": {**files, "cuda/published/job.cuh": "another"}}))
    assert receipt.check() == 1
    assert re.findall(r"unknown code: (.*)", capsys.readouterr().err) == ["cuda/published/job.cuh"]
    receipt.RECEIPT.write_text(json.dumps({**kept, "failed": 1}))
    assert receipt.check() == 1


def test_only_code_counts() -> None:
    receipt = receipt_module()
    old = '"""Doc."""\nimport os\n__all__ = ["f"]\n'
    old += 'def f(x: int = 3) -> str:\n    """Doc."""\n    return f"{x:>4}"\nLIMIT = 4\n'
    new = "from sys import path\nLIMIT = 4  # why\n\n\ndef f(x: int = 3) -> str:\n    # why\n    return f'{x:>4}'\n"
    assert sorted(receipt.python_code(old)) == sorted(receipt.python_code(new))
    assert sorted(receipt.python_code(old)) != sorted(receipt.python_code(new.replace("= 3", "= 4")))
    assert len(receipt.python_code(old)) == 2
    kernel = 'int x = 3; // why\n/* two\nlines */ char const *s = "http://a"; // "\n#define N 4\n'
    bare = '\n  int x = 3;\nchar const *s = "http://a";\n#define N 4\n'
    assert receipt.cuda_code(kernel) == receipt.cuda_code(bare)
    assert receipt.cuda_code(kernel) != receipt.cuda_code(bare.replace("http://a", "http://b"))
    assert receipt.cuda_code(kernel) != receipt.cuda_code(bare.replace("N 4", "N 5"))


def test_a_moved_definition_needs_no_gpu() -> None:
    receipt = receipt_module()
    assert receipt.digest({"a.py": "1 2", "b.py": "3"}) == receipt.digest({"c.py": "2 3 1"})
    assert receipt.digest({"a.py": "1 2"}) != receipt.digest({"a.py": "1 2 2"})


def test_the_receipt_needs_no_packages() -> None:
    """It is run on machines where jtgpu is not installed."""
    command = [sys.executable, "-I", "-S", str(ROOT / "tests" / "on_gpu" / "receipt.py"), "--help"]
    assert subprocess.run(command, capture_output=True, check=False).returncode == 0
