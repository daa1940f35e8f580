"""A live bank holds what the study's stages hold, keeps it over a restart, and refuses what does not belong to it."""

import json
import shutil
from dataclasses import replace

import pytest
import torch

from switchmem.agent import LiveBank
from switchmem.benchmarks.base import DataError
from switchmem.benchmarks.store import StepStore, write_steps
from switchmem.memory import Bank, HashingEmbedder, top1
from switchmem.memory.bank import BankError, image_candidates, text_candidates
from switchmem.memory.views import query_text
from switchmem.steps import RecordError


class CountingEmbedder(HashingEmbedder):
    """Counts what it embeds."""

    def __init__(self, dim=256):
        super().__init__(dim)
        self.texts_seen = self.pictures_seen = 0

    def texts(self, texts):
        self.texts_seen += len(texts)
        return super().texts(texts)

    def multimodal(self, items):
        self.pictures_seen += len(items)
        return super().multimodal(items)


@pytest.fixture
def own_store(store, tmp_path):
    """A copy that may be damaged."""
    shutil.copytree(store.folder, tmp_path / "own")
    return StepStore(tmp_path / "own")


def same(one, other):
    assert one.bank.ids == other.bank.ids and one.damaged == other.damaged
    assert torch.equal(one.bank.keys[:], other.bank.keys[:])
    for step_id in one.bank.ids:
        for mine, its in zip(one.candidates(one.step(step_id)), other.candidates(other.step(step_id)), strict=True):
            assert torch.equal(mine, its)


@pytest.mark.parametrize("batch_size", [1, 7, 64])
def test_it_holds_the_studys_keys_and_candidates(store, embedder, batch_size):
    bank = LiveBank.build(store.folder, embedder, batch_size=batch_size)
    steps = list(store.iterate(store.step_ids))
    plain = Bank.build(steps, embedder)
    assert bank.bank.ids == plain.ids == store.step_ids and len(bank) == len(steps)
    assert torch.equal(bank.bank.keys, plain.keys) and bank.bank.categories == plain.categories
    found = [bank.candidates(step) for step in steps]
    assert torch.equal(torch.stack([text for text, _ in found]), text_candidates(steps, embedder))
    assert torch.equal(torch.stack([image for _, image in found]), image_candidates(steps, embedder))


def test_it_finds_what_the_study_finds(store, queries, bank, embedder):
    vectors = embedder.texts([query_text(step) for step in queries])
    expected = top1(vectors, bank.bank, [step.trajectory for step in queries])
    assert [bank.find(query_text(step)) for step in queries] == expected
    # a recorded step finds itself: nothing is its own trajectory live
    step = store[store.step_ids[5]]
    assert bank.find(query_text(step)).cosine == pytest.approx(1.0, abs=1e-6)


def test_a_category_narrows_the_search(store, embedder):
    steps = list(store.iterate(store.step_ids))
    categories = tuple("ab"[n % 3 == 0] for n in range(len(steps)))
    plain = Bank.build(steps, embedder)
    bank = LiveBank(store, replace(plain, categories=categories), embedder)
    for query in steps[:12]:
        cosines = (plain.keys @ embedder.texts([query_text(query)])[0]).tolist()
        for category in "ab":
            best = max(c for c, own in zip(cosines, categories, strict=True) if own == category)
            hit = bank.find(query_text(query), category)
            assert hit.cosine == pytest.approx(best, abs=1e-6)
            assert categories[store.step_ids.index(hit.step_id)] == category
    assert bank.find(query_text(steps[0]), "c") is None


def test_live_use_embeds_no_candidate_again(store, queries):
    embedder = CountingEmbedder()
    bank = LiveBank.build(store, embedder)
    embedder.texts_seen = embedder.pictures_seen = 0
    for step in queries[:5]:
        bank.candidates(bank.step(bank.find(query_text(step)).step_id))
    assert (embedder.texts_seen, embedder.pictures_seen) == (5, 0)  # the queries alone


def test_without_candidates_each_is_embedded_once(store, bank):
    embedder = CountingEmbedder()
    lazy = LiveBank.build(store, embedder, candidates=False)
    assert embedder.pictures_seen == 0
    for _ in range(2):
        same(lazy, bank)
    assert embedder.pictures_seen == len(store)


def test_saved_and_loaded_it_is_the_same(store, bank, embedder, tmp_path):
    for _ in range(2):  # an earlier bank is replaced
        bank.save(tmp_path / "saved")
    loaded = LiveBank.load(tmp_path / "saved", store.folder, embedder)
    same(loaded, bank)
    assert loaded.find("goal open mail") == bank.find("goal open mail")
    assert [path.name for path in tmp_path.iterdir()] == ["saved"]


def test_several_stores_are_one_bank(store, bank, embedder, tmp_path):
    steps = list(store.iterate(store.step_ids))
    one, other = write_steps(steps[:9], tmp_path / "one"), write_steps(steps[5:], tmp_path / "other")
    both = LiveBank.build([one, other.folder], embedder)
    same(both, bank)
    both.save(tmp_path / "saved")
    same(LiveBank.load(tmp_path / "saved", [one, other], embedder), bank)
    with pytest.raises(BankError, match="`steps` is"):
        LiveBank.load(tmp_path / "saved", one, embedder)


def damage(store, step_id):
    """Change a byte of a step's picture."""
    index = json.loads((store.folder / "index.json").read_text())
    (row,) = [row for row in index["steps"] if row["step_id"] == step_id]
    with (store.folder / row["shard"]).open("r+b") as file:
        file.seek(row["image_offset"] + 50)
        byte = file.read(1)
        file.seek(row["image_offset"] + 50)
        file.write(bytes([byte[0] ^ 255]))


def test_damaged_steps_are_left_out_and_named(own_store, bank, embedder, tmp_path):
    broken = own_store.step_ids[4]
    damage(own_store, broken)
    found = LiveBank.build(own_store, embedder)
    assert found.bank.ids == tuple(i for i in bank.bank.ids if i != broken)
    assert list(found.damaged) == [broken] and "have changed" in found.damaged[broken]
    found.save(tmp_path / "saved")
    same(LiveBank.load(tmp_path / "saved", own_store, embedder), found)


def test_a_step_damaged_later_is_not_shown(own_store, embedder):
    bank = LiveBank.build(own_store, embedder)
    damage(own_store, own_store.step_ids[4])
    with pytest.raises(RecordError, match="have changed"):
        bank.step(own_store.step_ids[4])


def test_a_bank_needs_a_step(own_store, embedder, tmp_path):
    for path in own_store.folder.glob("*.tar"):
        path.unlink()
    with pytest.raises(BankError, match=f"got {len(own_store)} that are damaged, the first: .*cannot be read"):
        LiveBank.build(own_store, embedder)
    with pytest.raises(DataError, match="No step store"):
        LiveBank.build(tmp_path / "nowhere", embedder)


def test_other_steps_and_embedders_are_refused(store, bank, own_store, embedder, tmp_path):
    bank.save(tmp_path / "saved")
    other = HashingEmbedder(dim=64)
    with pytest.raises(BankError, match=f"`embedder` is '{other.name}', saved with '{embedder.name}'"):
        LiveBank.load(tmp_path / "saved", store, other)
    fewer = write_steps(own_store.iterate(own_store.step_ids[:-1]), tmp_path / "fewer")
    with pytest.raises(BankError, match="`steps` is .*, saved with"):
        LiveBank.load(tmp_path / "saved", fewer, embedder)
    with pytest.raises(BankError, match=r"must be \[\d+, 64\] for 'hashing"):
        LiveBank(store, bank.bank, other)


@pytest.mark.parametrize("file", ["live_bank.json", "text.npy", "image.npy", "bank/keys.npy", "bank/steps.parquet"])
@pytest.mark.parametrize("cut", [None, 40])
def test_a_damaged_folder_is_refused(store, bank, embedder, tmp_path, file, cut):
    bank.save(tmp_path / "saved")
    path = tmp_path / "saved" / file
    content = path.read_bytes()
    path.unlink() if cut is None else path.write_bytes(content[:cut])
    with pytest.raises(BankError, match="must be a saved"):
        LiveBank.load(tmp_path / "saved", store, embedder)


def test_only_what_was_built_from_stores_is_saved(store, bank, embedder, tmp_path):
    lazy = LiveBank.build(store, embedder, candidates=False)
    for unsavable in (lazy, LiveBank(store, bank.bank, embedder)):
        with pytest.raises(BankError, match="can be saved"):
            unsavable.save(tmp_path / "saved")
    assert not (tmp_path / "saved").exists()
