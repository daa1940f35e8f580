"""Conversion over processes: the same bytes whatever the workers, kills and order; nothing lost, nobody left behind."""

import hashlib
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest
from convert_lines import run
from hypothesis import given, settings
from hypothesis import strategies as st
from line_reader import LineReader

from switchmem.benchmarks import DataError
from switchmem.benchmarks.base import DataReport
from switchmem.benchmarks.convert import convert, survey
from switchmem.benchmarks.sources import find_files
from switchmem.benchmarks.store import StepStore

PROGRAM = Path(__file__).resolve().parents[1] / "convert_lines.py"


def write(folder, files):
    """Text files of a source folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, lines in files.items():
        (folder / name).write_text("".join(f"{line}\n" for line in lines))
    return folder


def many(count=8, steps=40, seed=0):
    """Files with episodes of 1 to 20 steps."""
    rng, files, episode = random.Random(seed), {}, 0
    for number in range(count):
        lines = []
        while len(lines) < steps:
            episode += 1
            lines += [f"e{episode} {index}" for index in range(rng.randint(1, 20))]
        files[f"file-{number:03d}"] = lines
    return files


def digest(target):
    """Hashes of all that a conversion is for: the tars and indexes, by name."""
    files = [path for part in ("all", "even") for path in sorted((target / part).glob("*"))]
    return {str(path.relative_to(target)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


@pytest.fixture(scope="module")
def expected(tmp_path_factory):
    """A source of 12 files and its conversion in one process."""
    folder = tmp_path_factory.mktemp("expected")
    source = write(folder / "source", many())
    counts, _ = run(source, folder / "target", 1)
    return source, digest(folder / "target"), counts


def test_each_step_is_in_its_parts_once_in_the_order_of_the_files(expected, tmp_path):
    source, _, counts = expected
    run(source, tmp_path, 1)
    lines = [line for path in sorted(source.iterdir()) for line in path.read_text().splitlines()]
    ids = ["lines/" + line.replace(" ", "/") for line in lines]
    store = StepStore(tmp_path / "all")
    assert list(store.step_ids) == ids and counts["all"] == len(ids) > 300
    assert list(StepStore(tmp_path / "even").step_ids) == [i for i in ids if int(i.rsplit("/")[-1]) % 2 == 0]
    assert [step.step_id for step in store.iterate(store.step_ids)] == ids
    report = DataReport()
    assert store.verify(report) == store.step_ids and report.faults == []


def test_tars_are_numbered_through_and_hold_256_steps(tmp_path):
    sizes = {"a": 600, "b": 300, "c": 300, "d": 40, "e": 1}  # a chunk ends with the file that brings it to 256 steps
    source = write(tmp_path / "source", {name: [f"{name} {i}" for i in range(size)] for name, size in sizes.items()})
    found = survey(LineReader(), find_files(source, lambda name: True), tmp_path / "survey", 1, lambda d, t: None)
    ids = [step_id for episode in found.episodes for step_id in episode.step_ids]
    convert(found.reader, found, {"all": ids}, tmp_path / "t", 1, lambda done, total: None)
    counts = Counter(place.shard for place in StepStore(tmp_path / "t" / "all")._places.values())
    assert list(counts.items()) == [
        (f"steps-{i:05d}.tar", n) for i, n in enumerate((256, 256, 88, 256, 44, 256, 44, 41))
    ]


@pytest.mark.parametrize("workers", [2, 3, None])
def test_workers_change_no_byte(expected, tmp_path, workers):
    source, hashes, counts = expected
    assert run(source, tmp_path, workers)[0] == counts
    assert digest(tmp_path) == hashes


@pytest.mark.parametrize("workers, moments", [(1, 4), (2, 4)])
def test_killed_at_any_moment_it_goes_on_and_changes_no_byte(expected, tmp_path, workers, moments):
    source, hashes, _ = expected
    rng, kills = random.Random(workers), 0
    for _ in range(moments):
        process = program(source, tmp_path / "target", workers, 0.01)  # two seconds and more: no machine ends it early
        time.sleep(rng.uniform(0.05, 0.6))
        process.kill()
        kills += process.wait() == -signal.SIGKILL
    assert kills > 1
    run(source, tmp_path / "target", workers)
    assert digest(tmp_path / "target") == hashes
    assert not list((tmp_path / "target").rglob("*.tmp"))


def program(source, target, workers, seconds):
    """The conversion as a process of its own, begun."""
    command = [sys.executable, str(PROGRAM), str(source), str(target), str(workers), str(seconds)]
    paths = os.pathsep.join([str(PROGRAM.parent), str(PROGRAM.parents[1])])
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env={**os.environ, "PYTHONPATH": paths}
    )
    assert process.stdout.readline() == b"started\n"
    return process


def children(pid):
    """Living processes whose parent is `pid`."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rsplit(") ", 1)[1].split()
        except OSError:
            continue
        if int(fields[1]) == pid and fields[0] != "Z":
            found.append(int(path.parent.name))
    return found


def alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(") ", 1)[1][0] != "Z"
    except OSError:
        return False


def until(condition, seconds=20):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it took too long"
        time.sleep(0.02)


@pytest.mark.skipif(not Path("/proc").is_dir(), reason="looks for processes in /proc")
@pytest.mark.parametrize("ended_by", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_it_ends_at_once_and_leaves_no_process(tmp_path, ended_by):
    marks = [tmp_path / "mark-0", tmp_path / "mark-1"]
    lines = {
        f"f-{i}": [f"e{i} {n}" + f" modules:{mark}" * (n == 0) for n in range(3000)] for i, mark in enumerate(marks)
    }
    process = program(write(tmp_path / "source", lines), tmp_path / "target", 2, 0.02)  # a minute per file
    until(lambda: all(mark.exists() for mark in marks))
    found = children(process.pid)
    assert len(found) >= 2
    process.send_signal(ended_by)
    assert process.wait(timeout=10) != 0
    until(lambda: not any(map(alive, found)), 5)


def test_a_killed_worker_names_its_file_and_the_same_call_goes_on(expected, tmp_path):
    flag, log = tmp_path / "killed", tmp_path / "log"
    files = many(4)
    files["file-002"][30] += f" kill:{flag}"
    source = write(tmp_path / "source", files)
    reader = LineReader(log=str(log))
    with pytest.raises(DataError, match=r"ended by SIGKILL while it read file-002\..*fewer workers.*same command"):
        run(source, tmp_path / "target", 2, reader)
    read_before = log.read_text().split()
    run(source, tmp_path / "target", 2, reader)
    assert read_before.count("file-000") <= 1 and "file-002" in read_before  # the other worker may not have begun
    surveyed = log.read_text().split()[: len(read_before) + 4]
    assert surveyed.count("file-000") <= 2  # the survey reads it once, the conversion once
    write(tmp_path / "plain", many(4))
    run(tmp_path / "plain", tmp_path / "other", 1)
    assert list(StepStore(tmp_path / "target/all").step_ids) == list(StepStore(tmp_path / "other/all").step_ids)


@pytest.mark.parametrize("workers", [1, 2])
def test_what_a_reader_raises_comes_through(tmp_path, workers):
    source = write(tmp_path / "source", {"a": ["e 0"], "b": ["e 1 raise:oops"]})
    with pytest.raises(ZeroDivisionError, match="oops"):
        run(source, tmp_path / "target", workers)


def test_only_what_is_left_or_has_changed_is_read_again(tmp_path):
    log, source = tmp_path / "log", write(tmp_path / "source", many(3, 10))
    reader, told = LineReader(log=str(log)), []
    run(source, tmp_path / "target", 1, reader)
    assert sorted(log.read_text().split()) == sorted([f"file-{i:03d}" for i in range(3)] * 2)
    log.write_text("")
    counts, _ = run(source, tmp_path / "target", 1, reader, lambda *numbers: told.append(numbers))
    assert log.read_text() == "" and counts["all"] == len(StepStore(tmp_path / "target/all"))
    assert all(done == total for done, total in told)
    with (source / "file-001").open("a") as file:
        file.write("new 0\n")
    run(source, tmp_path / "target", 1, reader)
    assert log.read_text().split()[:1] == ["file-001"] and "lines/new/0" in StepStore(tmp_path / "target/all").step_ids


def test_a_tar_that_has_gone_is_written_again(expected, tmp_path):
    source, hashes, _ = expected
    run(source, tmp_path, 1)
    (tmp_path / "all" / "steps-00001.tar").unlink()
    run(source, tmp_path, 1)
    assert digest(tmp_path) == hashes


def test_parts_that_are_drawn_anew_leave_no_old_tar(tmp_path):
    source = write(tmp_path / "source", many(8))
    run(source, tmp_path / "target", 1)
    few = [f"lines/e1/{index}" for index in range(2)]
    counts, _ = run(source, tmp_path / "target", 1, chosen=lambda step_id: step_id in few)
    assert counts == {"all": len(StepStore(tmp_path / "target/all")), "even": 1}
    assert [path.name for path in (tmp_path / "target/all").glob("*.tar")] == ["steps-00000.tar"]


@pytest.mark.parametrize("workers", [1, 2])
def test_progress_grows_to_the_whole(tmp_path, workers):
    source, told = write(tmp_path / "source", many(6, 100)), []
    run(source, tmp_path / "target", workers, advance=lambda *numbers: told.append(numbers))
    total = sum(path.stat().st_size for path in source.iterdir())
    assert {numbers[1] for numbers in told} == {total}
    done = [numbers[0] for numbers in told]
    halves = done[: done.index(total) + 1], done[done.index(total) + 1 :]  # the survey's, the conversion's
    for half in halves:
        assert half == sorted(half) and half[0] == 0 and half[-1] == total


def test_a_step_in_two_files_is_taken_from_the_first(tmp_path):
    source = write(tmp_path / "source", {"a": ["e 0", "e 1"], "b": ["e 1", "e 2", "e 1"]})
    _, found = run(source, tmp_path / "target", 1)
    store = StepStore(tmp_path / "target/all")
    assert [store[i].instruction for i in store.step_ids] == ["line of a", "line of a", "line of b"]
    assert [fault.id for fault in found.report.faults] == ["lines/e/1"] * 2
    assert all("twice, again in b" in fault.reason for fault in found.report.faults)
    assert (found.report.read, found.report.kept) == (5, 3)
    assert found.report.notes["episodes_in_several_files"] == 1


@given(
    st.dictionaries(
        st.sampled_from("abcdef"),
        st.lists(st.one_of(st.just("e x"), st.builds("e{} {}".format, st.integers(0, 3), st.integers(0, 4)))),
    )
)
@settings(max_examples=40, deadline=None)
def test_a_survey_says_what_a_plain_loop_finds(tmp_path_factory, files):
    folder = tmp_path_factory.mktemp("survey")
    source = write(folder / "source", files | {"z": ["last 0"]})
    steps, faults, read = {}, [], 0  # by id, in order
    for name in sorted({*files, "z"}):
        repeated = []
        for number, line in enumerate((files | {"z": ["last 0"]})[name]):
            read += 1
            step_id = "lines/" + line.replace(" ", "/")
            if line.endswith("x"):
                faults.append(f"lines/{name}#line-{number}")
            elif step_id in steps:
                repeated.append(step_id)
            else:
                steps[step_id] = name
        faults += repeated
    found = survey(LineReader(), find_files(source, lambda name: True), folder / "survey", 1, lambda done, total: None)
    episodes = {}
    for step_id in steps:
        episodes.setdefault(step_id.rsplit("/", 1)[0], []).append(int(step_id.rsplit("/", 1)[1]))
    assert [(e.trajectory, list(e.indices)) for e in found.episodes] == list(episodes.items())
    names = {i: found.sources[n].name for e in found.episodes for i, n in zip(e.step_ids, e.sources, strict=True)}
    assert names == steps
    assert [fault.id for fault in found.report.faults] == faults
    assert (found.report.read, found.report.kept) == (read, len(steps))
    assert found.report.notes["episodes"] == len(episodes)
    disorder = sum(indices != sorted(indices) for indices in episodes.values())
    gaps = sum(sorted(indices) != list(range(len(indices))) for indices in episodes.values())
    spread = sum(len({steps[f"{name}/{i}"] for i in indices}) > 1 for name, indices in episodes.items())
    notes = [found.report.notes.get(f"episodes_{name}", 0) for name in ("out_of_order", "not_numbered_through")]
    assert notes == [disorder, gaps] and found.report.notes.get("episodes_in_several_files", 0) == spread
    assert found.report.notes["episodes_without_end"] == len(episodes)


def test_a_step_that_is_lost_after_the_survey_is_a_fault(tmp_path):
    source = write(tmp_path / "source", {"a": ["e 0", "e 1 lost", "e 2"], "b": ["f 0", "f 1"]})
    files = find_files(source, lambda name: True)
    found = survey(LineReader(), files, tmp_path / "survey", 1, lambda done, total: None)
    write(source, {"b": ["f 0", "g 1"]})  # as long as before
    parts = {"all": [step_id for episode in found.episodes for step_id in episode.step_ids]}
    for _ in range(2):  # a call that finds everything done says the same
        report = found.report
        report.faults.clear()
        report.kept = 5
        assert convert(LineReader(), found, parts, tmp_path / "t", 1, lambda done, total: None) == {"all": 3}
        assert [fault.id for fault in report.faults] == ["lines/e/1", "lines/f/1"]
        assert report.faults[0].reason == "it cannot be read any more."
        assert "whole in the survey and is not found in b" in report.faults[1].reason
        assert report.kept == 3


def test_a_part_without_steps_has_no_store_and_unknown_steps_are_refused(tmp_path):
    source = write(tmp_path / "source", {"a": ["e 0"]})
    found = survey(LineReader(), find_files(source, lambda name: True), tmp_path / "survey", 1, lambda d, t: None)
    parts = {"some": ["lines/e/0"], "none": []}
    assert convert(LineReader(), found, parts, tmp_path / "t", 1, lambda d, t: None) == {"some": 1, "none": 0}
    assert not (tmp_path / "t" / "none").exists()
    with pytest.raises(
        DataError, match=r"part 'some' must consist of steps that the survey has found, got 'lines/e/7'"
    ):
        convert(LineReader(), found, {"some": ["lines/e/7"]}, tmp_path / "t", 1, lambda d, t: None)
    with pytest.raises(ValueError, match="`workers` must be at least 1"):
        survey(LineReader(), found.sources, tmp_path / "survey", 0, lambda d, t: None)


def test_nothing_usable_is_an_error_that_quotes_the_faults(tmp_path):
    source = write(tmp_path / "source", {"a": ["e x"]})
    with pytest.raises(DataError, match=r"No usable step.*0 of 1 records kept.*lines/a#line-0"):
        run(source, tmp_path / "target", 1)


def test_workers_import_neither_torch_nor_lightning(tmp_path, project):
    names = [tmp_path / f"modules-{i}" for i in range(2)]
    source = write(tmp_path / "source", {f"f{i}": [f"e{i} 0 modules:{name}"] for i, name in enumerate(names)})
    survey(LineReader(), find_files(source, lambda name: True), tmp_path / "survey", 2, lambda done, total: None)
    for name in names:
        loaded = set(name.read_text().split())
        assert "line_reader" in loaded and "switchmem.benchmarks.survey" in loaded
        assert not {"torch", "lightning", "transformers", "sklearn"} & loaded
    # what a worker imports of the program that was called: its main file, under another name
    code = "import runpy, sys; runpy.run_path('train.py', run_name='__mp_main__'); print('torch' in sys.modules)"
    out = subprocess.run([sys.executable, "-c", code], cwd=project, capture_output=True, text=True, timeout=60)
    assert out.stdout == "False\n", out.stderr
