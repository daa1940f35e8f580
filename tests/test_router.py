"""The router against a plain loop over the formulas, and its saved form."""

import json
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from switchmem.router import PairwiseRouter, RouterError, router_inputs


def inputs(batch=5, state=12, embed=7, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(batch, n, generator=generator) for n in (state, embed, embed)]


def plain(router, state, text, image):
    """r of one step by lists of Python floats: r = f(v^I) - f(v^T)."""
    weights = {name: tensor.double().tolist() for name, tensor in router.state_dict().items()}

    def linear(name, x):
        rows, bias = weights[f"{name}.weight"], weights[f"{name}.bias"]
        return [sum(w * v for w, v in zip(row, x, strict=True)) + b for row, b in zip(rows, bias, strict=True)]

    def unit(x):
        length = math.sqrt(sum(v * v for v in x))
        return [v / length for v in x]

    def score(s, e):
        pairs = list(zip(s, e, strict=True))
        v = s + e + [a * b for a, b in pairs] + [abs(a - b) for a, b in pairs]
        hidden = [h * 0.5 * (1 + math.erf(h / math.sqrt(2))) for h in linear("scorer.0", v)]
        return linear("scorer.3", hidden)[0]

    s = unit(linear("state_map", state.tolist()))
    t, i = (unit(linear("candidate_map", e.tolist())) for e in (text, image))
    return score(s, i) - score(s, t)


def test_it_computes_the_formulas():
    torch.manual_seed(0)
    router = PairwiseRouter(12, 7, width=6, hidden=9).eval()
    state, text, image = inputs()
    expected = [plain(router, *step) for step in zip(state, text, image, strict=True)]
    torch.testing.assert_close(router(state, text, image), torch.tensor(expected), atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("features", [["e"], ["s*e"], ["|s-e|", "s"], ["s", "e", "|s-e|"]])
def test_fewer_features_are_the_same_router_with_zeros_for_the_others(features):
    torch.manual_seed(0)
    small, whole = (PairwiseRouter(12, 7, width=6, hidden=9, features=f).eval() for f in (features, None))
    weights = {name: value.clone() for name, value in small.state_dict().items()}
    wide = torch.zeros(9, 24)
    for n, name in enumerate(features):
        place = ["s", "e", "s*e", "|s-e|"].index(name)
        wide[:, 6 * place : 6 * place + 6] = weights["scorer.0.weight"][:, 6 * n : 6 * n + 6]
    whole.load_state_dict({**weights, "scorer.0.weight": wide})
    torch.testing.assert_close(small(*inputs()), whole(*inputs()))
    assert bool(small(*inputs()).any())


@pytest.mark.parametrize("features", [[], ["s"], ["e", "e"], ["e", "s-e"]])
def test_features_that_say_nothing_or_are_unknown_are_refused(features):
    with pytest.raises(RouterError, match="`features` must be some of s, e"):
        PairwiseRouter(12, 7, features=features)


def test_a_router_saved_before_features_were_a_choice_has_all(tmp_path):
    router = PairwiseRouter(12, 7, width=6, hidden=9)
    router.save_pretrained(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    assert config.pop("features") == ["s", "e", "s*e", "|s-e|"]
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert torch.equal(PairwiseRouter.from_pretrained(tmp_path)(*inputs()), router.eval()(*inputs()))


def test_default_sizes_are_the_papers():
    router = PairwiseRouter(4096, 2048)
    assert router.state_map.weight.shape == (256, 4096)
    assert router.candidate_map.weight.shape == (256, 2048)
    assert [tuple(p.shape) for p in router.scorer.parameters()] == [(256, 1024), (256,), (1, 256), (1,)]
    assert isinstance(router.scorer[1], torch.nn.GELU)
    assert router.scorer[2].p == 0.1


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 6), st.integers(1, 9), st.integers(1, 9), st.integers(0, 99))
def test_exchanging_the_candidates_changes_the_sign(batch, state, embed, seed):
    torch.manual_seed(seed)
    router = PairwiseRouter(state, embed, width=5, hidden=4).eval()
    s, text, image = inputs(batch, state, embed, seed)
    torch.testing.assert_close(router(s, text, image), -router(s, image, text))
    assert torch.equal(router(s, text, text), torch.zeros(batch))


def test_every_weight_learns():
    router = PairwiseRouter(12, 7, width=6, hidden=9).eval()
    router(*inputs()).square().sum().backward()
    for name, parameter in router.named_parameters():
        # the last bias cancels in the difference
        assert parameter.grad is not None
        assert bool(parameter.grad.any()) is (name != "scorer.3.bias"), name


def test_zero_inputs_stay_finite():
    router = PairwiseRouter(12, 7, width=6, hidden=9).eval()
    for parameter in (router.state_map.bias, router.candidate_map.bias):
        torch.nn.init.zeros_(parameter)
    state, text, image = (torch.zeros_like(x).requires_grad_() for x in inputs())
    r = router(state, text, image)
    r.sum().backward()
    assert r.isfinite().all() and state.grad.isfinite().all()


@pytest.mark.parametrize(
    ("place", "shape", "message"),
    [
        (0, (5, 11), r"`state` must be \[5, 12\], got \[5, 11\]"),
        (1, (5, 8), r"`text` must be \[5, 7\], got \[5, 8\]"),
        (2, (4, 7), r"`image` must be \[5, 7\], got \[4, 7\]"),
        (2, (1, 7), r"`image` must be \[5, 7\]"),  # never broadcast
    ],
)
def test_shapes_are_checked(place, shape, message):
    given = inputs()
    given[place] = torch.zeros(shape)
    with pytest.raises(RouterError, match=message):
        PairwiseRouter(12, 7)(*given)


@pytest.mark.parametrize("change", [{"width": 0}, {"state_dim": 0}, {"dropout": 1.0}, {"dropout": -0.1}])
def test_sizes_are_checked(change):
    with pytest.raises(RouterError, match="widths must be >= 1 and `dropout` in"):
        PairwiseRouter(**{"state_dim": 12, "embed_dim": 7, **change})


def test_inputs_of_each_kind():
    batch = {k: torch.full((2, n), float(i)) for i, (k, n) in enumerate(
        {"state": 4, "text": 3, "image": 3, "instruction": 3, "screenshot": 3}.items())}  # fmt: skip
    for target in ("dcoe", "utility", "binary"):
        assert router_inputs(batch, target)[0] is batch["state"]
    state, text, image = router_inputs({k: v for k, v in batch.items() if k != "state"}, "basic")
    assert state.tolist() == [[3.0] * 3 + [4.0] * 3] * 2
    assert text is batch["text"] and image is batch["image"]


def test_saved_and_loaded_it_scores_the_same(tmp_path):
    router = PairwiseRouter(12, 7, width=6, hidden=9, dropout=0.3, features=["e", "s*e"]).train()
    router.save_pretrained(tmp_path / "router")
    loaded = PairwiseRouter.from_pretrained(tmp_path / "router")
    assert not loaded.training and loaded.config == router.config
    assert torch.equal(loaded(*inputs()), router.eval()(*inputs()))
    assert sorted(p.name for p in (tmp_path / "router").iterdir()) == ["config.json", "model.safetensors"]


@pytest.mark.parametrize("damage", ["no config", "no weights", "cut", "format", "other sizes", "unknown key"])
def test_a_damaged_folder_is_refused(tmp_path, damage):
    PairwiseRouter(12, 7, width=6, hidden=9).save_pretrained(tmp_path)
    weights, config = tmp_path / "model.safetensors", tmp_path / "config.json"
    values = json.loads(config.read_text())
    changes = {"format": {"format": "x"}, "other sizes": {"width": 7}, "unknown key": {"depth": 2}}
    if damage == "no config":
        config.unlink()
    elif damage == "no weights":
        weights.unlink()
    elif damage == "cut":
        weights.write_bytes(weights.read_bytes()[:-5])
    else:
        config.write_text(json.dumps(values | changes[damage]))
    with pytest.raises(RouterError, match="must hold the config.json and model.safetensors of a router"):
        PairwiseRouter.from_pretrained(tmp_path)
