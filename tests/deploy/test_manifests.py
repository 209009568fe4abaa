"""What deploy/kubernetes holds: as published schemas want it, as kubectl builds it, no right without a reason."""

import copy
import re
import shutil
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from kustomized import LOADER, Thing, build, containers, documents, key
from strictly import NEWEST, OLDEST, Strict

from rankpulse.core.settings import parse
from rankpulse.dashboards import kubernetes
from rankpulse.dashboards.alerting import AGENTS, MONITORS
from rankpulse.receiver import kube_objects

REPO = Path(__file__).resolve().parents[2]
HERE = REPO / "deploy" / "kubernetes"
FOLDERS = ("base", "receiver", "monitoring", "overlays/small", "overlays/tls")
EXAMPLES = sorted(path.name for path in (HERE / "examples").glob("*.yaml"))


@pytest.fixture(scope="module")
def newest(packages: Path) -> Strict:
    return Strict(packages, NEWEST)


def made(folder: str) -> list[Thing]:
    return list(build(HERE / folder).values())


def one(folder: str, kind: str, name: str) -> Any:
    return build(HERE / folder)[kind, "rankpulse", name]


def example(name: str, kind: str) -> Any:
    [found] = [thing for thing in documents(HERE / "examples" / name) if thing["kind"] == kind]
    return found


def test_everything_is_as_its_api_publishes_it(newest: Strict) -> None:
    things = [thing for folder in FOLDERS for thing in made(folder)]
    things += [thing for name in EXAMPLES for thing in documents(HERE / "examples" / name)]
    assert {str(key(thing)): wrong for thing in things if (wrong := newest.wrong(thing))} == {}
    kinds = {"DaemonSet", "Deployment", "ServiceMonitor", "PrometheusRule", "JobSet", "TrainJob", "PyTorchJob"}
    assert {thing["kind"] for thing in things} > kinds


def test_an_older_kubernetes_has_all_of_it(packages: Path) -> None:
    things = [thing for folder in ("overlays/small", "overlays/tls") for thing in made(folder)]
    things = [thing for thing in things if thing["kind"] not in ("ServiceMonitor", "PrometheusRule")]
    oldest = Strict(packages, OLDEST)
    assert {str(key(thing)): wrong for thing in things if (wrong := oldest.wrong(thing))} == {}


def test_a_component_for_nodes_without_a_journal_fits_the_base(newest: Strict) -> None:
    changed = with_component("kernel-log")
    [agent] = [thing for thing in changed if thing["kind"] == "DaemonSet"]
    assert newest.wrong(agent) == []
    assert agent["spec"]["template"]["spec"]["containers"][0]["securityContext"]["privileged"] is True


def with_component(name: str) -> list[Thing]:
    return list(build(HERE / "components" / name, onto=build(HERE / "base")).values())


def mutants(tree: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], str]]:
    """Where a field could be misspelt, and where a value could be of a wrong type."""
    if isinstance(tree, dict):
        for name, value in tree.items():
            if not (path and path[-1] in FREE):
                yield (*path, name), "misspelt"
                if isinstance(value, bool | int):
                    yield (*path, name), "worded"
            yield from mutants(value, (*path, name))
    elif isinstance(tree, list):
        for at, value in enumerate(tree):
            yield from mutants(value, (*path, at))


# maps in which every name is good, and what holds one thing of several types
FREE = {"labels", "annotations", "matchLabels", "nodeSelector", "limits", "requests", "stringData", "data"}
FREE |= {"pytorchReplicaSpecs"}
EITHER = {"maxUnavailable", "maxSurge", "minAvailable", "port", "targetPort", "defaultMode"}


def mutated(thing: Thing, path: tuple[Any, ...], how: str) -> Thing:
    changed = copy.deepcopy(thing)
    at: Any = changed
    for part in path[:-1]:
        at = at[part]
    if how == "misspelt":
        at[f"{path[-1]}X"] = at.pop(path[-1])
    else:
        at[path[-1]] = "seven"
    return changed


MUTATED = [
    ("base", "DaemonSet", "rankpulse-agent"),
    ("base", "Deployment", "rankpulse-monitor"),
    ("base", "NetworkPolicy", "rankpulse-agent"),
    ("monitoring", "ServiceMonitor", "rankpulse-agent"),
    ("receiver", "Deployment", "rankpulse-receiver"),
]


@pytest.mark.parametrize(("folder", "kind", "name"), MUTATED)
def test_a_misspelt_field_and_a_wrong_type_are_refused(newest: Strict, folder: str, kind: str, name: str) -> None:
    refused(newest, one(folder, kind, name))


@pytest.mark.parametrize(
    ("file", "kind"), [("jobset.yaml", "JobSet"), ("trainjob.yaml", "TrainJob"), ("pytorchjob.yaml", "PyTorchJob")]
)
def test_so_are_those_of_jobs(newest: Strict, file: str, kind: str) -> None:
    refused(newest, example(file, kind))


def refused(strict: Strict, thing: Thing) -> None:
    """By the schema itself: a misspelt `apiVersion` or `kind` would already not find one."""
    todo = [(path, how) for path, how in mutants(thing) if path[0] not in ("apiVersion", "kind")]
    assert len(todo) > 12
    todo = [(path, how) for path, how in todo if how == "misspelt" or path[-1] not in EITHER]
    accepted = [(path, how) for path, how in todo if not strict.wrong(mutated(thing, path, how))]
    assert accepted == []


def test_rules_with_a_mistake_are_refused(newest: Strict) -> None:
    rules = one("monitoring", "PrometheusRule", "rankpulse")
    for path in (
        ("spec", "groups", 0, "rules", 0, "expr"),
        ("spec", "groups", 0, "name"),
        ("spec", "groups", 0, "rules"),
    ):
        assert newest.wrong(mutated(rules, path, "misspelt")), path


@pytest.mark.parametrize("folder", FOLDERS)
def test_kubectl_makes_the_same_of_it(folder: str) -> None:
    kubectl = shutil.which("kubectl")
    if kubectl is None:
        pytest.skip("no kubectl here: what it builds is only built by tests/deploy/kustomized.py")
    argv = [kubectl, "kustomize", str(HERE / folder)]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    theirs = {key(thing): thing for thing in yaml.load_all(done.stdout, Loader=LOADER)}
    assert theirs == build(HERE / folder)


def test_the_agent_has_the_rights_of_its_unit_and_no_others() -> None:
    """But for the kernel's log, which a container reads from the journal."""
    pod = one("base", "DaemonSet", "rankpulse-agent")["spec"]["template"]["spec"]
    [agent] = pod["containers"]
    unit = (REPO / "deploy" / "rankpulse-agent.service").read_text()
    [bounded] = re.findall(r"^CapabilityBoundingSet=(.+)$", unit, re.M)
    assert {f"CAP_{name}" for name in agent["securityContext"]["capabilities"]["add"]} == set(bounded.split()) - {
        "CAP_SYSLOG"
    }
    assert pod["hostPID"] is True
    assert not pod.get("hostNetwork")
    assert not pod.get("hostIPC")
    writable = {mount["name"] for mount in agent["volumeMounts"] if not mount.get("readOnly")}
    assert writable == {"run", "state", "tmp"}


@pytest.mark.parametrize("folder", ["base", "receiver", "overlays/small", "overlays/tls"])
def test_pods_have_nothing_that_they_do_not_need(folder: str) -> None:
    for thing in made(folder):
        for container in containers(thing):
            context, name = container["securityContext"], f"{thing['metadata']['name']}/{container['name']}"
            assert context["allowPrivilegeEscalation"] is False, name
            assert context["readOnlyRootFilesystem"] is True, name
            assert context["capabilities"]["drop"] == ["ALL"], name
            assert re.search(r":v?\d[\w.]*$", container["image"]), f"{name}: which version?"
            assert container["resources"]["limits"]["memory"], name
        if thing["kind"] in ("Deployment", "StatefulSet", "DaemonSet"):
            pod = thing["spec"]["template"]["spec"]
            assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
            token = pod.get("automountServiceAccountToken", True)
            assert token is (thing["metadata"]["name"] == "rankpulse-receiver"), "only the receiver speaks to the API"
            if thing["kind"] != "DaemonSet":
                assert pod["securityContext"]["runAsNonRoot"] is True


def test_every_port_has_a_policy_that_says_who_may_come() -> None:
    for folder in ("overlays/small", "overlays/tls"):
        things = made(folder)
        policies = [thing for thing in things if thing["kind"] == "NetworkPolicy"]
        assert [thing["spec"] for thing in policies if thing["spec"]["podSelector"] == {}] == [
            {"podSelector": {}, "policyTypes": ["Ingress"]}
        ]
        for thing in things:
            if thing["kind"] in ("Deployment", "StatefulSet", "DaemonSet"):
                labels = thing["spec"]["selector"]["matchLabels"]
                [policy] = [one for one in policies if one["spec"]["podSelector"] == {"matchLabels": labels}]
                assert all(rule["from"] for rule in policy["spec"]["ingress"])
                assert policy["spec"]["ingress"] != []


def test_labels_and_names_agree_with_one_another() -> None:
    for folder in ("base", "receiver", "overlays/small", "overlays/tls"):
        things = made(folder)
        pods = [t for t in things if t["kind"] in ("Deployment", "StatefulSet", "DaemonSet")]
        labels = [t["spec"]["template"]["metadata"]["labels"] for t in pods]
        for thing in things:
            selector = thing["spec"]["selector"] if thing["kind"] in ("Service", "PodDisruptionBudget") else None
            wanted = (selector or {}).get("matchLabels", selector) or {}
            assert any(wanted.items() <= have.items() for have in labels), key(thing)
        for pod in pods:
            spec = pod["spec"]["template"]["spec"]
            volumes = {volume["name"] for volume in spec["volumes"]} if "volumes" in spec else set()
            volumes |= {claim["metadata"]["name"] for claim in pod["spec"].get("volumeClaimTemplates", ())}
            used = {mount["name"] for container in containers(pod) for mount in container["volumeMounts"]}
            assert used == volumes, key(pod)


def test_secrets_and_settings_that_pods_mount_are_shown() -> None:
    shown = {t["metadata"]["name"]: set(t["stringData"]) for t in documents(HERE / "examples" / "secrets.yaml")}
    things = made("overlays/tls")
    maps = {thing["metadata"]["name"] for thing in things if thing["kind"] == "ConfigMap"}
    for thing in things:
        if thing["kind"] not in ("Deployment", "DaemonSet"):
            continue
        for volume in thing["spec"]["template"]["spec"]["volumes"]:
            assert volume.get("secret", {}).get("secretName", "rankpulse-agent") in shown
            assert volume.get("configMap", {}).get("name", "rankpulse-config") in maps


@pytest.mark.parametrize("folder", ["base", "overlays/tls"])
def test_settings_are_good_and_name_files_that_are_mounted(folder: str) -> None:
    text = one(folder, "ConfigMap", "rankpulse-config")["data"]["rankpulse.toml"]
    settings = parse(tomllib.loads(text))
    assert settings.agent.run_dir == "/dev/shm/rankpulse"
    named = re.findall(r'file = "(/[^"]+)"', text)
    shown = {t["metadata"]["name"]: set(t["stringData"]) for t in documents(HERE / "examples" / "secrets.yaml")}
    for thing in (one(folder, "DaemonSet", "rankpulse-agent"), one(folder, "Deployment", "rankpulse-monitor")):
        pod = thing["spec"]["template"]["spec"]
        secrets = {
            volume["name"]: shown[volume["secret"]["secretName"]] for volume in pod["volumes"] if "secret" in volume
        }
        there = {
            f"{mount['mountPath']}/{file}"
            for mount in pod["containers"][0]["volumeMounts"]
            for file in secrets.get(mount["name"], ())
        }
        # an agent needs no key of a webhook, and must not have it
        assert set(named) - there <= {path for path in named if "receiver" in path}
        assert not any("receiver" in path for path in there) or thing["kind"] == "Deployment"


def test_the_receivers_settings_are_good() -> None:
    from rankpulse.receiver import settings

    text = one("receiver", "ConfigMap", "rankpulse-receiver")["data"]["receiver.toml"]
    parsed = settings.parse(tomllib.loads(text))
    assert parsed.jobs[0].kind in kube_objects.KINDS
    volumes = one("receiver", "Deployment", "rankpulse-receiver")["spec"]["template"]["spec"]["containers"][0][
        "volumeMounts"
    ]
    kept = [mount["mountPath"] for mount in volumes if mount["name"] == "state"]
    assert [str(Path(parsed.state_file).parent)] == kept


def test_prometheus_finds_the_jobs_that_rules_ask_for() -> None:
    monitors = [thing for thing in made("monitoring") if thing["kind"] == "ServiceMonitor"]
    services = {t["metadata"]["name"]: t for t in made("base") if t["kind"] == "Service"}
    shown = {t["metadata"]["name"]: set(t["stringData"]) for t in documents(HERE / "examples" / "secrets.yaml")}
    assert {one["metadata"]["name"] for one in monitors} == set(re.findall(r'job="([\w-]+)"', MONITORS + AGENTS))
    for thing in monitors:
        service = services[thing["metadata"]["name"]]  # without `jobLabel` its name is the job
        assert thing["spec"]["selector"]["matchLabels"].items() <= service["metadata"]["labels"].items()
        [endpoint] = thing["spec"]["endpoints"]
        assert endpoint["port"] in {port["name"] for port in service["spec"]["ports"]}
        assert {"cluster"} == {rule["targetLabel"] for rule in endpoint["relabelings"]}
        token = endpoint["authorization"]["credentials"]
        assert token["key"] in shown[token["name"]]


def test_dashboards_can_be_applied() -> None:
    boards = [thing for thing in made("monitoring") if thing["kind"] == "ConfigMap"]
    files = {path.name for path in (HERE / "monitoring" / "boards").glob("*.yaml")}
    assert {f"{thing['metadata']['name']}.yaml" for thing in boards} == files
    assert len(boards) > 3
    for thing in boards:
        assert sum(len(text.encode()) for text in thing["data"].values()) < kubernetes.BOARD_MAX
    with pytest.raises(ValueError, match="split the dashboard"):
        kubernetes.board({"uid": "x", "title": "ü" * (kubernetes.BOARD_MAX // 2)})


@pytest.mark.parametrize("name", ["jobset.yaml", "trainjob.yaml", "pytorchjob.yaml"])
def test_jobs_share_the_run_directory_with_the_agent(name: str) -> None:
    agent = one("base", "DaemonSet", "rankpulse-agent")["spec"]["template"]["spec"]
    [run] = [volume["hostPath"]["path"] for volume in agent["volumes"] if volume["name"] == "run"]
    pods = [thing for thing in documents(HERE / "examples" / name) if containers(thing)]
    assert pods
    for pod in pods:
        for container in containers(pod):
            mounts = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
            assert mounts["rankpulse"] == run, "maps of processes name the file as the job sees it"
    text = (HERE / "examples" / name).read_text()
    assert f"path: {run}, type: Directory}}" in text, "a pod must wait for the agent, not make its directory"


def test_a_sidecar_shares_memory_and_processes_with_its_job_and_has_no_rights() -> None:
    text = example("jobset-sidecar.yaml", "ConfigMap")["data"]["rankpulse.toml"]
    settings = parse(tomllib.loads(text))
    job = example("jobset-sidecar.yaml", "JobSet")["spec"]["replicatedJobs"][0]["template"]
    pod = job["spec"]["template"]["spec"]
    [agent], [trainer] = pod["initContainers"], pod["containers"]
    where = [{m["name"]: m["mountPath"] for m in one["volumeMounts"]}["rankpulse"] for one in (agent, trainer)]
    assert where == [settings.agent.run_dir] * 2
    assert {"name": "RANKPULSE_DIR", "value": settings.agent.run_dir} in trainer["env"]
    [run] = [volume for volume in pod["volumes"] if volume["name"] == "rankpulse"]
    assert run["emptyDir"]["medium"] == "Memory"
    assert (pod["shareProcessNamespace"], agent["restartPolicy"]) == (True, "Always")
    assert not any("hostPath" in volume for volume in pod["volumes"]), "Pod Security level `restricted`"
    assert pod["securityContext"]["runAsNonRoot"] is True
    for one in (agent, trainer):
        assert one["securityContext"]["capabilities"] == {"drop": ["ALL"]}
        assert one["securityContext"]["allowPrivilegeEscalation"] is False


def test_the_receiver_knows_where_such_jobs_are_suspended(newest: Strict) -> None:
    """`suspend` stands where the published schema has it, and nothing else is called for to resume."""
    for kind, file in (("JobSet", "jobset.yaml"), ("TrainJob", "trainjob.yaml"), ("PyTorchJob", "pytorchjob.yaml")):
        thing = copy.deepcopy(example(file, kind))
        assert thing["apiVersion"] == "/".join(kube_objects.KINDS[kind][:2])
        at: Any = thing
        *way, last = kube_objects.KINDS[kind].suspend
        for part in way:
            at = at.setdefault(part, {})
        at[last] = True
        assert newest.wrong(thing) == []
        at[last] = "yes"
        assert newest.wrong(thing) != []
