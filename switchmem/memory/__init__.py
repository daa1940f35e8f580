"""Memory: the bank of demonstrations, its retrieval, and the ways to show one demonstration to an actor."""

from switchmem.memory.bank import Bank
from switchmem.memory.embedder import Embedder, HashingEmbedder, SentenceTransformerEmbedder
from switchmem.memory.embeddings import Embeddings
from switchmem.memory.retrieval import Hit, StepWithMemory, top1
from switchmem.memory.views import Condition

__all__ = [
    "Bank",
    "Condition",
    "Embedder",
    "Embeddings",
    "HashingEmbedder",
    "Hit",
    "SentenceTransformerEmbedder",
    "StepWithMemory",
    "top1",
]
