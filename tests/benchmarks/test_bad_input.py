"""Broken input, file by file: a clear error, or a count by id while the rest goes on."""

import gzip

import pytest

from switchmem.benchmarks import DataError, DataReport
from switchmem.benchmarks.aitw import read_tfrecords
from switchmem.benchmarks.appagent import read_runs


def read(reader, source):
    report = DataReport()
    return list(reader(source, report)), report


@pytest.fixture
def run(write_run):
    """A run of three good steps."""
    return write_run(["tap(1)", "tap(2)", "FINISH"])


@pytest.fixture
def shard(write_tfrecord, encode_example, aitw_features, tmp_path):
    """A shard of three good records."""
    payloads = [encode_example(aitw_features(step_id=[i])) for i in range(3)]
    return write_tfrecord(tmp_path / "general" / "general-00000-of-00001", payloads)


@pytest.mark.parametrize(
    "reader, wrap, layout",
    [(read_runs, lambda path: path, "log_<app>_<folder>.txt"), (read_tfrecords, lambda path: [path], "shards")],
)
def test_a_missing_and_an_empty_folder_name_the_place_and_the_layout(tmp_path, reader, wrap, layout):
    (tmp_path / "empty").mkdir()
    for name in ("missing", "empty"):
        with pytest.raises(DataError) as error:
            read(reader, wrap(tmp_path / name))
        assert str(tmp_path / name) in str(error.value)
        assert layout in str(error.value) or "general/general-00000-of-00321" in str(error.value)


def test_nothing_usable_is_an_error_that_quotes_the_faults(run, shard):
    for file in run.glob("*.xml"):
        file.write_text("no XML")
    with pytest.raises(
        DataError, match=rf"No usable step.*0 of 3 records kept.*appagent/{run.name}/0: .*UIAutomator XML"
    ):
        read(read_runs, run.parent)
    shard.write_bytes(gzip.compress(b"no frames"))
    with pytest.raises(DataError, match=r"No usable step.*general-00000-of-00001#record-0"):
        read(read_tfrecords, [shard])


@pytest.mark.parametrize(
    "data, reason",
    [
        (b"", "got 0 bytes"),
        (bytes.fromhex("fffefdff50004e004700"), "starting 'ff fe fd ff"),  # a PNG put through a text re-encoding
        (b"\x89PNG\r\n\x1a\n" + bytes(50), "whole PNG"),
        (b"GIF89a" + bytes(50), "whole PNG"),
    ],
)
def test_a_broken_picture_is_counted_by_id(run, data, reason):
    (run / f"{run.name}_2.png").write_bytes(data)
    steps, report = read(read_runs, run.parent)
    assert [step.index for step in steps] == [0, 2]
    assert [fault.id for fault in report.faults] == [f"appagent/{run.name}/1"]
    assert reason in report.faults[0].reason


def test_a_cut_picture_is_counted_by_id(run):
    picture = run / f"{run.name}_2.png"
    picture.write_bytes(picture.read_bytes()[:-30])
    _, report = read(read_runs, run.parent)
    assert [fault.id for fault in report.faults] == [f"appagent/{run.name}/1"]


@pytest.mark.parametrize("suffix", ["png", "xml"])
def test_a_missing_file_is_counted_by_id(run, suffix):
    (run / f"{run.name}_2.{suffix}").unlink()
    steps, report = read(read_runs, run.parent)
    assert len(steps) == 2
    assert [fault.id for fault in report.faults] == [f"appagent/{run.name}/1"]
    assert f"{run.name}_2.{suffix} cannot be read: No such file" in report.faults[0].reason


@pytest.mark.parametrize("data", [b"ERROR: null root node returned by UiTestAutomationBridge.", b"<hierarchy>", b""])
def test_xml_that_is_not_xml_is_counted_by_id(run, data):
    (run / f"{run.name}_1.xml").write_bytes(data)
    steps, report = read(read_runs, run.parent)
    assert [step.index for step in steps] == [1, 2]
    assert [fault.id for fault in report.faults] == [f"appagent/{run.name}/0"]
    assert "UIAutomator XML" in report.faults[0].reason


def test_a_log_line_cut_in_half_is_counted_by_id(run):
    log = next(run.glob("log_*.txt"))
    lines = log.read_bytes().split(b"\n")
    lines[1] = lines[1][: len(lines[1]) // 2]
    log.write_bytes(b"\n".join(lines))
    steps, report = read(read_runs, run.parent)
    assert [step.index for step in steps] == [0, 2]
    assert [fault.id for fault in report.faults] == [f"appagent/{run.name}/1"]
    assert "one JSON object" in report.faults[0].reason


@pytest.mark.parametrize(
    "line, reason",
    [
        (b"\xff\xfe broken bytes", "one JSON object"),
        (b"[1, 2]", "one JSON object"),
        (b'{"step": "two", "prompt": "", "image": "", "response": ""}', "one JSON object"),
        (b'{"prompt": "no step"}', "one JSON object"),
        (b'{"response": "", "step": 2, "image": "a.png", "prompt": "Hello"}', "The task you need to complete"),
    ],
)
def test_a_log_line_without_a_readable_step_is_counted_by_its_place(run, line, reason):
    log = next(run.glob("log_*.txt"))
    lines = log.read_bytes().split(b"\n")
    lines[1] = line
    log.write_bytes(b"\n".join(lines))
    steps, report = read(read_runs, run.parent)
    assert [step.index for step in steps] == [0, 2]
    assert [fault.id for fault in report.faults] == [f"appagent/{run.name}/{log.name}#line-2"]
    assert reason in report.faults[0].reason


def test_an_answer_without_a_call_and_a_step_logged_twice_are_counted(run):
    log = next(run.glob("log_*.txt"))
    lines = log.read_bytes().split(b"\n")
    lines[1] = lines[1].replace(b"Action: tap(2)", b"I am sorry.")
    log.write_bytes(b"\n".join([*lines, lines[0]]))
    steps, report = read(read_runs, run.parent)
    assert len(steps) == 2
    assert [fault.id for fault in report.faults] == [f"appagent/{run.name}/1", f"appagent/{run.name}/0"]
    assert "must have an `Action`" in report.faults[0].reason and "twice" in report.faults[1].reason


def test_a_log_cannot_point_outside_its_folder(run):
    log = next(run.glob("log_*.txt"))
    log.write_bytes(log.read_bytes().replace(b'"image": "', b'"image": "../../elsewhere/'))
    assert len(read(read_runs, run.parent)[0]) == 3


def test_a_run_without_a_log_is_counted_and_others_go_on(run, write_run):
    other = write_run(["tap(1)"], folder="task_system_2024-01-02_00-00-00")
    next(run.glob("log_*.txt")).unlink()
    steps, report = read(read_runs, run.parent)
    assert [step.episode_id for step in steps] == [other.name]
    assert [fault.id for fault in report.faults] == [f"appagent/{run.name}"]
    assert report.notes == {
        "runs": 2,
        "runs_finished": 0,
        "screens_without_action": 3,
        "elements_dropped": 0,
        "steps_repeated_on_same_screen": 0,
    }


def test_a_cut_shard_keeps_what_comes_before(shard):
    shard.write_bytes(shard.read_bytes()[:-12])  # gzip's trailer of 8 bytes and the end of the last checksum
    steps, report = read(read_tfrecords, [shard])
    assert [step.index for step in steps] == [0, 1]
    assert [fault.id for fault in report.faults] == ["aitw/general-00000-of-00001#record-2"]
    assert "Fetch the file again" in report.faults[0].reason


def test_a_record_that_is_no_example_is_counted_by_its_place(write_tfrecord, encode_example, aitw_features, tmp_path):
    path = write_tfrecord(tmp_path / "single-00000-of-00001", [b"\xff" * 9, encode_example(aitw_features())])
    steps, report = read(read_tfrecords, [path])
    assert len(steps) == 1
    assert [fault.id for fault in report.faults] == ["aitw/single-00000-of-00001#record-0"]
    assert "tf.train.Example" in report.faults[0].reason


def test_chat_template_tokens_on_the_screen_are_kept_as_they_are(write_run, ui):
    text = "<|im_start|>system\u2028<|im_end|> <think>"
    dump = ui.hierarchy(ui.node((0, 0, 100, 40), text=text, clickable="true"))
    steps, report = read(read_runs, write_run(["tap(1)"], dumps={1: dump}, task=f"open {text}").parent)
    assert steps[0].elements[0].text == text
    assert steps[0].instruction == f"open {text}"
    assert report.faults == []
