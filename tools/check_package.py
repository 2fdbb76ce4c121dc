"""Build the wheel, check its contents, install it into an environment of its own and use it there as a newcomer does.

    python tools/check_package.py            # the wheel with compiled loops; building them takes a minute or two
    python tools/check_package.py --no-types # without mypy and pyright, which take half a minute

The environment has jtgpu from the wheel and all other packages of this Python. The wheel must answer with its own
compiled loops, without Numba; the first example of every page runs there (tools/check_pages.py), and type checkers see
its types (tools/check_types.py).
"""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import tempfile
import venv
import zipfile
from pathlib import Path

import check_pages
import check_types

ROOT = Path(__file__).resolve().parent.parent

MAX_BYTES = 3_600_000  # of the wheel: 2.3 MB Python, kernels and page, 0.7 MB compiled loops, 0.5 MB networks
PIP = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet"]
# what a copy of the checkout needs to build a wheel
SOURCES = ("jtgpu", "cuda", "nets", "setup.py", "pyproject.toml", "MANIFEST.in", "README.rst", "LICENSE")


def wanted() -> set[str]:
    """Every file of the checkout that an installed package needs, by its name in the wheel."""
    names = {"jtgpu/py.typed"}
    names |= {p.relative_to(ROOT).as_posix() for p in (ROOT / "jtgpu").rglob("*.py")}
    names |= {p.relative_to(ROOT).as_posix() for p in (ROOT / "jtgpu" / "serve" / "page").iterdir()}
    for pattern in ("cuda/**/*.cu", "cuda/**/*.cuh", "nets/*.net.xz", "nets/*.num", "nets/README.rst"):
        names |= {f"jtgpu/{p.relative_to(ROOT).as_posix()}" for p in ROOT.glob(pattern)}
    # setup.py packs those with much text
    return names | {f"jtgpu/nets/{p.name}{'.xz' * (p.stat().st_size > 30_000)}" for p in (ROOT / "nets").glob("*.net")}


def differences(wheel: Path, *, with_loops: bool = True) -> list[str]:
    """What a wheel has too much, and what it lacks; a line each."""
    with zipfile.ZipFile(wheel) as archive:
        names = {n for n in archive.namelist() if ".dist-info/" not in n}
    loops = {n for n in names if n.startswith("jtgpu/_loops_")}
    found = [f"missing: {name}" for name in sorted(wanted() - names)]
    found += [f"foreign: {name}" for name in sorted(names) if not name.startswith("jtgpu/")]
    # an __init__.py there would hide NVIDIA's package `cuda`
    found += [f"Python in cuda/: {n}" for n in sorted(names) if n.startswith("jtgpu/cuda/") and n.endswith(".py")]
    if bool(loops) != with_loops:
        found.append(f"compiled loops: {', '.join(sorted(loops)) or 'none'}")
    if (size := wheel.stat().st_size) > MAX_BYTES:
        found.append(f"{size:,} bytes, more than {MAX_BYTES:,}")
    return [f"{wheel.name}: {line}" for line in found]


def build(folder: Path) -> Path:
    """The wheel of the checkout, built from a copy: files of old builds in build/ would end in the wheel."""
    copy = folder / "source"
    copy.mkdir()
    subprocess.run(["cp", "-r", *(str(ROOT / name) for name in SOURCES), str(copy)], check=True)
    environment = os.environ | {"JTGPU_BUILD_LOOPS": "1"}
    command = [*PIP, "wheel", "--no-deps", "--wheel-dir", str(folder / "wheel"), str(copy)]
    subprocess.run(command, env=environment, check=True)
    (wheel,) = (folder / "wheel").glob("jtgpu-*.whl")
    return wheel


def install(wheel: Path, home: Path) -> Path:
    """The bin folder of a new environment with the wheel, and with all other packages of this Python."""
    venv.create(home, with_pip=False)
    subprocess.run([*PIP, "--python", str(home / "bin" / "python"), "install", "--no-deps", str(wheel)], check=True)
    (packages,) = home.glob("lib/python3*/site-packages")
    (packages / "others.pth").write_text(sysconfig.get_path("purelib") + "\n", encoding="utf-8")
    return home / "bin"


def faults(bin_folder: Path, folder: Path) -> list[str]:
    """What does not work in an environment; a line each."""
    environment = {"PATH": f"{bin_folder}:/usr/bin:/bin", "HOME": str(folder), "JTGPU_LOOPS": "ahead"}
    where = "import jtgpu, jtgpu.timing as t, jtgpu.device.nvcc as k; print(jtgpu.__file__); k.sources()"
    query = "[jtgpu.load(n) for n in ('munin', 'water', 'sachs')]; "
    query += "jtgpu.load('asia').compile('cpu').posteriors({'xray': 'yes'})"
    ranks = "assert nx.betweenness_centrality(nx.path_graph(3), backend='jtgpu')[1] == 1"
    found = []
    for command in (
        ["-P", "-c", where],
        ["-P", "-c", f"import jtgpu, sys; {query}; assert 'numba' not in sys.modules; print(jtgpu.__file__)"],
        ["-P", "-m", "jtgpu", "query", "asia", "-t", "lung"],
        ["-P", "-c", f"import jtgpu, networkx as nx; {ranks}; print(jtgpu.__file__)"],
    ):
        done = subprocess.run(
            [str(bin_folder / "python"), *command], cwd=folder, env=environment, check=False, capture_output=True,
            text=True,
        )  # fmt: skip
        if done.returncode:
            found.append(f"{command[-1]}: {done.stderr[-1000:]}")
        elif command[1] == "-c" and not done.stdout.startswith(str(bin_folder.parent)):
            found.append(f"tested {done.stdout.strip()}, not the installed package")
    return found


def main(with_types: bool) -> int:
    """Exit code: 0 if the wheel is complete and works."""
    with tempfile.TemporaryDirectory(prefix="jtgpu-wheel-") as name:
        folder = Path(name)
        wheel = build(folder)
        found = differences(wheel)
        if not found:
            home = install(wheel, folder / "environment")
            found = faults(home, folder) or check_pages.problems(home)
            found += [text] if (text := check_pages.newcomer(home)) else []
            found += check_types.problems(home, folder) if with_types else []
        size = f"{wheel.name}: {wheel.stat().st_size / 1e6:.2f} MB"
    print("\n".join(found) or f"{size}, installs, answers, runs the first example of every page")
    return bool(found)


if __name__ == "__main__":
    sys.exit(main("--no-types" not in sys.argv[1:]))
