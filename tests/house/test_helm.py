"""The Helm chart: what it says of the image is so; with --helm, helm and kubeconform judge it, too."""

import json
import os
import re
import subprocess
import urllib.request
from pathlib import Path
from typing import Any

import pytest
import yaml

from pocketmq.cli.servers.server_options import parse
from pocketmq.client import Message
from pocketmq.client.sync import Producer
from pocketmq.console.config import DEFAULT_PORT as CONSOLE_PORT
from pocketmq.remoting.errors import PocketMQError
from tests.cli.servers import COMMAND, Server
from tests.house.image_files import instructions
from tests.kit.ports import free_ports
from tests.kit.waiting import until

CHART = Path(__file__).parents[2] / "docker" / "helm"
VALUES = yaml.safe_load((CHART / "values.yaml").read_text("utf-8"))
KUBECTL = "k8s.io/kubectl@v0.37.0"
"""Carries the schema of Kubernetes 1.37 for its own tests."""
PINNED = f"0.1.0@sha256:{'0' * 64}"
# Everything that has a branch of its own.
FULL = {
    "image": {"tag": PINNED},
    "advertise": "192.0.2.10",
    "config": {"mapedFileSizeCommitLog": 1073741824, "flushDiskType": "SYNC_FLUSH"},
    "console": {"user": "ann", "passwordSecret": "console", "hostNames": "mq.example.org"},
    "service": {"type": "LoadBalancer", "annotations": {"a/b": "c"}},
    "storage": {"className": "fast"},
    "env": [{"name": "TZ", "value": "UTC"}],
    "imagePullSecrets": [{"name": "registry"}],
    "podAnnotations": {"a/b": "c"},
    "nodeSelector": {"disk": "ssd"},
    "tolerations": [{"key": "mq", "operator": "Exists"}],
    "affinity": {"nodeAffinity": {}},
}


def plain(template: str) -> list[Any]:
    """The documents of a template with every branch taken and each value an x."""
    text = (CHART / "templates" / template).read_text("utf-8")
    text = re.sub(r"(?m)^\s*\{\{-.*\}\}\n", "", text)
    # Of one broker.
    text = text.replace('{{ include "pocketmq.role" . }}', '"up"')
    return list(yaml.safe_load_all(re.sub(r"\{\{.*?\}\}", "x", text)))


def pod() -> Any:
    [stateful] = plain("statefulset.yaml")
    return stateful["spec"]["template"]["spec"]


def member_environment() -> dict[str, str]:
    """What the chart gives to a broker of a set."""
    text = (CHART / "templates" / "_names.tpl").read_text("utf-8")
    _, _, member = text.partition('{{- define "pocketmq.member" -}}')
    member = re.sub(r"(?m)^\{\{-.*\}\}\n", "", member.partition("{{- end -}}")[0])
    rows = yaml.safe_load(re.sub(r"\{\{.*?\}\}", "x", member))
    return {each["name"]: each["value"] for each in rows}


def of_image(keyword: str) -> str:
    return [rest for each, rest in instructions() if each == keyword][-1]


def broker_conf() -> str:
    [config] = plain("config.yaml")
    text: str = config["data"]["broker.conf"]
    return text


def test_the_chart_is_true_of_the_image() -> None:
    """Its words, user, folder and ports."""
    [container] = pod()["containers"]
    options = parse(container["args"][0], container["args"][1:])
    mounts = {each["mountPath"]: each["name"] for each in container["volumeMounts"]}
    assert mounts[str(options.config)] == "config"
    assert mounts[of_image("VOLUME")] == "store"
    rights = pod()["securityContext"]
    assert of_image("USER") == f"{rights['runAsUser']}:{rights['runAsGroup']}"
    assert rights["seccompProfile"] == {"type": "RuntimeDefault"}
    assert rights["runAsNonRoot"] is True
    locked = container["securityContext"]
    assert locked["readOnlyRootFilesystem"] is True
    assert locked["allowPrivilegeEscalation"] is False
    assert locked["capabilities"] == {"drop": ["ALL"]}
    ports = {each["name"]: each["containerPort"] for each in container["ports"]}
    assert ports["console"] == CONSOLE_PORT
    assert {str(ports["namesrv"]), str(ports["broker"])} <= set(of_image("EXPOSE").split())
    for service in plain("services.yaml"):
        for each in service["spec"]["ports"]:
            assert ports[each["targetPort"]] == each["port"]
    [stateful] = plain("statefulset.yaml")
    annotations = stateful["spec"]["template"]["metadata"]["annotations"]
    assert annotations["prometheus.io/port"] == str(ports["metrics"])


def test_a_service_named_like_us_sets_no_setting_of_ours() -> None:
    """Kubernetes sets POCKETMQ_PORT=tcp://... for a service `pocketmq`, which is no port."""
    assert pod()["enableServiceLinks"] is False


def test_templates_use_the_values_that_there_are_and_all_of_them() -> None:
    def paths(value: Any, prefix: str = "") -> set[str]:
        if not isinstance(value, dict) or not value:
            return {prefix}
        return set().union(*(paths(each, f"{prefix}.{name}") for name, each in value.items()))

    text = "".join(path.read_text("utf-8") for path in (CHART / "templates").iterdir())
    used = set(re.findall(r"\.Values((?:\.\w+)+)", text))
    known = paths(VALUES)
    assert used == {".resources"} | {each for each in known if not each.startswith(".resources.")}


def test_the_set_that_the_chart_configures_elects_and_hands_over(tmp_path: Path) -> None:
    """By the words and variables of the chart: name server and controller, and two brokers in the set."""
    *_, stateful = plain("set.yaml")
    [names] = stateful["spec"]["template"]["spec"]["containers"]
    [port] = free_ports(1)
    words = [each.replace("x-names:9878", f"127.0.0.1:{port}") for each in names["args"]]
    assert words != names["args"]
    words = [each.replace("0.0.0.0", "127.0.0.1") for each in words]
    started = [
        Server(
            tmp_path, *words, "--set", f"controllerListenPort={port}", "--port", "0", "--data", "n"
        )
    ]
    try:
        namesrv = started[0].ready()["namesrv"]
        environment = member_environment() | {
            "NAMESRV_ADDR": namesrv,
            "POCKETMQ_CONTROLLER_ADDR": f"127.0.0.1:{port}",
            "POCKETMQ_MIN_IN_SYNC_REPLICAS": "1",
            "POCKETMQ_GRPC_SERVER_PORT": "0",
            "POCKETMQ_CONSOLE_PORT": "0",
        }
        assert environment.keys() == member_environment().keys()
        for number in range(2):
            own = ["--data", f"b{number}", "--port", "0", "--broker-name", "x"]
            started.append(Server(tmp_path, "broker", *own, environment=environment))
            ready = started[-1].ready()
            assert ready["grpc"]
            assert ready["console"]
        with Producer("p", name_server=namesrv) as producer:
            until(lambda: producer.send(Message("T", b"x")), "one leads", ignoring=PocketMQError)
            until(lambda: '"brokersInSync": [1, 2]' in ha_status(namesrv), "both are in sync")
            assert started[1].stop() == 0
            until(lambda: producer.send(Message("T", b"x")), "another", ignoring=PocketMQError)
    finally:
        for each in reversed(started):
            each.kill()


def ha_status(namesrv: str) -> str:
    command = [*COMMAND, "ha", "status", "--namesrv", namesrv, "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return json.dumps(json.loads(done.stdout))


def test_the_server_that_the_chart_configures_answers_its_probes(tmp_path: Path) -> None:
    """It starts with the chart's broker.conf; the port of the metrics answers where the probes ask."""
    (tmp_path / "password").write_text("secret", "utf-8")
    conf = broker_conf().replace("/etc/pocketmq/secret", str(tmp_path))
    conf = re.sub(r"\nx=x+", "", conf)
    conf = conf.replace("consolePort=-1\n", "consolePort=0\n").replace("0.0.0.0", "127.0.0.1")
    (tmp_path / "broker.conf").write_text(conf + "metricsPromExporterPort=0\n", "utf-8")
    [container] = pod()["containers"]
    words = [
        str(tmp_path / "broker.conf") if each.endswith("/broker.conf") else each
        for each in container["args"]
    ]
    server = Server(tmp_path, *words, "--namesrv-port", "0", "--port", "0", "--grpc-port", "0")
    try:
        ready = server.ready()
        assert ready["name"] == "x"
        for probe in ("startupProbe", "readinessProbe"):
            asked = container[probe]["httpGet"]
            assert asked["port"] == "metrics"
            with urllib.request.urlopen(
                ready["metrics"].replace("/metrics", asked["path"])
            ) as answer:
                assert answer.status == 200
        assert server.stop() == 0
    finally:
        server.kill()


# ------------------------------------------------------------ with --helm


def schemas(swagger: Any, folder: Path) -> None:
    """For each kind a file of JSON schema that allows no field that it does not name, for kubeconform."""
    definitions = swagger["definitions"]
    for name, each in definitions.items():
        if name.endswith((".IntOrString", ".Quantity")):
            each.clear()
        elif "properties" in each:
            each.setdefault("additionalProperties", False)
    for name, each in definitions.items():
        for kind in each.get("x-kubernetes-group-version-kind", ()):
            group = kind["group"].partition(".")[0]
            parts = [kind["kind"].lower(), *([group] if group else []), kind["version"]]
            schema = {"$ref": f"#/definitions/{name}", "definitions": definitions}
            # They have PodDisruptionBudget of v1beta1 alone; v1 has its fields, and more.
            parts[-1] = parts[-1].replace("v1beta1", "v1") if group == "policy" else parts[-1]
            (folder / f"{'-'.join(parts)}.json").write_text(json.dumps(schema), "utf-8")


def go_tool(module: str, folder: Path) -> str:
    subprocess.run(
        ["go", "install", module],
        env={**os.environ, "GOBIN": str(folder), "GOFLAGS": "-p=1"},
        check=True,
    )
    return str(folder / Path(module.partition("@")[0]).name)


@pytest.mark.timeout(3_600)
def test_helm_and_kubeconform_accept_the_chart(
    request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    """Default and full values: no warning of lint, and each manifest is what Kubernetes' schema allows."""
    if not request.config.getoption("--helm"):
        pytest.skip("builds helm from source: --helm")
    tools = Path(os.environ.get("POCKETMQ_GO_TOOLS", tmp_path / "tools"))
    helm, judge = tools / "helm", tools / "kubeconform"
    if not helm.exists():
        go_tool("helm.sh/helm/v3/cmd/helm@v3.22.0", tools)
    if not judge.exists():
        go_tool("github.com/yannh/kubeconform/cmd/kubeconform@v0.7.0", tools)
    got = subprocess.run(
        ["go", "mod", "download", "-json", KUBECTL], capture_output=True, check=True, cwd=tmp_path
    )
    swagger = Path(json.loads(got.stdout)["Dir"]) / "testdata/openapi/swagger.json"
    schemas(json.loads(swagger.read_text("utf-8")), tmp_path)
    (tmp_path / "full.yaml").write_text(yaml.safe_dump(FULL), "utf-8")
    off = ["--set", "console.enabled=false,metrics.annotations=false"]
    replicas = ["--set", "replicas=3"]
    for more in (replicas, [], off, ["--values", str(tmp_path / "full.yaml")]):
        linted = subprocess.run(
            [helm, "lint", "--strict", CHART, *more], capture_output=True, text=True
        )
        assert linted.returncode == 0, linted.stdout
        made = subprocess.run(
            [helm, "template", "mq", CHART, "--kube-version", "1.37", *more],
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        judged = subprocess.run(
            [
                judge,
                "-strict",
                "-summary",
                "-schema-location",
                f"{tmp_path}/{{{{.ResourceKind}}}}{{{{.KindSuffix}}}}.json",
            ],
            input=made,
            capture_output=True,
            text=True,
        )
        assert judged.returncode == 0, judged.stdout + judged.stderr
        count = 7 if more is replicas else 4
        assert f"{count} resources found" in judged.stdout
    assert "mapedFileSizeCommitLog=1073741824\n" in made
    assert f'image: "pocketmq:{PINNED}"' in made
