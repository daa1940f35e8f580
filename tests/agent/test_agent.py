"""Live, the agent does exactly what the study's batches do, whatever form its input has; and refuses what it must."""

import json
import math
import sys
import threading
import time

import pytest
import torch

from switchmem.actors.api.endpoint import Endpoint
from switchmem.actors.grammars.base import ParseReason
from switchmem.actors.module import FrozenActorModule
from switchmem.actors.spec import ActorSpec, ActorSpecError
from switchmem.agent import LiveBank, SwitchMemAgent
from switchmem.harvest.record import Vectors
from switchmem.memory import Bank, HashingEmbedder, StepWithMemory, top1
from switchmem.memory.views import Condition, query_text
from switchmem.policy import PolicyError
from switchmem.steps import RecordError


def act(agent, step, **changes):
    inputs = dict(
        goal=step.instruction, screenshot=step.screenshot, ui_elements=step.elements, activity=step.activity,
        caption=step.caption,
    )  # fmt: skip
    return agent.act(**{**inputs, **changes})


@pytest.fixture(scope="module")
def harvested(queries, store, embedder, spec, actor):
    """The study's own way: retrieval over all queries, one batch per six steps under all conditions, its embeddings."""
    keys = Bank.build(store.iterate(store.step_ids), embedder)
    hits = top1(embedder.texts([query_text(step) for step in queries]), keys, [step.trajectory for step in queries])
    items = [StepWithMemory(step, store[hit.step_id], hit.cosine) for step, hit in zip(queries, hits, strict=True)]
    module = FrozenActorModule(spec, [c.value for c in Condition], None, 0.0, (0,), 16)
    module._actor, module.layers = actor, (actor.num_layers - 1,)
    observed = [o for n in range(0, len(items), 6) for o in module.predict_step(items[n : n + 6])]
    return list(zip(items, observed, Vectors(embedder)(items), strict=True))


def routed(policy, harvested):
    batch = {name: torch.stack([vectors[name] for *_, vectors in harvested]) for name in harvested[0][2]}
    batch["state"] = torch.cat([observed.state for _, observed, _ in harvested])
    return policy.route(batch)


@pytest.mark.parametrize("target", ["dcoe", "basic"])
def test_it_decides_as_the_study_does(harvested, make_agent, make_policy, spec, target):
    _, r = routed(make_policy(target=target), harvested)
    scores = sorted(r.tolist())
    middle = range(len(scores) // 4, 3 * len(scores) // 4)
    gap, n = max((scores[n + 1] - scores[n], n) for n in middle)
    assert gap > 1e-4, "no step lies so near the threshold that rounding could decide"
    threshold = scores[n] + gap / 2
    conditions, r = routed(make_policy(threshold, target=target), harvested)
    assert {*conditions} == {Condition.TEXT, Condition.IMAGE} and len(harvested) > 15
    agent, grammar = make_agent(threshold, target=target), spec.load_grammar()
    for (item, observed, _), condition, score in zip(harvested, conditions, r.tolist(), strict=True):
        decision = act(agent, item.step)
        assert (decision.memory, decision.condition) == (item.memory.step_id, condition)
        assert decision.cosine == pytest.approx(item.cosine, abs=1e-6)
        assert decision.r == pytest.approx(score, abs=1e-4) and decision.threshold == threshold
        assert decision.answer == observed.answers[condition][0]
        assert decision.tokens.answer == observed.new_tokens[condition][0]
        parsed = grammar.parse(decision.answer, (item.step.screenshot.width, item.step.screenshot.height))
        assert (decision.action, decision.reason) == (parsed.action, parsed.reason)


def test_it_acts_without_a_memory_and_says_so(harvested, make_agent):
    agent = make_agent()
    for item, observed, _ in harvested[:6]:
        decision = act(agent, item.step, category="no such category")
        assert decision.answer == observed.answers[Condition.NONE][0]
        assert (decision.condition, decision.memory) == (Condition.NONE, None)
        assert math.isnan(decision.r) and math.isnan(decision.cosine)
        assert decision.explain().startswith("no memory")
        assert (
            decision.timings.routing == decision.timings.memory == decision.tokens.memory == decision.tokens.state == 0
        )


@pytest.mark.parametrize(("threshold", "condition"), [(-math.inf, Condition.IMAGE), (math.inf, Condition.TEXT)])
def test_the_threshold_decides(harvested, make_agent, threshold, condition):
    item, observed, _ = harvested[3]
    decision = act(make_agent(threshold), item.step)
    assert decision.condition is condition and decision.answer == observed.answers[condition][0]
    assert f"{condition.value} memory of {item.memory.step_id}" in decision.explain()
    values = json.loads(json.dumps(decision.to_dict(), allow_nan=False))
    assert values["threshold"] == str(threshold) and values["condition"] == condition.value


def test_any_form_of_the_same_screen_gives_the_same_decision(queries, make_agent, tmp_path):
    agent, step = make_agent(), queries[4]
    path = tmp_path / "screen.png"
    path.write_bytes(step.screenshot.data)
    expected = act(agent, step)
    for screenshot in (step.screenshot.image(), step.screenshot.image().convert("RGBA"), step.screenshot.data, path,
                       str(path)):  # fmt: skip
        found = act(agent, step, screenshot=screenshot, ui_elements=[e.to_dict() for e in step.elements])
        assert (found.answer, found.r, found.memory) == (expected.answer, expected.r, expected.memory)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"goal": " "}, "`instruction` must not be empty"),
        ({"screenshot": "nowhere.png"}, "a path that cannot be read: .*nowhere.png"),
        ({"screenshot": b"\x89PNG and no more"}, "must be a whole PNG, WebP or JPEG"),
        ({"ui_elements": [{"box": [0, 0, 1080, 580]}]}, r"`box` must be .*\(0, 0, 1080, 580\)"),
        ({"ui_elements": [{"text": "Wi-Fi"}]}, "`element` must have a `box`"),
    ],
)
def test_bad_input_is_refused(queries, make_agent, changes, message):
    agent = make_agent()
    with pytest.raises(RecordError, match=message):
        act(agent, queries[0], **changes)
    assert act(agent, queries[0]).answer  # the next step goes on


@pytest.mark.parametrize("name", ["actor", "template", "embedder"])
def test_a_policy_of_another_part_is_refused(make_agent, card, name):
    with pytest.raises(PolicyError, match=f"`{name}` is .*{getattr(card, name)}.*, trained with 'another'"):
        make_agent(**{name: "another"})


def test_a_mismatch_is_found_before_the_actor_is_loaded(make_policy, bank, tmp_path, monkeypatch):
    make_policy().save(tmp_path)
    monkeypatch.setattr("switchmem.agent.agent.load_actor", lambda _: pytest.fail("loaded"))
    with pytest.raises(PolicyError, match="`actor` is"):
        SwitchMemAgent.from_pretrained(tmp_path, ActorSpec(dtype="bfloat16", device="cpu"), bank)
    with pytest.raises(PolicyError, match="must hold a whole policy"):
        SwitchMemAgent.from_pretrained(tmp_path / "elsewhere", ActorSpec(), bank)


def test_an_endpoint_is_refused(make_policy, bank, tmp_path):
    make_policy().save(tmp_path)
    with pytest.raises(ActorSpecError, match="got the endpoint http://here/v1, which shows none"):
        SwitchMemAgent.from_pretrained(tmp_path, ActorSpec(endpoint=Endpoint("http://here/v1")), bank)


def test_a_block_that_the_actor_lacks_is_refused(make_agent, actor):
    with pytest.raises(PolicyError, match=f"block {actor.num_layers} of an actor with {actor.num_layers}"):
        make_agent(layer=actor.num_layers)


def test_another_block_is_read_where_the_policy_says_so(queries, make_agent):
    assert act(make_agent(), queries[0]).r != act(make_agent(layer=0), queries[0]).r


def test_an_answer_needs_room(make_agent, actor, bank, make_policy, spec):
    with pytest.raises(ValueError, match="`max_new_tokens` must be at least 1, got 0"):
        SwitchMemAgent(make_policy(), spec, actor, bank, 0)


def test_an_unreadable_answer_has_a_reason(queries, actor, bank, make_policy, spec):
    decision = act(SwitchMemAgent(make_policy(), spec, actor, bank, max_new_tokens=1), queries[0])
    assert decision.action is None and isinstance(decision.reason, ParseReason)
    assert decision.tokens.answer == 1 and decision.to_dict()["reason"] == decision.reason.value


def test_timings_and_tokens_add_up(queries, make_agent, actor):
    agent = make_agent(math.inf)
    act(agent, queries[0])
    started = time.perf_counter()
    decision = act(agent, queries[1])
    wall = time.perf_counter() - started
    times = decision.timings
    assert 0.9 * wall <= times.total <= wall
    assert times.actor == pytest.approx(times.state + times.routing + times.memory + times.decoding)
    assert min(times.retrieval, times.preprocessing, times.state, times.routing, times.memory, times.decoding) > 0
    tokens = decision.tokens
    ran = []
    first = actor.engine.blocks[0].register_forward_hook(lambda m, i, output: ran.append(output.shape[1]))
    act(agent, queries[1])
    first.remove()
    # The state prompt, what is left of the memory's, and each drawn token but the last.
    assert ran == [tokens.shared + tokens.state, tokens.memory] + [1] * (tokens.answer - 1)


def test_threads_take_turns(queries, make_agent):
    agent, steps = make_agent(), queries[:6]
    expected = [act(agent, step).answer for step in steps]
    found: dict[int, str] = {}

    def run(n):
        found[n] = act(agent, steps[n]).answer

    threads = [threading.Thread(target=run, args=(n,)) for n in range(len(steps))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [found[n] for n in range(len(steps))] == expected


_SEEN: list[str] = []
_WATCHING = [False]


def _watch(event, arguments):
    if _WATCHING[0] and (event.startswith("socket.") or (event == "open" and set(str(arguments[1])) & set("wax+"))):
        _SEEN.append(f"{event} {arguments}")


def test_it_writes_nothing_and_asks_no_network(queries, make_agent):
    agent = make_agent()
    sys.addaudithook(_watch)
    _WATCHING[0] = True
    try:
        act(agent, queries[0])
    finally:
        _WATCHING[0] = False
    assert _SEEN == []


def test_the_data_modules_bank_serves_too(queries, make_agent, bank, store, embedder):
    keys = Bank.build(store.iterate(store.step_ids), embedder)
    lazy = LiveBank(store, keys, embedder)
    one, other = act(make_agent(), queries[2]), act(make_agent(bank=lazy), queries[2])
    assert (one.answer, one.r, one.memory) == (other.answer, other.r, other.memory)


def test_a_bank_of_another_embedder_is_refused(make_agent, store, embedder):
    other = LiveBank.build(store, HashingEmbedder(dim=64))
    with pytest.raises(PolicyError, match=f"`embedder` is '{other.embedder.name}', trained with '{embedder.name}'"):
        make_agent(bank=other)
