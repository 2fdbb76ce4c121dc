"""Releases: metadata, the recipe for conda, container files, and what a release needs."""

from __future__ import annotations

import ast
import importlib
import importlib.util
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

import jtgpu
from tests.conftest import ROOT

sys.path.insert(0, str(ROOT / "tools"))
import check_package
import check_pages
import check_recipes
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
    def written(changes: str, urls: dict[str, str], citation: str = "") -> None:
        (tmp_path / "CHANGELOG.rst").write_text(changes)
        (tmp_path / "CITATION.cff").write_text(f"title: jtgpu\nversion: 1.2.3\n{citation}")
        (tmp_path / "setup.py").write_text(f"PROJECT_URLS: dict[str, str] = {urls!r}\n")

    monkeypatch.setattr(release, "ROOT", tmp_path)
    written("1.2.3 (unreleased)\n------------------\n", {})
    assert [line.split(":")[0] for line in release.not_ready("1.2.3")] == [
        "CHANGELOG.rst", "setup.py", "setup.py", "setup.py", "this is no git checkout",
    ]  # fmt: skip
    urls = {name: f"https://{name}.test" for name in release.ADDRESSES}
    citation = 'date-released: 2026-12-01\nrepository-code: "https://Source.test"\n'
    written("1.2.3 (2026-12-01)\n------------------\n", urls, citation)
    assert release.not_ready("1.2.3") == ["this is no git checkout"]
    assert "CITATION.cff: version is not 1.2.4" in release.not_ready("1.2.4")
    written("1.2.3 (2026-12-02)\n------------------\n", urls | {"Source": "https://git.example.org"}, citation)
    (tmp_path / "dist").mkdir()
    for name in ("jtgpu-1.2.3.tar.gz", "jtgpu-1.2.3-py3-none-any.whl", "jtgpu-1.2.2.tar.gz", "jtgpu-1.2.30.tar.gz"):
        (tmp_path / "dist" / name).touch()
    assert release.not_ready("1.2.3") == [
        "CITATION.cff: date-released is not 2026-12-02",
        "CITATION.cff: repository-code is not 'https://git.example.org'",
        "setup.py: example.org is a placeholder",
        "dist/jtgpu-1.2.3-py3-none-any.whl exists",
        "dist/jtgpu-1.2.3.tar.gz exists",
        "this is no git checkout",
    ]


def test_a_release_adds_files_to_dist_and_deletes_none(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Once, it emptied the folder."""
    (tmp_path / "dist").mkdir()
    (tmp_path / "dist" / "notes.txt").write_text("mine")

    def build(folder: Path) -> list[Path]:
        files = [folder / name for name in ("jtgpu-1.0.tar.gz", "a.whl", "b.whl")]
        for path in files:
            path.touch()
        return files

    monkeypatch.setattr(release, "ROOT", tmp_path)
    monkeypatch.setattr(release, "build", build)
    monkeypatch.setattr(release, "version", lambda: "1.0")
    monkeypatch.setattr(release, "not_ready", lambda _: [])
    monkeypatch.setattr(release, "interpreters", lambda: {"3.11": sys.executable})
    for name in ("try_wheel", "try_pure"):
        monkeypatch.setattr(release, name, lambda _: None)
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: None)
    monkeypatch.setattr(check_package, "differences", lambda *_, **__: [])
    assert release.main(rehearse=True) == 0
    assert [path.name for path in (tmp_path / "dist").iterdir()] == ["notes.txt"]
    assert release.main(rehearse=False) == 0
    names = sorted(path.name for path in (tmp_path / "dist").iterdir())
    assert names == ["a.whl", "b.whl", "jtgpu-1.0.tar.gz", "notes.txt"]
    monkeypatch.setattr(release, "not_ready", lambda _: ["dist/jtgpu-1.0.tar.gz exists"])
    assert release.main(rehearse=False) == 1


def test_an_installation_sees_no_checkout(monkeypatch: pytest.MonkeyPatch) -> None:
    """With PYTHONPATH, pip took the checkout for the installed package, and there was no command jtgpu."""
    seen: list[dict[str, str]] = []

    def run(_: list[str], *, env: dict[str, str], check: bool) -> SimpleNamespace:
        seen.append(env)
        return SimpleNamespace(returncode=len(seen) - 1)

    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setattr(subprocess, "run", run)
    release.install(sys.executable, "a.whl")
    with pytest.raises(SystemExit, match=r"not install a\.whl, mypy: .* without a network set PIP_FIND_LINKS"):
        release.install(sys.executable, "a.whl", "mypy")
    assert not any("PYTHONPATH" in env for env in seen)


def test_a_wheel_is_built_for_each_python_that_works(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A shim of pyenv that fails is none; nor is a version that jtgpu does not support."""
    for version, status in (("3.10", 0), ("3.12", 1), ("3.13", 0)):
        folder = tmp_path / "versions" / f"{version}.1" / "bin"
        folder.mkdir(parents=True)
        (folder / f"python{version}").write_text(f"#!/bin/sh\nexit {status}\n")
        (folder / f"python{version}").chmod(0o755)
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path))
    monkeypatch.setenv("PATH", "")
    own = f"{sys.version_info[0]}.{sys.version_info[1]}"
    assert release.interpreters()[own] == sys.executable
    assert {*release.interpreters()} == {own, "3.13"}


def test_the_tag_of_a_wheel_is_that_of_its_oldest_c_library() -> None:
    assert release.manylinux(b"\0libc.so.6\0GLIBC_2.2.5\0GLIBC_2.29\0", b"\0GLIBC_2.14\0") == "manylinux_2_29_x86_64"
    assert release.manylinux() == "manylinux_2_17_x86_64"
    with pytest.raises(SystemExit, match=r"libgomp\.so\.1"):
        release.manylinux(b"\0libgomp.so.1\0libc.so.6\0")


def test_no_file_has_an_invented_address(setup_module: ModuleType) -> None:
    for name in ("setup.py", "CITATION.cff", "tools/packaging/recipe.yaml"):
        assert "example.org" not in (ROOT / name).read_text(encoding="utf-8"), name
    assert all(url.startswith("https://") for url in setup_module.PROJECT_URLS.values())


@pytest.fixture(scope="module")
def setup_module() -> ModuleType:
    """setup.py, without running it."""
    pytest.importorskip("setuptools", reason="setuptools is not installed")
    spec = importlib.util.spec_from_file_location("jtgpu_setup", ROOT / "setup.py")
    assert spec is not None
    found = importlib.util.module_from_spec(spec)
    found.__dict__["__file__"] = str(ROOT / "setup.py")
    exec(compile(SETUP.partition("\nsetup(\n")[0], "setup.py", "exec"), found.__dict__)
    return found


def test_a_build_leaves_the_loops_in_the_checkout(
    setup_module: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Python that is started in the checkout imports its sources, and would compile the loops at the first query."""
    targets: list[Path] = []

    def run(words: list[str], **_: object) -> SimpleNamespace:
        targets.append(Path(words[-1]))
        return SimpleNamespace(returncode=0)

    monkeypatch.setattr(setup_module.subprocess, "run", run)
    command = setup_module.BuildLoops(importlib.import_module("setuptools").Distribution())
    monkeypatch.setattr(command, "get_ext_fullpath", lambda _: str(tmp_path / "jtgpu" / "_loops_v3.so"))
    command.build_extension(setup_module.Extension("jtgpu._loops_v3", sources=[]))
    assert targets == [ROOT / "jtgpu", tmp_path / "jtgpu"]


def test_a_registry_shows_the_readme_without_dead_links(setup_module: ModuleType) -> None:
    text = setup_module.long_description()
    assert re.findall(r"<(?!https?:)[\w./-]+>`_|image:: (?!https?:)", text) == []
    assert "Installing" in text
    rows = [line for line in text.splitlines() if line.startswith(("Parameters", "Outliers"))]
    assert len({line.index("``jtgpu") for line in rows}) == 1  # columns of a table stay


def test_programs_accept_the_recipe_and_the_container_files(tmp_path: Path) -> None:
    faults = {"hadolint": check_recipes.container_faults(), "rattler-build": check_recipes.recipe_faults()}
    missing = [name for name, found in faults.items() if found is None]
    assert not any(faults.values())
    (tmp_path / "recipe.yaml").write_text("schema_version: 1\npackage: {name: a, version: '1'}\nabout: {home: x}\n")
    (tmp_path / "Dockerfile.x").write_text("FROM debian\nRUN cd /tmp\n")
    for found in (check_recipes.recipe_faults(tmp_path / "recipe.yaml"), check_recipes.container_faults(tmp_path)):
        assert found is None or found
    if missing:
        pytest.skip(f"{', '.join(missing)} not installed")


def test_every_page_has_a_first_example_or_a_reason() -> None:
    for name, path in check_pages.pages().items():
        example = check_pages.first_example(path.read_text(encoding="utf-8"))
        assert example is not None or name in check_pages.NO_EXAMPLE, name
    assert set(check_pages.NO_EXAMPLE) <= set(check_pages.pages())


PAGE = """Text::

    jtgpu-like text
    {before}

.. code-block:: python

    print(1)

    print(2)

prints

.. code-block:: text

   1
   2

More.
"""


def test_first_examples() -> None:
    example = check_pages.first_example(PAGE.format(before=""))
    assert example == ("python", "print(1)\n\nprint(2)\n\n", "1\n2")
    example = check_pages.first_example(PAGE.format(before="jtgpu info asia   # a comment"))
    assert example == ("command", "jtgpu info asia", None)
    session = check_pages.first_example("Text.\n\n>>> 1\n1\n\n>>> 2\n2\n\nMore.\n\n>>> 3\n3\n")
    assert session == ("session", ">>> 1\n1\n\n>>> 2\n2\n\n", None)
    cell = check_pages.first_example("# A\n\n```{code-cell} ipython3\nx = 1\nx\n```\n\n```{code-cell} ipython3\n2\n")
    assert cell == ("cell", "x = 1\nx", None)
    assert check_pages.first_example("nothing") is None


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
