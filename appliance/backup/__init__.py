"""Backups of a running node: made (``creation``), kept in a directory (``target``), brought back (``restoration``).

A backup is a manifest, which names every file by its digest; files that two backups share are there once. What
is copied of the broker's logs is the broker's to say (``broker/server/backup.py``).
"""
