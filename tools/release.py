"""Build a release, check it, and print what to upload. Nothing is uploaded and no tag is made.

    python tools/release.py                  # builds dist/jtgpu-VERSION.tar.gz and a wheel
    python tools/release.py --rehearse       # the same; what only a release needs is reported, and no error

Checked are: the version has a section in CHANGELOG.rst and is that of CITATION.cff; nothing is uncommitted; the
addresses in setup.py are real; twine accepts both files; the wheel installs into a fresh virtual environment, answers a
query there with its own loops, and is at most 4.5 MB; type checkers see its types (tools/check_types.py).
"""

from __future__ import annotations

import ast
import re
import shutil
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tools"))

from check_types import problems  # noqa: E402

__all__ = ["not_ready", "version"]

MAX_BYTES = 4_500_000  # 1.8 MB of them are the bundled networks


def version() -> str:
    """``__version__``, without importing the package."""
    text = (ROOT / "jtgpu" / "util" / "version.py").read_text(encoding="utf-8")
    return str(ast.literal_eval(re.search(r"^__version__ = (.+)$", text, re.MULTILINE)[1]))  # type: ignore[index]


def not_ready(release: str) -> list[str]:
    """What has to be done before this version can be released; a line each."""
    found = []
    changes = (ROOT / "CHANGELOG.rst").read_text(encoding="utf-8")
    if not re.search(rf"^{re.escape(release)} \(\d{{4}}-\d\d-\d\d\)$", changes, re.MULTILINE):
        found.append(f"CHANGELOG.rst: no section '{release} (YYYY-MM-DD)'")
    if f"\nversion: {release}\n" not in (ROOT / "CITATION.cff").read_text(encoding="utf-8"):
        found.append(f"CITATION.cff: version is not {release}")
    if "example.org" in (ROOT / "setup.py").read_text(encoding="utf-8"):
        found.append("setup.py: HOME is a placeholder")
    git = shutil.which("git")
    if git is None or not (ROOT / ".git").exists():
        found.append("this is no git checkout")
    elif subprocess.run([git, "status", "--porcelain"], cwd=ROOT, capture_output=True, text=True, check=True).stdout:
        found.append("git status: files are not committed")
    return found


def build(folder: Path) -> tuple[Path, Path]:
    """The source distribution, and the wheel that is built from it."""
    subprocess.run([sys.executable, "-m", "build", "--outdir", str(folder), str(ROOT)], check=True)
    (sdist,), (wheel,) = folder.glob("jtgpu-*.tar.gz"), folder.glob("jtgpu-*.whl")
    return sdist, wheel


def try_wheel(wheel: Path) -> None:
    """Install the wheel into a fresh environment, and run it and type checkers there.

    Raises
    ------
    SystemExit
        If anything differs from what a user expects.
    """
    with tempfile.TemporaryDirectory(prefix="jtgpu-release-") as folder:
        home = Path(folder, "venv")
        venv.create(home, with_pip=True)
        python = str(home / "bin" / "python")
        subprocess.run([python, "-m", "pip", "install", "--quiet", str(wheel), "mypy", "pyright"], check=True)
        query = "import jtgpu; print(jtgpu.load('asia').compile('cpu').posterior('lung', {'xray': 'yes'}))"
        environment = {"PATH": f"{home / 'bin'}:/usr/bin:/bin", "HOME": folder, "JTGPU_LOOPS": "ahead"}
        for command in ([python, "-c", query], [str(home / "bin" / "jtgpu"), "info", "--system"]):
            subprocess.run(command, cwd=folder, env=environment, check=True)
        if wrong := problems(home / "bin", Path(folder)):
            raise SystemExit("\n".join(wrong))


def main(rehearse: bool) -> int:
    """Exit code: 0 if the files in dist/ can be uploaded."""
    release = version()
    waiting = not_ready(release)
    for line in waiting:
        print(f"{'to do before a release' if rehearse else 'not ready'}: {line}", file=sys.stderr)
    if waiting and not rehearse:
        return 1
    folder = ROOT / "dist"
    shutil.rmtree(folder, ignore_errors=True)
    sdist, wheel = build(folder)
    subprocess.run([sys.executable, "-m", "twine", "check", "--strict", str(sdist), str(wheel)], check=True)
    if wheel.stat().st_size > MAX_BYTES:
        print(f"{wheel.name} has {wheel.stat().st_size:,} bytes, more than {MAX_BYTES:,}", file=sys.stderr)
        return 1
    try_wheel(wheel)
    print(f"{sdist.name} and {wheel.name} are in {folder}. Nothing was uploaded. To release:")
    print(f"  git tag -a v{release} -m 'jtgpu {release}' && git push origin v{release}")
    print(f"  python -m twine upload {sdist} {wheel}")
    print("A wheel whose tag is not manylinux is for machines like this one: repair it with auditwheel, or upload only")
    print("the source distribution.")
    return 0


if __name__ == "__main__":
    sys.exit(main("--rehearse" in sys.argv[1:]))
