"""Names that R's bnlearn writes bare into BIF files: intervals such as ``(0.5,1.5]``, and names with blanks.

``bnlearn::write.bif`` puts no quotes around states and variables. Where the grammar of `bif` fails, a file is read
again after this module has put them there: the number of states in brackets and the brackets that pair decide where a
state ends.
"""

from __future__ import annotations

import re

from .text import quote

_VARIABLE = re.compile(r"(?<=\n)([ \t]*+variable[ \t]++)([^\n{}\"]++)(\{)", re.ASCII)
_TYPE = re.compile(r"(type[ \t]++discrete[ \t]*+\[[ \t]*+([0-9]{1,7})[ \t]*+\][ \t]*+\{)([^\n\"]*+)", re.ASCII)
_HEAD = re.compile(r"(?<=\n)([ \t]*+probability[ \t]*+\()([^\n{}\"]+)(\)[ \t]*+\{)", re.ASCII)
_ROW = re.compile(r"(?<=\n)([ \t]*+\()([^\n\"]+)(\)[ \t]*+[0-9.][^\n();]*+;)")
_STATE = re.compile(r"[ \t]*+([\[(][^,\[\]()]++,[^,\[\]()]++[\])]|[^,]++)[ \t]*+(?:,|\Z)")
_PLAIN = re.compile(r"[^\s{}()\[\];,|\"/]++")


def quoted(text: str) -> str | None:
    """A BIF text with quotes round the names that need them; None if it is not of this kind."""
    text = "\n" + text
    names = [m[2].strip() for m in _VARIABLE.finditer(text)]
    bodies = list(_TYPE.finditer(text))
    if not names or not len(set(names)) == len(names) == len(bodies):
        return None
    states: dict[str, list[str]] = {}
    for name, m in zip(names, bodies, strict=True):
        listed = m[3].rpartition("}")[0]
        labels = [part.strip() for part in listed.split(",")]
        if len(labels) != int(m[2]):
            labels = [part[1].strip() for part in _STATE.finditer(listed)]
        if len(labels) != int(m[2]):
            return None
        states[name] = labels
    if all(_PLAIN.fullmatch(x) for name, labels in states.items() for x in (name, *labels)):
        return None
    text = _VARIABLE.sub(lambda m: f"{m[1]}{quote(m[2].strip())} {m[3]}", text)
    lists = iter(states.values())
    text = _TYPE.sub(lambda m: f"{m[1]} {', '.join(map(quote, next(lists)))} }}{m[3].rpartition('}')[2]}", text)
    done, parts, parents = 0, [], list[str]()
    for m in sorted([*_HEAD.finditer(text), *_ROW.finditer(text)], key=re.Match.start):
        if m[1].strip().startswith("probability"):
            child, _, above = m[2].partition("|")
            parents = [p.strip() for p in above.split(",")] if above.strip() else []
            given = f" | {', '.join(map(quote, parents))}" if parents else ""
            inner = f" {quote(child.strip())}{given} "
        else:
            key = _split(m[2], [states.get(p, []) for p in parents])
            if key is None:
                return None
            inner = ", ".join(map(quote, key))
        parts += [text[done : m.end(1)], inner]
        done = m.start(3)
    return "".join([*parts, text[done:]])[1:]


def _split(key: str, parents: list[list[str]]) -> list[str] | None:
    """The states of a row: at each place the longest name of a state of the parent that fits."""
    key_states, at = list[str](), 0
    for i, names in enumerate(parents):
        while at < len(key) and key[at] in " \t":
            at += 1
        end = ")" if i == len(parents) - 1 else ","
        for name in sorted(names, key=len, reverse=True):
            rest = key[at + len(name) :].lstrip(" \t")
            if key.startswith(name, at) and (rest.startswith(",") if end == "," else not rest):
                key_states.append(name)
                at = len(key) - len(rest) + (end == ",")
                break
        else:
            return None
    return key_states
