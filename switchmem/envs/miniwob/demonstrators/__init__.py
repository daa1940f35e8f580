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

__all__ = [
    "DEMONSTRATORS",
    "OUT_OF_REACH",
    "PARTLY_OUT_OF_REACH",
    "Demonstrator",
    "Episode",
    "Lost",
    "View",
    "as_action",
    "demonstrate",
    "episode_steps",
]

DEMONSTRATORS: dict[str, Demonstrator] = {
    "book-flight": menus.flight,
    "choose-date": lists.choose_date,
    "choose-date-easy": lists.choose_date,
    "choose-date-medium": lists.choose_date,
    "choose-list": lists.pick_from_list,
    "click-button": buttons.click_named,
    "click-button-sequence": buttons.tap_button("ONE", "TWO"),
    "click-checkboxes": lists.check,
    "click-checkboxes-large": lists.check,
    "click-checkboxes-soft": lists.check_alike,
    "click-checkboxes-transfer": lists.check,
    "click-collapsible": buttons.expand_and_submit,
    "click-collapsible-2": buttons.expand_and_find,
    "click-color": buttons.click_colour,
    "click-dialog": buttons.click_dialog,
    "click-dialog-2": buttons.click_dialog,
    "click-link": buttons.click_link,
    "click-menu-2": menus.menu,
    "click-option": lists.pick_radio,
    "click-pie": menus.pie,
    "click-scroll-list": lists.pick_several,
    "click-shades": buttons.click_shades,
    "click-shape": drawings.click_shape,
    "click-tab": buttons.click_tab,
    "click-tab-2": buttons.click_tab_link,
    "click-tab-2-easy": buttons.click_tab_link,
    "click-tab-2-hard": buttons.click_tab_link,
    "click-tab-2-medium": buttons.click_tab_link,
    "click-test": buttons.tap_button(),
    "click-test-2": buttons.tap_button("ONE"),
    "click-test-transfer": buttons.tap_button("ONE"),
    "click-widget": buttons.click_widget,
    "copy-paste": forms.copy_text,
    "copy-paste-2": forms.copy_text,
    "count-shape": drawings.count_shapes,
    "count-sides": drawings.count_sides,
    "email-inbox": messages.mail,
    "email-inbox-delete": messages.mail,
    "email-inbox-forward": messages.mail,
    "email-inbox-forward-nl": messages.mail_in_free_words,
    "email-inbox-forward-nl-turk": messages.mail_in_free_words,
    "email-inbox-important": messages.mail,
    "email-inbox-nl-turk": messages.mail_in_free_words,
    "email-inbox-noscroll": messages.mail,
    "email-inbox-star-reply": messages.mail,
    "enter-date": lists.enter_date,
    "enter-password": forms.enter_quoted,
    "enter-text": forms.enter_quoted,
    "enter-text-2": forms.enter_in_case,
    "enter-text-dynamic": forms.enter_quoted,
    "enter-time": lists.enter_time,
    "find-midpoint": drawings.midpoint,
    "find-word": forms.find_word,
    "focus-text": forms.focus,
    "focus-text-2": forms.focus,
    "grid-coordinate": drawings.grid,
    "guess-number": menus.guess_number,
    "identify-shape": drawings.identify_shape,
    "login-user": forms.login,
    "login-user-popup": forms.login,
    "multi-layouts": forms.search_film,
    "multi-orderings": forms.search_film,
    "navigate-tree": menus.tree,
    "read-table": forms.read_table,
    "read-table-2": forms.read_table_twice,
    "scroll-text": lists.last_word,
    "scroll-text-2": lists.scroll_end,
    "search-engine": messages.search,
    "simple-algebra": forms.algebra,
    "simple-arithmetic": forms.arithmetic,
    "social-media": messages.post,
    "social-media-all": messages.posts,
    "social-media-some": messages.posts,
    "terminal": menus.terminal,
    "text-transform": forms.read_captcha,
    "tic-tac-toe": menus.tic_tac_toe,
    "unicode-test": buttons.click_named,
    "use-autocomplete": lists.complete_word,
    "use-colorwheel": drawings.colour_by_name,
    "use-colorwheel-2": drawings.colour_by_sample,
    "use-slider": lists.slide,
    "visual-addition": drawings.count_blocks,
}
"""By task. Those named in `PARTLY_OUT_OF_REACH` solve only some of the instances."""

_HALF_PIXELS = "the page sees taps at whole pixels, and a reward of exactly 1 needs "
_NO_DRAG = "the action space has no drag"
_NEW_LINE = "text entry ends with Enter, which leaves a new line in the reply"

OUT_OF_REACH: Mapping[str, str] = {
    "bisect-angle": _HALF_PIXELS + "a point on a line that hardly ever meets one",
    "circle-center": _HALF_PIXELS + "half ones",
    "drag-box": _NO_DRAG,
    "drag-item": "the installed pages lack it, and " + _NO_DRAG,
    "email-inbox-reply": _NEW_LINE,
    "highlight-text": _NO_DRAG + ": no more than all of the page can be selected",
    "highlight-text-2": _NO_DRAG + ": no more than all of the page can be selected",
    "resize-textarea": _NO_DRAG,
    "right-angle": _HALF_PIXELS + "half ones on the right line",
    "simon-says": "the buttons flash between two screens, mostly before the first one is seen",
}
"""The tasks without a demonstrator, and why the action space does not solve them."""

PARTLY_OUT_OF_REACH: Mapping[str, str] = {
    "email-inbox": _NEW_LINE,
    "email-inbox-nl-turk": _NEW_LINE,
    "email-inbox-noscroll": _NEW_LINE,
    "email-inbox-star-reply": _NEW_LINE,
    "find-midpoint": _HALF_PIXELS + "half ones in three of four instances",
    "scroll-text": "the page strips a comma from what is entered, but not from the word that it expects",
    "tic-tac-toe": "the opponent may draw or win",
    "use-slider": "the track may have fewer pixels than values",
}
"""The tasks of which some instances cannot be solved, and why."""


def demonstrate(env: MiniWobEnv, task: str, seed: int) -> Episode:
    """Let a task's demonstrator play an instance.

    Raises:
        KeyError: if the task has no demonstrator.
        EpisodeError: if the page does not begin.
    """
    return _episodes.demonstrate(env, task, seed, DEMONSTRATORS)
