"""Completion by a shell, when the user presses Tab.

Networks, variables and states are answered here, without Typer and the modules of the command, which take several
times as long to import. All other requests, such as names of options, are left to Typer.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

from ..util import atomic_file
from ..util.system import cache_folder
from ..util.version import __version__

# Names that complete a word: networks, and the variables and states of a network.
#
# A shell waits for them at every press of Tab, so this module imports neither Typer nor, for bundled networks and for
# the network that was completed last, NumPy and a parser: its names are stored in ``completion.json`` in the cache
# folder.

Names = Mapping[str, Sequence[str]]  # variables and their states


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
        stored = json.loads((cache_folder() / "completion.json").read_bytes())
        if stored["key"] == _key(file) and stored["state"] == _state(stored["state"][0]):
            return {v: list(states) for v, states in stored["names"].items()}
    return None


def _read(file: str) -> Names:
    """Read the network, and store its names in place of those of another one."""
    from ..formats.bundled import bundled_files

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
ARGUMENT = ""  # the argument after the network

Match = Callable[[Names, str], list[str]]

_EVIDENCE: dict[str, Match] = {"-e": match_findings, "--evidence": match_findings}
_TARGET: dict[str, Match] = {"-t": match_variables, "--target": match_variables}
# Commands whose first argument is a network, and their options that take its variables or findings. A test compares
# them with what the commands declare.
OPTIONS: dict[str, dict[str, Match]] = {
    "query": {**_EVIDENCE, **_TARGET},
    "mpe": {**_EVIDENCE, **_TARGET},
    "voi": {
        ARGUMENT: match_variables, **_EVIDENCE, **_TARGET, "-c": match_variables, "--candidate": match_variables,
    },
    "sensitivity": {ARGUMENT: match_findings, **_EVIDENCE, "-t": match_findings, "--target": match_findings},
    "decide": {**_EVIDENCE},
    "batch": {**_TARGET, "--evidence-columns": match_variables},
    "fit": {"--fixed": match_variables},
    "validate": {**_TARGET},
    "sample": {**_EVIDENCE},
    "show": {**_EVIDENCE, **_TARGET, "--around": match_variables},
    "info": {},
    "convert": {},
    "serve": {},
    "plan": {},
    "tune": {},
}  # fmt: skip


def answer() -> bool:
    """Print the completions of the request; False if it is left to Typer."""
    shell = os.environ[VARIABLE]
    words = _words(shell)
    matching = None if words is None else _matches(words)
    if matching is None:
        return False
    if shell == "complete_zsh":
        print("_arguments '*: :((" + "\n".join(map(_zsh, matching)) + "))'" if matching else "_files")
    elif shell == "complete_fish" and os.environ.get("_TYPER_COMPLETE_FISH_ACTION") == "is-args":
        sys.exit(0 if matching else 1)
    else:
        print("\n".join(matching))
    return True


def _words(shell: str) -> list[str] | None:
    """The command line up to the word to complete; None if the shell is another one or a quote is open."""
    try:
        if shell == "complete_bash":
            words = shlex.split(os.environ["COMP_WORDS"])
            current = int(os.environ["COMP_CWORD"])
            return [*words[:current], words[current] if current < len(words) else ""]
        if shell in ("complete_zsh", "complete_fish"):
            line = os.environ["_TYPER_COMPLETE_ARGS"]
            return [*shlex.split(line), *([""] if line.endswith(" ") else [])]
    except (KeyError, ValueError):
        pass
    return None


def _matches(words: list[str]) -> list[str] | None:
    """The completions of the last word; None if they are not those of a network, its variables or its states."""
    options = OPTIONS.get(words[1]) if len(words) > 2 else None
    if options is None or any(word.startswith("-") for word in (words[2], words[-1])):
        return None
    if len(words) == 3:
        return match_networks(words[2])
    match = options.get(words[-2] if len(words) > 4 else ARGUMENT)
    if match is None:
        return None
    before = os.environ.get(SPLIT, "")
    return [text[len(before) :] for text in match(read_names(words[2]), before + words[-1])]


def _zsh(text: str) -> str:
    """A word in the form that `_arguments` expects, as Typer writes it."""
    for character, escaped in (('"', '""'), ("'", "''"), ("$", r"\$"), ("`", r"\`"), (":", r"\\:")):
        text = text.replace(character, escaped)
    return f'"{text}"'


def join_findings() -> None:
    """Take the name of a finding off bash's command line: bash splits words at ``=`` and replaces the last part."""
    if os.environ.get(VARIABLE) != "complete_bash":
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
