"""Functions of a resolved config: compare two, make one plain, and say what decides a router's weights."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from pathlib import Path
from typing import Any

ELSEWHERE: Mapping[str, frozenset[str]] = {
    # each router has its own
    "model": frozenset({"target"}),
    # where, on what and how loudly a router is trained
    "trainer": frozenset(
        "accelerator strategy logger default_root_dir profiler num_sanity_val_steps "
        "log_every_n_steps enable_checkpointing enable_progress_bar enable_model_summary "
        "limit_test_batches limit_predict_batches".split()
    ),
    # the steps themselves count through the stages before
    "data": frozenset({"root", "batch_size", "num_workers"}),
}
"""Arguments that do not decide a router's weights. Whatever is not named here does."""


MEASURED: Mapping[str, frozenset[str]] = {
    "model": frozenset(),
    "sampling": frozenset({"max_new_tokens"}),
    "study": frozenset({"bootstrap", "limit", "worth"}),
    "trainer": ELSEWHERE["trainer"] | {"devices", "num_nodes"},
    "data": ELSEWHERE["data"],
}
"""Arguments that `test` does not ignore."""


def flatten(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested settings by dotted name.

    >>> flatten({"a": 1, "b": {"c": 2}})
    {'a': 1, 'b.c': 2}
    """
    flat: dict[str, Any] = {}
    for name, value in values.items():
        flat |= flatten(value, f"{prefix}{name}.") if isinstance(value, Mapping) else {prefix + name: value}
    return flat


def differing(asked: Mapping[str, Any], got: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Settings that two configs do not share, as (asked, got) by dotted name; None where one lacks it.

    >>> differing({"lr": 1, "width": {"d": 2}}, {"lr": 1, "width": {"d": 3}})
    {'width.d': (2, 3)}
    """
    ours, theirs = flatten(asked), flatten(got)
    names = sorted({*ours, *theirs})
    return {n: (ours.get(n), theirs.get(n)) for n in names if ours.get(n) != theirs.get(n)}


def changes(found: Mapping[str, tuple[Any, Any]], most: int = 6) -> str:
    """The first settings of `differing` in words.

    >>> changes({"width.d": (2, 3)})
    'width.d was 2 and is now 3'
    """
    told = [f"{name} was {then!r} and is now {now!r}" for name, (then, now) in found.items()]
    more = [f"and {len(told) - most} more"] if len(told) > most else []
    return "; ".join([*told[:most], *more])


def plain(value: Any) -> Any:
    """Settings as JSON values: enums by value, paths and whatever else by their text.

    >>> plain({"a": (1, Path("x"))})
    {'a': [1, 'x']}
    """
    if isinstance(value, Mapping):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(v) for v in value]
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, Path) or not isinstance(value, (str, int, float, bool, type(None))):
        return str(value)
    return value


def ignored_by_test(fitted: Mapping[str, Any], asked: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Settings that `test` would ignore, since they were decided when the policy was made, as (fitted, asked).

    Args:
        fitted: the resolved config of `fit`.
        asked: the resolved config of `test`.

    >>> ignored_by_test({"model": {"lr": 1}, "data": {"root": "a"}}, {"model": {"lr": 2}, "data": {"root": "b"}})
    {'model.lr': (1, 2)}
    >>> ignored_by_test({"trainer": {"logger": None}}, {"trainer": {"logger": {"class_path": "WandbLogger"}}})
    {}
    """
    return differing(_kept(fitted, MEASURED), _kept(asked, MEASURED))


HARVESTED: Mapping[str, frozenset[str]] = {
    "data": frozenset({"batch_size", "num_workers"}),
    "actor": frozenset({"device", "max_batch_tokens"}),
    "memory": frozenset({"device", "batch_size"}),
    "sampling": frozenset(),
}
"""Sections that decide what is harvested, and their arguments that do not."""


def other_harvest(fitted: Mapping[str, Any], asked: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Settings by which a harvest would be another one than that of `fit`, as (fitted, asked).

    Args:
        fitted: the resolved config of `fit`.
        asked: the resolved config of another command.

    >>> other_harvest({"data": {"root": "a", "batch_size": 1}}, {"data": {"root": "b", "batch_size": 2}})
    {'data.root': ('a', 'b')}
    """
    return differing(_kept(fitted, HARVESTED), _kept(asked, HARVESTED))


def _kept(config: Mapping[str, Any], sections: Mapping[str, frozenset[str]]) -> dict[str, Any]:
    """Some sections of a config, each without some arguments."""
    flat = {name: flatten(config.get(name) or {}) for name in sections}
    return {
        name: {k: v for k, v in values.items() if not sections[name].intersection(k.split("."))}
        for name, values in flat.items()
    }


def router_settings(
    model: Mapping[str, Any], trainer: Mapping[str, Any], data: Mapping[str, Any]
) -> dict[str, dict[str, Any]]:
    """Everything in a config that decides a router's weights, as plain JSON values.

    Args:
        model: class path and arguments of the model.
        trainer: arguments of the trainer.
        data: class path and arguments of the data module.

    >>> router_settings({"lr": 1}, {"logger": {"class_path": "WandbLogger"}}, {"init_args": {"root": "a", "seed": 2}})
    {'model': {'lr': 1}, 'trainer': {}, 'data': {'init_args.seed': 2}}
    """
    sections = {"model": model, "trainer": trainer, "data": data}
    return {
        name: {k: plain(v) for k, v in flatten(values).items() if not ELSEWHERE[name].intersection(k.split("."))}
        for name, values in sections.items()
    }
