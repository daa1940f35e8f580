"""Bank: what is embedded, save and load, at a size where plain lists would be slow."""

import json
import time

import numpy as np
import pytest
import torch
from PIL import Image

from switchmem.memory.bank import Bank, BankError, action_text, image_candidates, map_rows, text_candidates, write_rows
from switchmem.memory.embedder import HashingEmbedder
from switchmem.memory.views import query_text
from switchmem.steps import Action, ActionType, Screenshot, Step, UIElement

EMBEDDER = HashingEmbedder(dim=64)
SHOT = Screenshot.from_image(Image.new("RGB", (18, 32), (200, 200, 255)))


def step(episode, index=0, instruction="Open the menu", label="Menu", category=""):
    element = UIElement((0.1, 0.1, 0.5, 0.2), text=label)
    action = Action(ActionType.TAP, (0.3, 0.15), description=f"Tap {label}")
    return Step("pocket", episode, index, instruction, SHOT, (element,), action, category=category)


STEPS = {s.step_id: s for s in (step("a"), step("a", 1), step("b", label="Search", category="web"))}


def test_keys_are_embeddings_of_the_query_text_in_order_whatever_the_batch():
    for batch_size in (1, 2, 64):
        bank = Bank.build(STEPS.values(), EMBEDDER, batch_size)
        assert bank.ids == tuple(STEPS) and len(bank) == 3
        assert bank.trajectories == ("pocket/a", "pocket/a", "pocket/b")
        assert bank.categories == ("", "", "web")
        assert torch.equal(bank.keys, EMBEDDER.texts([query_text(s) for s in STEPS.values()]))


def test_bank_of_nothing():
    bank = Bank.build([], EMBEDDER)
    assert len(bank) == 0 and bank.keys.shape == (0, 64)


def test_save_and_load(tmp_path):
    bank = Bank.build(STEPS.values(), EMBEDDER)
    odd = Bank(("a/\ud800/0", "b", 'ç"'), bank.trajectories, bank.categories, bank.keys)
    for saved in (bank, odd):  # the second replaces the first
        saved.save(tmp_path / "bank")
        again = Bank.load(tmp_path / "bank")
        assert (again.ids, again.trajectories, again.categories) == (saved.ids, saved.trajectories, saved.categories)
        assert torch.equal(again.keys, bank.keys)
        assert [p.name for p in tmp_path.iterdir()] == ["bank"]


def test_a_loaded_bank_is_mapped_and_any_numpy_can_read_it(tmp_path):
    keys = torch.nn.functional.normalize(torch.randn(9000, 8), dim=1)
    names = tuple(f"s{i}" for i in range(9000))
    Bank(names, names, ("",) * 9000, keys).save(tmp_path / "bank")
    array = np.load(tmp_path / "bank" / "keys.npy")
    assert array.dtype == np.float32 and np.array_equal(array, keys.numpy())
    rows = map_rows(tmp_path / "bank" / "keys.npy")
    rows[0] = 0.0  # of this process's copy alone
    assert np.array_equal(np.load(tmp_path / "bank" / "keys.npy"), keys.numpy())


def test_empty_rows_can_be_written_and_other_arrays_are_refused(tmp_path):
    write_rows(tmp_path / "rows.npy", torch.zeros(0, 5))
    assert np.load(tmp_path / "rows.npy").shape == (0, 5)
    np.save(tmp_path / "other.npy", np.zeros((2, 3)))
    with pytest.raises(ValueError, match="must hold rows of float32, got float64"):
        map_rows(tmp_path / "other.npy")


@pytest.mark.parametrize("name", ["keys.npy", "steps.parquet"])
@pytest.mark.parametrize("content", [None, b"", b"not a bank", b"PAR1    PAR1"])
def test_a_folder_that_is_no_bank(tmp_path, name, content):
    Bank.build(STEPS.values(), EMBEDDER).save(tmp_path / "bank")
    path = tmp_path / "bank" / name
    path.unlink() if content is None else path.write_bytes(content)
    with pytest.raises(BankError, match="must be a saved bank"):
        Bank.load(tmp_path / "bank")


def test_a_hundred_thousand_ids_are_checked_and_saved_without_delay(tmp_path):
    ids = tuple(f"aitw/{i:08d}/{i % 7}" for i in range(100_000))
    keys = torch.ones(100_000, 1)
    start = time.monotonic()
    with pytest.raises(BankError, match="50000 twice, the first 'aitw/00000000/0'"):
        Bank(ids[:50_000] * 2, ids, ("",) * 100_000, keys)
    bank = Bank(ids, tuple(i[:-2] for i in ids), ("general",) * 100_000, keys)
    bank.save(tmp_path / "bank")
    assert Bank.load(tmp_path / "bank").ids == ids
    assert time.monotonic() - start < 10  # a list count for each id would take minutes
    assert (tmp_path / "bank" / "steps.parquet").stat().st_size < len(json.dumps(ids)) / 2


def test_an_inconsistent_bank_is_refused():
    keys = torch.eye(2)
    with pytest.raises(BankError, match="one entry per demonstration"):
        Bank(("a",), ("t", "t"), ("", ""), keys)
    with pytest.raises(BankError, match="1 twice, the first 'a'"):
        Bank(("a", "a"), ("t", "t"), ("", ""), keys)


def test_action_text_of_every_kind():
    assert action_text(Action(ActionType.SWIPE, (0.5, 0.75), (0.5, 0.25))) == "swipe (0.50, 0.75) (0.50, 0.25)"
    assert action_text(Action(ActionType.TYPE, text="hello")) == 'type "hello"'
    assert action_text(Action(ActionType.BACK)) == "back"


def test_candidates_differ_by_representation_and_share_the_task():
    demo, other = STEPS["pocket/a/0"], STEPS["pocket/b/0"]
    text, image = text_candidates([demo, other], EMBEDDER), image_candidates([demo, other], EMBEDDER)
    expected = EMBEDDER.texts(["Open the menu\nMenu\ntap (0.30, 0.15): Tap Menu"])[0]
    assert torch.equal(text[0], expected)
    picture = SHOT.image()
    assert torch.equal(image[0], EMBEDDER.multimodal([("Open the menu\ntap (0.30, 0.15): Tap Menu", picture)])[0])
    assert not torch.allclose(text[0], text[1]) and not torch.allclose(text[0], image[0])
