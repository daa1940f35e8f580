"""AGMem's view as a baseline: what the actor is shown of a demonstration, and how fallbacks are told."""

import numpy as np
import pytest
from PIL import Image

from switchmem.actors.grammars.base import get_grammar
from switchmem.memory.agmem import AGMem, CropConfig, CropError, Reason, view_of
from switchmem.memory.agmem.view import roomy
from switchmem.memory.baseline import BaselineError, Scene, run_rounds
from switchmem.memory.views import Condition, memory_parts
from switchmem.memory.writing import TemplateWriter
from switchmem.steps import Action, ActionType, Screenshot, Step, UIElement

SIZE = (200, 400)


def step(index, boxes=(), elements=(), size=SIZE, episode="a"):
    image = Image.new("RGB", size, "white")
    for box in boxes:
        image.paste((30, 30, 120), box)
    shown = tuple(UIElement(box) for box in elements)
    action = Action(ActionType.TAP, (0.4, 0.3), description="Open the menu")
    return Step("made", episode, index, "Open mail", Screenshot.from_image(image), shown, action)


class Around:
    def __init__(self, *steps):
        self.steps = steps

    def trace(self, demo):
        return self.steps

    def before(self, current):
        return ()


def shown(demo, *trace, **settings):
    scene = Scene(step(0, episode="query"), demo, get_grammar("mobile_use"), Around(*trace))
    ((view, spent),) = run_rounds([AGMem(**settings).show(scene)], TemplateWriter())
    assert not spent.calls and not view.fallbacks
    return view, scene


def test_the_change_stands_in_the_place_of_the_screenshot():
    demo, after = step(0), step(1, [(60, 100, 120, 160)], [(0, 0, 1, 1), (0.25, 0.2, 0.75, 0.5)])
    view, scene = shown(demo, demo, after)
    head, picture, tail = view.memory
    assert picture.size == (100, 120) and view.notes == ("view: container",)
    assert np.array_equal(np.asarray(picture), np.asarray(after.screenshot.image().crop((50, 80, 150, 200))))
    style = scene.style.for_screen(SIZE)
    assert style.point(0.25, 0.2) in head and style.point(0.75, 0.5) in head and "Open mail" in head
    whole = memory_parts(demo, Condition.IMAGE, style, scene.layout)
    assert tail == whole[-1]  # the action, its places and its sentence are those of the Image condition


@pytest.mark.parametrize(
    ("trace", "reason"),
    [
        ([step(0)], "last"),
        ([step(0), step(2)], "last"),  # the step after it was not recorded
        ([step(0), step(1)], "nothing"),
        ([step(0), step(1, size=(400, 200))], "size"),
        ([step(0), step(1, [(1, 1, 199, 399)])], "indistinct"),
    ],
)
def test_without_a_distinct_region_it_is_the_image_condition(trace, reason):
    view, scene = shown(trace[0], *trace)
    style = scene.style.for_screen(SIZE)
    expected = memory_parts(trace[0], Condition.IMAGE, style, scene.layout)
    assert view.notes == (f"view: {reason}",)
    assert [p if isinstance(p, str) else p.tobytes() for p in view.memory] == [
        p if isinstance(p, str) else p.tobytes() for p in expected
    ]


def test_the_later_screen_can_be_the_whole_one():
    demo, after = step(0), step(1, [(1, 1, 199, 399)])
    view, _ = shown(demo, demo, after, whole="after")
    assert view.memory[1].tobytes() == after.screenshot.image().tobytes() and "next screen" in view.memory[0]


def test_no_demonstration_no_memory():
    assert shown(None)[0].memory == ()


def test_slivers_get_room_and_stay_on_the_screen():
    demo, after = step(0), step(1, [(196, 200, 200, 320)])
    view = view_of(demo, after, CropConfig(caret_width=0.0), least=40)
    assert view.crop.reason is Reason.CHANGE and view.crop.change == (196, 200, 200, 320)
    assert view.picture.size == (40, 120) and view.crop.box == (160, 200, 200, 320)
    assert roomy((0, 0, 5, 5), (10, 8), 50) == (0, 0, 10, 8)


def test_a_shown_touch_is_no_change_where_it_is_said_to_be_shown():
    demo, after = step(0), step(1, [(76, 116, 84, 124)])
    assert view_of(demo, after).crop.reason is Reason.CHANGE
    assert view_of(demo, after, touches=True).crop.reason is Reason.NOTHING


def test_identity_holds_every_constant_and_is_plain():
    identity = AGMem(crop=CropConfig(sharp=50.0)).identity()
    assert identity["settings"]["crop"]["sharp"] == 50.0 and identity["settings"]["least"] == 32
    assert identity != AGMem().identity()
    with pytest.raises(BaselineError, match="`agmem.least` must be at least 1, got 0"):
        AGMem(least=0)


def test_constants_may_come_as_a_section_of_a_config():
    assert AGMem(crop={"sharp": 50.0}) == AGMem(crop=CropConfig(sharp=50.0))
    with pytest.raises(CropError, match="`crop` must have no other field than soft, .*, got shrap"):
        AGMem(crop={"shrap": 50.0})
