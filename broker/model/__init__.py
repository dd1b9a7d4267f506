"""Words that every broker package uses. Imports nothing of ours but ``clock``."""
