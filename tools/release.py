"""Build a release, check it, and print what to upload. Nothing is uploaded and no tag is made.

    python tools/release.py                  # adds a source distribution and two wheels to dist/
    python tools/release.py --rehearse       # the same in a temporary folder; what only a release needs is reported

The wheels: one with compiled loops for this version of Python on Linux, and ``py3-none-any`` without, for all others.
Checked are: the version has a section in CHANGELOG.rst, and CITATION.cff has its version and date; nothing is
uncommitted; the project has an address, and no file names a placeholder; dist/ has no file of this version; twine
accepts all files, which includes that the README renders; each wheel has at most 3 MB; the first one, installed into a
fresh virtual environment with its dependencies, answers, runs the first example of every page, serves its page to a
browser, and type checkers see its types.
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


def build(folder: Path) -> list[Path]:
    """The source distribution, the wheel with compiled loops, and the one without, both built from the former."""
    subprocess.run(
        [sys.executable, "-m", "build", "--outdir", str(folder), str(ROOT)], check=True,
        env=os.environ | {"JTGPU_BUILD_LOOPS": "1"},
    )  # fmt: skip
    (sdist,), (wheel,) = folder.glob("jtgpu-*.tar.gz"), folder.glob("jtgpu-*.whl")
    command = [*check_package.PIP, "wheel", "--no-deps", "--wheel-dir", str(folder), str(sdist)]
    subprocess.run(command, check=True, env=os.environ | {"JTGPU_BUILD_LOOPS": "0"})
    (pure,) = folder.glob("jtgpu-*-py3-none-any.whl")
    with zipfile.ZipFile(wheel) as archive:
        tag = manylinux(*(archive.read(name) for name in archive.namelist() if name.endswith(".so")))
    tags = [sys.executable, "-m", "wheel", "tags", "--remove", "--platform-tag", tag, str(wheel)]
    done = subprocess.run(tags, check=True, capture_output=True, text=True)
    return [sdist, folder / done.stdout.split()[-1], pure]


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
        subprocess.run(
            [python, "-m", "pip", "install", "--quiet", f"{wheel}[pandas,serve]", "mypy", "pyright"], check=True
        )
        found = check_package.faults(bin_folder, Path(folder)) + check_pages.problems(bin_folder)
        found += [text] if (text := check_pages.newcomer(bin_folder)) else []
        subprocess.run([str(bin_folder / "jtgpu"), "info", "--system"], cwd=folder, check=True)
        if found := found or check_types.problems(bin_folder, Path(folder)):
            raise SystemExit("\n".join(found))


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
        _, wheel, pure = files
        if found := check_package.differences(wheel) + check_package.differences(pure, with_loops=False):
            print("\n".join(found), file=sys.stderr)
            return 1
        try_wheel(wheel)
        for path in files:
            print(f"{path.name}: {path.stat().st_size / 1e6:.2f} MB, sha256 {sha256(path.read_bytes()).hexdigest()}")
        if rehearse:
            print("A rehearsal: nothing was kept.")
            return 0
        folder_of_all = ROOT / "dist"
        folder_of_all.mkdir(exist_ok=True)
        kept = [Path(shutil.move(path, folder_of_all)).relative_to(ROOT) for path in files]
    print("Nothing was uploaded. To release:")
    print(f"  git tag -a v{release} -m 'jtgpu {release}' && git push origin v{release}")
    print(f"  python -m twine upload {' '.join(map(str, kept))}")
    print("Other versions of Python take the wheel without compiled loops, unless this is run with each of them.")
    return 0


if __name__ == "__main__":
    sys.exit(main("--rehearse" in sys.argv[1:]))
