"""AndroidControl-style episodes: the real trees and actions, N + 1 screens for N actions, and what breaks."""

import copy
import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import Image

from switchmem.benchmarks import DataError, DataReport, get_benchmark
from switchmem.benchmarks.androidcontrol import parse_action, read_episodes, tree_elements
from switchmem.benchmarks.general_score import tapped_element
from switchmem.steps import Action, ActionType, RecordError, UIElement

SIZE = (100, 200)
UP, DOWN = ((0.5, 0.75), (0.5, 0.25)), ((0.5, 0.25), (0.5, 0.75))


def node(box, **fields):
    names = ("text", "content_description", "hint_text", "tooltip", "resource_id")
    edges = dict(zip(("x_min", "y_min", "x_max", "y_max"), box, strict=True))
    flags = {f"is_{name}": False for name in ("clickable", "editable", "checked", "scrollable")}
    fixed = {"class_name": "android.widget.TextView", "is_visible": True, "bbox_pixels": edges}
    return {**dict.fromkeys(names), **flags, **fixed, **fields}


TREE = [
    node((0, 0, 100, 40), text="Wi-Fi", is_clickable=True),
    node((0, 0, 0, 0), text="zero"),
    node((0, 90, 50, 80), text="negative"),
    node((0, 0, 100, 200)),  # a container
]
ACTIONS = [
    {"action_type": "open_app", "app_name": "Settings"},
    {"action_type": "click", "x": 50, "y": 20},
    {"action_type": "scroll", "direction": "down"},
]


def episode(number=0, **changes):
    count = len(ACTIONS)
    values = {
        "episode_id": number,
        "goal": " Open  the app , go . ",
        "screenshots": [f"{number}/screenshot_{i}.png" for i in range(count + 1)],
        "accessibility_trees": [TREE] * (count + 1),
        "screenshot_widths": [SIZE[0]] * (count + 1),
        "screenshot_heights": [SIZE[1]] * (count + 1),
        "actions": ACTIONS,
        "step_instructions": ["Open it ", "Tap it", None],
    }
    return copy.deepcopy({**values, **changes})


def draw(folder, episodes):
    """A picture of the declared size for each screen."""
    for one in episodes:
        screens = zip(one["screenshots"], one["screenshot_widths"], one["screenshot_heights"], strict=True)
        for name, width, height in screens:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            Image.new("RGB", (width, height), (9, 9, 9)).save(folder / name, compress_level=1)


@pytest.fixture
def folder(tmp_path):
    draw(tmp_path / "data", [episode(number) for number in range(3)])
    return tmp_path / "data"


def write(folder, value, name="episodes.json"):
    (folder / name).write_text(value if isinstance(value, str) else json.dumps(value))


def read(root):
    report = DataReport()
    try:
        steps = list(read_episodes(root, report))
    except DataError:
        steps = []
    return steps, {fault.id: fault.reason for fault in report.faults}, report


def test_an_episode_becomes_steps(folder):
    write(folder, episode())
    steps, faults, report = read(folder)
    assert [step.step_id for step in steps] == [f"android_control/0/{i}" for i in range(3)]
    assert [step.action for step in steps] == [
        Action(ActionType.OPEN, text="Settings", description="Open it"),
        Action(ActionType.TAP, (0.5, 0.1), description="Tap it"),
        Action(ActionType.SWIPE, *UP),
    ]
    assert {step.instruction for step in steps} == {"Open  the app , go ."}
    assert steps[0].elements == (UIElement((0.0, 0.0, 1.0, 0.2), "Wi-Fi", "TextView", clickable=True),)
    assert not faults and (report.read, report.kept) == (3, 3)
    assert report.notes == {"episodes": 1, "elements_dropped": 6}
    assert get_benchmark("android_control").name == steps[0].benchmark


@pytest.mark.parametrize(
    "text",
    [
        lambda one: json.dumps(one),
        lambda one: json.dumps(one, indent=1),
        lambda one: "".join(f" {json.dumps(e)}\n" for e in one),
        lambda one: "\ufeff" + json.dumps(one),
    ],
    ids=["list", "indented list", "one after another", "marked"],
)
def test_layouts_of_a_json_file(folder, text):
    write(folder, text([episode(number) for number in range(3)]))
    steps, faults, _ = read(folder)
    assert [step.episode_id for step in steps] == ["0"] * 3 + ["1"] * 3 + ["2"] * 3 and not faults


def test_files_of_a_folder_lists_of_splits_and_one_file(folder):
    write(folder, json.dumps(episode(0)) + "\n" + json.dumps(episode(1)) + "\n", "a.jsonl")
    write(folder, episode(2), "b.json")
    write(folder, {"train": [0, 1], "validation": [], "test": [2]}, "splits.json")
    steps, faults, report = read(folder)
    assert len(steps) == 9 and not faults and report.notes["lists_of_splits"] == 1
    assert len(read(folder / "b.json")[0]) == 3


@pytest.mark.parametrize(
    "recorded, expected",
    [
        ({"action_type": "click", "x": 50, "y": 200}, Action(ActionType.TAP, (0.5, 1.0))),
        ({"action_type": "long_press", "x": 0, "y": 50}, Action(ActionType.LONG_PRESS, (0.0, 0.25))),
        ({"action_type": "scroll", "direction": "up"}, Action(ActionType.SWIPE, *DOWN)),
        ({"action_type": "swipe", "direction": "up"}, Action(ActionType.SWIPE, *UP)),
        ({"action_type": "input_text", "text": "Rome", "x": 4}, Action(ActionType.TYPE, text="Rome")),
        ({"action_type": "navigate_back"}, Action(ActionType.BACK)),
        ({"action_type": "navigate_home"}, Action(ActionType.HOME)),
        ({"action_type": "keyboard_enter"}, Action(ActionType.ENTER)),
        ({"action_type": "wait"}, Action(ActionType.WAIT)),
        ({"action_type": "status", "goal_status": "successful"}, Action(ActionType.COMPLETE)),
        ({"action_type": "status", "goal_status": "infeasible"}, Action(ActionType.IMPOSSIBLE)),
    ],
)
def test_actions(recorded, expected):
    assert parse_action(recorded, SIZE) == expected


@pytest.mark.parametrize(
    "recorded, reason",
    [
        ("click", "must be an object"),
        ({}, "`action.type` must be one of"),
        ({"action_type": ["click"]}, "`action.type` must be one of"),
        ({"action_type": "double_tap", "x": 1, "y": 1}, "`action.type` must be one of"),
        ({"action_type": "click", "x": 50}, r"2 numbers, got \[50, None\]"),
        ({"action_type": "click", "x": 101, "y": 0}, "Check `screenshot_widths`"),
        ({"action_type": "click", "x": -1, "y": 0}, "Check `screenshot_widths`"),
        ({"action_type": "scroll", "direction": "sideways"}, "up, down, left or right"),
        ({"action_type": "scroll"}, "up, down, left or right"),
        ({"action_type": "open_app"}, "needs a `text`"),
        ({"action_type": "input_text", "text": 5}, "must be a text"),
        ({"action_type": "status", "goal_status": ["x"]}, "`goal_status` must be one of"),
        ({"action_type": "status"}, "`goal_status` must be one of"),
    ],
)
def test_actions_that_are_none_say_why(recorded, reason):
    with pytest.raises(RecordError, match=reason):
        parse_action(recorded, SIZE)


def test_an_element_carries_its_fields():
    full = {"text": "wifi", "class_name": "android.widget.EditText", "resource_id": "id/box", "hint_text": "Search"}
    flags = {"is_clickable": True, "is_checked": True, "is_scrollable": True}
    tree = [
        node((10, 20, 60, 70), **full, **flags),
        node((10, 20, 160, 270), tooltip="Help", class_name=None),
        node((10, 20, 60, 70), text="unseen", is_visible=False),
        node((10, 20, 60, 70), is_long_clickable=True),
    ]
    assert tree_elements(tree, SIZE) == (
        (
            UIElement((0.1, 0.1, 0.6, 0.35), "wifi", "EditText", "Search", "id/box", True, True, True, True),
            UIElement((0.1, 0.1, 1.0, 1.0), description="Help"),
            UIElement((0.1, 0.1, 0.6, 0.35), kind="TextView"),
        ),
        0,
    )


@pytest.mark.parametrize(
    "changes, number, reason",
    [
        (
            {"screenshots": ["0/screenshot_0.png", "0/absent.png", *["0/screenshot_2.png"] * 2]},
            1,
            "0/absent.png cannot",
        ),
        ({"screenshots": ["0/screenshot_0.png", "/etc/hostname", *["0/screenshot_2.png"] * 2]}, 1, "stays in"),
        ({"screenshots": ["0/screenshot_0.png", None, *["0/screenshot_2.png"] * 2]}, 1, "must be the path"),
        ({"accessibility_trees": [TREE, TREE, None, TREE]}, 2, "must be a list of nodes"),
        ({"accessibility_trees": [TREE, [5], TREE, TREE]}, 1, "must be a list of nodes"),
        ({"accessibility_trees": [TREE, [node((0, 0, 1, None), text="a")], TREE, TREE]}, 1, "`bbox_pixels` must be"),
        ({"accessibility_trees": [TREE, [{"text": "a"}], TREE, TREE]}, 1, "`bbox_pixels` must be"),
        ({"accessibility_trees": [TREE, [node((0, 0, 9, 9), text=5)], TREE, TREE]}, 1, "`text` must be a text"),
        ({"screenshot_widths": [100, 200, 100, 100]}, 1, "screen of 200 x 200, got a picture of 100 x 200"),
        ({"screenshot_heights": [200, 0, 200, 200]}, 1, "whole pixels"),
        ({"screenshot_heights": [200, "200", 200, 200]}, 1, "whole pixels"),
        ({"step_instructions": ["", 5, ""]}, 1, "`step_instruction` must be a text"),
        ({"actions": [ACTIONS[0], {"action_type": "fly"}, ACTIONS[2]]}, 1, "got 'fly'"),
    ],
)
def test_a_broken_step_costs_itself(folder, changes, number, reason):
    write(folder, [episode(**changes), episode(1)])
    steps, faults, report = read(folder)
    assert list(faults) == [f"android_control/0/{number}"] and reason in faults[f"android_control/0/{number}"]
    assert len(steps) == 5 and (report.read, report.kept) == (6, 5)


@pytest.mark.parametrize(
    "broken, name, reason",
    [
        (episode(screenshots=[]), "0", "`screenshots` must be a list of 4 for 3 actions, got 0"),
        (episode(accessibility_trees=[TREE] * 3), "0", "`accessibility_trees` must be a list of 4"),
        (episode(step_instructions="abc"), "0", "`step_instructions` must be a list of 3"),
        (episode(actions=None), "0", "`actions` must be a list of 0 for 0 actions, got None"),
        (episode(number=1), "1", "comes twice"),
        (episode(number=True), "episodes.json#episode-1", "`episode_id` must be"),
        (episode(number=[1]), "episodes.json#episode-1", "`episode_id` must be"),
        ({"goal": "g"}, "episodes.json#episode-1", "an episode must have episode_id, actions"),
        ([1], "episodes.json#episode-1", "an episode must be an object"),
        (None, "episodes.json#episode-1", "an episode must be an object"),
    ],
)
def test_a_broken_episode_costs_itself(folder, broken, name, reason):
    write(folder, [episode(1), broken, episode(2)])
    steps, faults, _ = read(folder)
    assert [step.episode_id for step in steps] == ["1"] * 3 + ["2"] * 3
    assert list(faults) == [f"android_control/{name}"] and reason in faults[f"android_control/{name}"]


def test_a_goal_that_is_none_costs_the_steps(folder):
    write(folder, [episode(goal=None), episode(1)])
    steps, faults, _ = read(folder)
    assert len(steps) == 3 and list(faults) == [f"android_control/0/{i}" for i in range(3)]


@pytest.mark.parametrize("depth", [0, 100_000])
def test_a_broken_list_keeps_what_comes_before_and_lines_keep_the_rest(folder, depth):
    good, broken = json.dumps(episode(0)), '{"a": ' + "[" * depth
    write(folder, f"[{good}, {broken}, {json.dumps(episode(1))}]", "a.json")
    write(folder, f"{json.dumps(episode(1))}\n{broken}\n\n{json.dumps(episode(2))}", "b.jsonl")
    write(folder, f"[{good.replace('0', '9', 1)},", "c.json")
    write(folder, f"[{good}] 7", "d.json")
    write(folder, "", "e.json")
    steps, faults, _ = read(folder)
    assert [step.episode_id for step in steps] == ["0"] * 3 + ["1"] * 3 + ["2"] * 3 + ["9"] * 3
    assert list(faults) == [
        "android_control/a.json#episode-1",
        "android_control/b.jsonl#line-2",
        "android_control/c.json#episode-1",
        "android_control/0",
        "android_control/d.json#episode-1",
        "android_control/e.json#episode-0",
    ]
    assert "What follows in the file is lost" in faults["android_control/a.json#episode-1"]
    assert "must end with ']'" in faults["android_control/c.json#episode-1"]


@pytest.mark.parametrize("exists", [False, True])
def test_no_file_at_all_tells_the_layout(tmp_path, exists):
    root = tmp_path / "nothing"
    if exists:
        root.mkdir()
    with pytest.raises(DataError, match=r"No .json or .jsonl file in .*nothing.*step_instructions"):
        list(read_episodes(root, DataReport()))


@given(st.data())
@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_mutated_episode_costs_no_other(folder, data):
    broken = bytearray(json.dumps(episode(0)).encode())
    for _ in range(data.draw(st.integers(1, 4))):
        start, length = data.draw(st.integers(0, len(broken))), data.draw(st.integers(0, 9))
        broken[start : start + length] = data.draw(st.binary(max_size=9)).replace(b"\n", b"")
    lines = [json.dumps(episode(1)).encode(), bytes(broken), json.dumps(episode(2)).encode()]
    (folder / "episodes.jsonl").write_bytes(b"\n".join(lines))
    steps, _, report = read(folder)
    kept = [step.episode_id for step in steps]
    assert kept.count("1") + kept.count("2") >= 3  # the broken one may have become a copy of one of the others
    assert report.read == len(steps) + len(report.faults) and report.kept == len(steps)


@pytest.fixture
def real(real_data, tmp_path):
    """The real episodes beside generated pictures of the sizes that they declare."""
    text = (real_data / "androidcontrol" / "sample_raw.json").read_text()
    (tmp_path / "sample_raw.json").write_text(text)
    episodes = json.loads(text)
    draw(tmp_path, episodes)
    return tmp_path, episodes


@pytest.mark.real_data
def test_the_real_trees_and_actions(real):
    root, episodes = real
    steps, faults, report = read(root)
    assert not faults and (report.read, report.kept) == (8, 8) and report.notes["episodes"] == 3
    kinds = [step.action.type.value for step in steps]
    assert kinds == ["open", "wait", "tap", "back", "tap", "tap", "swipe", "swipe"]
    by_id = {step.step_id.removeprefix("android_control/"): step for step in steps}
    # "swipe up to view the product" and "scroll down": the finger goes up
    assert {by_id[name].action.end for name in ("20/3", "40/0")} == {(0.5, 0.25)}
    assert by_id["20/3"].action.description == "swipe up to view the product"
    # each click is the middle of an element, whose words the annotator's instruction has
    taps = {"0/2": ("Past", "past"), "20/1": ("Mobiles", "mobile"), "20/2": ("Close ad", "close")}
    for name, (label, word) in taps.items():
        element = tapped_element(by_id[name], by_id[name].action.point)
        assert element.label == label and word in by_id[name].action.description.lower()
    assert by_id["0/0"].instruction == "Open the Zoho Meet app , view the scheduled meetings ."
    for step in steps:
        assert get_benchmark("android_control").score(step.action, step) == 1.0
    off = 0
    for one in episodes:
        for number in range(len(one["actions"])):
            named = [n for n in one["accessibility_trees"][number] if n["text"] or n["content_description"]]
            shown = [n["text"] or n["content_description"] for n in named if is_on_screen(n["bbox_pixels"])]
            off += len(named) - len(shown)
            listed = [e.label for e in by_id[f"{one['episode_id']}/{number}"].elements]
            assert [label for label in listed if label in shown] == shown
    assert report.notes["elements_dropped"] == off


def is_on_screen(box):
    """Whether some pixel of a 1080 x 2400 screen lies in the box."""
    columns = set(range(1080)) & set(range(box["x_min"], box["x_max"]))
    rows = set(range(2400)) & set(range(box["y_min"], box["y_max"]))
    return bool(columns and rows)


@pytest.mark.real_data
def test_the_real_folder_without_pictures_names_each_step_and_file(real_data):
    report = DataReport()
    with pytest.raises(DataError, match="No usable step"):
        list(read_episodes(real_data / "androidcontrol", report))
    assert len(report.faults) == 9 and report.notes["lists_of_splits"] == 1
    assert [fault.id for fault in report.faults[:2]] == ["android_control/0/0", "android_control/0/1"]
    assert "0/screenshot_0.png cannot be read" in report.faults[0].reason
    assert report.faults[-1].id == "android_control/trajectories.json#episode-0"
