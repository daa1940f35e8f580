"""LearnGUI's score against a second implementation that uses no regular expression, and its quirks one by one."""

import itertools
import json
import math
import random
import re

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from switchmem.benchmarks import get_benchmark
from switchmem.benchmarks.learngui import action_string, is_action_match, is_corrected_match, parse_action
from switchmem.benchmarks.learngui.score import words_f1
from switchmem.benchmarks.learngui.strings import is_read_officially, parse_whole, recorded_action
from switchmem.steps import Action, ActionType, RecordError, Screenshot, Step

# --- the second implementation, by scanning ---


def bracketed(text, name, accepts, ignore_case):
    """Content of the first ``name[...]`` whose content up to the first "]" is accepted."""
    where = text.upper() if ignore_case else text
    start = where.find(name + "[")
    while start >= 0:
        inside = text[start + len(name) + 1 :]
        content, closed, _ = inside.partition("]")
        if closed and accepts(content):
            return content
        start = where.find(name + "[", start + 1)
    return None


def is_pair(content):
    parts = content.split(",")
    return len(parts) == 2 and all(part.isdecimal() for part in parts)


def plain_parse(text):
    if text is None or text == "":
        return None
    text = text.strip()
    pair = bracketed(text, "CLICK", is_pair, ignore_case=True)
    if pair is not None:
        return ["CLICK", *(int(part) for part in pair.split(","))]
    way = bracketed(text, "SWIPE", lambda c: c != "" and all(x == "_" or x.isalnum() for x in c), ignore_case=True)
    if way is not None:
        return ["SWIPE", way.upper()]
    typed = bracketed(text, "TYPE", lambda c: True, ignore_case=False)
    if typed is not None:
        return ["TYPE", typed]
    if text in ("PRESS_BACK", "PRESS_HOME", "PRESS_ENTER"):
        return [text]
    answer = bracketed(text, "TASK_COMPLETE", lambda c: True, ignore_case=False)
    if answer is not None:
        return ["TASK_COMPLETE", answer]
    return ["TASK_COMPLETE", ""] if text == "TASK_COMPLETE" else [text]


def plain_f1(a, b):
    if a == "" and b == "":
        return 1.0
    words_a, words_b = [], []
    for words, text in ((words_a, a), (words_b, b)):
        for word in text.lower().split():
            if word not in words:
                words.append(word)
    common = sum(word in words_b for word in words_a)
    if common == 0:
        return 0.0
    precision, recall = common / len(words_a), common / len(words_b)
    return 2 * (precision * recall) / (precision + recall)


def plain_match(pred, gold, width):
    a, b = plain_parse(pred), plain_parse(gold)
    if a is None or b is None or a[0] != b[0]:
        return (False, False)
    if b[0] == "CLICK":
        if len(a) < 3 or len(b) < 3:
            return (False, True)
        return (math.hypot(a[1] - b[1], a[2] - b[2]) <= math.floor(width * 0.14), True)
    if b[0] in ("TYPE", "SWIPE"):
        first, second = (x[1] if len(x) > 1 else "" for x in (a, b))
        return (plain_f1(first, second) >= 0.5 if b[0] == "TYPE" else first == second, True)
    return (b[0] in ("TASK_COMPLETE", "PRESS_BACK", "PRESS_HOME", "PRESS_ENTER"), True)


# --- strings ---

PIXEL = st.integers(0, 400)
PIECES = st.sampled_from(
    "CLICK[ CLICK click[ SWIPE[ Swipe[ TYPE[ type[ TYPE TASK_COMPLETE[ TASK_COMPLETE PRESS_BACK PRESS_HOME press_back "
    "PRESS_ENTER TASK_IMPOSSIBLE LONG_PRESS[ LONG_PRESS UP down LEFT ] ] ] , 1 23 045 6.5 a b foo bar".split()
    + [" ", "\n", ""]
)
TANGLED = st.lists(PIECES, max_size=9).map("".join)
WORDS = st.lists(st.sampled_from("a b c d é".split()), max_size=4).map(" ".join)
PROPER = st.one_of(
    st.builds("CLICK[{},{}]".format, PIXEL, PIXEL),
    st.sampled_from(["SWIPE[UP]", "SWIPE[DOWN]", "swipe[up]", "SWIPE[LEFT]"]),
    WORDS.map("TYPE[{}]".format),
    WORDS.map("TASK_COMPLETE[{}]".format),
    st.sampled_from(["PRESS_BACK", "PRESS_HOME", "PRESS_ENTER", "TASK_COMPLETE", "TASK_IMPOSSIBLE", "LONG_PRESS[1,2]"]),
)
STRINGS = st.one_of(PROPER, TANGLED, st.text("CLIKSWPETYU[],01 ]", max_size=12))


@settings(max_examples=400, deadline=None)
@given(STRINGS, STRINGS, st.integers(1, 3000))
@example("TYPE", "TYPE[]", 1440)
@example("SWIPE", "SWIPE", 1440)
@example("CLICK", "CLICK[1,2]", 1440)
@example("CLICK[CLICK[1,2]", "CLICK[1,2]", 1440)
def test_the_official_match_equals_the_second_implementation(pred, gold, width):
    assert is_action_match(pred, gold, width) == plain_match(pred, gold, width)
    assert is_action_match(pred, pred, width) == plain_match(pred, pred, width)


def test_it_does_so_for_200_000_pairs_around_the_borders():
    rng = random.Random(0)
    words = [" ".join(rng.choices("abcdefgh", k=rng.randrange(7))) for _ in range(400)]
    buttons = ["PRESS_BACK", "PRESS_HOME", "PRESS_ENTER", "TASK_IMPOSSIBLE", "TASK_COMPLETE"]
    swipes = ["SWIPE[UP]", "SWIPE[DOWN]", "swipe[left]", "SWIPE[RIGHT]"]
    agreed = {True: 0, False: 0}
    for _ in range(50_000):
        width, middle = rng.randrange(1, 2000), rng.randrange(2000)
        reach, angle = int(0.14 * width) + rng.choice((-1, 0, 1)), rng.random() * 2 * math.pi
        x, y = (max(0, round(middle + reach * part)) for part in (math.cos(angle), math.sin(angle)))
        others = [f"TYPE[{rng.choice(words)}]", f"TYPE[{rng.choice(words)}]", rng.choice(buttons), rng.choice(swipes)]
        first = [f"CLICK[{middle},{middle}]", rng.choice(others)]
        second = [f"CLICK[{x},{y}]", rng.choice(others)]
        for pred, gold in itertools.product(first, second):
            expected = plain_match(pred, gold, width)
            assert is_action_match(pred, gold, width) == expected, (pred, gold, width)
            agreed[expected[0]] += 1
    assert sum(agreed.values()) == 200_000 and min(agreed.values()) > 20_000


QUIRKS = [
    # (what, predicted, recorded, width, official, corrected)
    ("201 pixels at the default width", "CLICK[301,100]", "CLICK[100,100]", 1440, (True, True), (True, True)),
    ("202 pixels", "CLICK[302,100]", "CLICK[100,100]", 1440, (False, True), (False, True)),
    ("the share of the width also downwards", "CLICK[100,301]", "CLICK[100,100]", 1440, (True, True), (True, True)),
    ("rounded down: int(15.12)", "CLICK[115,0]", "CLICK[100,0]", 108, (True, True), (True, True)),
    ("Euclidean, no box", "CLICK[112,112]", "CLICK[100,100]", 108, (False, True), (False, True)),
    ("click in any case", "click[1,2]", "CLICK[1,2]", 1440, (True, True), (True, True)),
    ("a blank in a click", "CLICK[10, 20]", "CLICK[10,20]", 1440, (False, False), (True, True)),
    ("a decimal point in a click", "CLICK[10.4,20]", "CLICK[10,20]", 1440, (False, False), (True, True)),
    ("equal unreadable clicks", "CLICK[10, 20]", "CLICK[10, 20]", 1440, (False, True), (True, True)),
    ("typed words in another case", "TYPE[ROME]", "TYPE[rome]", 1440, (True, True), (True, True)),
    ("F1 of 2/3", "TYPE[foo bar]", "TYPE[foo]", 1440, (True, True), (True, True)),
    ("F1 of exactly 1/2", "TYPE[a]", "TYPE[a b c]", 1440, (True, True), (True, True)),
    ("F1 below 1/2", "TYPE[a]", "TYPE[a b c d]", 1440, (False, True), (False, True)),
    ("words count once", "TYPE[a a a a]", "TYPE[a]", 1440, (True, True), (True, True)),
    ("both empty", "TYPE[]", "TYPE[]", 1440, (True, True), (True, True)),
    ("one empty", "TYPE[]", "TYPE[a]", 1440, (False, True), (False, True)),
    ("both blank", "TYPE[ ]", "TYPE[ ]", 1440, (False, True), (True, True)),
    ("a bare TYPE has an empty text", "TYPE", "TYPE[]", 1440, (True, True), (False, False)),
    ("type in small letters", "type[abc]", "TYPE[abc]", 1440, (False, False), (True, True)),
    ("a text ends at the first ]", "TYPE[a]zzz]", "TYPE[a]b]", 1440, (True, True), (False, True)),
    ("a click inside a text", "TYPE[see CLICK[1,2]]", "CLICK[1,2]", 1440, (True, True), (False, False)),
    ("a swipe inside a text", "TYPE[SWIPE[UP]]", "SWIPE[UP]", 1440, (True, True), (False, False)),
    ("a click inside an answer", "TASK_COMPLETE[CLICK[1,2]]", "TASK_COMPLETE[]", 1440, (False, False), (True, True)),
    ("swipe in any case", "swipe[up]", "SWIPE[UP]", 1440, (True, True), (True, True)),
    ("the other direction", "SWIPE[DOWN]", "SWIPE[UP]", 1440, (False, True), (False, True)),
    ("no direction at all", "SWIPE", "SWIPE", 1440, (True, True), (False, False)),
    ("equal unknown directions", "SWIPE[IN]", "SWIPE[IN]", 1440, (True, True), (False, False)),
    ("a button", "PRESS_BACK", "PRESS_BACK", 1440, (True, True), (True, True)),
    ("a button in small letters", "press_back", "PRESS_BACK", 1440, (False, False), (True, True)),
    ("another button", "PRESS_HOME", "PRESS_BACK", 1440, (False, False), (False, False)),
    ("blanks around it", " PRESS_ENTER\n", "PRESS_ENTER", 1440, (True, True), (True, True)),
    ("any answer", "TASK_COMPLETE[no]", "TASK_COMPLETE[1h30m]", 1440, (True, True), (True, True)),
    ("no answer", "TASK_COMPLETE", "TASK_COMPLETE[1h30m]", 1440, (True, True), (True, True)),
    ("an impossible task", "TASK_IMPOSSIBLE", "TASK_IMPOSSIBLE", 1440, (False, True), (True, True)),
    ("an equal long press", "LONG_PRESS[1,2]", "LONG_PRESS[1,2]", 1440, (False, True), (True, True)),
    ("a near long press", "LONG_PRESS[1,3]", "LONG_PRESS[1,2]", 1440, (False, False), (True, True)),
    ("a far long press", "LONG_PRESS[900,3]", "LONG_PRESS[1,2]", 1440, (False, False), (False, True)),
    ("a click for a long press", "CLICK[1,2]", "LONG_PRESS[1,2]", 1440, (False, False), (False, False)),
    ("equal garbage", "garbage", "garbage", 1440, (False, True), (False, False)),
    ("no answer of the actor", "", "PRESS_BACK", 1440, (False, False), (False, False)),
    ("None", None, "PRESS_BACK", 1440, (False, False), (False, False)),
    ("blanks alone agree in type", " ", " ", 1440, (False, True), (False, False)),
    ("thousands of digits", f"CLICK[{'9' * 5000},1]", f"CLICK[{'9' * 5000},1]", 1440, (False, False), (False, True)),
    ("hundreds of digits", f"CLICK[{'9' * 500},1]", "CLICK[1,1]", 1440, (False, True), (False, True)),
    # 6 common words of 11 and 13: 2 (6/11) (6/13) / (6/11 + 6/13) is 1/2, but not in floats
    (
        "a rounded 1/2",
        "TYPE[a b c d e f p1 p2 p3 p4 p5]",
        "TYPE[a b c d e f g1 g2 g3 g4 g5 g6 g7]",
        1440,
        (False, True),
        (True, True),
    ),
]


@pytest.mark.parametrize(
    ("pred", "gold", "width", "official", "corrected"), [q[1:] for q in QUIRKS], ids=[q[0] for q in QUIRKS]
)
def test_a_quirk(pred, gold, width, official, corrected):
    assert is_action_match(pred, gold, width) == official
    assert is_corrected_match(pred, gold, width) == corrected


def test_ratio_and_threshold_are_taken():
    assert is_action_match("CLICK[0,0]", "CLICK[50,0]", 100, tolerance_ratio=0.5) == (True, True)
    assert is_action_match("CLICK[0,0]", "CLICK[51,0]", 100, tolerance_ratio=0.5) == (False, True)
    assert is_action_match("CLICK[0,0]", "CLICK[0,0]", 100, tolerance_ratio=-0.5) == (False, True)
    assert is_action_match("TYPE[a b]", "TYPE[a c]", f1_threshold=0.6) == (False, True)
    assert is_corrected_match("TYPE[a b]", "TYPE[a c]", f1_threshold=0.6) == (False, True)


@given(WORDS, WORDS)
def test_the_f1_is_that_of_sets(a, b):
    first, second = set(a.split()), set(b.split())
    expected = 2 * len(first & second) / (len(first) + len(second)) if first or second else 1.0
    assert words_f1(a, b) == pytest.approx(expected, abs=1e-12)


@given(STRINGS)
def test_the_corrected_reading_never_contradicts_a_proper_string(text):
    """Where a string is read whole and in LearnGUI's own spelling, both readings agree."""
    proper = re.fullmatch(
        r"CLICK\[\d+,\d+\]|SWIPE\[(UP|DOWN|LEFT|RIGHT)\]|TYPE\[[a-z ]*\]|PRESS_(BACK|HOME|ENTER)", text
    )
    if proper:
        assert parse_whole(text) == parse_action(text)


# --- actions ---


def step(action, width=100, height=200):
    return Step("learngui", "e", 0, "go", Screenshot(b"never decoded", width, height), (), action)


def test_written_actions():
    written = {
        "CLICK[50,50]": Action(ActionType.TAP, (0.5, 0.25)),
        "LONG_PRESS[100,200]": Action(ActionType.LONG_PRESS, (1.0, 1.0)),
        "TYPE[a]b]": Action(ActionType.TYPE, text="a]b"),
        "TASK_COMPLETE[]": Action(ActionType.COMPLETE),
        "TASK_COMPLETE[42]": Action(ActionType.COMPLETE, text="42"),
        "TASK_IMPOSSIBLE": Action(ActionType.IMPOSSIBLE),
        "PRESS_BACK": Action(ActionType.BACK),
        "PRESS_HOME": Action(ActionType.HOME),
        "PRESS_ENTER": Action(ActionType.ENTER),
    }
    for text, action in written.items():
        assert action_string(action, 100, 200) == text
        assert recorded_action(text, 100, 200) == action
    assert action_string(Action(ActionType.WAIT), 100, 200) is None
    assert action_string(Action(ActionType.OPEN, text="Mail"), 100, 200) is None
    assert action_string(Action(ActionType.DRAG, (0.1, 0.1), (0.2, 0.9)), 100, 200) is None


@pytest.mark.parametrize(
    ("end", "way"),
    [
        ((0.5, 0.1), "UP"),
        ((0.5, 0.9), "DOWN"),
        ((0.1, 0.5), "LEFT"),
        ((0.9, 0.5), "RIGHT"),
        ((0.7, 0.4), "RIGHT"),
        ((0.75, 0.25), "UP"),  # as far on both axes: vertical
        ((0.25, 0.75), "DOWN"),
        ((0.5, 0.5), ""),
    ],
)
def test_directions_are_those_of_the_finger_on_the_longer_axis(end, way):
    # On a screen twice as high, 0.2 across is as far as 0.1 down in pixels; fractions decide.
    assert action_string(Action(ActionType.SWIPE, (0.5, 0.5), end), 100, 200) == f"SWIPE[{way}]"


@given(st.integers(1, 4000), st.integers(1, 4000), st.data())
def test_pixels_survive_the_way_through_fractions(width, height, data):
    x, y = data.draw(st.integers(0, width)), data.draw(st.integers(0, height))
    for name in ("CLICK", "LONG_PRESS"):
        assert action_string(recorded_action(f"{name}[{x},{y}]", width, height), width, height) == f"{name}[{x},{y}]"


@given(STRINGS)
def test_a_recorded_string_means_the_same_to_the_official_score_or_is_told_apart(text):
    try:
        action = recorded_action(text, 500, 500)
    except RecordError as error:
        assert "`action` must be" in str(error)
        return
    written = action_string(action, 500, 500)
    if is_read_officially(text, action, 500, 500):
        for other in ("CLICK[3,4]", "TYPE[a b]", "SWIPE[UP]", "PRESS_BACK", "TASK_COMPLETE[x]"):
            assert is_action_match(other, text, 500) == is_action_match(other, written, 500)
    else:
        assert plain_parse(text) != plain_parse(written)


@pytest.mark.parametrize(
    "text", ["CLICK[101,0]", "CLICK[0,201]", "SWIPE[IN]", "SWIPE", "garbage", "TYPE", "CLICK[1]", ""]
)
def test_what_is_no_action_or_off_the_screen_is_refused(text):
    with pytest.raises(RecordError, match="`action` must be"):
        recorded_action(text, 100, 200)


def test_the_benchmarks_score():
    official, corrected = get_benchmark("learngui"), get_benchmark("learngui_corrected")
    assert (official.name, corrected.name) == ("learngui", "learngui_corrected")
    tap = Action(ActionType.TAP, (0.5, 0.5))
    assert official.score(None, step(tap)) == 0.0
    # int(0.14 * 100) = 14 pixels, on both axes alike
    assert official.score(Action(ActionType.TAP, (0.64, 0.5)), step(tap)) == 1.0
    assert official.score(Action(ActionType.TAP, (0.65, 0.5)), step(tap)) == 0.0
    assert official.score(Action(ActionType.TAP, (0.5, 0.57)), step(tap)) == 1.0
    assert official.score(Action(ActionType.TAP, (0.5, 0.575)), step(tap)) == 0.0
    assert official.score(Action(ActionType.WAIT), step(tap)) == 0.0
    up = Action(ActionType.SWIPE, (0.5, 0.7), (0.5, 0.3))
    assert official.score(Action(ActionType.SWIPE, (0.2, 0.9), (0.1, 0.2)), step(up)) == 1.0
    assert official.score(Action(ActionType.SWIPE, (0.5, 0.3), (0.5, 0.7)), step(up)) == 0.0
    assert official.score(Action(ActionType.SWIPE, (0.5, 0.3), (0.5, 0.3)), step(up)) == 0.0
    for kind in (ActionType.IMPOSSIBLE, ActionType.LONG_PRESS):
        gold = Action(kind, (0.5, 0.5) if kind is ActionType.LONG_PRESS else None)
        assert (official.score(gold, step(gold)), corrected.score(gold, step(gold))) == (0.0, 1.0)
    typed = Action(ActionType.TYPE, text="a]b c")
    other = Action(ActionType.TYPE, text="a]x y")
    assert (official.score(other, step(typed)), corrected.score(other, step(typed))) == (1.0, 0.0)
    assert official.score(Action(ActionType.COMPLETE, text="1"), step(Action(ActionType.COMPLETE, text="2"))) == 1.0


@pytest.mark.real_data
def test_real_amex_decisions(real_data):
    """Real clicks, written as LearnGUI does, match themselves up to the tolerance and no further."""
    rows = (real_data / "learngui_like" / "amex_steps_400.jsonl").read_text(encoding="utf-8").split("\n")
    official = get_benchmark("learngui")
    clicks = 0
    for row in filter(None, rows):
        found = re.search(r"'action': 'click', 'coordinate': \[(\d+), (\d+)\]", json.loads(row)["decision"])
        if found is None:
            continue
        clicks += 1
        x, y = int(found[1]), int(found[2])
        gold = step(recorded_action(f"CLICK[{x},{y}]", 1440, 3120), 1440, 3120)
        for shift, expected in ((0, 1.0), (201, 1.0), (202, 0.0)):
            moved = recorded_action(f"CLICK[{x},{y - shift if y > 1500 else y + shift}]", 1440, 3120)
            assert official.score(moved, gold) == expected
    assert clicks > 200
