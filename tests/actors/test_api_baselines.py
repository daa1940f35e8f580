"""The memory baselines behind a chat endpoint, actor and writer: what is sent, counted, kept and done without."""

import base64
import io
from collections import Counter

import numpy as np
import pytest
from around import TAP_MENU, TAP_SAVE, Around, make_step
from chat_server import Answer, ChatServer, completion
from PIL import Image

from switchmem.actors.api.actor import ChatActor, RequestsFailedError
from switchmem.actors.api.endpoint import Endpoint
from switchmem.actors.baseline_module import BaselineModule
from switchmem.actors.showing import make_scene, show_and_ask
from switchmem.actors.spec import ActorSpec
from switchmem.actors.writer import ModelWriter
from switchmem.memory.agmem import AGMem, AGMemWhole
from switchmem.memory.app_agent import AppAgent
from switchmem.memory.baseline import run_rounds
from switchmem.memory.echotrail import EchoTrail
from switchmem.memory.m3a import M3a
from switchmem.memory.rag_gui import RagGui
from switchmem.memory.retrieval import StepWithMemory
from switchmem.memory.writing import KeptWriter, TemplateWriter, costs
from switchmem.prompts import escape_template_tokens
from switchmem.steps import Action, ActionType

SPEC = ActorSpec(model="served", grammar="mobile_use", template="default", endpoint=Endpoint(api_key_env=None))
BASELINES = [RagGui(), M3a(), AppAgent(), EchoTrail(), AGMem(), AGMemWhole()]
BANK = [make_step("demo", n, action) for n, action in enumerate([TAP_MENU, TAP_SAVE, Action(ActionType.BACK)])]
QUERIES = [make_step("query", n, action) for n, action in enumerate([TAP_SAVE, TAP_MENU, TAP_SAVE])]
GOOD = "Relevant: yes\nGuideline: Press what is marked."


def actor_at(server, cache=None, **settings):
    told = {"api_key_env": None, "cache": None if cache is None else str(cache), "backoff": 0.01, **settings}
    return ChatActor("served", Endpoint(base_url=server.base_url, **told))


def scenes_of(actor, steps=QUERIES):
    around = Around(QUERIES, BANK)
    return [make_scene(SPEC, actor, step, BANK[1], around) for step in steps]


def parts_of(body):
    """System message, and the texts and pictures of the user's, as the server reads them."""
    *system, user = body["messages"]
    parts = []
    for part in user["content"]:
        if part["type"] == "text":
            parts.append(part["text"])
        else:
            data = base64.b64decode(part["image_url"]["url"].removeprefix("data:image/png;base64,"))
            parts.append(np.asarray(Image.open(io.BytesIO(data))))
    return "".join(message["content"] for message in system), parts


def joined(parts, specials):
    """Parts as they must arrive: neighbouring texts in one, escaped; pictures in their pixels."""
    found = []
    for part in parts:
        if not isinstance(part, str):
            found.append(np.asarray(part.convert("RGB")))
        elif part and found and isinstance(found[-1], str):
            found[-1] += part
        elif part:
            found.append(part)
    return [escape_template_tokens(part, specials) if isinstance(part, str) else part for part in found]


def same(one, other):
    return len(one) == len(other) and all(
        type(a) is type(b) and (a == b if isinstance(a, str) else np.array_equal(a, b))
        for a, b in zip(one, other, strict=True)
    )


def is_question(asked):
    """Whether the actor or the writer was asked: only questions are so short."""
    return asked.body["max_tokens"] != 7


# --- what is sent ---


@pytest.mark.parametrize("baseline", BASELINES, ids=lambda baseline: baseline.name)
def test_the_whole_view_reaches_the_endpoint(baseline):
    with ChatServer(lambda asked: completion("x")) as server:
        actor = actor_at(server, concurrency=1)
        (scene,) = scenes_of(actor, QUERIES[2:])
        ((view, _),) = run_rounds([baseline.show(scene)], TemplateWriter())
        (shown,) = show_and_ask(SPEC, actor, baseline, TemplateWriter(), [scene], 7)
    (asked,) = server.asked
    system, parts = parts_of(asked.body)
    assert shown.answer.text == "x" and asked.body["temperature"] == 0.0 and asked.body["max_tokens"] == 7
    assert view.memory and contains(parts, joined(view.memory, actor.specials))
    if view.current is not None:
        assert contains(parts[: len(joined(view.current, ()))], joined(view.current, actor.specials))
    if view.system is not None:
        assert system == view.system and parts[-1].endswith(view.closing)
    shown = [part for part in ((QUERIES[2].screenshot.image(),) if view.current is None else view.current)]
    pictures = [part for part in (*shown, *view.memory) if not isinstance(part, str)]
    sent = [part for part in parts if not isinstance(part, str)]
    assert same(sent, [np.asarray(picture.convert("RGB")) for picture in pictures])
    assert len(sent) >= (2 if baseline.shows_image or baseline.name == "m3a" else 1)


def contains(parts, memory):
    """Whether the memory stands in the message, where texts on its edges were joined with their neighbours."""
    for n in range(len(parts) - len(memory) + 1):
        found = parts[n : n + len(memory)]
        if any(isinstance(a, str) is not isinstance(b, str) for a, b in zip(found, memory, strict=True)):
            continue
        if all(b in a if isinstance(b, str) else np.array_equal(a, b) for a, b in zip(found, memory, strict=True)):
            return True
    return False


def test_a_question_reaches_the_writer_with_its_words_and_pictures():
    with ChatServer(lambda asked: completion("It opened a menu.")) as server:
        actor = actor_at(server, concurrency=1)
        (scene,) = scenes_of(actor, QUERIES[1:2])
        (calls,) = [next(M3a().show(scene))]
        ModelWriter(actor, "w").write(calls)
    (call,), (asked,) = calls, server.asked
    system, parts = parts_of(asked.body)
    assert system == call.system and asked.body["max_tokens"] == call.max_tokens and asked.body["temperature"] == 0.0
    wanted = [np.asarray(p.convert("RGB")) if isinstance(p, Image.Image) else p for p in call.parts]
    assert same(parts, wanted) and sum(not isinstance(part, str) for part in parts) == 2
    assert not np.array_equal(parts[1], np.asarray(QUERIES[0].screenshot.image())), "its boxes are drawn"


# --- what is counted and kept ---


def test_calls_tokens_and_seconds_are_counted_and_a_second_run_asks_nothing(tmp_path):
    def respond(asked):
        if is_question(asked):
            return Answer(completion(GOOD, usage=(900, 30, 0)), delay=0.05)
        return completion("x", usage=(400, 3, 0))

    def run(server):
        actor = actor_at(server, concurrency=1)  # no cache: what is kept is kept by the writer
        writer = KeptWriter(ModelWriter(actor, "w"), tmp_path)
        shown = show_and_ask(SPEC, actor, RagGui(), writer, scenes_of(actor), 7)
        return shown, [costs(one.spent, "w") for one in shown]

    with ChatServer(respond) as server:
        shown, spent = run(server)
        questions = [asked for asked in server.asked if is_question(asked)]
        assert len(questions) == len(QUERIES) == len(server.asked) - len(questions)
        for one, cost in zip(shown, spent, strict=True):
            assert (cost["calls"], cost["tokens_in"], cost["tokens_out"], cost["kept"]) == (1, 900, 30, 0)
            assert 0.05 <= cost["seconds"] < 5 and (one.answer.tokens_in, one.answer.tokens_out) == (400, 3)
            assert "Press what is marked." in one.view.memory[0]
        again, kept = run(server)
        assert len([asked for asked in server.asked if is_question(asked)]) == len(questions)
    assert [one.view for one in again] == [one.view for one in shown]
    assert kept == [{**cost, "kept": 1} for cost in spent], "what is kept costs what it cost first"


def test_tokens_that_a_server_does_not_tell_are_none():
    with ChatServer(lambda asked: completion(GOOD, usage=None)) as server:
        actor = actor_at(server)
        (shown,) = show_and_ask(SPEC, actor, RagGui(), ModelWriter(actor, "w"), scenes_of(actor, QUERIES[:1]), 7)
    assert (shown.answer.tokens_in, shown.answer.tokens_out) == (None, None)
    cost = costs(shown.spent, "w")
    assert (cost["calls"], cost["tokens_in"], cost["tokens_out"]) == (1, None, None)


def test_an_answer_without_a_token_is_told_as_such():
    with ChatServer(lambda asked: completion("", usage=(50, 0, 0))) as server:
        actor = actor_at(server)
        (shown,) = show_and_ask(SPEC, actor, EchoTrail(), TemplateWriter(), scenes_of(actor, QUERIES[:1]), 7)
    assert (shown.answer.tokens_in, shown.answer.tokens_out) == (50, 0)


def test_what_was_answered_before_a_failure_is_not_asked_again(tmp_path):
    def respond(asked):
        if asked.number == 2:
            return Answer({"error": "no such field"}, status=400)
        return completion(GOOD if is_question(asked) else "x")

    def run(server):
        actor = actor_at(server, tmp_path / "answers", concurrency=1)
        writer = KeptWriter(ModelWriter(actor, "w"), tmp_path / "written")
        return show_and_ask(SPEC, actor, RagGui(), writer, scenes_of(actor), 7)

    with ChatServer(respond) as server:
        with pytest.raises(RequestsFailedError, match=r"got no answer to 1 of 3 .*no such field"):
            run(server)
        assert [one.answer.text for one in run(server)] == ["x"] * 3
        assert Counter(server.counts.values()) == {1: 5, 2: 1}, "one question failed, and it alone came twice"


def test_the_module_tells_what_both_endpoints_were_asked(tmp_path):
    step = QUERIES[1]
    with ChatServer(lambda asked: completion(GOOD, usage=(10, 1, 0))) as server:
        actor, other = actor_at(server), actor_at(server)

        def module_with(model):
            writer, folder = ModelWriter(model, "w"), tmp_path / str(id(model))
            module = BaselineModule(SPEC, RagGui(), Around(QUERIES, BANK), lambda *_: KeptWriter(writer, folder), 7)
            module._actor = actor
            return module

        module = module_with(other)
        assert module.usages() == [actor.usage]
        module.predict_step([StepWithMemory(step, BANK[1], 0.5)])
        assert [usage.answers for usage in module.usages()] == [1, 1]
        module = module_with(actor)
        module.predict_step([StepWithMemory(step, BANK[1], 0.5)])
        assert module.usages() == [actor.usage] and actor.usage.answers == 3


# --- what is done without ---

ODD = {
    "no words": (completion(None), "empty"),
    "refused": (completion(None, refusal="I will not say that."), "refusal"),
    "declined": (completion("I must decline."), "refusal"),
    "filtered prompt": (Answer({"error": {"code": "content_filter", "message": "no"}}, 400), "empty"),
    "tool call": (completion(None, finish="tool_calls", tool_calls=[{"function": {"name": "tap"}}]), "empty"),
}


@pytest.mark.parametrize("odd", ODD)
@pytest.mark.parametrize("baseline", [RagGui(), M3a(), AppAgent()], ids=lambda baseline: baseline.name)
def test_an_answer_without_use_falls_back_and_is_counted(baseline, odd):
    answer, fault = ODD[odd]
    what = {"rag_gui": "guideline", "m3a": "summary", "app_agent": "document"}[baseline.name]
    with ChatServer(lambda asked: answer if is_question(asked) else completion("x")) as server:
        actor = actor_at(server)
        (scene,) = scenes_of(actor, QUERIES[2:])
        (shown,) = show_and_ask(SPEC, actor, baseline, ModelWriter(actor, "w"), [scene], 7)
    questions = [asked for asked in server.asked if is_question(asked)]
    (last,) = (asked for asked in server.asked if not is_question(asked))
    assert questions and set(shown.view.fallbacks) == {f"{what}: {fault}"}
    assert sum(written.calls for written in shown.spent.answers) == len(shown.spent.calls) >= len(questions)
    text = " ".join(part for part in parts_of(last.body)[1] if isinstance(part, str))
    assert "I will not" not in text and "decline" not in text
    assert baseline.name != "rag_gui" or "similar task" not in text


@pytest.mark.parametrize("text, told", [("Tap it.", "guideline: malformed"), ("Relevant: no", "irrelevant")])
def test_a_malformed_or_an_irrelevant_guideline_leaves_the_state_prompt(text, told):
    with ChatServer(lambda asked: completion(text if is_question(asked) else "x")) as server:
        actor = actor_at(server, concurrency=1)
        (scene,) = scenes_of(actor, QUERIES[:1])
        (shown,) = show_and_ask(SPEC, actor, RagGui(), ModelWriter(actor, "w"), [scene], 7)
        plain = make_scene(SPEC, actor, QUERIES[0], None, Around(QUERIES, BANK))
        show_and_ask(SPEC, actor, RagGui(), ModelWriter(actor, "w"), [plain], 7)
    assert (*shown.view.fallbacks, *shown.view.notes) == (told,)
    _, under, bare = server.asked
    assert under.raw == bare.raw
