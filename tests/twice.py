"""Runs live tests, and those that failed once more, with the machine to themselves: `python tests/twice.py ARGS`.

Live tests start jobs, stores and monitors on a machine of which nobody knows what else it does. One or two that fail
beside others and pass alone are told of and do not fail the run; more than two are no accident.
"""

import subprocess
import sys
from typing import Final

import pytest

FORGIVEN_MAX: Final = 2


class Failed:
    """Which tests failed, whatever part of them."""

    def __init__(self) -> None:
        self.names: list[str] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed and report.nodeid not in self.names:
            self.names.append(report.nodeid)


def main(arguments: list[str]) -> int:
    """The exit status of pytest."""
    failed = Failed()
    status = int(pytest.main(arguments, plugins=[failed]))
    if status != pytest.ExitCode.TESTS_FAILED or not 0 < len(failed.names) <= FORGIVEN_MAX:
        return status
    print(f"\nonce more, alone: {', '.join(failed.names)}", flush=True)
    again = [sys.executable, "-m", "pytest", "-m", "live", *failed.names]
    if subprocess.run(again, check=False).returncode:
        return status
    print(f"PASSED AT THE SECOND TRY, look at why it failed above: {', '.join(failed.names)}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
