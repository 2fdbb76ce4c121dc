"""Values of options without pydantic.

From version 0.29 on, Typer builds a pydantic adapter for every parameter of a command, used or not; that takes longer
than to answer a query. Here text, flags and whole numbers in their range are taken as they are, and everything else,
errors included, is left to Typer.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any


def coerce_plain_values(parameters: Iterable[Any]) -> None:
    """Let parameters coerce plain values themselves; does nothing with versions of Typer that work differently."""
    for parameter in parameters:
        if getattr(parameter, "_runtime_param", parameter) is None and hasattr(parameter, "get_runtime_param"):
            parameter._runtime_param = _PlainValues(parameter.type_descriptor)


class _PlainValues:
    """Takes the place of Typer's adapter until a value needs it."""

    def __init__(self, descriptor: Any):
        self._kind, self._info = descriptor.annotation, descriptor.parameter_info

    def coerce(self, value: Any, param: Any, ctx: Any) -> Any:
        """Convert the value of a parameter as Typer does."""
        if value is None:
            return () if param.multiple or param.nargs == -1 else None
        if self._info.parser is None:
            if self._kind in (str, bool) and type(value) is self._kind:
                return value
            if self._kind == list[str] and isinstance(value, (list, tuple)) and all(type(v) is str for v in value):
                return list(value)
            if self._kind is int and (
                type(value) is int or (type(value) is str and value.isascii() and value.isdigit())
            ):
                number = int(value)
                low, high = self._info.min, self._info.max
                if (low is None or low <= number) and (high is None or number <= high):
                    return number
        param._runtime_param = None
        return param.get_runtime_param().coerce(value, param=param, ctx=ctx)
