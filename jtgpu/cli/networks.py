"""Networks, variables and outputs that a command line names."""

from __future__ import annotations

import math
import os
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from click import BadParameter

from ..errors import ArgumentError, EvidenceError, OutputExists, UnknownVariable, closest
from ..formats import load
from ..formats.bundled import network_path
from ..formats.registry import file_suffixes
from ..model.discrete import DiscreteModel
from ..model.dynamic import DynamicNetwork
from ..model.mixed import MixedNetwork
from ..model.mixed_dynamic import MixedDynamicNetwork
from ..model.quick import parse_codes, parse_finding, parse_findings
from ..util.cells import UNDECIDED, numeral
from ..util.text_table import printable as shown
from .console import warn


def read_network(file: str) -> DiscreteModel:
    """Read a file or a bundled network, and warn about rows that had to be repaired."""
    net = load_any(file)
    if isinstance(net, MixedNetwork):
        raise ArgumentError(
            f"{file} has numbers ({', '.join(net.numbers[:3])}{', ...' if len(net.numbers) > 3 else ''}): this command "
            "needs variables with states only; jtgpu query, voi, batch, sample, fit, validate, show, time, info and "
            "convert take numbers, and so does Python's net.compile()"
        )
    return net


def load_any(file: str) -> DiscreteModel | MixedNetwork:
    """Read a network with or without numbers."""
    net = load_any_kind(file)
    if isinstance(net, (DynamicNetwork, MixedDynamicNetwork)):
        raise ArgumentError(
            f"{file} is a dynamic network{'' if isinstance(net, DynamicNetwork) else ' with numbers'}: jtgpu dynamic "
            f"answers questions about sequences, and jtgpu dynamic unroll {shown(file)} -o NET --steps 10 writes the "
            "network of ten slices"
        )
    return net


def load_any_kind(file: str) -> DiscreteModel | MixedNetwork | MixedDynamicNetwork:
    """Read a network of any kind, and warn about rows that had to be repaired."""
    if file.endswith(".plan"):
        raise BadParameter(f"{shown(file)!r} is a saved plan: pass the network, and --plan {shown(file)}")
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".* CPT rows in ")  # all repairs are printed below
        net: Any = load(file)
    warn_of_repairs(net.discrete if isinstance(net, MixedNetwork) else net, file)
    return net  # type: ignore[no-any-return]


def warn_of_repairs(net: DiscreteModel, file: str) -> None:
    """Warn about table rows that did not sum to 1 in the file."""
    report = getattr(net, "row_report", None)
    if report is not None and (report.n_off or report.zero_rows):
        warn(f"{file}: {report}")


def network_files(given: Sequence[str]) -> list[str]:
    """The files as they are, those of bundled networks, and the network files of folders, sorted by name."""
    suffixes = file_suffixes()
    files = []
    for name in given:
        if not Path(name).is_dir():
            files.append(network_path(name))
            continue
        in_folder = sorted(str(p) for p in Path(name).iterdir() if p.name.lower().endswith(suffixes) and p.is_file())
        if not in_folder:
            raise BadParameter(f"folder {shown(name)!r} contains no network file ({', '.join(suffixes)})")
        files += in_folder
    return files


def target_names(net: DiscreteModel, given: Sequence[str]) -> list[str]:
    """The variables that ``--target`` names, without repetitions; empty if it was not given."""
    return list(dict.fromkeys(split_names(given, net.variables, "variable")))


def one_target(argument: str | None, option: str | None, what: str, hint: str = "--target") -> str:
    """A value that is given either as an argument or as an option, which `hint` names."""
    if (argument is None) == (option is None):
        missing = "name the output, whose suffix is the format: -o asia.xdsl" if what == "output" else f"missing {what}"
        raise BadParameter(missing if option is None else f"{what} is given twice", param_hint=hint)
    return str(argument if option is None else option)


def split_names(given: Sequence[str], known: Sequence[str], what: str) -> list[str]:
    """Split comma-separated names; names may contain commas themselves, and the longest known name matches."""
    # raises UnknownVariable: If a name is not known; the message calls it a `what` and suggests the closest ones.
    valid = set(known)
    names = []
    for text in given:
        parts = text.split(",")
        while parts:
            ends = (n for n in range(len(parts), 0, -1) if {",".join(parts[:n]), ",".join(parts[:n]).strip()} & valid)
            n = next(ends, 0)
            if not n:
                name = parts[0].strip()
                raise UnknownVariable(f"there is no {what} {name!r}{closest(name, known)}")
            name = ",".join(parts[:n])
            names.append(name if name in valid else name.strip())
            parts = parts[n:]
    return names


def with_codes(net: Any, codes: Sequence[str]) -> Any:
    """A network of any kind that understands the codes of ``--codes``."""
    return net.with_codes(parse_codes(net.variables, codes)) if codes else net


def case_of(net: DiscreteModel | MixedNetwork, given: Sequence[str], file: str | None) -> dict[str, Any]:
    """The evidence of ``--evidence`` and ``--evidence-file``; a `Case` if there is a file."""
    # raises EvidenceError: If both give evidence on a variable.
    if isinstance(net, MixedNetwork):
        if file is not None:
            raise BadParameter("the evidence of networks with numbers is in --evidence", param_hint="--evidence-file")
        return _mixed_findings(net, given)
    findings = parse_findings(net, given)
    if file is None:
        return findings
    from ..formats import read_evidence  # most commands are given none

    case = read_evidence(file, net)
    twice = next((name for name in findings if name in case or name in case.likelihood), None)
    if twice is not None:
        raise EvidenceError(f"evidence on {twice!r} is given twice: by --evidence and in {file}")
    case.update(findings)
    return case


def findings_as_json(findings: Mapping[str, Any]) -> dict[str, Any]:
    """Evidence as JSON: the number of a state, or a list of numbers; values, and ends of intervals, null: no bound."""
    return {
        v: sorted(x)
        if isinstance(x, frozenset)
        else [end if math.isfinite(end) else None for end in x]
        if isinstance(x, tuple)
        else x
        for v, x in findings.items()
    }


def _mixed_findings(net: MixedNetwork, texts: Sequence[str]) -> dict[str, Any]:
    """The evidence of ``--evidence``: states by number, values of numbers, and pairs of bounds."""
    # raises EvidenceError, UnknownVariable, UnknownState: See `jtgpu.model.quick.parse_finding`.
    findings: dict[str, Any] = {}
    for text in texts:
        name, value = _number_finding(net, text) or parse_finding(net.discrete, text)
        if name in findings:
            raise EvidenceError(f"evidence on {name!r} is given twice")
        findings[name] = value
    return findings


def _number_finding(net: MixedNetwork, text: str) -> tuple[str, Any] | None:
    """A finding of a number; None if the text begins with no number's name."""
    cuts = [i for i, c in enumerate(text) if c == "="]
    at = next((i for i in reversed(cuts) if text[:i].strip() in net.numbers), None)
    if at is None:
        return None
    name, value = text[:at].strip(), text[at + 1 :]
    low, dots, high = value.partition("..")
    try:
        bounds = (_number(low) if low.strip() else -math.inf, _number(high) if high.strip() else math.inf)
        return name, bounds if dots else _number(value)
    except ValueError:
        raise EvidenceError(
            f"{name!r} is a number: expected a value such as {name}=41.5, or an interval such as {name}=30..40 or "
            f"{name}=30.., got {value.strip()!r}"
        ) from None


def _number(text: str) -> float:
    """A finite number; "nan" would be read as a missing value, which is no evidence."""
    if (x := numeral(text, UNDECIDED)) is None:
        raise ValueError(text)
    return x


def check_outputs(force: bool, *paths: str | os.PathLike[str] | None) -> None:
    """Reject outputs before the computation starts."""
    # raises OutputExists: If a file exists, unless `force` is given.
    # raises BadParameter: If its folder does not exist, or it is a folder itself.
    for path in paths:
        if path is None:
            continue
        target = Path(path)
        if not target.absolute().parent.is_dir():
            raise BadParameter(f"the folder of {shown(str(path))!r} does not exist", param_hint="--output")
        if target.is_dir():
            raise BadParameter(f"{shown(str(path))!r} is a folder", param_hint="--output")
        if target.is_file() and not force:
            raise OutputExists(f"{path} exists; pass --force to overwrite it")


def check_picture(path: Path | None, force: bool, option: str = "--output") -> None:
    """Reject a file for a picture before the computation starts."""
    if path is not None and path.suffix.lower() not in (".svg", ".html", ".htm"):
        raise BadParameter(f"{path.name!r} ends in neither .svg nor .html", param_hint=option)
    check_outputs(force, path)
