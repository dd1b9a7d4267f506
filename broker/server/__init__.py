"""Sockets, the event loop and everything that is wired to them.

``app.py`` builds the broker and says what starts and stops in which order; ``connection.py`` and
``send_queue.py`` move bytes; ``dispatcher.py`` finds the handler of a request; ``handlers/`` answer.
"""
