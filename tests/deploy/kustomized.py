"""What `kubectl kustomize` makes of a folder, for the part of kustomize that deploy/kubernetes keeps to.

That part is small on purpose: resources, components, JSON patches, images, ConfigMaps from files under plain names.
Whatever else a kustomization says is an error here. Where a kubectl is there, a test compares the two.
"""

import copy
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

Thing = dict[str, Any]
Key = tuple[str, str, str]  # kind, namespace, name
LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # written in C where it is there: dashboards are large
WORDS = {"apiVersion", "kind", "resources", "components", "configMapGenerator", "generatorOptions", "images", "patches"}


def build(folder: Path, onto: dict[Key, Thing] | None = None) -> dict[Key, Thing]:
    """`onto`: what a component changes. Raises `ValueError` for what is not read here, or cannot be applied."""
    return _onto(onto if onto is not None else {}, folder)


def documents(file: Path) -> list[Thing]:
    return [one for one in yaml.load_all(file.read_text(encoding="utf-8"), Loader=LOADER) if one]


def key(thing: Mapping[str, Any]) -> Key:
    named = thing["metadata"]
    return thing["kind"], named.get("namespace", ""), named["name"]


def _onto(made: dict[Key, Thing], folder: Path) -> dict[Key, Thing]:
    [said] = documents(folder / "kustomization.yaml")
    if strange := said.keys() - WORDS:
        raise ValueError(f"{folder}: {sorted(strange)} are not read here")
    for name in said.get("resources", ()):
        _add(made, folder / name)
    for name in said.get("components", ()):
        _onto(made, (folder / name).resolve())
    for one in said.get("configMapGenerator", ()):
        assert said["generatorOptions"] == {"disableNameSuffixHash": True}
        _generate(made, one, folder)
    for one in said.get("patches", ()):
        _patch(made, one)
    for one in said.get("images", ()):
        for container in _containers(list(made.values())):
            if container["image"].partition(":")[0] == one["name"]:
                container["image"] = f"{one['newName']}:{one['newTag']}"
    return made


def _add(made: dict[Key, Thing], path: Path) -> None:
    found = build(path.resolve()).values() if path.is_dir() else documents(path)
    for thing in found:
        if key(thing) in made:
            raise ValueError(f"{path}: {key(thing)} twice")
        made[key(thing)] = thing


def _generate(made: dict[Key, Thing], said: Mapping[str, Any], folder: Path) -> None:
    assert said.keys() <= {"name", "namespace", "behavior", "files"}
    data = {Path(name).name: (folder / name).read_text(encoding="utf-8") for name in said["files"]}
    metadata = {"name": said["name"], "namespace": said["namespace"]}
    thing = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}
    if (said.get("behavior", "create") == "replace") != (key(thing) in made):
        raise ValueError(f"{folder}: {key(thing)} is there already, or is not there to be replaced")
    made[key(thing)] = thing


def _patch(made: dict[Key, Thing], said: Mapping[str, Any]) -> None:
    wanted = said["target"]
    found = [one for one in made.values() if (one["kind"], one["metadata"]["name"]) == (wanted["kind"], wanted["name"])]
    if len(found) != 1:
        raise ValueError(f"{wanted} is {len(found)} things")
    for step in yaml.safe_load(said["patch"]):
        _apply(found[0], step["op"], step["path"], copy.deepcopy(step.get("value")))


def _apply(thing: Thing, op: str, path: str, value: Any) -> None:
    """RFC 6902, of which only add, replace and remove are used."""
    *way, last = [part.replace("~1", "/").replace("~0", "~") for part in path.split("/")[1:]]
    at: Any = thing
    for part in way:
        at = at[int(part)] if isinstance(at, list) else at[part]
    if isinstance(at, list):
        where = len(at) if last == "-" else int(last)
        at[where : where + (op != "add")] = [] if op == "remove" else [value]
        return
    if op != "add" and last not in at:
        raise ValueError(f"{path} is not there to {op}")
    at.pop(last, None)
    if op != "remove":
        at[last] = value


def _containers(tree: Any) -> Iterator[Thing]:
    """In whatever is a template of pods."""
    if isinstance(tree, list):
        for one in tree:
            yield from _containers(one)
    elif isinstance(tree, dict):
        for name, one in tree.items():
            if name in ("containers", "initContainers"):
                yield from one
            yield from _containers(one)


def containers(thing: Thing) -> list[Thing]:
    return list(_containers(thing))
