"""The rows of the broker table, one module for each subject."""
