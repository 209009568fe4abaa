"""Where settings come from, and how every bad file is told in a sentence."""

import os
import tomllib
from pathlib import Path

import pytest

from rankpulse.cli.config import Flags, as_toml, find, load, read
from rankpulse.core.settings import PRESETS, BadSettings, parse, preset


@pytest.fixture(autouse=True)
def nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A working directory without a configuration."""
    place = tmp_path / "cwd"
    place.mkdir()
    monkeypatch.chdir(place)


def file(tmp_path: Path, text: str) -> str:
    path = tmp_path / "some.toml"
    path.write_text(text)
    return str(path)


def problems(flags: Flags, environ: dict[str, str] | None = None) -> list[str]:
    with pytest.raises(BadSettings) as caught:
        load(flags, environ or {})
    return caught.value.problems


def test_flags_go_before_the_environment_before_the_file_before_the_preset(tmp_path: Path) -> None:
    path = file(tmp_path, 'cluster = "file"\npreset = "drill"\n[store]\nendpoints = ["file:1"]\ntimeout_s = 7\n')
    environ = {"RANKPULSE_STORE": "env:1, env:2", "RANKPULSE_CLUSTER": "env", "RANKPULSE_NODE": "n7"}
    settings = load(Flags(config=path, cluster="flag"), environ)
    assert settings.cluster == "flag"
    assert settings.store.endpoints == ("env:1", "env:2")
    assert settings.store.timeout_s == 7
    assert settings.agent.node == "n7"
    assert settings.monitor.lease_ttl_s == preset("drill").monitor.lease_ttl_s


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ('["n[0-3]"]\nrack = "r1"\n', ""),
        ('["n[0-3]"]\nrack = "r1"\n["n2"]\nrack = "r2"\n', "n2: rack is 'r1' in one table and 'r2' in another"),
        ("[n1\n", "is not valid TOML"),
        (None, "does not exist"),
    ],
)
def test_the_topology_file_is_looked_at_when_files_are(tmp_path: Path, text: str | None, part: str) -> None:
    place = tmp_path / "topology.toml"
    if text is not None:
        place.write_text(text)
    flags = Flags(config=file(tmp_path, f'[monitor]\ntopology_file = "{place}"\n'))
    assert load(flags, {}).monitor.topology_file == str(place)
    if not part:
        load(flags, {}, files=True)
        return
    with pytest.raises(BadSettings) as caught:
        load(flags, {}, files=True)
    assert part in str(caught.value)
    assert "monitor.topology_file" in str(caught.value)


def test_listen_flags_go_to_their_own_section() -> None:
    settings = load(Flags(agent_listen="", monitor_listen="localhost:1", run_dir="/r", store=("a:1", "b:2")), {})
    assert (settings.agent.listen, settings.monitor.listen, settings.agent.run_dir) == ("", "localhost:1", "/r")
    assert settings.store.endpoints == ("a:1", "b:2")


def test_without_anything_the_defaults_hold() -> None:
    assert load(Flags(), {}) == parse({})


def test_the_file_of_the_working_directory_is_found() -> None:
    Path("rankpulse.toml").write_text('cluster = "here"\n')
    assert load(Flags(), {}).cluster == "here"
    assert find("other.toml", {"RANKPULSE_CONFIG": "env.toml"}) == Path("other.toml")
    assert find(None, {"RANKPULSE_CONFIG": "env.toml"}) == Path("env.toml")


def test_every_problem_is_told_at_once_with_its_source(tmp_path: Path) -> None:
    path = file(tmp_path, 'colour = 1\n[store]\nendpoint = "x"\ntimeout_s = "soon"\n[agent]\nspool_max = "many"\n')
    told = "\n".join(problems(Flags(config=path)))
    for part in ("colour", "store.endpoint", "store.timeout_s", "agent.spool_max"):
        assert part in told
    assert told.count(path) == 4


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("[store\n", "line 1"),
        ("a = 1\na = 2\n", "not valid TOML"),
        ("store = 5\n", "store: must be a table"),
        ("a = " + "9" * 5000, "not valid TOML"),
        ('[store]\nendpoints = "one"\n', "store.endpoints"),
        ('cluster = "a/b"\n', "letters, digits"),
        ("cluster = 5\n", "cluster: must be a string"),
        ('preset = "fastest"\n', "choose one of"),
        ("[detect]\nquantile = nan\n", "detect.quantile"),
    ],
)
def test_a_bad_file_is_told(tmp_path: Path, text: str, part: str) -> None:
    assert any(part in problem for problem in problems(Flags(config=file(tmp_path, text)))), text


def test_a_section_of_the_wrong_type_is_told_even_when_a_flag_speaks_of_it(tmp_path: Path) -> None:
    assert "must be a table" in problems(Flags(config=file(tmp_path, "store = 5\n"), store=("a:1",)))[0]


def test_bytes_that_are_no_text_are_told(tmp_path: Path) -> None:
    path = tmp_path / "binary"
    path.write_bytes(b"\xff\xfe\x00")
    assert "not UTF-8" in problems(Flags(config=str(path)))[0]


def test_a_directory_a_missing_file_a_device_are_told(tmp_path: Path) -> None:
    assert "not a regular file" in problems(Flags(config=str(tmp_path)))[0]
    assert "no such file" in problems(Flags(config=str(tmp_path / "none")))[0]
    assert "not a regular file" in problems(Flags(config="/dev/zero"))[0]
    assert "cannot be read" in problems(Flags(config="x" * 5000))[0]
    os.mkfifo(tmp_path / "fifo")
    assert "not a regular file" in problems(Flags(config=str(tmp_path / "fifo")))[0]


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads every file")
def test_an_unreadable_file_is_told(tmp_path: Path) -> None:
    path = file(tmp_path, "")
    Path(path).chmod(0)
    assert "check its permissions" in problems(Flags(config=path))[0]


def test_a_huge_file_is_refused_unparsed(tmp_path: Path) -> None:
    assert "larger than" in problems(Flags(config=file(tmp_path, "#" * 2_000_000)))[0]


@pytest.mark.parametrize("name", PRESETS)
def test_settings_written_as_toml_read_back_the_same(name: str, tmp_path: Path) -> None:
    settings = load(Flags(preset=name, run_dir='n"\\ ☃', store=("[::1]:2379",)), {})
    assert parse(tomllib.loads(as_toml(settings))) == settings
    assert read(Path(file(tmp_path, as_toml(settings))))["preset"] == name


def test_webhook_targets_are_written_as_they_are_read_and_their_files_looked_for(tmp_path: Path) -> None:
    text = (
        '[[webhook.targets]]\nname = "pager"\nurl = "https://h.example/"\nsecret_file = "/none/key"\n'
        '[[webhook.targets]]\nname = "chat"\nkind = "slack"\nurl = "https://c.example/"\nca_file = "/none/ca.pem"\n'
    )
    settings = load(Flags(config=file(tmp_path, text)), {})
    assert parse(tomllib.loads(as_toml(settings))) == settings
    with pytest.raises(BadSettings) as caught:
        load(Flags(config=file(tmp_path, text)), {}, files=True)
    told = "\n".join(caught.value.problems)
    assert "webhook.targets[0].secret_file: /none/key does not exist" in told
    assert "webhook.targets[1].ca_file: /none/ca.pem does not exist" in told
