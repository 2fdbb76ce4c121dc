"""`Record`, a set of options, and `Opt`, what is said about one of them."""

import inspect
import sys
from collections.abc import Callable
from functools import partial
from types import UnionType
from typing import Annotated, Any, ClassVar, Literal, NamedTuple, Self, Union, dataclass_transform, get_args, get_origin

from ..errors import ArgumentError
from ..util.arguments import RECORDS, choice, flag, number, unknown_keyword, whole_number


class Opt(NamedTuple):
    """All that is said about an option, but for its type and default."""

    help: str  # one sentence, of --help, the documentation and OpenAPI
    flag: str = ""  # on the command line: "-n, --rows N"; "FILE" of an argument. Default: by the name of the field
    least: float | None = None
    above: float | None = None
    most: float | None = None
    choices: tuple[str, ...] = ()  # the words that are accepted, where the type does not list them
    front: bool = False  # in the short help, though its record is one of several
    check: Callable[[Any], Any] | None = None  # of the text on the command line: its value, or an ArgumentError
    complete: Literal["", "networks", "targets", "findings"] = ""  # which words a shell completes
    python: str = ""  # what is said in the documentation of Python only


class Field(NamedTuple):
    """A field of a record."""

    kind: Any  # its type
    opt: Opt
    default: Any  # `REQUIRED`: it has none
    owner: type  # the class that declares it

    @property
    def title(self) -> str:
        """The title of its group; none: that of the command itself."""
        return str(self.owner.title)  # type: ignore[attr-defined]

    @property
    def choices(self) -> tuple[str, ...]:
        """The words that are accepted; none: any."""
        listed = () if self.opt.check else (word for kind in kinds_of(self.kind) for word in get_args(kind))
        return self.opt.choices or tuple(word for word in listed if isinstance(word, str))

    def only(self, *choices: str) -> "Field":
        """The field with some of its choices."""
        return self._replace(opt=self.opt._replace(choices=choices))


REQUIRED: Any = object()


def kinds_of(kind: Any) -> tuple[Any, ...]:
    """The types of a union except None; otherwise the type itself."""
    if get_origin(kind) not in (Union, UnionType):
        return (kind,)
    return tuple(part for part in get_args(kind) if part is not type(None))


_FIELDS: dict[type, dict[str, Field]] = {}  # of records seen so far


def fields_of(record: type) -> dict[str, Field]:
    """The options of a record by the name of the field, those of base classes first."""
    if record in _FIELDS:
        return _FIELDS[record]
    fields = _FIELDS[record] = {}
    for cls in reversed(record.__mro__):
        for name, text in vars(cls).get("__annotations__", {}).items():
            # of the records that a command has: making all of them takes longer than its help
            hint = eval(text, vars(sys.modules[cls.__module__])) if isinstance(text, str) else text
            if get_origin(hint) is Annotated:
                kind, opt = get_args(hint)[:2]
                fields[name] = Field(kind, opt, vars(cls).get(name, REQUIRED), cls)
    return fields


def defaults_of(record: type) -> dict[str, Any]:
    """The defaults of all fields of a record, also of those that are no options."""
    declared = reversed(record.__mro__[:-2])  # those of `Record` and object have no fields
    return {name: getattr(record, name, REQUIRED) for c in declared for name in vars(c).get("__annotations__", ())}


class _Documentation:
    """The docstring of a record: its own text, and its fields; these are read when somebody asks."""

    def __init__(self, text: str | None):
        self.text = text

    def __get__(self, _: object, record: type) -> str:
        rows = [
            f"{name} : {_in_words(f)}, default {f.default!r}\n    {f.opt.help} {f.opt.python}".rstrip()
            for name, f in fields_of(record).items()
        ]
        return "\n".join([self.text or "", "", "Parameters", "----------", *rows])


class _Signature:
    """The signature of a record, for notebooks."""

    def __get__(self, _: object, record: type) -> inspect.Signature:
        parameter = inspect.Parameter
        return inspect.Signature([
            parameter(name, parameter.KEYWORD_ONLY, default=parameter.empty if default is REQUIRED else default)
            for name, default in defaults_of(record).items()
        ])  # fmt: skip


def _in_words(field: Field) -> str:
    """The type of a field, as documentation writes it."""
    words = [f"{{{', '.join(map(repr, field.choices))}}}"] if field.choices else []
    named = [kind for kind in kinds_of(field.kind) if get_origin(kind) is not Literal]
    return " or ".join(words + [getattr(kind, "__name__", str(kind)) for kind in named])


@dataclass_transform(kw_only_default=True, frozen_default=True)
class Record:
    """A set of options: the fields of a subclass whose annotation has an `Opt`, besides others."""

    __signature__: ClassVar[Any] = _Signature()
    examples: ClassVar[tuple[str, ...]] = ()  # command lines, of the record of a command
    title: ClassVar[str] = ""  # of its group in --help-all; none: all of it is in the short help

    def __init_subclass__(cls, title: str = "") -> None:
        cls.title = title
        if title:  # others are commands, whose help has the fields
            cls.__doc__ = _Documentation(cls.__doc__)  # type: ignore[assignment]
            RECORDS[cls.__name__] = cls

    def __init__(self, **given: Any):
        defaults = defaults_of(type(self))
        if not given.keys() <= defaults.keys():
            raise unknown_keyword(type(self).__name__, min(given.keys() - defaults.keys()), defaults)
        values = defaults | given
        if missing := [name for name, value in values.items() if value is REQUIRED]:
            raise ArgumentError(f"{type(self).__name__}() needs {', '.join(missing)}")
        vars(self).update(values)
        self._check()

    def _check(self) -> None:
        """Raise `ArgumentError` for values that are not allowed."""
        check_options(self)

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"{type(self).__name__} is not changed: make another one by replaced()")

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and vars(self) == vars(other)

    def __hash__(self) -> int:
        return hash(tuple(map(repr, vars(self).values())))

    def __repr__(self) -> str:
        defaults = defaults_of(type(self))
        given = (f"{name}={value!r}" for name, value in vars(self).items() if value != defaults[name])
        return f"{type(self).__name__}({', '.join(given)})"

    def replaced(self, **changes: Any) -> Self:
        """The record with other values of some fields."""
        return type(self)(**(vars(self) | changes))


def require_only(record: Any, used: str, what: str) -> None:
    """Raise `ArgumentError` for an option of a record that is given, but is not among those that are used."""
    # used: Names of fields, separated by spaces
    # what: What does not use the others
    for name, default in vars(type(record)()).items():
        if name not in used.split() and getattr(record, name) is not default:
            raise ArgumentError(f"{name}= is not offered with {what}")


def check_options(record: Any) -> None:
    """Raise `ArgumentError` for a field of a record that its type or bounds do not accept."""
    cls = type(record)
    checks = _CHECKS.get(cls)
    if checks is None:
        listed = ((name, field, _check_of(field)) for name, field in fields_of(cls).items())
        checks = _CHECKS[cls] = [
            (name, check, field.default is None or type(None) in get_args(field.kind))
            for name, field, check in listed if check is not None
        ]  # fmt: skip
    for name, check, may_be_none in checks:
        value = getattr(record, name)
        if value is not None or not may_be_none:
            check(name, value)


_CHECKS: dict[type, list[tuple[str, Callable[[str, Any], Any], bool]]] = {}  # name, check, whether None is allowed


def _check_of(field: Field) -> Callable[[str, Any], Any] | None:
    """The function that raises `ArgumentError` for a name and a wrong value; None: anything is allowed."""
    opt, kinds = field.opt, kinds_of(field.kind)
    if kinds == (bool,):
        return flag
    if field.choices and len(kinds) == 1:
        return partial(choice, allowed=field.choices)
    if kinds == (int,):
        least, most = (None if x is None else int(x) for x in (opt.least, opt.most))
        return partial(whole_number, least=least, most=most)
    return partial(number, least=opt.least, above=opt.above, most=opt.most) if kinds == (float,) else None
