"""AITW as SwitchMem uses it: parts drawn from its official splits, converted from its TFRecord shards."""

from __future__ import annotations

import shutil
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import Any, Literal

from data_modules.base import StepsDataModule
from data_modules.parts import PartSteps, finish_parts
from switchmem.benchmarks.aitw.records import CATEGORIES, AitwReader, category_of, is_shard
from switchmem.benchmarks.aitw.split_files import choose_split_files, read_split_files, recording_of
from switchmem.benchmarks.base import DataError, DataReport
from switchmem.benchmarks.convert import CHUNKS, Survey, convert, survey
from switchmem.benchmarks.sources import SourceFile, find_files, is_url, open_source
from switchmem.benchmarks.split_report import in_two_parts, some
from switchmem.benchmarks.splits import (
    AITW_SIZES,
    BANK,
    PREFERENCE,
    RECIPE,
    TEST,
    Balance,
    PartSize,
    Split,
    seeded_roles,
    split_steps,
)
from switchmem.console import progress, say
from switchmem.stages import Stage, fingerprint, write_json
from switchmem.steps import Step

SPLITS = "splits/"
SPLIT_REPORT = "split_report.json"

NOT_OFFICIAL = "This is not AITW's official split: no split files were found, and trajectories were divided by chance."
GUIDE = (
    "`root` must be a folder (or an fsspec URL) laid out as AITW's authors publish it:\n"
    "    DIR/general/general-00000-of-00321 ...   and google_apps, install, single, web_shopping, or some of them\n"
    "    DIR/splits/standard.json                 or DIR/splits/<set>_texts_splits.json\n"
    "They publish it at gs://gresearch/android-in-the-wild, described at\n"
    "https://github.com/google-research/google-research/tree/master/android_in_the_wild\n"
    "Say where it is with `--data.init_args.root DIR`. Without any data, `--config pocket.yaml` runs in minutes."
)


def missing_shards(shards: Iterable[SourceFile]) -> list[str]:
    """A sentence for each set of which shards are absent, by their own names: ``general-00000-of-00321``.

    >>> missing_shards([SourceFile("general-00000-of-00321", "general-00000-of-00321", 1, "")])
    ['AITW is here in part: 1 of 321 shards of general.']
    """
    found: dict[str, set[str]] = {}
    for shard in shards:
        name, _, total = shard.name.rpartition("-of-")
        found.setdefault(f"{total} shards of {category_of(shard)}", set()).add(name)
    return [
        f"AITW is here in part: {len(names)} of {int(what.split()[0])}{what[what.index(' ') :]}."
        for what, names in sorted(found.items())
        if len(names) < int(what.split()[0])
    ]


class AitwDataModule(StepsDataModule):
    """Android in the Wild: preference queries, their memory and test queries of the paper's sizes.

    How they are drawn: `switchmem.benchmarks.splits`. Preference queries retrieve from the bank, inside their own
    category; test queries from preference and bank together. ``split_report.json`` beside the step stores tells what
    was drawn, what the official files list twice, and that no trajectory is in two parts.

    The shards are read twice, once to see what they hold and once to convert what was drawn. What the first pass found
    is kept per shard, so that another seed or size costs only the second.

    Args:
        root: folder of shards, local or an fsspec URL (``gs://gresearch/android-in-the-wild``).
        splits: folder of split files, or one file, local or fsspec URL; null takes those in ``root/splits``, and a
            division by chance where there are none.
        preference: steps and trajectories of the preference queries.
        bank: steps and trajectories of their memory.
        test: steps and trajectories of the test queries.
        categories: which of AITW's sets to use; null takes all that are there.
        balance: "equal" takes as many trajectories of each category, "proportional" as the data has them.
        apart: "recording" keeps all segments of one recording out of each other's parts, "trajectory" only the official
            episodes, of which some show the same screens.
        test_share: share of trajectories held out for the test where there are no split files, in (0, 1).
        workers: processes that read shards; null takes one per core. The result does not depend on it.
        batch_size: steps per forward pass of the actor, at least 1.
        num_workers: processes that read steps for the actor, at least 0.
        router_batch_size: steps per training batch of the router, at least 1.
        val_fraction: share of trajectories on which the router's fit is validated, in [0, 1); 0 turns validation off.
        seed: draws the parts, the validation trajectories and the training order.

    Raises:
        DataError: if there is no shard in `root`, or another argument breaks its rule.
    """

    same_category = frozenset({PREFERENCE})
    test_bank: tuple[str, ...] = (PREFERENCE, BANK)

    def __init__(
        self,
        root: str,
        splits: str | None = None,
        preference: PartSize = AITW_SIZES[PREFERENCE],
        bank: PartSize = AITW_SIZES[BANK],
        test: PartSize = AITW_SIZES[TEST],
        categories: list[str] | None = None,
        balance: Literal["equal", "proportional"] = "equal",
        apart: Literal["recording", "trajectory"] = "recording",
        test_share: float = 0.1,
        workers: int | None = None,
        batch_size: int = 8,
        num_workers: int = 0,
        router_batch_size: int = 256,
        val_fraction: float = 0.1,
        seed: int = 42,
    ) -> None:
        super().__init__(batch_size, num_workers, router_batch_size, val_fraction, seed)
        _check(categories, test_share, workers)
        self.root, self.splits, self.workers = root, splits, workers
        self.sizes = {PREFERENCE: preference, BANK: bank, TEST: test}
        self.categories = tuple(CATEGORIES if categories is None else categories)
        self.balance: Balance = balance
        self.apart, self.test_share = apart, test_share
        self.shards, self.split_files = self._find()
        self.notes = (*(() if self.split_files else (NOT_OFFICIAL,)), *missing_shards(self.shards))

    def _find(self) -> tuple[list[SourceFile], list[SourceFile]]:
        """Shards of the wanted sets, and split files, which may be none."""

        def wanted(name: str) -> bool:
            return is_shard(name) or (name.startswith(SPLITS) and name.endswith(".json"))

        try:
            found = find_files(self.root, wanted)
        except DataError as error:
            raise DataError(f"AITW's shards are missing: {error}\n{GUIDE}") from error
        shards = [source for source in found if not source.name.endswith(".json")]
        shards = [source for source in shards if category_of(source) in self.categories]
        if not shards:
            where = self.root if is_url(self.root) else Path(self.root).absolute()
            raise DataError(f"AITW's shards are missing: none of {', '.join(self.categories)} in {where}.\n{GUIDE}")
        files = [source for source in found if source.name.endswith(".json")]
        if self.splits is not None:
            try:
                files = find_files(self.splits, lambda name: name.endswith(".json"))
            except DataError as error:
                raise DataError(
                    f"AITW's split files are missing: {error} `splits` names their folder or file."
                ) from error
        return shards, choose_split_files(files) if files else []

    @cached_property
    def _split_digests(self) -> dict[str, str]:
        digests = {}
        for source in self.split_files:
            with open_source(source) as file:
                digests[source.name] = sha256(file.read()).hexdigest()
        return digests

    def fingerprint(self) -> Any:
        """Names, sizes and times of the shards, the split files' content, and all that decides what is drawn."""
        facts = [(source.name, source.size, source.stamp) for source in self.shards]
        return {
            "benchmark": "aitw",
            "shards": fingerprint(facts),
            "splits": self._split_digests,
            "sizes": {name: [size.steps, size.trajectories] for name, size in self.sizes.items()},
            "categories": sorted(self.categories),
            "balance": self.balance,
            "apart": self.apart,
            "test_share": None if self.split_files else self.test_share,
            "seed": self.seed,
            "recipe": RECIPE,
        }

    def read(self, report: DataReport) -> Mapping[str, PartSteps]:
        """Steps by part, read one after another; `write` gives the same steps faster."""
        found = self._survey()
        report.merge(found.report)
        parts = self._split(found).parts
        steps: dict[str, PartSteps] = {name: self._steps(ids) for name, ids in parts.items()}
        return {**steps, TEST: steps[TEST] if parts[TEST] else None, "test_bank": self.test_bank}

    def _steps(self, ids: Collection[str]) -> Iterator[Step]:
        """The first copy of each of these steps."""
        left = set(ids)
        for source in self.shards:
            for step in AitwReader().read(source, left, DataReport()):
                if step.step_id in left:
                    left.remove(step.step_id)
                    yield step

    def write(self, stage: Stage, report: DataReport) -> None:
        """Survey the shards, draw the parts, convert them on all cores; a second call goes on after a kill."""
        found = self._survey()
        try:
            split = self._split(found)
            folder = stage.begin()
            kept = len(list((folder / CHUNKS).glob("*.json")))
            if kept:
                say(f"AITW: {kept} converted pieces kept from an interrupted run in {folder}")
            with progress("converting AITW") as advance:
                counts = convert(found.reader, found, split.parts, folder, self.workers, advance)
        finally:
            report.merge(found.report)
        write_json(folder / SPLIT_REPORT, split.report)
        say(f"AITW: {told(split)}; how they were drawn is in {folder / SPLIT_REPORT}")
        layout = {
            PREFERENCE: [PREFERENCE],
            BANK: [BANK],
            TEST: [TEST] if counts[TEST] else [],
            "test_bank": self.test_bank,
        }
        finish_parts(stage, layout, {name: n for name, n in counts.items() if n or name != TEST}, report)
        shutil.rmtree(folder / CHUNKS, ignore_errors=True)

    def _survey(self) -> Survey:
        """What the shards hold. Shared by all splits of one root, and kept shard by shard."""
        stage = self.stages.stage("survey", {"aitw": self.root})
        with stage.lock(), progress("surveying AITW") as advance:
            found = survey(AitwReader(), self.shards, stage.begin(), self.workers, advance)
            stage.finish(shards=len(self.shards), steps=found.report.kept)
        return found

    def _split(self, found: Survey) -> Split:
        """Draw the parts.

        Raises:
            DataError: if there are no preference queries or no memory for them.
        """
        recording = recording_of if self.apart == "recording" else str
        if self.split_files:
            official = read_split_files(self.split_files)
            roles, source = official.roles, official.to_dict()
        else:
            roles = seeded_roles(found.episodes, self.test_share, self.seed, recording)
            source = {"source": "by chance: no split files were found", "test_share": self.test_share, "conflicts": []}
        split = split_steps(found.episodes, roles, self.sizes, self.seed, self.balance, recording)
        if not split.parts[PREFERENCE]:
            data, not_listed = split.report["data"], split.report["not_listed"]
            raise DataError(
                "AITW's train episodes must give preference queries and a memory for them, which takes two of a "
                f"category that are not of one recording, got {data} by role, and {not_listed} in no split file. "
                f"Add shards to {self.root}, or check that the split files belong to them."
            )
        shared = in_two_parts(split.parts, recording_of)
        report = {"apart": self.apart, "recordings_in_two_parts": some(shared), "roles": source, **split.report}
        return Split(split.parts, report)


def told(split: Split) -> str:
    """One line on a split: what was found of what was asked, and where the official files disagree."""
    found, asked = split.report["found"], split.report["asked"]
    parts = [
        f"{name} {found[name]['steps']} of {asked[name]['steps']} steps, {found[name]['trajectories']} of "
        f"{asked[name]['trajectories']} trajectories"
        for name in split.parts
    ]
    conflicts = len(split.report["roles"]["conflicts"])
    twice = f"; {conflicts} id{'' if conflicts == 1 else 's'} listed twice, not trained on" if conflicts else ""
    return "; ".join(parts) + twice


def _check(categories: Sequence[str] | None, test_share: float, workers: int | None) -> None:
    unknown = [name for name in categories or [] if name not in CATEGORIES]
    if unknown or categories == []:
        raise DataError(
            f"`categories` must be some of {', '.join(CATEGORIES)}, got {list(categories or [])}. Null takes all."
        )
    if not 0.0 < test_share < 1.0:
        raise DataError(f"`test_share` must be in (0, 1), got {test_share}.")
    if workers is not None and workers < 1:
        raise DataError(f"`workers` must be at least 1, got {workers}. Null takes one per core.")
