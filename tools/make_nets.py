#!/usr/bin/env python3
"""Make the benchmark networks of ``nets/`` from the BIF files inside a pgmpy release.

    python tools/make_nets.py            writes nets/*.net, nets/*.net.xz and the tables of nets/README.rst
    python tools/make_nets.py --check    writes nothing; fails where a file differs from what would be written
    python tools/make_nets.py --wheel F  takes the release from a file instead of fetching it with pip

The numbers stay as the BIF files have them (seven digits; readers normalise the rows), so that the text is the same
on every machine. Packed files are compared by what they unpack to: compressors differ, networks must not.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import math
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from jtgpu.errors import JtgpuError  # noqa: E402
from jtgpu.formats import bif, hugin, hugin_values  # noqa: E402
from jtgpu.formats.files import read_bytes, write_bytes  # noqa: E402
from jtgpu.formats.finish import finish  # noqa: E402
from jtgpu.formats.text import decode  # noqa: E402

RELEASE = "pgmpy==0.1.25"
INSIDE = "pgmpy/utils/example_models"
PACK_ABOVE = 400_000  # bytes of text
NAME_ROWS_BELOW = 50_000  # bytes of text with the parents' states behind each row
BEGIN, END = ".. tables made by tools/make_nets.py begin here", ".. tables made by tools/make_nets.py end here"

# Name, and where the network was first published. The order is that of the project's benchmarks.
NETWORKS = {
    "mildew": "A. L. Jensen, F. V. Jensen: MIDAS - an influence diagram for management of mildew in winter wheat. "
    "UAI 1996, 349-356",
    "diabetes": "S. Andreassen, R. Hovorka, J. Benn, K. G. Olesen, E. R. Carson: A model-based approach to insulin "
    "adjustment. AIME 1991, 239-248",
    "barley": "K. Kristensen, I. A. Rasmussen: The use of a Bayesian network in the design of a decision support "
    "system for growing malting barley without use of pesticides. Computers and Electronics in Agriculture 33 "
    "(2002), 197-217",
    "munin4": "part of munin",
    "water": "F. V. Jensen, U. Kjærulff, K. G. Olesen, J. Pedersen: Et forprojekt til et ekspertsystem for drift af "
    "spildevandsrensning. Judex Datasystemer, Aalborg, 1989",
    "munin1": "part of munin",
    "link": "C. S. Jensen, A. Kong: Blocking Gibbs sampling for linkage analysis in large pedigrees with many loops. "
    "American Journal of Human Genetics 65 (1999), 885-901",
    "asia": "S. L. Lauritzen, D. J. Spiegelhalter: Local computations with probabilities on graphical structures and "
    "their application to expert systems. JRSS B 50 (1988), 157-224",
    "cancer": "K. B. Korb, A. E. Nicholson: Bayesian Artificial Intelligence. 2nd edition, CRC Press, 2010",
    "earthquake": "K. B. Korb, A. E. Nicholson: Bayesian Artificial Intelligence. 2nd edition, CRC Press, 2010",
    "survey": "M. Scutari, J.-B. Denis: Bayesian Networks with Examples in R. Chapman & Hall, 2014",
    "sachs": "K. Sachs, O. Perez, D. Pe'er, D. A. Lauffenburger, G. P. Nolan: Causal protein-signaling networks "
    "derived from multiparameter single-cell data. Science 308 (2005), 523-529",
    "child": "D. J. Spiegelhalter, R. G. Cowell: Learning in probabilistic expert systems. Bayesian Statistics 4 "
    "(1992), 447-466",
    "alarm": "I. A. Beinlich, H. J. Suermondt, R. M. Chavez, G. F. Cooper: The ALARM monitoring system. AIME 1989, "
    "247-256",
    "insurance": "J. Binder, D. Koller, S. Russell, K. Kanazawa: Adaptive probabilistic networks with hidden "
    "variables. Machine Learning 29 (1997), 213-244",
    "hailfinder": "B. Abramson, J. Brown, W. Edwards, A. Murphy, R. L. Winkler: Hailfinder: a Bayesian system for "
    "forecasting severe weather. International Journal of Forecasting 12 (1996), 57-71",
    "hepar2": "A. Onisko: Probabilistic Causal Models in Medicine: Application to Diagnosis of Liver Disorders. "
    "PhD thesis, Polish Academy of Science, 2003",
    "win95pts": "Microsoft Research: trouble-shooting of printers in Windows 95",
    "andes": "C. Conati, A. S. Gertner, K. VanLehn, M. J. Druzdzel: On-line student modeling for coached problem "
    "solving using Bayesian networks. User Modeling 1997, 231-242",
    "pigs": "C. S. Jensen: Blocking Gibbs Sampling for Inference in Large and Complex Bayesian Networks with "
    "Applications in Genetics. PhD thesis, Aalborg University, 1997",
    "pathfinder": "D. Heckerman, E. Horvitz, B. Nathwani: Towards normative expert systems: part I, the Pathfinder "
    "project. Methods of Information in Medicine 31 (1992), 90-105",
    "munin": "S. Andreassen, F. V. Jensen, S. K. Andersen, B. Falck, U. Kjærulff, M. Woldbye, A. R. Sørensen, "
    "A. Rosenfalck, F. Jensen: MUNIN - an expert EMG assistant. Computer-Aided Electromyography and Expert Systems, "
    "Elsevier, 1989, chapter 21",
    "munin2": "part of munin",
    "munin3": "part of munin",
}


class Made(NamedTuple):
    """A network as it goes into nets/."""

    name: str
    text: bytes
    counts: tuple[int, ...]  # variables, arcs, free parameters, entries of all CPTs, of the largest
    source_sha256: str

    @property
    def file(self) -> str:
        """The file's name in nets/."""
        return f"{self.name}.net.xz" if len(self.text) > PACK_ABOVE else f"{self.name}.net"


def fetch(folder: Path) -> Path:
    """Let pip fetch the release; it knows where from."""
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary", ":all:", RELEASE]
    subprocess.run([*command, "--dest", str(folder)], check=True)
    return next(iter(sorted(folder.glob("*.whl"))))


def make(name: str, packed: bytes) -> Made:
    """One network from its BIF file, checked to read back as the BIF file does."""
    text = decode(gzip.decompress(packed))
    draft = bif.parse_draft(text, f"{name}.bif.gz")
    about = NETWORKS[name] if not NETWORKS[name].startswith("part of") else NETWORKS["munin"]
    comment = (
        f"{name}: a network of the bnlearn repository; licence CC BY-SA 3.0 (see README.rst in this folder).\n"
        f"{about}.\n"
        f"Written by tools/make_nets.py from {name}.bif.gz of {RELEASE}; the numbers are as they are there."
    )
    parents = draft.parents()
    out = hugin_values.dump_tables(draft.states, parents, draft.tables, name=name, comment=comment)
    if len(out) > NAME_ROWS_BELOW:
        out = hugin_values.dump_tables(
            draft.states, parents, draft.tables, name=name, comment=comment, row_names=False
        )
    if hugin.parse(out, f"{name}.net") != finish(draft):
        raise SystemExit(f"{name}: the written file does not read back as the BIF file does")
    sizes = [table.size for table in draft.tables.values()]
    free = sum(math.prod(t.shape[:-1]) * (t.shape[-1] - 1) for t in draft.tables.values())
    counts = (len(draft.states), sum(map(len, parents.values())), free, sum(sizes), max(sizes))
    return Made(name, out.encode("utf-8"), counts, hashlib.sha256(packed).hexdigest())


def tables(made: list[Made]) -> str:
    """The generated part of nets/README.rst."""
    lines = [BEGIN, ""]
    heads: tuple[str, ...] = (
        "Network",
        "Variables",
        "Arcs",
        "Parameters",
        "CPT entries",
        "Largest CPT",
        "Published in",
    )
    rows: list[tuple[str, ...]] = [(m.name, *(f"{n:,}" for n in m.counts), NETWORKS[m.name]) for m in made]
    lines += _table(heads, rows)
    lines += ["Parameters are free ones: a row of n numbers has n - 1.", ""]
    heads = ("File", "Bytes of text", "sha256 of the text", "sha256 of the source (.bif.gz)")
    rows = [(m.file, f"{len(m.text):,}", hashlib.sha256(m.text).hexdigest(), m.source_sha256) for m in made]
    lines += _table(heads, rows)
    return "\n".join([*lines, END])


def _table(heads: tuple[str, ...], rows: list[tuple[str, ...]]) -> list[str]:
    lines = [".. list-table::", "   :header-rows: 1", ""]
    for row in (heads, *rows):
        lines += [f"   {'*' if i == 0 else ' '} - {cell}" for i, cell in enumerate(row)]
    return [*lines, ""]


def unpacked(path: Path) -> bytes | None:
    """What a file of nets/ holds; None where it is not there."""
    if not path.is_file():
        return None
    return read_bytes(path)


def main() -> int:
    """Parse the command line, make, then write or compare."""
    parser = argparse.ArgumentParser(description="Make nets/ from the BIF files of a pgmpy release.")
    parser.add_argument("--check", action="store_true", help="write nothing, compare")
    parser.add_argument("--wheel", type=Path, help="the release's file, instead of fetching it")
    parser.add_argument("--out", type=Path, default=ROOT / "nets", help="folder to write to (default: nets/)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        wheel = options.wheel or fetch(Path(folder))
        print(f"{hashlib.sha256(wheel.read_bytes()).hexdigest()}  {wheel.name}")
        with zipfile.ZipFile(wheel) as archive:
            there = set(archive.namelist())
            missing = [n for n in NETWORKS if f"{INSIDE}/{n}.bif.gz" not in there]
            made = [make(n, archive.read(f"{INSIDE}/{n}.bif.gz")) for n in NETWORKS if n not in missing]
    readme = options.out / "README.rst"
    old = readme.read_text("utf-8") if readme.is_file() else f"{BEGIN}\n{END}\n"
    head, _, rest = old.partition(BEGIN)
    _, _, tail = rest.partition(END)
    new = f"{head}{tables(made)}{tail}"
    different = [] if new == old else [readme.name]
    for m in made:
        print(f"{m.source_sha256}  {m.name}.bif.gz\n{hashlib.sha256(m.text).hexdigest()}  {m.file} (its text)")
        if unpacked(options.out / m.file) != m.text:
            different.append(m.file)
            if not options.check:
                write_bytes(options.out / m.file, m.text)
    if not options.check:
        write_bytes(readme, new.encode("utf-8"))
    size = sum(path.stat().st_size for m in made if (path := options.out / m.file).is_file())
    done = "differing" if options.check else "written"
    print(f"{len(made)} networks, {size:,} bytes in {options.out.name}/; {done}: {', '.join(different) or 'none'}")
    if missing:
        print(f"not in the release: {', '.join(missing)}", file=sys.stderr)
    return 1 if missing or (options.check and different) else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except JtgpuError as error:
        sys.exit(str(error))
