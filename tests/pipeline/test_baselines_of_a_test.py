"""The memory baselines through the command line, with the fake actor: scored, counted, kept, resumed, reported."""

import json
import shutil

import pyarrow.parquet as pq
import pytest
from desk import Desk

from switchmem.actors.writer import ModelWriter
from switchmem.evaluation import ScoreMatrix

NAMES = ["rag_gui", "m3a", "app_agent", "echotrail"]
ALL = f"--baselines.names=[{','.join(NAMES)}]"
BATCH = "--data.init_args.batch_size=4"


class Killed(Exception):
    pass


def results(desk):
    return json.loads((desk.run / "results.json").read_text())


@pytest.fixture(scope="module")
def done(trained, tmp_path_factory):
    """A desk on which a test of all baselines was killed while RAG-GUI was written, and went on; and its questions."""
    folder = tmp_path_factory.mktemp("baselines") / "desk"
    shutil.copytree(trained, folder)
    asked = [[]]
    write = ModelWriter.write

    def counting(self, calls):
        if len(asked) == 1 and len(asked[0]) > 8:
            raise Killed
        asked[-1] += [call.key("w") for call in calls]
        return write(self, calls)

    with pytest.MonkeyPatch.context() as monkeypatch:
        desk = Desk(folder, monkeypatch)
        desk.before = results(desk)
        monkeypatch.setattr(ModelWriter, "write", counting)
        with pytest.raises(Killed):
            desk("test", ALL, BATCH)
        asked.append([])
        assert desk("test", ALL, BATCH) == 0
    desk.asked = asked
    return desk


@pytest.fixture
def table(done):
    return pq.read_table(done.run / "scores.parquet").to_pylist()


def test_baselines_are_columns_of_the_test_and_no_fixed_conditions(done, table):
    before, after = done.before, results(done)
    assert before["baselines"] == {} and [n for n in after["policies"] if n not in before["policies"]] == NAMES
    assert {n: row for n, row in after["policies"].items() if n in before["policies"]} == before["policies"]
    assert after["comparison"] == before["comparison"] and after["oracle_gap"] == before["oracle_gap"]
    matrix = ScoreMatrix.load(done.run / "scores.parquet")
    for name in NAMES:
        column = [row[f"baseline_{name}"] for row in table]
        assert after["policies"][name]["score"] == pytest.approx(100 * sum(column) / len(table))
        assert list(matrix.baselines[name]) == column
        read = [row[f"reason_{name}"] == "" for row in table]
        assert after["baselines"][name]["parse_rate"] == pytest.approx(sum(read) / len(table))
        assert all(row[f"seconds_{name}"] >= 0 and isinstance(row[f"answer_{name}"], str) for row in table)


def test_a_broken_answer_of_the_writer_falls_back_and_is_counted(done, table):
    """The fake writes "???"; without a guideline the prompt is the state prompt, and its answer that of "none"."""
    told = results(done)["baselines"]
    assert told["rag_gui"]["fallbacks"] == {"guideline: empty": len(table)}
    assert [row["baseline_rag_gui"] for row in table] == [row["none"] for row in table]
    assert told["m3a"]["fallbacks"]["summary: empty"] > 0 and told["app_agent"]["fallbacks"]["document: empty"] > 0
    assert told["echotrail"]["fallbacks"] == {} and told["echotrail"]["writer"]["calls"] == 0.0
    assert told["app_agent"]["offline"]["calls"] == told["app_agent"]["offline"]["answers"] > 0


def test_a_killed_test_asks_nothing_twice_and_counts_every_call_once(done, table):
    first, second = map(set, done.asked)
    assert first and second and not first & second and len(second) == len(done.asked[1])
    told = results(done)["baselines"]
    assert told["rag_gui"]["writer"]["calls"] == 1.0
    assert told["m3a"]["writer"]["calls"] == pytest.approx(sum(row["index"] > 0 for row in table) / len(table))
    questions = len(table) + told["app_agent"]["offline"]["calls"] + sum(row["index"] > 0 for row in table)
    assert len(first) + len(second) == questions


def test_finished_baselines_are_kept_and_other_settings_are_not(done, monkeypatch, capsys):
    desk = Desk(done.folder, monkeypatch)
    assert desk("test", ALL, "--baselines.echotrail.window=0") == 0
    out = capsys.readouterr().out
    assert len(desk.loads) == 1 and "echotrail: actor writes" in out
    assert all(f"{name}: kept from" in out for name in NAMES[:3])
    assert "Memory baselines" in out and "Written by: actor." in out
    assert desk("report") == 0
    page = (desk.run / "report" / "index.html").read_text()
    assert "Memory baselines" in page and ">echotrail<" in page and "Written by: actor." in page


def test_another_writer_is_another_run_of_the_baseline(desk):
    template = ["--baselines.names=[rag_gui]", "--baselines.writer=template"]
    assert desk("test", *template) == 0
    told = results(desk)["baselines"]["rag_gui"]
    assert told["written_by"] == "template" and told["writer"]["calls"] == 0.0 and told["fallbacks"] == {}
    assert not list((desk.folder / "runs" / "stages").glob("writing-*"))
    other = desk.folder / "other"
    other.mkdir()
    (other / "config.json").write_text('{"another": 1}')
    desk.loads.clear()
    model = ["--baselines.writer=model", f"--baselines.model.model={other}"]
    assert desk("test", "--baselines.names=[rag_gui]", *model) == 0
    assert [spec.model for spec in desk.loads] == ["fake", str(other)]
    told = results(desk)["baselines"]["rag_gui"]
    assert told["written_by"] == "model other" and told["writer"]["calls"] == 1.0


@pytest.mark.parametrize(
    "flags, message",
    [
        (["--baselines.names=[rag_gui,rag_gui]"], "must not repeat a name"),
        (["--baselines.writer=model"], "`baselines.model` must be given with the writer 'model'"),
        (["--baselines.writer_batch=0"], "`baselines.writer_batch` must be at least 1"),
        (["--baselines.m3a.history=-1"], "`m3a.history` must be at least 0"),
    ],
)
def test_settings_that_cannot_be_are_refused(done, monkeypatch, capsys, flags, message):
    try:
        status = Desk(done.folder, monkeypatch)("test", *flags)
    except SystemExit as error:  # the parser's own way
        status = error.code
    assert status not in (0, None) and message in capsys.readouterr().err
