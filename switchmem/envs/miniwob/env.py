"""MobileMiniWoB++ as a Gymnasium environment: a screen in, a phone's action out, success or failure at the end.

    env = MiniWobEnv()
    screen, info = env.reset(seed=instance_seed(42, "click-button"), options={"task": "click-button"})
    screen, reward, terminated, truncated, info = env.step(PhoneAction(PhoneActionType.CLICK, x=120, y=410))

Each episode has a fresh page in a fresh profile. The page's clock stands at 2023-10-15 15:34 UTC when it begins and
runs only while an action is carried out, always by the same time: what timers do depends on the steps, not on the
machine.
"""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import gymnasium
from playwright.async_api import Error as PlaywrightError

from switchmem.envs.base import GOAL, Ending, PhoneAction, Screen
from switchmem.envs.miniwob.accessibility import elements_of
from switchmem.envs.miniwob.acting import perform
from switchmem.envs.miniwob.browser import Browser
from switchmem.envs.miniwob.geometry import Geometry
from switchmem.envs.miniwob.page import PageGone, TaskPage
from switchmem.envs.miniwob.picture import encode
from switchmem.envs.miniwob.tasks import page_of, pages_root
from switchmem.envs.spaces import PhoneActionSpace, ScreenSpace

MAX_STEPS = 30  # AndroidWorld: ten per degree of complexity, which is 3 for all of these tasks
STEP_MS = 2000  # what AndroidWorld's agents wait after an action
_WHY_SECONDS = 3.0
_CLOSE_SECONDS = 20.0


class EpisodeError(RuntimeError):
    """An episode could not be begun. It counts as a failure; `ending` says why.

    Args:
        ending: why.
        message: for people.
    """

    def __init__(self, ending: Ending, message: str) -> None:
        super().__init__(message)
        self.ending = ending


class MiniWobEnv(gymnasium.Env[Screen, PhoneAction]):
    """The 92 tasks of MobileMiniWoB++ in headless Chromium.

    Args:
        browser: to open pages in; several environments may share one, from several threads. None starts one, which
            `close` ends.
        html_root: the folder of the pages, as `pages_root`.
        max_steps: actions in an episode, > 0.
        padded: whether screenshots are the phone's whole screen (1080 x 2400), else the page alone (1080 x 2180).
        step_ms: how far the page's clock runs after each action, in milliseconds, >= 0.
        patience: seconds that a page may take to load, or to answer an action, > 0.

    Raises:
        PagesError: if there are no pages.
        BrowserError: if there is no browser.
    """

    metadata = {"render_modes": []}

    def __init__(
        self,
        browser: Browser | None = None,
        html_root: str | Path | None = None,
        max_steps: int = MAX_STEPS,
        padded: bool = False,
        step_ms: int = STEP_MS,
        patience: float = 30.0,
    ) -> None:
        for name, value, least in (("max_steps", max_steps, 1), ("step_ms", step_ms, 0)):
            if value < least:
                raise ValueError(f"`{name}` must be >= {least}, got {value}.")
        if patience <= 0:
            raise ValueError(f"`patience` must be > 0 seconds, got {patience}.")
        self.root = pages_root(html_root)
        self.geometry = Geometry(padded)
        self.max_steps, self.step_ms, self.patience = max_steps, step_ms, patience
        self.observation_space = ScreenSpace(*self.geometry.size)
        self.action_space = PhoneActionSpace(*self.geometry.size)
        self._owns_browser = browser is None
        self.browser = Browser() if browser is None else browser
        self._page: TaskPage | None = None
        self._screen: Screen | None = None
        self._steps = 0
        self._ending: Ending | None = None

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Screen, dict[str, Any]]:
        """Begin a task.

        Args:
            seed: of the instance, in [0, 2^32); None draws one.
            options: ``{"task": name}``.

        Returns:
            The first screen, and ``{"task", "seed", "utterance"}``.

        Raises:
            EpisodeError: if the task has no page, or its page does not begin.
            ValueError: if no task is named.
        """
        super().reset(seed=seed)
        task = (options or {}).get("task")
        if not isinstance(task, str):
            raise ValueError(f'`options` must be {{"task": name}}, got {options!r}. `TASKS` lists the names.')
        seed = int(self.np_random.integers(2**32)) if seed is None else seed
        self._leave()
        path = page_of(task, self.root)
        if not path.is_file():
            raise EpisodeError(Ending.MISSING_PAGE, f"the task {task!r} must have a page, got none at {path}.")
        self._steps, self._ending = 0, None
        self.browser.start()  # takes longer than a page may
        try:
            self._screen = self.browser.call(self._begin(path.as_uri(), seed), self.patience)
        except (PageGone, PlaywrightError, TimeoutError) as error:
            ending, detail = self._gone(error)
            self._leave()
            raise EpisodeError(
                ending, f"the page of {task!r} must begin its task, got {ending.value}: {detail}."
            ) from error
        assert self._page is not None
        return self._screen, {"task": task, "seed": seed, "utterance": self._page.utterance}

    async def _begin(self, url: str, seed: int) -> Screen:
        page = self._page = await TaskPage.open(await self.browser.context())

        async def until_seen() -> Screen:
            await page.begin(url, seed)
            await page.pass_time(self.step_ms)
            return await self._look()

        return await page.while_alive(until_seen())

    def step(self, action: PhoneAction) -> tuple[Screen, float, bool, bool, dict[str, Any]]:
        """Carry out an action.

        Returns:
            The screen after it (where the page is gone: the last one there was); 1.0 on success, else 0.0; whether the
            episode is over; whether that is because its steps are used up; and ``{"reason", "detail", "raw_reward"}``:
            an `Ending` or None, a few words on it, and what the page said, or None.

        Raises:
            gymnasium.error.ResetNeeded: if no episode is running.
        """
        page, screen = self._page, self._screen
        if page is None or screen is None or self._ending is not None:
            raise gymnasium.error.ResetNeeded("`step` must follow `reset`, got no running episode. Call `reset` first.")
        self._steps += 1
        ending, detail = None, ""
        try:
            ending = self.browser.call(page.while_alive(self._carry_out(action)), self.patience)
        except (PageGone, PlaywrightError, TimeoutError) as error:
            ending, detail = self._gone(error)
        ending = self._judge(ending)
        self._ending = ending
        info = {"reason": ending, "detail": detail or page.detail, "raw_reward": page.raw_reward}
        is_over = ending is not None and ending is not Ending.BUDGET
        assert self._screen is not None
        return self._screen, float(ending is Ending.SUCCESS), is_over, ending is Ending.BUDGET, info

    def _judge(self, ending: Ending | None) -> Ending | None:
        """What the page said counts first: a reward is a reward, even if the page is left right after."""
        page = self._page
        assert page is not None
        if page.raw_reward is not None:
            return Ending.SUCCESS if page.raw_reward == 1.0 else Ending.FAILURE
        if ending is None and page.ended is None and self._steps >= self.max_steps:
            return Ending.BUDGET
        return ending or page.ended

    def _gone(self, error: Exception) -> tuple[Ending, str]:
        """Why a page could not be asked: what it did, else what the error says."""
        if isinstance(error, PageGone):
            return error.ending, error.detail
        page = self._page
        if isinstance(error, PlaywrightError) and page is not None:
            # the browser tells that a page is gone before it tells why
            self.browser.call(page.wait_for_end(_WHY_SECONDS), 2 * _WHY_SECONDS)
        if page is not None and page.ended is not None:
            return page.ended, page.detail
        if isinstance(error, TimeoutError):
            if page is not None:
                self.browser.call(page.kill(), _CLOSE_SECONDS)
            return Ending.TIMEOUT, f"no answer in {self.patience:g} s"
        return Ending.PAGE_CRASH, str(error)

    async def _carry_out(self, action: PhoneAction) -> Ending | None:
        page, screen = self._page, self._screen
        assert page is not None and screen is not None
        ending = await perform(page, action, screen, self.geometry)
        if ending is None and page.ended is None:
            await page.pass_time(self.step_ms)
            screen = await self._look()
            if page.ended is None:
                self._screen = screen
        return ending

    async def _look(self) -> Screen:
        page = self._page
        assert page is not None
        nodes, snapshot = await page.tree()
        shot = encode(await page.screenshot(), self.geometry)
        return Screen(shot, elements_of(nodes, snapshot, self.geometry), GOAL.format(utterance=page.utterance))

    def evaluate(self, script: str) -> Any:
        """The JSON value of a script in the page's own world: for scripted demonstrators and tests, never for an agent.

        Raises:
            gymnasium.error.ResetNeeded: if there is no page.
        """
        if self._page is None:
            raise gymnasium.error.ResetNeeded("`evaluate` must follow `reset`, got no page. Call `reset` first.")
        return self.browser.call(self._page.evaluate(script), self.patience)

    def _leave(self) -> None:
        page, self._page, self._screen = self._page, None, None
        if page is None:
            return
        try:
            self.browser.call(page.close(), _CLOSE_SECONDS)
        except PlaywrightError:
            return  # a browser that died has closed it
        except TimeoutError:
            warnings.warn("a page could not be closed and stays open until its browser is closed.", stacklevel=3)

    def close(self) -> None:
        """Close the page, and the browser if it is the environment's own."""
        self._leave()
        if self._owns_browser:
            self.browser.close()
