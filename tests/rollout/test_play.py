"""An episode ends with a reason whatever its page or its actor does, and its trace tells all of it."""

import math
import tarfile
from dataclasses import replace

import pytest
from PIL import Image

from switchmem.envs.base import Ending, PhoneActionType
from switchmem.prompts import PromptError
from switchmem.rollout.play import AGENT_ERROR, SEEN, STUCK, Job, play
from switchmem.rollout.trace import (
    ENVIRONMENT_ERROR,
    TraceError,
    look_of,
    read_facts,
    read_screenshot,
    read_trace,
    write_trace,
)
from switchmem.steps import Action, ActionType, Screenshot

JOB = Job("none", "both-help", 7)


def test_it_looks_decides_and_acts_until_the_page_rewards(kit):
    seen = []

    def decide(screen):
        seen.append(screen)
        return kit.tap(kit.RIGHT)

    trace = play(kit.TwoButtons(), JOB, decide)
    assert (trace.ending, trace.raw_reward, trace.success, len(trace.moves)) == ("success", 1.0, True, 2)
    assert [move.screen for move in trace.moves] == seen and trace.last not in seen
    assert [(m.action.type, m.action.x, m.note) for m in trace.moves] == [(PhoneActionType.CLICK, 30, "")] * 2


@pytest.mark.parametrize(
    ("answer", "ending", "note"),
    [
        (None, "budget", "unparsable: empty"),
        (Action(ActionType.DRAG, (0.1, 0.1), (0.9, 0.9)), "budget", "got a drag from"),
        (Action(ActionType.TAP, (0.25, 0.5)), "failure", ""),
    ],
)
def test_what_the_phone_cannot_do_uses_up_a_step(kit, answer, ending, note):
    trace = play(kit.TwoButtons(), JOB, lambda _: kit.decision(answer))
    assert trace.ending == ending and not trace.success
    assert all(note in move.note for move in trace.moves)
    if note:
        assert [move.action.type for move in trace.moves] == [PhoneActionType.WAIT] * 4
        assert trace.facts().unparsable == 4


def test_errors_are_endings(kit):
    class Broken(kit.TwoButtons):
        def step(self, action):
            raise RuntimeError("the bus left")

    class Unborn(kit.TwoButtons):
        def reset(self, **_):
            raise RuntimeError("no fuel")

    def too_long(screen):
        raise PromptError("the prompt is too long.")

    missing = play(kit.TwoButtons(), replace(JOB, task="missing"), lambda _: kit.tap(kit.LEFT))
    assert (missing.ending, missing.moves, missing.last) == (Ending.MISSING_PAGE.value, (), None)
    broken = play(Broken(), JOB, lambda _: kit.tap(kit.LEFT))
    assert broken.ending == ENVIRONMENT_ERROR and "the bus left" in broken.detail and len(broken.moves) == 1
    assert play(Unborn(), JOB, lambda _: kit.tap(kit.LEFT)).detail == "RuntimeError('no fuel')"
    silent = play(kit.TwoButtons(), JOB, too_long)
    assert (silent.ending, silent.detail, silent.moves) == (AGENT_ERROR, "the prompt is too long.", ())
    assert play(kit.TwoButtons(), JOB, None).ending == SEEN


@pytest.mark.parametrize("method", ["reset", "step"])
def test_where_there_is_no_environment_no_episode_fails(kit, method):
    class NoPhone(RuntimeError):
        pass

    def none(*_, **__):
        raise NoPhone("there must be a phone")

    phone = kit.TwoButtons()
    setattr(phone, method, none)
    with pytest.raises(NoPhone):
        play(phone, JOB, lambda _: kit.tap(kit.LEFT), fatal=(NoPhone,))


def test_an_error_of_the_agents_own_code_is_not_hidden(kit):
    def wrong(screen):
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        play(kit.TwoButtons(), JOB, wrong)


def test_an_episode_that_stands_still_can_be_cut_short(kit):
    class Still(kit.TwoButtons):
        def _look(self):
            self.steps, steps = 0, self.steps
            screen = super()._look()
            self.steps = steps
            return screen

    def wait(screen):
        return kit.decision(Action(ActionType.WAIT))

    assert play(Still(max_steps=9), JOB, wait).ending == "budget"
    trace = play(Still(max_steps=9), JOB, wait, stuck=3)
    assert (trace.ending, len(trace.moves)) == (STUCK, 2)  # the third equal screen is not acted on
    assert play(kit.TwoButtons(max_steps=9), JOB, wait, stuck=2).ending == "budget"  # its screens differ


def test_a_trace_comes_back_from_the_disk(kit, tmp_path):
    answers = iter([None, Action(ActionType.TAP, kit.RIGHT)])
    trace = play(kit.TwoButtons(), JOB, lambda _: kit.decision(next(answers)))
    facts = write_trace(tmp_path / "a.tar", trace)
    back = read_trace(tmp_path / "a.tar")
    assert replace(back, moves=()) == replace(trace, moves=())
    for one, other in zip(back.moves, trace.moves, strict=True):
        assert (one.screen, one.action, one.note, one.seconds) == (
            other.screen,
            other.action,
            other.note,
            other.seconds,
        )
        assert one.decision["r"] == "nan" and one.decision["action"] == (
            None if other.decision["action"] is None else {**other.decision["action"], "point": list(kit.RIGHT)}
        )
    assert read_facts(tmp_path / "a.tar") == facts == back.facts()
    for n, screen in enumerate(trace.screens):
        assert read_screenshot(tmp_path / "a.tar", n) == screen.screenshot
    light = read_trace(tmp_path / "a.tar", pictures=False)
    assert [(s.goal, s.elements, s.screenshot) for s in light.screens] == [
        (s.goal, s.elements, Screenshot(b"", 40, 80)) for s in trace.screens
    ]
    assert facts.actor_seconds == (0.75, 0.75)  # neither retrieval nor preprocessing
    assert all(1.75 < s < 1.85 for s in facts.step_seconds)
    with tarfile.open(tmp_path / "a.tar") as tar:
        assert tar.getnames() == ["facts.json", "moves.json", "000.png", "001.png", "002.png"]


def test_a_reward_that_is_no_number_comes_back(kit, tmp_path):
    trace = replace(play(kit.TwoButtons(), JOB, None), raw_reward=math.nan, ending="failure")
    write_trace(tmp_path / "a.tar", trace)
    assert math.isnan(read_facts(tmp_path / "a.tar").raw_reward)


def test_a_damaged_trace_is_named(kit, tmp_path):
    path = tmp_path / "a.tar"
    write_trace(path, play(kit.TwoButtons(), JOB, None))
    whole = path.read_bytes()
    with pytest.raises(TraceError, match=r"a\.tar must be a whole trace"):
        read_screenshot(path, 1)
    for cut in (0, 100, 700, 1500):
        path.write_bytes(whole[:cut])
        with pytest.raises(TraceError, match=r"a\.tar must be a whole trace"):
            read_trace(path)
    path.write_bytes(whole.replace(b"switchmem.trace/1", b"switchmem.trace/0"))
    with pytest.raises(TraceError, match="no switchmem.trace/1"):
        read_facts(path)
    with pytest.raises(TraceError, match="Delete it; the episode is played again"):
        read_facts(tmp_path / "none.tar")


def test_a_look_changes_with_words_and_pixels_alone():
    image = Image.new("RGB", (4, 4))
    black = Screenshot.from_image(image)
    image.putpixel((3, 3), (0, 0, 1))
    assert look_of("a", black) == look_of("a", Screenshot(black.data, 4, 4))
    looks = {look_of("a", black), look_of("b", black), look_of("a", Screenshot.from_image(image))}
    assert len(looks) == 3
