"""Classes, instances and temporal clones of Hugin files: object-oriented and dynamic networks.

* ``class C { inputs = (A); outputs = (B); ... }``: several classes in a file; the last one that no other class has an
  instance of is the network. ``instance I : C (A = X; Y = B) { }`` is a copy of C: its nodes are named ``I.B``, its
  input A is X, and Y is another name of its node B. An input that is not bound is a node of its own.
* ``temporal T_X : X { }`` is X one slice earlier. Slice 0 of the dynamic network are the clones: HUGIN unrolls a class
  with them as its slice 0. A variable that has no clone and depends on one is uniform in slice 0: no clone depends on
  it there. Nodes whose clone has another table get an axis on which their table does not depend.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from ..errors import near
from .draft import Draft, FamilyDraft, SlicesDraft
from .text import SourceText

MAX_INSTANCES = 10_000  # of a file: classes may contain each other's instances, each twice as many as the one before


@dataclass
class Instance:
    """A copy of a class."""

    at: int  # offset of its declaration
    of: str  # name of the class
    inputs: list[tuple[str, str, int]]  # input of the class, node that it is, offset of the latter
    outputs: list[tuple[str, str, int]]  # name, node of the class, its offset


@dataclass
class Scope:
    """The nodes of a class, or of a file without classes."""

    draft: Draft
    inputs: tuple[str, ...] = ()
    instances: dict[str, Instance] = field(default_factory=dict)
    clones: dict[str, tuple[int, str, int]] = field(default_factory=dict)  # offset, node that it copies, its offset


def flattened(source: SourceText, scopes: dict[str, Scope]) -> tuple[Draft, dict[str, tuple[int, str, int]]]:
    """The network of a file with classes, and the temporal clones in it."""
    # raises ParseError: If a class contains itself, or an input is bound to what is not there.
    used = {i.of for scope in scopes.values() for i in scope.instances.values()}
    main = [name for name in scopes if name not in used] or [*scopes]
    scope = scopes[main[-1]]
    if not scope.instances:
        return scope.draft, scope.clones
    flat = Draft(source, scope.draft.format, main[-1])
    flat.attributes["net"] = scope.draft.attributes["net"]
    flat._notes, flat._n_notes = scope.draft._notes, scope.draft._n_notes
    clones: dict[str, tuple[int, str, int]] = {}
    _Copier(source, scopes, flat, clones).copy(scope, "", {}, (main[-1],))
    return flat, clones


class _Copier:
    """Copies the nodes of classes into one draft."""

    def __init__(
        self, source: SourceText, scopes: dict[str, Scope], flat: Draft, clones: dict[str, tuple[int, str, int]]
    ):
        self.source, self.scopes, self.flat, self.clones = source, scopes, flat, clones
        self.n = 0

    def copy(self, scope: Scope, prefix: str, bound: dict[str, str], inside: tuple[str, ...]) -> dict[str, str]:
        """Copy the nodes of an instance; returns the full names of what its class names."""
        # bound: input -> full name of the node that it is
        draft = scope.draft
        own = [*draft.states, *draft.utilities, *draft.combined, *draft.refused, *scope.clones]
        names = {v: bound.get(v, prefix + v) for v in own}
        for v, states in draft.states.items():
            if v not in bound:
                self.flat.declare(names[v], states, draft.declared[v], draft.attributes["node"].get(v))
        for name, instance in self.ordered(scope):
            names |= self.instance(scope, name, instance, names, prefix, inside)
        for v, family in draft.families.items():
            if v not in bound:
                self.family(family, names, prefix)
                if v in draft.attributes["potential"]:
                    self.flat.attributes["potential"][names.get(v, prefix + v)] = draft.attributes["potential"][v]
        for kind in ("decisions", "utilities", "refused", "numbers"):
            getattr(self.flat, kind).update({names[v]: x for v, x in getattr(draft, kind).items() if v not in bound})
        for clone, (at, of, of_at) in scope.clones.items():
            self.clones[names[clone]] = at, names.get(of, of), of_at
        return names

    def family(self, family: FamilyDraft, names: dict[str, str], prefix: str) -> None:
        child = names.get(family.child, prefix + family.child)
        numbers = None if family.numbers is None else family.numbers.copy()
        parents = [(names.get(p, p), at) for p, at in family.parents]
        self.flat.families[child] = FamilyDraft(
            child, parents, family.at, numbers, family.data_at, family.locate, family.n_open, family.exact
        )

    def ordered(self, scope: Scope) -> list[tuple[str, Instance]]:
        """The instances of a class, those first whose outputs are inputs of others."""
        rest, ready = dict(scope.instances), list[tuple[str, Instance]]()
        while rest:
            later = {outer for i in rest.values() for outer, _, _ in i.outputs}
            free = [name for name, i in rest.items() if not any(actual in later for _, actual, _ in i.inputs)]
            if not free:
                name = next(iter(rest))
                raise self.source.error(rest[name].at, f"the instance {name!r} depends on itself through others")
            ready += [(name, rest.pop(name)) for name in free]
        return ready

    def instance(
        self, scope: Scope, name: str, instance: Instance, names: dict[str, str], prefix: str, inside: tuple[str, ...]
    ) -> dict[str, str]:
        """Copy one instance; returns the names of its outputs."""
        of = instance.of
        self.n += 1
        if of in inside or self.n > MAX_INSTANCES:
            what = "contains an instance of itself" if of in inside else f"makes more than {MAX_INSTANCES} instances"
            raise self.source.error(instance.at, f"the class {of!r} {what}")
        if of not in self.scopes:
            self.flat.refused[prefix + name] = instance.at, f"class instance (of {of!r}, which is not in the file)"
            self.flat.has_objects = True
            return {outer: prefix + outer for outer, _, _ in instance.outputs}
        other = self.scopes[of]
        bound: dict[str, str] = {}
        for formal, actual, at in instance.inputs:
            if formal not in other.inputs or formal not in other.draft.states:
                what = f"{formal!r} is no input of the class {of!r}{near(formal, other.inputs)}"
                raise self.source.error(at, what)
            full = names.get(actual)
            if full is None:
                raise self.source.error(at, f"the input {formal!r} of {name!r} is bound to {actual!r}, which is not "
                                            f"declared{near(actual, names)}")  # fmt: skip
            have, want = len(self.flat.states.get(full, ())), len(other.draft.states[formal])
            if have and have != want:
                raise self.source.error(at, f"{actual!r} has {have} states, and the input {formal!r} of {of!r} {want}")
            bound[formal] = full
        inner = self.copy(other, f"{prefix}{name}.", bound, (*inside, of))
        made = {}
        for outer, node, at in instance.outputs:
            if node not in inner:
                raise self.source.error(at, f"the class {of!r} has no node {node!r}{near(node, inner)}")
            made[outer] = inner[node]
        return made


def add_slices(draft: Draft, clones: dict[str, tuple[int, str, int]], error: Callable[[int, str], Exception]) -> None:
    """Declare temporal clones as variables of the draft, and how they make a template."""
    if not clones:
        return
    first = min(at for at, _, _ in clones.values())
    slices = SlicesDraft(first)
    originals: dict[str, str] = {}
    draft.numbers.clear()  # a template has no numbers: they are refused
    for clone, (at, of, of_at) in clones.items():
        if of in draft.refused:
            draft.refused[clone] = at, f"temporal clone of {of!r}"
            draft.families.pop(clone, None)
            continue
        if of not in draft.states or of in clones:
            what = "is a clone itself" if of in clones else f"is not declared{near(of, draft.states)}"
            raise error(of_at, f"the temporal clone {clone!r} is of {of!r}, which {what}")
        if of in originals.values():
            raise error(at, f"{of!r} has a second temporal clone, {clone!r}")
        originals[clone] = of
    of_variable = {of: clone for clone, of in originals.items()}
    for v in draft.states:
        slices.pairs[v] = v, 0
        slices.families[v] = [of_variable[v], v] if v in of_variable else [v]
    for clone, of in originals.items():
        draft.declare(clone, draft.states[of], clones[clone][0])
        slices.pairs[clone] = of, 1
        for p, at in draft.families[clone].parents if clone in draft.families else ():
            if p in of_variable or (p in draft.states and p not in originals):
                raise error(at, f"the temporal clone {clone!r} has the parent {p!r}, which is in a later slice")
    for v in [*slices.families]:
        above: list[Any] = draft.families[v].parents if v in draft.families else []
        if v not in of_variable and any(p in originals for p, _ in above):
            label = f"{v} in slice 0"
            draft.declare(label, draft.states[v], draft.declared[v])
            slices.pairs[label] = v, 0
            slices.families[v].insert(0, label)
    draft.slices = slices
