"""Names that complete a word when the user presses Tab: networks, and the variables and states of a network.

A shell waits for them, so for bundled networks and for the network that was completed last neither NumPy nor a parser
is imported: its names are stored in ``completion.json`` in the cache folder.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Mapping, Sequence
from contextlib import suppress

from ..util.version import __version__

Names = Mapping[str, Sequence[str]]  # variables and their states


def matching(kind: str, file: str | None, text: str) -> list[str]:
    """Words that complete a text: networks, or variables or findings of a network."""
    if kind == "networks":
        return match_networks(text)
    match, before = match_findings if kind == "findings" else match_variables, os.environ.get(SPLIT, "")
    return [word[len(before) :] for word in match(read_names(file), before + text)]


def match_networks(text: str) -> list[str]:
    """Network files and folders that begin with `text`, and bundled networks."""
    from ..formats.bundled import bundled_files
    from ..formats.registry import file_suffixes

    suffixes = file_suffixes()
    matching: list[str] = []
    head, _, tail = text.rpartition("/")
    folder = head + "/" if "/" in text else ""
    with suppress(OSError):
        for entry in sorted(os.scandir(os.path.expanduser(folder or ".")), key=lambda e: e.name):
            if not entry.name.startswith(tail) or (entry.name.startswith(".") and not tail):
                continue
            if entry.is_dir():
                matching.append(f"{folder}{entry.name}/")
            elif entry.name.lower().endswith(suffixes):
                matching.append(folder + entry.name)
    if not folder:
        with suppress(Exception):  # an incomplete installation
            matching += [n for n in sorted(bundled_files()) if n.startswith(text)]
    return matching


def match_variables(names: Names, text: str) -> list[str]:
    """Variables that begin with `text`, or a list ``a,b`` that one of them continues."""
    matching = [v for v in names if v.startswith(text)]
    head, comma, tail = text.rpartition(",")
    return matching if matching or not comma else [f"{head},{v}" for v in names if v.startswith(tail)]


def match_findings(names: Names, text: str) -> list[str]:
    """Findings ``name=state`` that begin with `text`: names first, then the states of one variable."""
    matching = [v for v in names if f"{v}=".startswith(text) or text.startswith(f"{v}=")]
    if len(matching) > 1 and not any(text.startswith(f"{v}=") for v in matching):
        return [f"{v}=" for v in matching]
    return [finding for v in matching for s in names[v] if (finding := f"{v}={s}").startswith(text)]


def read_names(file: str | None) -> Names:
    """The variables and states of a network file or a bundled network; empty if it cannot be read."""
    if not file:
        return {}
    file = os.path.expanduser(file)  # the shell has not expanded the words of a request
    with suppress(Exception):
        return _stored(file) or _read(file)
    return {}


def _key(file: str) -> str:
    """Identifies what `file` names: a bundled network if there is no such file."""
    return os.path.abspath(file) if os.path.lexists(file) else file


def _state(path: str) -> list[object]:
    """Properties that differ after a change of the file or of the reader."""
    status = os.stat(path)
    return [path, status.st_size, status.st_mtime_ns, __version__]


def _stored(file: str) -> Names | None:
    """Cached names, or None if the file has changed."""
    with suppress(OSError, ValueError, KeyError, TypeError, RuntimeError):
        import json

        from ..util.system import cache_folder

        stored = json.loads((cache_folder() / "completion.json").read_bytes())
        if stored["key"] == _key(file) and stored["state"] == _state(stored["state"][0]):
            return {v: list(states) for v, states in stored["names"].items()}
    return None


def _read(file: str) -> Names:
    """Read the network, and store its names in place of those of another one."""
    import json

    from ..formats.bundled import bundled_files
    from ..util import atomic_file
    from ..util.system import cache_folder

    bundled = None if os.path.lexists(file) else bundled_files().get(file)
    path = os.path.abspath(bundled or file)
    state = _state(path)
    names = _parsed(path) if bundled is None else _scanned(path)
    stored = json.dumps({"key": _key(file), "state": state, "names": names}).encode()
    with suppress(OSError, RuntimeError):  # RuntimeError: no home folder
        atomic_file.write_bytes(cache_folder() / "completion.json", stored, durable=False, make_folders=True)
    return names


def _parsed(path: str) -> Names:
    """The names in a network file of any format."""
    from ..formats.network_files import read

    net = read(path)
    return {v: list(net.states(v)) for v in net.variables}


def _scanned(path: str) -> Names:
    """The names in a bundled network, without NumPy: tools/make_nets.py writes these files, in one form."""
    from ..formats.files import read_bytes

    nodes = re.findall(r"^node (\w+)\n\{\n    states = \((.*)\);$", read_bytes(path).decode(), re.MULTILINE)
    return {v: re.findall(r'"([^"]*)"', states) for v, states in nodes}


VARIABLE = "_JTGPU_COMPLETE"  # environment variable in which the shell passes its request
SPLIT = "_JTGPU_FINDING"  # the part of a finding before the word that bash completes


def join_findings() -> None:
    """Take the name of a finding off bash's command line: bash splits words at ``=`` and replaces the last part."""
    if os.environ.get(VARIABLE) != "bash_complete":
        return
    try:
        words, current = shlex.split(os.environ["COMP_WORDS"]), int(os.environ["COMP_CWORD"])
    except (KeyError, ValueError):
        return
    if current == len(words):  # the word to complete is empty
        words.append("")
    first = current
    while first > 1 and "=" in (words[first], words[first - 1]):
        first -= 1
    if first == current:
        return
    finding, kept = "".join(words[first : current + 1]), words[:first]
    if finding.startswith("--"):
        option, _, finding = finding.partition("=")
        kept.append(option)
    name, equals, rest = finding.rpartition("=")
    os.environ[SPLIT] = name + equals
    os.environ["COMP_WORDS"] = shlex.join([*kept, rest])
    os.environ["COMP_CWORD"] = str(len(kept))
