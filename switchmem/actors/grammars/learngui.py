"""LearnGUI's action strings as an actor writes them: ``CLICK[540,1200]``, ``SWIPE[UP]``, ``TYPE[text]``, ...

Places are pixels of the screenshot itself; a swipe's direction is that of the finger. The benchmark's official scorer
reads these strings with gaps (no blanks, no fractions, no lower case); here an answer is read as it is meant.

The first line that is an action, alone or behind ``Action:``, counts. In running text it is the last action: reasons
come before conclusions, and words such as "wait" or "type" are actions there only with their brackets.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from switchmem.actors.grammars.base import Parsed, ParseReason, Unreadable
from switchmem.actors.grammars.elements import PlacedGrammar
from switchmem.actors.grammars.places import Pixels, Places, Size, finger_direction, finger_path, numbers, read_place
from switchmem.steps import Action, ActionType

_POINT = {"CLICK": ActionType.TAP, "LONG_PRESS": ActionType.LONG_PRESS}
_TEXT = {"TYPE": ActionType.TYPE, "OPEN": ActionType.OPEN}
_BARE = {
    "PRESS_BACK": ActionType.BACK,
    "PRESS_HOME": ActionType.HOME,
    "PRESS_ENTER": ActionType.ENTER,
    "TASK_COMPLETE": ActionType.COMPLETE,
    "TASK_IMPOSSIBLE": ActionType.IMPOSSIBLE,
    "WAIT": ActionType.WAIT,
}
_NAMES = {kind: name for name, kind in {**_POINT, **_TEXT, **_BARE}.items()}
_ANY = "|".join([*_POINT, *_TEXT, *_BARE, "SWIPE"]).replace("_", "[_ ]")
# Parentheses are brackets only before numbers, lest a remark in parentheses counts. Runs of white space are limited,
# so that a long one is not tried from each of its places.
_OPEN = r"[ \t]{0,9}(\[|\((?=[ \t]{0,9}\d))"
_LINE = re.compile(rf"(?:Action[ \t]?:)?[ \t'\"`*]{{0,9}}({_ANY})(?:{_OPEN}(.*))?", re.IGNORECASE)
_INSIDE = re.compile(rf"(?<!\w)({_ANY}){_OPEN}([^\[\]()\n]*)[\])]", re.IGNORECASE)
_INSIDE_BARE = re.compile(
    r"(?<!\w)(PRESS_BACK|PRESS_HOME|PRESS_ENTER|TASK_COMPLETE|TASK_IMPOSSIBLE)(?!\w)", re.IGNORECASE
)
_LIKE_ACTION = re.compile(r"(?<!\w)[A-Z]+(?:_[A-Z]+)*\[")
_AROUND = " \t\r'\"`*.,;>-"

_SYSTEM = """You operate a phone for the user. {size}Answer with the next action alone, in one of these forms:
CLICK[x,y] - tap the point; x and y are pixels of the screenshot, from the top left
SWIPE[UP], SWIPE[DOWN], SWIPE[LEFT], SWIPE[RIGHT] - move the finger that way
TYPE[text] - type the text into the field that has the focus
PRESS_BACK - go back
PRESS_HOME - go to the home screen
PRESS_ENTER - press Enter
TASK_COMPLETE[answer] - the task is done; the answer is empty unless the user asked for one"""


@dataclass(frozen=True)
class LearnGUIGrammar(PlacedGrammar):
    """LearnGUI's strings. A swipe or drag is its main direction; ``OPEN[app]`` and ``WAIT`` are additions.

    As in the benchmark's own prompt, ``TASK_IMPOSSIBLE`` and ``LONG_PRESS`` are read but not offered.

    >>> LearnGUIGrammar().parse("click[ 540, 1200.0 ]", (1080, 2400)).action.point
    (0.5, 0.5)
    >>> LearnGUIGrammar().for_screen((1080, 2400)).action(Action(ActionType.TAP, (0.5, 0.25)))
    'CLICK[540,600]'
    """

    places: Places = Pixels(None)
    name = "learngui"

    @property
    def system(self) -> str:
        """The strings; names the screenshot's size where it is known."""
        screen = self.places.screen if isinstance(self.places, Pixels) else None
        return _SYSTEM.format(size=f"The screenshot is {screen[0]} x {screen[1]} pixels. " if screen else "")

    def action(self, action: Action) -> str:
        """The string; line breaks of a text become blanks."""
        text = " ".join((action.text or "").split("\n"))
        if action.point is not None and action.end is not None:
            return f"SWIPE[{finger_direction(action.point, action.end).upper()}]"
        name = _NAMES[action.type]
        if action.point is not None:
            return "{}[{},{}]".format(name, *self.places.write(*action.point))
        return f"{name}[{text}]" if name in _TEXT or name == "TASK_COMPLETE" else name

    def parse(self, text: str, size: Size) -> Parsed:
        """Read an answer to a screenshot of ``(width, height)`` pixels."""
        if not text.strip():
            return Parsed(None, ParseReason.EMPTY)
        try:
            return Parsed(self._read(*_find(text), size))
        except Unreadable as error:
            return Parsed(None, error.reason)

    def _read(self, name: str, argument: str | None, size: Size) -> Action:
        """An action from its name and what stands in its brackets, None without brackets.

        Raises:
            Unreadable: with the reason, if it is none.
        """
        if name == "TASK_COMPLETE":
            return Action(ActionType.COMPLETE, text=argument or None)
        if name in _BARE:
            return Action(_BARE[name])
        if argument is None:
            raise Unreadable(ParseReason.MISSING_ARGUMENT)
        if name in _TEXT:
            return Action(_TEXT[name], text=argument)
        if name in _POINT:
            return Action(_POINT[name], read_place(numbers(argument), self.places, size))
        direction = argument.strip(" \t'\"").lower()
        if not direction:
            raise Unreadable(ParseReason.MISSING_ARGUMENT)
        return Action(ActionType.SWIPE, *finger_path(direction))


def _find(text: str) -> tuple[str, str | None]:
    """Name and argument of the action that counts.

    Raises:
        Unreadable: if there is none.
    """
    for line in text.split("\n"):
        found = _whole_line(line)
        if found is not None:
            return found
    matches = [match for pattern in (_INSIDE, _INSIDE_BARE) for match in pattern.finditer(text)]
    if matches:
        last = max(matches, key=lambda match: (match.end(), match.re is _INSIDE))
        return _name(last[1]), last[3] if last.re is _INSIDE else None
    raise Unreadable(ParseReason.UNKNOWN_ACTION if _LIKE_ACTION.search(text) else ParseReason.NO_ACTION)


def _whole_line(line: str) -> tuple[str, str | None] | None:
    """The action that a line is; its closing bracket may lack, and quotes and points may stand around it."""
    line = line.strip(" \t\r").lstrip(_AROUND)
    match = _LINE.match(line)
    if match is None:
        return None
    name, argument = _name(match[1]), match[3]
    if argument is None:
        is_bare = name in _BARE and not line[match.end() :].strip(_AROUND)
        return (name, None) if is_bare else None
    bracket = argument.rfind("]" if match[2] == "[" else ")")
    if bracket < 0:
        return name, argument
    return None if argument[bracket + 1 :].strip(_AROUND) else (name, argument[:bracket])


def _name(written: str) -> str:
    return written.upper().replace(" ", "_")
