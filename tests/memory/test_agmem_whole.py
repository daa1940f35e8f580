"""AGMem whole: plans and labels that are checked, two-stage retrieval, and the guard with its recovery memory."""

import itertools

import numpy as np
import pytest
import torch
from around import MENU, SAVE, TAP_MENU, TAP_SAVE, Says, make_scene, make_step, shown, text_of
from hypothesis import given, settings
from hypothesis import strategies as st

from switchmem.memory.agmem import AGMem, AGMemWhole, Guard, GuardConfig
from switchmem.memory.agmem.failure_modes import FailureMode
from switchmem.memory.agmem.recovery import Recovery, find_recoveries, read_fault_mode, read_verdict
from switchmem.memory.agmem.retrieval import combined, cover, nearest
from switchmem.memory.agmem.subtasks import (
    label_call,
    plan_call,
    read_current,
    read_labels,
    read_plan,
    template_current,
    template_labels,
)
from switchmem.memory.baseline import BaselineError, Charge, View
from switchmem.memory.writing import Fault, TemplateWriter, Unusable
from switchmem.steps import Action, ActionType

DONE, BACK = Action(ActionType.COMPLETE), Action(ActionType.BACK)


def trajectory(name, instruction, *actions, **fields):
    return [make_step(name, n, action, instruction=instruction, **fields) for n, action in enumerate(actions)]


BANK = [
    *trajectory("mail", "Send a mail to Ann", TAP_MENU, TAP_SAVE, DONE),
    *trajectory("clock", "Set an alarm", TAP_SAVE, TAP_MENU),
    *trajectory("map", "Find a route", TAP_SAVE, DONE),
]


# --- what a model writes ---


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("", Fault.EMPTY),
        ("Sorry, I can't do that.", Fault.REFUSAL),
        ("1-2: open", Fault.MALFORMED),  # one step is left out
        ("1-2: open\n2-3: send", Fault.MALFORMED),  # one is twice
        ("1-2: open\n3-4: send", Fault.MALFORMED),  # one too many
        ("2-3: send\n1: open", Fault.MALFORMED),
        ("1-3: ...", Fault.EMPTY),
        ("open, then send", Fault.MALFORMED),
    ],
)
def test_labels_that_do_not_cover_the_trajectory_are_faults(text, fault):
    with pytest.raises(Unusable) as caught:
        read_labels(text, 3)
    assert caught.value.fault is fault


def test_drafts_are_answers_and_carry_the_places_of_the_recording():
    trace = [make_step("a", n, TAP_SAVE, activity=app) for n, app in enumerate(("x/mail", "x/mail", "x/clock"))]
    call = label_call(trace, 64)
    assert call.charge is Charge.OFFLINE and all(isinstance(part, str) for part in call.parts)
    assert read_labels(call.draft, 3) == template_labels(trace)
    assert template_labels(trace)[2] == "Keep the note (clock)"
    assert read_plan(plan_call("Send\na mail", 4, 64, Charge.STEP).draft, 4) == ("Send a mail",)


def test_plans_and_the_current_subtask():
    assert read_plan("Here:\n1. Open mail\n- Send it", 2) == ("Open mail", "Send it")
    assert (read_current("**Subtask:** 2 of 3", 3), read_current("1", 3)) == (1, 0)
    for broken in ("1. a\n2. b\n3. c", "no list"):
        with pytest.raises(Unusable):
            read_plan(broken, 2)
    for broken in ("Subtask: 4", "Subtask: 0", "the second", ""):
        with pytest.raises(Unusable):
            read_current(broken, 3)
    assert [template_current(range(n), ("a", "b")) for n in range(4)] == [0, 1, 1, 1]


# --- the two stages ---


@settings(max_examples=80, deadline=None)
@given(st.integers(1, 4), st.integers(1, 6), st.integers(1, 5), st.integers(0, 10**6))
def test_the_cover_is_as_greedy_as_promised(subtasks, trajectories, size, seed):
    rng = np.random.default_rng(seed)
    relevant = rng.random((subtasks, trajectories)) < 0.4
    similarity = np.where(relevant, rng.uniform(0.5, 1.0, relevant.shape), rng.uniform(-1.0, 0.49, relevant.shape))
    chosen = cover(torch.tensor(similarity), size, 0.5)
    assert len(set(chosen)) == len(chosen) <= size
    useful = relevant.any(axis=0)
    if not useful.any():
        assert chosen == sorted(range(trajectories), key=lambda t: -similarity[:, t].max())[:size]
        return
    assert len(chosen) == min(size, int(useful.sum())) and all(useful[chosen])
    covered = np.zeros(subtasks, dtype=bool)
    for place, rest in ((t, [u for u in range(trajectories) if useful[u] and u not in chosen[:n]])
                        for n, t in enumerate(chosen)):  # fmt: skip
        gains = {u: int((relevant[:, u] & ~covered).sum()) for u in rest}
        if max(gains.values()) == 0:
            covered[:] = False
            gains = {u: int((relevant[:, u]).sum()) for u in rest}
        assert gains[place] == max(gains.values())
        covered |= relevant[:, place]


def test_the_pool_covers_all_subtasks_before_it_repeats_one():
    similarity = torch.tensor([[0.99, 0.98, 0.97, 0.1], [0.1, 0.1, 0.1, 0.6]])
    assert cover(similarity, 2, 0.5) == [0, 3] and cover(similarity, 3, 0.5) == [0, 3, 1]
    similarity[:, 0] = -torch.inf  # may not be used
    assert cover(similarity, 9, 0.5) == [1, 3, 2]
    assert cover(torch.full((2, 2), -torch.inf), 2, 0.5) == []


def test_text_and_picture_weigh_as_said_and_the_nearest_come_first():
    texts, pictures = torch.eye(4)[:2], torch.eye(4)[2:]
    both = combined(texts, pictures)
    assert torch.allclose(both @ both.T, torch.eye(2)) and torch.allclose(both[0, 0], both[0, 2])
    assert torch.equal(combined(texts, pictures, 1.0), texts)
    keys = torch.nn.functional.normalize(torch.tensor([[1.0, 0], [1, 1], [0, 1], [1, 1]]), dim=1)
    assert [place for place, _ in nearest(keys[1], keys, 3)] == [1, 3, 0]


# --- the baseline ---


def test_the_steps_of_the_right_trajectory_are_shown_with_their_labels():
    step = make_step("query", 0, TAP_SAVE, instruction="Send a mail to Bob")
    scene = make_scene(step, BANK[3], bank=BANK)
    view, spent = shown(AGMemWhole(pool=1, steps=2), scene, TemplateWriter())
    told = text_of(view.memory)
    assert told.count("of the task: Send a mail to Ann") == 2 and told.count("<picture>") == 2
    assert "The current subtask: Send a mail to Bob" in told and "alarm" not in told
    assert not view.fallbacks and all(note.startswith("view: ") for note in view.notes)
    assert [call.charge for call in spent.calls] == [Charge.STEP, *[Charge.OFFLINE] * 3, Charge.STEP]


def test_the_bank_is_labelled_once_and_a_plan_is_paid_once():
    first = make_step("query", 0, TAP_SAVE, instruction="Send a mail to Bob")
    second = make_step("query", 1, TAP_SAVE, instruction="Send a mail to Bob")
    scene = make_scene(first, None, bank=BANK)
    _, spent = shown(AGMemWhole(), scene, TemplateWriter())
    around = scene.surroundings
    around.queries.append(second)
    later = make_scene(second, None)
    later = type(later)(second, None, later.style, around)
    _, spent_later = shown(AGMemWhole(), later, TemplateWriter())
    assert len(spent.calls) == 5 and [c.charge for c in spent_later.calls] == [Charge.EARLIER, Charge.STEP]


def test_broken_answers_fall_back_and_are_counted():
    step = make_step("query", 0, TAP_SAVE, instruction="Set an alarm")
    view, _ = shown(AGMemWhole(pool=1, steps=1), make_scene(step, None, bank=BANK), Says("I can't help with that."))
    assert view.fallbacks == ("plan: refusal", "current subtask: refusal")
    assert view.once == {f"labels of hand/{name}": "labels: refusal" for name in ("mail", "clock", "map")}
    assert "of the task: Set an alarm" in text_of(view.memory)


def test_nothing_of_the_own_trajectory_and_no_bank_no_memory():
    step = make_step("mail", 0, TAP_SAVE, instruction="Send a mail to Ann")
    view, _ = shown(AGMemWhole(steps=9), make_scene(step, None, bank=BANK), TemplateWriter())
    assert "of the task: Send a mail" not in text_of(view.memory)
    view, _ = shown(AGMemWhole(), make_scene(step, None), TemplateWriter())
    assert view.notes == ("no memory",)


@pytest.mark.parametrize(("name", "value"), [("pool", 0), ("steps", 0), ("close", 1.5), ("text_weight", -0.1)])
def test_settings_out_of_range_are_told(name, value):
    with pytest.raises(BaselineError, match=f"`agmem_whole.{name}` must be"):
        AGMemWhole(**{name: value})


def test_identity_is_plain_and_holds_the_settings():
    assert AGMemWhole(steps=3).identity()["settings"]["steps"] == 3
    assert AGMemWhole().identity() != AGMemWhole(close=0.6).identity()


# --- recovery ---


def detour():
    """Opens the menu by mistake, goes back, and saves."""
    steps = trajectory("detour", "Keep the note", TAP_MENU, BACK, TAP_SAVE, DONE)
    screens = [steps[0].screenshot, steps[1].screenshot, steps[0].screenshot, steps[3].screenshot]
    return [type(s)(**{**_fields(s), "screenshot": shot}) for s, shot in zip(steps, screens, strict=True)]


def _fields(step):
    return {name: getattr(step, name) for name in step.__slots__}


def test_a_detour_is_a_fault_and_the_step_that_led_back():
    steps = detour()
    assert find_recoveries(steps) == [Recovery((steps[0],), steps[1])]
    assert find_recoveries(steps, longest=1) and find_recoveries(BANK[:3]) == []
    same_way = [type(s)(**{**_fields(s), "action": TAP_MENU}) if n == 2 else s for n, s in enumerate(steps)]
    assert find_recoveries(same_way) == []  # it did the same again: nothing was corrected


@pytest.mark.parametrize(
    ("text", "mode", "fault"),
    [
        ("Error: yes\nMode: Hidden Operation Blindness", FailureMode.HIDDEN_OPERATION, ""),
        ("Error: no\nMode: none", None, ""),
        ("Error: no", None, ""),
        ("Error: yes\nMode: bad luck", None, "malformed"),
        ("Error: yes\nMode: Memory Over-following", None, "malformed"),  # not of table 1
        ("Error: perhaps\nMode: none", None, "malformed"),
        ("", None, "empty"),
        ("I'm unable to judge.", None, "refusal"),
    ],
)
def test_the_detectors_answer(text, mode, fault):
    verdict = read_verdict(text)
    assert (verdict.mode, verdict.fault, verdict.blocked) == (mode, fault, mode is not None)


def test_a_blocked_proposal_is_asked_again_with_recoveries_of_the_flagged_mode():
    steps = detour()
    scene = make_scene(make_step("query", 0, TAP_SAVE), None, bank=[*BANK, *steps])
    guard = Guard.build(scene.surroundings, Says("Mode: Grounding Error"))
    assert [one.mode for one in guard.recoveries] == [FailureMode.GROUNDING]
    asked = []

    def ask(view):
        asked.append(text_of(view.memory))
        return BACK

    for answer, *expected in (
        ("Error: no", TAP_MENU, 0, (), ("checked",)),
        ("Error: yes\nMode: Grounding Error", BACK, 1, (), ("checked", "blocked: Grounding Error")),
        ("?", TAP_MENU, 1, ("detector: empty",), ("checked",)),
    ):
        guard.writer = Says(answer)
        got = guard.decide(scene, View(memory=("the plan; ", "memory"), kept=1), TAP_MENU, ask)
        assert [got.action, len(asked), got.fallbacks, got.notes] == expected
    assert asked[0].startswith("the plan; ") and "memory" not in asked[0]
    assert 'What went wrong: tap "Menu" (ImageView)' in asked[0] and "<picture>" in asked[0]


def test_without_an_example_of_the_mode_any_serves_and_without_any_it_is_counted():
    steps = detour()
    scene = make_scene(make_step("query", 0, TAP_SAVE), None, bank=steps)
    guard = Guard.build(scene.surroundings, Says("Mode: nothing known"))
    assert guard.recoveries[0].mode is None
    guard.writer = Says("Error: no")
    told = [guard.decide(scene, View(), TAP_SAVE, lambda view: None).once for _ in range(2)]
    assert told == [{"mode of hand/detour/1": "recovery's mode: malformed"}, {}]
    verdict = read_verdict("Error: yes\nMode: Cognitive Failure")
    assert guard.examples(scene, verdict)
    bare = Guard((), scene.surroundings, Says("Error: yes\nMode: Cognitive Failure"))
    got = bare.decide(scene, View(), TAP_SAVE, lambda view: None)
    assert got.action is None and got.fallbacks == ("recovery: none to show",)


def test_the_detector_sees_recent_screens_and_the_proposal():
    past = trajectory("query", "Keep the note", *itertools.repeat(TAP_MENU, 5))
    scene = make_scene(make_step("query", 5, TAP_SAVE, [SAVE, MENU]), None, queries=past)
    writer = Says("Error: no")
    Guard((), scene.surroundings, writer, GuardConfig(recent=3)).check(scene, TAP_SAVE)
    (call,) = writer.asked
    assert text_of(call.parts).count("<picture>") == 4 and "tap (0.25, 0.05)" in text_of(call.parts)
    with pytest.raises(Unusable):
        read_fault_mode("Mode: Memory Over-following")


def test_the_guards_constants_are_settings():
    baseline = AGMemWhole(guard={"enabled": True, "shown": 2, "longest": 1})
    scene = make_scene(make_step("query", 0, TAP_SAVE), None, bank=detour())
    guard = baseline.checker(scene.surroundings, Says("Mode: Grounding Error"))
    assert guard.config == GuardConfig(shown=2, longest=1)
    assert baseline.checker(scene.surroundings, Says("never asked")) is guard  # made once for the bank
    assert AGMemWhole(guard={"enabled": False}).checker(scene.surroundings, Says("never asked")) is None
    for wrong in ({"shown": 0}, {"recent": -1}, {"longest": 0}, {"tokens": 0}, {"on": True}):
        with pytest.raises(BaselineError, match=f"`guard.*{next(iter(wrong))}"):
            AGMemWhole(guard=wrong)
    assert AGMem().checker(scene.surroundings, Says("never asked")) is None


def test_a_guard_is_no_part_of_what_recorded_steps_depend_on():
    plain, none = AGMemWhole(), AGMemWhole(guard=GuardConfig(enabled=False))
    assert plain.identity() == none.identity() and "guard" not in plain.identity()["settings"]
    played = [b.played_identity() for b in (plain, none, AGMemWhole(guard=GuardConfig(shown=1)))]
    assert all(one != other for one, other in itertools.combinations(played, 2))
    assert AGMem().played_identity() == AGMem().identity()
