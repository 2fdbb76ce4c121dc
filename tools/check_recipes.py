"""Check the recipe for conda and the container files: rattler-build parses and renders the former, hadolint the latter.

    python tools/check_recipes.py            # what is not installed is left out, and said

Nothing is built: that takes the packages of conda-forge, and a container engine.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

PACKAGING = Path(__file__).resolve().parent / "packaging"
RECIPE = PACKAGING / "recipe.yaml"
PYTHON = "3.12"  # that of the rendered recipe


def recipe_faults(path: Path = RECIPE) -> list[str] | None:
    """What rattler-build does not accept; None if it is not installed."""
    try:
        from rattler_build import (  # type: ignore[import-not-found,unused-ignore]
            PlatformConfig,
            RattlerBuildError,
            RenderConfig,
            Stage0Recipe,
            VariantConfig,
        )  # fmt: skip
    except ImportError:
        return None
    try:
        settings = RenderConfig(platform=PlatformConfig(target_platform="linux-64"))
        rendered = Stage0Recipe.from_file(path).render(VariantConfig({"python": [PYTHON]}), settings)
    except RattlerBuildError as error:
        return [f"{path.name}: {error}"]
    names = sorted(str(variant.recipe.package.name) for variant in rendered)
    return [] if names == ["jtgpu", "jtgpu-cuda"] else [f"{path.name}: packages {names}"]


def container_faults(folder: Path = PACKAGING) -> list[str] | None:
    """What hadolint warns of; None if it is not installed."""
    here = Path(sys.executable).parent / "hadolint"
    program = str(here) if here.is_file() else shutil.which("hadolint")
    if program is None:
        return None
    files = sorted(folder.glob("Dockerfile.*"))
    done = subprocess.run([program, *map(str, files)], capture_output=True, text=True, check=False)
    if done.returncode and not done.stdout:
        return [done.stderr.strip()]
    return done.stdout.splitlines()


def main() -> int:
    """Exit code: 0 if there are no faults."""
    found = {"hadolint": container_faults(), "rattler-build": recipe_faults()}
    for program, lines in found.items():
        print(f"{program}: {'not installed, nothing checked' if lines is None else 'no faults' if not lines else ''}")
        print("\n".join(lines or []), end="\n" if lines else "", file=sys.stderr)
    return any(found.values())


if __name__ == "__main__":
    sys.exit(main())
