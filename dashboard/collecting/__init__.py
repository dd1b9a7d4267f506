"""Parts of what the collector does at each tick, one module a kind of thing."""
