"""How actors write places, elements and actions: one file per grammar."""
