"""AndroidWorld's actions, carried out on a page (its env/actuation.py)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from switchmem.envs.base import Ending, PhoneAction, PhoneActionType, Screen
from switchmem.envs.miniwob.geometry import Geometry
from switchmem.envs.miniwob.gestures import scroll_path, swipe_path
from switchmem.envs.miniwob.page import TaskPage

KEYBOARD_MS = 1000  # between the tap on a field and the first letter
WAIT_MS = 1000  # of the action that waits

_ENDS = {
    PhoneActionType.NAVIGATE_HOME: Ending.LEFT_APP,
    PhoneActionType.OPEN_APP: Ending.LEFT_APP,
    PhoneActionType.STATUS: Ending.AGENT_DONE,
}


async def perform(page: TaskPage, action: PhoneAction, screen: Screen, geometry: Geometry) -> Ending | None:
    """Carry out an action.

    Args:
        page: to act on.
        action: what is done. One beside the page (on the system's bars), and an empty text, does nothing.
        screen: the last one that was seen; tells what can be scrolled.
        geometry: of its screenshot.

    Returns:
        How the action ends the episode by itself, or None.
    """
    if action.type in _ENDS:
        return _ENDS[action.type]
    await _HANDLERS[action.type](page, action, screen, geometry)
    return None


def _point(action: PhoneAction, geometry: Geometry) -> tuple[float, float] | None:
    if action.x is None or action.y is None:
        return None
    return geometry.to_page(action.x, action.y)


async def _click(page: TaskPage, action: PhoneAction, screen: Screen, geometry: Geometry) -> None:
    point = _point(action, geometry)
    if point is not None:
        await page.tap(*point)


async def _double_tap(page: TaskPage, action: PhoneAction, screen: Screen, geometry: Geometry) -> None:
    await _click(page, action, screen, geometry)
    await _click(page, action, screen, geometry)


async def _long_press(page: TaskPage, action: PhoneAction, screen: Screen, geometry: Geometry) -> None:
    point = _point(action, geometry)
    if point is not None:
        await page.long_press(*point)


async def _input_text(page: TaskPage, action: PhoneAction, screen: Screen, geometry: Geometry) -> None:
    if not action.text:
        return
    if action.x is not None:
        await _click(page, action, screen, geometry)
        await page.pass_time(KEYBOARD_MS)
    await page.type(action.text, action.clear_text)


async def _scroll(page: TaskPage, action: PhoneAction, screen: Screen, geometry: Geometry) -> None:
    assert action.direction is not None  # `PhoneAction` sees to it
    await page.swipe(*scroll_path(screen.elements, geometry, action.direction, action.x, action.y))


async def _swipe(page: TaskPage, action: PhoneAction, screen: Screen, geometry: Geometry) -> None:
    assert action.direction is not None  # `PhoneAction` sees to it
    await page.swipe(*swipe_path(action.direction))


async def _enter(page: TaskPage, action: PhoneAction, screen: Screen, geometry: Geometry) -> None:
    await page.enter()


async def _back(page: TaskPage, action: PhoneAction, screen: Screen, geometry: Geometry) -> None:
    await page.back()


async def _wait(page: TaskPage, action: PhoneAction, screen: Screen, geometry: Geometry) -> None:
    await page.pass_time(WAIT_MS)


async def _answer(page: TaskPage, action: PhoneAction, screen: Screen, geometry: Geometry) -> None:
    """An answer is noted by the phone and changes nothing on a page."""


_HANDLERS: dict[PhoneActionType, Callable[[TaskPage, PhoneAction, Screen, Geometry], Awaitable[None]]] = {
    PhoneActionType.CLICK: _click,
    PhoneActionType.DOUBLE_TAP: _double_tap,
    PhoneActionType.LONG_PRESS: _long_press,
    PhoneActionType.INPUT_TEXT: _input_text,
    PhoneActionType.SCROLL: _scroll,
    PhoneActionType.SWIPE: _swipe,
    PhoneActionType.KEYBOARD_ENTER: _enter,
    PhoneActionType.NAVIGATE_BACK: _back,
    PhoneActionType.WAIT: _wait,
    PhoneActionType.ANSWER: _answer,
}
