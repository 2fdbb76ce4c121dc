"""Option groups: a dataclass whose fields are command-line options, as one parameter of a command."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from dataclasses import MISSING, Field, dataclass, fields, is_dataclass
from typing import Annotated, Any, ParamSpec, TypeVar, get_args, get_origin, get_type_hints

P = ParamSpec("P")
R = TypeVar("R")


@dataclass(frozen=True)
class Without:
    """Fields of a group that a command does not offer; they keep their defaults.

    Use it as ``Annotated[PlanOptions, Without("seed")]``.
    """

    names: tuple[str, ...]

    def __init__(self, *names: str):
        object.__setattr__(self, "names", names)


def expand_groups(command: Callable[P, R]) -> Callable[..., R]:
    """A command that Typer can read: every parameter that is a group is replaced by the group's options."""
    # command: A parameter whose type is a dataclass is a group. The fields of the dataclass carry Typer's annotations.
    # returns Takes the options one by one and calls `command` with the groups built from them.
    hints = get_type_hints(command, include_extras=True)
    parameters: list[inspect.Parameter] = []
    groups: dict[str, tuple[type, list[str]]] = {}
    for name, parameter in inspect.signature(command).parameters.items():
        group, omitted = _as_group(hints[name])
        if group is None:
            parameters.append(parameter.replace(annotation=hints[name], kind=inspect.Parameter.KEYWORD_ONLY))
            continue
        types = get_type_hints(group, include_extras=True)
        offered = [f for f in fields(group) if f.name not in omitted]
        groups[name] = group, [f.name for f in offered]
        parameters += [_parameter(f, types[f.name]) for f in offered]

    @functools.wraps(command)
    def run(**options: Any) -> R:
        for name, (group, members) in groups.items():
            options[name] = group(**{member: options.pop(member) for member in members})
        return command(**options)  # type: ignore[call-arg]

    signature = inspect.Signature(parameters)
    run.__signature__ = signature  # type: ignore[attr-defined]
    run.__annotations__ = {p.name: p.annotation for p in parameters}
    return run


def _as_group(hint: Any) -> tuple[Any, tuple[str, ...]]:
    """The dataclass that a type hint names and the fields left out; None for an ordinary option."""
    omitted: tuple[str, ...] = ()
    if get_origin(hint) is Annotated:
        hint, *notes = get_args(hint)
        omitted = next((note.names for note in notes if isinstance(note, Without)), ())
    return (hint, omitted) if is_dataclass(hint) else (None, ())


def _parameter(field: Field[Any], annotation: Any) -> inspect.Parameter:
    default = inspect.Parameter.empty if field.default is MISSING else field.default
    return inspect.Parameter(field.name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)
