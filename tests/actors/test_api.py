"""The chat actor against the real pocket actor behind HTTP, and what it sends, keeps and counts."""

from __future__ import annotations

import asyncio
import base64
import io
import json
import threading

import numpy as np
import pytest
from chat_server import Answer, ChatServer, completion
from PIL import Image

from switchmem.actors.api.actor import ChatActor, ContextLengthError, RequestsFailedError
from switchmem.actors.api.answers import AnswerCache
from switchmem.actors.api.endpoint import Endpoint
from switchmem.actors.api.messages import shown_size
from switchmem.actors.sampling import GREEDY, Sampling
from switchmem.actors.spec import ActorSpec
from switchmem.actors.vlm import ActorError, StepPrompts
from switchmem.benchmarks.pocket import PocketSpec, generate_steps
from switchmem.memory.views import Condition
from switchmem.prompts import Prompt, build_prompts, escape_template_tokens

TWO = Sampling(0.7, (42, 43), 8)


def picture(seed, size=(6, 10)):
    pixels = np.random.default_rng(seed).integers(0, 255, (size[1], size[0], 3), dtype=np.uint8)
    return Image.fromarray(pixels)


def question(name="a/b/0", conditions=(Condition.NONE, Condition.TEXT, Condition.IMAGE), seed=0, system="Act."):
    prompts = {}
    for condition in conditions:
        memory = ("Past", picture(seed + 1), "end") if condition.shows_image else (f"Past {condition.value}",)
        prompts[condition] = Prompt(system, (f"Goal {name}", picture(seed)), memory)
    return StepPrompts(name, prompts)


def make(server, tmp_path=None, model="some-model", max_pixels=None, **settings):
    cache = str(tmp_path / "answers") if tmp_path is not None else None
    defaults = {"api_key_env": None, "backoff": 0.01, "cache": cache}
    return ChatActor(model, Endpoint(base_url=server.base_url, **{**defaults, **settings}), max_pixels)


# --- the pocket actor behind HTTP ---


def read_prompt(body):
    """The server's own reading of a request, as a prompt of the pocket actor."""
    system, parts = "", []
    for message in body["messages"]:
        if message["role"] == "system":
            system = message["content"]
            continue
        for part in message["content"]:
            if part["type"] == "text":
                parts.append(part["text"])
            else:
                kind, data = part["image_url"]["url"].split(",", 1)
                assert kind == "data:image/png;base64"
                parts.append(Image.open(io.BytesIO(base64.b64decode(data))).convert("RGB"))
    return Prompt(system, tuple(parts), ())


@pytest.fixture(scope="module")
def pocket():
    """The pocket actor, questions about its world, and a server that runs it for every request."""
    spec = ActorSpec()
    actor, grammar, template = spec.load(), spec.load_grammar(), spec.load_template()
    world = PocketSpec(apps=2, test_apps=2, goals=2, episodes=2, bank_episodes=2)
    steps, bank = list(generate_steps(world, "test"))[:6], list(generate_steps(world, "test_bank"))
    questions = [
        StepPrompts(s.step_id, build_prompts(s, d, Condition, template, grammar, actor.specials))
        for s, d in zip(steps, bank, strict=False)
    ]
    busy = threading.Lock()

    def respond(asked):
        sampling = Sampling(asked.body["temperature"], (asked.body["seed"],), asked.body["max_tokens"])
        prompts = StepPrompts("http", {Condition.NONE: read_prompt(asked.body)})
        with busy:
            (seen,) = actor.observe([prompts], (Condition.NONE,), (-1,), sampling)
        (text,), (count,) = seen.answers[Condition.NONE], seen.new_tokens[Condition.NONE]
        return completion(text, usage=(len(asked.raw), count, 0))

    with ChatServer(respond) as server:
        yield actor, questions, server


def test_greedy_answers_over_http_equal_the_direct_ones(pocket):
    actor, questions, server = pocket
    remote = make(server, model="pocket").observe(questions, list(Condition), (), Sampling(0.0, (0,), 16))
    direct = actor.observe(questions, list(Condition), (-1,), Sampling(0.0, (0,), 16))
    assert [seen.answers for seen in remote] == [seen.answers for seen in direct]
    assert [seen.new_tokens for seen in remote] == [seen.new_tokens for seen in direct]
    assert len({text for seen in remote for texts in seen.answers.values() for text in texts}) > 3


def test_sampled_answers_come_by_seed(pocket):
    """The server's noise is keyed by its own name for the step, so the reference asks under that name."""
    actor, questions, server = pocket
    sampling = Sampling(30.0, (7, 8, 9), 8)
    (seen,) = make(server, model="pocket").observe(questions[:1], (Condition.TEXT,), (), sampling)
    prompts = StepPrompts("http", {Condition.NONE: questions[0].prompts[Condition.TEXT]})
    (direct,) = actor.observe([prompts], (Condition.NONE,), (-1,), sampling)
    assert seen.answers[Condition.TEXT] == direct.answers[Condition.NONE]
    assert len(set(seen.answers[Condition.TEXT])) > 1


# --- what is sent ---


def test_the_request(tmp_path):
    with ChatServer(lambda asked: completion("x")) as server:
        make(server).observe([question()], (Condition.IMAGE,), (), Sampling(0.7, (42,), 128))
    (asked,) = server.asked
    assert asked.path == "/v1/chat/completions"
    body = asked.body
    assert {k: v for k, v in body.items() if k != "messages"} == {
        "model": "some-model", "temperature": 0.7, "max_tokens": 128, "seed": 42,
    }  # fmt: skip
    system, user = body["messages"]
    assert system == {"role": "system", "content": "Act."} and user["role"] == "user"
    assert [part["type"] for part in user["content"]] == ["text", "image_url", "text", "image_url", "text"]
    assert [part.get("text") for part in user["content"]][::2] == ["Goal a/b/0", "Past", "end"]
    for part, seed in ((user["content"][1], 0), (user["content"][3], 1)):
        data = base64.b64decode(part["image_url"]["url"].removeprefix("data:image/png;base64,"))
        assert np.array_equal(np.asarray(Image.open(io.BytesIO(data))), np.asarray(picture(seed)))
    assert "Authorization" not in asked.headers


def test_no_system_message_without_words():
    with ChatServer(lambda asked: completion("x")) as server:
        make(server).observe([question(system="")], (Condition.TEXT,), (), GREEDY)
    assert [message["role"] for message in server.asked[0].body["messages"]] == ["user"]


def test_fields_are_added_renamed_and_left_out():
    extra = {"chat_template_kwargs": {"enable_thinking": False}, "seed": None}
    with ChatServer(lambda asked: completion("x")) as server:
        actor = make(server, extra_body=extra, max_tokens_field="max_completion_tokens")
        actor.observe([question()], (Condition.TEXT,), (), TWO)
    assert len(server.asked) == 2, "one request per seed, although the field is left out"
    for asked in server.asked:
        assert "seed" not in asked.body and "max_tokens" not in asked.body
        assert asked.body["max_completion_tokens"] == 8
        assert asked.body["chat_template_kwargs"] == {"enable_thinking": False}


def test_large_pictures_are_scaled_down():
    with ChatServer(lambda asked: completion("x")) as server:
        big = StepPrompts("a/b/0", {Condition.NONE: Prompt("", ("Goal", picture(3, (300, 600))), ())})
        make(server, max_pixels=20_000).observe([big], (Condition.NONE,), (), GREEDY)
    sent = read_prompt(server.asked[0].body).images[0]
    assert sent.size == (100, 200) == shown_size((300, 600), 20_000)


def test_the_state_comes_first_in_every_condition():
    with ChatServer(lambda asked: completion("x")) as server:
        make(server).observe([question()], tuple(Condition), (), GREEDY)
    starts = {json.dumps(asked.body["messages"][1]["content"][:2]) for asked in server.asked}
    assert len(server.asked) == 3 and len(starts) == 1


def test_requests_at_once_are_bounded():
    with ChatServer(lambda asked: Answer(completion("x"), delay=0.02)) as server:
        make(server, concurrency=3).observe([question(f"a/b/{n}") for n in range(8)], tuple(Condition), (), GREEDY)
    assert len(server.asked) == 24 and server.most_at_once == 3


# --- what comes back ---


def test_answers_are_in_order_however_they_arrive():
    def respond(asked):
        goal = asked.body["messages"][1]["content"][0]["text"]
        return Answer(completion(f"{goal} {asked.body['seed']}"), delay=0.1 if "0" in goal else 0.0)

    batch = [question(f"a/b/{n}") for n in range(3)]
    with ChatServer(respond) as server:
        seen = make(server).observe(batch, (Condition.TEXT, Condition.IMAGE), (), TWO)
    for n, observation in enumerate(seen):
        expected = [f"Goal a/b/{n} 42", f"Goal a/b/{n} 43"]
        assert observation.step_id == f"a/b/{n}"
        assert observation.answers == {Condition.TEXT: expected, Condition.IMAGE: expected}
        assert observation.new_tokens[Condition.TEXT] == [5, 5]
        assert observation.state.shape == (0, 0)
        assert set(observation.shifted) == {Condition.TEXT, Condition.IMAGE}
        assert observation.seconds > 0


def test_steps_without_memory_are_asked_what_they_can_be_asked():
    with ChatServer(lambda asked: completion("x")) as server:
        batch = [question("a/b/0", (Condition.NONE,)), question("a/b/1")]
        seen = make(server).observe(batch, (Condition.NONE, Condition.TEXT), (), GREEDY)
        assert make(server).observe([], (Condition.NONE,), (), GREEDY) == []
    assert set(seen[0].answers) == {Condition.NONE} and seen[0].shifted == {}
    assert set(seen[1].answers) == {Condition.NONE, Condition.TEXT}
    assert len(server.asked) == 3


def test_hidden_states_are_refused():
    actor = ChatActor("m", Endpoint(api_key_env=None, cache=None))
    with pytest.raises(ActorError, match=r"`layers` must be empty .* got \(-1,\): it shows no hidden states"):
        actor.observe([question()], (Condition.TEXT,), (-1,), GREEDY)


def test_tokens_are_estimated_from_bytes():
    actor = ChatActor("m", Endpoint())
    assert [actor.count(text) for text in ("", "a", "abc", "abcd", "\u00e9\u00e9", "<|im_end|>")] == [0, 1, 1, 2, 2, 4]


@pytest.mark.parametrize("text", ["<|im_end|>", "<|vision_start|>", "<think>", "<start_of_turn>", "[/INST]", "</s>"])
def test_what_chat_templates_are_made_of_is_broken(text):
    assert text not in escape_template_tokens(f"Hi {text}", ChatActor("m", Endpoint()).specials)


@pytest.mark.parametrize(("model", "pixels", "words"), [(" ", None, "`model` must be"), ("m", 0, "`max_pixels` must")])
def test_settings_of_the_actor(model, pixels, words):
    with pytest.raises(ActorError, match=words):
        ChatActor(model, Endpoint(), pixels)


ODD = {
    "refusal": (completion(None, refusal="I will not."), "I will not."),
    "content_filter": (completion("par", finish="content_filter"), "par"),
    "length": (completion("cut of", finish="length"), "cut of"),
    "tool_calls": (completion(None, finish="tool_calls", tool_calls=[{"function": {"name": "tap"}}]), ""),
    "empty": (completion(None), ""),
}


@pytest.mark.parametrize("reason", ODD)
def test_odd_answers_are_kept_raw_and_counted(reason):
    body, text = ODD[reason]
    with ChatServer(lambda asked: body) as server:
        actor = make(server)
        (seen,) = actor.observe([question()], (Condition.TEXT,), (), GREEDY)
    assert seen.answers == {Condition.TEXT: [text]}
    assert actor.usage.to_dict()["reasons"] == {reason: 1} and f"1 {reason}" in str(actor.usage)
    assert len(server.asked) == 1, "an answer that was paid is not asked for again"


def test_a_prompt_that_the_provider_filters_is_an_answer_of_its_own(tmp_path):
    body = {"error": {"code": "content_filter", "message": "The prompt was filtered."}}
    with ChatServer(lambda asked: Answer(body, 400)) as server:
        actor = make(server, tmp_path)
        (seen,) = actor.observe([question()], (Condition.TEXT,), (), GREEDY)
        make(server, tmp_path).observe([question()], (Condition.TEXT,), (), GREEDY)
    assert seen.answers == {Condition.TEXT: [""]} and actor.usage.to_dict()["reasons"] == {"content_filter": 1}
    assert len(server.asked) == 1


def test_content_in_parts_is_joined():
    parts = [{"type": "text", "text": "tap "}, {"type": "text", "text": "r1c2"}]
    with ChatServer(lambda asked: completion(parts)) as server:
        (seen,) = make(server).observe([question()], (Condition.TEXT,), (), GREEDY)
    assert seen.answers == {Condition.TEXT: ["tap r1c2"]}


def test_inside_a_running_event_loop():
    async def notebook(actor):
        return actor.observe([question()], (Condition.TEXT,), (), GREEDY)

    with ChatServer(lambda asked: completion("x")) as server:
        (seen,) = asyncio.run(notebook(make(server)))
    assert seen.answers == {Condition.TEXT: ["x"]}


# --- counts ---


def test_tokens_and_cost_are_counted(tmp_path):
    prices = {"prompt_price": 2.0, "completion_price": 10.0, "cached_price": 0.5}
    with ChatServer(lambda asked: completion("x", usage=(1000, 20, 400))) as server:
        actor = make(server, tmp_path, **prices)
        actor.observe([question()], (Condition.TEXT, Condition.IMAGE), (), TWO)
        again = make(server, tmp_path, **prices)
        again.observe([question()], (Condition.TEXT, Condition.IMAGE), (), TWO)
    usage = actor.usage
    assert (usage.answers, usage.kept, usage.requests, usage.retries, usage.failures) == (4, 0, 4, 0, 0)
    assert (usage.prompt_tokens, usage.completion_tokens, usage.cached_tokens, usage.untold) == (4000, 80, 1600, 0)
    assert usage.cost == pytest.approx(4 * (600 * 2.0 + 400 * 0.5 + 20 * 10.0) / 1e6)
    assert usage.to_dict()["models"] == {"served-model": 4} and usage.seconds > 0
    assert "4 answers in 4 requests (0 retries)" in str(usage) and f"cost {usage.cost:.4f}" in str(usage)
    assert (again.usage.answers, again.usage.kept, again.usage.requests, again.usage.cost) == (0, 4, 0, None)
    total = again.cache.usage(again.endpoint).to_dict()
    paid = usage.to_dict()
    assert total.pop("seconds") == pytest.approx(paid.pop("seconds"), abs=0.01)
    assert total.pop("cost") == pytest.approx(paid.pop("cost"))
    assert total == paid
    json.dumps(total, allow_nan=False)


def test_servers_that_do_not_count_are_counted():
    with ChatServer(lambda asked: completion("x", usage=None)) as server:
        actor = make(server, prompt_price=1.0, completion_price=1.0)
        (seen,) = actor.observe([question()], (Condition.TEXT,), (), GREEDY)
    assert actor.usage.untold == 1 and actor.usage.cost is None and seen.new_tokens == {Condition.TEXT: [0]}


def test_counts_of_several_threads_add_up():
    with ChatServer(lambda asked: completion("x")) as server:
        actor = make(server, concurrency=4)
        threads = [
            threading.Thread(target=actor.observe, args=([question(f"t/{n}/0")], (Condition.TEXT,), (), TWO))
            for n in range(8)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert (actor.usage.answers, actor.usage.requests, actor.usage.prompt_tokens) == (16, 16, 1600)


def test_another_model_under_the_same_name_is_told(caplog):
    def respond(asked):
        return {**completion("x"), "model": f"version-{asked.body['seed']}"}

    with ChatServer(respond) as server:
        make(server).observe([question()], (Condition.TEXT,), (), TWO)
    assert "gave answers of several models for 'some-model'" in caplog.text
    assert "1 of version-42" in caplog.text


# --- kept answers ---


def test_equal_questions_are_asked_once():
    same = question("a/b/0").prompts
    with ChatServer(lambda asked: completion(str(asked.number))) as server:
        seen = make(server).observe(
            [StepPrompts("x/y/0", same), StepPrompts("x/y/1", same)], (Condition.TEXT,), (), TWO
        )
    assert len(server.asked) == 2 and seen[0].answers == seen[1].answers


def change_words(values):
    values["batch"] = [question("a/c/0")]


def change_picture(values):
    values["batch"] = [question(seed=5)]


CHANGES = {
    "model": lambda v: v.update(model="other"),
    "name of the endpoint": lambda v: v.update(name="other"),
    "extra field": lambda v: v.update(extra_body={"top_p": 0.9}),
    "field of the length": lambda v: v.update(max_tokens_field="max_completion_tokens"),
    "temperature": lambda v: v.update(sampling=Sampling(0.8, (42,), 8)),
    "seed": lambda v: v.update(sampling=Sampling(0.7, (43,), 8)),
    "length": lambda v: v.update(sampling=Sampling(0.7, (42,), 9)),
    "size of the pictures": lambda v: v.update(max_pixels=20),
    "words": change_words,
    "picture": change_picture,
}


@pytest.mark.parametrize("what", CHANGES)
def test_whatever_changes_an_answer_asks_anew(tmp_path, what):
    def run(batch, sampling, **settings):
        make(server, tmp_path, **settings).observe(batch, (Condition.TEXT,), (), sampling)

    with ChatServer(lambda asked: completion("x")) as server:
        values = {"batch": [question()], "sampling": Sampling(0.7, (42,), 8), "name": "here"}
        run(**values)
        run(**values)
        assert len(server.asked) == 1
        # how one waits, and who pays, changes no answer
        run(
            **values, concurrency=1, attempts=2, timeout=9.0, total_seconds=10.0, prompt_price=1.0, completion_price=2.0
        )
        assert len(server.asked) == 1
        CHANGES[what](values)
        run(**values)
        assert len(server.asked) == 2


def test_a_server_with_a_name_may_move(tmp_path):
    for _ in range(2):
        with ChatServer(lambda asked: completion("x")) as server:
            make(server, tmp_path, name="vllm").observe([question()], (Condition.TEXT,), (), GREEDY)
            asked = len(server.asked)
    assert asked == 0
    with ChatServer(lambda asked: completion("x")) as server:
        make(server, tmp_path).observe([question()], (Condition.TEXT,), (), GREEDY)
        assert len(server.asked) == 1


@pytest.mark.parametrize("damage", [b"", b'{"completion": {"choices": []}, "attempts": 1, "seconds": 1}', b"\xff\xfe"])
def test_a_damaged_answer_is_told_and_asked_again(tmp_path, caplog, damage):
    with ChatServer(lambda asked: completion("x")) as server:
        make(server, tmp_path).observe([question()], (Condition.TEXT,), (), GREEDY)
        (path,) = (tmp_path / "answers").rglob("*.json")
        path.write_bytes(damage)
        (seen,) = make(server, tmp_path).observe([question()], (Condition.TEXT,), (), GREEDY)
    assert len(server.asked) == 2 and seen.answers == {Condition.TEXT: ["x"]}
    assert f"{path} must be a kept answer" in caplog.text
    assert json.loads(path.read_text())["completion"]["choices"]


def test_a_folder_that_cannot_be_written_ends_the_run_with_its_own_error(tmp_path):
    (tmp_path / "answers").write_text("a file, where a folder must be")
    with ChatServer(lambda asked: completion("x")) as server, pytest.raises(OSError, match="answers"):
        make(server, tmp_path, concurrency=1).observe([question()], (Condition.TEXT,), (), TWO)
    assert len(server.asked) == 1, "nothing more is paid once answers cannot be kept"


def test_one_failure_loses_nothing_of_the_others(tmp_path):
    broken = True

    def respond(asked):
        if broken and "a/b/1" in asked.body["messages"][1]["content"][0]["text"]:
            return Answer({"error": {"message": "bad picture"}}, 400)
        return Answer(completion("x"), delay=0.05)

    batch = [question(f"a/b/{n}") for n in range(3)]
    with ChatServer(respond) as server:
        with pytest.raises(RequestsFailedError, match="bad picture") as caught:
            make(server, tmp_path).observe(batch, (Condition.TEXT,), (), TWO)
        message = str(caught.value)
        assert "got no answer to 2 of 6 (2 request)" in message
        assert "step 'a/b/1' (condition text, seed 42)" in message and "The other 4 are kept in" in message
        assert not isinstance(caught.value, ContextLengthError) and len(caught.value.failures) == 2
        broken, before = False, len(server.asked)
        seen = make(server, tmp_path).observe(batch, (Condition.TEXT,), (), TWO)
        assert len(server.asked) - before == 2
    assert all(observation.answers == {Condition.TEXT: ["x", "x"]} for observation in seen)


def test_without_a_folder_nothing_is_kept():
    cache = AnswerCache(None)
    cache.put("00", "q", completion("x"), 1, 0.1)
    assert cache.get("00") is None and cache.usage(Endpoint()).answers == 0


def test_facts_tell_the_endpoint_and_no_secret(monkeypatch):
    monkeypatch.setenv("SOME_KEY", "one-secret")
    facts = ChatActor("m", Endpoint(base_url="http://h/v1/", api_key_env="SOME_KEY")).facts()
    assert facts["class"] == "ChatActor" and facts["model"] == "m" and facts["endpoint"] == "http://h/v1"
    assert "secret" not in json.dumps(facts)


def test_the_hash_tells_the_endpoint_and_no_secret(monkeypatch):
    endpoint = Endpoint(base_url="http://h/v1", api_key_env="SOME_KEY")
    monkeypatch.setenv("SOME_KEY", "one-secret")
    first = ChatActor("m", endpoint).parameters_hash()
    monkeypatch.setenv("SOME_KEY", "another-secret")
    assert ChatActor("m", endpoint).parameters_hash() == first
    assert ChatActor("n", endpoint).parameters_hash() != first
    assert ChatActor("m", Endpoint(base_url="http://i/v1")).parameters_hash() != first
