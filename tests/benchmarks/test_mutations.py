"""Damaged files of every format: no hang, no crash, no step lost without a word.

``SWITCHMEM_MUTATIONS`` sets how many damaged files each test reads; a long run is
``SWITCHMEM_MUTATIONS=10000 pytest tests/benchmarks/test_mutations.py``.
"""

import gzip
import json
import os
import random
import struct

import pytest
from learngui_release import Release
from mutations import damage_bytes, damage_frame, damage_json, damage_xml, json_text, no_hang
from PIL import Image

from switchmem.benchmarks import DataError, DataReport
from switchmem.benchmarks.aitw import read_tfrecords
from switchmem.benchmarks.androidcontrol import read_episodes
from switchmem.benchmarks.appagent import read_runs
from switchmem.benchmarks.jsonl import read_jsonl
from switchmem.benchmarks.learngui import StepReader, find_layout, load_offline, load_tests
from switchmem.benchmarks.uiautomator import parse_hierarchy, ui_elements
from switchmem.steps import RecordError

COUNT = int(os.environ.get("SWITCHMEM_MUTATIONS", "150"))
SECONDS = 20.0


def read(reader, source):
    """Steps by id and the report; None where the data as a whole are refused, which names what was wrong."""
    report = DataReport()
    with no_hang(SECONDS):
        try:
            steps = {step.step_id: step for step in reader(source, report)}
        except DataError as error:
            assert str(error)
            return None, report
    assert len(steps) == report.kept <= report.read
    assert all(fault.id and fault.reason for fault in report.faults)
    return steps, report


def told(steps, report, wanted, note):
    """Whether as many steps were read as there were, or something was said. A changed number may rename a step."""
    return steps is None or len(steps) >= wanted or bool(report.faults) or report.notes[note] > 0


def frame(payload, masked_crc):
    length = struct.pack("<Q", len(payload))
    return length + struct.pack("<I", masked_crc(length)) + payload + struct.pack("<I", masked_crc(payload))


@pytest.fixture
def payloads(encode_example, aitw_features):
    return [encode_example(aitw_features(step_id=[i], episode_length=[4])) for i in range(4)]


def test_tfrecord_files(payloads, reference_crc, tmp_path):
    """Checksums stand over every byte, so that what is kept is what was written."""
    frames = [frame(p, reference_crc) for p in payloads]
    path = tmp_path / "general-00000-of-00001"
    path.write_bytes(gzip.compress(b"".join(frames)))
    whole, _ = read(read_tfrecords, [path])
    assert len(whole) == 4
    for seed in range(COUNT):
        rng = random.Random(seed)
        data = gzip.compress(b"".join(frames), mtime=0) if rng.random() < 0.5 else b"".join(frames)
        path.write_bytes(damage_bytes(rng, data))
        steps, report = read(read_tfrecords, [path])
        if steps is None:
            continue
        assert all(step == whole[step_id] for step_id, step in steps.items()), seed
        assert told(steps, report, 4, "episodes_incomplete"), seed


def test_tfrecord_messages(payloads, reference_crc, tmp_path):
    """A damaged message with right checksums leaves the records around it alone."""
    path = tmp_path / "general-00000-of-00001"
    for seed in range(COUNT):
        rng = random.Random(seed)
        frames = [frame(p, reference_crc) for p in payloads]
        frames[1] = damage_frame(rng, payloads[1], reference_crc)
        path.write_bytes(b"".join(frames))
        steps, report = read(read_tfrecords, [path])
        assert steps is not None and "aitw/18446744073709551615/0" in steps, seed
        assert report.read >= 2 and (len(steps) == 4 or report.faults), seed
        lost = [f for f in report.faults if "rest of the file" in f.reason or "checksum" in f.reason]
        assert lost or {f"aitw/18446744073709551615/{n}" for n in (0, 2, 3)} <= steps.keys(), seed


@pytest.mark.parametrize("part", ["log", "xml"])
def test_appagent_runs(part, write_run, tmp_path):
    run = write_run(["tap(1)", "tap(2)", 'text("hello")', "FINISH"])
    (log,) = run.glob("log_*.txt")
    dump = run / f"{run.name}_2.xml"
    lines, xml = log.read_text().splitlines(), dump.read_text()
    whole, _ = read(read_runs, run.parent)
    for seed in range(COUNT):
        rng = random.Random(seed)
        if part == "xml":
            damaged = damage_xml(rng, xml).encode("utf-8", "surrogatepass")
            dump.write_bytes(damaged if rng.random() < 0.5 else damage_bytes(rng, damaged))
        elif rng.random() < 0.5:
            damaged = [*lines]
            damaged[1] = json_text(rng, damage_json(rng, json.loads(lines[1])))
            log.write_bytes("".join(f"{line}\n" for line in damaged).encode("utf-8", "surrogatepass"))
        else:
            log.write_bytes(damage_bytes(rng, "\n".join(lines).encode()))
        steps, report = read(read_runs, run.parent)
        assert told(steps, report, 4, "screens_without_action"), seed
        if part == "xml":
            assert steps is not None and len(whole.keys() & steps.keys()) >= 3, seed


def test_hierarchies(ui):
    """Elements of a damaged dump are a screen's, or the dump is refused with a reason."""
    xml = ui.hierarchy(
        ui.node((0, 0, 100, 200), children="".join(ui.node((0, n, 100, n + 9), text=f"row {n}") for n in range(20)))
    ).decode()
    for seed in range(COUNT):
        rng = random.Random(seed)
        damaged = damage_xml(rng, xml).encode("utf-8", "surrogatepass")
        if rng.random() < 0.5:
            damaged = damage_bytes(rng, damaged)
        with no_hang(SECONDS):
            try:
                elements, dropped = ui_elements(parse_hierarchy(damaged), 100, 200)
            except RecordError as error:
                assert str(error)
            else:
                assert dropped >= 0
                assert all(0 <= e.box[0] <= e.box[2] <= 1 and 0 <= e.box[1] <= e.box[3] <= 1 for e in elements)


# --- recordings in JSON ---


def damaged_json(rng, value):
    """The value's text after damage to its structure, its bytes, or both."""
    text = json_text(rng, damage_json(rng, value)).encode("utf-8", "surrogatepass")
    return damage_bytes(rng, text) if rng.random() < 0.4 else text


def test_jsonl(tmp_path):
    Image.new("RGB", (100, 200)).save(tmp_path / "a.png")
    lines = [
        {
            "episode": "e",
            "step": n,
            "instruction": "Do it",
            "screenshot": "a.png",
            "units": "pixels",
            "elements": [{"box": [0, 0, 50, 20], "text": "Wi-Fi", "clickable": True}],
            "action": {"type": "tap", "point": [25, 10]},
        }
        for n in range(4)
    ]
    for seed in range(COUNT):
        rng = random.Random(seed)
        texts = [json.dumps(line).encode() for line in lines]
        texts[1] = damaged_json(rng, lines[1])
        (tmp_path / "steps.jsonl").write_bytes(b"\n".join(texts) + b"\n")
        steps, report = read(read_jsonl, tmp_path)
        assert steps is not None and {f"recorded/e/{n}" for n in (0, 2, 3)} <= steps.keys(), seed
        assert len(steps) >= 4 or report.faults or not texts[1].strip(), seed  # an empty line says nothing


@pytest.mark.parametrize("form", ["json", "jsonl"])
def test_androidcontrol(form, tmp_path):
    Image.new("RGB", (100, 200)).save(tmp_path / "a.png")
    node = {"text": "Wi-Fi", "class_name": "a.B", "bbox_pixels": {"x_min": 0, "x_max": 50, "y_min": 0, "y_max": 20}}
    episodes = [
        {
            "episode_id": number,
            "goal": "Do it",
            "screenshots": ["a.png"] * 3,
            "accessibility_trees": [[node]] * 3,
            "screenshot_widths": [100] * 3,
            "screenshot_heights": [200] * 3,
            "actions": [{"action_type": "click", "x": 5, "y": 5}, {"action_type": "navigate_back"}],
            "step_instructions": ["tap", "back"],
        }
        for number in range(3)
    ]
    for seed in range(COUNT):
        rng = random.Random(seed)
        texts = [json.dumps(episode).encode() for episode in episodes]
        texts[1] = damaged_json(rng, episodes[1])
        whole = b"\n".join(texts) if form == "jsonl" else b"[" + b",".join(texts) + b"]"
        (tmp_path / f"episodes.{form}").write_bytes(whole)
        steps, report = read(read_episodes, tmp_path)
        if steps is None:  # bytes that are no text anywhere spoil a whole .json, which is said
            assert form == "json", seed
            continue
        assert {f"android_control/0/{n}" for n in (0, 1)} <= steps.keys(), seed
        assert len(steps) >= 6 or report.faults, seed
        if form == "jsonl":
            assert {f"android_control/2/{n}" for n in (0, 1)} <= steps.keys(), seed


def read_learngui(root, report):
    layout = find_layout(root)
    episodes = load_offline(layout, "learngui", report)
    load_tests(layout, 1, episodes, "learngui", report)
    return StepReader(layout, online=False).read(episodes.values(), report)


@pytest.mark.parametrize("part", ["instructions", "tasks", "annotation"])
def test_learngui(part, tmp_path):
    release = Release(tmp_path / "learngui")
    release.episodes = {name: Release.episode(name, ["CLICK[60,120]"]) for name in release.episodes}
    release.write()
    path = {
        "instructions": release.offline / "low_level_instructions.json",
        "tasks": release.offline / release.split_name,
        "annotation": release.anno / "q1_0.json",
    }[part]
    value = json.loads(path.read_text())
    whole, _ = read(read_learngui, release.root)
    for seed in range(COUNT):
        rng = random.Random(seed)
        path.write_bytes(damaged_json(rng, value))
        steps, report = read(read_learngui, release.root)
        if part == "annotation":
            assert steps is not None and steps.keys() == whole.keys(), seed
        elif steps is not None:
            # an episode that is gone leaves a task without its query or its support
            assert len(steps) >= len(whole) or report.faults or report.notes["supports_without_an_episode"], seed
