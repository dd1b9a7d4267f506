"""Pages about topics: the list, one topic's tabs, and what changes them."""
