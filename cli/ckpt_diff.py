"""`rankpulse ckpt diff`: what differs between the states of two checkpoints, however each is cut into files."""

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import asdict
from typing import Any, Final

from rankpulse.cli import show
from rankpulse.cli.ckpt_ls import on_disk
from rankpulse.cli.ckpt_numbers import Apart, compare
from rankpulse.cli.ckpt_place import one
from rankpulse.cli.ckpt_progress import bar
from rankpulse.trainer.checkpoint import reader
from rankpulse.trainer.checkpoint import strictjson as strict
from rankpulse.trainer.checkpoint.coverage import OWN
from rankpulse.trainer.checkpoint.manifest import ShardManifest, TensorSpec
from rankpulse.trainer.checkpoint.recut import Whole

SHOWN: Final = 40  # rows of a page; --json has them all
TEXT_MAX: Final = 60
_ABSENT: Final = object()


def run(a: str, b: str, as_json: bool) -> int:
    """Compare and tell. Returns 0 when the states are equal, else 1. Raises `Failed`, `Refused`, OSError."""
    paths = (one(a), one(b))
    manifests = (_sound(paths[0]), _sound(paths[1]))
    with Whole(paths[0], manifests[0]) as old, Whole(paths[1], manifests[1]) as new:
        total = sum(spec.nbytes for spec in manifests[0].tensors)
        with bar("comparing", total) as advance:
            tensors = list(_tensors((old, new), manifests, advance))
        own = list(_own((old, new), min(one.world_size for one in manifests)))
    values = list(differing_values(manifests[0].values, manifests[1].values))
    equal = not (tensors or values or own)
    heads = [_head(path, manifest) for path, manifest in zip(paths, manifests, strict=True)]
    if as_json:
        parts = {"tensors": tensors, "values": values, "own": own}
        show.as_json({"equal": equal, "a": heads[0], "b": heads[1], "compared": len(manifests[0].tensors), **parts})
    else:
        _page(heads, len(manifests[0].tensors), tensors, values, own)
    return 0 if equal else 1


def _sound(path: str) -> ShardManifest:
    """What was damaged since it was saved is no difference between two states: read and check first."""
    with bar("verifying", on_disk(path)) as advance:
        return reader.verify(path, "fast", advance)


def _head(path: str, m: ShardManifest) -> dict[str, Any]:
    shown = ("step", "kind", "world_size", "run_id", "run_uid", "round", "metrics")
    return {"path": path, **{name: getattr(m, name) for name in shown}, "saved_at": m.wall_clock_seconds}


def _tensors(
    both: tuple[Whole, Whole], manifests: tuple[ShardManifest, ShardManifest], advance: Callable[[int], None]
) -> Iterator[dict[str, Any]]:
    """A row for every tensor that is not the same in both."""
    new = {spec.name: spec for spec in manifests[1].tensors}
    for spec in manifests[0].tensors:
        other = new.pop(spec.name, None)
        row: dict[str, Any] | None
        if other is None:
            row = {"name": spec.name, "what": "only in A", "a": _kind(spec), "b": None}
        elif (spec.dtype, spec.shape) != (other.dtype, other.shape):
            what = "shape" if spec.dtype == other.dtype else "type" if spec.shape == other.shape else "type and shape"
            row = {"name": spec.name, "what": what, "a": _kind(spec), "b": _kind(other)}
        else:
            row = _bytes(both, spec)
        advance(spec.nbytes)
        if row:
            yield row
    for spec in new.values():
        yield {"name": spec.name, "what": "only in B", "a": None, "b": _kind(spec)}


def _kind(spec: TensorSpec) -> str:
    return f"{spec.dtype} {list(spec.shape)}"


def _bytes(both: tuple[Whole, Whole], spec: TensorSpec) -> dict[str, Any] | None:
    """None when every byte is the same."""
    apart, same, readable = Apart(), True, True
    streams = (whole.read(spec.name, 0, spec.numel) for whole in both)
    for a, b in in_step(*streams):
        if a != b:
            same = False
            readable = readable and compare(apart, spec.dtype, a, b)
    if same:
        return None
    kind = _kind(spec)
    return {"name": spec.name, "what": "bytes", "a": kind, "b": kind, **(asdict(apart) if readable else {})}


def in_step(a: Iterator[memoryview], b: Iterator[memoryview]) -> Iterator[tuple[memoryview, memoryview]]:
    """Two streams of the same bytes in pieces of the same length, however each is cut."""
    left, right = memoryview(b""), memoryview(b"")
    while True:
        left, right = left or next(a, left), right or next(b, right)
        size = min(len(left), len(right))
        if not size:
            return
        yield left[:size], right[:size]
        left, right = left[size:], right[size:]


def differing_values(a: Any, b: Any, path: str = "") -> Iterator[dict[str, Any]]:
    """A row for every leaf of two JSON values that is not the same; `path` by names and numbers, with slashes."""
    if isinstance(a, dict) and isinstance(b, dict):
        pairs = [(name, a.get(name, _ABSENT), b.get(name, _ABSENT)) for name in dict.fromkeys([*a, *b])]
    elif isinstance(a, list) and isinstance(b, list) and len(a) == len(b):
        pairs = [(str(number), x, y) for number, (x, y) in enumerate(zip(a, b, strict=True))]
    else:
        if type(a) is not type(b) or a != b:
            yield {"path": path, **{name: x for name, x in (("a", a), ("b", b)) if x is not _ABSENT}}
        return
    for name, x, y in pairs:
        yield from differing_values(x, y, f"{path}/{name}" if path else name)


def _own(both: tuple[Whole, Whole], ranks: int) -> Iterator[dict[str, Any]]:
    """What belongs to single ranks (random number generators), of the ranks that both worlds have."""
    for rank in range(ranks):
        held = [{e.key: b"".join(bytes(part) for part in e.data()) for e in whole.own(rank)} for whole in both]
        for key in dict.fromkeys([*held[0], *held[1]]):
            if held[0].get(key) != held[1].get(key):
                where = "differs" if all(key in one for one in held) else f"only in {'A' if key in held[0] else 'B'}"
                if where == "differs" and key == f"{OWN}{rank}.values":
                    where += parts_of(held[0][key], held[1][key])
                yield {"rank": rank, "key": key, "what": where}


def parts_of(a: bytes, b: bytes) -> str:
    """ ": " and which parts of what one rank keeps for itself differ (rng/python, ...); "" when that cannot be read."""
    try:
        values = [strict.parsed(one) for one in (a, b)]
        for value in values:
            deque(strict.walked(value), maxlen=0)  # not nested too deep
    except strict.Unfit:
        return ""
    paths = (row["path"].split("/") for row in differing_values(*values))
    return ": " + ", ".join(dict.fromkeys("/".join(path[:2]) for path in paths))


def _page(
    heads: list[dict[str, Any]], compared: int, tensors: list[dict[str, Any]], values: list[Any], own: list[Any]
) -> None:
    out = show.console()
    show.table(out, ("", "checkpoint", "step", "ranks", "saved", "metrics"), map(_head_row, "AB", heads))
    for title, columns, rows in (
        ("tensors", ("tensor", "what", "A", "B", "elements", "abs", "rel"), list(map(_row, _largest_first(tensors)))),
        ("values", ("value", "A", "B"), [(row["path"], _short(row, "a"), _short(row, "b")) for row in values]),
        ("of single ranks", ("rank", "key", "what"), [(row["rank"], row["key"], row["what"]) for row in own]),
    ):
        if rows:
            out.print(f"\n{title} that differ: {len(rows)}", style="bold")
            show.table(out, columns, rows[:SHOWN])
            if len(rows) > SHOWN:
                out.print(f"... and {len(rows) - SHOWN} more: --json has them all")
    out.print("" if tensors or values or own else f"\nequal: {compared} tensors, all values")


def _head_row(letter: str, head: dict[str, Any]) -> tuple[object, ...]:
    metrics = ", ".join(f"{name}={value:.4g}" for name, value in sorted(head["metrics"].items())) or "-"
    return letter, head["path"], head["step"], head["world_size"], show.clock_time(head["saved_at"]), metrics


def _largest_first(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Those that cannot be compared first, then by the relative difference."""
    return sorted(rows, key=lambda row: (row["what"] == "bytes", -row.get("max_rel", float("inf"))))


def _row(row: dict[str, Any]) -> tuple[object, ...]:
    if row["what"] != "bytes":
        return row["name"], row["what"], row["a"] or "-", row["b"] or "-", "-", "-", "-"
    if "elements" not in row:
        return row["name"], "bytes; the type needs torch or numpy", row["a"], row["b"], "?", "?", "?"
    what = "bytes" if row["elements"] else "bytes, not in double precision"
    if row["not_finite"]:
        what += f"; {row['not_finite']} NaN or infinite"
    return row["name"], what, row["a"], row["b"], row["elements"], f"{row['max_abs']:.3g}", f"{row['max_rel']:.3g}"


def _short(row: dict[str, Any], name: str) -> str:
    if name not in row:
        return "-"
    text = repr(row[name])
    return text if len(text) <= TEXT_MAX else text[: TEXT_MAX - 3] + "..."
