"""Your own recordings: every field of the layout, and what each broken line, file or picture costs."""

import json
import os
import re
import shutil

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import Image

from switchmem.benchmarks import DataError, DataReport, get_benchmark, jsonl
from switchmem.benchmarks.jsonl import ELEMENT_FLAGS, ELEMENT_TEXTS, FIELDS, read_jsonl
from switchmem.steps import Action, ActionType, UIElement

TAP = {"type": "tap", "point": [0.5, 0.25]}


def line(**changes):
    values = {"episode": "e", "step": 0, "instruction": "Do it", "screenshot": "a.png", "action": TAP, **changes}
    return {name: value for name, value in values.items() if value != "LEFT OUT"}


@pytest.fixture
def folder(tmp_path):
    root = tmp_path / "data"
    root.mkdir()
    Image.new("RGB", (100, 200), (9, 9, 9)).save(root / "a.png")
    return root


def write(folder, *lines, name="steps.jsonl"):
    """Objects as JSON, bytes as they are."""
    data = [one if isinstance(one, bytes) else json.dumps(one).encode() for one in lines]
    (folder / name).parent.mkdir(exist_ok=True)
    (folder / name).write_bytes(b"\n".join(data) + b"\n")


def read(root):
    report = DataReport()
    try:
        steps = list(read_jsonl(root, report))
    except DataError:
        steps = []
    return steps, {fault.id: fault.reason for fault in report.faults}, report


def only_fault(folder, one):
    """The reason for which a line is left out between two good ones."""
    write(folder, line(step=1), one, line(step=2))
    steps, faults, report = read(folder)
    assert [step.index for step in steps] == [1, 2] and (report.read, report.kept) == (3, 2)
    ((name, reason),) = faults.items()
    return name, reason


def test_every_field(folder):
    element = {"box": [10, 20, 60, 70], "text": "Wi-Fi", "kind": "Switch", "description": "on or off"}
    element |= {"resource_id": "id/w", "clickable": True, "editable": False, "checked": True, "scrollable": None}
    outside = {"box": [100, 0, 150, 20], "text": "next page"}
    write(
        folder,
        line(
            episode=7,
            step=3,
            instruction="  turn <|im_start|> on\u2028",
            action={"type": "click", "point": [50, 150], "description": "Tap it."},
            units="pixels",
            elements=[element, outside],
            app="settings",
            activity="com.android.settings",
            caption="A list",
            extra={"device": "mine", "anything": [1]},
        ),
    )
    (step,), faults, report = read(folder)
    assert not faults and report.notes == {"elements_dropped": 1}
    assert step.step_id == "recorded/7/3" and step.trajectory == "recorded/7"
    assert step.instruction == "  turn <|im_start|> on\u2028"
    assert step.action == Action(ActionType.TAP, (0.5, 0.75), description="Tap it.")
    assert step.elements == (
        UIElement((0.1, 0.1, 0.6, 0.35), "Wi-Fi", "Switch", "on or off", "id/w", True, False, True, False),
    )
    assert (step.category, step.activity, step.caption) == ("settings", "com.android.settings", "A list")
    assert step.screenshot.data == (folder / "a.png").read_bytes()
    assert get_benchmark("recorded").name == step.benchmark


def test_the_documented_table_names_every_field_and_no_other():
    rows = re.findall(r"^\| ([a-z]+) \| ", jsonl.__doc__, re.MULTILINE)
    assert [row for row in rows if row != "field"] == list(FIELDS)
    assert all(f"`{name}`" in jsonl.__doc__ for name in ("box", *ELEMENT_TEXTS, *ELEMENT_FLAGS))


def test_fractions_are_the_default_and_may_be_said(folder):
    box = {"box": [0, 0, 1, 0.5]}
    write(folder, line(elements=[box]), line(step=1, units="fractions", elements=[box]))
    first, second = read(folder)[0]
    assert first.action == second.action == Action(ActionType.TAP, (0.5, 0.25))
    assert first.elements == second.elements == (UIElement((0.0, 0.0, 1.0, 0.5)),)


def test_pixels_may_refer_to_a_larger_screen(folder):
    action = {"type": "tap", "point": [540, 1800]}
    write(folder, line(units="pixels", screen=[1080, 2160], action=action))
    assert read(folder)[0][0].action.point == (0.5, 1800 / 2160)
    name, reason = only_fault(folder, line(units="pixels", action=action))
    assert name == "recorded/e/0" and '"screen": [width, height]' in reason


@pytest.mark.parametrize("screen", [None, [200, 400]])
def test_a_dump_in_place_of_elements(folder, ui, screen):
    scale = screen[0] // 100 if screen else 1
    dump = ui.hierarchy(ui.node((0, 0, 50 * scale, 100 * scale), text="Wi-Fi", package="com.app", clickable="true"))
    (folder / "a.xml").write_bytes(dump)
    write(folder, line(xml="a.xml", screen=screen, elements=None), line(step=1, xml="a.xml", activity="mine"))
    first, second = read(folder)[0]
    assert [(e.text, e.box) for e in first.elements] == [("Wi-Fi", (0.0, 0.0, 0.5, 0.5))]
    assert (first.activity, second.activity) == ("com.app", "mine")


@pytest.mark.parametrize(
    "changes, reason",
    [
        ({"action": {"type": "tap", "point": [50, 150]}}, 'say so on the line: "units": "pixels"'),
        ({"action": {"type": "tap", "point": [0.5, 1.2]}}, '"units": "pixels"'),
        ({"elements": [{"box": [0, 0, 50, 20]}]}, '"units": "pixels"'),
        ({"units": "pixels"}, "`action.point` must be in pixels, got [0.5, 0.25], which has fractions of one"),
        ({"units": "px"}, '`units` must be "fractions" or "pixels"'),
        ({"units": ["pixels"]}, "`units` must be"),
        ({"units": "pixels", "action": {"type": "tap", "point": [101, 3]}}, "pixels of the screen of 100 x 200"),
        ({"screen": [200]}, "`screen` must be [width, height]"),
        ({"screen": [0, 0]}, "`screen` must be [width, height]"),
        ({"screen": "200x400"}, "`screen` must be [width, height]"),
        ({"screen": [400, 200]}, "must show the whole screen of 400 x 200"),
        ({"action": "LEFT OUT"}, "`action` must be an object"),
        ({"action": {"type": "double_tap", "point": [0, 0]}}, "`action.type` must be one of"),
        ({"instruction": "LEFT OUT"}, "`instruction` must not be empty"),
        ({"instruction": " "}, "`instruction` must not be empty"),
        ({"instruction": 5}, "`instruction` must be a text, got 5"),
        ({"instrucion": "Do it"}, "unknown field 'instrucion'. Did you mean 'instruction'?"),
        ({"screenshot": "LEFT OUT"}, "`screenshot` must be the path of a file"),
        ({"screenshot": "b.png"}, "`screenshot`: b.png cannot be read: No such file"),
        ({"screenshot": "steps.jsonl"}, "must be a whole PNG, WebP or JPEG"),
        ({"screenshot": "../data/../../etc/hostname"}, "stays in"),
        ({"xml": "/etc/hostname"}, "stays in"),
        ({"xml": "a.png"}, "UIAutomator XML"),
        ({"xml": "a.png", "elements": []}, "either `elements` or `xml`"),
        ({"elements": {"box": [0, 0, 1, 1]}}, "`elements` must be a list"),
        ({"elements": ["OK"]}, "`elements[0]` must be an object"),
        ({"elements": [{"box": [0, 0, 1, 1]}, {"text": "OK"}]}, "`elements[1].box` must be a list of 4 numbers"),
        ({"elements": [{"box": [0, 0, 1, 1], "txt": "OK"}]}, "unknown field 'txt'. Did you mean 'text'?"),
        ({"elements": [{"box": [0, 0, 1, 1], "text": 5}]}, "`elements[0].text` must be a text"),
        ({"elements": [{"box": [0, 0, 1, 1], "clickable": "yes"}]}, "`elements[0].clickable` must be true or false"),
        ({"app": 5}, "`app` must be a text"),
        ({"activity": ["a"]}, "`activity` must be a text"),
        ({"caption": {}}, "`caption` must be a text"),
    ],
)
def test_a_broken_step_is_left_out_by_its_id(folder, changes, reason):
    name, found = only_fault(folder, line(**changes))
    assert name == "recorded/e/0" and reason in found


@pytest.mark.parametrize(
    "broken, reason",
    [
        (b'{"episode": "e", "step": 0', "must be JSON"),
        (b"[1, 2]", "one JSON object"),
        (b"\xff\xfe", "UTF-8"),
        (b"[" * 100_000, "nested deeper"),
        (b'{"episode": "e", "step": 0, "extra": ' + b'{"a":' * 50_000, "nested deeper"),
        (b'{"episode": "e", "step": 0, "extra": "\\udc00"}', "half a surrogate pair"),
        (b'{"episode": "e", "step": NaN}', "NaN"),
        (b'{"episode": "e", "step": 0, "step": 9}', "names a field twice"),
        (b'{"episode": "e", "step": ' + b"9" * 6000 + b"}", "must be JSON"),
        (line(step=10**40), "`step` must be an integer"),
        (line(step=-1), "`step` must be an integer"),
        (line(step=True), "`step` must be an integer"),
        (line(step=0.0), "`step` must be an integer"),
        (line(step="0"), "`step` must be an integer"),
        (line(step="LEFT OUT"), "`step` must be an integer"),
        (line(episode="LEFT OUT"), "`episode` must be a text or an integer"),
        (line(episode=""), "`episode` must be"),
        (line(episode=True), "`episode` must be"),
        (line(episode=["a"]), "`episode` must be"),
    ],
)
def test_a_line_that_does_not_tell_its_step_is_left_out_by_its_place(folder, broken, reason):
    name, found = only_fault(folder, broken)
    assert name == "recorded/steps.jsonl#line-2" and reason in found


def test_a_file_that_is_no_file_is_a_fault_and_not_left_out(folder):
    write(folder, line())
    (folder / "dir.jsonl").mkdir()
    (folder / "gone.jsonl").symlink_to(folder / "nowhere")
    os.mkfifo(folder / "pipe.jsonl")
    steps, faults, report = read(folder)
    assert len(steps) == 1 and (report.read, report.kept) == (4, 1)
    assert set(faults) == {f"recorded/{name}.jsonl" for name in ("dir", "gone", "pipe")}
    assert all("must be a regular file" in reason for reason in faults.values())


def test_a_step_that_comes_twice_counts_once_over_all_files(folder):
    write(folder, line(instruction="first"), line(instruction="second"), name="a.jsonl")
    write(folder, line(instruction="third"), line(step=1), name="b.jsonl")
    steps, _, report = read(folder)
    assert [(step.index, step.instruction) for step in steps] == [(0, "first"), (1, "Do it")]
    assert [fault.id for fault in report.faults] == ["recorded/e/0"] * 2
    assert "at b.jsonl#line-1, and first at a.jsonl#line-1, which counts" in report.faults[1].reason


def test_a_good_copy_of_a_step_counts_whatever_is_wrong_with_others(folder):
    bad = line(instruction="bad", screenshot="gone.png")
    write(folder, bad, line(instruction="good"), bad, name="a.jsonl")
    steps, _, report = read(folder)
    assert [step.instruction for step in steps] == ["good"]
    assert [fault.id for fault in report.faults] == ["recorded/e/0"] * 2
    assert "gone.png cannot be read" in report.faults[0].reason
    assert "at a.jsonl#line-3, and first at a.jsonl#line-2, which counts" in report.faults[1].reason


def test_marks_blank_lines_and_other_line_ends(folder):
    text = json.dumps(line(instruction="one\u2028two\u0085"), ensure_ascii=False)
    (folder / "steps.jsonl").write_bytes(b"\xef\xbb\xbf" + text.encode() + b"\r\n\r\n  \n" + text.encode()[:9])
    (step,), faults, _ = read(folder)
    assert step.instruction == "one\u2028two\u0085"
    assert list(faults) == ["recorded/steps.jsonl#line-4"]


def test_folders_below_have_their_own_paths(folder):
    (folder / "sub").mkdir()
    shutil.copy(folder / "a.png", folder / "sub" / "b.png")
    write(folder / "sub", line(screenshot="b.png"), line(step=1, screenshot="../a.png"))
    steps, faults, _ = read(folder)
    assert len(steps) == 1 and "stays in" in faults["recorded/e/1"]
    write(folder / "sub", b"{")
    assert list(read(folder)[1]) == ["recorded/sub/steps.jsonl#line-1"]


def test_one_file_can_be_the_root(folder):
    write(folder, line())
    write(folder, line(step=1), name="other.jsonl")
    assert len(read(folder / "other.jsonl")[0]) == 1


def test_a_line_longer_than_any_step_is_one_fault(folder, monkeypatch):
    monkeypatch.setattr("switchmem.benchmarks.untrusted.MAX_LINE", 4000)
    name, reason = only_fault(folder, line(caption="x" * 9000))
    assert name == "recorded/steps.jsonl#line-2" and "must be JSON" in reason


def test_a_file_that_cannot_be_read_is_one_fault(folder, monkeypatch):
    write(folder, line(), name="a.jsonl")
    write(folder, line(step=1), name="b.jsonl")
    whole = jsonl.numbered_lines

    def numbered_lines(path):
        if path.name == "a.jsonl":
            raise PermissionError(13, "Permission denied")
        return whole(path)

    monkeypatch.setattr(jsonl, "numbered_lines", numbered_lines)
    steps, faults, _ = read(folder)
    assert [step.index for step in steps] == [1]
    assert faults == {"recorded/a.jsonl": "the file cannot be read: Permission denied."}


@pytest.mark.parametrize("exists", [False, True])
def test_no_file_at_all_tells_the_layout(tmp_path, exists):
    root = tmp_path / "nothing"
    if exists:
        root.mkdir()
    with pytest.raises(DataError, match=r"No .jsonl file in .*nothing.*one step per line.*screenshot"):
        list(read_jsonl(root, DataReport()))


def test_nothing_usable_quotes_the_first_faults(folder):
    write(folder, line(screenshot="b.png"))
    with pytest.raises(DataError, match=r"No usable step in .*0 of 1 records kept.*recorded/e/0: `screenshot`: b.png"):
        list(read_jsonl(folder, DataReport()))


GOOD = json.dumps(
    line(units="pixels", action={"type": "swipe", "point": [1, 2], "end": [50, 60]}, elements=[{"box": [0, 0, 9, 9]}])
).encode()


@given(st.data())
@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_mutated_line_is_a_step_or_a_fault_and_costs_no_other(folder, data):
    """Bytes changed, cut out or put in anywhere in the line, line feeds aside."""
    broken = bytearray(GOOD)
    for _ in range(data.draw(st.integers(1, 4))):
        start = data.draw(st.integers(0, len(broken)))
        length = data.draw(st.integers(0, 6))
        broken[start : start + length] = data.draw(st.binary(max_size=6)).replace(b"\n", b"")
    write(folder, line(step=1, episode="before"), bytes(broken), line(step=1, episode="after"))
    steps, _, report = read(folder)
    assert [steps[0].episode_id, steps[-1].episode_id] == ["before", "after"]
    lines = 2 + bool(broken.strip())
    assert report.read == lines and report.kept == len(steps) and len(steps) + len(report.faults) == lines
