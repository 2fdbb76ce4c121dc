"""What a shell asks for when the user presses Tab.

Networks, variables and states are answered here, without Typer and the modules of the command, which take several
times as long to import. All other requests, such as names of options, are left to Typer.
"""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Callable

from .network_names import Names, match_findings, match_networks, match_variables, read_names

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
    "batch": {**_TARGET, "--evidence-columns": match_variables},
    "fit": {"--fixed": match_variables},
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
    found = None if words is None else _matches(words)
    if found is None:
        return False
    if shell == "complete_zsh":
        print("_arguments '*: :((" + "\n".join(map(_zsh, found)) + "))'" if found else "_files")
    elif shell == "complete_fish" and os.environ.get("_TYPER_COMPLETE_FISH_ACTION") == "is-args":
        sys.exit(0 if found else 1)
    else:
        print("\n".join(found))
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
    return [found[len(before) :] for found in match(read_names(words[2]), before + words[-1])]


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
