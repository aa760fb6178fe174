//! Kubernetes objects of a run: those of `deploy/kubernetes/base`, with the run's values.

use base64::{Engine, prelude::BASE64_STANDARD};
use serde::Deserialize;
use serde_json::json;
use serde_yaml_ng::{Deserializer, Value};

use super::sizes::Sizes;

/// The base that overlays build on, too.
const BASE: [&str; 3] = [
    include_str!("../../../../../deploy/kubernetes/base/samplers.yaml"),
    include_str!("../../../../../deploy/kubernetes/base/ranks.yaml"),
    include_str!("../../../../../deploy/kubernetes/base/network-policy.yaml"),
];

/// Names in the base that are replaced by the run's.
const NAMES: [&str; 3] = ["kith-samplers", "kith-ranks", "kith-run"];
const INSTANCE: &str = "app.kubernetes.io/instance";

/// A run on Kubernetes.
#[derive(Debug)]
pub(super) struct World {
    pub(super) name: String,
    pub(super) n_ranks: usize,
    pub(super) n_shards: usize,
    /// Number of servers: a multiple of the shards.
    pub(super) n_samplers: usize,
    /// Restarts; `None`: those of the base.
    pub(super) restarts: Option<u32>,
    /// Seconds for ranks to save a checkpoint after SIGTERM.
    pub(super) grace: u64,
    /// Folder of the partitioned graph on its claim.
    pub(super) graph: String,
    /// Folder of the run on its claim.
    pub(super) out: String,
    pub(super) is_cuda: bool,
    pub(super) run_file: String,
    /// Further options of ranks.
    pub(super) passed: Vec<String>,
    /// Variables of NCCL, for ranks on GPUs.
    pub(super) nccl: Vec<(String, String)>,
    pub(super) images: Option<String>,
    pub(super) rank_cpus: u32,
    pub(super) sampler_cpus: u32,
    /// Memory of pods; `None`: that of the base.
    pub(super) sizes: Option<Sizes>,
}

/// All objects as YAML, for `kubectl apply`.
pub(super) fn manifests(world: &World) -> String {
    let mut objects = vec![run_file(world)];
    for text in BASE {
        objects
            .extend(Deserializer::from_str(text).map(|object| Value::deserialize(object).expect("the base is YAML")));
    }
    let World { name, n_ranks, n_samplers, n_shards, .. } = world;
    let mut text = format!(
        "# {name}: {n_ranks} ranks, {n_samplers} servers of {n_shards} shards; by kith {}.\n\
         # There must be the Secrets kith-token and kith-samplers-tls, and the claims kith-graph, with the cluster in its folder {}, and kith-runs.\n",
        env!("CARGO_PKG_VERSION"),
        world.graph
    );
    for mut object in objects {
        rename(&mut object, name);
        match object["kind"].as_str() {
            Some("StatefulSet") => fill_samplers(&mut object, world),
            Some("Job") => fill_ranks(&mut object, world),
            _ => {}
        }
        text += "---\n";
        text += &serde_yaml_ng::to_string(&object).expect("values can be written");
    }
    text
}

fn run_file(world: &World) -> Value {
    // YAML normalizes unescaped line ends: a text with others is passed as bytes.
    let (key, text) = match world.run_file.chars().all(is_plain) {
        true => ("data", world.run_file.clone()),
        false => ("binaryData", BASE64_STANDARD.encode(&world.run_file)),
    };
    of_json(json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": "kith-run",
            "labels": { "app.kubernetes.io/name": "kith", INSTANCE: "kith", "app.kubernetes.io/component": "ranks" },
        },
        // Immutable, so that restarted ranks find the same run file.
        "immutable": true,
        key: { "run.toml": text },
    }))
}

/// True if every YAML parser preserves a character.
fn is_plain(c: char) -> bool {
    matches!(c, '\n' | '\t')
        || !c.is_control() && !matches!(c, '\u{2028}' | '\u{2029}' | '\u{feff}' | '\u{fffe}' | '\u{ffff}')
}

/// Replaces the base's names by the run's, wherever they occur.
fn rename(value: &mut Value, name: &str) {
    match value {
        Value::String(text) => {
            if let Some(own) = NAMES.iter().find(|own| text.as_str() == **own) {
                *text = own.replacen("kith", name, 1);
            }
        }
        Value::Sequence(values) => values.iter_mut().for_each(|value| rename(value, name)),
        Value::Mapping(fields) => {
            for (key, value) in fields {
                match key.as_str() {
                    Some(INSTANCE) => *value = name.into(),
                    _ => rename(value, name),
                }
            }
        }
        _ => {}
    }
}

fn fill_samplers(object: &mut Value, world: &World) {
    object["metadata"]["annotations"]["kith-shards"] = world.n_shards.to_string().into();
    object["spec"]["replicas"] = world.n_samplers.into();
    let container = &mut object["spec"]["template"]["spec"]["containers"][0];
    place_image(container, world, "kith-sampler");
    set(container, "GRAPH", format!("/graph/{}", world.graph));
    give(container, world.sampler_cpus, world.sizes.map(|sizes| sizes.sampler));
}

/// Seconds between the end of the grace period and SIGKILL.
const BEYOND_GRACE: u64 = 30;

fn fill_ranks(object: &mut Value, world: &World) {
    let name = &world.name;
    let spec = &mut object["spec"];
    spec["completions"] = world.n_ranks.into();
    spec["parallelism"] = world.n_ranks.into();
    if let Some(restarts) = world.restarts {
        spec["backoffLimitPerIndex"] = restarts.into();
        let container = &mut spec["template"]["spec"]["containers"][0];
        pass(container, &[format!("--max-starts={}", u64::from(restarts) + 1)]);
    }
    let pod = &mut spec["template"]["spec"];
    pod["terminationGracePeriodSeconds"] = (world.grace + BEYOND_GRACE).into();
    let container = &mut pod["containers"][0];
    place_image(container, world, if world.is_cuda { "kith-trainer-cuda" } else { "kith-trainer" });
    let samplers = (0..world.n_samplers).map(|number| format!("{name}-samplers-{number}.{name}-samplers:7000"));
    set(container, "WORLD_SIZE", world.n_ranks.to_string());
    set(container, "MASTER_ADDR", format!("{name}-ranks-0.{name}-ranks"));
    set(container, "SAMPLERS", samplers.collect::<Vec<_>>().join(","));
    set(container, "RUN_OUT", format!("/runs/{}", world.out));
    set(container, "DEVICE", if world.is_cuda { "cuda" } else { "cpu" }.to_owned());
    give(container, world.rank_cpus, world.sizes.map(|sizes| sizes.rank));
    pass(container, &world.passed);
    if world.is_cuda {
        for amount in ["requests", "limits"] {
            container["resources"][amount]["nvidia.com/gpu"] = "1".into();
        }
        let variables = container["env"].as_sequence_mut().expect("containers of the base have variables");
        let own = world.nccl.iter().map(|(name, value)| of_json(json!({ "name": name, "value": escaped(value) })));
        variables.extend(own);
        pod["tolerations"] =
            of_json(json!([{ "key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule" }]));
    }
}

/// Sets the image of this version, with the user's prefix.
fn place_image(container: &mut Value, world: &World, image: &str) {
    let image = format!("{image}:{}", env!("CARGO_PKG_VERSION"));
    container["image"] = match &world.images {
        Some(prefix) => format!("{}/{image}", prefix.trim_end_matches('/')).into(),
        None => image.into(),
    };
}

/// Sets an environment variable of the base.
fn set(container: &mut Value, variable: &str, value: String) {
    let variables = container["env"].as_sequence_mut().expect("containers of the base have variables");
    let found = variables.iter_mut().find(|found| found["name"] == variable);
    found.unwrap_or_else(|| panic!("the base sets {variable}"))["value"] = escaped(&value).into();
}

/// Appends options, and removes those of the same name in the base.
fn pass(container: &mut Value, passed: &[String]) {
    let option = |argument: &str| argument.split('=').next().unwrap_or_default().to_owned();
    let arguments = container["args"].as_sequence_mut().expect("containers of the base have arguments");
    arguments.retain(|argument| !passed.iter().any(|own| argument.as_str().is_some_and(|a| option(a) == option(own))));
    arguments.extend(passed.iter().map(|own| Value::from(escaped(own))));
}

/// Escapes `$`: Kubernetes expands `$(NAME)`, unless the `$` is doubled.
fn escaped(text: &str) -> String {
    text.replace('$', "$$")
}

/// Sets CPUs and memory as requests and limits.
fn give(container: &mut Value, n_cpus: u32, n_bytes: Option<u64>) {
    for amount in ["requests", "limits"] {
        container["resources"][amount]["cpu"] = n_cpus.to_string().into();
        if let Some(n_bytes) = n_bytes {
            container["resources"][amount]["memory"] = quantity(n_bytes).into();
        }
    }
}

/// Formats bytes as a Kubernetes quantity, rounded up.
fn quantity(n_bytes: u64) -> String {
    const STEP: u64 = 128 << 20;
    format!("{}Mi", (n_bytes.div_ceil(STEP) * STEP) >> 20)
}

fn of_json(value: serde_json::Value) -> Value {
    serde_yaml_ng::to_value(value).expect("JSON is YAML")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn world(run_file: &str) -> World {
        World {
            name: "mine".to_owned(),
            n_ranks: 3,
            n_shards: 2,
            n_samplers: 4,
            restarts: Some(1),
            grace: 50,
            graph: "made 2".to_owned(),
            out: "a$b".to_owned(),
            is_cuda: true,
            run_file: run_file.to_owned(),
            passed: vec!["--join-timeout=5".to_owned(), "--set=train.split=$(HOME): \"x\" # '".to_owned()],
            nccl: vec![
                ("NCCL_SOCKET_IFNAME".to_owned(), "eth0".to_owned()),
                ("NCCL_DEBUG".to_owned(), "$x".to_owned()),
            ],
            images: Some("registry.example/team/".to_owned()),
            rank_cpus: 7,
            sampler_cpus: 3,
            sizes: Some(Sizes { sampler: 1, rank: (1 << 30) + 1 }),
        }
    }

    /// The same run on CPUs, which need no NCCL.
    fn manifests_of_cpus() -> Vec<Value> {
        objects(&manifests(&World { is_cuda: false, ..world("") }))
    }

    fn objects(text: &str) -> Vec<Value> {
        Deserializer::from_str(text).map(|object| Value::deserialize(object).unwrap()).collect()
    }

    #[test]
    fn run_files_survive() {
        for text in ["", "a = 1", " lead\n\n\ttab = \"$(X) {} é 漢 🦀\"\n---\n# : - ' |\n\n", "yes", "0x1", "~\n"] {
            let made = objects(&manifests(&world(text)));
            assert_eq!(made[0]["data"]["run.toml"], text, "{text:?}");
        }
        for text in ["a = 1\r\nb = 2\r\n", "\u{feff}a", "\u{7f}\u{85}\u{2028}\0"] {
            let made = objects(&manifests(&world(text)));
            let bytes = BASE64_STANDARD.decode(made[0]["binaryData"]["run.toml"].as_str().unwrap()).unwrap();
            assert_eq!(bytes, text.as_bytes(), "{text:?}");
        }
    }

    #[test]
    fn worlds_are_filled_in() {
        let made = objects(&manifests(&world("")));
        let find = |kind: &str| made.iter().find(|object| object["kind"] == kind).unwrap();
        let (samplers, ranks) = (find("StatefulSet"), find("Job"));
        assert_eq!(samplers["spec"]["replicas"], 4);
        assert_eq!(samplers["metadata"]["annotations"]["kith-shards"], "2");
        assert_eq!(samplers["spec"]["serviceName"], "mine-samplers");
        let sampler = &samplers["spec"]["template"]["spec"]["containers"][0];
        assert_eq!(sampler["resources"]["limits"]["memory"], "128Mi");
        assert_eq!(sampler["env"][0]["value"], "/graph/made 2");
        assert_eq!(ranks["spec"]["completions"], 3);
        assert_eq!(ranks["spec"]["backoffLimitPerIndex"], 1);
        assert_eq!(ranks["spec"]["template"]["spec"]["terminationGracePeriodSeconds"], 80);
        let rank = &ranks["spec"]["template"]["spec"]["containers"][0];
        let version = env!("CARGO_PKG_VERSION");
        assert_eq!(rank["image"], format!("registry.example/team/kith-trainer-cuda:{version}"));
        assert_eq!(rank["resources"]["requests"]["nvidia.com/gpu"], "1");
        assert_eq!(rank["resources"]["requests"]["memory"], "1152Mi");
        let arguments: Vec<&str> = rank["args"].as_sequence().unwrap().iter().map(|a| a.as_str().unwrap()).collect();
        let joins: Vec<&&str> = arguments.iter().filter(|argument| argument.starts_with("--join-timeout")).collect();
        assert_eq!(joins, [&"--join-timeout=5"], "what is typed counts, once");
        assert!(arguments.contains(&"--max-starts=2") && !arguments.contains(&"--max-starts=7"), "{arguments:?}");
        assert_eq!(arguments.last(), Some(&"--set=train.split=$$(HOME): \"x\" # '"));
        let variable = |name: &str| {
            let variables = rank["env"].as_sequence().unwrap();
            variables.iter().find(|variable| variable["name"] == name).unwrap()["value"].as_str().unwrap().to_owned()
        };
        assert_eq!((variable("WORLD_SIZE"), variable("RUN_OUT")), ("3".to_owned(), "/runs/a$$b".to_owned()));
        assert_eq!(variable("MASTER_ADDR"), "mine-ranks-0.mine-ranks");
        assert!(variable("SAMPLERS").ends_with(",mine-samplers-3.mine-samplers:7000"));
        assert_eq!((variable("NCCL_SOCKET_IFNAME"), variable("NCCL_DEBUG")), ("eth0".to_owned(), "$$x".to_owned()));
        assert!(!serde_yaml_ng::to_string(&manifests_of_cpus()[..]).unwrap().contains("NCCL"));
        // The servers' certificate and its name are shared by all runs of a namespace.
        let text = serde_yaml_ng::to_string(&made).unwrap();
        let text = text.replace("kith-samplers-tls", "").replace("--tls-name=kith-samplers", "");
        assert!(!text.contains("kith-ranks") && !text.contains("kith-samplers"), "{text}");
    }
}
