"""What the pocket actor is taught: to read screens and textual states, then to act with a demonstration.

A sample is one chat: the actor's own prompt, word for word (a test compares them), and then answers. Acting samples
go on with further turns that demonstrate other entries of the same two screens, so that one pass teaches several.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from switchmem.actors.grammars.pocket import PocketGrammar
from switchmem.benchmarks.pocket.apps import App, app_names, generator, make_app
from switchmem.benchmarks.pocket.episodes import Frame, app_frame, draw_goal, system_frame
from switchmem.benchmarks.pocket.scenes import COLUMNS, ROWS, Scene, app_scene, elements, render
from switchmem.benchmarks.pocket.vocabulary import SCREENS, UNLABELLED
from switchmem.memory.views import Condition
from switchmem.pocket_actor.model import END, IMAGE, START, THINK, THOUGHT, VISION_END, VISION_START
from switchmem.prompts import POCKET
from switchmem.steps import Action, ActionType

GRAMMAR = PocketGrammar()
_PICTURE = [VISION_START, *[IMAGE] * (ROWS * COLUMNS), VISION_END]
_OPEN = [START, "user"]
_REPLY = [END, START, "assistant", THINK, THOUGHT]


@dataclass
class Sample:
    """Words of a chat, which of them are learned, and its pictures as uint8 [H, W, 3] in reading order."""

    words: list[str] = field(default_factory=list)
    learned: list[bool] = field(default_factory=list)
    images: list[np.ndarray] = field(default_factory=list)

    def say(self, words: Sequence[str], *, learn: bool = False) -> None:
        """Append words."""
        self.words += words
        self.learned += [learn] * len(words)


@dataclass(frozen=True)
class Pair:
    """A current frame and a demonstration, with the words of both.

    ``earlier`` is another screen of the demonstration's app. Prompts with two views are taught with its textual
    state beside the demonstration's picture: what came before as text, the moment itself as image.
    """

    app: App
    instruction: str
    current: Frame
    memory: Frame
    memory_instruction: str
    control: bool
    earlier: Scene


def draw_pair(rng: np.random.Generator, *, system: float = 0.2, control: float = 0.2) -> Pair:
    """Draw a fresh app of the actor's names, a goal, a moment and a demonstration of it.

    Args:
        rng: everything is drawn from it.
        system: share of launcher, dialog, ad and done screens. Their demonstration is, as in retrieval, not
            always of the same kind, since the textual state of such screens says little.
        control: share of pairs in which both views tell everything.
    """
    names = app_names("actor")
    app = make_app(names[rng.integers(len(names))], rng)
    goal, other = draw_goal(app, rng), draw_goal(app, rng)
    is_control = bool(rng.random() < control)
    if rng.random() < system:
        kinds = ("launcher", "dialog", "ad", "done")
        kind = str(rng.choice(kinds))
        current = system_frame(app, kind, rng)
        past = kind if rng.random() < 0.7 else str(rng.choice([*kinds, *SCREENS]))
        memory = app_frame(app, other, past, rng) if past in SCREENS else system_frame(app, past, rng)
        return Pair(app, goal.instruction(app), current, memory, other.instruction(app), is_control, _before(app, past))
    screen = str(rng.choice(SCREENS))
    current, memory = app_frame(app, goal, screen, rng), app_frame(app, goal, screen, rng)
    instruction = goal.instruction(app)
    return Pair(app, instruction, current, memory, instruction, is_control, _before(app, screen))


def _before(app: App, kind: str) -> Scene:
    """The app's screen in front of one of that kind, entries in an order of its own."""
    place = SCREENS.index(kind) if kind in SCREENS else 0
    screen = SCREENS[place - 1]
    return app_scene(app, screen, generator("before", app.name, *app.conventions[screen].values()))


def _pixels(scene: Scene, *, legible: bool) -> np.ndarray:
    return np.asarray(render(scene, legible=legible))


def _state_words(scene: Scene, *, control: bool) -> list[str]:
    return " ".join(GRAMMAR.element(e) for e in elements(scene, name_icons=control)).split()


def open_chat(pair: Pair, condition: Condition, *, earlier: bool = False) -> Sample:
    """The actor's prompt up to the demonstrated action; ``earlier`` gives the textual state of the screen before."""
    sample, layout = Sample(), POCKET.memory
    sample.say([*_OPEN, *POCKET.goal.format(instruction=pair.instruction).split(), *_PICTURE])
    sample.images.append(_pixels(pair.current.scene, legible=True))
    if condition is Condition.NONE:
        return sample
    sample.say(layout.head.format(instruction=pair.memory_instruction).split())
    if condition.shows_text:
        told = pair.earlier if earlier else pair.memory.scene
        state = " ".join(_state_words(told, control=pair.control))
        sample.say(layout.state.format(state=state).split())
    if condition.shows_image:
        sample.say([*layout.picture.split(), *_PICTURE])
        sample.images.append(_pixels(pair.memory.scene, legible=pair.control))
    sample.say(layout.action.format(action=GRAMMAR.action(pair.memory.action)).split())
    return sample


def answer_words(frame: Frame) -> list[str]:
    """The gold answer: what is looked for, then the action; the action alone where nothing is looked for."""
    thought = [frame.target, ";"] if frame.target else []
    return [*thought, *GRAMMAR.action(frame.action).split(), END]


def acting(
    pair: Pair, condition: Condition, rng: np.random.Generator, turns: int = 1, *, earlier: bool = False
) -> Sample:
    """A chat that acts: the pair's own demonstration first, then ``turns - 1`` other entries of its two screens.

    The further turns prefer entries that the condition lets one know; with ``earlier`` only the picture does.
    """
    sample = open_chat(pair, condition, earlier=earlier)
    sample.say(_REPLY)
    sample.say(answer_words(pair.current), learn=True)
    both = {e.symbol for e in pair.current.scene.entries} & {e.symbol for e in pair.memory.scene.entries}
    symbols = sorted(both - {pair.current.target})
    if condition is Condition.NONE or pair.current.scene.kind not in SCREENS:
        return sample
    told_by = Condition.IMAGE if earlier else condition
    known = [s for s in symbols if pair.control or _tells(told_by, pair.memory.scene.find(s).is_icon)]
    pool = known if known and rng.random() < 0.9 else symbols
    for symbol in list(rng.permutation(pool))[: turns - 1]:
        now, then = (f.scene.find(symbol).center for f in (pair.current, pair.memory))
        sample.say([*_OPEN, *POCKET.memory.action.format(action=GRAMMAR.action(Action(ActionType.TAP, then))).split()])
        sample.say(_REPLY)
        sample.say(answer_words(Frame(pair.current.scene, Action(ActionType.TAP, now), str(symbol))), learn=True)
    return sample


def _tells(condition: Condition, is_icon: bool) -> bool:
    return condition.shows_image if is_icon else condition.shows_text


def reading(pair: Pair, condition: Condition, rng: np.random.Generator) -> Sample:
    """A chat of at most 14 questions, in random order.

    ``at PLACE`` asks what the current screen shows there, ``find SYMBOL`` where it shows something, and
    ``past PLACE`` what the demonstration, as it is given, shows there: "unlabelled" where its word is too small
    to read, or an icon has no label. With a memory, the current screen gets one question per entry.
    """
    sample = open_chat(pair, condition)
    sample.say(_REPLY)
    at = [("at", GRAMMAR.point(*e.center), e.symbol) for e in pair.current.scene.entries]
    find = [("find", symbol, place) for _, place, symbol in at]
    past = [
        ("past", GRAMMAR.point(*e.center), e.symbol if pair.control or _tells(condition, e.is_icon) else UNLABELLED)
        for e in pair.memory.scene.entries
    ]
    if condition is Condition.NONE:
        questions = at + find
    else:
        questions = past + [f if rng.random() < 0.7 else a for a, f in zip(at, find, strict=True)]
    for i in rng.permutation(len(questions))[:14]:
        kind, what, answer = questions[i]
        sample.say([kind, what])
        sample.say([answer], learn=True)
    return sample
