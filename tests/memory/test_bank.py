"""Bank: what is embedded, damaged records, save and load."""

import pytest
import torch
from PIL import Image

from switchmem.memory.bank import Bank, BankError, action_text, embed_queries, image_candidates, text_candidates
from switchmem.memory.embedder import HashingEmbedder
from switchmem.memory.views import query_text
from switchmem.steps import Action, ActionType, RecordError, Screenshot, Step, UIElement

EMBEDDER = HashingEmbedder(dim=64)
SHOT = Screenshot.from_image(Image.new("RGB", (18, 32), (200, 200, 255)))


def step(episode, index=0, instruction="Open the menu", label="Menu", category=""):
    element = UIElement((0.1, 0.1, 0.5, 0.2), text=label)
    action = Action(ActionType.TAP, (0.3, 0.15), description=f"Tap {label}")
    return Step("pocket", episode, index, instruction, SHOT, (element,), action, category=category)


STEPS = {s.step_id: s for s in (step("a"), step("a", 1), step("b", label="Search", category="web"))}


class Source(dict):
    def __getitem__(self, step_id):
        if step_id.endswith("broken"):
            raise RecordError(f"step {step_id!r}: its bytes have changed.")
        return super().__getitem__(step_id)


def test_keys_are_embeddings_of_the_query_text_in_order_whatever_the_batch():
    for batch_size in (1, 2, 64):
        bank = Bank.build(STEPS, STEPS, EMBEDDER, batch_size)
        assert bank.ids == tuple(STEPS) and len(bank) == 3
        assert bank.trajectories == ("pocket/a", "pocket/a", "pocket/b")
        assert bank.categories == ("", "", "web")
        assert torch.equal(bank.keys, EMBEDDER.texts([query_text(s) for s in STEPS.values()]))


def test_a_damaged_record_is_reported_by_id_and_the_rest_goes_on():
    found = []
    ids = ["pocket/a/0", "pocket/broken", "pocket/b/0"]
    bank = Bank.build(Source(STEPS), ids, EMBEDDER, 2, lambda *fault: found.append(fault))
    assert bank.ids == ("pocket/a/0", "pocket/b/0")
    assert found == [("pocket/broken", "step 'pocket/broken': its bytes have changed.")]
    with pytest.raises(RecordError, match="pocket/broken"):
        list(embed_queries(Source(STEPS), ids, EMBEDDER))


def test_bank_of_nothing():
    bank = Bank.build(STEPS, [], EMBEDDER)
    assert len(bank) == 0 and bank.keys.shape == (0, 64)


def test_save_and_load(tmp_path):
    bank = Bank.build(STEPS, STEPS, EMBEDDER)
    bank.save(tmp_path / "bank.safetensors")
    again = Bank.load(tmp_path / "bank.safetensors")
    assert (again.ids, again.trajectories, again.categories) == (bank.ids, bank.trajectories, bank.categories)
    assert torch.equal(again.keys, bank.keys)
    assert [p.name for p in tmp_path.iterdir()] == ["bank.safetensors"]


@pytest.mark.parametrize("content", [None, b"", b"not a bank", b"\x08\0\0\0\0\0\0\0{}      "])
def test_a_file_that_is_no_bank(tmp_path, content):
    path = tmp_path / "bank.safetensors"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(BankError, match="must be a saved bank"):
        Bank.load(path)


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
