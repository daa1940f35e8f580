"""Policies leave and come back: through folders, and through a hub that the real client talks to."""

import math
import re

import pytest
import torch
import yaml
from fake_hub import running_hub

from switchmem.actors.spec import ActorSpec
from switchmem.agent import SwitchMemAgent
from switchmem.evaluation import read_results
from switchmem.policy import Policy, PolicyCard, PolicyError
from switchmem.router import PairwiseRouter

UNPICKLED = re.compile(r"\.(bin|pt|pth|pkl|pickle|ckpt|joblib)$")


@pytest.fixture
def hub(monkeypatch, tmp_path):
    with running_hub(monkeypatch, tmp_path / "cache") as hub:
        yield hub


def policy(threshold=0.25, **changes):
    torch.manual_seed(1)
    values = {"actor": "a1", "layer": 31, "template": "t1", "embedder": "hashing-7", "n_pref": 1234}
    card = PolicyCard(**{**values, "actor_name": "Qwen/Qwen3.5-9B@main", "template_name": "default", **changes})
    return Policy(PairwiseRouter(12, 7, width=6, hidden=9), threshold, card)


def same(one, other):
    generator = torch.Generator().manual_seed(3)
    sizes = {"state": 12, "text": 7, "image": 7}
    batch = {k: torch.randn(9, d, generator=generator) for k, d in sizes.items()}
    assert one.card == other.card and one.threshold == other.threshold
    assert torch.equal(one.route(batch)[1], other.route(batch)[1])


def front(text):
    """The metadata of a model card."""
    _, head, _ = text.split("---\n", 2)
    return yaml.safe_load(head)


def test_pushed_and_loaded_it_is_the_same(hub):
    made = policy(-math.inf, layer=(7, 31))
    url = made.push_to_hub("me/policy", private=True)
    oid, files = hub.commits["me/policy", "main"]
    assert url.endswith(oid) and set(files) == {"model.safetensors", "config.json", "policy.json", "README.md"}
    loaded = Policy.from_pretrained("me/policy")
    assert loaded.card == PolicyCard(**{**vars(made.card), "image_rate": loaded.card.image_rate})
    assert loaded.threshold == -math.inf and math.isnan(loaded.card.image_rate)
    again = Policy.from_pretrained("me/policy", local_files_only=True)
    assert torch.equal(again.router.state_map.weight, made.router.state_map.weight)


def test_a_revision_is_the_one_asked_for(hub):
    first, second = policy(0.25, image_rate=0.5), policy(0.75, image_rate=0.5)
    first.push_to_hub("me/policy")
    oid = hub.commits["me/policy", "main"][0]
    second.push_to_hub("me/policy", revision="v2")
    same(Policy.from_pretrained("me/policy"), first)
    same(Policy.from_pretrained("me/policy", revision="v2"), second)
    second.push_to_hub("me/policy")
    same(Policy.from_pretrained("me/policy", revision=oid), first)
    same(Policy.from_pretrained("me/policy"), second)


def test_nothing_else_of_a_repository_is_fetched(hub):
    policy().push_to_hub("me/policy")
    hub.commits["me/policy", "main"][1].update({"pytorch_model.bin": b"\x80\x04.", "code.py": b"raise SystemExit"})
    hub.asked.clear()
    Policy.from_pretrained("me/policy")
    fetched = {path.rpartition("/")[2] for method, path in hub.asked if "/resolve/" in path}
    assert fetched == {"model.safetensors", "config.json", "policy.json"}


@pytest.mark.parametrize(
    ("name", "revision", "message"),
    [
        ("me/nothing", None, "got 'me/nothing': .*Not Found.* log in"),
        ("me/policy", "v9", "got 'me/policy' at revision 'v9'"),
        ("me/secret", None, "HF_TOKEN"),
        ("me/empty", None, "must hold a whole policy"),
        ("a/folder/here", None, "must hold a whole policy"),
        ("bad..name/policy", None, "bad..name/policy"),
    ],
)
def test_what_is_not_there_is_told(hub, name, revision, message):
    policy().push_to_hub("me/policy")
    hub.commits["me/secret", "main"], hub.private = hub.commits["me/policy", "main"], {"me/secret"}
    for revision_of_empty in ("main", "1" * 40):
        hub.commits["me/empty", revision_of_empty] = ("1" * 40, {"README.md": b"nothing"})
    with pytest.raises(PolicyError, match=message):
        Policy.from_pretrained(name, revision=revision)


def test_a_folder_comes_before_the_hub_and_has_no_revision(hub, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    made = policy(image_rate=0.5)
    made.save_pretrained("me/policy")
    same(Policy.from_pretrained("me/policy"), made)
    assert not hub.asked
    with pytest.raises(PolicyError, match="`revision` must be left out for a folder, got 'v2' for me/policy"):
        Policy.from_pretrained("me/policy", revision="v2")


@pytest.mark.parametrize("name", ["policy", "me/a/b", "../policy"])
def test_an_upload_needs_an_owner_and_a_name(hub, name):
    with pytest.raises(PolicyError, match="`repo_id` must be owner/name"):
        policy().push_to_hub(name)
    assert not hub.asked


def test_a_card_without_results_says_so():
    from switchmem.policy import model_card

    text = model_card(policy().card, 0.25)
    assert "It was not tested." in text and "model-index" not in front(text)
    assert front(text)["base_model"] == "Qwen/Qwen3.5-9B" and "Qwen/Qwen3.5-9B@main (`a1`)" in text


def test_a_refusal_names_both():
    given = {"actor": "b2", "layer": 31, "template": "t2", "embedder": "hashing-7"}
    told = (
        r"`actor` is 'other' \(b2\), trained with 'Qwen/Qwen3.5-9B@main' \(a1\); "
        r"`template` is 't2', trained with 'default' \(t1\)"
    )
    with pytest.raises(PolicyError, match=told):
        policy().check(**given, actor_name="other")


def test_names_hold_no_path_of_this_machine(tmp_path):
    (tmp_path / "mine").mkdir()
    assert ActorSpec(model=str(tmp_path / "mine")).name == "mine"
    spec = ActorSpec(model="Qwen/Qwen3.5-9B", revision="abc", adapter="me/lora")
    assert spec.name == "Qwen/Qwen3.5-9B@abc + me/lora"


# --- a run's policy ---


def test_a_runs_policy_is_pushed_with_its_numbers(hub, desk, capsys):
    assert desk("push", "--repo_id=me/pocket") == 0
    assert f"{hub.url}/me/pocket/commit/" in capsys.readouterr().out
    own, results = Policy.load(desk.run / "policy"), read_results(desk.run / "results.json")
    loaded = Policy.from_pretrained("me/pocket")
    assert loaded.card == own.card and loaded.threshold == own.threshold
    text = hub.commits["me/pocket", "main"][1]["README.md"].decode()
    (index,) = front(text)["model-index"]
    metrics = {metric["type"]: metric["value"] for metric in index["results"][0]["metrics"]}
    (row,) = [row for row in results["per_seed"] if (row["target"], row["seed"]) == ("dcoe", own.card.seed)]
    assert metrics["score"] == pytest.approx(row["score"], abs=1e-4)
    assert metrics["oracle_score"] == pytest.approx(results["policies"]["oracle"]["score"], abs=1e-4)
    assert index["results"][0]["dataset"]["type"] == results["benchmark"] == "pocket"
    assert all(f"| {name}" in text for name in results["policies"])
    assert all(note in text for note in results["notes"]) and "synthetic" in text
    assert str(desk.folder) not in text + hub.commits["me/pocket", "main"][1]["policy.json"].decode()


def test_a_run_shows_what_it_would_upload(hub, desk):
    assert desk("push", "--folder=out", "--policy=binary-1") == 0
    assert not hub.asked
    files = {path.name for path in (desk.folder / "out").iterdir()}
    assert files == {"model.safetensors", "config.json", "policy.json", "README.md"}
    assert not any(UNPICKLED.search(name) for name in files)
    assert Policy.from_pretrained(desk.folder / "out").card.target == "binary"


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ([], "either `--repo_id owner/name` or `--folder PATH`"),
        (
            ["--folder=out", "--policy=dcoe-9"],
            "`--policy` must be one of binary-0, binary-1, dcoe-0, dcoe-1, got 'dcoe-9'",
        ),
        (["--folder=out", "--run.name=elsewhere"], "`push` must find"),
    ],
)
def test_a_wrong_push_is_told(hub, desk, capsys, flags, message):
    assert desk("push", *flags) == 1
    assert message in capsys.readouterr().err and not hub.asked


def test_results_of_another_policy_are_refused(desk, tmp_path):
    own, results = Policy.load(desk.run / "policy"), read_results(desk.run / "results.json")
    other = Policy(own.router, own.threshold + 1.0, own.card)
    with pytest.raises(PolicyError, match="`results` must be of this policy, dcoe-0 at threshold"):
        other.save_pretrained(tmp_path / "out", results)
    assert not (tmp_path / "out").exists()


def test_an_agent_takes_a_policy_of_the_hub(hub, desk):
    Policy.load(desk.run / "policy").push_to_hub("me/pocket")
    with pytest.raises(PolicyError, match=r"`actor` is '\w+' \(\w+\), trained with 'fake' \(\w+\)"):
        SwitchMemAgent.from_pretrained("me/pocket", ActorSpec(device="cpu"), FakeBank())
    with pytest.raises(PolicyError, match="at revision 'v9'"):
        SwitchMemAgent.from_pretrained("me/pocket", ActorSpec(device="cpu"), FakeBank(), revision="v9")


class FakeBank:
    """As much of a bank as is looked at before anything is loaded."""

    class embedder:
        name = "none"
