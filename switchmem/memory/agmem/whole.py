"""AGMem whole: subtasks and two-stage retrieval of action-grounded views (arXiv 2606.14106, section 3).

It is a baseline like the others, so that it runs in `test` and in an agent. It shows other steps than the retrieved
one, since its own retrieval is part of its method. In an agent its recovery memory checks each action before it is
carried out (`switchmem.memory.agmem.guard`); in recorded steps there is nothing to recover from.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, ClassVar

import torch
from torch import Tensor

from switchmem.memory.agmem import subtasks
from switchmem.memory.agmem.config import CropConfig, crop_config
from switchmem.memory.agmem.guard import Guard, GuardConfig, guard_config
from switchmem.memory.agmem.retrieval import combined, cover, nearest
from switchmem.memory.agmem.traces import bank_traces
from switchmem.memory.agmem.view import ActionView, view_of
from switchmem.memory.baseline import (
    Baseline,
    BaselineError,
    Charge,
    Scene,
    Showing,
    Surroundings,
    View,
    Writer,
    WriterCall,
    Written,
)
from switchmem.memory.views import Part, one_line
from switchmem.memory.writing import Unusable
from switchmem.steps import Step

_KEPT = 512
"""Trajectories whose step vectors are kept."""


@dataclass
class Store:
    """The memory bank as AGMem holds it; filled once, vectors of steps as they are needed.

    Args:
        traces: step ids of each trajectory, in order.
        labels: the subtask label of each step.
        vectors: of each trajectory its distinct labels' vectors, ``[q, E]``.
        keys: of some trajectories their steps' combined vectors, ``[n, E]``.
    """

    traces: dict[str, tuple[str, ...]] = field(default_factory=dict)
    labels: dict[str, str] = field(default_factory=dict)
    vectors: dict[str, Tensor] = field(default_factory=dict)
    keys: dict[str, Tensor] = field(default_factory=dict)


@dataclass(frozen=True)
class AGMemWhole(Baseline):
    """Subtask-aligned, action-grounded memory steps.

    Args:
        crop: constants of the crop.
        least: shortest side of a crop in pixels, at least 1.
        pool: trajectories of the first stage (the paper's k), at least 1.
        close: cosine in [-1, 1] from which a trajectory's label is close to a subtask.
        steps: memory steps that are shown, at least 1; the paper shows 5.
        text_weight: weight of the label against the view, in [0, 1]; the paper's is 0.5.
        subtasks: the most of a plan, at least 1.
        written_tokens: the most tokens of a plan or of a trajectory's labels, at least 1.
        guard: whether and how actions are checked before they are carried out, in an agent.

    Raises:
        BaselineError: if a setting breaks a rule above.
    """

    name: ClassVar[str] = "agmem_whole"
    shows_image: ClassVar[bool] = True
    words: ClassVar[dict[str, str]] = {
        **{f"subtasks.{name}": text for name, text in subtasks.WORDS.items()},
        "plan": "\nThe task's subtasks:\n{plan}\nThe current subtask: {current}\n",
        "step": "\nMemory {number}, of the task: {instruction}\nIts subtask: {label}\nIts action: {action}",
        "part": "\nWhat the action changed, cut from the next screen, from {start} to {end} of the whole screen; all "
        "places are those of the whole screen:\n",
        "whole": "\nIts screen:\n",
    }

    crop: CropConfig = field(default_factory=CropConfig)
    least: int = 32
    pool: int = 5
    close: float = 0.5
    steps: int = 5
    text_weight: float = 0.5
    subtasks: int = 8
    written_tokens: int = 256
    guard: GuardConfig = field(default_factory=GuardConfig)

    def __post_init__(self) -> None:
        object.__setattr__(self, "crop", crop_config(self.crop))  # a config's section comes as a mapping
        object.__setattr__(self, "guard", guard_config(self.guard))
        for name in ("least", "pool", "steps", "subtasks", "written_tokens"):
            if getattr(self, name) < 1:
                raise BaselineError(f"`{self.name}.{name}` must be at least 1, got {getattr(self, name)}.")
        for name, low in (("close", -1.0), ("text_weight", 0.0)):
            if not low <= getattr(self, name) <= 1.0:
                raise BaselineError(f"`{self.name}.{name}` must be in [{low:g}, 1], got {getattr(self, name)}.")

    def identity(self) -> dict[str, Any]:
        """See `Baseline.identity`. The guard has no part in it: a recorded step's answer does not depend on it."""
        settings = asdict(self)
        del settings["guard"]
        return {**super().identity(), "settings": settings}

    def played_identity(self) -> dict[str, Any]:
        """See `Baseline.played_identity`."""
        return {**self.identity(), "guard": self.guard.identity()}

    def checker(self, surroundings: Surroundings, writer: Writer) -> Guard | None:
        """See `Baseline.checker`; its recovery memory is made once for the bank."""
        if not self.guard.enabled:
            return None

        def build() -> Guard:
            return Guard.build(surroundings, writer, self.guard, self.crop)

        return surroundings.once(f"{self.name} guard", build)

    def show(self, scene: Scene) -> Showing:
        """Two rounds: the plan, and once for the bank all labels; then which subtask is the current one."""
        around, faults, once = scene.surroundings, list[str](), dict[str, str]()
        past = around.before(scene.step)
        store = around.once(f"{self.name} store", Store)
        plan = yield from self._plan(scene, past, store, faults, once)
        (written,) = yield [subtasks.current_call(scene.step, past, plan, self.written_tokens)]
        try:
            current = subtasks.read_current(written.text, len(plan))
        except Unusable as error:
            faults.append(f"current subtask: {error.fault.value}")
            current = subtasks.template_current(past, plan)
        found = self._retrieve(scene, past, plan, plan[current], store)
        told = self.words["plan"].format(
            plan="\n".join(f"{n}. {subtask}" for n, subtask in enumerate(plan, 1)), current=plan[current]
        )
        parts: list[Part] = [told]
        notes = [] if found else ["no memory"]
        for number, step in enumerate(found, 1):
            view = self._view(around, step)
            parts += self._told(number, step, view, store.labels[step.step_id], scene)
            notes.append(f"view: {view.crop.reason.value}")
        return View(memory=tuple(parts), fallbacks=tuple(faults), notes=tuple(notes), kept=1, once=once)

    # --- what is written ---

    def _plan(
        self, scene: Scene, past: Sequence[Step], store: Store, faults: list[str], once: dict[str, str]
    ) -> Generator[Sequence[WriterCall], Sequence[Written], tuple[str, ...]]:
        around, instruction = scene.surroundings, scene.step.instruction
        charge = Charge.EARLIER if past else Charge.STEP
        asked = [] if store.traces else list(bank_traces(around))
        calls = [subtasks.label_call(trace, self.written_tokens) for trace in asked]
        first = subtasks.plan_call(instruction, self.subtasks, self.written_tokens, charge)
        answers = yield [first, *calls]
        if not store.traces:  # a scene beside this one may have filled it meanwhile
            self._fill(store, asked, [answer.text for answer in answers[1:]], around, once)
        try:
            return subtasks.read_plan(answers[0].text, self.subtasks)
        except Unusable as error:
            faults.append(f"plan: {error.fault.value}")
            return (one_line(instruction),)

    def _fill(
        self,
        store: Store,
        traces: Sequence[Sequence[Step]],
        texts: Sequence[str],
        around: Surroundings,
        once: dict[str, str],
    ) -> None:
        for trace, text in zip(traces, texts, strict=True):
            name = trace[0].trajectory
            try:
                labels = subtasks.read_labels(text, len(trace))
            except Unusable as error:
                once[f"labels of {name}"] = f"labels: {error.fault.value}"
                labels = subtasks.template_labels(trace)
            store.traces[name] = tuple(step.step_id for step in trace)
            store.labels.update(zip(store.traces[name], labels, strict=True))
            store.vectors[name] = around.embed(list(dict.fromkeys(labels)))

    # --- the two stages ---

    def _retrieve(
        self, scene: Scene, past: Sequence[Step], plan: Sequence[str], current: str, store: Store
    ) -> list[Step]:
        around = scene.surroundings
        names = list(store.traces)
        usable = around.usable(scene.step, [step_id for name in names for step_id in store.traces[name]])
        near = torch.full((len(plan), len(names)), -torch.inf)
        wanted = around.embed(list(plan))
        for place, name in enumerate(names):
            if usable.intersection(store.traces[name]):
                near[:, place] = (wanted @ store.vectors[name].T).amax(dim=1)
        pool = [names[place] for place in cover(near, self.pool, self.close)] if names else []
        ids = [step_id for name in pool for step_id in store.traces[name]]
        if not ids:
            return []
        keys = torch.cat([self._keys(around, name, store) for name in pool])
        kept = [n for n, step_id in enumerate(ids) if step_id in usable]
        query = combined(around.embed([current]), self._seen(scene, past), self.text_weight)[0]
        hits = nearest(query, keys[kept], self.steps)
        return [around.demonstration(ids[kept[place]]) for place, _ in hits]

    def _seen(self, scene: Scene, past: Sequence[Step]) -> Tensor:
        """``[1, E]`` of the previous step's view; of the whole screen where there is no previous step."""
        step = scene.step
        if past and past[-1].index == step.index - 1:
            picture = view_of(past[-1], step, self.crop, self.least, "after").picture
        else:
            picture = step.screenshot.image()
        return scene.surroundings.embed_pictures([picture])

    def _keys(self, around: Surroundings, name: str, store: Store) -> Tensor:
        if name not in store.keys:
            ids = store.traces[name]
            pictures = [self._view(around, around.demonstration(step_id)).picture for step_id in ids]
            texts = around.embed([store.labels[step_id] for step_id in ids])
            store.keys[name] = combined(texts, around.embed_pictures(pictures), self.text_weight)
            while len(store.keys) > _KEPT:
                del store.keys[next(iter(store.keys))]
        return store.keys[name]

    def _view(self, around: Surroundings, step: Step) -> ActionView:
        after = next((other for other in around.trace(step) if other.index == step.index + 1), None)
        return view_of(step, after, self.crop, self.least, "after")

    def _told(self, number: int, step: Step, view: ActionView, label: str, scene: Scene) -> tuple[Part, ...]:
        style = scene.style.for_screen((step.screenshot.width, step.screenshot.height))
        text = self.words["step"].format(
            number=number, instruction=one_line(step.instruction), label=label, action=style.action(step.action)
        )
        if view.crop.is_whole:
            return (text + self.words["whole"], view.picture)
        left, top, right, bottom = view.crop.box
        width, height = view.step.screenshot.width, view.step.screenshot.height
        corners = style.point(left / width, top / height), style.point(right / width, bottom / height)
        return (text + self.words["part"].format(start=corners[0], end=corners[1]), view.picture)
