"""LearnGUI's published layout and everything that may be odd, absent or broken in it."""

import json
import random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from learngui_release import ACTIONS, HEIGHT, WIDTH, Release, annotation, task, write

from switchmem.benchmarks.base import DataError, DataReport
from switchmem.benchmarks.learngui import StepReader, find_layout, load_offline, load_online, load_tests
from switchmem.steps import ActionType


@pytest.fixture
def release(tmp_path):
    return Release(tmp_path / "learngui")


def read(release, online=False, corrected=False):
    """Steps by id and the report, of one side."""
    layout, report = find_layout(release.root), DataReport()
    load = load_online if online else load_offline
    episodes = load(layout, "learngui", report)
    return {
        step.step_id: step for step in StepReader(layout, online, corrected).read(episodes.values(), report)
    }, report


def reasons(report):
    return {fault.id: fault.reason for fault in report.faults}


# --- layout ---


def test_a_whole_release(release):
    steps, report = read(release.write())
    assert report.faults == [] and report.read == report.kept == len(steps) == 7 * 5
    step = steps["learngui/q1/0"]
    assert (step.instruction, step.category, step.caption) == ("Do the thing q1", "App q", "Page 0")
    assert step.screenshot.data == (release.screens / "q1_0.png").read_bytes()
    assert step.action.point == (60 / WIDTH, 120 / HEIGHT) and step.action.description == "Do CLICK"
    wifi, bare, area = step.elements
    assert (wifi.text, wifi.description, wifi.clickable, wifi.scrollable) == ("Wi-Fi", "Opens Wi-Fi", True, False)
    assert wifi.box == (10 / WIDTH, 20 / HEIGHT, 60 / WIDTH, 40 / HEIGHT)
    assert bare.label == "" and bare.clickable
    assert (area.text, area.clickable, area.scrollable) == ("List", False, True)
    assert steps["learngui/q1/2"].action.text == "New York"


def test_the_first_spelling_of_the_task_file(release):
    release.split_name = "task_spilit.json"
    layout = find_layout(release.write().root)
    assert layout.split.name == "task_spilit.json"
    tasks = load_tests(layout, 1, set(release.episodes), "learngui", DataReport())
    assert {name: t.support for name, t in tasks.items()} == {"q0": ("s0",), "q1": ("s1",), "q2": ("s2",)}


@pytest.mark.parametrize("inner", ["screenshot", "screenshots/screenshots", "screenshot/screenshots", "screenshots"])
def test_folders_of_pictures(release, inner):
    release.screens = release.offline / inner
    steps, report = read(release.write())
    assert len(steps) == 35 and not report.faults


def test_doubled_annotation_folders_and_paths_with_the_folders_name(release):
    release.anno = release.offline / "element_anno" / "element_anno"
    for episode in release.episodes.values():
        for step in episode["steps"]:
            step["image_path"] = f"screenshot/{step['image_path']}"
    release.screens = release.offline
    steps, report = read(release.write())
    assert len(steps) == 35 and not report.faults and all(len(step.elements) == 3 for step in steps.values())


def test_everything_that_is_missing_is_named_at_once(tmp_path):
    with pytest.raises(DataError) as error:
        find_layout(tmp_path / "nowhere")
    told = str(error.value)
    for words in (
        str(tmp_path / "nowhere"),
        "offline/task_split.json or offline/task_spilit.json",
        "offline/low_level_instructions.json",
        "offline/screenshot or offline/screenshots",
        "offline/element_anno",
        "online/low_level_instructions",
        "online/raw_data",
        "lgy0404/LearnGUI",
        "--data.init_args.root DIR",
        "`--config pocket.yaml` runs without any data",
    ):
        assert words in told


def test_archives_that_are_not_unpacked_are_told(release):
    release.write()
    for folder in ("screenshot", "element_anno"):
        (release.offline / folder).rename(release.root / folder)
        (release.offline / f"{folder}.zip").write_bytes(b"PK")
    (release.offline / "element_anno").mkdir()  # begun, but empty
    with pytest.raises(DataError) as error:
        find_layout(release.root)
    told = str(error.value)
    assert "offline/element_anno.zip is there but not unpacked" in told and "unzip element_anno.zip" in told
    assert "offline/screenshot.zip is there but not unpacked" in told and "zip -s 0 screenshot.zip" in told
    assert "task_split.json or" not in told.partition("LearnGUI is laid out")[0]


def test_an_online_folder_without_json_is_told(release):
    release.online = {}
    write(release.write().online_folder / "low_level_instructions" / "readme.txt", b"none")
    write(release.raw / "a.png", b"x")
    with pytest.raises(DataError, match="online/low_level_instructions: it holds no JSON file"):
        find_layout(release.root)


# --- steps ---


def test_pictures_that_are_absent_missing_broken_or_elsewhere(release, tmp_path):
    steps = release.episodes["q0"]["steps"]
    release.picture(tmp_path / "outside.png")
    release.write()
    (release.screens / "q0_1.png").unlink()
    write(release.screens / "q0_2.png", b"\x89PNG\r\n\x1a\nbroken")
    del steps[0]["image_path"]
    steps[3]["image_path"] = "../../../outside.png"
    steps[4]["image_path"] = str(tmp_path / "outside.png")
    for number, name in enumerate([7, "", "a\0b.png", "x" * 5000, "..", ".", "\\..\\..\\outside.png", "\ud800.png"]):
        release.episodes["q1"]["steps"].append({"action": "PRESS_BACK", "image_path": name, "number": number})
    write(release.offline / "low_level_instructions.json", release.episodes)
    read_steps, report = read(release)
    told = reasons(report)
    assert set(told) == {f"learngui/q0/{n}" for n in range(5)} | {f"learngui/q1/{n}" for n in range(5, 13)}
    assert "`image_path` must be a text, got null" in told["learngui/q0/0"]
    assert "'q0_1.png' is not in the data's folders" in told["learngui/q0/1"]
    assert "must be a whole PNG, WebP or JPEG" in told["learngui/q0/2"]
    for place in ("q0/3", "q0/4", "q1/9", "q1/11"):
        assert "must be relative and stay in the data's folder" in told[f"learngui/{place}"]
    assert report.read == report.kept + len(report.faults) and len(read_steps) == report.kept


def test_step_numbers_are_places_whatever_step_id_says(release):
    for step in release.episodes["q0"]["steps"]:
        del step["step_id"]
    for number, step in enumerate(release.episodes["q1"]["steps"]):
        step["step_id"] = number  # from 0, as in AMEX
    for number, step in enumerate(release.episodes["q2"]["steps"]):
        step["step_id"] = 9 - number
    steps, report = read(release.write())
    assert all(f"learngui/q{q}/{n}" in steps for q in range(3) for n in range(5))
    assert report.notes["episodes_numbered_out_of_order"] == 1


def test_actions(release):
    texts = [*ACTIONS, "LONG_PRESS[1,2]", "TASK_IMPOSSIBLE", "TASK_COMPLETE", "TYPE[a]b]", "TASK_COMPLETE[1h30m]"]
    spelt_otherwise = ["CLICK[10, 20]", "CLICK[10.5,20]", "press_back", "type[x]"]
    wrong = [f"CLICK[{WIDTH + 1},5]", "garbage", "", None, 7, ["PRESS_BACK"]]
    release.episodes = {"e": release.episode("e", ["PRESS_BACK"] * len(texts + spelt_otherwise + wrong))}
    for step, text in zip(release.episodes["e"]["steps"], texts + spelt_otherwise + wrong, strict=True):
        step["action"] = text
    steps, report = read(release.write())
    assert [s.index for s in steps.values()] == list(range(len(texts)))
    assert [s.action.text for s in steps.values() if s.action.type is ActionType.TYPE] == ["New York", "a]b"]
    assert report.notes["steps_that_the_official_score_never_matches"] == 2
    told = reasons(report)
    for n in range(len(texts), len(texts) + len(spelt_otherwise)):
        assert "the official score cannot read" in told[f"learngui/e/{n}"]
    assert all("`action` must be" in told[f"learngui/e/{n}"] for n in range(14, 20))
    corrected, report = read(release, corrected=True)
    assert [s.index for s in corrected.values()] == list(range(14)) and len(report.faults) == 6
    assert corrected["learngui_corrected/e/11"].action.point == (10.5 / WIDTH, 20 / HEIGHT)


def test_annotations_that_are_absent_broken_or_odd(release):
    release.episodes = {"e": release.episode("e", ["PRESS_BACK"] * 6)}
    release.write()
    (release.anno / "e_0.json").unlink()
    write(release.anno / "e_1.json", b"{ broken")
    write(release.anno / "e_2.json", ["a list"])
    write(release.anno / "e_3.json", {"clickable_elements": "no list"})
    boxes = [
        [-5, -5, 30, 30],  # cut
        [100, 200, 500, 900],  # cut
        [30, 30, 10, 10],  # inverted
        [10, 10, 10, 40],  # empty
        [200, 10, 300, 40],  # off the screen
        [1, 2, 3],
        "1,2,3,4",
        [1, 2, 3, True],
        [1, 2, 3, float("nan")],
        None,
    ]
    clickable = [{"bbox": box, "xml_desc": "one", "functionality": None} for box in boxes] + [7, None]
    scrollable = [{"bbox": [0, 0, WIDTH, HEIGHT * 0.65]}, {"bbox": [0, 0, WIDTH, HEIGHT * 0.66]}]
    values = annotation(clickable_elements=clickable, scrollable_elements=scrollable, page_caption=["no text"])
    write(release.anno / "e_4.json", {**values, "description": "A page"})
    write(release.anno / "e_5.json", annotation(clickable_elements=None, scrollable_elements=[]))
    steps, report = read(release)
    assert len(steps) == 6 and all(not steps[f"learngui/e/{n}"].elements for n in (0, 1, 2, 3, 5))
    assert report.notes["steps_without_an_element_annotation"] == 1
    told = reasons(report)
    assert set(told) == {f"learngui/e/{n}" for n in (1, 2, 3)}
    assert all(reason.startswith("the step is kept without elements") for reason in told.values())
    odd = steps["learngui/e/4"]
    assert [e.box for e in odd.elements] == [
        (0, 0, 30 / WIDTH, 30 / HEIGHT),
        (100 / WIDTH, 200 / HEIGHT, 1, 1),
        (0, 0, 1, 0.65),
    ]
    assert [e.text for e in odd.elements] == ["one", "one", ""] and odd.caption == "A page"
    assert report.notes["elements_without_a_box_on_the_screen"] == 10
    assert report.notes["elements_cut_to_the_screen"] == 2
    assert report.notes["scroll_areas_larger_than_0.65_of_the_screen"] == 1


# --- episodes ---


def test_offline_episodes_of_the_wrong_form_are_faults_and_the_rest_goes_on(release):
    good = release.episode("q0")
    release.episodes = {"q0": good}
    release.write()
    text = json.dumps({"q0": good})[:-1]
    wrong = {"a": None, "b": [], "c": {}, "d": {**good, "instruction": " "}, "e": {**good, "steps": {}}}
    wrong |= {"f": {**good, "steps": []}, "": good}
    text += "".join(f", {json.dumps(key)}: {json.dumps(value)}" for key, value in wrong.items())
    text += f', "g": {json.dumps({**good, "steps": [None, 7, []]})}, "q0": {{}}}}'
    write(release.offline / "low_level_instructions.json", b"\xef\xbb\xbf" + text.encode())
    steps, report = read(release)
    assert {step.trajectory for step in steps.values()} == {"learngui/q0"}
    told = reasons(report)
    assert {f"learngui/{n}" for n in "abcdef"} | {f"learngui/g/{n}" for n in range(3)} <= set(told)
    assert "comes twice" in told["learngui/offline/low_level_instructions.json#q0"]
    assert len(told) == 11


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[]", b"7", b"\xff\xfe", b"[" * 100_000, b"{}", b'{"a": 1' + b"0" * 9999]
)
def test_a_broken_file_of_offline_episodes_stops_with_guidance(release, content):
    write(release.write().offline / "low_level_instructions.json", content)
    with pytest.raises(DataError, match="(?s)low_level_instructions.json.*lgy0404/LearnGUI"):
        read(release)


def test_the_shapes_of_online_files(release):
    release.online = {}
    release.write()
    folder, episode = release.online_folder / "low_level_instructions", release.episode
    write(folder / "by_name.json", episode("by_name"))
    write(folder / "own_id.json", {**episode("own"), "episode_id": 42, "goal": "unused"})
    write(folder / "several.json", {"m1": episode("m1"), "m2": {"goal": "By goal", "steps": episode("m2")["steps"]}})
    write(folder / "deep" / "listed.json", [{**episode("l1"), "id": "l1"}, episode("nameless"), 7])
    write(folder / "failed.json", {**episode("failed"), "success": False})
    write(folder / "again.json", {"m1": episode("m1")})
    write(folder / "broken.json", b"{")
    write(folder / "number.json", 7)
    for name in ("by_name", "own", "m1", "m2", "l1", "failed"):
        for number in range(5):
            release.picture(release.raw / f"{name}_{number}.png", number)
    steps, report = read(release, online=True)
    assert {s.trajectory for s in steps.values()} == {f"learngui/{n}" for n in ("by_name", "42", "m1", "m2", "l1")}
    assert steps["learngui/m2/0"].instruction == "By goal"
    assert report.notes["steps_without_an_element_annotation"] == len(steps) == 25
    told = reasons(report)
    online = "learngui/online/low_level_instructions"
    assert set(told) == {
        "learngui/failed", "learngui/m1", f"{online}/broken.json", f"{online}/number.json",
        f"{online}/deep/listed.json#1", f"{online}/deep/listed.json#2",
    }  # fmt: skip
    assert "did not succeed" in told["learngui/failed"]


def test_online_as_one_file(release):
    release.write()
    for file in (release.online_folder / "low_level_instructions").iterdir():
        file.unlink()
    (release.online_folder / "low_level_instructions").rmdir()
    write(release.online_folder / "low_level_instructions.json", release.online)
    steps, report = read(release, online=True)
    assert len(steps) == 20 and not report.faults


@pytest.mark.parametrize(
    ("place", "name"),
    [
        ("o/p.png", "p.png"),
        ("o/screenshots/p.png", "p.png"),
        ("o/images/p.png", "p.png"),
        ("p.png", "p.png"),
        ("../p.png", "p.png"),
        ("a/b/p.png", "a/b/p.png"),
        ("../low_level_instructions/p.png", "p.png"),
        ("batch/o/shots/p.png", "p.png"),
        ("elsewhere/p.png", "shots/p.png"),
    ],
)
def test_where_online_pictures_are_looked_for(release, place, name):
    release.online = {"o": release.episode("o", ["PRESS_BACK"])}
    release.write()
    (release.raw / "o_0.png").unlink()
    release.online["o"]["steps"][0] = {"action": "PRESS_BACK", "screenshot": name}
    write(release.online_folder / "low_level_instructions" / "o.json", release.online["o"])
    picture = (release.raw / place).resolve()
    release.picture(picture)
    write(picture.parent.parent / "element_anno" / "p.json", annotation(3))
    write(release.raw / "other.txt", b"")
    steps, report = read(release, online=True)
    assert not report.faults and steps["learngui/o/0"].caption == "Page 3"


def test_an_online_picture_that_may_be_two_files_is_a_fault(release):
    release.online = {"o": release.episode("o", ["PRESS_BACK"])}
    release.write()
    (release.raw / "o_0.png").unlink()
    for folder in ("a", "b"):
        release.picture(release.raw / folder / "o_0.png")
    write(release.raw / "rest" / "x.json", {})
    steps, report = read(release, online=True)
    assert not steps and "may be any of 2 files" in reasons(report)["learngui/o/0"]


def test_elements_within_the_step(release):
    release.online = {"o": release.episode("o", ["PRESS_BACK"])}
    release.online["o"]["steps"][0] |= annotation(5, image_path="o_0.png")
    steps, _ = read(release.write(), online=True)
    assert len(steps["learngui/o/0"].elements) == 3 and steps["learngui/o/0"].caption == "Page 5"


# --- tasks ---


def few_shot(release, k_shot):
    report = DataReport()
    tasks = load_tests(find_layout(release.root), k_shot, set(release.episodes), "learngui", report)
    return {name: found.support for name, found in tasks.items()}, report


@pytest.mark.parametrize("k_shot", [1, 2, 3])
def test_supports_are_cut_to_k(release, k_shot):
    tasks, report = few_shot(release.write(), k_shot)
    listed = {"q0": ("s0", "s1", "s2"), "q1": ("s1", "s2", "s3"), "q2": ("s2", "s0", "s1")}
    assert tasks == {name: supports[:k_shot] for name, supports in listed.items()} and not report.faults


def test_tasks_of_the_wrong_form_are_faults_and_the_rest_goes_on(release):
    good = task("q1", ("unknown", "q1", "s1", "s1", "q0", "s2"), k_shot=2)
    wrong = [
        None,
        7,
        {},  # of no split
        task("q0", (), k_shot=2),
        task("nobody", ("s0",), k_shot=2),
        {**task("q2", ("s0",), k_shot=2), "query": 5},
        {**task("q2", ("s0",), k_shot=2), "query": {"goal": "x"}},
        {**task("q2", ("s0",), k_shot=2), "support": {"s0": 1}},
        {**task("q2", ("s0",), k_shot=2), "support": [{"episode": "s0"}]},
        {**task("q2", ("s0",), k_shot=2), "support": [{"episode": {}}]},
        task("q1", ("s3",), k_shot=2),
    ]
    release.tasks = [good, *wrong, task("q2", ("s0",), k_shot="2")]
    tasks, report = few_shot(release.write(), 2)
    # the query itself and what is no episode are passed over before the cut
    assert tasks == {"q1": ("s1", "q0"), "q0": (), "q2": ("s0",)}
    told = reasons(report)
    split = "learngui/offline/task_split.json"
    assert set(told) == {
        f"{split}#1", f"{split}#2", "learngui/q0", "learngui/nobody",
        *(f"{split}#{n}" for n in (6, 7, 8, 9, 10)), "learngui/q1",
    }  # fmt: skip
    assert "no usable demonstration" in told["learngui/q0"] and "comes twice" in told["learngui/q1"]
    assert report.notes["supports_without_an_episode"] == 1
    assert report.notes["tasks_that_list_their_query_as_support"] == 1
    assert report.notes["tasks_with_fewer_demonstrations_than_k_shot"] == 2


@pytest.mark.parametrize("content", [b"", b"{}", b"null", b"[]", b'[{"split": "train", "k_shot": 1}]'])
def test_a_task_file_without_test_tasks_stops(release, content):
    write(release.write().offline / "task_split.json", content)
    with pytest.raises(DataError, match="task_split.json"):
        few_shot(release, 1)


# --- anything at all ---

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)


def places(value, path=()):
    """Every place in a JSON value."""
    yield path
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        yield from places(inner, (*path, key))


def put(value, path, new):
    for key in path[:-1]:
        value = value[key]
    value[path[-1]] = new


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seed=st.integers(0, 2**32), new=JSON)
def test_any_value_anywhere_is_read_or_told(tmp_path, seed, new):
    """One value of any of the four kinds of file is replaced: no crash, and every step is kept or told by id."""
    release = Release(tmp_path / "learngui")
    if not release.root.exists():
        release.write()
    rng = random.Random(seed)
    elements = annotation(0)
    values = {"tasks": release.tasks, "offline": release.episodes, "online": release.online["o0"], "anno": elements}
    value = values[rng.choice(sorted(values))]
    put(value, rng.choice([path for path in places(value) if path]), new)
    write(release.offline / "task_split.json", release.tasks)
    write(release.offline / "low_level_instructions.json", release.episodes)
    write(release.online_folder / "low_level_instructions" / "o0.json", release.online["o0"])
    write(release.anno / "q0_0.json", elements)
    offline, report = read(release)
    assert report.read == len(offline) + sum(
        f.id.count("/") == 2 and "kept without" not in f.reason for f in report.faults
    )
    assert len(offline) >= 30 or report.faults
    online, report = read(release, online=True)
    assert len(online) >= 15
    few_shot(release, 1)
