//! Consistency of a run's objects: names, ports, counts, mounts, references.

use std::collections::BTreeSet;

use serde_yaml_ng::Value;

use super::{
    objects::{
        arguments, container, containers, find, items, name, of_kind, option, selects, template, text, variable,
        variables_in,
    },
    restricted::quantity,
};

/// Secrets that users create, and their keys.
const SECRETS: &[(&str, &[&str])] = &[
    ("kith-token", &["token", "sampler-token"]),
    ("kith-bucket-credentials", &["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"]),
    ("kith-samplers-tls", &["tls.crt", "tls.key", "ca.crt"]),
    ("kith-ranks-tls", &["tls.crt", "tls.key", "ca.crt"]),
];
const CLAIMS: &[&str] = &["kith-graph", "kith-runs"];
const IMAGES: &[&str] = &["kith-sampler", "kith-trainer", "kith-trainer-cuda"];

struct Problems(Vec<String>);

impl Problems {
    fn check(&mut self, is_met: bool, what: impl FnOnce() -> String) {
        if !is_met {
            self.0.push(what());
        }
    }
}

/// All inconsistencies, one sentence each.
pub(super) fn problems(objects: &[Value]) -> Vec<String> {
    let mut problems = Problems(Vec::new());
    for object in objects {
        let Some(pod) = template(object) else { continue };
        references(objects, object, pod, &mut problems);
        volumes(objects, pod, name(object), &mut problems);
        reached(objects, pod, name(object), &mut problems);
    }
    of_kind(objects, "Service").iter().for_each(|service| ports(objects, service, &mut problems));
    for kind in ["PodDisruptionBudget", "NetworkPolicy"] {
        for object in of_kind(objects, kind) {
            let selector =
                if kind == "NetworkPolicy" { &object["spec"]["podSelector"] } else { &object["spec"]["selector"] };
            let is_met = objects
                .iter()
                .filter_map(template)
                .any(|pod| selects(&selector["matchLabels"], &pod["metadata"]["labels"]));
            problems.check(is_met, || format!("{kind} {} selects nobody", name(object)));
        }
    }
    for samplers in of_kind(objects, "StatefulSet") {
        of_samplers(objects, samplers, &mut problems);
        for ranks in of_kind(objects, "Job").into_iter().filter(|job| container(job, "rank").is_some()) {
            of_ranks(objects, ranks, samplers, &mut problems);
        }
    }
    problems.0
}

/// References of pods: accounts, config maps, secrets and variables.
fn references(objects: &[Value], object: &Value, pod: &Value, problems: &mut Problems) {
    let of = name(object);
    let account = text(&pod["spec"]["serviceAccountName"]);
    problems.check(find(objects, "ServiceAccount", account).is_some(), || format!("{of}: no account {account}"));
    let version = env!("CARGO_PKG_VERSION");
    for container in containers(pod) {
        let image = text(&container["image"]);
        let (path, tag) = image.rsplit_once(':').unwrap_or((image, ""));
        let is_ours = IMAGES.contains(&path.rsplit('/').next().unwrap_or_default()) && tag == version;
        problems.check(is_ours, || format!("{of}: image {image}"));
        let mut known: BTreeSet<&str> = BTreeSet::new();
        if object["spec"]["completionMode"] == "Indexed" {
            known.insert("JOB_COMPLETION_INDEX");
        }
        for source in items(&container["envFrom"]) {
            let (map, secret) = (text(&source["configMapRef"]["name"]), text(&source["secretRef"]["name"]));
            match (find(objects, "ConfigMap", map), keys_of(secret)) {
                (Some(map), _) => {
                    known.extend(map["data"].as_mapping().into_iter().flat_map(|data| data.keys()).map(text))
                }
                (None, Some(keys)) => known.extend(keys),
                (None, None) => problems.check(false, || format!("{of}: no {map}{secret} to take variables from")),
            }
        }
        for variable in items(&container["env"]) {
            known.insert(text(&variable["name"]));
            source_is_there(objects, of, &variable["valueFrom"], container, problems);
        }
        let written = items(&container["env"]).iter().map(|variable| text(&variable["value"]));
        for text in arguments(container).chain(written) {
            for name in variables_in(text) {
                problems.check(known.contains(name.as_str()), || format!("{of}: nobody sets $({name})"));
            }
        }
    }
}

fn source_is_there(objects: &[Value], of: &str, source: &Value, container: &Value, problems: &mut Problems) {
    if let Some(reference) = source.get("secretKeyRef") {
        let (secret, key) = (text(&reference["name"]), text(&reference["key"]));
        let is_met = keys_of(secret).is_some_and(|keys| keys.contains(&key));
        problems.check(is_met, || format!("{of}: no key {key} in Secret {secret}"));
    }
    if let Some(reference) = source.get("configMapKeyRef") {
        let (map, key) = (text(&reference["name"]), text(&reference["key"]));
        let is_met = find(objects, "ConfigMap", map).is_some_and(|map| map["data"].get(key).is_some());
        problems.check(is_met, || format!("{of}: no key {key} in ConfigMap {map}"));
    }
    if let Some(reference) = source.get("resourceFieldRef") {
        let (amount, resource) = text(&reference["resource"]).split_once('.').unwrap_or_default();
        let is_met = reference["containerName"] == container["name"]
            && quantity(&container["resources"][amount][resource]) > 0.0;
        problems.check(is_met, || format!("{of}: {reference:?} is not its own"));
    }
}

fn keys_of(secret: &str) -> Option<&'static [&'static str]> {
    SECRETS.iter().find(|(name, _)| *name == secret).map(|(_, keys)| *keys)
}

/// Every mount has a volume, every volume is mounted and exists, and every referenced path is below a mount.
fn volumes(objects: &[Value], pod: &Value, of: &str, problems: &mut Problems) {
    let volumes = items(&pod["spec"]["volumes"]);
    let mounts: BTreeSet<&str> =
        containers(pod).flat_map(|container| items(&container["volumeMounts"])).map(|m| text(&m["name"])).collect();
    let there: BTreeSet<&str> = volumes.iter().map(|volume| text(&volume["name"])).collect();
    problems.check(mounts == there, || format!("{of}: volumes {there:?} and mounts {mounts:?} differ"));
    for volume in volumes {
        let (claim, map, secret) = (
            &volume["persistentVolumeClaim"]["claimName"],
            &volume["configMap"]["name"],
            &volume["secret"]["secretName"],
        );
        problems.check(claim.is_null() || CLAIMS.contains(&text(claim)), || format!("{of}: no claim {claim:?}"));
        problems.check(map.is_null() || find(objects, "ConfigMap", text(map)).is_some(), || {
            format!("{of}: no ConfigMap {map:?}")
        });
        problems.check(secret.is_null() || keys_of(text(secret)).is_some(), || format!("{of}: no Secret {secret:?}"));
    }
    for container in containers(pod) {
        let variables = items(&container["env"]).iter().map(|variable| text(&variable["value"]));
        let values = arguments(container).map(|argument| argument.split_once('=').map_or(argument, |(_, value)| value));
        for path in values.chain(variables).filter(|value| value.starts_with('/')) {
            let below = items(&container["volumeMounts"]).iter().find(|mount| {
                path.strip_prefix(text(&mount["mountPath"]))
                    .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
            });
            let Some(mount) = below else {
                problems.check(false, || format!("{of}: {path} is on no volume"));
                continue;
            };
            let volume = volumes.iter().find(|volume| volume["name"] == mount["name"]).unwrap_or(&Value::Null);
            let key = path.rsplit('/').next().unwrap_or_default();
            if let Some(map) = find(objects, "ConfigMap", text(&volume["configMap"]["name"])) {
                let is_there = ["data", "binaryData"].iter().any(|data| map[*data].get(key).is_some());
                problems.check(is_there, || format!("{of}: no key {key} in ConfigMap {}", name(map)));
            }
            if let Some(keys) = keys_of(text(&volume["secret"]["secretName"])) {
                let taken = items(&volume["secret"]["items"]);
                let is_taken = taken.is_empty() || taken.iter().any(|item| item["key"] == key && item["path"] == key);
                problems.check(keys.contains(&key) && is_taken, || format!("{of}: no key {key} in its Secret"));
            }
        }
    }
}

/// Every pod has policies for ingress and egress.
fn reached(objects: &[Value], pod: &Value, of: &str, problems: &mut Problems) {
    for direction in ["Ingress", "Egress"] {
        let is_met = of_kind(objects, "NetworkPolicy").iter().any(|policy| {
            selects(&policy["spec"]["podSelector"]["matchLabels"], &pod["metadata"]["labels"])
                && policy["spec"]["podSelector"].get("matchExpressions").is_none()
                && items(&policy["spec"]["policyTypes"]).iter().any(|own| own == direction)
        });
        problems.check(is_met, || format!("{of}: no policy for {direction}"));
    }
}

/// A service selects one kind of pods, which listen on its ports.
fn ports(objects: &[Value], service: &Value, problems: &mut Problems) {
    let of = name(service);
    let selected: Vec<&Value> = objects
        .iter()
        .filter_map(template)
        .filter(|pod| selects(&service["spec"]["selector"], &pod["metadata"]["labels"]))
        .collect();
    problems.check(selected.len() == 1, || format!("Service {of} stands for {} kinds of pods", selected.len()));
    problems.check(service["spec"]["clusterIP"] == "None", || format!("Service {of} is not headless"));
    problems.check(service["spec"]["publishNotReadyAddresses"] == true, || format!("Service {of}: names come late"));
    for port in items(&service["spec"]["ports"]) {
        let mut own = selected.iter().flat_map(|pod| containers(pod)).flat_map(|container| items(&container["ports"]));
        let is_met = own.any(|own| own["name"] == port["targetPort"] && own["containerPort"] == port["port"]);
        problems.check(is_met, || format!("Service {of}: nobody listens on {port:?}"));
    }
}

fn port_of<'a>(container: &'a Value, called: &str) -> &'a Value {
    items(&container["ports"])
        .iter()
        .find(|port| port["name"] == called)
        .map_or(&Value::Null, |port| &port["containerPort"])
}

/// True if a policy allows pods with some labels to connect to others on a port.
fn is_let(objects: &[Value], from: &Value, to: &Value, port: &Value) -> bool {
    let any = |of: &Value, direction: &str, peers: &str, other: &Value| {
        of_kind(objects, "NetworkPolicy").iter().any(|policy| {
            selects(&policy["spec"]["podSelector"]["matchLabels"], of)
                && items(&policy["spec"][direction]).iter().any(|rule| {
                    let ports = items(&rule["ports"]);
                    items(&rule[peers]).iter().any(|peer| selects(&peer["podSelector"]["matchLabels"], other))
                        && (ports.is_empty() || ports.iter().any(|own| own["port"] == *port))
                })
        })
    };
    any(from, "egress", "to", to) && any(to, "ingress", "from", from)
}

fn of_samplers(objects: &[Value], samplers: &Value, problems: &mut Problems) {
    let of = name(samplers);
    let spec = &samplers["spec"];
    let labels = &spec["template"]["metadata"]["labels"];
    problems.check(selects(&spec["selector"]["matchLabels"], labels), || format!("{of} selects other pods"));
    let service = text(&spec["serviceName"]);
    problems.check(find(objects, "Service", service).is_some(), || format!("{of}: no Service {service}"));
    let n_shards: u64 = text(&samplers["metadata"]["annotations"]["kith-shards"]).parse().unwrap_or(0);
    let n_pods = spec["replicas"].as_u64().unwrap_or(0);
    let is_met = n_shards > 0 && n_pods > 0 && n_pods.is_multiple_of(n_shards);
    problems.check(is_met, || format!("{of}: {n_pods} pods of {n_shards} shards"));
    let Some(sampler) = container(samplers, "sampler") else {
        return problems.check(false, || format!("{of} has no container sampler"));
    };
    for (flag, port) in [("--listen", "grpc"), ("--metrics", "metrics")] {
        let listens = option(sampler, flag).strip_prefix("0.0.0.0:").and_then(|port| port.parse::<u64>().ok());
        problems.check(listens.is_some() && listens == port_of(sampler, port).as_u64(), || {
            format!("{of}: {flag} is another port")
        });
    }
    problems.check(option(sampler, "--index") == "$(POD_INDEX)", || format!("{of}: shards go by the pod's index"));
    let drain = option(sampler, "--max-drain").parse::<u64>().ok();
    let grace = spec["template"]["spec"]["terminationGracePeriodSeconds"].as_u64();
    problems
        .check(drain.is_some() && drain < grace, || format!("{of}: {drain:?} s to drain, killed after {grace:?} s"));
    let is_encrypted = !option(sampler, "--tls-cert").is_empty() && !option(sampler, "--tls-key").is_empty();
    let is_open = arguments(sampler).any(|argument| argument == "--insecure");
    problems.check(is_encrypted && !is_open, || format!("{of}: what is said is not encrypted"));
    problems.check(!option(sampler, "--token-file").is_empty(), || format!("{of}: everybody may ask"));
    for probe in ["startupProbe", "readinessProbe", "livenessProbe"] {
        let page = &sampler[probe]["httpGet"];
        let is_met = page["path"] == "/health" && page["port"] == "metrics";
        problems.check(is_met, || format!("{of}: {probe} asks elsewhere"));
    }
    let init = containers(&spec["template"]).find(|container| container["name"] == "pull");
    if let Some(pull) = init {
        let to = arguments(pull).nth(2).unwrap_or_default();
        problems.check(variable(sampler, "GRAPH") == to, || format!("{of} pulls to {to} and serves something else"));
        problems.check(option(pull, "--index") == "$(POD_INDEX)", || format!("{of} pulls other shards than it serves"));
    }
}

/// The Secret and key of a file option.
fn secret_of<'a>(container: &'a Value, pod: &'a Value, flag: &str) -> Option<(&'a str, &'a str)> {
    let (folder, key) = option(container, flag).rsplit_once('/')?;
    let mount = items(&container["volumeMounts"]).iter().find(|mount| mount["mountPath"] == folder)?;
    let volume = items(&pod["volumes"]).iter().find(|volume| volume["name"] == mount["name"])?;
    Some((text(&volume["secret"]["secretName"]), key))
}

fn of_ranks(objects: &[Value], ranks: &Value, samplers: &Value, problems: &mut Problems) {
    let of = name(ranks);
    let spec = &ranks["spec"];
    let pod = &spec["template"]["spec"];
    let rank = container(ranks, "rank").expect("it was looked for");
    let world = variable(rank, "WORLD_SIZE");
    for count in ["completions", "parallelism"] {
        let is_met = spec[count].as_u64().is_some_and(|n| n.to_string() == world);
        problems.check(is_met, || format!("{of}: {count} is not the world of {world}"));
    }
    problems.check(spec["completionMode"] == "Indexed", || format!("{of}: ranks need an index"));
    let subdomain = text(&pod["subdomain"]);
    let is_met = find(objects, "Service", subdomain)
        .is_some_and(|service| selects(&service["spec"]["selector"], &spec["template"]["metadata"]["labels"]));
    problems.check(is_met, || format!("{of}: no Service {subdomain} names its pods"));
    let master = format!("{of}-0.{subdomain}");
    problems.check(variable(rank, "MASTER_ADDR") == master, || format!("{of}: ranks do not meet at {master}"));
    let port = port_of(rank, "ranks").as_u64().unwrap_or(0).to_string();
    problems.check(variable(rank, "MASTER_PORT") == port, || format!("{of}: ranks do not meet at port {port}"));
    let metrics = option(rank, "--metrics").strip_prefix("0.0.0.0:").and_then(|port| port.parse::<u64>().ok());
    problems.check(metrics.is_some() && metrics == port_of(rank, "metrics").as_u64(), || format!("{of}: metrics"));

    let (set, service) = (name(samplers), text(&samplers["spec"]["serviceName"]));
    let sampler = container(samplers, "sampler").unwrap_or(&Value::Null);
    let grpc = port_of(sampler, "grpc");
    let addresses = (0..samplers["spec"]["replicas"].as_u64().unwrap_or(0))
        .map(|pod| format!("{set}-{pod}.{service}:{}", grpc.as_u64().unwrap_or(0)));
    let addresses = addresses.collect::<Vec<_>>().join(",");
    problems.check(variable(rank, "SAMPLERS") == addresses, || format!("{of} does not ask {addresses}"));

    let of_ranks = &spec["template"]["metadata"]["labels"];
    let of_samplers = &samplers["spec"]["template"]["metadata"]["labels"];
    problems.check(is_let(objects, of_ranks, of_samplers, grpc), || format!("{of} may not ask {set}"));
    let any = Value::from("any"); // All-reduce uses any free port.
    problems.check(is_let(objects, of_ranks, of_ranks, &any), || format!("{of} may not talk to each other"));
    problems.check(!is_let(objects, of_samplers, of_samplers, grpc), || format!("{set} may talk to each other"));

    // Servers have the same certificate for all names of runs.
    let is_met = option(rank, "--tls-name") == "kith-samplers" && !option(rank, "--tls-ca").is_empty();
    problems.check(is_met, || format!("{of} and {set} differ about TLS"));
    let is_met = secret_of(rank, pod, "--token-file")
        == secret_of(sampler, &samplers["spec"]["template"]["spec"], "--token-file");
    problems.check(is_met, || format!("{of} and {set} have different tokens"));
    let is_met = option(sampler, "--tls-client-ca").is_empty() == option(rank, "--tls-cert").is_empty();
    problems.check(is_met, || format!("{of} and {set} differ about certificates of ranks"));
    let is_cuda = variable(rank, "DEVICE") == "cuda";
    for amount in ["requests", "limits"] {
        let gpu = &rank["resources"][amount]["nvidia.com/gpu"];
        problems.check(if is_cuda { gpu == "1" } else { gpu.is_null() }, || format!("{of}: {amount} of GPUs"));
    }
    let has_cuda = text(&rank["image"]).contains("kith-trainer-cuda:");
    problems.check(is_cuda == has_cuda, || format!("{of}: image and device differ"));
    retries(spec, rank, of, problems);
}

/// Retries, and how long other ranks wait for them.
fn retries(spec: &Value, rank: &Value, of: &str, problems: &mut Problems) {
    let rules = items(&spec["podFailurePolicy"]["rules"]);
    let action = |code: u64| {
        let is_meant = |rule: &&Value| items(&rule["onExitCodes"]["values"]).iter().any(|own| own == code);
        rules.iter().find(is_meant).map(|rule| text(&rule["action"]))
    };
    problems
        .check(action(1) == Some("FailJob") && action(70) == Some("FailJob"), || format!("{of} retries what is wrong"));
    problems.check(action(75) == Some("Ignore"), || format!("{of}: what was lost uses up the budget"));
    let most = option(rank, "--max-starts").parse::<u64>().ok();
    problems.check(most.is_some(), || format!("{of} starts again for ever without a newer checkpoint"));
    let grace = option(rank, "--grace").parse::<u64>().unwrap_or(30);
    let killed = spec["template"]["spec"]["terminationGracePeriodSeconds"].as_u64().unwrap_or(30);
    problems.check(killed > grace, || format!("{of}: {grace} s for a checkpoint, killed after {killed} s"));
    let is_ignored = |rule: &Value| rule["action"] == "Ignore" && !items(&rule["onPodConditions"]).is_empty();
    problems.check(rules.iter().any(is_ignored), || format!("{of} counts hosts that are drained"));
    for rule in rules.iter().filter(|rule| rule.get("onExitCodes").is_some()) {
        problems
            .check(rule["onExitCodes"]["containerName"] == rank["name"], || format!("{of}: codes of somebody else"));
    }
    problems.check(spec["template"]["spec"]["restartPolicy"] == "Never", || format!("{of}: a policy needs Never"));
    problems.check(arguments(rank).any(|argument| argument == "--resume"), || format!("{of} begins anew"));
    // Kubernetes waits 10 s before the first restart of an index, doubling each time, up to 10 minutes.
    let restarts = spec["backoffLimitPerIndex"].as_u64().unwrap_or(u64::MAX).min(7);
    let longest = if restarts == 0 { 0 } else { (10 << (restarts - 1)).min(600) };
    let patience = option(rank, "--join-timeout").parse::<u64>().unwrap_or(0);
    problems
        .check(patience > longest, || format!("{of}: ranks wait {patience} s for one that comes after {longest} s"));
    problems.check(spec["maxFailedIndexes"] == 0, || format!("{of} goes on without a rank"));
}
