"""LearnGUI's official score, on the action strings of its authors, and a corrected variant beside it.

The official rule is kept with its behaviours, since published numbers rest on them:

- A click is right within ``int(0.14 * width)`` pixels of the recorded one: a share of the *width* on both axes.
- A typed text is right when the F1 of its set of lower-case words is at least 0.5. The F1 is a float of two rounded
  quotients, so that some texts exactly at 0.5 (6 common words of 11 and 13) miss it. Blank texts count as different.
- The direction of a swipe must be equal; the answer of TASK_COMPLETE is never compared.
- LONG_PRESS has no parser, and TASK_IMPOSSIBLE and unknown strings no rule: equal ones agree in type and never match.
- The parser searches for CLICK, then SWIPE, then TYPE anywhere in the string: ``TYPE[see CLICK[1,2]]`` is a click. A
  text ends at the first "]". CLICK and SWIPE are read in any case, the others in capitals alone. A blank or a decimal
  point within a click's brackets makes it unknown.

The corrected variant reads the string as a whole; see `is_corrected_match`. It is another benchmark by name, so that
neither stages nor results of the two can mix.
"""

from __future__ import annotations

from fractions import Fraction

from switchmem.benchmarks.learngui.strings import CORRECTED_NAME, NAME, Parsed, action_string, parse_action, parse_whole
from switchmem.steps import Action, Step

DEFAULT_WIDTH = 1440  # pixels; what the authors assume where they cannot read the screenshot
TOLERANCE_RATIO = 0.14
F1_THRESHOLD = 0.5

_AT_PIXEL = ("CLICK", "LONG_PRESS")
_BY_TYPE = ("PRESS_BACK", "PRESS_HOME", "PRESS_ENTER", "TASK_COMPLETE")


def words_f1(first: str, second: str) -> float:
    """F1 of the two texts' sets of lower-case words, rounded as the authors' is; 1.0 if both texts are empty.

    >>> words_f1("foo bar", "Foo"), words_f1("", ""), words_f1(" ", " ")
    (0.6666666666666666, 1.0, 0.0)
    """
    if not first and not second:
        return 1.0
    a, b = set(first.lower().split()), set(second.lower().split())
    common = len(a & b)
    if not common:
        return 0.0
    precision, recall = common / len(a), common / len(b)
    return 2 * (precision * recall) / (precision + recall)


def _exact_f1(first: str, second: str) -> Fraction:
    """The same without rounding; texts of blanks alone are empty."""
    a, b = set(first.lower().split()), set(second.lower().split())
    return Fraction(2 * len(a & b), len(a) + len(b)) if a or b else Fraction(1)


def _is_near(pred: Parsed, gold: Parsed, tolerance: int) -> bool:
    """Whether two places are within `tolerance` pixels; a string that says only "CLICK" has none."""
    if len(pred) != 3 or len(gold) != 3 or tolerance < 0:
        return False
    # squares, since a square root would not take integers of hundreds of digits
    return sum((a - b) ** 2 for a, b in zip(_place(pred), _place(gold), strict=True)) <= tolerance**2


def _place(parsed: Parsed) -> list[float]:
    return [value for value in parsed[1:] if not isinstance(value, str)]


def _argument(parsed: Parsed) -> str:
    return str(parsed[1]) if len(parsed) > 1 else ""


def is_action_match(
    pred: str | None,
    gold: str | None,
    width: int = DEFAULT_WIDTH,
    tolerance_ratio: float = TOLERANCE_RATIO,
    f1_threshold: float = F1_THRESHOLD,
) -> tuple[bool, bool]:
    """Whether a predicted action matches the recorded one, by LearnGUI's official rule.

    Args:
        pred: the predicted action's string, such as ``CLICK[156,2067]``.
        gold: the recorded one's.
        width: of the screenshot in pixels, > 0.
        tolerance_ratio: share of `width`, rounded down to whole pixels, that a click may be off.
        f1_threshold: least F1 of a typed text, in [0, 1].

    Returns:
        ``(full, type)``: whether all of the action is right, and whether its type is. LearnGUI's step accuracy is the
        mean of the first.

    Example:
        >>> is_action_match("CLICK[120,80]", "click[100,100]"), is_action_match("TYPE[a b]", "TYPE[b c]")
        ((True, True), (True, True))
        >>> is_action_match("TASK_IMPOSSIBLE", "TASK_IMPOSSIBLE"), is_action_match("CLICK[120, 80]", "CLICK[120,80]")
        ((False, True), (False, False))
    """
    first, second = parse_action(pred), parse_action(gold)
    if first is None or second is None or first[0] != second[0]:
        return False, False
    kind = second[0]
    if kind in _AT_PIXEL:
        return _is_near(first, second, int(width * tolerance_ratio)), True
    if kind == "TYPE":
        return words_f1(_argument(first), _argument(second)) >= f1_threshold, True
    if kind == "SWIPE":
        return _argument(first) == _argument(second), True
    return kind in _BY_TYPE, True


def is_corrected_match(
    pred: str | None,
    gold: str | None,
    width: int = DEFAULT_WIDTH,
    tolerance_ratio: float = TOLERANCE_RATIO,
    f1_threshold: float = F1_THRESHOLD,
) -> tuple[bool, bool]:
    """What `is_action_match` seems meant to be: every recorded action can be matched, and texts are compared whole.

    A long press is compared as a click is; TASK_IMPOSSIBLE matches by type; the whole typed text is compared, with an
    exact F1 and blank texts equal; blanks, decimal points and any case are read. Strings that are no action do not even
    agree in type. What stays: the tolerance, the threshold, and that the answer of TASK_COMPLETE is not compared, since
    the recordings give many right answers in other words.

    Args:
        pred: as in `is_action_match`.
        gold: as in `is_action_match`.
        width: as in `is_action_match`.
        tolerance_ratio: as in `is_action_match`.
        f1_threshold: as in `is_action_match`.

    Returns:
        ``(full, type)``.

    Example:
        >>> is_corrected_match("TASK_IMPOSSIBLE", "TASK_IMPOSSIBLE")
        (True, True)
        >>> is_corrected_match("CLICK[120, 80]", "CLICK[120,80]")
        (True, True)
    """
    first, second = parse_whole(pred), parse_whole(gold)
    if first is None or second is None or first[0] != second[0]:
        return False, False
    kind = second[0]
    if kind in _AT_PIXEL:
        return _is_near(first, second, int(width * tolerance_ratio)), True
    if kind == "TYPE":
        return _exact_f1(_argument(first), _argument(second)) >= f1_threshold, True
    return kind != "SWIPE" or _argument(first) == _argument(second), True


class LearnGuiBenchmark:
    """LearnGUI's name and official score: 1.0 for a full match by `is_action_match`, else 0.0.

    Predicted and recorded action are both written as LearnGUI's strings, places in whole pixels of the recorded
    screenshot, and then compared; see `action_string`.
    """

    name = NAME
    corrected = False

    def score(self, action: Action | None, gold: Step) -> float:
        """Score one predicted action; 0.0 for None, and for actions that LearnGUI does not have."""
        if action is None:
            return 0.0
        width, height = gold.screenshot.width, gold.screenshot.height
        match = is_corrected_match if self.corrected else is_action_match
        full, _ = match(action_string(action, width, height), action_string(gold.action, width, height), width)
        return float(full)


class CorrectedLearnGuiBenchmark(LearnGuiBenchmark):
    """LearnGUI with the score of `is_corrected_match`; its numbers are not comparable with published ones."""

    name = CORRECTED_NAME
    corrected = True
