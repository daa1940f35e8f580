"""How the web actor is made: episodes of scripted demonstrators, and a small model that learns from them.

Beside the corridor: nothing imports it. `python -m switchmem.miniwob_actor.train --out DIR` does all of it.
"""
