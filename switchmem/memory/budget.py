"""How a textual screen is cut to a number of tokens without losing what the demonstration is about.

A screen that fits is left as it is. Otherwise, in this order and no further than needed:

1. lines of more than an eighth of the budget, and 32 tokens, have their words shortened, but for the demonstrated one;
2. elements are left out, in the order of their ranks, and a last line tells how many;
3. what may not be left out is shortened: activity and caption first, the demonstrated element last.

Lines keep their order. Everything is decided by the screen and the tokenizer alone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

ELLIPSIS = "…"
SHARE, LEAST = 8, 32
"""A line may take one part in `SHARE` of the budget, and `LEAST` tokens, before its words are shortened."""


class BudgetError(ValueError):
    """A screen cannot be cut to the budget; the message tells the number of tokens that it needs."""


@dataclass(frozen=True)
class Budget:
    """The most tokens of a textual screen.

    Args:
        tokens: the limit, at least 1.
        count: how many tokens a text has, in the actor's own tokenizer.

    Raises:
        BudgetError: if the limit is below 1.
    """

    tokens: int
    count: Callable[[str], int]

    def __post_init__(self) -> None:
        if self.tokens < 1:
            raise BudgetError(f"`state_tokens` must be at least 1 or null, got {self.tokens}.")


@dataclass(frozen=True)
class Entry:
    """One line of a textual screen.

    Args:
        write: the line; with a number, each of its texts has at most so many characters before an ellipsis.
        rank: lines are left out in ascending order of it; None for one that always stays.
        demonstrated: whether the demonstrated action is carried out on it, so that it is shortened last.
    """

    write: Callable[[int | None], str]
    rank: tuple[float, ...] | None = None
    demonstrated: bool = False


def shortened(text: str, most: int | None) -> str:
    """A text of at most `most` characters and an ellipsis; None leaves it whole.

    >>> shortened("Terms of service", 5)
    'Terms…'
    """
    if most is None or len(text) <= most + len(ELLIPSIS):
        return text
    return text[:most].rstrip() + ELLIPSIS


def fit(entries: Sequence[Entry], separator: str, note: str, budget: Budget) -> str:
    """The lines as one text within the budget.

    Args:
        entries: in reading order.
        separator: between two lines.
        note: the last line where some were left out; holds ``{count}``. "" for no such line.
        budget: the most tokens of the text.

    Returns:
        A text of at most ``budget.tokens`` tokens, counted as a whole.

    Raises:
        BudgetError: if what may not be left out does not fit even when it is shortened to ellipses.
    """
    screen = _Screen(entries, separator, note, budget)
    whole = screen.size()
    if whole <= budget.tokens:
        return screen.text()
    screen.shorten_long_lines()
    screen.leave_out()
    sizes = [whole, screen.size()]
    for demonstrated in (False, True):
        if sizes[-1] > budget.tokens:
            screen.shorten_all(demonstrated)
            sizes.append(screen.size())
    if sizes[-1] > budget.tokens:
        raise BudgetError(
            f"`state_tokens` must be at least {min(sizes)} for what may not be left out of this screen, got "
            f"{budget.tokens}. Raise it, or set it to null for no limit."
        )
    return screen.text()


class _Screen:
    """The lines as they stand while they are cut; `kept` are the numbers of those that are still there."""

    def __init__(self, entries: Sequence[Entry], separator: str, note: str, budget: Budget) -> None:
        self.entries, self.separator, self.note, self.budget = entries, separator, note, budget
        self.texts = [entry.write(None) for entry in entries]
        self.kept = list(range(len(entries)))

    def text(self) -> str:
        lines = [self.texts[n] for n in self.kept]
        missing = len(self.texts) - len(self.kept)
        if missing and self.note:
            lines.append(self.note.format(count=missing))
        return self.separator.join(lines)

    def size(self) -> int:
        return self.budget.count(self.text())

    def shorten_long_lines(self) -> None:
        """Shorten each line, but for the demonstrated, that takes more than its share of the budget."""
        share = max(self.budget.tokens // SHARE, LEAST)
        for n, entry in enumerate(self.entries):
            if not entry.demonstrated and self.budget.count(self.texts[n]) > share:
                self._shorten([n], partial(self._line_fits, n, share))

    def _line_fits(self, n: int, share: int) -> bool:
        return self.budget.count(self.texts[n]) <= share

    def leave_out(self) -> None:
        """Leave out lines until the rest fits, as far as there are lines that may go."""
        ranks = {n: entry.rank for n, entry in enumerate(self.entries) if entry.rank is not None}
        going = sorted(ranks, key=lambda n: ranks[n])
        # Each line is counted once. The sum may be off by what tokens span two lines, so the whole is counted after.
        costs = [self.budget.count(text + self.separator) for text in self.texts]
        excess = sum(costs) + self.budget.count(self.note.format(count=len(going))) - self.budget.tokens
        gone = 0
        while gone < len(going) and excess > 0:
            excess -= costs[going[gone]]
            gone += 1
        self._keep_all_but(going[:gone])
        while gone < len(going) and self.size() > self.budget.tokens:
            gone += 1
            self._keep_all_but(going[:gone])

    def _keep_all_but(self, gone: Sequence[int]) -> None:
        self.kept = sorted(set(range(len(self.entries))) - set(gone))

    def shorten_all(self, demonstrated: bool) -> None:
        """Shorten what is left, the demonstrated line or all others, until the whole fits."""
        lines = [n for n in self.kept if self.entries[n].demonstrated is demonstrated]
        self._shorten(lines, lambda: self.size() <= self.budget.tokens)

    def _shorten(self, lines: Sequence[int], fits: Callable[[], bool]) -> None:
        """Give lines the most characters per text with which it fits; as few as there can be where none fits."""
        earlier = [self.texts[n] for n in lines]

        def try_(most: int) -> bool:
            for n, text in zip(lines, earlier, strict=True):
                shorter = self.entries[n].write(most)
                self.texts[n] = shorter if len(shorter) < len(text) else text
            return fits()

        try_(largest(max(map(len, earlier), default=0), try_))


def largest(most: int, fits: Callable[[int], bool]) -> int:
    """The largest number from 0 to `most` that fits, where all smaller ones fit too; 0 where none does.

    It doubles before it halves, so that no number is tried that is far above the answer.

    >>> largest(1000, lambda n: n <= 37)
    37
    """
    low, high = 0, 1
    while high <= most and fits(high):
        low, high = high, 2 * high
    high = min(high, most + 1)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low
