"""The step score of web tasks: in the touched element, and the same words."""

from dataclasses import replace

import pytest

from switchmem.benchmarks import get_benchmark
from switchmem.steps import Action, ActionType, Screenshot, Step, UIElement

BUTTON = UIElement((0.1, 0.3, 0.3, 0.34), text="Submit", kind="Button", clickable=True)
OTHER = UIElement((0.1, 0.36, 0.3, 0.40), text="Cancel", kind="Button", clickable=True)
GOLD = Step(
    benchmark="miniwob",
    episode_id="click-button-1",
    index=0,
    instruction="Click Submit.",
    screenshot=Screenshot(b"", 1080, 2180),
    elements=(BUTTON, OTHER),
    action=Action(ActionType.TAP, (0.2, 0.32)),
)
TYPED = replace(GOLD, action=Action(ActionType.TYPE, (0.2, 0.32), text="Ada  Lovelace"))
SWIPED = replace(GOLD, action=Action(ActionType.SWIPE, (0.5, 0.5), (0.5, 0.2)))
BARE = replace(GOLD, elements=())


@pytest.mark.parametrize(
    "gold, action, wanted",
    [
        (GOLD, Action(ActionType.TAP, (0.12, 0.335)), 1.0),
        (GOLD, Action(ActionType.TAP, (0.2, 0.38)), 0.0),  # the button below, six hundredths away
        (GOLD, Action(ActionType.LONG_PRESS, (0.2, 0.32)), 0.0),
        (GOLD, None, 0.0),
        (BARE, Action(ActionType.TAP, (0.215, 0.305)), 1.0),
        (BARE, Action(ActionType.TAP, (0.225, 0.32)), 0.0),
        (TYPED, Action(ActionType.TYPE, (0.2, 0.32), text="Ada Lovelace"), 1.0),
        (TYPED, Action(ActionType.TYPE, (0.2, 0.32), text="Ada"), 0.0),
        (TYPED, Action(ActionType.TYPE, (0.2, 0.38), text="Ada Lovelace"), 0.0),
        (TYPED, Action(ActionType.TYPE, text="Ada Lovelace"), 0.0),
        (SWIPED, Action(ActionType.SWIPE, (0.1, 0.9), (0.1, 0.1)), 1.0),
        (SWIPED, Action(ActionType.SWIPE, (0.1, 0.1), (0.1, 0.9)), 0.0),
    ],
)
def test_a_step_is_right_where_the_page_would_see_the_same(gold, action, wanted):
    assert get_benchmark("miniwob").score(action, gold) == wanted
