"""What holds for every grammar: it reads what it writes, never raises, and takes linear time."""

from __future__ import annotations

import time

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from switchmem.actors.grammars.base import GrammarError, Parsed, get_grammar, grammar_names
from switchmem.actors.grammars.places import PictureLimits, finger_direction
from switchmem.memory.views import ElementView
from switchmem.steps import Action, ActionType, UIElement

LARGE = [name for name in grammar_names() if name not in ("pocket", "miniwob")]  # these write cells of a grid
IN_PIXELS = ["mobile_use_pixels", "ui_tars_15", "learngui"]
# The grammars that have no word for a drag write a swipe, and these keep no more of a path than its direction.
WITHOUT_DRAG = ("mobile_use", "mobile_use_pixels", "learngui")
ONLY_DIRECTION = {"learngui": ("swipe", "drag"), "ui_tars_15": ("swipe",)}
SIZES = [(1080, 2400), (1440, 3040), (720, 1280), (2400, 1080), (128, 224), (411, 731)]
SIZE = SIZES[0]
PATHS = (ActionType.SWIPE, ActionType.DRAG)

unit = st.floats(0, 1)
words = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)


@st.composite
def actions(draw) -> Action:
    kind = draw(st.sampled_from(ActionType))
    point = (draw(unit), draw(unit)) if kind.is_spatial else None
    end = (draw(unit), draw(unit)) if kind in PATHS else None
    texts = {ActionType.TYPE: words, ActionType.OPEN: words, ActionType.COMPLETE: st.none() | words}
    return Action(kind, point, end, draw(texts[kind]) if kind in texts else None)


def grid(name: str, size: tuple[int, int]) -> tuple[float, float]:
    """The farthest that a place may move by being written."""
    if name in ("mobile_use", "ui_tars"):
        return 0.5 / 1000, 0.5 / 1000
    if name == "aguvis":
        return 0.5 / 10_000, 0.5 / 10_000
    limits = {"mobile_use_pixels": (56 * 56, 16384 * 784), "ui_tars_15": (100 * 784, 16384 * 784)}
    width, height = PictureLimits(28, *limits[name]).resized(size) if name in limits else size
    return 0.5 / width, 0.5 / height


def near(a, b, x, y) -> bool:
    return (a is None) == (b is None) and (a is None or (abs(a[0] - b[0]) <= x + 1e-9 and abs(a[1] - b[1]) <= y + 1e-9))


def expected(name: str, action: Action) -> tuple[ActionType, str | None]:
    """Type and text that are read back."""
    kind, text = action.type, action.text
    if kind is ActionType.DRAG and name in WITHOUT_DRAG:
        kind = ActionType.SWIPE
    if name == "learngui" and text is not None:
        text = text.replace("\n", " ")
    if name.startswith("ui_tars") and kind is ActionType.TYPE and text:
        text = text.rstrip("\r\n")
        kind, text = (kind, text) if text else (ActionType.ENTER, None)
    return kind, None if kind is ActionType.COMPLETE and not text else text


# The marks that end a thought or a segment part an answer wherever they stand.
PARTING = {"mobile_use": ("</think>", "<function="), "aguvis": ("<|recipient|>os",)}


def is_parted(name: str, text: str | None) -> bool:
    return any(mark in (text or "") for mark in PARTING.get(name.removesuffix("_pixels"), ()))


thoughts = st.sampled_from(["", 'Thought: it\'s "there" (see above).\nAction: ', "\n", "I look at it.\n"])


@settings(deadline=None, max_examples=100)
@given(actions(), st.sampled_from(SIZES), thoughts)
@pytest.mark.parametrize("name", LARGE)
def test_what_is_written_is_read_back(name, action, size, thought):
    assume(not is_parted(name, action.text))
    grammar = get_grammar(name).for_screen(size)
    written = grammar.action(action)
    read = get_grammar(name).parse(thought + written, size).action
    assert read is not None, (written, grammar.parse(thought + written, size).reason)
    assert (read.type, read.text) == expected(name, action)
    if action.type.value in ONLY_DIRECTION.get(name, ()):
        assert finger_direction(read.point, read.end) == finger_direction(action.point, action.end)
        read_again = grammar.parse(grammar.action(read), size).action
        assert finger_direction(read_again.point, read_again.end) == finger_direction(read.point, read.end)
        return
    assert near(read.point, action.point, *grid(name, size)) and near(read.end, action.end, *grid(name, size))
    if (read.type, read.text) == (action.type, action.text):
        assert grammar.action(read) == written, "a second time nothing may change"


# Texts that look like grammar: every one has to come back as it went.
HOSTILE_TEXTS = [
    "it's", 'say "hi"', "a') b", "x'), click(start_box='(1,2)')", "Action: press_home()", "a\nAction: wait()\n b",
    "C:\\", "\\'", "\\n", "\ttab", "}]", '"}', "CLICK[1,2]", "a]b]", "[", "</tool_call>", "<|box_start|>", "', x='1",
    "pyautogui.click(x=0.1, y=0.2)", "\nmobile.home()", "a\n\nb", " blanks ", "\u2028", "漢字", "\x00", "\ud800", "#",
    "\\", "</think>", "<function=mobile_use>", "<|recipient|>os\nmobile.home()", "<|im_end|>",
]  # fmt: skip


@pytest.mark.parametrize("text", HOSTILE_TEXTS)
@pytest.mark.parametrize("name", LARGE)
def test_texts_that_look_like_grammar_come_back(name, text):
    grammar = get_grammar(name)
    for kind in (ActionType.TYPE, ActionType.OPEN, ActionType.COMPLETE):
        action = Action(kind, text=text)
        read = grammar.parse(grammar.action(action), SIZE).action
        if is_parted(name, text):
            assert read is None or read.text != text, "then it is no exception, and belongs into the list"
        else:
            assert (read.type, read.text) == expected(name, action)


FRAGMENTS = [
    *"{ } [ ] ( ) ' \" , : = \\ \n \t action click coordinate 1e999 NaN -1 0.5 <tool_call> ; tap r3c2".split(" "),
    *"Action: Thought: click(start_box=' type(content=' scroll( direction='up' <point> <|box_start|> finished(".split(),
    *"pyautogui.click( x= pyautogui.scroll(page= mobile.swipe( dragTo( <|recipient|>os <|diff_marker|> lambda:".split(),
    *"CLICK[ SWIPE[UP] TYPE[ PRESS_BACK <function=mobile_use> <parameter=action> </parameter> **x f'' ''' not".split(),
    "9" * 5000,
]  # fmt: skip


@settings(deadline=None, max_examples=100)
@given(
    st.text() | st.lists(st.sampled_from(FRAGMENTS)).map(" ".join) | st.lists(st.sampled_from(FRAGMENTS)).map("".join)
)
@pytest.mark.parametrize("name", grammar_names())
def test_parsing_never_raises(name, text):
    parsed = get_grammar(name).parse(text, SIZE)
    assert isinstance(parsed, Parsed) and (parsed.action is None) != (parsed.reason is None)


@settings(deadline=None, max_examples=100)
@given(st.data())
@pytest.mark.parametrize("name", grammar_names())
def test_parsing_never_raises_on_damaged_answers(name, data):
    grammar = get_grammar(name).for_screen(SIZE)
    answer = list(grammar.action(data.draw(actions())))
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(answer)))
        answer[at : at + data.draw(st.integers(0, 3))] = data.draw(st.sampled_from(["", "\x00", *FRAGMENTS]))
    parsed = grammar.parse("".join(answer), SIZE)
    assert (parsed.action is None) != (parsed.reason is None)


ENDLESS = [
    "{", '{"a":', '{"action": "click", "coordinate": [1, ', "<function=", "<parameter=a>", "\nAction:", "Action: wait ",
    "Action: type(content='a') x ", "click(start_box='", "1,", "\n", " ", "' ", "\\", "a.", "A_", "CLICK[1,2]", "TYPE[",
    "pyautogui.click(", "pyautogui.write(message='", "(", "-", "not ", "\n```",
]  # fmt: skip


@pytest.mark.parametrize("name", grammar_names())
def test_hostile_answers_take_linear_time(name):
    grammar = get_grammar(name)
    for start in ("", "Action: click(start_box='", "pyautogui.write(message="):
        for piece in ENDLESS:
            text = start + piece * (100_000 // len(piece))
            began = time.process_time()
            grammar.parse(text, SIZE)
            # A pattern that is quadratic takes far longer; measured are at most 0.4 s.
            assert time.process_time() - began < 3, (start, piece)


@pytest.mark.parametrize("name", LARGE)
def test_elements_tell_text_and_description_on_one_line(name):
    grammar = get_grammar(name).for_screen((1000, 1000))
    element = UIElement((0.4, 0.1, 0.6, 0.14), 'Sea"rch\n', "Button", "Opens\nthe page", "app:id/box", clickable=True)
    line = grammar.element(element)
    assert line == f'{grammar.point(0.5, 0.12)} "Sea\\"rch" Button, description "Opens the page", id box, clickable'
    assert grammar.element(UIElement((0, 0, 1, 1), description="Menu")).endswith(' "Menu"')
    boxed = grammar.element(element, ElementView(box=True, description=False, resource_id=False, flags=False))
    assert boxed == f'{grammar.point(0.4, 0.1)}-{grammar.point(0.6, 0.14)} "Sea\\"rch" Button'


@pytest.mark.parametrize("name", grammar_names())
def test_grammars_know_their_name_and_write_no_special_token(name):
    grammar = get_grammar(name).for_screen(SIZE)
    assert grammar.name == name
    for kind in ActionType:
        point, end = (0.1, 0.2) if kind.is_spatial else None, (0.3, 0.4) if kind in PATHS else None
        assert "<|" not in grammar.action(Action(kind, point, end, "x" if kind.value in ("type", "open") else None))


@pytest.mark.parametrize("name", IN_PIXELS)
def test_pixels_are_not_written_before_the_screen_is_known(name):
    with pytest.raises(GrammarError, match="for_screen"):
        get_grammar(name).action(Action(ActionType.TAP, (0.5, 0.5)))
    assert get_grammar(name).action(Action(ActionType.BACK)), "what has no place needs no screen"


@pytest.mark.parametrize("name", ["mobile_use_pixels", "ui_tars_15"])
def test_the_actors_own_limit_moves_the_pixels(name):
    limit, action = 937_664, Action(ActionType.TAP, (0.25, 0.75))
    limited = get_grammar(name, limit).for_screen(SIZE)
    width, height = PictureLimits(28, 3136, limit).resized(SIZE)
    assert width * height <= limit and limited.point(1, 1).strip("()<point>/") in (
        f"{width}, {height}",
        f"{width} {height}",
    )
    point = limited.parse(limited.action(action), SIZE).action.point
    assert near(point, action.point, 0.5 / width, 0.5 / height)
    assert not near(get_grammar(name).parse(limited.action(action), SIZE).action.point, action.point, 0.05, 0.05)


@pytest.mark.parametrize("name", [name for name in LARGE if name not in ("mobile_use_pixels", "ui_tars_15")])
def test_a_limit_of_pixels_leaves_other_places_alone(name):
    assert get_grammar(name, 937_664) == get_grammar(name)
