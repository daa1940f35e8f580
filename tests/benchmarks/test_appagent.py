"""AppAgent: numbered elements, calls, run folders, and the score."""

import json
import re
import shutil
import time
import xml.etree.ElementTree as ET

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image, ImageChops

from switchmem.benchmarks import DataReport, get_benchmark
from switchmem.benchmarks.appagent import AppAgentBenchmark, numbered_elements, parse_call, read_runs
from switchmem.benchmarks.uiautomator import parse_hierarchy
from switchmem.steps import Action, ActionType, RecordError, UIElement

TAP, SWIPE = ActionType.TAP, ActionType.SWIPE


def read(root):
    report = DataReport()
    return list(read_runs(root, report)), report


def reference_tags(data):
    """Boxes in AppAgent's order, told as its two-pass walk over the tree does it, with square roots."""

    def walk(attribute):
        taken = []
        for element in ET.fromstring(data).iter("node"):
            if element.get(attribute) != "true":
                continue
            box = tuple(map(int, re.findall(r"-?\d+", element.get("bounds"))))
            if not any(near(box, other) for other in taken):
                taken.append(box)
        return taken

    def near(a, b):
        (ax, ay), (bx, by) = (((box[0] + box[2]) // 2, (box[1] + box[3]) // 2) for box in (a, b))
        return (abs(ax - bx) ** 2 + abs(ay - by) ** 2) ** 0.5 <= 30

    clickable = walk("clickable")
    return clickable + [box for box in walk("focusable") if not any(near(box, other) for other in clickable)]


flag = st.sampled_from(["true", "false"])
one_node = st.tuples(*[st.integers(-10, 130)] * 4, flag, flag)


@given(st.lists(one_node, max_size=12), st.integers(0, 3))
@settings(max_examples=200, deadline=None)
def test_numbers_are_those_that_appagent_draws(ui, nodes, nested):
    xml = [ui.node(box, clickable=c, focusable=f) for *box, c, f in nodes]
    inner = "".join(xml[:nested])
    data = ui.hierarchy(ui.node((0, 0, 100, 100), children=inner, clickable="true"), *xml[nested:])
    assert [node.bounds for node in numbered_elements(parse_hierarchy(data))] == reference_tags(data)


def test_thirty_pixels_are_close_and_thirty_one_are_not(ui):
    data = ui.hierarchy(*[ui.node((x, 0, x + 10, 10), clickable="true") for x in (0, 30, 31, 62)])
    assert [node.bounds[0] for node in numbered_elements(parse_hierarchy(data))] == [0, 31, 62]


@pytest.fixture(scope="module")
def nodes(ui):
    """Tags on a 100 x 200 screen: 1 at (50, 20), 2 at (50, 60), 3 the empty box at (0, 0), 4 focusable at (50, 150)."""
    boxes = [(0, 0, 100, 40), (0, 40, 100, 80), (0, 0, 0, 0)]
    focusable = ui.node((0, 100, 100, 200), focusable="true")
    return parse_hierarchy(ui.hierarchy(*[ui.node(box, clickable="true") for box in boxes], focusable))


@pytest.mark.parametrize(
    "call, expected",
    [
        ("tap(2)", Action(TAP, point=(0.5, 0.3))),
        (" `tap( 4 )` \n", Action(TAP, point=(0.5, 0.75))),
        ("tap(3)", Action(TAP, point=(0.0, 0.0))),
        ("long_press(1)", Action(ActionType.LONG_PRESS, point=(0.5, 0.1))),
        ('text("weather tomorrow")', Action(ActionType.TYPE, text="weather tomorrow")),
        ('text("say \\"hi\\" (now), then go")', Action(ActionType.TYPE, text='say "hi" (now), then go')),
        ('text("")', Action(ActionType.TYPE, text="")),
        ('text("a\nb")', Action(ActionType.TYPE, text="a\nb")),
        # a tenth of the width, twice for medium, doubled when vertical: 40 pixels of 200
        ('swipe(4, "up", "medium")', Action(SWIPE, (0.5, 0.75), (0.5, 0.55))),
        ("swipe(2, 'down', 'short')", Action(SWIPE, (0.5, 0.3), (0.5, 0.4))),
        ('swipe(2,"left","long")', Action(SWIPE, (0.5, 0.3), (0.2, 0.3))),
        ('swipe(1, "up", "long")', Action(SWIPE, (0.5, 0.1), (0.5, 0.0))),  # ends at the edge
        ("FINISH", Action(ActionType.COMPLETE)),
        ("FINISH.", Action(ActionType.COMPLETE)),
    ],
)
def test_calls_become_actions(nodes, call, expected):
    assert parse_call(call, nodes, (100, 200)) == expected


@pytest.mark.parametrize(
    "call, reason",
    [
        ("tap(5)", "tag 5 must be one of the screen's 4"),
        ("tap(0)", "tag 0 must be one of the screen's 4"),
        ('text("open gmail"), tap(2)', "must be one call"),
        ('text("a") text("b")', "must be one call"),
        ("tap(2", "must be one call"),
        ('tap(5, "center")', "must be one call"),
        ('swipe(1, "sideways", "long")', "must be one call"),
        ('swipe(3, "up", "short")', "starts at the edge"),
        ("grid()", "overlay"),
        ("I would tap the button", "must be one call"),
        ("", "must be one call"),
    ],
)
def test_what_cannot_be_resolved_says_why(nodes, call, reason):
    with pytest.raises(RecordError, match=re.escape(reason)):
        parse_call(call, nodes, (100, 200))


def test_a_run_becomes_steps(write_run):
    run = write_run(["tap(1)", 'text("on")', 'swipe(3, "up", "short")', "FINISH", None])
    steps, report = read(run.parent)
    assert [step.step_id for step in steps] == [f"appagent/{run.name}/{i}" for i in range(4)]
    assert [step.action.type for step in steps] == [TAP, ActionType.TYPE, SWIPE, ActionType.COMPLETE]
    step = steps[0]
    assert (step.instruction, step.category, step.activity) == ("turn on wifi", "system", "com.app")
    assert step.action.description == "It is there."
    assert (step.screenshot.width, step.screenshot.height) == (100, 200)
    assert [element.text for element in step.elements] == ["Wi-Fi", "Sound", ""]
    assert (report.read, report.kept, report.faults) == (4, 4, [])
    assert report.notes["runs"] == report.notes["runs_finished"] == report.notes["screens_without_action"] == 1


def test_one_run_folder_can_be_the_root(write_run):
    run = write_run(["tap(1)"])
    assert len(read(run)[0]) == 1


def _edit_log(run, change):
    log = next(run.glob("log_*.txt"))
    log.write_bytes(change(log.read_bytes()))


def test_the_other_layout_and_object_answers(write_run):
    run = write_run(["x", "x"], task="查看天气")
    lines = [json.loads(line) for line in next(run.glob("log_*.txt")).read_text().splitlines()]
    lines[0]["response"] = (
        "Observation: a list\nof two lines.\nIntermediate Goal: g\n\nAction: Tap the row.\n\nFunction: tap(2)\n\n"
    )
    lines[1]["response"] = {"Observation": "o", "Thought": "t", "Action": "tap(1)", "Summary": "s"}
    lines[1]["prompt"] = (
        "The task you need to complete is to 查看天气\n\nHere are some possible action paths to consider：\np"
    )
    _edit_log(run, lambda _: "".join(json.dumps(line) + "\n" for line in lines).encode())
    steps, _ = read(run)
    assert [step.action for step in steps] == [
        Action(TAP, (0.5, 0.3), description="Tap the row."),
        Action(TAP, (0.5, 0.1), description="t"),
    ]
    assert [step.instruction for step in steps] == ["查看天气", "查看天气"]


def test_answers_on_the_grid_overlay_are_counted(write_run):
    run = write_run(["grid()", 'tap(3, "center")', "tap(1)", "tap(2)"])
    steps, report = read(run)
    assert [step.index for step in steps] == [2, 3]  # one answer on the overlay takes it away again
    assert [fault.id for fault in report.faults] == [f"appagent/{run.name}/{i}" for i in range(2)]
    assert "overlay" in report.faults[0].reason and "overlay" in report.faults[1].reason


HOSTILE = {
    b'{"step": 1e999, "prompt": "", "image": "", "response": ""}': "one JSON object",
    b'{"step": ' + b"9" * 5000 + b', "prompt": "", "image": "", "response": ""}': "must be JSON",
    b'{"step": 2, "response": ' + b"[" * 50_000: "nested deeper",
    b'{"response": {"Action": "tap(1)", "x": ' + b"[" * 900 + b"]" * 900 + b"}, %s": "",
    b'{"response": "Action: tap(%s)", %%s' % (b"9" * 5000): "must be one call",
    b'{"response": "Action: swipe(%s, \\"up\\", \\"long\\")", %%s' % (b"9" * 5000): "must be one call",
    b'{"response": "Action: text(\\"\\udc00\\")", %s': "half a surrogate pair",
    b'{"response": "Action: tap(1)", "image": "a\\u0000.png", "step": 9, "prompt": "%s"}': "must be the path of a file",
    b'{"response": "Action: tap(1)", "image": "..", "step": 9, "prompt": "%s"}': "stays in",
}
TASK = b"The task you need to complete is to go. Your past actions"


@pytest.mark.parametrize("line, reason", HOSTILE.items(), ids=range(len(HOSTILE)))
def test_a_hostile_line_costs_itself(write_run, line, reason):
    run = write_run(["tap(1)", "tap(2)"])
    rest = b'"image": "%s_1.png", "step": 9, "prompt": "%s"}' % (run.name.encode(), TASK)
    line = line.replace(b'"prompt": "%s"', b'"prompt": "%s"' % TASK).replace(b", %s", b", " + rest)
    _edit_log(run, lambda good: line + b"\n" + good)
    steps, report = read(run)
    assert [step.index for step in steps][-2:] == [0, 1]
    if reason:
        (fault,) = report.faults
        assert reason in fault.reason and len(fault.reason) < 700


@pytest.mark.parametrize("prompt", [" " * 200_000, "The task you need to complete is to " * 20_000])
def test_a_long_prompt_takes_no_time(write_run, prompt):
    run = write_run(["tap(1)", "tap(2)"])
    row = {"step": 9, "prompt": f"The task you need to complete is to {prompt}", "image": "", "response": ""}
    _edit_log(run, lambda good: json.dumps(row).encode() + b"\n" + good)
    start = time.monotonic()
    assert len(read(run)[0]) == 2
    assert time.monotonic() - start < 5  # a pattern that looks again at every place takes minutes


def test_many_nodes_take_no_time(ui):
    boxes = [(x * 40, y * 40, x * 40 + 9, y * 40 + 9) for x in range(100) for y in range(100)]
    nodes = parse_hierarchy(ui.hierarchy(*[ui.node(box, clickable="true", focusable="true") for box in boxes]))
    start = time.monotonic()
    assert len(numbered_elements(nodes)) == 10_000
    assert time.monotonic() - start < 10  # each against each takes minutes


def test_a_log_that_is_a_folder_is_one_fault(write_run):
    run = write_run(["tap(1)"])
    (run / "log_system_again.txt").mkdir()
    steps, report = read(run)
    assert len(steps) == 1
    assert [fault.id for fault in report.faults] == [f"appagent/{run.name}/log_system_again.txt"]


def test_repeated_taps_on_an_unchanged_screen_are_kept_and_noted(write_run):
    steps, report = read(write_run(["tap(1)", "tap(1)", "tap(1)", "tap(2)"]))
    assert len(steps) == 4
    assert report.notes["steps_repeated_on_same_screen"] == 2


def _step(make_step, action, elements=()):
    return make_step(benchmark="appagent", action=action, elements=tuple(elements))


@pytest.mark.parametrize(
    "action, gold, expected",
    [
        (None, Action(ActionType.COMPLETE), 0.0),
        (Action(ActionType.COMPLETE), Action(ActionType.COMPLETE), 1.0),
        (Action(ActionType.BACK), Action(ActionType.HOME), 0.0),
        (Action(TAP, (0.5, 0.64)), Action(TAP, (0.5, 0.5)), 1.0),
        (Action(TAP, (0.5, 0.65)), Action(TAP, (0.5, 0.5)), 0.0),
        (Action(ActionType.LONG_PRESS, (0.5, 0.5)), Action(TAP, (0.5, 0.5)), 0.0),
        (Action(SWIPE, (0.5, 0.5), (0.4, 0.1)), Action(SWIPE, (0.5, 0.8), (0.5, 0.4)), 1.0),
        (Action(SWIPE, (0.5, 0.1), (0.4, 0.5)), Action(SWIPE, (0.5, 0.8), (0.5, 0.4)), 0.0),
        (Action(SWIPE, (0.5, 0.5), (0.1, 0.4)), Action(SWIPE, (0.5, 0.8), (0.5, 0.4)), 0.0),
        (Action(ActionType.TYPE, text="Weather"), Action(ActionType.TYPE, text="weather tomorrow"), 1.0),
        (Action(ActionType.TYPE, text="a"), Action(ActionType.TYPE, text="a b c d"), 0.0),
        (Action(ActionType.TYPE, text=""), Action(ActionType.TYPE, text=""), 1.0),
        (Action(ActionType.TYPE, text=""), Action(ActionType.TYPE, text="a"), 0.0),
    ],
)
def test_score(make_step, action, gold, expected):
    assert get_benchmark("appagent").score(action, _step(make_step, gold)) == expected


def test_a_tap_anywhere_in_the_gold_element_counts(make_step):
    row = UIElement((0.0, 0.4, 1.0, 0.6), clickable=True)
    label = UIElement((0.4, 0.45, 0.6, 0.55), text="Wi-Fi")  # same middle, but not what is tapped
    screen = UIElement((0.0, 0.0, 1.0, 1.0), scrollable=True)
    step = _step(make_step, Action(TAP, (0.5, 0.5)), [screen, row, label])
    score = AppAgentBenchmark().score
    assert score(Action(TAP, (0.02, 0.41)), step) == 1.0
    assert score(Action(TAP, (0.02, 0.61)), step) == 0.0


@pytest.mark.real_data
def test_real_runs_resolve_every_tag(real_data):
    steps, report = read(real_data / "appagent_runs")
    assert (report.read, report.kept) == (17, 17)
    assert [fault.id for fault in report.faults] == [
        "appagent/task_system_2024-05-14_21-52-51",
        "appagent/task_system_2024-05-20_19-31-45",
    ]
    assert report.notes["steps_repeated_on_same_screen"] == 3
    by_id = {step.step_id.removeprefix("appagent/task_system_"): step for step in steps}
    # What the agent says that it taps, against the words of the element that its number resolves to.
    expected = {
        "2024-11-12_23-45-06/0": "Chrome",
        "2024-11-12_23-45-06/1": "OK",
        "2024-11-12_23-45-06/2": "Search or type web address",
        "2024-11-17_11-29-05/0": "Settings",
        "2024-11-17_11-29-05/1": "Network & internet",
        "2024-11-17_11-29-05/2": "Internet",
        "2024-11-20_09-59-56/0": "Settings",
    }
    for name, words in expected.items():
        step = by_id[name]
        near = [e.label for e in step.elements if e.label and _overlaps_row(e, step)]
        assert words in near, (name, near)
    assert by_id["2024-05-20_20-18-50/0"].instruction == "在设置里打开深色模式"
    assert all(AppAgentBenchmark().score(step.action, step) == 1.0 for step in steps)


def _overlaps_row(element, step):
    """Whether an element lies inside the clickable element whose middle was tapped."""
    x, y = step.action.point
    rows = [e for e in step.elements if e.clickable and abs(e.center[0] - x) < 1e-3 and abs(e.center[1] - y) < 1e-3]
    return any(row.contains(element.center) for row in rows)


@pytest.mark.real_data
def test_numbers_stand_where_appagent_drew_them(real_data):
    """A tag is drawn 10 px right of and below an element's middle; only there do the two pictures differ."""
    folder = real_data / "appagent_runs" / "task_system_2024-11-17_11-29-05"
    for number in (1, 2, 3, 4):
        stem = folder / f"{folder.name}_{number}"
        nodes = numbered_elements(parse_hierarchy(stem.with_suffix(".xml").read_bytes()))
        plain, drawn = (Image.open(f"{stem}{suffix}.png").convert("RGB") for suffix in ("", "_labeled"))
        changed = ImageChops.difference(plain, drawn)
        for node in nodes:
            x, y = node.center
            assert changed.crop((x + 10, y + 10, x + 22, y + 22)).getbbox() is not None, (number, node.center)
        # and nothing is drawn that we do not number
        for node in nodes:
            x, y = node.center
            changed.paste((0, 0, 0), (x - 5, y - 5, x + 75, y + 55))
        assert changed.getbbox() is None, (number, changed.getbbox())


@pytest.mark.real_data
def test_a_copy_with_broken_files_keeps_the_rest(real_data, tmp_path):
    root = tmp_path / "runs"
    shutil.copytree(real_data / "appagent_runs", root)
    for path in root.rglob("*"):
        path.chmod(0o755 if path.is_dir() else 0o644)
    run = root / "task_system_2024-11-17_11-29-05"
    (run / f"{run.name}_1.png").write_bytes(
        (real_data / "uiautomator" / "screenshot_current__3661f40.png").read_bytes()
    )
    (run / f"{run.name}_2.xml").write_text("not XML")
    steps, report = read(root)
    assert len(steps) == 15
    ids = [fault.id for fault in report.faults if fault.id.startswith(f"appagent/{run.name}/")]
    assert ids == [f"appagent/{run.name}/0", f"appagent/{run.name}/1"]
