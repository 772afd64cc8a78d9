"""The entry point: `kvplan`, `python -m kvplan`."""

import signal
import sys


def main() -> int:
    """Run the command line; what it returns is the exit code.

    Ctrl-C while modules still load ends the process at once: there is nothing to tell yet.
    """
    heeds_interrupts = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if heeds_interrupts:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from kvplan.commands.app import main as run

    if heeds_interrupts:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    code: int = run()
    return code


if __name__ == "__main__":
    sys.exit(main())
