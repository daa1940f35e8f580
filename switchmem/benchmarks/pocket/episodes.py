"""Episodes of the pocket world: who does what in which app, step by step.

An instruction is ``verb object manner in app``. It takes a person through the app's three screens, on each
of which one entry stands for one word of the instruction by a convention of that app alone. Around them
stand steps that need no memory: the launcher, a dialog, an ad to leave, a done banner, and a repeated tap.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from switchmem.benchmarks.pocket.apps import App, app_names, generator, make_app
from switchmem.benchmarks.pocket.scenes import Scene, app_scene, elements, render, system_scene
from switchmem.benchmarks.pocket.vocabulary import ICONS, NOUNS, SCREENS
from switchmem.steps import Action, ActionType, Screenshot, Step

WORLDS = ("mixed", "control")
PARTS = ("preference", "bank", "test", "test_bank")


@dataclass(frozen=True, slots=True)
class PocketSpec:
    """What is generated.

    Args:
        world: "mixed", where icons have no label in the textual state and the words of a demonstration's
            screenshot are too small to read; or "control", where either view tells everything.
        seed: of everything drawn.
        apps: apps of the preference part; its bank knows the same apps from other episodes.
        test_apps: apps of the test part, none of which is in the preference part.
        goals: different instructions of an app.
        episodes: trajectories per app in a query part.
        bank_episodes: trajectories per app in a bank.

    Raises:
        ValueError: if a count is not positive or asks for more apps than there are names.
    """

    world: str = "mixed"
    seed: int = 0
    apps: int = 40
    test_apps: int = 24
    goals: int = 6
    episodes: int = 9
    bank_episodes: int = 12

    def __post_init__(self) -> None:
        if self.world not in WORLDS:
            raise ValueError(f"`world` must be one of {', '.join(WORLDS)}, got {self.world!r}.")
        for name in ("apps", "test_apps", "goals", "episodes", "bank_episodes"):
            if getattr(self, name) < 1:
                raise ValueError(f"`{name}` must be at least 1, got {getattr(self, name)}.")
        for name, fold in (("apps", "preference"), ("test_apps", "test")):
            most = len(app_names(fold))
            if getattr(self, name) > most:
                raise ValueError(f"`{name}` must be at most {most} (the names dealt to it), got {getattr(self, name)}.")


@dataclass(frozen=True, slots=True)
class Goal:
    """One instruction: a word for each of the three screens."""

    object: str
    verb: str
    manner: str

    def word(self, screen: str) -> str:
        """The word that the screen's convention stands for."""
        return {"main": self.object, "item": self.verb, "option": self.manner}[screen]

    def instruction(self, app: App) -> str:
        """As the agent is told."""
        return f"{self.verb} {self.object} {self.manner} in {app.name}"


@dataclass(frozen=True, slots=True)
class Frame:
    """One moment of an episode: what is on the screen and what is done.

    ``target`` is the symbol tapped, or "" where the action is not a tap.
    """

    scene: Scene
    action: Action
    target: str


def draw_goal(app: App, rng: np.random.Generator) -> Goal:
    """A goal that the app's conventions can express."""
    return Goal(*(str(rng.choice(list(app.conventions[screen]))) for screen in SCREENS))


def draw_usual_goal(app: App, rng: np.random.Generator) -> Goal:
    """The same, but nine times in ten through an entry of the kind that the screen mostly has."""
    words = []
    for convention in (app.conventions[screen] for screen in SCREENS):
        kinds = [[w for w, symbol in convention.items() if (symbol in ICONS) == icons] for icons in (True, False)]
        few, many = sorted(kinds, key=len)
        words.append(str(rng.choice(few if few and rng.random() < 0.1 else many)))
    return Goal(*words)


def app_frame(app: App, goal: Goal, screen: str, rng: np.random.Generator) -> Frame:
    """The app's screen in a new order, and the tap on what stands for the goal's word."""
    scene = app_scene(app, screen, rng)
    target = app.conventions[screen][goal.word(screen)]
    return Frame(scene, Action(ActionType.TAP, scene.find(target).center), target)


def system_frame(app: App, kind: str, rng: np.random.Generator) -> Frame:
    """A launcher, dialog, ad or done screen, and what a person does there."""
    others = [n for n in NOUNS if n != app.noun]
    symbols = [app.noun, *(str(n) for n in rng.choice(others, 5, replace=False))]
    scene = system_scene(kind, app.theme, symbols, rng)
    if kind in ("launcher", "dialog"):
        target = app.noun if kind == "launcher" else "ok"
        return Frame(scene, Action(ActionType.TAP, scene.find(target).center), target)
    return Frame(scene, Action(ActionType.BACK if kind == "ad" else ActionType.COMPLETE), "")


def episode_frames(app: App, goal: Goal, rng: np.random.Generator) -> list[Frame]:
    """One trajectory: three to eight frames."""
    frames = [system_frame(app, "launcher", rng)] if rng.random() < 0.25 else []
    for screen in SCREENS:
        if rng.random() < 0.06:
            frames.append(system_frame(app, "ad", rng))
        frame = app_frame(app, goal, screen, rng)
        repeats = 2 if screen == "item" and goal.manner == "twice" else 1
        frames += [frame] * repeats
    if rng.random() < 0.25:
        frames.append(system_frame(app, "dialog", rng))
    if rng.random() < 0.5:
        frames.append(system_frame(app, "done", rng))
    return frames


def to_step(
    frame: Frame, app: App, goal: Goal, spec: PocketSpec, *, episode: str, index: int, demonstration: bool
) -> Step:
    """A frame as a recorded step. In the mixed world, a demonstration's words are too small to read."""
    control = spec.world == "control"
    return Step(
        benchmark="pocket",
        episode_id=episode,
        index=index,
        instruction=goal.instruction(app),
        screenshot=Screenshot.from_image(render(frame.scene, legible=control or not demonstration)),
        elements=elements(frame.scene, name_icons=control),
        action=frame.action,
        activity=f"{app.name} {frame.scene.kind}" if frame.scene.title else frame.scene.kind,
    )


def spec_apps(spec: PocketSpec, fold: str) -> list[App]:
    """The apps of a fold, the same for its queries and its bank."""
    count = spec.apps if fold == "preference" else spec.test_apps
    return [make_app(name, generator(spec.seed, fold, *name), tidy=True) for name in app_names(fold)[:count]]


def generate_steps(spec: PocketSpec, part: str) -> Iterator[Step]:
    """Yield the steps of a part, trajectory by trajectory, the same for the same ``spec``.

    Args:
        spec: what is generated.
        part: "preference" or "test" (queries), "bank" or "test_bank" (their demonstrations).

    Raises:
        ValueError: if there is no such part.
    """
    if part not in PARTS:
        raise ValueError(f"`part` must be one of {', '.join(PARTS)}, got {part!r}.")
    fold = "test" if part.startswith("test") else "preference"
    bank = part.endswith("bank")
    for app in spec_apps(spec, fold):
        rng = generator(spec.seed, fold, "goals", app.name)
        goals = [draw_usual_goal(app, rng) for _ in range(spec.goals)]
        for number in range(spec.bank_episodes if bank else spec.episodes):
            goal = goals[number % len(goals)]
            episode = f"{part}-{app.name.replace(' ', '-')}-{number:03d}"
            frames = episode_frames(app, goal, generator(spec.seed, part, app.name, number))
            for index, frame in enumerate(frames):
                yield to_step(frame, app, goal, spec, episode=episode, index=index, demonstration=bank)


def fingerprint(spec: PocketSpec) -> str:
    """Names everything that the steps depend on; changes with the world's code through a digest of samples."""
    digest = 0
    small = replace(spec, apps=1, test_apps=1, episodes=2, bank_episodes=2)
    for part in PARTS:
        for step in generate_steps(small, part):
            digest = zlib.crc32(step.screenshot.image().tobytes() + repr(step.to_dict()).encode(), digest)
    fields = "-".join(str(getattr(spec, f)) for f in spec.__dataclass_fields__)
    return f"pocket-{fields}-{digest:08x}"
