"""The click application: its options are made of the records of `declared`, and so are ``--help`` and completion."""

from __future__ import annotations

import importlib
import inspect
import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NoReturn, get_origin

import click
from click.shell_completion import CompletionItem, get_completion_class

from ..errors import ArgumentError, closest
from ..options.record import REQUIRED, Field, fields_of, kinds_of
from ..util.arguments import FORMER
from ..util.version import __version__
from .declared import COMMANDS, Command

HYPHEN, BLANK = "\u2011", "\u00a0"  # at which no line ends
FEW = 16  # options that are all in the short help
METAVARS = {int: "N", float: "X", Path: "PATH"}
EXIT_CODES = (
    "Exit codes: 0 success, 1 other error, 2 usage error (an unknown file, variable, state or option), "
    "3 does not fit in memory, 4 impossible evidence, 5 unreadable file, 6 the output exists (--force replaces it), "
    "130 interrupted."
)
OUTPUT = "Results go to stdout: aligned tables on a terminal, tab-separated values in a pipe."


class _FieldType(click.ParamType):  # type: ignore[type-arg]
    """The value of a field from its text."""

    name = "value"

    def __init__(self, field: Field):
        self.field = field
        (kind, *_), opt = kinds_of(field.kind), field.opt
        low, low_open = (opt.least, False) if opt.above is None else (opt.above, True)
        bounds: Any = {"min": low, "max": opt.most, "min_open": low_open}
        made: Any = {int: click.IntRange, float: click.FloatRange}.get(kind)
        self.number = made and made(**bounds)
        if self.number:
            self.number.name = "integer" if kind is int else "number"  # of messages

    def convert(self, value: Any, param: Any, ctx: Any) -> Any:
        """Check a text, and convert it; other values are defaults."""
        field = self.field
        if not isinstance(value, str):
            return value
        if field.opt.check is not None:
            try:
                return field.opt.check(value)
            except ArgumentError as error:
                self.fail(str(error), param, ctx)
        if field.choices and value not in field.choices:
            words = [word if word.isalnum() or "-" in word else repr(word) for word in field.choices]
            self.fail(f"{value!r} is not one of {', '.join(words)}{closest(value, field.choices)}", param, ctx)
        if self.number is not None:
            return self.number.convert(value, param, ctx)
        return Path(value) if Path in kinds_of(field.kind) else value

    def shell_complete(self, ctx: Any, param: Any, incomplete: str) -> list[CompletionItem]:
        """Words, variables and states, or files."""
        kind = self.field.opt.complete
        if kind:
            from .shell_request import matching  # help needs none of it

            words = matching(kind, ctx.params.get("file"), incomplete)
        elif self.field.choices:
            words = [word for word in self.field.choices if word.startswith(incomplete)]
        else:
            return [CompletionItem(incomplete, type="file")]
        return [CompletionItem(word) for word in words]


def _parameter(name: str, field: Field) -> click.Parameter:
    """The option or, without dashes, the argument of a field."""
    several = is_repeated(field)
    needed, flag = field.default is REQUIRED, field.opt.flag
    more: Any = {} if several or needed else {"default": field.default}
    if flag and not flag.startswith("-"):
        shown = flag if needed or not flag.isupper() else f"[{flag.rstrip('.')}]{'...' * several}"
        return click.Argument(
            [name], required=needed, metavar=shown, type=_FieldType(field), nargs=-1 if several else 1, **more
        )
    flags = spelt(name, field)[0]
    if _is_flag(field):
        return click.Option([*flags, name], is_flag=True, **more)
    return click.Option([*flags, name], required=needed, multiple=several, type=_FieldType(field), **more)


def is_repeated(field: Field) -> bool:
    """Whether an option can be given several times."""
    origins = [get_origin(kind) for kind in kinds_of(field.kind)]
    return field.opt.check is None and any(isinstance(o, type) and issubclass(o, Iterable) for o in origins)


def _is_flag(field: Field) -> bool:
    return kinds_of(field.kind)[0] is bool and " " not in field.opt.flag.split(", ")[-1]


def spelt(name: str, field: Field) -> tuple[list[str], str]:
    """How an option is written, and what stands for its value."""
    flag, kinds = field.opt.flag, kinds_of(field.kind)
    if flag and not flag.startswith("-"):
        return [flag], ""
    *first, last = (flag or f"--{name.replace('_', '-')}").split(", ")
    last, _, metavar = last.partition(" ")
    if not metavar and not _is_flag(field):
        metavar = "|".join(field.choices) or METAVARS.get(kinds[0], "TEXT")
    return [*first, last], metavar


def described(field: Field) -> str:
    """The help of an option, with its choices and default if it does not say them."""
    text, default = field.opt.help, field.default
    if field.choices and not all(word in text for word in field.choices) and " " in field.opt.flag:
        text += f" One of {', '.join(field.choices)}."
    if not isinstance(default, bool) and default not in (None, (), "", REQUIRED) and "Default:" not in text:
        text += f" Default: {default}."
    return text


def offered(command: Command) -> dict[str, Field]:
    """The fields of a command by name, of all its records."""
    fields = dict(fields_of(command.record))
    for record, names in command.shared.items():
        own = fields_of(record)
        for name, _, choices in (word.partition("=") for word in names.split() or own):
            fields[name] = own[name].only(*choices.split("|")) if choices else own[name]
    return fields


def flags_of(fields: Mapping[str, Field]) -> dict[str, str]:
    """How fields are given, by their words: the names of the fields, and what follows the dashes of options."""
    flags: dict[str, str] = {}
    for name, field in fields.items():
        *_, last = spellings = spelt(name, field)[0]
        given, _, opposite = last.partition("/")
        given = given if given.startswith("-") else f"the argument {last}"
        words = [name.replace("_", "-"), *(s.partition("/")[0].lstrip("-") for s in spellings)]
        flags |= dict.fromkeys(words, given) | ({opposite.lstrip("-"): opposite} if opposite else {})
    return flags


def meant(option: str, command: str, fields: Mapping[str, Field]) -> str:
    """A phrase that names the option in place of one that a command does not have, or the commands that have it."""
    flags, word = flags_of(fields), option.lstrip("-")
    for now in (word, *FORMER.get(word.replace("-", "_"), "").split()):
        if (flag := flags.get(now.replace("_", "-"))) is not None:
            return f"; it is {flag}"
    others = [n for n, c in COMMANDS.items() if n != command and flags_of(offered(c)).get(word, "").startswith("-")]
    from difflib import get_close_matches  # takes milliseconds, and most command lines have no mistakes

    # a word that means something elsewhere is rarely a slip of the finger: --thousands is not --threads
    is_slip = option.startswith("--") and not others and word.replace("-", "_") not in FORMER
    near = get_close_matches(word, [each for each in flags if len(each) > 1], cutoff=0.6 if is_slip else 0.88)
    if similar := dict.fromkeys(flags[each] for each in near):
        return f"; did you mean {' or '.join(similar)}?"
    return f"; it is an option of {', '.join(f'jtgpu {name}' for name in others)}" if others else ""


def _unbroken(text: str) -> str:
    """A text whose options are not broken at their hyphens."""
    return re.sub(r"--[\w-]+", lambda option: option[0].replace("-", HYPHEN), text)


class _ClickCommand(click.Command):
    """A command, whose module is imported when it runs."""

    def __init__(self, name: str, declared: Command):
        self.declared, self.fields = declared, offered(declared)
        parameters = [_parameter(*item) for item in self.fields.items()]
        parameters.append(click.Option(
            ["--help-all"], is_flag=True, is_eager=True, expose_value=False, callback=self._print_all))
        super().__init__(name, params=parameters, help=declared.record.__doc__)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse a command line; without the option whose value a shell completes."""
        if ctx.resilient_parsing and args and args[-1].startswith("-"):
            args = args[:-1]
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            option = error.option_name
            hint = meant(option, str(self.name), self.fields)
            raise click.UsageError(f"there is no option {option}{hint}", ctx) from None

    def invoke(self, ctx: click.Context) -> Any:
        """Import the module of the command, and call its function with the records."""
        name, declared = str(self.name), self.declared
        records = []
        for record in (declared.record, *declared.shared):
            fields = fields_of(record)
            own = {k: ctx.params[k] for k, f in self.fields.items() if k in fields and f.owner is fields[k].owner}
            # an option that is repeated has no words for a default of None, too
            own = {k: self.fields[k].default if x == () else x for k, x in own.items()}
            try:
                records.append(record(**own))
            except ArgumentError as error:
                option, _, reason = str(error).partition(" ")
                known = spelt(option, self.fields[option])[0][-1] if option in self.fields else option
                raise click.UsageError(f"{known} {reason}", ctx) from None
        module = importlib.import_module(f".{declared.module or name}", __package__)
        return importlib.import_module(".console", __package__).run(getattr(module, name), records, ctx)

    def _print_all(self, ctx: click.Context, _: click.Parameter, wanted: bool) -> None:
        if wanted and not ctx.resilient_parsing:
            _exit_after(self.help_text(ctx, whole=True), ctx)

    def get_help(self, ctx: click.Context) -> str:
        """The short help: arguments, the options in front, and how many others there are."""
        return self.help_text(ctx, whole=False)

    def help_text(self, ctx: click.Context, whole: bool) -> str:
        """The help, with all options grouped by record, or the short one where they are many."""
        from textwrap import wrap  # completion needs none

        whole = whole or len(self.fields) <= FEW
        formatter = ctx.make_formatter()
        self.format_usage(ctx, formatter)
        formatter.write_paragraph()
        with formatter.indentation():
            formatter.write_text(_unbroken(inspect.cleandoc(self.help or "")))
        groups: dict[str, list[tuple[str, str]]] = {"Arguments": [], "Options": []}
        more: dict[str, int] = {}

        def place(item: tuple[str, Field]) -> tuple[bool, bool]:
            """Own options come before those that commands share."""
            is_argument = item[1].opt.flag[:1] not in ("", "-")
            return bool(item[1].title), not is_argument and item[1].owner is not self.declared.record

        for name, field in sorted(self.fields.items(), key=place):
            flags, metavar = spelt(name, field)
            row = f"{', '.join(flags)} {metavar}".rstrip(), _unbroken(described(field))
            title = field.title
            if not flags[0].startswith("-"):
                groups["Arguments"].append(row)
            elif whole or not title or field.opt.front:
                groups.setdefault(title if whole and title else "Options", []).append(row)
            else:
                more[title] = more.get(title, 0) + 1
        for title, rows in groups.items():
            if rows:
                with formatter.section(title):
                    formatter.write_dl(rows)
        if more:
            listed = ", ".join(f"{title}{BLANK}({n})" for title, n in more.items())
            formatter.write_paragraph()
            formatter.write_text(_unbroken(f"jtgpu {self.name} --help-all has more options: {listed}"))
        with formatter.section("Examples"):
            for line in self.declared.record.examples:
                lines = wrap(line, formatter.width - 6, break_long_words=False, break_on_hyphens=False)
                formatter.write("  " + "\n      ".join(lines) + "\n")
        return formatter.getvalue().replace(HYPHEN, "-").replace(BLANK, " ").rstrip("\n")


class _Group(click.Group):
    """``jtgpu``."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """All commands, in the order of the help."""
        return [*COMMANDS]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """A command, without its module."""
        return _ClickCommand(cmd_name, COMMANDS[cmd_name]) if cmd_name in COMMANDS else None

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:
        """The command of the first word; the error for another word suggests one."""
        if args[0] not in COMMANDS and not ctx.resilient_parsing and not args[0].startswith("-"):
            ctx.fail(f"there is no command {args[0]!r}{closest(args[0], COMMANDS)}")
        return super().resolve_command(ctx, args)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Names of commands with their help; options of the program."""
        words = [CompletionItem(name, help=summary(name)) for name in COMMANDS if name.startswith(incomplete)]
        return words if not incomplete.startswith("-") else click.Command.shell_complete(self, ctx, incomplete)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands by panel."""
        for panel in dict.fromkeys(command.panel for command in COMMANDS.values()):
            with formatter.section(panel):
                formatter.write_dl([(n, summary(n)) for n, command in COMMANDS.items() if command.panel == panel])


def summary(name: str) -> str:
    """The line of a command in ``jtgpu --help``."""
    return str(COMMANDS[name].record.__doc__).partition("\n")[0]


def _exit_after(text: str, ctx: click.Context) -> NoReturn:
    click.echo(text)
    ctx.exit()


def _version(ctx: click.Context, _: click.Parameter, wanted: bool) -> None:
    if wanted and not ctx.resilient_parsing:
        _exit_after(f"jtgpu {__version__}", ctx)


# what a shell runs when it starts, and the file in which that stands; click completes for these shells
SHELLS = {
    "bash": ('eval "$(_JTGPU_COMPLETE=bash_source jtgpu)"', "~/.bashrc"),
    "zsh": ('eval "$(_JTGPU_COMPLETE=zsh_source jtgpu)"', "~/.zshrc"),
    "fish": ("_JTGPU_COMPLETE=fish_source jtgpu | source", "~/.config/fish/completions/jtgpu.fish"),
}


def _completion(ctx: click.Context, param: click.Parameter, wanted: bool) -> None:
    """Install completion for the shell of $SHELL, or show the script."""
    if not wanted or ctx.resilient_parsing:
        return
    shell = Path(os.environ.get("SHELL", "")).name
    script = get_completion_class(shell) if shell in SHELLS else None
    if script is None:
        raise click.UsageError(f"completion is for {', '.join(SHELLS)}; SHELL is {shell!r}", ctx)
    line, file = SHELLS[shell]
    path = Path(file).expanduser()
    if param.name == "show_completion":
        _exit_after(script(app, {}, "jtgpu", "_JTGPU_COMPLETE").source(), ctx)
    before = path.read_text(encoding="utf-8") if path.is_file() else ""
    if line not in before:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a", encoding="utf-8") as f:  # what the file has is never written again: it could be lost
            f.write(f"{line}\n" if before[-1:] in ("", "\n") else f"\n{line}\n")
    _exit_after(f"{path} has completion for {shell}; it works in the next shell", ctx)


_EAGER: Any = {"is_flag": True, "is_eager": True, "expose_value": False}
app = _Group(
    name="jtgpu", no_args_is_help=True, help="Exact inference in discrete Bayesian networks by junction trees.",
    epilog=f"{EXIT_CODES}\n\n{OUTPUT} Run any command with --help.",
    params=[
        click.Option(["--version"], callback=_version, help="Print the version and exit.", **_EAGER),
        click.Option(["--install-completion"], callback=_completion, help="Complete words in this shell.", **_EAGER),
        click.Option(["--show-completion"], callback=_completion, help="Show the script for that.", **_EAGER),
    ],
)  # fmt: skip
