"""AITW as a data module and as a config: shards in, parts out, fit and test; and what it says without data."""

import json
import os
import re
import subprocess
import sys

import numpy as np
import pytest
from desk import Desk
from fake_actor import recorded_actions

from data_modules import AitwDataModule
from data_modules.aitw import GUIDE
from switchmem.actors.spec import ActorSpec
from switchmem.benchmarks.aitw import read_tfrecords
from switchmem.benchmarks.base import DataError, DataReport
from switchmem.benchmarks.splits import PartSize
from switchmem.cli import main
from switchmem.memory.embedder import HashingEmbedder
from switchmem.stages import Stages

EPISODES, STEPS = 12, 4
OVERLAP = "general-1"  # listed for training and for the test
SMALL = {part: PartSize(8, 4) for part in ("preference", "bank", "test")}
TINY = [f"--data.init_args.{part}={{steps: 8, trajectories: 4}}" for part in SMALL]


@pytest.fixture(scope="module")
def root(tmp_path_factory, write_tfrecord, aitw_features, encode_example):
    """Two sets in two shards each, as published, with split files for each set; two episodes are in none of them."""
    folder = tmp_path_factory.mktemp("aitw")
    for name in ("general", "install"):
        for shard in range(2):
            records = [
                encode_example(
                    aitw_features(
                        **{
                            "episode_id": [f"{name}-{n}".encode()],
                            "episode_length": [STEPS],
                            "step_id": [step],
                            "goal_info": [f"{name} task {n} of many".encode()],
                            "image/encoded": [np.random.default_rng(100 * n + step).bytes(72)],
                        }
                    )
                )
                for n in range(shard, EPISODES, 2)
                for step in range(STEPS)
            ]
            write_tfrecord(folder / name / f"{name}-{shard:05d}-of-00002", records)
        ids = [f"{name}-{n}" for n in range(EPISODES - 1)]  # the last one is listed nowhere
        lists = {"train": ids[:7], "val": ids[7:8], "test": ids[8:] + [i for i in ids if i == OVERLAP]}
        (folder / "splits").mkdir(exist_ok=True)
        (folder / "splits" / f"{name}_texts_splits.json").write_text(json.dumps(lists))
    return folder


@pytest.fixture
def make(tmp_path):
    """A placed data module."""

    def go(root, stages="stages", **arguments):
        data = AitwDataModule(str(root), **{**SMALL, "workers": 1, **arguments})
        data.place(Stages(tmp_path / stages), HashingEmbedder(64))
        return data

    return go


def report_of(data):
    return json.loads((data.steps_stage.folder / "split_report.json").read_text())


def trajectories(data, part):
    found = data.part(part)
    return {found.meta(step_id).episode_id for step_id in found.step_ids}


def test_parts_are_drawn_from_the_official_files(make, root, capsys):
    data = make(root)
    data.prepare_steps()
    assert {part: len(data.part(part)) for part in SMALL} == dict.fromkeys(SMALL, 8)
    train = {f"{name}-{n}" for name in ("general", "install") for n in range(7)} - {OVERLAP}
    preference, bank, test = (trajectories(data, part) for part in SMALL)
    assert len(preference) == len(bank) == len(test) == 4
    assert not preference & bank and preference | bank <= train
    assert test <= {f"{name}-{n}" for name in ("general", "install") for n in (8, 9, 10)} | {OVERLAP}
    assert trajectories(data, "test_bank") == preference | bank
    report = report_of(data)
    assert report["roles"]["conflicts"] == [
        {"id": f"aitw/{OVERLAP}", "listed_for": ["train", "test"], "used_for": "test"}
    ]
    assert report["not_listed"] == {"count": 2, "first": ["aitw/general-11", "aitw/install-11"]}
    assert report["shortfalls"] == [] and report["proof"]["trajectories_in_two_parts"] == 0
    assert data.notes == ()
    said = capsys.readouterr().out
    assert "AITW: preference 8 of 8 steps, 4 of 4 trajectories; bank 8 of 8" in said
    assert "1 id listed twice, not trained on" in said
    data_report = data.data_report()
    assert (data_report.read, data_report.kept, data_report.notes["episodes"]) == (96, 96, 24)


def test_read_gives_what_write_converts(make, root):
    data = make(root)
    data.prepare_steps()
    report = DataReport()
    streams = data.read(report)
    assert streams["test_bank"] == ("preference", "bank") and report.kept == 96
    for part in SMALL:
        stored = {step_id: data.part(part)[step_id] for step_id in data.part(part).step_ids}
        assert {step.step_id: step for step in streams[part]} == stored


def test_queries_retrieve_in_their_own_category_and_the_test_from_all(make, root):
    data = make(root)
    for part in ("preference", "test"):
        data.prepare_memory(part)
        hits, queries, bank = (
            data.pairs(part).hits,
            data.part(part),
            data.part({"preference": "bank"}.get(part, "test_bank")),
        )
        assert len(hits) == 8
        if part == "preference":
            assert all(queries.meta(q).category == bank.meta(hit.step_id).category for q, hit in hits.items())
        assert all(queries.meta(q).trajectory != bank.meta(hit.step_id).trajectory for q, hit in hits.items())


def test_the_stage_depends_on_all_that_is_drawn_and_not_on_the_workers(make, root):
    key = make(root).steps_stage.key
    assert make(root, workers=2).steps_stage.key == key
    others = [
        {"seed": 1},
        {"categories": ["general"]},
        {"balance": "proportional"},
        {"apart": "trajectory"},
        {"test": PartSize(9, 4)},
        {"splits": str(root / "splits" / "general_texts_splits.json")},
    ]
    keys = {make(root, **change).steps_stage.key for change in others}
    assert len(keys) == len(others) and key not in keys


def test_the_bytes_do_not_depend_on_the_workers_and_a_second_seed_surveys_nothing(make, root, monkeypatch):
    one, two = make(root, "one"), make(root, "two", workers=2)
    shards = []
    for data in (one, two):
        data.prepare_steps()
        folder = data.steps_stage.folder
        files = [p for p in folder.rglob("*") if p.suffix == ".tar" or p.name in ("index.json", "split_report.json")]
        shards.append({p.relative_to(folder): p.read_bytes() for p in files})
    assert shards[0] == shards[1] and len(shards[0]) == 7
    monkeypatch.setattr("switchmem.benchmarks.aitw.records.AitwReader.survey", lambda *_: pytest.fail("surveyed again"))
    other = make(root, "one", seed=7)
    other.prepare_steps()
    assert report_of(other)["found"] == report_of(one)["found"] and report_of(other)["proof"] != report_of(one)["proof"]


def test_a_killed_conversion_goes_on(make, root, monkeypatch, capsys):
    data = make(root)

    def killed(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("data_modules.aitw.finish_parts", killed)
        with pytest.raises(KeyboardInterrupt):
            data.prepare_steps()
    monkeypatch.setattr("switchmem.benchmarks.aitw.records.AitwReader.read", lambda *_: pytest.fail("converted again"))
    capsys.readouterr()
    data.prepare_steps()
    assert re.search(r"AITW: [1-9]\d* converted pieces kept from an interrupted run in ", capsys.readouterr().out)
    data.prepare_steps()
    assert "steps: kept from" not in capsys.readouterr().out  # it has just been told what was written
    again = make(root)
    again.prepare_steps()
    assert f"steps: kept from {again.steps_stage.folder}" in capsys.readouterr().out
    assert len(data.part("preference")) == 8 and not list(data.steps_stage.folder.glob(".chunks"))


def test_less_data_than_asked_is_divided_and_told(make, root, capsys):
    sizes = {part: PartSize(1_000, 100) for part in SMALL}
    data = make(root, **sizes)
    data.prepare_steps()
    report = report_of(data)
    assert report["found"]["preference"]["trajectories"] + report["found"]["bank"]["trajectories"] == 13
    assert len(report["shortfalls"]) == 3 and "the data holds no more" in report["shortfalls"][0]
    assert "of 1000 steps" in capsys.readouterr().out


def test_without_split_files_the_division_is_by_chance_and_noted(make, root, tmp_path):
    folder = tmp_path / "bare"
    for name in ("general", "install"):
        (folder / name).mkdir(parents=True)
        for shard in (root / name).iterdir():
            os.link(shard, folder / name / shard.name)
    data = make(folder, test_share=0.25)
    data.prepare_steps()
    assert "not AITW's official split" in data.notes[0]
    report = report_of(data)
    assert report["roles"]["source"].startswith("by chance") and report["data"]["test"]["trajectories"] == 6
    assert make(folder, test_share=0.5).steps_stage.key != data.steps_stage.key


def test_data_without_test_episodes_can_still_be_trained_on(make, root, tmp_path):
    lists = {"train": [f"{name}-{n}" for name in ("general", "install") for n in range(EPISODES)], "test": ["gone"]}
    (tmp_path / "all.json").write_text(json.dumps(lists))
    data = make(root, splits=str(tmp_path / "all.json"))
    data.prepare_memory("preference")
    with pytest.raises(DataError, match="part 'test' must have steps"):
        data.part("test")


def test_split_files_of_other_data_are_told(make, root, tmp_path):
    (tmp_path / "other.json").write_text('{"train": ["x"], "test": ["y"]}')
    with pytest.raises(DataError, match="must give preference queries.*'count': 24.*in no split file"):
        make(root, splits=str(tmp_path / "other.json")).prepare_steps()


def test_a_damaged_record_is_counted_and_the_rest_drawn(make, write_tfrecord, encode_example, aitw_features, tmp_path):
    def record(episode, **changes):
        return encode_example(aitw_features(episode_id=[episode.encode()], step_id=[0], **changes))

    records = [record("bad", goal_info=None), *(record(f"e{n}") for n in range(6))]
    write_tfrecord(tmp_path / "data" / "general-00000-of-00001", records)
    data = make(tmp_path / "data")
    data.prepare_steps()
    assert [fault.id for fault in data.data_report().faults] == ["aitw/bad/0"]


def write_ids(folder, name, ids, write_tfrecord, encode_example, aitw_features):
    """A shard of one-step episodes of these ids."""
    records = [encode_example(aitw_features(episode_id=[i.encode()], episode_length=[1])) for i in ids]
    write_tfrecord(folder / name / f"{name}-00000-of-00001", records)


def test_segments_of_one_recording_are_kept_apart_or_counted(
    make, write_tfrecord, encode_example, aitw_features, tmp_path
):
    ids = [f"{recording}.{part}-{part + 9}.Go to “cart”/{part} " for recording in range(6) for part in range(4)]
    write_ids(tmp_path / "data", "single", ids, write_tfrecord, encode_example, aitw_features)
    lists = {"train": [i for n, i in enumerate(ids) if n % 4], "test": ids[::12]}  # of recordings 0 and 3
    (tmp_path / "data" / "splits").mkdir()
    (tmp_path / "data" / "splits" / "standard.json").write_text(json.dumps(lists))
    sizes = {part: PartSize(100, 100) for part in SMALL}
    apart, loose = make(tmp_path / "data", **sizes), make(tmp_path / "data", **sizes, apart="trajectory")
    for data in (apart, loose):
        data.prepare_steps()
    assert report_of(apart)["recordings_in_two_parts"] == {"count": 0, "first": []}
    assert report_of(apart)["recording_is_tested"]["count"] == 6 and report_of(apart)["not_listed"]["count"] == 4
    assert len(apart.part("preference")) + len(apart.part("bank")) == 12
    found = [{i.partition(".")[0] for i in trajectories(loose, part)} for part in SMALL]
    shared = (found[0] & found[1]) | (found[0] & found[2]) | (found[1] & found[2])
    assert report_of(loose)["recordings_in_two_parts"]["count"] == len(shared) > 2
    assert trajectories(loose, "test") == {ids[0], ids[12]}  # quotes, slashes and the blank at the end as they are


@pytest.mark.real_data
def test_an_id_that_the_real_files_list_twice_is_tested_and_never_trained_on(
    make, real_data, write_tfrecord, encode_example, aitw_features, tmp_path
):
    folder = real_data / "aitw" / "splits"
    lists = json.loads((folder / "install_texts_splits.json").read_text())
    (twice,) = set(lists["train"]) & set(lists["test"])
    ids = [*lists["train"][:20], *lists["test"][:20], *lists["val"][:5], twice, "1"]
    write_ids(tmp_path, "install", ids, write_tfrecord, encode_example, aitw_features)
    data = make(tmp_path, splits=str(folder), **{part: PartSize(100, 100) for part in SMALL})
    data.prepare_steps()
    trained = trajectories(data, "preference") | trajectories(data, "bank")
    assert trained == set(lists["train"][:20]) - {twice}
    assert trajectories(data, "test") == {*lists["test"][:20], twice}
    report = report_of(data)
    listed = {"id": f"aitw/{twice}", "listed_for": ["train", "test"], "used_for": "test"}
    assert report["roles"]["conflicts"] == [listed] and report["not_listed"] == {"count": 1, "first": ["aitw/1"]}


@pytest.mark.parametrize(
    "arguments, reason",
    [
        ({"categories": ["generic"]}, "`categories` must be some of general, .* got .'generic'."),
        ({"categories": []}, "`categories` must be some of"),
        ({"categories": ["single"]}, "none of single in "),
        ({"test_share": 1.0}, "`test_share` must be in .0, 1., got 1.0"),
        ({"workers": 0}, "`workers` must be at least 1, got 0"),
        ({"splits": "nowhere"}, "split files are missing: Nothing at .*nowhere"),
    ],
)
def test_a_wrong_argument_is_refused_at_once(make, root, arguments, reason):
    with pytest.raises(DataError, match=reason):
        make(root, **arguments)


@pytest.mark.parametrize("root", ["{tmp}/nowhere", "memory://nowhere-{pid}"])
def test_a_missing_root_is_told_with_the_layout(make, root, tmp_path):
    place = root.format(tmp=tmp_path, pid=os.getpid())
    with pytest.raises(DataError, match="AITW's shards are missing") as error:
        make(place)
    told = str(error.value)
    assert place in told and GUIDE in told
    words = "general/general-00000-of-00321 splits/standard.json gs://gresearch/android-in-the-wild pocket.yaml"
    for word in (*words.split(), "github.com/google-research/google-research", "--data.init_args.root DIR"):
        assert word in told


def test_a_folder_without_a_shard_is_told(make, tmp_path):
    (tmp_path / "README.md").write_text("no shard")
    with pytest.raises(DataError, match=f"No file of the wanted kind in {tmp_path}.*(?s:.*)pocket.yaml"):
        make(tmp_path)


def test_a_remote_root_is_read_like_a_local_one(make, root):
    from fsspec.implementations.memory import MemoryFileSystem

    system, place = MemoryFileSystem(), f"/aitw-{os.getpid()}"
    try:
        for path in root.rglob("*"):
            if path.is_file():
                system.pipe(f"{place}/{path.relative_to(root).as_posix()}", path.read_bytes())
        far, near = make(f"memory:/{place}", "far"), make(root, "near")
        far.prepare_steps()
        near.prepare_steps()
        assert report_of(far) == report_of(near)
    finally:
        system.rm(place, recursive=True)


def test_without_data_every_command_stops_before_a_model(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["train.py"])
    monkeypatch.setattr(ActorSpec, "load", lambda *_: pytest.fail("an actor was loaded"))
    monkeypatch.setattr(ActorSpec, "fingerprint", lambda *_: pytest.fail("an actor was looked for"))
    for command in ("prepare", "harvest", "fit", "test"):
        assert main([command, "--config=aitw.yaml"]) == 1
        said = capsys.readouterr().err
        assert f"error: AITW's shards are missing: Nothing at {tmp_path / 'data' / 'aitw'}." in said and GUIDE in said
    assert not list(tmp_path.iterdir())


def test_without_data_no_model_code_is_imported(tmp_path, project):
    code = (
        "import sys, time; from switchmem.cli import main; start = time.process_time()\n"
        "status = main(['fit', '--config', 'aitw.yaml']); seconds = time.process_time() - start\n"
        "heavy = 'transformers.modeling_utils', 'sentence_transformers'\n"
        "print(status, [name for name in heavy if name in sys.modules], seconds < 3)"
    )
    environment = {**os.environ, "PYTHONPATH": str(project), "OMP_NUM_THREADS": "1"}
    run = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120
    )
    assert run.stdout.splitlines()[-1] == "1 [] True", run.stdout + run.stderr
    assert "gs://gresearch/android-in-the-wild" in run.stderr


def test_the_config_runs_end_to_end(root, tmp_path, monkeypatch, capsys):
    answers = recorded_actions(read_tfrecords([root], DataReport()))
    desk = Desk(tmp_path, monkeypatch, answers)
    flags = [
        "--config=aitw.yaml",
        f"--data.init_args.root={root}",
        *TINY,
        "--data.init_args.workers=1",
        "--data.init_args.num_workers=0",
        "--actor=pocket.yaml",
        "--memory=hashing.yaml",
        "--study.bootstrap=100",
        "--study.targets=[dcoe]",
        "--study.seeds=[0]",
        "--trainer.max_epochs=1",
        "--trainer.accelerator=cpu",
    ]
    assert desk("prepare", small=flags) == 0 and not desk.loads
    assert desk("fit", small=flags) == 0 and desk("test", small=flags) == 0
    results = json.loads((tmp_path / "runs" / "aitw" / "results.json").read_text())
    assert results["benchmark"] == "aitw" and (results["n_steps"], results["n_trajectories"]) == (8, 4)
    assert "AITW: preference 8 of 8 steps" in capsys.readouterr().out


def test_the_config_is_the_papers_recipe(capsys):
    import yaml

    with pytest.raises(SystemExit):
        main(["fit", "--config=aitw.yaml", "--print_config"])
    config = yaml.safe_load(capsys.readouterr().out)
    sizes = [config["data"]["init_args"][part] for part in ("preference", "bank", "test")]
    assert sizes == [
        {"steps": 10_019, "trajectories": 3_100},
        {"steps": 9_981, "trajectories": 3_087},
        {"steps": 5_000, "trajectories": 759},
    ]
    assert config["sampling"] == {"temperature": 0.7, "seeds": list(range(42, 49)), "max_new_tokens": 128}
    assert (config["actor"]["model"], config["memory"]["name"]) == ("Qwen/Qwen3.5-9B", "Qwen/Qwen3-VL-Embedding-2B")
    assert config["model"]["init_args"]["lr"] == 1e-3
