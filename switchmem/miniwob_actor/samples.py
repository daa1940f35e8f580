"""What the web actor is taught: its own prompts, word for word, and the demonstrated action, or what is where.

Few instances are played per task. So that the actor learns to look words up instead of learning them by heart, words
that differ between the instances of a task are exchanged, alike in the instruction, on the screen and in what is typed.
"""

from __future__ import annotations

import math
import re
import string
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from switchmem.actors.encoder import PromptEncoder
from switchmem.actors.grammars.miniwob import MiniWobGrammar
from switchmem.memory.budget import Budget
from switchmem.memory.views import Condition, demonstrated, one_line, text_state
from switchmem.prompts import POCKET, build_prompt, escape_template_tokens
from switchmem.steps import Step, UIElement

GRAMMAR = MiniWobGrammar()
TEMPLATE = POCKET.with_screen_text()
SHARES = {Condition.NONE: 0.6, Condition.TEXT: 0.2, Condition.IMAGE: 0.2}
"""How often a prompt has which memory."""
STATE_TOKENS = 256
"""The most tokens of a textual screen, current or demonstrated: `actor.state_tokens` of the actor's config."""
_EXCHANGED = 0.8
_SPELLED = 0.5
_MOVED = 0.5
_RARE = 0.15
_QUESTIONS = 12
_FURTHER_QUESTIONS = 4
_LABEL_WORDS = 6
_MULTIPLE = 32
_ROW, _BESIDE, _SAME_PLACE = 0.03, 0.12, 0.007  # of the screen's height: within a row, at most so far, equal
_KINDS = ("Button", "TextView", "EditText", "CheckBox", "Image")
_WORD = re.compile(r"[A-Za-z][A-Za-z0-9]+")
_TAKEN = re.compile(r"[xy]\d+|find|state|screen")  # words of the lists themselves
_BLANK = Image.new("RGB", (1, 1))  # stands for a picture whose patches are known


@dataclass(frozen=True)
class Sample:
    """One chat.

    Args:
        ids: prompt and answer.
        learned: which of them are learned, the end token included.
        pictures: names of its pictures, in reading order.
    """

    ids: list[int]
    learned: list[bool]
    pictures: tuple[str, ...]


class Lessons:
    """Draws samples from demonstrations.

    Args:
        steps: of all tasks; `category` is the task.
        encoder: of the actor.
        visual_tokens: of one picture; all screens have the same size.
    """

    def __init__(self, steps: Sequence[Step], encoder: PromptEncoder, visual_tokens: int) -> None:
        self._encoder, self._visual_tokens = encoder, visual_tokens
        self._tokens = lru_cache(maxsize=2**16)(encoder.tokens)
        self.by_task: dict[str, list[Step]] = defaultdict(list)
        for step in steps:
            self.by_task[step.category].append(step)
        self.tasks = sorted(self.by_task)
        self._budget = Budget(STATE_TOKENS, encoder.count)
        self._changing = {task: _changing_words(self.by_task[task]) for task in self.tasks}
        vocabulary = encoder.tokenizer.get_vocab()
        self._words = sorted(w for w in vocabulary if _WORD.fullmatch(w) and not _TAKEN.fullmatch(w))
        self._pool = sorted(set().union(*self._changing.values()))

    def draw(self, rng: np.random.Generator, condition: Condition) -> Sample:
        """A step of any task, tasks alike often, with a demonstration of the same task or, at times, another."""
        step = self._step(rng, self._task(rng))
        demo = None
        if condition is not Condition.NONE:
            demo = self._step(rng, step.category if rng.random() < 0.8 else self._task(rng))
        if rng.random() < _EXCHANGED:
            step = self._exchanged(rng, step)
        if rng.random() < _MOVED:
            step = move(rng, step)
        return self._asked(rng, self.sample(step, demo, condition), step, _FURTHER_QUESTIONS)

    def sample(self, step: Step, demo: Step | None, condition: Condition) -> Sample:
        """The chat of one step."""
        told = None
        if demo is not None and condition.shows_text:
            told = text_state(demo, GRAMMAR, TEMPLATE.memory, self._budget)
        specials, blanks = self._encoder.specials, (_BLANK, _BLANK)
        prompt = build_prompt(step, demo, condition, TEMPLATE, GRAMMAR, specials, blanks, told, self._budget)
        shown = (step, demo) if condition.shows_image and demo is not None else (step,)
        sizes = [[self._visual_tokens] * len(shown)]
        (ids,) = self._encoder.encode(step.step_id, [prompt], sizes)
        spoken = escape_template_tokens(answer_of(step), self._encoder.specials)
        answer = [*self._tokens(spoken), self._encoder.tokenizer.eos_token_id]
        learned = [False] * len(ids) + [True] * len(answer)
        return Sample(ids + answer, learned, tuple(s.step_id for s in shown))

    def draw_reading(self, rng: np.random.Generator) -> Sample:
        """A screen of any task, and where some of what it shows is: ``find Submit x14 y41 find ...``.

        An action is few words behind a long screen. These are many, so that the actor learns to look up much sooner.
        """
        step = self._step(rng, self._task(rng))
        step = self._exchanged(rng, step) if rng.random() < _EXCHANGED else step
        sample = self.sample(step, None, Condition.NONE)
        start = sample.learned.index(True)
        prompt = Sample(sample.ids[:start], sample.learned[:start], sample.pictures)
        asked = self._asked(rng, prompt, step, _QUESTIONS)
        return asked if any(asked.learned) else sample

    def draw_list(self, rng: np.random.Generator, level: int) -> Sample:
        """A made-up list of labels and places, and where some of them are: the first lesson, without a screen.

        Look-ups form on short lists of single words within some hundred updates, and on whole screens not at all.

        Args:
            rng: everything is drawn from it.
            level: from 0 on; higher ones have longer lists.
        """
        count = int(rng.integers(2, 6 + 3 * level))
        labels = [" ".join(self._label(rng)) for _ in range(count)]
        places = [GRAMMAR.point(*rng.random(2)) for _ in labels]
        kinds = rng.choice(_KINDS, size=count)
        told = " ".join(f"{kind} {label} {at}" for kind, label, at in zip(kinds, labels, places, strict=True))
        ids = [*self._encoder.tokens(f"state {told} screen")]
        return self._questions(rng, Sample(ids, [False] * len(ids), ()), list(zip(labels, places, strict=True)))

    def _label(self, rng: np.random.Generator) -> list[str]:
        words = rng.choice(self._words, size=rng.integers(1, 5)).tolist()
        return [_spelled(rng) if rng.random() < _SPELLED / 2 else word for word in words]

    def _asked(self, rng: np.random.Generator, sample: Sample, step: Step, most: int) -> Sample:
        """The chat with questions behind it; elements that are called as another is are not asked for."""
        pairs = [(called(step, e), GRAMMAR.point(*e.center)) for e in step.elements]
        times = Counter(words for words, _ in pairs)
        return self._questions(rng, sample, [pair for pair in pairs if pair[0] and times[pair[0]] == 1], most)

    def _questions(
        self, rng: np.random.Generator, sample: Sample, pairs: Sequence[tuple[str, str]], most: int = _QUESTIONS
    ) -> Sample:
        """Asked with replacement: where each is asked once, guessing among those that are left is learned instead.

        How a label goes on behind its first token is learned too: it is the same look-up, on many more words.
        """
        ids, learned = [*sample.ids], [*sample.learned]
        for number in rng.integers(len(pairs), size=most if pairs else 0):
            label, place = pairs[number]
            words = " ".join(["find", *label.split()[-_LABEL_WORDS:]])
            question = self._tokens(escape_template_tokens(words, self._encoder.specials))
            place_ids = self._tokens(place)
            ids += [*question, *place_ids]
            learned += [False, False] + [True] * (len(question) - 2 + len(place_ids))
        return Sample(ids, learned, sample.pictures)

    def _task(self, rng: np.random.Generator) -> str:
        return self.tasks[rng.integers(len(self.tasks))]

    def _step(self, rng: np.random.Generator, task: str) -> Step:
        steps = self.by_task[task]
        return steps[rng.integers(len(steps))]

    def _exchanged(self, rng: np.random.Generator, step: Step) -> Step:
        told = set(_WORD.findall(" ".join([step.action.text or "", *(e.text for e in step.elements)])))
        words = sorted(self._changing[step.category] & told)
        chosen = [word for word in words if rng.random() < _EXCHANGED]
        return exchange(step, {word: self._another(rng, word) for word in chosen})

    def _another(self, rng: np.random.Generator, word: str) -> str:
        if rng.random() < _SPELLED:
            return _spelled(rng)
        other = self._pool[rng.integers(len(self._pool))]
        return other[0].upper() + other[1:] if word[0].isupper() else other[0].lower() + other[1:]


def _spelled(rng: np.random.Generator) -> str:
    """A word that no vocabulary holds."""
    return "".join(rng.choice(list(string.ascii_letters + string.digits), size=rng.integers(2, 7)))


def answer_of(step: Step) -> str:
    """The demonstrated action with what it touches before the place: ``tap Ada Image x31 y44``, see `called`."""
    words, element = GRAMMAR.action(step.action), demonstrated(step)
    if step.action.point is None or element is None:
        return words
    verb, _, rest = words.partition(" ")
    return " ".join([verb, *called(step, element).split()[-_LABEL_WORDS:], rest])


def called(step: Step, element: UIElement) -> str:
    """The words by which an element of a screen is told from the others."""
    label, name, kind = one_line(element.label), element.resource_id.rpartition("/")[2], _kind(element)
    if label or name:
        return label or f"#{name}"
    beside = None if step.action.end is not None and element is demonstrated(step) else neighbour(step, element)
    return kind if beside is None else f"{one_line(beside.text)} {kind}"


def neighbour(step: Step, element: UIElement) -> UIElement | None:
    """The text that tells an element without a label from others of its kind, or None.

    A field's is the nearest one, first in its row and then above it; any other element's is the nearest that the
    instruction names: whose mail it stands beside. Nothing below, or to the right in the row, is looked at.
    """
    x, y = element.center
    near = []
    for number, other in enumerate(step.elements):
        across, down = x - other.center[0], y - other.center[1]
        words = one_line(other.text)
        tells = not other.editable if element.editable else words in step.instruction
        in_row = abs(down) <= _ROW
        if _WORD.search(words) and tells and -_ROW <= down <= _BESIDE and (across > 0 or not in_row):
            near.append((not in_row, abs(across) if in_row else down, number, other))
    return min(near)[-1] if near else None


def move(rng: np.random.Generator, step: Step) -> Step:
    """The step with the label of what is touched exchanged for that of an element like it, and that one touched.

    Only where the instruction names the label, so that it alone tells which element is meant. The label is the
    element's own or its `neighbour`'s. The picture stays.
    """
    target, point = demonstrated(step), step.action.point
    if target is None or point is None or step.action.end is not None:
        return step
    named = target if target.text.strip() else neighbour(step, target)
    label = "" if named is None else one_line(named.text)
    if named is None or not label or label not in step.instruction:
        return step
    others = [(other, like) for other in step.elements for like in _alike(step, named, target, other)]
    if not others:
        return step
    other, like = others[rng.integers(len(others))]
    texts = {id(named): other.text, id(other): named.text}
    elements = tuple(replace(e, text=texts.get(id(e), e.text)) for e in step.elements)
    return replace(step, elements=elements, action=replace(step.action, point=like.center))


def _alike(step: Step, named: UIElement, target: UIElement, other: UIElement) -> list[UIElement]:
    """Elements that stand to ``other`` as ``target`` does to what names it."""
    if _looks(other) != _looks(named) or one_line(other.text) in ("", one_line(named.text)):
        return []
    if target is named:
        return [other]
    down = target.center[1] - named.center[1]
    return [
        e
        for e in step.elements
        if _looks(e) == _looks(target)
        and not e.label.strip()
        and abs(e.center[0] - target.center[0]) < _SAME_PLACE
        and abs(e.center[1] - other.center[1] - down) < _SAME_PLACE
    ]


def _looks(element: UIElement) -> tuple[str, bool]:
    return element.kind, element.checked


def _kind(element: UIElement) -> str:
    return element.kind.rpartition(".")[2]


def _changing_words(steps: Sequence[Step]) -> set[str]:
    """The words of a task that few of its instances hold."""
    by_episode: dict[str, set[str]] = defaultdict(set)
    for step in steps:
        texts = [step.instruction, *(e.text for e in step.elements)]
        by_episode[step.episode_id].update(_WORD.findall(" ".join(texts)))
    counts = Counter(word for words in by_episode.values() for word in words)
    most = max(2, _RARE * len(by_episode))
    return {word for word, count in counts.items() if count <= most}


def exchange(step: Step, words: Mapping[str, str]) -> Step:
    """The step with words exchanged wherever they stand: instruction, screen and typed text."""

    def other(match: re.Match[str]) -> str:
        return words.get(match[0], match[0])

    def change(text: str) -> str:
        return _WORD.sub(other, text)

    text = step.action.text
    return replace(
        step,
        instruction=change(step.instruction),
        elements=tuple(replace(e, text=change(e.text)) if e.text else e for e in step.elements),
        action=replace(step.action, text=None if text is None else change(text)),
    )


@dataclass
class Batch:
    """A batch, padded on the right: attention is causal, so that padding needs no mask.

    Lengths are multiples of `_MULTIPLE`, so that few shapes come up: what is prepared for a shape is used again.

    Args:
        ids: int64 ``[B, T]``.
        labels: the token to predict at each place, -100 where nothing is learned, int64 ``[B, T]``.
        pictures: names of all pictures, in reading order.
        is_image: per row which tokens belong to a picture.
    """

    ids: Tensor
    labels: Tensor
    pictures: list[str]
    is_image: list[list[bool]]


def collate(samples: Sequence[Sample], pad: int, image_token: int) -> Batch:
    """Samples as one batch."""
    length = _MULTIPLE * math.ceil(max(len(sample.ids) for sample in samples) / _MULTIPLE)
    ids = torch.full((len(samples), length), pad)
    labels = torch.full((len(samples), length), -100)
    for row, sample in enumerate(samples):
        end, learned = len(sample.ids), torch.tensor(sample.learned)
        ids[row, :end] = torch.tensor(sample.ids)
        labels[row, : end - 1] = torch.where(learned[1:], ids[row, 1:end], -100)
    pictures = [name for sample in samples for name in sample.pictures]
    return Batch(ids, labels, pictures, [[token == image_token for token in sample.ids] for sample in samples])
