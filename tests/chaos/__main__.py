"""`python -m tests.chaos [--seconds 1800] [--seed 1]`: mixed faults on real brokers, and whether anything was lost.

Ends with 1 when something was, or did not come back; what brokers and clients said is kept then.
"""

from __future__ import annotations

import argparse
import faulthandler
import logging
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from contextlib import nullcontext, suppress
from pathlib import Path

from tests.chaos import network, planted
from tests.chaos.run import SESSION_SECONDS, Scene, play, scene

#: Set in the process that has the clients in it.
MARK = "ODRADEK_CHAOS_RUN"
#: How long a fault lasts; the last is long enough for a session to end.
LASTING = (0.2, 1.0, 2 * SESSION_SECONDS)
#: For a run that is broken off to stop its brokers.
END_SECONDS = 120
#: Of `--each`: what nobody notices in a moment.
LONG = ("freeze", "slow disk", "cut one way", "cut both ways", "cut from ZooKeeper", "cut off")


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--seconds", type=float, default=1800)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--each", action="store_true", help="each fault once, in the seed's order")
    parser.add_argument("--only", metavar="PATTERN", default="*", help="of faults, as 'kill*'")
    parser.add_argument(
        "--plain",
        action="store_true",
        help="brokers as they are installed, compiled where they are, without odd disks and wrong clocks",
    )
    parser.add_argument("--no-network", action="store_true", help="without cuts of the network")
    parser.add_argument(
        "--plant-loss", action="store_true", help="no faults, but one record is cut off everywhere"
    )
    parser.add_argument("--work", type=Path, help="where a directory of the run is made")
    return parser.parse_args()


def main() -> int:
    options = parse()
    if MARK not in os.environ:
        return watch()
    # Killed by a terminal's or a caller's wish, brokers end with us.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    faulthandler.register(signal.SIGUSR1)
    missing = "not wanted" if options.no_network else network.why_not()
    if missing is None and not network.is_entered():
        network.enter("tests.chaos", sys.argv[1:])
    if missing is not None:
        print(f"without cuts of the network: {missing}", flush=True)
    directory = Path(tempfile.mkdtemp(prefix="odradek-chaos-", dir=options.work))
    logging.basicConfig(
        filename=directory / "clients.txt", format="%(asctime)s %(name)s %(message)s"
    )
    failures = ["not judged: it did not come to its end"]
    try:
        failures = run(options, directory, is_cut=missing is None)
    finally:
        for failure in failures:
            print(failure)
        if failures:
            print(f"what brokers and clients said: {directory}", flush=True)
        else:
            shutil.rmtree(directory, ignore_errors=True)
    sys.stdout.flush()
    # A client that hangs in its library would keep the process: its threads are not waited for.
    os._exit(1 if failures else 0)


def watch() -> int:
    """The same once more, in a process of its own: a client library that aborts takes it along, and brokers
    would be left behind."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.chaos", *sys.argv[1:]],
        env={**os.environ, MARK: "1"},
        start_new_session=True,
    )
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        status = process.wait()
    except KeyboardInterrupt:
        process.terminate()
        status = 1
        with suppress(subprocess.TimeoutExpired):
            process.wait(END_SECONDS)
    finally:
        with suppress(ProcessLookupError):  # as it should be: all of them have ended
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    if status < 0:
        print(
            f"not judged: the clients' process died of {signal.Signals(-status).name}", flush=True
        )
    return 1 if status else 0


def run(options: argparse.Namespace, directory: Path, *, is_cut: bool) -> list[str]:
    """Failures."""
    began = time.monotonic()

    def say(text: str) -> None:
        now = time.monotonic() - began
        left = "" if options.each else f" ({max(options.seconds - now, 0):.0f} s left)"
        print(f"{now:7.1f} s{left}  {text}", flush=True)

    with (
        network.Network((1, 2, 3)) if is_cut else nullcontext() as cuts,
        scene(directory, options.seed, cuts, is_plain=options.plain) as made,
    ):
        say(f"seed {options.seed}, everything runs")
        made.faults.choose(options.only)
        if options.plant_loss:
            planted.lose_a_record(made)
            return made.finish()
        failures = []
        try:
            count = inflict(options, made, say, lambda: time.monotonic() - began)
            say(f"{count} faults, seed {options.seed}; now everything is read once more")
        except Exception as error:
            traceback.print_exc()
            failures.append(f"it did not go on: {error!r}")
        failures += made.finish()
        say(f"{made.progress()}: {'good' if not failures else 'FAILED'}")
        return failures


def inflict(
    options: argparse.Namespace,
    made: Scene,
    say: Callable[[str], None],
    elapsed: Callable[[], float],
) -> int:
    dice = random.Random(options.seed)
    if options.each:
        plays = [[name] for name in sorted(made.faults.all)]
        dice.shuffle(plays)
        for names in plays:
            play(made, names, LASTING[-1] if names[0] in LONG else LASTING[0], say)
            if made.failures:
                break
        return len(plays)
    count = 0
    while elapsed() < options.seconds and not made.failures:
        play(made, made.faults.some(), dice.choice(LASTING), say)
        count += 1
    return count


if __name__ == "__main__":
    sys.exit(main())
