"""AITW's official split files: both layouts, ids of any size, ids listed twice, and files that are none."""

import json

import pytest

from switchmem.benchmarks.aitw.split_files import choose_split_files, read_split_files, recording_of
from switchmem.benchmarks.base import DataError
from switchmem.benchmarks.sources import find_files

BIG = 18_446_744_073_709_551_557  # beyond int64, and no float


@pytest.fixture
def read(tmp_path):
    """Write files (text as it is, anything else as JSON) and read them as one division."""

    def go(**files):
        for name, content in files.items():
            text = content if isinstance(content, str) else json.dumps(content, ensure_ascii=False)
            (tmp_path / f"{name}.json").write_text(text, encoding="utf-8")
        return read_split_files(choose_split_files(find_files(tmp_path, lambda name: name.endswith(".json"))))

    return go


def test_ids_are_text_whatever_they_are_in_the_file(read):
    goal = "4852.969-1019.Set “subject” to 'a/b' "
    split = read(standard={"train": [BIG, "7"], "validation": [goal], "test": [str(BIG - 1)]})
    assert split.roles == {f"aitw/{BIG}": "train", "aitw/7": "train", f"aitw/{goal}": "val", f"aitw/{BIG - 1}": "test"}
    assert not split.conflicts and split.to_dict()["listed"] == {"train": 2, "val": 1, "test": 1}


def test_the_stricter_use_of_an_id_that_is_listed_twice_wins(read):
    split = read(
        general_texts_splits={"train": ["1", "2", "3", "3"], "val": ["2", "4"], "test": ["1", "4"]},
        install_texts_splits={"train": ["5"], "test": ["6", "3"]},  # no validation; 3 is for training in the other
    )
    assert split.roles == {
        f"aitw/{n}": role for n, role in zip("123456", "test val test test train test".split(), strict=True)
    }
    assert split.to_dict()["conflicts"] == [
        {"id": "aitw/1", "listed_for": ["train", "test"], "used_for": "test"},
        {"id": "aitw/2", "listed_for": ["train", "val"], "used_for": "val"},
        {"id": "aitw/3", "listed_for": ["train", "test"], "used_for": "test"},
        {"id": "aitw/4", "listed_for": ["val", "test"], "used_for": "test"},
    ]
    assert split.repeated == 1 and sorted(split.files) == ["general_texts_splits.json", "install_texts_splits.json"]


def test_the_standard_division_is_taken_before_others(read):
    lists = {"train": ["1"], "test": ["2"]}
    split = read(
        standard=lists, unseen_domain={"train": ["2"], "test": ["1"]}, general_texts_splits={"train": [], "test": []}
    )
    assert split.roles == {"aitw/1": "train", "aitw/2": "test"} and list(split.files) == ["standard.json"]


def test_one_file_of_any_name_is_taken(read):
    assert read(unseen_domain={"train": ["2"], "test": ["1"]}).roles == {"aitw/2": "train", "aitw/1": "test"}


def test_several_divisions_are_not_mixed(read):
    with pytest.raises(DataError, match="got unseen_domain.json, unseen_verb.json.*Name the one to use: `splits`"):
        read(unseen_domain={"train": [], "test": []}, unseen_verb={"train": [], "test": []})


@pytest.mark.parametrize(
    "content, reason",
    [
        ("{", "must be a JSON file of episode ids"),
        ("[" * 100_000, "must be a JSON file of episode ids"),
        ('{"train": ["1"], "train": ["2"], "test": []}', "a key comes twice"),
        (["1"], "must be an object of the lists train, val .* got list"),
        ({"train": ["1"]}, r"got \['train'\]"),
        ({"train": [], "test": [], "dev": []}, r"got \['dev', 'test', 'train'\]"),
        ({"train": [], "test": [], "val": [], "validation": []}, "'val', 'validation'"),
        ({"train": {"1": 2}, "test": []}, "must list the episode ids of 'train', got dict"),
        ({"train": [1.5], "test": []}, "got 1.5 in 'train'. .* has lost its last digits"),
        ('{"train": [], "test": [1e19]}', "got 1e.19 in 'test'"),
        ({"train": [True], "test": []}, "got True"),
        ({"train": [""], "test": []}, "got ''"),
        ({"train": [None], "test": []}, "got None"),
    ],
)
def test_a_file_that_is_no_split_is_refused(read, content, reason):
    with pytest.raises(DataError, match=reason):
        read(standard=content)


@pytest.mark.parametrize("content", [{"train": [["x" * 10**6]], "test": []}, {"x" * 10**6: [], "test": []}])
def test_a_message_does_not_hold_the_whole_file(read, content):
    with pytest.raises(DataError) as error:
        read(standard=content)
    assert len(str(error.value)) < 1000


def test_a_file_that_is_no_text_is_refused(tmp_path):
    (tmp_path / "standard.json").write_bytes(b"\xff\xfe{}")
    with pytest.raises(DataError, match="must be a JSON file of episode ids"):
        read_split_files(find_files(tmp_path, lambda name: True))


@pytest.mark.parametrize(
    "episode, recording",
    [
        ("14090173088333454495.765-789.proceed to checkout", "14090173088333454495"),
        ("14090173088333454495", "14090173088333454495"),
        ("12.3-4.a\nb/c.5-6.d", "12"),
        ("12.3-4", "12.3-4"),  # not of the known form: a recording of its own
        ("a.3-4.b", "a.3-4.b"),
    ],
)
def test_the_recording_of_a_segment(episode, recording):
    assert recording_of(f"aitw/{episode}") == f"aitw/{recording}"


@pytest.mark.real_data
def test_the_real_files_list_one_id_for_training_and_test(real_data):
    """Counted here with sets, without the reader."""
    folder = real_data / "aitw" / "splits"
    lists = {path.name: json.loads(path.read_text()) for path in folder.glob("*_texts_splits.json")}
    split = read_split_files(choose_split_files(find_files(folder, lambda name: name.endswith(".json"))))
    tested = {i for found in lists.values() for i in found["test"]}
    trained = {i for found in lists.values() for i in found["train"]}
    assert len(trained & tested) == 1
    assert {name.removeprefix("aitw/") for name, role in split.roles.items() if role == "train"} == trained - tested
    assert {name.removeprefix("aitw/") for name, role in split.roles.items() if role == "test"} == tested
    (twice,) = trained & tested
    assert split.conflicts == {f"aitw/{twice}": (("train", "test"), "test")}
    assert any(int(i) >= 2**63 for i in trained)
