"""The supervisor with small programs in the place of the real ones."""

import os
import signal
import sys
from pathlib import Path

from appliance.supervisor.programs import Program, configured_listener
from appliance.supervisor.run import Supervisor, describe_status
from broker.clock import SystemClock
from dashboard.probe import reachable

OBEDIENT = """
import signal, sys
signal.signal(signal.SIGTERM, lambda *_: (print("stopping", flush=True), sys.exit(0)))
sys.stdout.write("run\\n")
sys.stdout.flush()
while True:
    signal.pause()
"""


class Stage:
    """Runs a supervisor; a program is ready once it has said "run", in each of its runs."""

    def __init__(self, *names: str) -> None:
        self.lines: list[tuple[str, str]] = []
        self.ready_count = 0
        self.on_ready = lambda: os.kill(os.getpid(), signal.SIGTERM)
        self._unheard: set[str] = set()
        programs = [
            Program(name, [sys.executable, "-c", OBEDIENT], lambda name=name: self._has_run(name))
            for name in names
        ]
        self.supervisor = self.supervise(*programs)

    def supervise(self, *programs: Program) -> Supervisor:
        return Supervisor(programs, SystemClock(), self._line, self._ready)

    def _has_run(self, name: str) -> bool:
        if name not in self._unheard:
            return False
        self._unheard.discard(name)
        return True

    def _line(self, name: str, line: str) -> None:
        self.lines.append((name, line))
        if line == "run":
            self._unheard.add(name)

    def _ready(self) -> None:
        self.ready_count += 1
        self.on_ready()


def failing(script: str) -> Program:
    return Program("broker", [sys.executable, "-c", script], lambda: False)


def test_a_signal_stops_programs_in_order() -> None:
    stage = Stage("first", "second")
    assert stage.supervisor.run() is None
    said = [line for line in stage.lines if "stopping" in line[1]]
    assert said == [
        ("serve", "stopping second"),
        ("second", "stopping"),
        ("serve", "stopping first"),
        ("first", "stopping"),
    ]


def test_a_program_that_fails_at_once_ends_the_whole_and_its_words_are_passed_on() -> None:
    stage = Stage()
    program = failing("import sys; print('no room'); sys.exit(3)")
    assert stage.supervise(program).run() == "broker ended before it was ready"
    assert ("broker", "no room") in stage.lines
    assert stage.ready_count == 0


def test_last_words_without_a_line_end_are_not_lost() -> None:
    stage = Stage()
    stage.supervise(failing("print('half', end='')")).run()
    assert ("broker", "half") in stage.lines


def test_a_program_that_dies_is_started_again() -> None:
    stage = Stage("broker")

    def kill_the_first_run() -> None:
        if stage.ready_count == 1:
            os.kill(stage.supervisor._children["broker"].pid, signal.SIGKILL)
        else:
            os.kill(os.getpid(), signal.SIGTERM)

    stage.on_ready = kill_the_first_run
    assert stage.supervisor.run() is None
    assert stage.lines.count(("broker", "run")) == 2
    assert ("serve", "broker ended with SIGKILL; starting it again in 0.5 s") in stage.lines


def test_children_end_when_the_supervisor_is_killed(tmp_path: Path) -> None:
    """Nothing is said to them: the pipe tells."""
    script = (
        "import os\n"
        "from appliance.supervisor.programs import Program\n"
        "from appliance.supervisor.run import Supervisor\n"
        "from broker.clock import SystemClock\n"
        "import signal, sys\n"
        "child = \"import os, sys; print('up', flush=True);"
        " os.read(int(os.environ['ODRADEK_PARENT_FD']), 1); print('bye', file=open(sys.argv[1], 'w'))\"\n"
        "program = Program('broker', [sys.executable, '-c', child, sys.argv[1]], lambda: False)\n"
        "die = lambda name, line: os.kill(os.getpid(), signal.SIGKILL)\n"
        "Supervisor([program], SystemClock(), die, lambda: None).run()\n"
    )
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    pid = os.spawnve(
        os.P_NOWAIT,
        sys.executable,
        [sys.executable, "-c", script, str(fifo)],
        {**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])},
    )
    with fifo.open() as heard:  # opened by the orphan alone, once it has seen its parent go
        assert heard.read() == "bye\n"
    _, status = os.waitpid(pid, 0)
    assert os.WTERMSIG(status) == signal.SIGKILL


def test_signals_are_as_before_afterwards() -> None:
    before = [
        signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT, signal.SIGCHLD)
    ]
    Stage().supervise(failing("pass")).run()
    after = [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT, signal.SIGCHLD)]
    assert after == before


def test_statuses_in_words() -> None:
    assert describe_status(3) == "status 3"
    assert describe_status(-9) == "SIGKILL"
    assert describe_status(-200) == "signal 200"


def test_the_first_listener_of_the_settings_is_probed() -> None:
    settings = {"listeners": "PLAINTEXT://0.0.0.0:19092,OTHER://:9"}
    found = configured_listener(settings)
    assert found == ("0.0.0.0", 19092)
    assert reachable(*found) == ("127.0.0.1", 19092)
    assert configured_listener({}) is None
    assert configured_listener({"listeners": "PLAINTEXT://[::]:1"}) == ("::", 1)
