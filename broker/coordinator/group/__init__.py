"""Consumer groups over ``__consumer_offsets``: committed offsets, and the classic protocol."""
