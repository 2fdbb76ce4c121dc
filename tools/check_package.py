"""Build the wheel, check its contents, install it elsewhere and run it outside of the checkout.

    python tools/check_package.py

The wheel is installed without its dependencies; those of this Python are used. It must answer with its own compiled
loops, without Numba. Building them takes a minute or two.
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
    names |= {p.relative_to(ROOT).as_posix() for p in (ROOT / "jtgpu" / "serve" / "page").iterdir()}
    for pattern in ("cuda/**/*.cu", "cuda/**/*.cuh", "nets/*.net", "nets/*.net.xz", "nets/*.num", "nets/README.rst"):
        names |= {f"jtgpu/{p.relative_to(ROOT).as_posix()}" for p in ROOT.glob(pattern)}
    return names


def main() -> int:
    """Exit code: 0 if the wheel is complete and works."""
    with tempfile.TemporaryDirectory(prefix="jtgpu-wheel-") as folder:
        out, elsewhere = Path(folder, "wheel"), Path(folder, "elsewhere")
        pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet"]
        # from a copy: setuptools builds in build/ of its source folder, whose old files would end in the wheel
        copy = Path(folder, "source")
        listed = ("jtgpu", "cuda", "nets", "setup.py", "pyproject.toml", "MANIFEST.in", "README.rst")
        copy.mkdir()
        subprocess.run(["cp", "-r", *(str(ROOT / name) for name in (*listed, "LICENSE")), str(copy)], check=True)
        build = os.environ | {"JTGPU_BUILD_LOOPS": "1"}
        subprocess.run([*pip, "wheel", "--no-deps", "--wheel-dir", str(out), str(copy)], env=build, check=True)
        (wheel,) = out.glob("jtgpu-*.whl")
        with zipfile.ZipFile(wheel) as archive:
            names = {n for n in archive.namelist() if ".dist-info/" not in n}
        loops = {n for n in names if n.startswith("jtgpu/_loops_")}
        if not loops:
            print(f"{wheel.name} has no compiled loops", file=sys.stderr)
            return 1
        missing, foreign = wanted() - names, {n for n in names if not n.startswith("jtgpu/")}
        init = {n for n in names if n.startswith("jtgpu/cuda/") and n.endswith(".py")}
        if missing or foreign or init:
            print(
                f"missing: {sorted(missing)}\nforeign: {sorted(foreign)}\nPython in cuda/: {sorted(init)}",
                file=sys.stderr,
            )
            return 1
        subprocess.run([*pip, "install", "--no-deps", "--target", str(elsewhere), str(wheel)], check=True)
        # -P and PYTHONPATH: the installed package, and not the checkout that the environment points to
        environment = os.environ | {"PYTHONPATH": str(elsewhere), "JTGPU_LOOPS": "ahead"}
        where = "import jtgpu, jtgpu.timing as t, jtgpu.device.nvcc as k; print(jtgpu.__file__); k.sources()"
        query = "jtgpu.load('asia').compile('cpu').posteriors({'xray': 'yes'})"
        ranks = "assert nx.betweenness_centrality(nx.path_graph(3), backend='jtgpu')[1] == 1"
        for command in (
            ["-P", "-c", where],
            ["-P", "-c", f"import jtgpu, sys; {query}; assert 'numba' not in sys.modules; print(jtgpu.__file__)"],
            ["-P", "-m", "jtgpu", "query", "asia", "-t", "lung"],
            ["-P", "-c", f"import jtgpu, networkx as nx; {ranks}; print(jtgpu.__file__)"],
        ):
            done = subprocess.run(
                [sys.executable, *command], cwd=folder, env=environment, check=True, capture_output=True, text=True
            )
            if command[1] == "-c" and not done.stdout.startswith(str(elsewhere)):
                print(f"tested {done.stdout.strip()}, not the installed package", file=sys.stderr)
                return 1
        print(f"{wheel.name}: {len(names)} files, {wheel.stat().st_size / 2**20:.1f} MiB, installs and runs")
    return 0


if __name__ == "__main__":
    sys.exit(main())
