"""The documentation against the code: nothing that exists is left out, nothing points nowhere."""

import ast
import json
import re
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import msgspec
import pytest

from rankpulse.core import (
    catalogue,
    cost_rule,
    diagnosis,
    kernel_reading,
    policy,
    records,
    settings,
    suspects,
    xid_catalogue,
)

REPO = Path(__file__).resolve().parents[2]
ROOMS = ("agent", "bench", "cli", "core", "dashboards", "drills", "monitor", "receiver", "store", "trainer", "web")
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")


def pages() -> list[Path]:
    """Every page of ours; nothing that was installed or built here."""
    return sorted([*REPO.glob("*.md"), *(REPO / "docs").rglob("*.md"), *(REPO / "deploy").rglob("*.md")])


@cache
def text(name: str) -> str:
    return (REPO / name).read_text(encoding="utf-8")


def prose(page: Path) -> str:
    """The page without its code blocks."""
    return re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as the usual renderers make them."""
    heads = re.findall(r"^#+ +(.+?) *$", prose(page), flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}


def section(name: str, heading: str) -> str:
    """What stands below `## heading`, up to the next heading of the same level."""
    return re.split(r"^## ", text(name).partition(f"\n## {heading}\n")[2], flags=re.MULTILINE)[0]


def as_written(default: object) -> str:
    """A default as the tables show it: texts bare, but the empty one with its quotes."""
    if default == "" or isinstance(default, tuple):
        return json.dumps(default)
    return str(default)


def literals(tree: ast.AST) -> Iterator[str]:
    """Every text of a module, with a gap where a value is put in."""
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            yield "".join(str(part.value) if isinstance(part, ast.Constant) else "\0" for part in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


@cache
def said() -> str:
    """All that the code can say."""
    return "\n".join(one for file in modules() for one in literals(ast.parse(file.read_text(encoding="utf-8"))))


def modules() -> list[Path]:
    return sorted(file for room in ROOMS for file in (REPO / room).rglob("*.py"))


def broken(page: Path) -> Iterator[str]:
    for target in LINK.findall(prose(page)):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        goal = (page.parent / path).resolve() if path else page
        if not goal.exists():
            yield f"{target}: no such file"
        elif anchor and anchor not in anchors(goal):
            yield f"{target}: no such heading"


@pytest.mark.parametrize("page", pages(), ids=lambda page: str(page.relative_to(REPO)))
def test_links_lead_somewhere(page: Path) -> None:
    assert list(broken(page)) == []


@pytest.mark.parametrize("page", pages(), ids=lambda page: str(page.relative_to(REPO)))
def test_pages_name_no_path_of_the_machine_they_were_written_on(page: Path) -> None:
    assert re.findall(r"(?<![\w.-])/(?:work|home|root|Users)/\S*", page.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize("name", [*settings._SECTIONS, "cluster", "preset"])
def test_every_setting_is_documented_with_its_default(name: str) -> None:
    page = text("docs/configuration.md")
    if name in ("cluster", "preset"):
        assert f"| `{name}` | `{getattr(settings.Settings(), name)}` |" in page
        return
    rows = section("docs/configuration.md", f"`[{name}]`")
    for field in msgspec.structs.fields(settings._SECTIONS[name]):
        wanted = f"| `{field.name}` | `{as_written(field.default)}` |"
        assert wanted in rows, wanted


def test_no_setting_is_documented_that_does_not_exist() -> None:
    for name, kind in settings._SECTIONS.items():
        known = {field.name for field in msgspec.structs.fields(kind)}
        told = set(re.findall(r"^\| `(\w+)` \|", section("docs/configuration.md", f"`[{name}]`"), flags=re.MULTILINE))
        assert told == known


def test_the_table_of_presets_is_that_of_the_code() -> None:
    rows = re.findall(r"^\| `(\w+)\.(\w+)` \|(.+)\|$", section("docs/configuration.md", "Presets"), flags=re.MULTILINE)
    others = [preset for preset in settings.PRESETS if preset != "default"]
    told = {
        (column, section_, name): float(value)
        for section_, name, cells in rows
        for column, value in zip(("default", *others), map(str.strip, cells.split("|")), strict=True)
        if value and column != "default"
    }
    known = {
        (preset, section_, name): float(value)
        for preset, sections in settings.PRESETS.items()
        for section_, values in sections.items()
        for name, value in values.items()
    }
    assert told == known


def test_the_example_configuration_is_good() -> None:
    (example,) = re.findall(r"^```toml\n(.*?)^```", text("docs/configuration.md"), flags=re.MULTILINE | re.DOTALL)
    assert settings.parse(tomllib.loads(example)).cluster == "prod"


@pytest.mark.parametrize("kind", records.Record.__subclasses__(), ids=lambda kind: kind.__name__)
def test_every_record_and_each_of_its_fields_is_documented(kind: type[records.Record]) -> None:
    page = text("docs/formats.md")
    told = re.split(r"^##+ ", page.partition(f"\n### {kind.__name__}\n")[2], flags=re.MULTILINE)[0]
    assert told, f"no section ### {kind.__name__}"
    missing = [name for name in kind.__struct_fields__ if name != "v" and f"`{name}`" not in told]
    assert missing == []


@pytest.mark.parametrize(
    "kind", [records.RunRow, records.RankRow, records.Member, records.Launcher, records.Trail, records.PhaseRow]
)
def test_the_small_parts_of_records_are_documented(kind: type[msgspec.Struct]) -> None:
    told = section("docs/formats.md", "Records")
    assert f"`{kind.__name__}`" in told
    assert [name for name in kind.__struct_fields__ if f"`{name}`" not in told] == []


def test_every_kind_of_observation_is_documented() -> None:
    kinds = {value for name, value in vars(records).items() if name.isupper() and isinstance(value, str)}
    told = set(re.findall(r"^\| `(\w+)` \|", section("docs/formats.md", "Records"), flags=re.MULTILINE))
    assert kinds <= told


@pytest.mark.parametrize(
    "metric",
    [*catalogue.SHARED, *catalogue.AGENT, *catalogue.GPU, *catalogue.HOST, *catalogue.MONITOR, *catalogue.RECEIVER],
    ids=lambda metric: metric.name,
)
def test_every_metric_is_documented(metric: catalogue.Metric) -> None:
    labels = ", ".join(f"`{label}`" for label in metric.labels) or "–"
    assert f"| `{metric.name}` | {metric.type} | {labels} | {metric.help} |" in text("docs/formats.md")


def test_every_class_and_action_has_its_advice() -> None:
    told = section("docs/operations.md", "Incident classes")
    outcomes = (diagnosis.STOPPED_BY_USER, diagnosis.FINISHED, diagnosis.FAILED, diagnosis.ABANDONED)
    classes = {value for name, value in vars(diagnosis).items() if name.isupper() and isinstance(value, str)}
    assert [name for name in classes - set(outcomes) if f"| `{name}` |" not in told] == []
    actions = {value for name, value in vars(policy).items() if re.match("[A-Z]+$", name) and isinstance(value, str)}
    assert [name for name in actions if f"`{name}`" not in told] == []
    assert [name for name in outcomes if f"| `{name}` |" not in text("docs/operations.md")] == []


def test_the_table_of_turns_is_that_of_the_code() -> None:
    rows = re.findall(
        r"^\| `(\w+)`: [^|]*((?:\| \w+ ){4})\|$", section("docs/detection.md", "The table of turns"), re.M
    )
    told = {
        (state, fact): after
        for fact, cells in rows
        for state, after in zip(suspects.STATES, re.findall(r"\w+", cells), strict=True)
    }
    assert told == dict(suspects.TABLE)


def test_the_times_of_the_operating_points_are_those_of_the_code() -> None:
    told = section("docs/detection.md", "Choose an operating point")
    fast, default = (cost_rule.times(settings.preset(name).detect, None) for name in ("fast", "default"))
    for setting, at_once, in_time in (
        ("node_dead_after_s", fast.node_s, default.node_s),
        ("unwitnessed_after_s", fast.unwitnessed_s, default.unwitnessed_s),
        ("rack_dead_after_s", fast.rack_s, default.rack_s),
    ):
        assert re.search(rf"^\| `{setting}` \| {at_once:g} s \| .*\b{in_time:g} s ", told, flags=re.MULTILINE), setting


def test_every_rule_of_the_simulator_is_documented() -> None:
    from rankpulse.drills.sim.checks import RULES

    told = re.findall(r"^\| (`.+`) \|", section("docs/detection.md", "What the simulator demands"), flags=re.MULTILINE)
    assert {rule.__name__ for rule in RULES} == set(re.findall(r"`(\w+)`", " ".join(told))) - {"detects", "recovers"}


def test_every_module_stands_in_the_table_and_every_row_is_a_module() -> None:
    known = {str(file.relative_to(REPO)) for file in modules() if file.name != "__init__.py"}
    told = re.findall(r"^\| `([a-z]+(?:/\w+)+\.py)` \|", text("docs/architecture.md"), flags=re.MULTILINE)
    assert len(told) == len(set(told))
    assert set(told) == known


def test_every_command_of_make_and_rankpulse_in_the_readme_exists() -> None:
    from rankpulse.cli.main import app

    blocks = "\n".join(re.findall(r"^```bash\n(.*?)^```", text("README.md"), flags=re.MULTILINE | re.DOTALL))
    commands = {command.name or getattr(command.callback, "__name__", "") for command in app.registered_commands}
    commands |= {str(group.name) for group in app.registered_groups}
    assert set(re.findall(r"^rankpulse ([a-z]+)", blocks, flags=re.MULTILINE)) <= commands
    targets = set(re.findall(r"^([a-z]+)[a-z ]*:", text("Makefile"), flags=re.MULTILINE))
    assert set(re.findall(r"^make ([a-z]+)", blocks, flags=re.MULTILINE)) <= targets


def test_every_message_in_the_tables_is_one_that_the_code_says() -> None:
    told = re.findall(r"^\| (`.+?) \|", section("docs/operations.md", "Messages and what to do"), flags=re.MULTILINE)
    pieces = [piece.strip() for row in told for part in re.findall(r"`([^`]+)`", row) for piece in part.split("…")]
    assert len(pieces) > 60
    assert [piece for piece in pieces if piece not in said()] == []


def test_every_error_and_every_public_name_of_checkpoints_is_explained() -> None:
    from rankpulse.trainer import checkpoint
    from rankpulse.trainer.checkpoint import errors

    told = text("docs/checkpoints.md")
    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, Exception)]
    bases = (errors.CheckpointError, errors.Refused)
    assert [kind.__name__ for kind in kinds if kind not in bases and f"`{kind.__name__}`" not in told] == []
    damage = [kind for kind in kinds if issubclass(kind, errors.Damaged)]
    assert [kind.what for kind in damage if f"| `{kind.what}` | `{kind.__name__}` |" not in told] == []
    functions = [name for name in checkpoint.__all__ if name not in vars(errors)]
    assert [name for name in functions if not re.search(rf"`{name}\b", told)] == []


def test_every_command_on_checkpoints_is_shown() -> None:
    from rankpulse.cli.ckpt import ckpt_app

    for command in ckpt_app.registered_commands:
        assert f"rankpulse ckpt {command.name} " in text("docs/checkpoints.md")
        assert f"| `{command.name}` |" in section("docs/formats.md", "JSON of `ckpt`")


def test_every_test_that_a_promise_rests_on_exists() -> None:
    """What is survived is claimed only where a test or a drill shows it."""
    named = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", text("docs/what-survives.md"))
    assert len(named) > 20
    missing = [
        f"{file}::{test}"
        for file, test in named
        if not (REPO / file).is_file() or not re.search(rf"^(async )?def {test}\(", text(file), flags=re.MULTILINE)
    ]
    assert missing == []


def test_every_kind_of_kernel_line_and_all_that_is_told_of_it_is_documented() -> None:
    page = text("docs/xids.md")
    kinds = {kernel_reading.XID, kernel_reading.SXID, *kernel_reading.KINDS}
    rows = page.partition("| `kind` | of |")[2].partition("\n\n")[0]
    assert {kind for row in rows.splitlines() for kind in re.findall(r"`(\w+)`", row.split(" | ")[0])} == kinds
    for field in msgspec.structs.fields(kernel_reading.Reading):
        assert f"`{field.name}`" in page, field.name
    assert all(f"| `{action}` |" in page for action in xid_catalogue.ACTIONS)


def test_the_page_of_commands_is_what_the_commands_say_today() -> None:
    from rankpulse.cli.commands_page import page

    assert text("docs/reference/commands.md") == page(), "run `make commands`"


def test_every_page_stands_in_the_table_of_contents() -> None:
    told = {(REPO / "docs" / target).resolve() for target in LINK.findall(text("docs/README.md"))}
    folders = ("", "guides", "reference")  # the others have an index of their own
    known = {page for folder in folders for page in (REPO / "docs" / folder).glob("*.md")}
    assert known - told == {REPO / "docs" / "README.md"}


def test_the_words_by_which_questions_are_answered_are_those_that_the_code_says() -> None:
    rows = re.findall(r"^\| (`.+?) \|", section("docs/faq.md", "Why was my job not restarted?"), flags=re.MULTILINE)
    pieces = [piece.strip() for row in rows for part in re.findall(r"`([^`]+)`", row) for piece in part.split("…")]
    assert len(pieces) > 20
    assert [piece for piece in pieces if piece not in said()] == []
