"""Objects of Kubernetes against published schemas, in which no field may stand that they do not know."""

import functools
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from jsonschema import Draft202012Validator
from models import Known, Schema, read
from published import package

OLDEST, NEWEST = "1.30.0", "1.37.0"
_FILES = "/api/_definitions.json#/$defs/"


class Strict:
    """`wrong` says what an API server with these definitions would refuse, field by field."""

    def __init__(self, packages: Path, version: str = NEWEST) -> None:
        with package(packages, "kubernetes_validate") as archive:
            text = archive.read(f"kubernetes_validate/kubernetes-json-schema/v{version}-local-strict/_definitions.json")
        self._kubernetes: dict[str, Schema] = json.loads(text.decode().replace(_FILES, "#/$defs/"))["$defs"]
        self._by_letters = {name.replace(".", "").lower(): name for name in self._kubernetes}
        self._packages = packages

    def wrong(self, thing: Mapping[str, Any]) -> list[str]:
        validator = self._validator(str(thing.get("apiVersion")), str(thing.get("kind")))
        found = sorted(validator.iter_errors(thing), key=lambda error: list(map(str, error.absolute_path)))
        return [f"{'/'.join(map(str, error.absolute_path))}: {error.message[:200]}" for error in found]

    @functools.cache  # noqa: B019 (one for a run of the tests)
    def _validator(self, api: str, kind: str) -> Draft202012Validator:
        """Raises `KeyError` for what nobody publishes."""
        group, _, version = api.rpartition("/")
        for name, shape in self._kubernetes.items():
            marks = shape.get("x-kubernetes-group-version-kind", ())
            if {"group": group, "kind": kind, "version": version} in marks and not name.endswith("List"):
                return self._made(name, {})
        wheel, folder, prefix, known = self._published()[api]
        with package(self._packages, wheel) as archive:
            names = [one for one in archive.namelist() if one.startswith(folder) and one.endswith(".py")]
            sources = [archive.read(one).decode() for one in names]
        return self._made(f"{prefix}{kind}", read(sources, known, f"{prefix}{kind}"))

    def _published(self) -> dict[str, tuple[str, str, str, Known]]:
        """By group and version: the package, where its classes are, what their names begin with, and whose else they
        speak of."""
        trainer = ("kubeflow_trainer_api", "kubeflow_trainer_api/models/")
        prometheus = ("cloudcoil_models_prometheus_operator", "cloudcoil/models/prometheus_operator/v1.py")
        return {
            "jobset.x-k8s.io/v1alpha2": (*trainer, "JobsetV1alpha2", self._known),
            "trainer.kubeflow.org/v1alpha1": (*trainer, "TrainerV1alpha1", self._known),
            "kubeflow.org/v1": ("kubeflow_training", "kubeflow/training/models/", "KubeflowOrgV1", self._v1),
            "monitoring.coreos.com/v1": (*prometheus, "", self._apimachinery),
        }

    def _made(self, top: str, more: Mapping[str, Schema]) -> Draft202012Validator:
        ours = {"type": "object", "required": ["apiVersion", "kind", "metadata"]}
        return Draft202012Validator(
            {"allOf": [ours, {"$ref": f"#/$defs/{top}"}], "$defs": {**self._kubernetes, **more}}
        )

    def _known(self, name: str) -> Schema | None:
        found = self._by_letters.get(name.lower())
        return {"$ref": f"#/$defs/{found}"} if found else None

    def _v1(self, name: str) -> Schema | None:
        """`V1PodTemplateSpec`, as the elder client of Kubernetes calls its types; `K8sIoApi…` where it is not sure."""
        if not name.startswith("V1"):
            return self._known(
                "IoK8sApimachineryPkgApiResourceQuantity" if name == "Quantity" else name.replace("K8sIo", "IoK8s")
            )
        return self._known(f"IoK8sApiCore{name}") or self._known(f"IoK8sApimachineryPkgApisMeta{name}")

    def _apimachinery(self, name: str) -> Schema | None:
        return {"$ref": "#/$defs/io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"} if name == "ObjectMeta" else None
