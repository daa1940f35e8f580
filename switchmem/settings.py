"""Settings of a study that are not a data module, a model or a trainer; each class is a section of the configs.

Their docstrings are the help of ``python train.py fit --help``.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, get_args

from switchmem.actors.spec import ActorSpec
from switchmem.memory.agmem import AGMem, AGMemWhole
from switchmem.memory.app_agent import AppAgent
from switchmem.memory.baseline import Baseline
from switchmem.memory.echotrail import EchoTrail
from switchmem.memory.embedder import Embedder, HashingEmbedder, SentenceTransformerEmbedder
from switchmem.memory.m3a import M3a
from switchmem.memory.rag_gui import RagGui
from switchmem.router import Target

ThresholdRule = Literal["utility", "zero", "match_rate"]
"""How a router's cut is chosen on its training steps."""


class SettingsError(ValueError):
    """A setting breaks a rule; the message names it, the rule, the value and the way out."""


@dataclass
class MemorySettings:
    """How demonstrations are found: the embedder whose cosine ranks them, and that feeds the router.

    Args:
        name: "hashing" (no weights, no download), or a model of sentence-transformers by hub id or folder.
        revision: commit or tag on the hub; None for "hashing".
        dim: length E of a vector of "hashing", at least 16; models bring their own.
        device: "auto" (the accelerator if there is one), or a torch device, which must exist.
        batch_size: items per forward pass of a model, at least 1.
        dtype: of a model, "auto" (as stored), "float32" or "bfloat16".
        prompt: instruction to a model; None takes the model's own.
        max_length: tokens of a text that a model reads, at least 16; None takes the model's own limit. Longer texts are
            counted in the data report.
        max_pixels: larger screenshots are scaled down to this many pixels for a model, at least 1024; None leaves them.
    """

    name: str = "hashing"
    revision: str | None = None
    dim: int = 1024
    device: str = "auto"
    batch_size: int = 8
    dtype: str = "auto"
    prompt: str | None = None
    max_length: int | None = None
    max_pixels: int | None = 1_843_200

    def embedder(self) -> Embedder:
        """The embedder; a model's weights are loaded when it is first used.

        Raises:
            EmbedderError: if an argument is out of range.
        """
        if self.name == "hashing":
            return HashingEmbedder(self.dim)
        return SentenceTransformerEmbedder(
            self.name,
            self.revision,
            self.device,
            self.batch_size,
            self.dtype,
            self.prompt,
            self.max_length,
            self.max_pixels,
        )


@dataclass
class StudySettings:
    """What is learned from a harvest.

    Args:
        targets: the routers to train: "dcoe" is SwitchMem, the others are its ablations. The model's own target is
            trained in any case; an empty list trains it alone.
        seeds: a router of each target is trained per seed. The first one's router is the run's policy.
        probe_layers: blocks whose states are kept for the layer study; None takes five spread over the depth.
        layer: block whose states the estimator and the router read: one of the probed blocks, or a negative number
            that counts them from the end (-1 is the last probed one); a list takes the average of several. None takes
            the last.
        samples: use the first so many samples of each step, at least 1; None takes all that were harvested.
        threshold: the router's cut: "utility" has the highest utility on the training steps, "zero" is 0, and
            "match_rate" chooses Image on as large a share of steps as prefer it among the non-tied ones.
        bank_fraction: share of the bank's trajectories that may be retrieved, in (0, 1]; a smaller bank is part of a
            larger one.
        components: principal axes of the preference estimator, at least 1.
        cross_fit: give each step the target of an estimator that did not see its trajectory.
        agree: samples that must agree for a step to count as stable; None takes 5/7 of them, rounded up.
        limit: harvest at most this many steps of each part, spread over all of them, for a quick look; None takes all.
        bootstrap: resamples of trajectories behind each confidence interval, at least 100.
        worth: points of score, > 0, below which a gain is not worth having, for the verdict of `audit`.

    Raises:
        SettingsError: if a rule above is broken.
    """

    targets: list[Target] = field(default_factory=lambda: list(get_args(Target)))
    seeds: list[int] = field(default_factory=lambda: [0, 1, 2])
    probe_layers: list[int] | None = None
    layer: int | list[int] | None = None
    samples: int | None = None
    threshold: ThresholdRule = "utility"
    bank_fraction: float = 1.0
    components: int = 64
    cross_fit: bool = False
    agree: int | None = None
    limit: int | None = None
    bootstrap: int = 20_000
    worth: float = 1.0

    def __post_init__(self) -> None:
        for name, least in (("targets", 0), ("seeds", 1)):
            values = getattr(self, name)
            if len(values) < least or len(set(values)) != len(values):
                wanted = "at least one value and no repeats" if least else "no repeats"
                raise SettingsError(f"`study.{name}` must hold {wanted}, got {values}.")
        for name, least in (("components", 1), ("limit", 1), ("samples", 1), ("bootstrap", 100)):
            value = getattr(self, name)
            if value is not None and value < least:
                raise SettingsError(f"`study.{name}` must be at least {least}, got {value}.")
        if not 0.0 < self.bank_fraction <= 1.0:
            raise SettingsError(f"`study.bank_fraction` must be in (0, 1], got {self.bank_fraction}. 1 takes all.")
        if not self.worth > 0.0:
            raise SettingsError(f"`study.worth` must be > 0, got {self.worth}. It is in points of score, of 100.")


BaselineName = Literal["rag_gui", "m3a", "app_agent", "echotrail", "agmem", "agmem_whole"]
"""The memory baselines; each is a section of `BaselineSettings`."""

WriterName = Literal["actor", "template", "model"]
"""Who writes what a baseline lets a model write."""


@dataclass
class BaselineSettings:
    """Which memory baselines `test` scores beside the fixed conditions, and who writes for them.

    Args:
        names: the baselines; none by default. Each is one more pass of the actor over the test part.
        writer: "actor" is the run's own actor; "template" fills the same fields from the record by rule, without a
            model and without a call; "model" is the one below.
        model: another actor that writes, for the writer "model", as the fields of an actor's config, such as
            ``{model: NAME, grammar: mobile_use, endpoint: {base_url: "http://localhost:8000/v1"}}``; None otherwise.
        writer_batch: calls that the writer answers together, at least 1.
        rag_gui: settings of RAG-GUI.
        m3a: settings of M3A.
        app_agent: settings of AppAgent.
        echotrail: settings of EchoTrail.
        agmem: settings of AGMem's action-grounded view.
        agmem_whole: settings of AGMem with its own retrieval.

    Raises:
        SettingsError: if a rule above is broken.
    """

    names: list[BaselineName] = field(default_factory=list)
    writer: WriterName = "actor"
    model: ActorSpec | None = None
    writer_batch: int = 8
    rag_gui: RagGui = field(default_factory=RagGui)
    m3a: M3a = field(default_factory=M3a)
    app_agent: AppAgent = field(default_factory=AppAgent)
    echotrail: EchoTrail = field(default_factory=EchoTrail)
    agmem: AGMem = field(default_factory=AGMem)
    agmem_whole: AGMemWhole = field(default_factory=AGMemWhole)

    def __post_init__(self) -> None:
        if len(set(self.names)) != len(self.names):
            raise SettingsError(f"`baselines.names` must not repeat a name, got {self.names}.")
        if (self.writer == "model") != (self.model is not None):
            raise SettingsError(
                f"`baselines.model` must be given with the writer 'model', and only then, got writer {self.writer!r} "
                f"and {'no model' if self.model is None else self.model.model!r}. Change one of them."
            )
        if self.writer_batch < 1:
            raise SettingsError(f"`baselines.writer_batch` must be at least 1, got {self.writer_batch}.")

    def chosen(self) -> list[Baseline]:
        """The baselines that are asked for, in the order of their names."""
        found: list[Baseline] = [getattr(self, name) for name in self.names]
        return found


PolicyName = Literal["none", "text", "image", "both", "switchmem"]
"""What a rollout plays: the fixed forms of memory, and the policy's choice."""


@dataclass
class RolloutSettings:
    """How MobileMiniWoB++ is played online.

    Args:
        policy: a run's ``policy`` folder, or owner/name on the hub; it must be of this actor and embedder. None plays
            the fixed forms alone.
        policies: what is compared, on the same instances.
        tasks: names of tasks; None takes all 92.
        max_steps: actions in an episode, at least 1; AndroidWorld allows 30.
        workers: episodes at a time, each in a browser of its own, at least 1; None takes one per core, at most 8. The
            actor is asked in turns.
        bank: who makes the demonstrations: "actor", its own successes at `bank_seed`, or "demonstrators", scripts that
            solve the tasks there, for an actor that succeeds too rarely. The results name it.
        bank_seed: suite seed of the bank.
        calibration_seed: suite seed of the first screens on which the threshold is chosen.
        evaluation_seed: suite seed of the evaluation; the three must differ.
        threshold: "match_rate" chooses Image on as large a share of the calibration's screens as in the policy's
            training, "policy" keeps the policy's own cut.
        max_new_tokens: the most tokens of an answer, at least 1.
        html_root: the folder of the pages, such as AndroidWorld's own; None takes those of the package `miniwob`.
        environment: "chromium", or "emulator" for AndroidWorld's own app on a running Android emulator.
        console_port: of that emulator.
        adb_path: of Android's debug bridge, for the emulator.
        padded: whether screenshots show the phone's whole screen, its bars in white, instead of the page alone.
        stuck: end an episode as failed once so many equal screens came in a row, at least 2; None never does, as in the
            paper. A greedy actor mostly repeats itself on an equal screen, so that this saves time on small machines.
        bootstrap: resamples of tasks behind each confidence interval, at least 100.

    Raises:
        SettingsError: if a rule above is broken.
    """

    policy: str | None = None
    policies: list[PolicyName] = field(default_factory=lambda: list(get_args(PolicyName)))
    tasks: list[str] | None = None
    max_steps: int = 30
    workers: int | None = None
    bank: Literal["actor", "demonstrators"] = "actor"
    bank_seed: int = 1001
    calibration_seed: int = 43
    evaluation_seed: int = 42
    threshold: Literal["match_rate", "policy"] = "match_rate"
    max_new_tokens: int = 128
    html_root: str | None = None
    environment: Literal["chromium", "emulator"] = "chromium"
    console_port: int = 5554
    adb_path: str = "adb"
    padded: bool = False
    stuck: int | None = None
    bootstrap: int = 20_000

    def __post_init__(self) -> None:
        for name, values in (("policies", self.policies), ("tasks", self.tasks)):
            if values is not None and (not values or len(set(values)) != len(values)):
                raise SettingsError(f"`rollout.{name}` must hold at least one name and no repeats, got {values}.")
        least = {"max_steps": 1, "workers": 1, "max_new_tokens": 1, "stuck": 2, "bootstrap": 100}
        for name, bound in least.items():
            value = getattr(self, name)
            if value is not None and value < bound:
                raise SettingsError(f"`rollout.{name}` must be at least {bound}, got {value}.")
        seeds = (self.bank_seed, self.calibration_seed, self.evaluation_seed)
        if len(set(seeds)) < len(seeds):
            raise SettingsError(
                f"`rollout.bank_seed`, `calibration_seed` and `evaluation_seed` must differ, got {seeds}: no instance "
                "may be in two of them."
            )


@dataclass
class RunSettings:
    """Where a run writes.

    Args:
        name: the run's folder in `dir`; a plain name.
        dir: the folder of all runs, relative to the working directory.
        stages_dir: the folder of the stages that runs share; None takes ``<dir>/stages``.
        threads: PyTorch's CPU threads, at least 1; None leaves the choice to PyTorch. The matrices of a router and of
            the pocket actor are so small that a second thread mostly waits, and on shared cores makes others wait.
        report: whether `test` and `rollout` end by writing the report's page, ``report/index.html``.

    Raises:
        SettingsError: if the name is empty, reserved or holds a path separator, or `threads` is below 1.
    """

    name: str = "default"
    dir: str = "runs"
    stages_dir: str | None = None
    threads: int | None = None
    report: bool = True

    def __post_init__(self) -> None:
        if self.threads is not None and self.threads < 1:
            raise SettingsError(f"`run.threads` must be at least 1 or null, got {self.threads}.")
        if self.name in ("", ".", "..", "stages") or "/" in self.name or "\\" in self.name:
            raise SettingsError(f"`run.name` must be a plain folder name and not 'stages', got {self.name!r}.")
