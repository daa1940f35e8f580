"""How the pocket actor is made: its tokenizer, its model, what it is taught, and the training script.

``python -m switchmem.pocket_actor.train`` writes the folder that `switchmem.actors` loads as any other checkpoint.
"""
