"""Actors behind an OpenAI-compatible chat endpoint, where no hidden states are needed."""
