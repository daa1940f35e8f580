"""Scripted demonstrators of MobileMiniWoB++: they solve its tasks through the public action space alone.

env = MiniWobEnv()
episode = demonstrate(env, "click-button", instance_seed(7, "click-button"))
steps = episode_steps(episode)
"""

from __future__ import annotations

from collections.abc import Mapping

from switchmem.envs.miniwob.demonstrators import buttons, forms, lists
from switchmem.envs.miniwob.demonstrators import episodes as _episodes
from switchmem.envs.miniwob.demonstrators.episodes import Demonstrator, Episode, as_action, episode_steps
from switchmem.envs.miniwob.demonstrators.view import Lost, View
from switchmem.envs.miniwob.env import MiniWobEnv

__all__ = ["DEMONSTRATORS", "Demonstrator", "Episode", "Lost", "View", "as_action", "demonstrate", "episode_steps"]

DEMONSTRATORS: Mapping[str, Demonstrator] = {
    "click-button": buttons.click_named,
    "click-button-sequence": buttons.tap_button("ONE", "TWO"),
    "click-collapsible": buttons.expand_and_submit,
    "click-collapsible-2": buttons.expand_and_find,
    "click-color": buttons.click_colour,
    "click-dialog": buttons.click_dialog,
    "click-dialog-2": buttons.click_dialog,
    "click-link": buttons.click_link,
    "click-shades": buttons.click_shades,
    "click-tab": buttons.click_tab,
    "click-tab-2": buttons.click_tab_link,
    "click-tab-2-easy": buttons.click_tab_link,
    "click-tab-2-hard": buttons.click_tab_link,
    "click-tab-2-medium": buttons.click_tab_link,
    "click-test": buttons.tap_button(),
    "click-test-2": buttons.tap_button("ONE"),
    "click-test-transfer": buttons.tap_button("ONE"),
    "click-widget": buttons.click_widget,
    "unicode-test": buttons.click_named,
    "click-checkboxes": lists.check,
    "click-checkboxes-large": lists.check,
    "click-checkboxes-soft": lists.check_alike,
    "click-checkboxes-transfer": lists.check,
    "click-option": lists.pick_radio,
    "choose-list": lists.pick_from_list,
    "click-scroll-list": lists.pick_several,
    "copy-paste": forms.copy_text,
    "copy-paste-2": forms.copy_text,
    "enter-password": forms.enter_quoted,
    "enter-text": forms.enter_quoted,
    "enter-text-2": forms.enter_in_case,
    "enter-text-dynamic": forms.enter_quoted,
    "find-word": forms.find_word,
    "focus-text": forms.focus,
    "focus-text-2": forms.focus,
    "login-user": forms.login,
    "login-user-popup": forms.login,
    "multi-layouts": forms.search_film,
    "multi-orderings": forms.search_film,
    "read-table": forms.read_table,
    "read-table-2": forms.read_table_twice,
    "simple-algebra": forms.algebra,
    "simple-arithmetic": forms.arithmetic,
    "text-transform": forms.read_captcha,
}


def demonstrate(env: MiniWobEnv, task: str, seed: int) -> Episode:
    """Let a task's demonstrator play an instance.

    Raises:
        KeyError: if the task has no demonstrator.
        EpisodeError: if the page does not begin.
    """
    return _episodes.demonstrate(env, task, seed, DEMONSTRATORS)
