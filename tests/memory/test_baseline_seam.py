"""Rounds of calls, what a writer gives for them, where that is kept, and what it costs."""

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from switchmem.memory.baseline import Charge, Spent, View, WriterCall, Written, run_rounds
from switchmem.memory.writing import (
    Fault,
    KeptWriter,
    TemplateWriter,
    Unusable,
    checked_text,
    costs,
    offline_costs,
    read_fields,
)


def call(text, **fields):
    return WriterCall((text,), 8, f"draft of {text}", **fields)


def talking(name, rounds):
    """A showing that asks `rounds` times and shows what it was told."""
    heard = []
    for n in range(rounds):
        heard += [w.text for w in (yield [call(f"{name}{n}"), call(f"{name}{n}'")])]
    return View(memory=tuple(heard))


class Echo:
    fingerprint = "echo"

    def __init__(self):
        self.batches = []

    def write(self, calls):
        self.batches.append([c.parts[0] for c in calls])
        return [Written(f"<{c.parts[0]}>", 1, 5, 2, 0.25) for c in calls]


def test_rounds_are_written_together_and_each_showing_gets_its_own():
    writer = Echo()
    rounds = run_rounds([talking("a", 2), talking("b", 0), talking("c", 1)], writer)
    assert writer.batches == [["a0", "a0'", "c0", "c0'"], ["a1", "a1'"]]
    assert [view.memory for view, _ in rounds] == [("<a0>", "<a0'>", "<a1>", "<a1'>"), (), ("<c0>", "<c0'>")]
    assert [len(spent.calls) for _, spent in rounds] == [4, 0, 2]


def test_a_template_fills_the_draft_and_counts_no_call():
    (written,) = TemplateWriter().write([call("a")])
    assert written.text == "draft of a" and written.calls == 0
    assert costs(Spent((call("a"),), (written,)), "template")["calls"] == 0


def test_kept_answers_are_not_asked_again_and_cost_what_they_cost_first(tmp_path):
    first, second = Echo(), Echo()
    made = KeptWriter(first, tmp_path).write([call("a"), call("b"), call("a")])
    assert first.batches == [["a", "b"]] and made[0] == made[2] and not made[0].kept
    again = KeptWriter(second, tmp_path).write([call("b"), call("c")])
    assert second.batches == [["c"]]
    assert again[0] == replace(made[1], kept=True) and again[0].seconds == 0.25


def test_a_killed_writer_keeps_what_it_had_written(tmp_path):
    class Dies(Echo):
        def write(self, calls):
            if len(self.batches) == 2:
                raise KeyboardInterrupt
            return super().write(calls)

    calls = [call(name) for name in "abcdefg"]
    with pytest.raises(KeyboardInterrupt):
        KeptWriter(Dies(), tmp_path, together=2).write(calls)
    living = Echo()
    found = KeptWriter(living, tmp_path).write(calls)
    assert living.batches == [["e", "f", "g"]]
    assert [w.text for w in found] == [f"<{name}>" for name in "abcdefg"]


@pytest.mark.parametrize("broken", [b"", b"{", b"[]", b'{"text": 3}', b'{"text": "x", "seconds": "long"}', b"\xff"])
def test_a_broken_kept_answer_is_told_and_asked_again(tmp_path, caplog, broken):
    writer = Echo()
    KeptWriter(writer, tmp_path).write([call("a")])
    (path,) = tmp_path.rglob("*.json")
    path.write_bytes(broken)
    (found,) = KeptWriter(writer, tmp_path).write([call("a")])
    assert found.text == "<a>" and not found.kept and len(writer.batches) == 2
    assert "is no kept answer" in caplog.text
    assert json.loads(path.read_text())["text"] == "<a>"


def test_the_key_changes_with_all_that_decides_an_answer_and_with_nothing_else():
    picture = Image.new("RGB", (4, 4), "red")
    one = WriterCall(("a", picture), 8, "draft", "system")
    others = [
        replace(one, parts=("b", picture)),
        replace(one, parts=("a", Image.new("RGB", (4, 4), "blue"))),
        replace(one, parts=("a", Image.new("RGB", (8, 2), "red"))),
        replace(one, parts=("a",)),
        replace(one, max_tokens=9),
        replace(one, system=""),
    ]
    keys = {other.key("w") for other in others}
    assert len(keys) == len(others) and one.key("w") not in keys and one.key("v") not in {*keys, one.key("w")}
    assert one.key("w") == replace(one, draft="", charge=Charge.OFFLINE, parts=("a", picture.copy())).key("w")


def test_only_a_steps_own_calls_are_charged_to_it_and_the_banks_once():
    calls = (call("s"), call("e", charge=Charge.EARLIER), call("o", charge=Charge.OFFLINE))
    answers = tuple(Written("x", 1, 10, 2, 0.5, kept=n == 1) for n in range(3))
    row = costs(Spent(calls, answers), "w")
    assert (row["calls"], row["tokens_in"], row["tokens_out"], row["seconds"], row["kept"]) == (1, 10, 2, 0.5, 1)
    other = costs(Spent((calls[2], call("p", charge=Charge.OFFLINE)), answers[:2]), "w")
    whole = offline_costs([row, other, row])
    assert whole == {"answers": 2, "calls": 2, "tokens_in": 20, "tokens_out": 4, "seconds": 1.0}
    assert offline_costs([]) == {"answers": 0, "calls": 0, "tokens_in": 0, "tokens_out": 0, "seconds": 0.0}


def test_tokens_that_are_not_told_are_not_counted_as_none():
    row = costs(Spent((call("a"), call("b")), (Written("x", 1, None, 2), Written("x", 1, 4, 2))), "w")
    assert row["tokens_in"] is None and row["tokens_out"] == 4


@pytest.mark.parametrize(
    "text, fault",
    [
        ("", Fault.EMPTY),
        ("  ... \n", Fault.EMPTY),
        ("<think>I think</think>\n", Fault.EMPTY),
        ("I'm sorry, but I can't help with that.", Fault.REFUSAL),
        ("**I cannot** see a phone", Fault.REFUSAL),
        ("As an AI model, I have no phone", Fault.REFUSAL),
        ("tap r3c2", Fault.ACTION),
    ],
)
def test_what_is_no_text(text, fault):
    with pytest.raises(Unusable) as error:
        checked_text(text, is_action=lambda line: line.startswith("tap r"))
    assert error.value.fault is fault


def test_a_long_text_is_cut_at_a_blank():
    assert checked_text("one two three", 9) == "one two" and checked_text("onetwothree", 3) == "one"


NAMES = ("Relevant", "Guideline")
words = st.text("abcdefghij XYZ,.'()", min_size=1).filter(lambda s: any(c.isalpha() for c in s))


@given(words, words, st.sampled_from(["", "- ", "**", "# "]), st.booleans())
def test_fields_are_read_back_in_any_dress(first, second, dress, upper):
    values = {"Relevant": " ".join(first.split()), "Guideline": " ".join(second.split())}
    lines = [f"{dress}{name.upper() if upper else name}: {value}" for name, value in values.items()]
    assert read_fields("Sure.\n" + "\n".join(lines), NAMES, 10_000) == values


def test_a_value_goes_on_until_the_next_name():
    text = "Relevant: yes,\n it is\nGuideline: Tap\nthe bell: it rings"
    assert read_fields(text, NAMES) == {"Relevant": "yes, it is", "Guideline": "Tap the bell: it rings"}


@pytest.mark.parametrize("text", ["Relevant: yes", "The bell", "Relevant yes\nGuideline tap"])
def test_a_missing_field_is_malformed(text):
    with pytest.raises(Unusable) as error:
        read_fields(text, NAMES)
    assert error.value.fault is Fault.MALFORMED


@given(st.text(max_size=300))
def test_reading_raises_nothing_else(text):
    try:
        found = read_fields(text, NAMES)
    except Unusable:
        return
    assert set(found) == set(NAMES) and all(found.values())
