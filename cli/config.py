"""Where the configuration comes from: flags, then the environment, then a TOML file, then the preset."""

import json
import os
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec

from rankpulse.core.settings import BadSettings, HttpSettings, Settings, parse
from rankpulse.store.api import StoreError
from rankpulse.store.files import problem, problems
from rankpulse.store.secret import Tokens
from rankpulse.web.tokens import read as read_callers

PLACES: Final = ("rankpulse.toml", "/etc/rankpulse/rankpulse.toml")
MAX_BYTES: Final = 1024 * 1024


class Flags(NamedTuple):
    """What the command line said; None and () mean that it said nothing."""

    config: str | None = None
    cluster: str | None = None
    preset: str | None = None
    store: tuple[str, ...] = ()
    node: str | None = None
    run_dir: str | None = None
    agent_listen: str | None = None
    monitor_listen: str | None = None


def load(flags: Flags, environ: Mapping[str, str] = os.environ, *, files: bool = False) -> Settings:
    """The effective settings. Raises `BadSettings` with every problem, each line naming its source.

    `files`: the files that the settings name are looked at, too.
    """
    path = find(flags.config, environ)
    tree = read(path) if path else {}
    _override(tree, _from_environment(environ))
    _override(tree, _from_flags(flags))
    try:
        settings = parse(tree)
        if files and (wrong := bad_files(settings)):
            raise BadSettings(wrong)
    except BadSettings as error:
        source = str(path) if path else "command line and environment"
        raise BadSettings([f"{source}: {problem}" for problem in error.problems]) from error
    return settings


def bad_files(settings: Settings) -> list[str]:
    """A sentence for each file that the settings name and that cannot serve."""
    wrong = problems(settings.store) + bad_token_file(settings.probe.token_file)
    wrong += bad_http_files(settings.http)
    wrong += bad_topology_file(settings.monitor.topology_file)
    for number, target in enumerate(settings.webhook.targets):
        where = f"webhook.targets[{number}]"
        named = ((f"{where}.secret_file", target.secret_file), (f"{where}.ca_file", target.ca_file))
        wrong += [f"{setting}: {why}" for setting, path in named if path and (why := problem(path))]
    return wrong


def bad_http_files(http: HttpSettings) -> list[str]:
    """Likewise of the HTTP ports: who may come in, and the certificates."""
    named = {name: getattr(http, name) for name in ("cert_file", "key_file", "tokens_file", "token_file", "ca_file")}
    wrong = [f"http.{name}: {why}" for name, path in named.items() if path and (why := problem(path))]
    if wrong:
        return wrong
    try:
        if http.tokens_file:
            read_callers(http.tokens_file)
        if http.token_file:
            Tokens(http.token_file, "http.token_file")
    except StoreError as error:
        return [str(error)]
    return []


def bad_topology_file(path: str) -> list[str]:
    """What is wrong with the file that says where machines stand; [] when it is good, or none is named."""
    from rankpulse.monitor import topology

    try:
        topology.read(path)
    except BadSettings as error:
        return error.problems
    return []


def bad_token_file(path: str) -> list[str]:
    """Why it is no file of tokens; [] when it is one, or none is named."""
    why = problem(path) if path else ""
    if why:
        return [f"probe.token_file: {why}"]
    try:
        Tokens(path, "probe.token_file")
    except StoreError as error:
        return [str(error)]
    return []


def find(explicit: str | None, environ: Mapping[str, str] = os.environ) -> Path | None:
    """The file to read. One that was named must exist; the usual places are tried in turn."""
    named = explicit or environ.get("RANKPULSE_CONFIG")
    if named:
        return Path(named)
    return next((Path(place) for place in PLACES if os.path.lexists(place)), None)


def read(path: Path) -> dict[str, Any]:
    """The TOML file as a tree. Raises `BadSettings` in one sentence whatever the path is."""
    try:
        if not path.is_file() and path.exists():
            raise BadSettings([f"{path}: is not a regular file; --config takes a TOML file"])
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
        if len(data) > MAX_BYTES:
            raise BadSettings([f"{path}: larger than {MAX_BYTES} bytes; this is no configuration of ours"])
        return tomllib.loads(data.decode())
    except FileNotFoundError as error:
        raise BadSettings([f"{path}: no such file; name another with --config, or leave it out"]) from error
    except OSError as error:
        raise BadSettings([f"{path}: cannot be read ({error.strerror}); check its permissions"]) from error
    except UnicodeDecodeError as error:
        raise BadSettings([f"{path}: is not UTF-8 text (byte {error.start}); is it a TOML file?"]) from error
    except (ValueError, RecursionError) as error:  # also a number of too many digits
        raise BadSettings([f"{path}: is not valid TOML: {error}"]) from error


def _from_environment(environ: Mapping[str, str]) -> dict[str, Any]:
    """What the environment says; an empty variable says nothing, as if it were not set."""
    endpoints = [part.strip() for part in environ.get("RANKPULSE_STORE", "").split(",") if part.strip()]
    return {
        "cluster": environ.get("RANKPULSE_CLUSTER") or None,
        "store": {"endpoints": endpoints or None},
        "agent": {"node": environ.get("RANKPULSE_NODE") or None, "run_dir": environ.get("RANKPULSE_DIR") or None},
    }


def _from_flags(flags: Flags) -> dict[str, Any]:
    return {
        "cluster": flags.cluster,
        "preset": flags.preset,
        "store": {"endpoints": list(flags.store) or None},
        "agent": {"node": flags.node, "run_dir": flags.run_dir, "listen": flags.agent_listen},
        "monitor": {"listen": flags.monitor_listen},
    }


def _override(tree: dict[str, Any], said: Mapping[str, Any]) -> None:
    """Put what was `said` over `tree`; None says nothing. A section of the wrong type is left for `parse` to refuse."""
    for key, value in said.items():
        if isinstance(value, Mapping):
            section = {name: item for name, item in value.items() if item is not None}
            if section and isinstance(tree.get(key, {}), dict):
                tree[key] = {**tree.get(key, {}), **section}
        elif value is not None:
            tree[key] = value


def as_toml(settings: Settings) -> str:
    """The settings as a TOML file that would give the same again."""
    tree = msgspec.to_builtins(settings)
    lines = [f"{key} = {_toml(value)}" for key, value in tree.items() if not isinstance(value, dict)]
    for name, section in tree.items():
        if isinstance(section, dict):
            lines += ["", f"[{name}]", *(f"{key} = {_toml(value)}" for key, value in section.items())]
    return "\n".join(lines) + "\n"


def _toml(value: Any) -> str:
    """Numbers, strings and booleans are written alike in JSON and TOML; tables are written in the line."""
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{key} = {_toml(item)}" for key, item in value.items()) + " }"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(map(_toml, value)) + "]"
    return json.dumps(value, ensure_ascii=False)
