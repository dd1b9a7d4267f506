"""What pages show, from snapshots; never a question to the cluster for each row."""
