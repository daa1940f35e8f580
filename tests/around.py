"""Steps made by hand and what lies around them, for the tests of the memory baselines."""

import torch
from PIL import Image

from switchmem.actors.grammars.base import get_grammar
from switchmem.memory.baseline import Scene, Written, run_rounds
from switchmem.memory.embedder import HashingEmbedder
from switchmem.steps import Action, ActionType, Screenshot, Step, UIElement

SIZE = (108, 240)
SAVE = UIElement((0.0, 0.0, 0.5, 0.1), text="Save", kind="android.widget.Button", clickable=True)
MENU = UIElement((0.5, 0.0, 1.0, 0.1), description="Menu", kind="android.widget.ImageView", clickable=True)
FIELD = UIElement((0.0, 0.3, 1.0, 0.4), text="Name", kind="android.widget.EditText", editable=True)
WORD = UIElement((0.0, 0.6, 1.0, 0.7), text="Nothing to do here", kind="android.widget.TextView")
TAP_SAVE = Action(ActionType.TAP, (0.25, 0.05))
TAP_MENU = Action(ActionType.TAP, (0.75, 0.05))


def make_step(episode, index, action, elements=(SAVE, MENU, FIELD, WORD), instruction="Keep the note", **fields):
    shade = hash_of(episode, index)
    picture = Image.new("RGB", SIZE, (shade, 255 - shade, 90))
    return Step("hand", episode, index, instruction, Screenshot.from_image(picture), tuple(elements), action, **fields)


def hash_of(episode, index):
    return (sum(map(ord, episode)) * 31 + index * 57) % 256


class Around:
    """Surroundings of steps in memory: all trajectories other than the query's are usable."""

    def __init__(self, queries=(), bank=()):
        self.queries, self.steps = list(queries), list(bank)
        self.made, self.embedder = {}, HashingEmbedder(64)

    def before(self, step):
        return tuple(s for s in self.queries if s.trajectory == step.trajectory and s.index < step.index)

    def trace(self, demo):
        return tuple(s for s in self.steps if s.trajectory == demo.trajectory)

    def bank(self):
        return iter(self.steps)

    def demonstration(self, step_id):
        return next(s for s in self.steps if s.step_id == step_id)

    def usable(self, step, ids):
        return {i for i in ids if i.rpartition("/")[0] != step.trajectory}

    def embed(self, texts):
        return self.embedder.texts(list(texts)) if texts else torch.zeros(0, 64)

    def embed_pictures(self, pictures):
        return self.embedder.multimodal([("", picture) for picture in pictures])

    def once(self, name, make):
        if name not in self.made:
            self.made[name] = make()
        return self.made[name]


class Says:
    """A writer that gives what it is told, and keeps what it was asked."""

    fingerprint = "says"

    def __init__(self, *texts, cost=(10, 3, 0.5)):
        self.texts, self.cost, self.asked = list(texts), cost, []

    def write(self, calls):
        self.asked += calls
        return [Written(self._next(), 1, *self.cost) for _ in calls]

    def _next(self):
        return self.texts.pop(0) if len(self.texts) > 1 else self.texts[0]


def make_scene(step, demo, queries=(), bank=(), grammar="mobile_use", **fields):
    style = get_grammar(grammar)
    return Scene(step, demo, style, Around([*queries, step], bank), **fields)


def shown(baseline, scene, writer):
    """The view of one step, and what was spent for it."""
    ((view, spent),) = run_rounds([baseline.show(scene)], writer)
    return view, spent


def text_of(parts):
    """The texts of a prompt's parts, with a mark for each picture."""
    return "".join(part if isinstance(part, str) else "<picture>" for part in parts)
