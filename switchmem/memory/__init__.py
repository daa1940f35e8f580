"""Memory: the bank of demonstrations, its retrieval, and the ways to show one demonstration to an actor."""

from switchmem.memory.bank import Bank
from switchmem.memory.embedder import Embedder, HashingEmbedder, SentenceTransformerEmbedder, load_embedder
from switchmem.memory.retrieval import Hit, StepWithMemory, top1
from switchmem.memory.views import Condition

__all__ = [
    "Bank",
    "Condition",
    "Embedder",
    "HashingEmbedder",
    "Hit",
    "SentenceTransformerEmbedder",
    "StepWithMemory",
    "load_embedder",
    "top1",
]
