"""A parser whose errors are one short message: which flag, what is near it, and the way out; no page of usage."""

from __future__ import annotations

import difflib
import importlib
import inspect
import re
import sys
from collections.abc import Collection, Iterable
from typing import NoReturn

from jsonargparse import ArgumentParser
from lightning.pytorch.cli import LightningArgumentParser

_KEY = re.compile(r'Parser key "([^"]+)":')
_CLASS = re.compile(r"Problem with given class_path '([^']+)'")
_OPTION = re.compile(r"Option '([^']+)' is not accepted")
_SETTING = re.compile(r"Subcommand '[^']+' does not accept option '([^']+)'")
_VALUE = re.compile(r"Expected an? (?:<class '([^']+)'>|([^\n]+?))\. Got value: ([^\n]*)")
_UNKNOWN = "unrecognized arguments: "
_MOST = 3


class PlainParser(ArgumentParser):
    """A parser; what it cannot read ends in one message of `told`, and in exit status 2."""

    def error(self, message: str, ex: Exception | None = None) -> NoReturn:
        """Tell and end; a parser inside of another one raises, as the outer one tells."""
        if not self.exit_on_error:
            super().error(message, ex)
        parser = getattr(ex, "subcommand_parser", None) or self
        names = list(parser.get_defaults(skip_validation=True).keys())
        sys.stderr.write(f"error: {told(message, names, parser.prog.replace(' [options]', ''))}\n")
        self.exit(2)


class ShortParser(PlainParser, LightningArgumentParser):
    """Lightning's parser, with the same short errors."""


def told(message: str, names: Collection[str], program: str) -> str:
    r"""A parser's error in short.

    Args:
        message: the parser's own.
        names: the dotted settings that it knows.
        program: what was called, as ``train.py fit``.

    >>> told("unrecognized arguments: --study.limits=3", ["study.limit", "run.name"], "train.py fit")
    '`--study.limits` must be a flag of `train.py fit`. Near it: `--study.limit`. `train.py fit --help` lists all.'
    >>> told('Parser key "study.limit":\n  Expected a <class \'int\'>. Got value: x', [], "train.py fit")
    '`--study.limit` must be int, got x. `train.py fit --help` tells more.'
    """
    unknown = [word.partition("=")[0] for word in _unknown(message)]
    if unknown:
        near = _near(unknown[0].lstrip("-"), names, "--")
        return f"`{unknown[0]}` must be a flag of `{program}`.{near} `{program} --help` lists all."
    keys, classes = _KEY.findall(message), _CLASS.findall(message)
    option = _OPTION.search(message)
    if option and keys and classes:
        accepted = _accepted(classes[-1])
        near = _near(option[1], accepted, f"--{_inside(keys[:1])}") or f" It takes: {', '.join(accepted)}."
        return (
            f"`--{_inside(keys[:1])}{option[1]}` must be an argument of {classes[-1]}.{near} Correct the name, or "
            "choose the config whose data or model takes it."
        )
    values = _VALUE.findall(message)
    if len(values) == 1 and keys:  # several are the members of a union, which the parser's own words tell better
        (plain, other, got), name = values[0], _inside(keys[:-1]) + keys[-1]
        return f"`--{name}` must be {plain or other.removeprefix('typing.')}, got {got}. `{program} --help` tells more."
    return f"{message}\n`{program} --help` lists all flags."


def _unknown(message: str) -> list[str]:
    if message.startswith(_UNKNOWN):
        return message.removeprefix(_UNKNOWN).split()
    setting = _SETTING.search(message)
    return [f"--{setting[1]}"] if setting else []


def _inside(keys: Iterable[str]) -> str:
    """What stands in front of an argument of a class that is a setting's value."""
    return "".join(f"{key}.init_args." if key in ("model", "data") else f"{key}." for key in keys)


def _near(name: str, known: Collection[str], prefix: str) -> str:
    """A sentence with the names that are meant perhaps, or "": those of the same section, else any."""
    section, dot, last = name.rpartition(".")
    beside = [one.removeprefix(section + dot) for one in known if one.startswith(section + dot)]
    found = [section + dot + one for one in difflib.get_close_matches(last, beside, _MOST)]
    found = found or difflib.get_close_matches(name, list(known), _MOST, cutoff=0.8)
    return f" Near it: {', '.join(f'`{prefix}{one}`' for one in found)}." if found else ""


def _accepted(path: str) -> list[str]:
    """Arguments of a class by its dotted path."""
    module, _, name = path.rpartition(".")
    parameters = inspect.signature(getattr(importlib.import_module(module), name)).parameters.values()
    return [p.name for p in parameters if p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL)]
