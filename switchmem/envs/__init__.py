"""Online environments: an agent acts, and the screen answers. Importing this starts no browser."""
