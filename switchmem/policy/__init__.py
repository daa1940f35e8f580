"""The decision: a threshold on the router's score, and the policy that is saved, shared and deployed.

policy = Policy.from_pretrained("runs/pocket/policy")          # or "owner/name" on a hub, with a revision
conditions, r = policy.route(batch)
policy.push_to_hub("owner/name", results=read_results("runs/pocket/results.json"))
"""

from switchmem.policy.model_card import model_card
from switchmem.policy.saved import Policy, PolicyCard
from switchmem.policy.threshold import (
    PolicyError,
    choices,
    choose_threshold,
    match_rate_threshold,
    oracle_scores,
    random_scores,
    routed_scores,
)

__all__ = [
    "Policy",
    "PolicyCard",
    "PolicyError",
    "choices",
    "choose_threshold",
    "match_rate_threshold",
    "model_card",
    "oracle_scores",
    "random_scores",
    "routed_scores",
]
