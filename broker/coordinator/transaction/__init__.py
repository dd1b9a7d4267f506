"""Transactions of producers: machines over ``__transaction_state``."""
