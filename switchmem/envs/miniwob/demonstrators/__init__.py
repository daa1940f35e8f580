"""Scripted demonstrators of MobileMiniWoB++: they solve its tasks through the public action space alone.

env = MiniWobEnv()
episode = demonstrate(env, "click-button", instance_seed(7, "click-button"))
steps = episode_steps(episode)
"""

from __future__ import annotations

from collections.abc import Mapping

from switchmem.envs.miniwob.demonstrators import buttons, drawings, forms, lists, menus, messages
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
    "choose-date": lists.choose_date,
    "choose-date-easy": lists.choose_date,
    "choose-date-medium": lists.choose_date,
    "enter-date": lists.enter_date,
    "enter-time": lists.enter_time,
    "scroll-text": lists.last_word,
    "scroll-text-2": lists.scroll_end,
    "use-autocomplete": lists.complete_word,
    "use-slider": lists.slide,
    "email-inbox": messages.mail,
    "email-inbox-delete": messages.mail,
    "email-inbox-forward": messages.mail,
    "email-inbox-forward-nl": messages.mail_in_free_words,
    "email-inbox-forward-nl-turk": messages.mail_in_free_words,
    "email-inbox-important": messages.mail,
    "email-inbox-nl-turk": messages.mail_in_free_words,
    "email-inbox-noscroll": messages.mail,
    "email-inbox-reply": messages.mail,
    "email-inbox-star-reply": messages.mail,
    "search-engine": messages.search,
    "social-media": messages.post,
    "social-media-all": messages.posts,
    "social-media-some": messages.posts,
    "book-flight": menus.flight,
    "click-menu-2": menus.menu,
    "click-pie": menus.pie,
    "guess-number": menus.guess_number,
    "navigate-tree": menus.tree,
    "terminal": menus.terminal,
    "tic-tac-toe": menus.tic_tac_toe,
    "circle-center": drawings.centre,
    "click-shape": drawings.click_shape,
    "count-shape": drawings.count_shapes,
    "count-sides": drawings.count_sides,
    "find-midpoint": drawings.midpoint,
    "grid-coordinate": drawings.grid,
    "identify-shape": drawings.identify_shape,
    "visual-addition": drawings.count_blocks,
}


def demonstrate(env: MiniWobEnv, task: str, seed: int) -> Episode:
    """Let a task's demonstrator play an instance.

    Raises:
        KeyError: if the task has no demonstrator.
        EpisodeError: if the page does not begin.
    """
    return _episodes.demonstrate(env, task, seed, DEMONSTRATORS)
