"""What `rankpulse bench kmsg` makes of its storm; the figures themselves are the machine's."""

import json

import pytest
from typer.testing import CliRunner

from rankpulse.bench import kmsg
from rankpulse.cli.main import app
from rankpulse.core.kernel_digest import Digest


@pytest.mark.parametrize("form", kmsg._FORMS)
def test_the_storm_is_of_29_faults_in_every_form(form: str) -> None:
    digest = Digest()
    digest.feed(line.rstrip("\n") for line in kmsg.storm(form, 8_000, 1))
    assert (len(digest.book.faults), digest.kinds) == (29, {"xid": 8_000})
    assert sum(fault.lines for fault in digest.book.faults.values()) == 8_000


def test_broken_lines_raise_nothing_and_make_no_xid() -> None:
    done = CliRunner().invoke(app, ["bench", "kmsg", "--fuzz", "5000", "--seed", "3", "--json"])
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)["fuzz"]
    assert (found["lines"], found["raised"], found["false_xids"]) == (5000, 0, 0)
    assert found["read_as_xid"] > 100
