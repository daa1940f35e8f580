"""The frozen actor under a Trainer."""

from __future__ import annotations

from dataclasses import dataclass, replace

import lightning as L
import pytest
import torch

from switchmem.actors.module import FrozenActorModule
from switchmem.actors.spec import ActorSpec
from switchmem.actors.vlm import ActorError
from switchmem.memory.views import Condition
from switchmem.steps import Action, ActionType, UIElement


@dataclass(frozen=True, slots=True)
class Pair:
    """Has what the module reads of a retrieved pair."""

    step: object
    memory: object
    cosine: float = 1.0


@pytest.fixture
def module(monkeypatch, make_actor) -> FrozenActorModule:
    monkeypatch.setattr(ActorSpec, "load", lambda self: make_actor(False))
    return FrozenActorModule(ActorSpec(), layers=(0, -1), seeds=(42, 43), max_new_tokens=3)


def predict(module, pairs, size, **kwargs):
    trainer = L.Trainer(
        accelerator="cpu",
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        barebones=False,
        **kwargs,
    )
    loader = torch.utils.data.DataLoader(pairs, batch_size=size, collate_fn=list)
    return [seen for batch in trainer.predict(module, loader) for seen in batch]


def test_predict(module, make_step, tmp_path):
    pairs = [Pair(make_step(i), make_step(100 + i, "d")) for i in range(4)] + [Pair(make_step(9), None)]
    seen = {size: predict(module, pairs, size, default_root_dir=tmp_path) for size in (1, 5)}
    assert [s.step_id for s in seen[1]] == [p.step.step_id for p in pairs]
    assert [s.answers for s in seen[1]] == [s.answers for s in seen[5]]
    for observation in seen[5][:4]:
        assert set(observation.shifted) == set(observation.answers) == {Condition.TEXT, Condition.IMAGE}
        assert [len(a) for a in observation.answers.values()] == [2, 2] and observation.state.shape == (2, 48)
    assert seen[5][4].shifted == {} and seen[5][4].answers == {}
    assert module.start_hash == module.actor.parameters_hash()


def test_the_screen_of_a_demonstration_is_cut_to_its_budget(monkeypatch, make_actor, make_step):
    actor, asked = make_actor(False), []
    monkeypatch.setattr(ActorSpec, "load", lambda self: actor)
    monkeypatch.setattr(actor, "observe", lambda batch, *_: asked.extend(batch) or [])
    words = "star orbit lamp mail river cloud stone leaf bell moon".split()
    elements = tuple(UIElement((n / 10, 0.0, n / 10 + 0.1, 1.0), text=word) for n, word in enumerate(words))
    step = make_step(0)
    demo = replace(make_step(1, "d"), elements=elements, action=Action(ActionType.TAP, (0.35, 0.5)))
    FrozenActorModule(ActorSpec(state_tokens=6)).predict_step([Pair(step, demo)])
    (question,) = asked
    memory = question.prompts[Condition.TEXT].memory[0]
    assert memory.partition(" state ")[2].partition(" action ")[0] == "r3c1 lamp r3c1 mail r3c1 river"


def test_a_changed_parameter_stops_the_run(module, make_step, tmp_path):
    class Meddler(L.Callback):
        def on_predict_batch_end(self, trainer, pl_module, *args):
            pl_module.actor.model.lm_head.weight.data[0, 0] += 1

    with pytest.raises(ActorError, match="parameters must not change, got hash"):
        predict(module, [Pair(make_step(0), None)], 1, default_root_dir=tmp_path, callbacks=[Meddler()])


def test_layers_default_to_the_study(monkeypatch, make_actor):
    monkeypatch.setattr(ActorSpec, "load", lambda self: make_actor(True))
    module = FrozenActorModule(ActorSpec())
    module.configure_model()
    module.configure_model()
    assert module.layers == (0, 1, 2, 3) and not any(p.requires_grad for p in module.parameters())


def test_bad_conditions():
    with pytest.raises(ValueError, match="'pictures' is not a valid Condition"):
        FrozenActorModule(ActorSpec(), conditions=("pictures",))
