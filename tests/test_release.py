"""Releases: metadata, the recipe for conda, container files, and what a release needs."""

from __future__ import annotations

import ast
import re
import sys
from pathlib import Path

import pytest

import jtgpu
from tests.conftest import ROOT

sys.path.insert(0, str(ROOT / "tools"))
import release

SETUP = (ROOT / "setup.py").read_text(encoding="utf-8")
PACKAGING = ROOT / "tools" / "packaging"


def requirements() -> list[str]:
    """The packages that jtgpu needs, from setup.py, without extras."""
    for node in ast.walk(ast.parse(SETUP)):
        if isinstance(node, ast.keyword) and node.arg == "install_requires":
            return [str(name) for name in ast.literal_eval(node.value)]
    raise AssertionError("setup.py has no install_requires")


def test_every_file_has_the_version_of_the_package() -> None:
    assert release.version() == jtgpu.__version__
    assert f"\nversion: {jtgpu.__version__}\n" in (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert f"\n  version: {jtgpu.__version__}\n" in (PACKAGING / "recipe.yaml").read_text(encoding="utf-8")


def test_the_licence_names_the_code_and_the_networks() -> None:
    assert 'license_expression="MIT AND CC-BY-SA-3.0"' in SETUP
    assert (ROOT / "LICENSE").read_text(encoding="utf-8").startswith("MIT License")
    assert "CC BY-SA 3.0" in (ROOT / "nets" / "README.rst").read_text(encoding="utf-8")


def test_the_recipe_needs_what_the_package_needs() -> None:
    yaml = pytest.importorskip("yaml", reason="PyYAML is not installed")
    recipe = yaml.safe_load((PACKAGING / "recipe.yaml").read_text(encoding="utf-8"))
    package, cuda = recipe["outputs"]
    needed = {re.sub(r"(?=[>=<])", " ", name, count=1) for name in requirements()}
    assert {*package["requirements"]["run"]} == needed | {"python >=3.11"}
    names = {name.split()[0] for name in cuda["requirements"]["run"]}
    assert names == {"jtgpu", "pycuda", "cuda-bindings", "cuda-nvcc"}
    assert "jtgpu = jtgpu.cli:main" in package["build"]["python"]["entry_points"]


@pytest.mark.parametrize("name", ["Dockerfile.cpu", "Dockerfile.cuda"])
def test_container_files_install_extras_that_exist_and_run_as_a_user(name: str) -> None:
    text = (PACKAGING / name).read_text(encoding="utf-8")
    (extras,) = re.findall(r'"/source\[([\w,]+)\]"', text)
    assert all(f'"{extra}": [' in SETUP for extra in extras.split(","))
    assert text.rindex("USER 10001") < text.index("ENTRYPOINT")
    assert "JTGPU_BUILD_LOOPS=1" in text


def test_a_release_is_refused_until_it_is_prepared(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def written(changes: str, setup: str) -> None:
        (tmp_path / "CHANGELOG.rst").write_text(changes)
        (tmp_path / "CITATION.cff").write_text("title: jtgpu\nversion: 1.2.3\n")
        (tmp_path / "setup.py").write_text(setup)

    monkeypatch.setattr(release, "ROOT", tmp_path)
    written("1.2.3 (unreleased)\n------------------\n", 'HOME = "https://git.example.org/jtgpu"\n')
    assert [line.split(":")[0] for line in release.not_ready("1.2.3")] == [
        "CHANGELOG.rst", "setup.py", "this is no git checkout",
    ]  # fmt: skip
    written("1.2.3 (2026-12-01)\n------------------\n", 'HOME = "https://jtgpu.org"\n')
    assert release.not_ready("1.2.3") == ["this is no git checkout"]
    assert "CITATION.cff: version is not 1.2.4" in release.not_ready("1.2.4")


def test_a_type_checkers_messages_are_compared_line_by_line() -> None:
    import check_types

    lines = check_types.SCRIPT.splitlines()
    good = []
    for n, line in enumerate(lines, 1):
        comment = line.partition("  # ")[2]
        if comment:
            text = "error: no overload" if comment == "wrong" else f'note: Revealed type is "jtgpu.x.{comment}"'
            good.append(f"user.py:{n}: {text}")
    assert check_types._differences("\n".join(good)) == []
    assert len(check_types._differences("\n".join(good[1:]))) == 1
    assert len(check_types._differences("\n".join([*good, "user.py:1: error: no stubs"]))) == 1
