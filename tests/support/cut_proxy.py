"""A TCP proxy whose wires a test cuts: all connections at once, or only the answers on them."""

import contextlib
import socket
import threading
from typing import Self


class CutProxy:
    """Listens on a loopback port until it is closed."""

    def __init__(self, upstream_port: int) -> None:
        self._upstream_port = upstream_port
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listening.getsockname()[1]
        self._guard = threading.Lock()
        self._sockets: set[socket.socket] = set()
        self._is_cut = False
        self._are_answers_lost = False
        self.lost_count = 0
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.cut()
        with contextlib.suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()

    def lose_answers(self) -> None:
        """What clients send arrives; what is answered does not, from here on."""
        self._are_answers_lost = True

    def forget(self) -> None:
        """As ``lose_answers``, also after a cut: whoever connects hears nothing, until it is healed."""
        with self._guard:
            self._is_cut, self._are_answers_lost = False, True

    def cut(self) -> None:
        """Every connection ends, and new ones end at once."""
        with self._guard:
            self._is_cut = True
            for each in self._sockets:
                with contextlib.suppress(OSError):
                    each.shutdown(socket.SHUT_RDWR)

    def heal(self) -> None:
        with self._guard:
            self._is_cut = self._are_answers_lost = False

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listening.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with client, contextlib.suppress(OSError):
            if self._is_cut:
                return
            with socket.create_connection(("127.0.0.1", self._upstream_port)) as upstream:
                with self._guard:
                    if self._is_cut:
                        return
                    self._sockets |= {client, upstream}
                back = threading.Thread(target=self._pass_on, args=(upstream, client, True))
                back.start()
                self._pass_on(client, upstream, False)
                back.join()
                with self._guard:
                    self._sockets -= {client, upstream}

    def _pass_on(self, source: socket.socket, target: socket.socket, is_answer: bool) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                if is_answer and self._are_answers_lost:
                    self.lost_count += 1
                else:
                    target.sendall(data)
        for each in (source, target):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
