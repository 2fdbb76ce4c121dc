"""Build the wheel, look for what must be in it, install it apart and run it away from the checkout.

    python tools/check_package.py

Installs the wheel without its dependencies: those of the Python that runs this are used.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def wanted() -> set[str]:
    """Every file of the checkout that an installed package needs, by its name in the wheel."""
    names = {"jtgpu/py.typed"}
    names |= {p.relative_to(ROOT).as_posix() for p in (ROOT / "jtgpu").rglob("*.py")}
    for pattern in ("cuda/**/*.cu", "cuda/**/*.cuh", "nets/*.net", "nets/*.net.gz", "nets/*.num", "nets/README.rst"):
        names |= {f"jtgpu/{p.relative_to(ROOT).as_posix()}" for p in ROOT.glob(pattern)}
    return names


def main() -> int:
    """0 when the wheel is whole and works."""
    with tempfile.TemporaryDirectory(prefix="jtgpu-wheel-") as folder:
        out, apart = Path(folder, "wheel"), Path(folder, "apart")
        pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet"]
        # from a copy: setuptools leaves build/ where it builds, and what lies there from earlier ends in the wheel
        copy = Path(folder, "source")
        listed = ("jtgpu", "cuda", "nets", "setup.py", "pyproject.toml", "MANIFEST.in", "README.rst", "LICENSE")
        copy.mkdir()
        subprocess.run(["cp", "-r", *(str(ROOT / name) for name in listed), str(copy)], check=True)
        subprocess.run([*pip, "wheel", "--no-deps", "--wheel-dir", str(out), str(copy)], check=True)
        (wheel,) = out.glob("jtgpu-*.whl")
        with zipfile.ZipFile(wheel) as archive:
            names = {n for n in archive.namelist() if ".dist-info/" not in n}
        missing, foreign = wanted() - names, {n for n in names if not n.startswith("jtgpu/")}
        init = {n for n in names if n.startswith("jtgpu/cuda/") and n.endswith(".py")}
        if missing or foreign or init:
            print(
                f"missing: {sorted(missing)}\nforeign: {sorted(foreign)}\nPython in cuda/: {sorted(init)}",
                file=sys.stderr,
            )
            return 1
        subprocess.run([*pip, "install", "--no-deps", "--target", str(apart), str(wheel)], check=True)
        # -P and PYTHONPATH: the installed package, and not the checkout that the environment points to
        environment = os.environ | {"PYTHONPATH": str(apart)}
        where = "import jtgpu, jtgpu.timing as t, jtgpu.device.nvcc as k; print(jtgpu.__file__); k.sources()"
        for command in (
            ["-P", "-c", where],
            ["-P", "-m", "jtgpu", "query", str(apart / "jtgpu/nets/asia.net"), "-t", "lung"],
        ):
            done = subprocess.run(
                [sys.executable, *command], cwd=folder, env=environment, check=True, capture_output=True, text=True
            )
            if command[1] == "-c" and not done.stdout.startswith(str(apart)):
                print(f"tested {done.stdout.strip()}, not the installed package", file=sys.stderr)
                return 1
        print(f"{wheel.name}: {len(names)} files, {wheel.stat().st_size / 2**20:.1f} MiB, installs and runs")
    return 0


if __name__ == "__main__":
    sys.exit(main())
