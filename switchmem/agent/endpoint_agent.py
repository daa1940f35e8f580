"""An actor behind a chat endpoint in an agent's own loop, with a memory form that its caller fixes.

An endpoint shows no hidden states, so that no policy can choose here.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Mapping, Sequence

from switchmem.actors.api.actor import ChatActor
from switchmem.actors.protocol import StepPrompts
from switchmem.actors.sampling import Sampling
from switchmem.actors.spec import ActorSpec
from switchmem.agent.agent import Picture, live_step
from switchmem.agent.decision import Decision, Stopwatch, Tokens
from switchmem.agent.live_bank import LiveBank
from switchmem.memory.views import Condition, query_text
from switchmem.policy import PolicyError
from switchmem.steps import UIElement


class EndpointAgent:
    """A served actor that is given one retrieved demonstration in the form that its caller names.

    Calls of `act` may come from several threads and do not wait for each other's answers. A question that was answered
    before is answered from the endpoint's `cache`.

    Args:
        spec: which actor; tells how prompts are built and answers are read.
        actor: what speaks to its endpoint.
        bank: the demonstrations; None for an agent that always acts without one.
        max_new_tokens: the most tokens of an answer, at least 1.
    """

    def __init__(self, spec: ActorSpec, actor: ChatActor, bank: LiveBank | None, max_new_tokens: int = 128) -> None:
        if max_new_tokens < 1:
            raise ValueError(f"`max_new_tokens` must be at least 1, got {max_new_tokens}.")
        self.spec, self.actor, self.bank = spec, actor, bank
        self._greedy = Sampling(0.0, (0,), max_new_tokens)
        self._grammar = spec.load_grammar()
        self._lock = threading.Lock()

    def act(
        self,
        goal: str,
        screenshot: Picture,
        ui_elements: Sequence[UIElement | Mapping[str, object]] = (),
        *,
        condition: Condition | None = None,
    ) -> Decision:
        """Decide what to do on a screen; see `SwitchMemAgent.act`.

        Args:
            goal: the user's instruction.
            screenshot: of the current screen.
            ui_elements: what the screen holds.
            condition: the form in which the demonstration is shown; it must be given.

        Returns:
            The action and why. `timings.decoding` is the whole request. The prompt's tokens, as the server counts them,
            stand in `tokens.shared`, as nothing is known of its parts; 0 where it tells nothing.

        Raises:
            PolicyError: if no form is given.
            RequestsFailedError: if no answer could be had.
            RecordError: if an argument breaks a rule of `Step`, or the retrieved demonstration's record is damaged.
            BudgetError: if what may not be left out of the demonstration's textual screen exceeds `state_tokens`.
        """
        if condition is None:
            raise PolicyError(
                "`condition` must be given to an actor behind an endpoint, got None: it shows no hidden states for a "
                "router. Name a form, or load the weights."
            )
        watch = Stopwatch()
        step = live_step(goal, screenshot, ui_elements)
        watch.lap("preprocessing")
        hit = None
        if self.bank is not None and condition is not Condition.NONE:
            with self._lock:  # the embedder is one for all
                hit = self.bank.find(query_text(step))
        demo = None if hit is None or self.bank is None else self.bank.step(hit.step_id)
        condition = Condition.NONE if demo is None else condition
        watch.lap("retrieval")
        prompts = self.spec.prompts(step, demo, () if demo is None else (condition,), self.actor)
        watch.lap("preprocessing")
        (seen,) = self.actor.observe([StepPrompts(step.step_id, prompts)], (condition,), (), self._greedy)
        answer, drawn = seen.answers[condition][0], seen.new_tokens[condition][0]
        parsed = self._grammar.parse(answer, (step.screenshot.width, step.screenshot.height))
        watch.lap("decoding")
        return Decision(
            action=parsed.action,
            reason=parsed.reason,
            answer=answer,
            condition=condition,
            r=math.nan,
            threshold=math.nan,
            memory=None if hit is None else hit.step_id,
            cosine=math.nan if hit is None else hit.cosine,
            timings=watch.timings(),
            tokens=Tokens(seen.prompt_tokens.get(condition, 0), 0, 0, drawn),
        )

    def preference(
        self, goal: str, screenshot: Picture, ui_elements: Sequence[UIElement | Mapping[str, object]] = ()
    ) -> float | None:
        """Refused: there are no states to read.

        Raises:
            PolicyError: always.
        """
        raise PolicyError("an actor behind an endpoint must have no policy, got a question for a preference.")
