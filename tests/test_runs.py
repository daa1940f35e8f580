"""Run folders: nothing of an earlier run is lost or mistaken for this one's."""

import json

from switchmem.runs import RunFolder, provenance


def test_the_same_config_goes_on_in_the_same_folder(tmp_path):
    run = RunFolder(tmp_path / "r")
    assert run.start("fit", "a: 1\n") is None
    (run.path / "metrics").touch()
    assert run.start("fit", "a: 1\n") is None and (run.path / "metrics").exists()


def test_another_config_sets_the_earlier_run_aside(tmp_path):
    run = RunFolder(tmp_path / "r")
    for n in range(4):
        moved = run.start("fit", f"a: {n}\n")
        (run.path / f"file{n}").touch()
        assert moved == (run.path / "previous" / str(n) if n else None)
    assert sorted(p.name for p in run.path.iterdir()) == ["config.yaml", "file3", "previous"]
    for n in range(3):
        earlier = run.path / "previous" / str(n + 1)
        assert (earlier / "config.yaml").read_text() == f"a: {n}\n" and (earlier / f"file{n}").exists()


def test_other_commands_keep_their_config_beside_that_of_fit(tmp_path):
    run = RunFolder(tmp_path / "r")
    run.start("fit", "a: 1\n")
    assert run.start("test", "a: 2\n") is None
    assert (run.path / "config.yaml").read_text() == "a: 1\n" and (
        run.path / "config.test.yaml"
    ).read_text() == "a: 2\n"


def test_a_checkpoint_is_followed_when_its_run_is_set_aside(tmp_path):
    run = RunFolder(tmp_path / "r")
    run.start("fit", "a: 1\n")
    run.checkpoints.mkdir()
    path = run.checkpoints / "last.ckpt"
    path.touch()
    aside = run.start("fit", "a: 2\n")
    assert run.moved(str(path), aside) == str(aside / "checkpoints" / "last.ckpt")
    assert run.find(path) == aside / "checkpoints" / "last.ckpt" and run.find(tmp_path / "x") == tmp_path / "x"
    assert run.moved("/elsewhere/x.ckpt", aside) == "/elsewhere/x.ckpt"


def test_provenance_names_code_versions_and_facts(tmp_path):
    run = RunFolder(tmp_path / "r")
    run.start("fit", "")
    written = run.write_provenance("fit", {"actor": {"revision": "abc"}})
    assert json.loads((run.path / "provenance.json").read_text()) == written
    assert written["actor"] == {"revision": "abc"}
    assert written["packages"]["torch"] and written["python"]
    assert (written["git"] is None) == (written["dirty"] is None)


def test_provenance_outside_a_checkout_says_so(monkeypatch):
    monkeypatch.setenv("PATH", "")
    assert provenance()["git"] is None and provenance()["dirty"] is None
