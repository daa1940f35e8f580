"""The method in an agent's own loop: one screen in, one action out, with the memory form that suits this step.

The form can also be fixed by the caller, which is how the conditions that SwitchMem is compared with are played.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from PIL import Image
from torch import Tensor

from switchmem.actors.loading import load_actor
from switchmem.actors.protocol import StepPrompts
from switchmem.actors.spec import ActorSpec, ActorSpecError
from switchmem.actors.turn import Turn
from switchmem.actors.vlm import VLMActor
from switchmem.agent.decision import Decision, Stopwatch, Tokens
from switchmem.agent.live_bank import LiveBank
from switchmem.memory.retrieval import Hit
from switchmem.memory.views import Condition, query_text
from switchmem.policy import Policy, PolicyError
from switchmem.prompts import fingerprint as template_fingerprint
from switchmem.steps import Action, ActionType, RecordError, Screenshot, Step, UIElement

MEMORIES = (Condition.TEXT, Condition.IMAGE)
Picture = Image.Image | Screenshot | bytes | str | Path
"""A screenshot: a picture, or the bytes or the path of a PNG, WebP or JPEG."""


@dataclass(frozen=True, slots=True)
class _Shown(Screenshot):
    """A screenshot that is there as a picture already; it is never encoded."""

    picture: Image.Image

    def image(self) -> Image.Image:
        return self.picture


class SwitchMemAgent:
    """A frozen actor that is given one retrieved demonstration, as Text or as Image, as a policy chooses.

    Calls of `act` may come from several threads; they take turns. Agents in different threads must not share a loaded
    actor. Nothing is written to the disk, and nothing is fetched from the network.

    Build one with `from_pretrained`, which checks that everything belongs together.

    Args:
        policy: the router and its threshold; None for an agent whose caller fixes the form of every step.
        spec: which actor; tells how prompts are built and answers are read.
        actor: that actor, loaded.
        bank: the demonstrations; None for an agent that always acts without one.
        max_new_tokens: the most tokens of an answer, at least 1.

    Raises:
        PolicyError: if the policy reads a block that the actor does not have.
    """

    def __init__(
        self,
        policy: Policy | None,
        spec: ActorSpec,
        actor: VLMActor,
        bank: LiveBank | None,
        max_new_tokens: int = 128,
    ) -> None:
        if max_new_tokens < 1:
            raise ValueError(f"`max_new_tokens` must be at least 1, got {max_new_tokens}.")
        if policy is not None and not all(0 <= block < actor.num_layers for block in policy.card.blocks):
            raise PolicyError(
                f"the policy must read a block that the actor has, got block {policy.card.layer} of an actor with "
                f"{actor.num_layers}, counted from 0. Use the actor's own policy."
            )
        self.policy, self.spec, self.actor, self.bank = policy, spec, actor, bank
        self.max_new_tokens = max_new_tokens
        self._grammar = spec.load_grammar()
        self._lock = threading.Lock()

    @classmethod
    def from_pretrained(
        cls,
        policy: str | Path,
        actor: ActorSpec,
        bank: LiveBank,
        *,
        revision: str | None = None,
        token: str | None = None,
        loaded: VLMActor | None = None,
        max_new_tokens: int = 128,
    ) -> SwitchMemAgent:
        """An agent with a policy that a run has frozen. The actor is loaded last, so that a mismatch costs no time.

        Args:
            policy: a run's ``policy`` folder, one of the folders in it, or ``owner/name`` on the hub.
            actor: which actor.
            bank: the demonstrations.
            revision: branch, tag or commit of the policy on the hub; a commit is recommended.
            token: of the hub, for private policies; None takes the user's.
            loaded: that actor, where the caller has loaded it already; None loads it.
            max_new_tokens: the most tokens of an answer, at least 1.

        Raises:
            PolicyError: if there is no whole policy, or it is for another actor, block, template or embedder.
            ActorSpecError: if the actor cannot be loaded, or is an endpoint.
        """
        saved = load_policy(policy, actor, bank.embedder.name, revision=revision, token=token)
        return cls(saved, actor, loaded if loaded is not None else load_actor(actor), bank, max_new_tokens)

    def act(
        self,
        goal: str,
        screenshot: Picture,
        ui_elements: Sequence[UIElement | Mapping[str, object]] = (),
        *,
        activity: str = "",
        caption: str = "",
        category: str | None = None,
        condition: Condition | None = None,
    ) -> Decision:
        """Decide what to do on a screen.

        Args:
            goal: the task, not empty.
            screenshot: of the current screen.
            ui_elements: what the screen holds, as records or as plain values of their fields; they make the query.
            activity: the foreground activity or app, where the bank's steps have one.
            caption: a description of the page, where the bank's steps have one.
            category: when given, only demonstrations of this category are retrieved.
            condition: the form in which the demonstration is shown; None lets the policy choose. A fixed form runs the
                prompt as a whole, and no router.

        Returns:
            The action and why. Without a demonstration the actor acts on the state prompt, and the decision says so.

        Raises:
            PolicyError: if the agent has no policy and no form is given.
            RecordError: if an argument breaks a rule of `Step`, or the retrieved demonstration's record is damaged.
            PromptError: if a prompt is longer than the actor's limit.
            BudgetError: if what may not be left out of the demonstration's textual screen exceeds `state_tokens`.
        """
        if condition is None and self.policy is None:
            raise PolicyError("`condition` must be given to an agent without a policy, got None. Name a form.")
        with self._lock:
            watch = Stopwatch()
            step = live_step(goal, screenshot, ui_elements, activity, caption)
            watch.lap("preprocessing")
            hit = None if condition is Condition.NONE else self._find(step, category)
            watch.lap("retrieval")
            if hit is None or self.bank is None:
                return self._act_alone(step, watch)
            demo = self.bank.step(hit.step_id)
            if condition is not None:
                watch.lap("retrieval")
                turn = self._turn(step, demo, (condition,))
                watch.lap("preprocessing")
                return self._decide(step, turn, condition, watch, math.nan, hit.step_id, hit.cosine)
            batch = self._candidates(self.bank, step, demo)
            watch.lap("retrieval")
            turn = self._turn(step, demo)
            watch.lap("preprocessing")
            chosen, r = self._route(turn, batch, watch)
            return self._decide(step, turn, chosen, watch, r, hit.step_id, hit.cosine)

    def preference(
        self,
        goal: str,
        screenshot: Picture,
        ui_elements: Sequence[UIElement | Mapping[str, object]] = (),
        *,
        activity: str = "",
        caption: str = "",
        category: str | None = None,
    ) -> float | None:
        """The router's score r of a screen, without an answer: what a threshold is calibrated on.

        Args:
            goal: as of `act`, and so are the others.
            screenshot: of the current screen.
            ui_elements: what the screen holds.
            activity: the foreground activity or app.
            caption: a description of the page.
            category: of the demonstrations.

        Returns:
            None where no demonstration may be retrieved.

        Raises:
            PolicyError: if the agent has no policy.
            RecordError: as `act`.
            PromptError: as `act`.
        """
        if self.policy is None:
            raise PolicyError("the agent must have a policy to tell a preference, got none. Give it one.")
        with self._lock:
            step = live_step(goal, screenshot, ui_elements, activity, caption)
            hit = self._find(step, category)
            if hit is None or self.bank is None:
                return None
            demo = self.bank.step(hit.step_id)
            return self._route(self._turn(step, demo), self._candidates(self.bank, step, demo), Stopwatch())[1]

    def _find(self, step: Step, category: str | None) -> Hit | None:
        return None if self.bank is None else self.bank.find(query_text(step), category)

    def _route(self, turn: Turn, batch: dict[str, Tensor], watch: Stopwatch) -> tuple[Condition, float]:
        """Read the state, and choose by it."""
        assert self.policy is not None  # asked before
        batch["state"] = turn.read_state(*self.policy.card.blocks)[None]
        watch.lap("state", turn.device)
        (condition,), r = self.policy.route(batch)
        watch.lap("routing")
        return condition, float(r)

    def _act_alone(self, step: Step, watch: Stopwatch) -> Decision:
        turn = self._turn(step, None)
        watch.lap("preprocessing")
        return self._decide(step, turn, Condition.NONE, watch, math.nan, None, math.nan)

    def _turn(self, step: Step, demo: Step | None, forms: Sequence[Condition] = MEMORIES) -> Turn:
        prompts = self.spec.prompts(step, demo, forms if demo is not None else (), self.actor)
        return Turn(self.actor, StepPrompts(step.step_id, prompts))

    def _candidates(self, bank: LiveBank, step: Step, demo: Step) -> dict[str, Tensor]:
        """What the router reads beside the state, ``[1, E]`` each."""
        text, image = bank.candidates(demo)
        batch = {"text": text[None], "image": image[None]}
        if self.policy is not None and self.policy.card.target == "basic":  # the only router that reads them
            batch["instruction"] = bank.embedder.texts([step.instruction])
            batch["screenshot"] = bank.embedder.multimodal([("", step.screenshot.image())])
        return batch

    def _decide(
        self,
        step: Step,
        turn: Turn,
        condition: Condition,
        watch: Stopwatch,
        r: float,
        memory: str | None,
        cosine: float,
    ) -> Decision:
        extension = turn.open(condition)
        watch.lap("memory" if memory is not None else "state", turn.device)
        answer, drawn = turn.answer(extension, self.max_new_tokens)
        parsed = self._grammar.parse(answer, (step.screenshot.width, step.screenshot.height))
        watch.lap("decoding")
        whole, state = turn.length(condition), turn.length(Condition.NONE)
        shared = turn.shared if memory is not None else state
        return Decision(
            action=parsed.action,
            reason=parsed.reason,
            answer=answer,
            condition=condition,
            r=r,
            threshold=math.nan if self.policy is None else self.policy.threshold,
            memory=memory,
            cosine=cosine,
            timings=watch.timings(),
            tokens=Tokens(shared, state - shared, whole - shared, drawn),
        )


def load_policy(
    policy: str | Path, actor: ActorSpec, embedder: str, *, revision: str | None = None, token: str | None = None
) -> Policy:
    """A frozen policy, after it is checked that it is for this actor and embedder. No weights of the actor are loaded.

    Args:
        policy: a run's ``policy`` folder, one of the folders in it, or ``owner/name`` on the hub.
        actor: which actor.
        embedder: name of the bank's embedder.
        revision: branch, tag or commit of the policy on the hub.
        token: of the hub.

    Raises:
        PolicyError: if there is no whole policy, or it is for another actor, block, template or embedder.
        ActorSpecError: if the actor is an endpoint.
    """
    if actor.endpoint is not None:
        raise ActorSpecError(
            f"`actor` must run in this process to be routed by its states, got the endpoint "
            f"{actor.endpoint.base_url}, which shows none. Load the same model's weights."
        )
    saved = Policy.from_pretrained(policy, revision=revision, token=token)
    template = actor.load_template()
    saved.check(
        actor=actor.fingerprint(),
        layer=saved.card.layer,
        template=template_fingerprint(template),
        embedder=embedder,
        actor_name=actor.name,
        template_name=template.name,
    )
    return saved


def live_step(
    goal: str,
    screenshot: Picture,
    ui_elements: Sequence[UIElement | Mapping[str, object]],
    activity: str = "",
    caption: str = "",
) -> Step:
    """The current screen as a record; see `SwitchMemAgent.act`."""
    picture = _picture(screenshot)
    elements = tuple(e if isinstance(e, UIElement) else UIElement.from_dict(e) for e in ui_elements)
    return Step(
        benchmark="live",
        episode_id="live",
        index=0,
        instruction=goal,
        screenshot=_Shown(b"", *picture.size, picture),
        elements=elements,
        action=Action(ActionType.WAIT),  # records have one; no prompt and no query shows that of the current step
        activity=activity,
        caption=caption,
    )


def _picture(screenshot: Picture) -> Image.Image:
    if isinstance(screenshot, Image.Image):
        return screenshot.convert("RGB")
    if isinstance(screenshot, Screenshot):
        return screenshot.image()
    if isinstance(screenshot, (str, Path)):
        try:
            screenshot = Path(screenshot).read_bytes()
        except OSError as error:
            raise RecordError(
                f"`screenshot` must be a picture, or the bytes or the path of one, got a path that cannot be read: "
                f"{error}."
            ) from error
    return Screenshot.from_bytes(screenshot).image()
