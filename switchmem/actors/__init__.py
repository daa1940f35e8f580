"""Frozen vision-language actors: loading, reading states, sampling answers."""
