"""The views of one demonstration: what differs between the conditions, and what must not."""

from __future__ import annotations

from dataclasses import replace

import pytest
from PIL import Image

from switchmem.actors.grammars.base import get_grammar
from switchmem.memory.views import (
    POCKET_LAYOUT,
    Condition,
    MemoryLayout,
    memory_parts,
    query_text,
    state_text,
    text_state,
)
from switchmem.steps import Action, ActionType, Screenshot, Step, UIElement


@pytest.fixture
def demo() -> Step:
    return Step(
        benchmark="pocket",
        episode_id="d",
        index=0,
        instruction="Open\n the star",
        screenshot=Screenshot.from_image(Image.new("RGB", (8, 14), "red")),
        elements=(
            UIElement((0.5, 0.0, 0.75, 0.1), text="Orbit  view", kind="Button"),
            UIElement((0.0, 0.5, 0.2, 0.6), kind="ICON_STAR"),
        ),
        action=Action(ActionType.TAP, (0.6, 0.05), description="Taps the orbit."),
        activity="app.Main",
        caption="A page of things.",
    )


def texts(parts) -> list[str]:
    return [part if isinstance(part, str) else "IMG" for part in parts]


def test_pocket_strings(demo):
    style = get_grammar("pocket")
    read = {c: texts(memory_parts(demo, c, style, POCKET_LAYOUT)) for c in Condition}
    state = "state r0c2 orbit view r3c0 unlabelled"
    assert read == {
        Condition.NONE: [],
        Condition.TEXT: [f"memory Open the star {state} action tap r0c2"],
        Condition.IMAGE: ["memory Open the star picture", "IMG", "action tap r0c2"],
        Condition.BOTH: [f"memory Open the star {state} picture", "IMG", "action tap r0c2"],
    }


@pytest.mark.parametrize("grammar", ["pocket", "mobile_use"])
@pytest.mark.parametrize("layout", [POCKET_LAYOUT, MemoryLayout()], ids=["pocket", "default"])
def test_conditions_differ_in_the_observation_alone(demo, grammar, layout):
    style = get_grammar(grammar)
    state = layout.state.format(state=text_state(demo, style, layout))
    read = {c: "".join(texts(memory_parts(demo, c, style, layout))) for c in Condition}
    without = {
        Condition.TEXT: read[Condition.TEXT].replace(state, ""),
        Condition.IMAGE: read[Condition.IMAGE].replace(layout.picture + "IMG", ""),
        Condition.BOTH: read[Condition.BOTH].replace(state, "").replace(layout.picture + "IMG", ""),
    }
    assert len(set(without.values())) == 1
    assert "Open the star" in without[Condition.TEXT] and style.action(demo.action) in without[Condition.TEXT]


def test_the_picture_is_the_demonstrations(demo):
    image = memory_parts(demo, Condition.IMAGE, get_grammar("pocket"), POCKET_LAYOUT)[1]
    assert image.size == (8, 14) and image.getpixel((0, 0)) == (255, 0, 0)


def test_default_layout_tells_page_places_and_description(demo):
    (text,) = memory_parts(demo, Condition.TEXT, get_grammar("mobile_use"))
    lines = text.splitlines()
    for line in (
        "Activity: app.Main",
        "Page: A page of things.",
        '(625, 50) "Orbit view" Button',
        "(100, 550) unlabelled ICON_STAR",
        "What this action does: Taps the orbit.",
    ):
        assert line in lines


TREE_LINE = '(625, 50) "Orbit view" Button, description "Shows the orbit.", id orbit_v1, clickable, checked'


@pytest.mark.parametrize(
    ("benchmark", "line"),
    [
        ("aitw", '(500, 0)-(750, 100) "Orbit view" Button'),
        ("learngui", '(625, 50) "Orbit view" Button, description "Shows the orbit.", clickable, checked'),
        ("appagent", TREE_LINE),
        ("androidcontrol", TREE_LINE),
    ],
)
def test_each_benchmarks_view_of_an_element(demo, benchmark, line):
    element = replace(
        demo.elements[0],
        description="Shows\nthe orbit.",
        resource_id="com.app:id/orbit_v1",
        clickable=True,
        checked=True,
    )
    step = replace(demo, benchmark=benchmark, elements=(element,), activity="", caption="")
    assert text_state(step, get_grammar("mobile_use")) == line


def test_a_description_that_is_the_label_is_written_once(demo):
    for element in (
        UIElement((0, 0, 1, 0.5), description="Go back"),
        UIElement((0, 0, 1, 0.5), text="Go back", description="Go  back"),
    ):
        step = replace(demo, benchmark="x", elements=(element,), activity="", caption="")
        assert text_state(step, get_grammar("mobile_use")) == '(500, 250) "Go back"'


def test_braces_in_texts_are_just_text(demo):
    hostile = replace(demo, instruction="{state} {0}", caption="{x")
    assert "{state} {0}" in memory_parts(hostile, Condition.TEXT, get_grammar("mobile_use"))[0]


def test_state_text_knows_no_actor_and_no_places(demo):
    assert state_text(demo) == "app.Main\nA page of things.\nOrbit view Button\nICON_STAR"
    assert query_text(demo).splitlines()[0] == "Open the star"
    assert query_text(demo).endswith(state_text(demo))
