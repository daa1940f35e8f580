"""The page of a rollout, in a real Chromium: its tables, its episodes, and no word of gold actions."""

import pytest
from PIL import Image

from switchmem.report import Browser, Demo, Router, ShownStep, shrunk
from switchmem.report.online import render_online
from switchmem.rollout.results import Played, build_rollout_results, rollout_rows
from switchmem.rollout.trace import Facts
from switchmem.steps import Screenshot

TASKS = ("click-button", "drag-item")
TAP = {"type": "tap", "point": [0.5, 0.25], "end": None, "text": None, "description": ""}


def episode(policy, task, success, ending):
    look = "" if ending == "missing_page" else "a"
    forms = () if ending == "missing_page" else ("text",)
    seconds = tuple(0.5 for _ in forms)
    return Facts(policy, task, 1, "Click it", look, ending, "", None, success, len(forms), forms, (None,) * len(forms),
                 0, seconds, seconds)  # fmt: skip


def shown(policy, index, action_type, form=None, r=()):
    kept = {} if form is None else {form: 1.0}
    return ShownStep(
        step_id=f"{policy}/click-button/{index}", trajectory=f"{policy}/click-button", index=index,
        category="click-button", action_type=action_type, groups=(policy, "done"), memory_id="m" if form else "",
        cosine=0.5, scores=kept, answers={name: "<b>tap</b>" for name in kept}, actions={name: TAP for name in kept},
        reasons={name: None for name in kept}, r=r, t=None, choice=form if r else None, instruction="Click it",
        gold=TAP if form else None,
    )  # fmt: skip


@pytest.fixture(scope="module")
def results():
    episodes = {
        name: [episode(name, "click-button", done, "success" if done else "failure"),
               episode(name, "drag-item", False, "missing_page")]
        for name, done in (("text", False), ("switchmem", True))
    }  # fmt: skip
    threshold = {"rule": "match_rate", "tau": 0.5, "image_rate": 0.25, "wanted_image_rate": 0.3, "screens": 4}
    facts = {
        "threshold": {**threshold, "suite_seed": 43}, "bank": None, "settings": {"screen_text": False},
        "provenance": {"git": "0123abc"}, "episodes": {}, "instances": {},
    }  # fmt: skip
    return build_rollout_results(Played(TASKS, episodes, facts, ["Bank: made by scripts."]), 200)


@pytest.fixture(scope="module")
def page(results):
    picture = shrunk(Screenshot.from_image(Image.new("RGB", (90, 180), "green")))
    steps = [
        shown("text", 0, "tap", "text"), shown("text", 1, "over (failure)"),
        shown("switchmem", 0, "tap", "image", (0.75,)), shown("switchmem", 1, "over (success)"),
    ]  # fmt: skip
    demos = {"": Demo("", missing="No demonstration was shown."), "m": Demo("m", "Click that", TAP, "button ok")}
    browser = Browser(
        steps, demos, [Router("switchmem", 0, 0.5)], {step.step_id: picture for step in steps} | {"m": picture},
        online=True,
    )  # fmt: skip
    return render_online(results, rollout_rows(results), browser)


def test_the_tables_say_what_was_done(page, results):
    assert "switchmem: miniwob, online" in page and "2 tasks, played online" in page
    for words in ("text (best fixed)", "1/2", "drag-item", "Bank: made by scripts.", "missing_page", "0123abc"):
        assert words in page
    assert "Image on 25.0 % of 4 first screens of suite seed 43, as in the policy's training (30.0 %)" in page
    assert results["comparisons"]["text"]["diff"] == 50.0 and "+50.00" in page


@pytest.mark.browser
def test_the_episodes_can_be_looked_through(page, chromium, tmp_path):
    (tmp_path / "index.html").write_text(page)
    tab = chromium.new_page()
    errors = []
    tab.on("pageerror", lambda error: errors.append(str(error)))
    tab.on("console", lambda message: errors.append(message.text))
    tab.goto((tmp_path / "index.html").as_uri())
    assert tab.locator("#count").inner_text() == "4 of 4 steps"
    detail = tab.locator("#detail")
    assert "done: tap" in detail.inner_text() and "recorded" not in detail.inner_text()
    assert "<b>tap</b>" in detail.inner_text() and tab.locator("#detail svg.router").count() == 0
    tab.select_option("#filter-group", "switchmem")
    assert tab.locator("#count").inner_text() == "2 of 4 steps"
    assert "r = 0.750 ≥ tau = 0.500: Image" in detail.inner_text()
    tab.select_option("#filter-choice", "text")
    assert "No step passes these filters" in detail.inner_text()
    tab.select_option("#filter-choice", "")
    tab.keyboard.press("Escape")
    tab.locator("#list").focus()
    tab.keyboard.press("End")
    assert "No demonstration was shown." in detail.inner_text() and "over (success)" in detail.inner_text()
    assert tab.locator("#filter-agreement").count() == 0 and errors == []
    tab.close()
