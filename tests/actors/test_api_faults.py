"""A chat endpoint that fails in every way that endpoints fail, and a key that must never show."""

from __future__ import annotations

import logging
import pickle
import socket
import time
import traceback
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest
from chat_server import Answer, ChatServer, completion
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from switchmem.actors.api import client
from switchmem.actors.api.actor import ChatActor, ContextLengthError, RequestsFailedError
from switchmem.actors.api.answers import Usage
from switchmem.actors.api.client import ChatClient
from switchmem.actors.api.endpoint import Endpoint, EndpointError, Secret
from switchmem.actors.api.outcomes import FailureKind
from switchmem.actors.sampling import GREEDY, Sampling
from switchmem.actors.vlm import ActorError, StepPrompts
from switchmem.memory.views import Condition
from switchmem.prompts import Prompt

KEY = "sk-test/0123456789+abcdefghij"
QUESTION = StepPrompts("a/b/0", {Condition.NONE: Prompt("", ("Goal", Image.new("RGB", (4, 4))), ())})
SEVEN = Sampling(0.7, tuple(range(42, 49)), 8)


def make(url, tmp_path=None, **settings):
    cache = str(tmp_path / "answers") if tmp_path is not None else None
    values = {"api_key_env": None, "backoff": 0.01, "attempts": 3, "cache": cache, **settings}
    return ChatActor("some-model", Endpoint(base_url=url, **values))


def ask(actor, sampling=GREEDY):
    (seen,) = actor.observe([QUESTION], (Condition.NONE,), (), sampling)
    return seen.answers[Condition.NONE]


def failures(actor, sampling=GREEDY):
    with pytest.raises(RequestsFailedError) as caught:
        ask(actor, sampling)
    return caught.value


def error(message, **more):
    return {"error": {"message": message, **more}}


# --- what passes ---

PASSING = {
    "500": Answer(error("oops"), 500),
    "502 with a page": Answer(b"<html>Bad gateway</html>", 502),
    "503 without a word": Answer(b"", 503),
    "529": Answer(error("overloaded"), 529),
    "408": Answer(error("slow"), 408),
    "409": Answer(error("lock"), 409),
    "429": Answer(error("slow down", code="rate_limit_exceeded"), 429),
    "reset": Answer(b"", reset=True),
    "hung up": Answer(completion("x"), claimed=10_000),
    "late": Answer(completion("x"), delay=5.0),
    "trickle": Answer(completion("x"), drip=0.05),
    "cut JSON": Answer(b'{"choices": [{"message": {"conte'),
    "no bytes": Answer(b""),
    "not UTF-8": Answer(b"\xff\xfe{}"),
    "deep JSON": Answer(b"[" * 100_000),
    "a list": Answer([1]),
    "no choices": Answer({"object": "chat.completion"}),
    "an error that says 200": Answer(error("provider is down")),
    "empty choices": Answer({"choices": []}),
    "wrong choice": Answer({"choices": ["x"]}),
    "no message": Answer({"choices": [{"text": "x"}]}),
}


def limit(fault):
    """Seconds for a request: few where the server is meant to be too slow, so many for a busy machine elsewhere."""
    return 0.4 if fault in ("late", "trickle", "hung up") else 10.0


@pytest.mark.parametrize("fault", PASSING)
def test_what_passes_is_tried_again(fault):
    with ChatServer(lambda asked: PASSING[fault] if asked.again == 0 else completion("fine")) as server:
        actor = make(server.base_url, timeout=limit(fault))
        started = time.monotonic()
        assert ask(actor) == ["fine"]
        assert time.monotonic() - started < 3.0
        assert len(server.asked) == 2
    usage = actor.usage
    assert (usage.answers, usage.requests, usage.retries, usage.failures) == (1, 2, 1, 0)


LASTING = {
    "500": (FailureKind.EXHAUSTED, "HTTP 500: oops"),
    "503 without a word": (FailureKind.EXHAUSTED, "HTTP 503: Service Unavailable"),
    "reset": (FailureKind.EXHAUSTED, "ReadError"),
    "hung up": (FailureKind.EXHAUSTED, "RemoteProtocolError"),
    "trickle": (FailureKind.EXHAUSTED, r"no whole answer within 0.4 s \(`timeout`\)"),
    "cut JSON": (FailureKind.RESPONSE, r"the body is no chat completion: no JSON \(32 bytes\)"),
    "an error that says 200": (
        FailureKind.RESPONSE,
        "the body is no chat completion: no list of choices; provider is down",
    ),
    "empty choices": (FailureKind.RESPONSE, "the body is no chat completion: an empty list of choices"),
    "no message": (FailureKind.RESPONSE, "the body is no chat completion: a choice without a message"),
}


@pytest.mark.parametrize("fault", LASTING)
def test_what_does_not_pass_ends_after_the_attempts(fault):
    kind, words = LASTING[fault]
    with ChatServer(lambda asked: PASSING[fault]) as server:
        actor = make(server.base_url, timeout=limit(fault))
        caught = failures(actor)
        assert len(server.asked) == 3
    (failure,) = caught.failures.values()
    assert failure.kind is kind and failure.attempts == 3
    with pytest.raises(
        RequestsFailedError, match=rf"step 'a/b/0' \(condition none, seed 0\): {words}.*after 3 attempts"
    ):
        raise caught
    assert (actor.usage.answers, actor.usage.retries, actor.usage.failures) == (0, 2, 1)


def gaps(server):
    times = [asked.at for asked in server.asked]
    return [b - a for a, b in zip(times, times[1:], strict=False)]


@pytest.mark.parametrize(
    ("headers", "least", "most"),
    [
        ({"Retry-After": "1"}, 1.0, 1.5),
        ({"retry-after-ms": "300", "Retry-After": "9"}, 0.3, 0.8),
        ({"Retry-After": "soon"}, 0.0, 0.9),
        ({"Retry-After": "-5"}, 0.0, 0.9),
        ({"retry-after-ms": "nan"}, 0.0, 0.9),
    ],
)
def test_the_wait_that_the_server_asks_for_is_kept(headers, least, most):
    with ChatServer(
        lambda asked: Answer(error("x"), 429, headers) if asked.again == 0 else completion("fine")
    ) as server:
        assert ask(make(server.base_url)) == ["fine"]
    (gap,) = gaps(server)
    assert least <= gap < most


def test_the_wait_may_be_a_date():
    def respond(asked):
        date = format_datetime(datetime.now(UTC) + timedelta(seconds=2), usegmt=True)  # whole seconds: 1 to 2 remain
        return Answer(error("x"), 503, {"Retry-After": date}) if asked.again == 0 else completion("fine")

    with ChatServer(respond) as server:
        assert ask(make(server.base_url)) == ["fine"]
    assert 0.9 <= gaps(server)[0] < 2.5


def test_a_wait_beyond_the_time_left_is_not_begun():
    with ChatServer(lambda asked: Answer(error("x"), 429, {"Retry-After": "3600"})) as server:
        started = time.monotonic()
        caught = failures(make(server.base_url, total_seconds=30.0))
        assert time.monotonic() - started < 5.0 and len(server.asked) == 1
    assert "the server asks to wait another 3600 s" in str(caught)


def test_the_whole_time_of_a_request_is_bounded():
    with ChatServer(lambda asked: Answer(completion("x"), delay=9.0)) as server:
        started = time.monotonic()
        failures(make(server.base_url, timeout=0.2, total_seconds=0.7, attempts=1000))
        assert 0.5 < time.monotonic() - started < 2.5
        assert 3 <= len(server.asked) <= 4


def test_one_attempt_ends_with_the_time_of_its_request():
    with ChatServer(lambda asked: Answer(completion("x"), delay=9.0)) as server:
        started = time.monotonic()
        failures(make(server.base_url, timeout=9.0, total_seconds=0.3))
        assert time.monotonic() - started < 3.0


def test_the_second_failure_in_a_row_is_told(caplog):
    with ChatServer(lambda asked: Answer(error("busy"), 503) if asked.again < 2 else completion("fine")) as server:
        caplog.set_level(logging.WARNING, logger="switchmem")
        assert ask(make(server.base_url)) == ["fine"]
    (record,) = caplog.records
    assert "step 'a/b/0' (condition none, seed 0): HTTP 503: busy. Attempt 3 follows in 0.0 s" in record.getMessage()


def test_waits_double_and_vary():
    client = ChatClient(Endpoint(api_key_env=None, backoff=2.0), Usage())
    for attempt, longest in ((1, 2.0), (2, 4.0), (5, 32.0), (6, 60.0), (2000, 60.0)):
        waits = [client._wait(attempt, 0.0) for _ in range(200)]
        assert all(longest / 2 <= wait <= longest for wait in waits) and max(waits) - min(waits) > longest / 4
    assert all(90.0 <= client._wait(1, 90.0) <= 90.2 for _ in range(50))


# --- what does not pass ---


@pytest.mark.parametrize(
    ("status", "body", "words"),
    [
        (401, error("Incorrect API key provided."), "HTTP 401: Incorrect API key provided"),
        (402, error("Pay first."), "HTTP 402: Pay first"),
        (404, {"detail": "Not Found"}, "HTTP 404: Not Found"),
        (429, error("You exceeded your quota.", code="insufficient_quota"), "HTTP 429: You exceeded your quota"),
        (307, b"", "HTTP 307: redirected to 'http://elsewhere/v1'"),
    ],
)
def test_what_no_request_can_pass_stops_the_batch(status, body, words):
    with ChatServer(lambda asked: Answer(body, status, {"Location": "http://elsewhere/v1"})) as server:
        actor = make(server.base_url, concurrency=2)
        caught = failures(actor, SEVEN)
        assert len(server.asked) == 2, "those on their way, and no more"
    kinds = [failure.kind for failure in caught.failures.values()]
    assert kinds.count(FailureKind.ACCESS) == 2 and kinds.count(FailureKind.NOT_SENT) == 5
    assert words in str(caught) and "no answer to 7 of 7 (2 access, 5 not_sent)" in str(caught)
    assert "Check the key" in str(caught)


def test_nobody_there():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound and not listening: connections are refused
        caught = failures(make(f"http://127.0.0.1:{taken.getsockname()[1]}/v1", concurrency=1), SEVEN)
    kinds = [failure.kind for failure in caught.failures.values()]
    assert kinds.count(FailureKind.UNREACHABLE) == 1 and kinds.count(FailureKind.NOT_SENT) == 6
    assert "ConnectError" in str(caught) and "Start the server, or correct `base_url`" in str(caught)


def test_a_refused_request_is_told_with_the_servers_words():
    with ChatServer(lambda asked: Answer(error("Unsupported parameter: 'seed'"), 400)) as server:
        caught = failures(make(server.base_url, concurrency=1), SEVEN)
        assert len(server.asked) == 7, "others may fare better"
    assert {failure.kind for failure in caught.failures.values()} == {FailureKind.REQUEST}
    assert "HTTP 400: Unsupported parameter: 'seed'" in str(caught) and "`extra_body`" in str(caught)
    assert isinstance(caught, ActorError)


TOO_LONG = [
    (400, error("This model's maximum context length is 4096 tokens. However, you requested 5000.")),
    (400, error("Too big.", code="context_length_exceeded")),
    (400, error("The decoder prompt (length 5000) is longer than the maximum model length of 4096.")),
    (400, {"object": "error", "message": "The input (5000 tokens) is longer than the model's context length."}),
    (400, error("the request exceeds the available context size", type="exceed_context_size_error")),
    (413, error("prompt is too long: 210000 tokens > 200000 maximum")),
    (422, {"error": "`inputs` tokens + `max_new_tokens` must be <= 4096. Given: 5000 `inputs` tokens"}),
]


@pytest.mark.parametrize(("status", "body"), TOO_LONG)
def test_too_long_a_prompt_is_a_failure_of_its_own_type(status, body):
    with ChatServer(lambda asked: Answer(body, status)) as server:
        with pytest.raises(ContextLengthError, match=r"step 'a/b/0'.*Give the server a longer context") as caught:
            ask(make(server.base_url))
        assert len(server.asked) == 1
    assert [failure.kind for failure in caught.value.failures.values()] == [FailureKind.CONTEXT_LENGTH]


def test_other_refusals_are_not_taken_for_too_long():
    for message in ("Invalid value: 'input_image'", "temperature must be <= 2", "image is too long a name"):
        with ChatServer(lambda asked, message=message: Answer(error(message), 400)) as server:
            caught = failures(make(server.base_url))
        assert not isinstance(caught, ContextLengthError), message


def test_a_huge_body_is_not_read_on(monkeypatch):
    monkeypatch.setattr(client, "MAX_BODY", 100_000)
    with ChatServer(lambda asked: Answer(completion("x" * 5_000_000))) as server:
        caught = failures(make(server.base_url))
        assert len(server.asked) == 1
    assert "a body of more than 100000 bytes, which was not read on" in str(caught)
    with ChatServer(lambda asked: Answer(completion("x" * 90_000))) as server:
        assert ask(make(server.base_url)) == ["x" * 90_000]


def test_a_long_error_is_cut():
    with ChatServer(lambda asked: Answer(error("long " * 10_000), 400)) as server:
        assert len(str(failures(make(server.base_url)))) < 2000


# --- the key ---


@pytest.fixture
def key(monkeypatch):
    monkeypatch.setenv("TEST_CHAT_KEY", f" {KEY}\n")
    return {"api_key_env": "TEST_CHAT_KEY"}


def texts_of(caught):
    """Whatever a caller could print of an error, chained ones and the variables of all frames included."""
    text = "".join(traceback.TracebackException.from_exception(caught, capture_locals=True).format())
    return text + repr(caught) + str(caught) + repr(vars(caught))


def everything_in(folder):
    return b"".join(path.read_bytes() + str(path).encode() for path in folder.rglob("*") if path.is_file())


ECHOES = {
    "401": lambda echo: Answer(error(f"Incorrect API key provided: {echo}."), 401),
    "400": lambda echo: Answer({echo: f"headers were {{'Authorization': 'Bearer {echo}'}}"}, 400),
    "500": lambda echo: Answer(f"<pre>Authorization: Bearer {echo}</pre>".encode(), 500),
    "307": lambda echo: Answer(b"", 307, {"Location": f"http://elsewhere/?key={echo}"}),
    "no completion": lambda echo: Answer({"error": {"debug": [echo]}}),
    "long": lambda echo: Answer(error("x" * 480 + echo), 400),
}


@pytest.mark.parametrize("quoted", [False, True], ids=["as it is", "quoted"])
@pytest.mark.parametrize("where", ECHOES)
def test_a_key_that_the_server_repeats_shows_nowhere(where, quoted, key, tmp_path, caplog, capfd):
    echo = Secret(KEY)._forms[-1] if quoted else KEY
    assert (echo != KEY) == quoted
    caplog.set_level(logging.DEBUG, logger="switchmem")
    with ChatServer(lambda asked: ECHOES[where](echo)) as server:
        actor = make(server.base_url, tmp_path, **key)
        caught = failures(actor, Sampling(0.7, (1, 2), 8))
        assert server.asked[0].headers["Authorization"] == f"Bearer {KEY}"
    seen = texts_of(caught) + caplog.text + "".join(capfd.readouterr()) + repr(vars(actor)) + str(actor.usage)
    for form in (KEY, echo, KEY[:7]):
        assert form not in seen
    if where != "long":
        assert "***" in str(caught)


def test_a_key_in_an_answer_is_kept_nowhere(key, tmp_path, caplog):
    caplog.set_level(logging.DEBUG)
    body = {**completion(f"the key is {KEY}", **{f"x{KEY}": [KEY]}), "system_fingerprint": KEY, "model": KEY}
    with ChatServer(lambda asked: Answer(body, headers={"X-Request": "1"})) as server:
        actor = make(server.base_url, tmp_path, **key)
        assert ask(actor) == ["the key is ***"]
        assert ask(make(server.base_url, tmp_path, **key)) == ["the key is ***"]
        assert len(server.asked) == 1
    written = everything_in(tmp_path)
    assert b"the key is ***" in written and KEY.encode() not in written
    settings = repr(actor.endpoint) + repr(asdict(actor.endpoint)) + repr(actor.endpoint.identity)
    assert KEY not in caplog.text + settings + repr(vars(actor)) + repr(actor.usage.to_dict())


def test_a_key_goes_to_the_configured_address_alone(key):
    with ChatServer(lambda asked: completion("x")) as other:
        with ChatServer(lambda asked: Answer(b"", 307, {"Location": f"{other.base_url}/chat/completions"})) as server:
            failures(make(server.base_url, **key))
        assert other.asked == []


def test_a_missing_key_is_told_before_anything_is_sent(monkeypatch):
    monkeypatch.setenv("TEST_CHAT_KEY", "  ")
    with ChatServer(lambda asked: completion("x")) as server:
        for name in ("TEST_CHAT_KEY", "TEST_CHAT_KEY_THAT_IS_NOT_SET"):
            with pytest.raises(EndpointError, match=f"got {name}, which is empty or not set. Export it"):
                ask(make(server.base_url, api_key_env=name))
        assert server.asked == []


def test_a_key_that_no_header_can_carry_is_not_shown(monkeypatch):
    monkeypatch.setenv("TEST_CHAT_KEY", "secret-one\nsecret-two")
    with pytest.raises(EndpointError, match="must be printable ASCII without blanks, got other") as caught:
        ask(make("http://127.0.0.1:9/v1", api_key_env="TEST_CHAT_KEY"))
    assert "secret-one" not in "".join(traceback.format_exception(caught.value))


@pytest.mark.parametrize("value", [KEY, "sk-abc", "0123456789abcdef", "abcdef0123456789", ""])
def test_a_key_where_a_name_belongs_is_refused_unseen(value):
    with pytest.raises(EndpointError, match="must be the NAME of an environment variable") as caught:
        Endpoint(api_key_env=value)
    assert not value or value not in str(caught.value)


@pytest.mark.parametrize(
    "url", [f"https://user:{KEY}@host/v1", f"https://{KEY}@host/v1", f"https://host/v1?key={KEY}", f"http://h/#{KEY}"]
)
def test_a_key_in_the_address_is_refused_unseen(url):
    with pytest.raises(EndpointError, match="`base_url` must have no user, password, query or fragment") as caught:
        Endpoint(base_url=url)
    assert KEY not in str(caught.value)


@given(st.text(st.characters(codec="ascii", exclude_characters="*"), min_size=8, max_size=40), st.text(), st.text())
def test_hide_leaves_no_key(value, before, after):
    secret = Secret(value)
    nested = {before + value: [before, {"x": value + after}, 3, None, True]}
    assert value not in repr(secret) and value not in str(list(secret.hide(nested).values())[0][1]["x"])
    assert all(value not in text for text in secret.hide(nested))
    assert secret.hide([1, None, 2.5, "*"]) == [1, None, 2.5, "*"]


def test_placeholders_are_no_secrets():
    """Local servers take any word as a key; answers must not lose that word."""
    assert Secret("EMPTY").hide("EMPTY list") == "EMPTY list" and Secret("").hide("x") == "x"
    assert not Secret("") and Secret("EMPTY")


def test_a_secret_is_not_pickled():
    with pytest.raises(TypeError, match="must not be pickled"):
        pickle.dumps(Secret(KEY))


# --- settings ---


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"base_url": "localhost:8000/v1"}, r"`base_url` must be http\(s\)://HOST"),
        ({"base_url": "ftp://host/v1"}, r"`base_url` must be http\(s\)://HOST"),
        ({"base_url": "http://[::1/v1"}, "`base_url` must be a URL"),
        ({"base_url": "http://host:99999/v1"}, "`base_url` must be a URL"),
        ({"concurrency": 0}, "`concurrency` must be at least 1, got 0"),
        ({"attempts": 0}, "`attempts` must be at least 1, got 0"),
        ({"timeout": 0.0}, "`timeout` must be a number of seconds > 0"),
        ({"total_seconds": float("inf")}, "`total_seconds` must be a number of seconds > 0"),
        ({"backoff": -1.0}, "`backoff` must be a number >= 0"),
        ({"prompt_price": -1.0, "completion_price": 1.0}, "`prompt_price` must be a number >= 0"),
        ({"prompt_price": 1.0}, "`prompt_price` and `completion_price` must be given together"),
        ({"extra_body": {"n": 7, "model": "x"}}, "`extra_body` must leave .* alone, got model, n"),
        ({"extra_body": {"x": {1, 2}}}, "`extra_body` must hold plain JSON values"),
        ({"extra_body": {"x": float("nan")}}, "`extra_body` must hold plain JSON values"),
    ],
)
def test_settings_that_break_a_rule(settings, words):
    with pytest.raises(EndpointError, match=words):
        Endpoint(**settings)


def test_cost_without_prices_is_none_and_cached_tokens_may_cost_the_same():
    assert Endpoint().cost(1, 1, 0) is None
    assert Endpoint(prompt_price=1.0, completion_price=4.0).cost(2_000_000, 500_000, 1_000_000) == 4.0
    assert Endpoint(prompt_price=1.0, completion_price=0.0, cached_price=0.5).cost(100, 0, 900) == pytest.approx(5e-5)
