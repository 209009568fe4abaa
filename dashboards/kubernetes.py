"""The rules and the dashboards as objects of Kubernetes: a PrometheusRule, and a ConfigMap for each dashboard."""

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

FOLDER: Final = "deploy/kubernetes/monitoring"
NAMESPACE: Final = "rankpulse"
RULES: Final = f"{FOLDER}/rules.yaml"
HEAD: Final = "# Made by `make dashboards` from dashboards/kubernetes.py: change it there.\n"
# `kubectl apply` keeps a copy of the object in an annotation, and all annotations together may have 256 KiB. A board
# below that can be applied from the client's side as well; the limit of a ConfigMap itself is 1 MiB.
BOARD_MAX: Final = 262_144
PART: Final[Mapping[str, str]] = {"app.kubernetes.io/part-of": "rankpulse"}


def rule(groups: Mapping[str, Any]) -> dict[str, Any]:
    """`groups`: what Prometheus reads as a rule file."""
    return {
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "PrometheusRule",
        "metadata": _named("rankpulse"),
        "spec": dict(groups),
    }


def board_file(uid: str) -> str:
    return f"{FOLDER}/boards/{uid}.yaml"


def board(value: Mapping[str, Any]) -> dict[str, Any]:
    """A dashboard in the form that Grafana's sidecar looks for. Raises `ValueError` where it is too large."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    uid, size = value["uid"], len(text.encode())
    if size > BOARD_MAX:
        raise ValueError(f"{uid} has {size} bytes, and {BOARD_MAX} can be applied: split the dashboard")
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            **_named(uid, {"grafana_dashboard": "1"}),
            "annotations": {"grafana_folder": "rankpulse"},
        },
        "data": {f"{uid}.json": text},
    }


def files(groups: Mapping[str, Any], boards: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """All of them, by their paths in the repository."""
    return {RULES: rule(groups), **{board_file(one["uid"]): board(one) for one in boards}}


def _named(name: str, labels: Mapping[str, str] = PART) -> dict[str, Any]:
    return {"name": name, "namespace": NAMESPACE, "labels": {**PART, **labels}}
