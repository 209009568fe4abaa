"""The console script. `rankpulse hold` stands beside every worker of every node: it takes a way without the rest."""

import sys


def main() -> None:
    """The entry point."""
    if sys.argv[1:2] == ["hold"]:
        from rankpulse.trainer.hold import main as hold

        sys.exit(hold(sys.argv[2:]))
    from rankpulse.cli.main import main as everything

    everything()


if __name__ == "__main__":
    main()
