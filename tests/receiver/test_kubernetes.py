"""Kubernetes: over real HTTPS against a stand-in that checks verbs, paths and bodies; and rules over values."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from certs import Authority
from kube_server import KubeServer
from receiver_world import KubeWorld, restart, settings
from test_slurm import MARK, Note

from rankpulse.receiver.acting import Later, Refused
from rankpulse.receiver.deciding import Plan, plan
from rankpulse.receiver.kube_api import KubeApi
from rankpulse.receiver.kubernetes import Kubernetes
from rankpulse.receiver.reading import event
from rankpulse.receiver.settings import KubernetesSettings

KINDS = ("JobSet", "TrainJob", "PyTorchJob")
REPO = Path(__file__).resolve().parents[2]


def asked(folder: Path, number: int = 1, kind: str = "JobSet", **change: Any) -> Plan:
    body = restart(number, **change)
    job = {"run_id": "*", "actuator": "kubernetes", "namespace": "train", "kind": kind}
    made = plan(event(body, json.loads(body)["id"]), settings(folder, job))
    assert isinstance(made, Plan)
    return made


def kubernetes(world: KubeWorld, **change: Any) -> Kubernetes:
    return Kubernetes(KubernetesSettings(**change), world, look_every_s=0)


async def test_every_kind_is_suspended_and_resumed_with_the_rights_that_the_manifest_gives(tmp_path: Path) -> None:
    authority, rights = Authority(tmp_path, "good"), set[tuple[str, str, str]]()
    for kind in KINDS:
        world, note = KubeWorld(kind), Note()
        async with KubeServer(world, authority, tmp_path).serving() as server:
            made = KubernetesSettings(url=server.url, token_file=server.token_file, ca_file=server.ca_file)
            actuator = Kubernetes(made, KubeApi(made, {}), look_every_s=0)
            would = await actuator.would(asked(tmp_path, kind=kind), note)
            assert world.bodies == []
            assert [one.split(" ", 2)[0] for one in would] == ["PATCH", "PATCH", "wait:", "PATCH"]
            assert "suspended and resumed" in await actuator.restart(asked(tmp_path, kind=kind), note)
            assert "before" in await actuator.restart(asked(tmp_path, kind=kind), note)
            rights |= server.asked
        assert (world.suspends, world.resumes) == (1, 1)
        assert world.object["metadata"]["annotations"] == {"rankpulse/decision": MARK, "rankpulse/stage": "done"}
        assert world.nodes["gpu07"]["spec"]["unschedulable"] is True
        assert len(world.bodies) == 3
    assert rights == granted()


def granted() -> set[tuple[str, str, str]]:
    """What deploy/kubernetes/receiver/rbac.yaml allows."""
    documents = yaml.safe_load_all((REPO / "deploy/kubernetes/receiver/rbac.yaml").read_text())
    return {
        (verb, group, resource)
        for document in documents
        for rule in document.get("rules", [])
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


async def test_an_api_server_that_is_not_ours_or_does_not_let_us_is_asked_later(tmp_path: Path) -> None:
    async with KubeServer(KubeWorld(), Authority(tmp_path, "good"), tmp_path).serving() as server:
        foreign = Authority(tmp_path, "foreign").ca_file
        for change, words in (
            ({"ca_file": foreign}, "Certificate"),
            ({"url": "https://127.0.0.1:1"}, "ClientConnector"),
            ({"token_file": str(tmp_path / "none")}, "No such file"),
            ({"url": ""}, "we run in no cluster"),
        ):
            given = {"url": server.url, "token_file": server.token_file, "ca_file": server.ca_file, **change}
            made = KubernetesSettings(**given)
            with pytest.raises(Later, match=words):
                await Kubernetes(made, KubeApi(made, {})).restart(asked(tmp_path), Note())
        good = KubernetesSettings(url=server.url, token_file=server.token_file, ca_file=server.ca_file)
        for status, words in ((403, "receiver/rbac.yaml"), (500, "500"), (307, "307")):
            server.status = status
            with pytest.raises(Later, match=words):
                await Kubernetes(good, KubeApi(good, {})).restart(asked(tmp_path), Note())


def test_in_a_cluster_its_address_is_found() -> None:
    environ = {"KUBERNETES_SERVICE_HOST": "fd00::1", "KUBERNETES_SERVICE_PORT_HTTPS": "6443"}
    assert KubeApi(KubernetesSettings(), environ)._base == "https://[fd00::1]:6443"


async def test_who_was_quicker_is_not_overwritten(tmp_path: Path) -> None:
    world = KubeWorld()
    world.interfering = 3
    await kubernetes(world).restart(asked(tmp_path), Note())
    assert (world.suspends, world.resumes) == (1, 1)
    assert [one["key"] for one in world.nodes["gpu07"]["spec"]["taints"]] == ["nvidia.com/gpu", "rankpulse/left-out"]


@pytest.mark.parametrize(
    ("kind", "condition", "word"),
    [
        ("JobSet", "Completed", "completed"),
        ("JobSet", "Failed", "failed"),
        ("TrainJob", "Complete", "completed"),
        ("PyTorchJob", "Succeeded", "completed"),
        ("PyTorchJob", "Failed", "failed"),
    ],
)
async def test_what_has_ended_cannot_be_resumed_and_nothing_is_touched(
    tmp_path: Path, kind: str, condition: str, word: str
) -> None:
    world = KubeWorld(kind)
    world.object["status"] = {"conditions": [{"type": condition, "status": "True"}]}
    with pytest.raises(Refused, match=f"has {word}"):
        await kubernetes(world).restart(asked(tmp_path, kind=kind), Note())
    assert world.bodies == []


async def test_what_somebody_else_has_suspended_is_left_alone(tmp_path: Path) -> None:
    world = KubeWorld()
    world.object["spec"]["suspend"] = True
    with pytest.raises(Refused, match="suspended by somebody else"):
        await kubernetes(world).restart(asked(tmp_path), Note())
    assert world.bodies == []


async def test_what_is_being_deleted_or_is_not_there_is_left_alone(tmp_path: Path) -> None:
    world = KubeWorld()
    world.object["metadata"]["deletionTimestamp"] = "2027-01-15T08:00:00Z"
    with pytest.raises(Refused, match="being deleted"):
        await kubernetes(world).restart(asked(tmp_path), Note())
    with pytest.raises(Refused, match="no such object"):
        await kubernetes(world).restart(asked(tmp_path, run_id="78"), Note())
    with pytest.raises(Refused, match="no such object"):
        await kubernetes(KubeWorld()).restart(asked(tmp_path, without=("gpu99",)), Note())
    assert world.bodies == []


async def test_somebody_who_resumes_it_is_not_undone(tmp_path: Path) -> None:
    world = KubeWorld()
    world.object["metadata"]["annotations"] = {"rankpulse/decision": MARK, "rankpulse/stage": "suspending"}
    await kubernetes(world).restart(asked(tmp_path), Note())
    assert (world.suspends, world.resumes) == (0, 0)
    assert world.object["metadata"]["annotations"]["rankpulse/stage"] == "done"


async def test_nodes_are_cordoned_in_moderation(tmp_path: Path) -> None:
    for without, words in ((("gpu07", "gpu08", "gpu09"), "cordon_max is 2"), (("GPU/..",), "no name of a node")):
        world = KubeWorld()
        with pytest.raises(Refused, match=words):
            await kubernetes(world).restart(asked(tmp_path, without=without), Note())
        assert world.bodies == []
    world = KubeWorld()
    await kubernetes(world, cordon=False).restart(asked(tmp_path, without=("gpu07", "gpu08", "gpu09")), Note())
    assert world.resumes == 1
    assert "unschedulable" not in world.nodes["gpu07"]["spec"]


async def test_one_that_does_not_suspend_is_waited_for_and_tried_again(tmp_path: Path) -> None:
    world = KubeWorld()
    world.slow = 10_000
    with pytest.raises(Later, match="its pods are being ended"):
        await kubernetes(world).restart(asked(tmp_path), Note())
    world.slow = 1
    await kubernetes(world).restart(asked(tmp_path), Note())
    assert (world.suspends, world.resumes) == (1, 1)


async def test_an_old_decision_is_not_begun(tmp_path: Path) -> None:
    world = KubeWorld()
    with pytest.raises(Refused, match="too old"):
        await kubernetes(world).restart(asked(tmp_path)._replace(may_begin=False), Note())
    assert world.bodies == []
