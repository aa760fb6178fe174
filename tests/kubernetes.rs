//! Kubernetes manifests: they build, are consistent with themselves and with the programs, and train.

mod agree;
mod closed;
mod objects;
mod pods;
mod restricted;

use std::{
    collections::BTreeMap,
    fs,
    path::Path,
    process::Command,
    time::{Duration, Instant},
};

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, ExtendedKeyUsagePurpose, IsCa, KeyPair};
use serde_yaml_ng::Value;

use self::{
    objects::{build, containers, find, items, manifests, of_kind, option, read, template, text, try_build, variable},
    pods::{Outside, Pod, hosts, pods},
};
use crate::{
    hosts::Hosts,
    kith::{finish, finish_within, is_slow_asked_for, kith, program, root, run_kith},
    whole_path::{report, steps},
    worlds::Ranks,
};

const LIMIT: Duration = Duration::from_secs(60);

const OVERLAYS: [&str; 3] = ["laptop", "gpu", "gpu-multi-host"];

/// All folders that can be applied.
const FOLDERS: [&str; 10] = [
    "base",
    "storage",
    "partition/claim",
    "partition/bucket",
    "overlays/laptop",
    "overlays/laptop/partition",
    "overlays/gpu",
    "overlays/gpu/partition",
    "overlays/gpu-multi-host",
    "overlays/gpu-multi-host/partition",
];

fn problems(objects: &[Value]) -> Vec<String> {
    [agree::problems(objects), closed::problems(objects), restricted::problems(objects)].concat()
}

/// All folders are built once, which takes most of the time.
#[test]
fn manifests_agree_with_themselves_and_with_the_programs() {
    let mut built = BTreeMap::new();
    for folder in FOLDERS {
        let Some(objects) = build(&manifests().join(folder)) else { return };
        assert_eq!(problems(&objects), Vec::<String>::new(), "{folder}");
        built.insert(folder, objects);
    }
    for overlay in OVERLAYS {
        let folder = format!("overlays/{overlay}");
        overlay_cuts_what_it_serves(overlay, &built[folder.as_str()], &built[format!("{folder}/partition").as_str()]);
    }
    programs_know_their_arguments(&built.into_values().flatten().collect::<Vec<_>>());
}

#[test]
fn every_folder_is_looked_at() {
    let mut found = Vec::new();
    let mut folders = vec![manifests()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()) {
            if entry.is_dir() {
                folders.push(entry);
            } else if entry.ends_with("kustomization.yaml") && !folder.parent().unwrap().ends_with("components") {
                found.push(folder.strip_prefix(manifests()).unwrap().to_str().unwrap().to_owned());
            }
        }
    }
    found.sort();
    let mut expected = FOLDERS.map(String::from);
    expected.sort();
    assert_eq!(found, expected);
}

/// The partitioned graph made before a run is the one its servers serve.
#[track_caller]
fn overlay_cuts_what_it_serves(overlay: &str, run: &[Value], partition: &[Value]) {
    let samplers = of_kind(run, "StatefulSet")[0];
    let cuts = containers(template(of_kind(partition, "Job")[0]).unwrap()).find(|c| c["name"] == "partition");
    let cut = cuts.expect("somebody cuts");
    assert_eq!(variable(cut, "N_SHARDS"), text(&samplers["metadata"]["annotations"]["kith-shards"]), "{overlay}");
    let sampler = &template(samplers).unwrap()["spec"]["containers"][0];
    assert_eq!(option(cut, "--out"), variable(sampler, "GRAPH"), "{overlay}");
    let url = |objects: &[Value]| {
        let maps = of_kind(objects, "ConfigMap");
        maps.iter().find_map(|map| Some(text(map["data"].get("GRAPH_URL")?).to_owned()))
    };
    assert_eq!(url(run), url(partition), "{overlay}");
    // At least one slice per rank; otherwise some ranks are idle.
    let ranks = find(run, "Job", "kith-ranks").unwrap()["spec"]["completions"].as_u64().unwrap();
    let map = of_kind(run, "ConfigMap").into_iter().find(|map| map["data"].get("run.toml").is_some()).unwrap();
    let slices = text(&map["data"]["run.toml"]).lines().find_map(|line| line.strip_prefix("slices = ")).unwrap();
    assert!(slices.parse::<u64>().unwrap() >= ranks, "{overlay}");
}

/// Programs accept all arguments of their containers.
#[track_caller]
fn programs_know_their_arguments(objects: &[Value]) {
    let mut helps: BTreeMap<Vec<String>, String> = BTreeMap::new();
    for container in objects.iter().filter_map(template).flat_map(containers) {
        let image = text(&container["image"]).split(':').next().unwrap_or_default();
        let own: Vec<String> = items(&container["args"]).iter().map(|word| text(word).to_owned()).collect();
        // A pod that only sleeps runs a system program.
        if container.get("command").is_none() {
            know(&mut helps, if image == "kith-sampler" { image } else { "kith" }, &own);
        }
        for probe in ["startupProbe", "readinessProbe", "livenessProbe"] {
            let words: Vec<&str> = items(&container[probe]["exec"]["command"]).iter().map(text).collect();
            if let Some((program, words)) = words.split_first() {
                know(&mut helps, program, &words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>());
            }
        }
    }
    let called: Vec<String> = helps.keys().map(|words| words.join(" ")).collect();
    let all = ["kith data pull", "kith data push", "kith partition", "kith train"];
    assert_eq!(called, [&all[..], &["kith-sampler", "kith-sampler pull"]].concat());
}

#[track_caller]
fn know(helps: &mut BTreeMap<Vec<String>, String>, called: &str, words: &[String]) {
    const COMMANDS: [&str; 7] = ["train", "partition", "data", "pull", "push", "health", "serve"];
    let n_commands = words.iter().take_while(|word| COMMANDS.contains(&word.as_str())).count();
    let key = [&[called.to_owned()], &words[..n_commands]].concat();
    let help = helps.entry(key.clone()).or_insert_with(|| {
        let mut command = Command::new(program().with_file_name(called));
        let finished = finish(command.args(&key[1..]).arg("--help"));
        assert_eq!(finished.code, Some(0), "{key:?}: {}", finished.stderr);
        finished.stdout
    });
    for word in words[n_commands..].iter().filter(|word| word.starts_with("--")) {
        let option = word.split('=').next().unwrap();
        let is_known = help.split(|c: char| c.is_whitespace() || c == ',').any(|known| known == option);
        assert!(is_known, "{key:?} does not know {option}:\n{help}");
        let takes_value = help.lines().any(|line| line.contains(&format!("{option} <")));
        assert_eq!(takes_value, word.contains('='), "{key:?} {word}");
    }
}

/// Each of these changes is a possible mistake.
#[test]
fn disagreements_are_found() {
    let base: Vec<Value> = ["samplers", "ranks", "network-policy"]
        .iter()
        .flat_map(|file| read(&fs::read_to_string(manifests().join(format!("base/{file}.yaml"))).unwrap()))
        .chain(read("{apiVersion: v1, kind: ConfigMap, metadata: {name: kith-run}, data: {run.toml: ''}}"))
        .collect();
    assert_eq!(problems(&base), Vec::<String>::new());
    let text = serde_yaml_ng::to_string(&base).unwrap();
    for (from, to, words) in [
        ("port: 7000\n      targetPort: grpc", "port: 7010\n      targetPort: grpc", "nobody listens on"),
        ("containerPort: 29500", "containerPort: 29501", "do not meet at port 29501"),
        ("kith-shards: '2'", "kith-shards: '3'", "2 pods of 3 shards"),
        ("replicas: 2", "replicas: 4", "does not ask"),
        ("completions: 2", "completions: 3", "completions is not the world of 2"),
        ("parallelism: 2", "parallelism: 1", "parallelism is not the world of 2"),
        ("subdomain: kith-ranks", "subdomain: ranks", "no Service ranks"),
        ("serviceName: kith-samplers", "serviceName: samplers", "no Service samplers"),
        ("serviceAccountName: kith-ranks", "serviceAccountName: ranks", "no account ranks"),
        ("kith-ranks-0.kith-ranks", "kith-ranks-1.kith-ranks", "do not meet at kith-ranks-0.kith-ranks"),
        ("--listen=0.0.0.0:7000", "--listen=0.0.0.0:7002", "--listen is another port"),
        ("--max-drain=20", "--max-drain=40", "Some(40) s to drain"),
        ("mountPath: /graph", "mountPath: /graphs", "/graph/cluster is on no volume"),
        ("claimName: kith-graph", "claimName: graph", "no claim"),
        ("key: token", "key: tokens", "no key tokens in Secret kith-token"),
        ("$(SAMPLERS)", "$(SAMPLER)", "nobody sets $(SAMPLER)"),
        ("run.toml: ''", "other.toml: ''", "no key run.toml"),
        ("path: /health", "path: /healthy", "asks elsewhere"),
        ("- --tls-key=/tls/tls.key\n", "- --insecure\n", "is not encrypted"),
        ("--tls-name=kith-samplers", "--tls-name=samplers", "differ about TLS"),
        ("- --token-file=/token/sampler-token\n", "- --max-call=60\n", "everybody may ask"),
        ("--token-file=/token/sampler-token", "--token-file=/token/token", "no key token in its Secret"),
        ("path: sampler-token", "path: token", "no key sampler-token in its Secret"),
        ("- 75", "- 74", "what was lost uses up the budget"),
        ("--max-starts=7", "--max-memory=7", "starts again for ever without a newer checkpoint"),
        (
            "terminationGracePeriodSeconds: 60",
            "terminationGracePeriodSeconds: 30",
            "30 s for a checkpoint, killed after 30 s",
        ),
        ("- --resume", "- --json", "begins anew"),
        ("--join-timeout=900", "--join-timeout=300", "ranks wait 300 s for one that comes after 320 s"),
        ("kith-trainer:0.1.0", "kith-trainer:latest", "image kith-trainer:latest"),
        ("readOnlyRootFilesystem: true", "readOnlyRootFilesystem: false", "may write to its image"),
        ("runAsNonRoot: true", "runAsNonRoot: false", "runs as root"),
        ("completionMode: Indexed", "completionMode: indexed", "not one of"),
        ("action: FailJob", "action: Fail", "not one of"),
        ("protocol: UDP", "protocol: udp", "not one of"),
        ("apiVersion: batch/v1", "apiVersion: batch/v1beta1", "no such kind"),
        ("memory: 1Gi", "memory: 1G", "of memory"),
    ] {
        assert!(text.contains(from), "{from} is not in the base:\n{text}");
        let changed: Vec<Value> = serde_yaml_ng::from_str(&text.replace(from, to)).unwrap();
        let found = problems(&changed);
        assert!(found.iter().any(|problem| problem.contains(words)), "{from} → {to}: {found:?}");
    }
}

/// A store, a partitioned graph on a claim, a run file, and a run of it on the store.
struct Made {
    temp: tempfile::TempDir,
    run_file: String,
    cluster: String,
}

impl Made {
    fn new() -> Made {
        let temp = tempfile::tempdir().unwrap();
        let path = |name: &str| temp.path().join(name).to_str().unwrap().to_owned();
        let (store, cluster, run_file) = (path("store"), path("claims/kith-graph/made"), path("My run.toml"));
        fs::create_dir_all(temp.path().join("claims/kith-graph")).unwrap();
        fs::create_dir_all(temp.path().join("secrets/kith-token")).unwrap();
        fs::write(temp.path().join("secrets/kith-token/token"), "it's \"secret\" $(HOME)").unwrap();
        // As in docs/grow/kubernetes.md; files of a Secret are readable by the pod's user.
        kith(["secrets", &path("made-secrets"), "--names", "kith-samplers"]);
        fs::create_dir_all(temp.path().join("secrets/kith-samplers-tls")).unwrap();
        for (secret, key) in [
            ("token", "sampler-token"),
            ("samplers-tls", "tls.crt"),
            ("samplers-tls", "tls.key"),
            ("samplers-tls", "ca.crt"),
        ] {
            let text = fs::read(temp.path().join("made-secrets").join(key)).unwrap();
            fs::write(temp.path().join(format!("secrets/kith-{secret}")).join(key), text).unwrap();
        }
        let options = ["--nodes", "2000", "--degree", "8", "--classes", "4", "--dim", "16", "--seed", "7"];
        kith([&["data", "generate", "power-law", "--out", &store], &options[..]].concat());
        kith(["partition", &store, "--shards", "2", "--method", "hash", "--out", &cluster]);
        fs::write(&run_file, RUN_FILE).unwrap();
        kith(["train", &run_file, "--graph", &store, "--out", &path("plain"), "--set", "train.epochs=3"]);
        Made { temp, run_file, cluster }
    }

    fn path(&self, name: &str) -> std::path::PathBuf {
        self.temp.path().join(name)
    }

    /// Printed manifests, with one CPU per rank.
    #[track_caller]
    fn print(&self, options: &[&str]) -> String {
        let first =
            ["launch", "--print", "kubernetes", &self.run_file, "--shards", &self.cluster, "--out", "runs/there"];
        let rest = ["--set", "train.epochs=3", "--rank-cpus", "1", "--sampler-cpus=1", "--json"];
        kith([&first[..], options, &rest[..]].concat()).stdout
    }

    #[track_caller]
    fn assert_same(&self, run: &Path) {
        assert_eq!(steps(run), steps(&self.path("plain")));
        assert_eq!(report(run)["results"], report(&self.path("plain"))["results"]);
    }
}

/// Contains characters with a meaning in YAML and Kubernetes.
const RUN_FILE: &str =
    "# a \"run\": of 'ours', $(HOME) | {} é 🦀\n# ---\n\n\t\n[model]\nkind = \"supergat\"\nform = \"mx\"\n
[train]\nmode = \"mini-batch\"\nfanouts = [5, 5]\nseeds_per_step = 50\nslices = 2\nlearning_rate = 0.01
weight_decay = 1e-5\nepochs = 50\nevaluate_every = 3\ncheckpoint_every = 1\n\n[edge_loss]\nweight = 0.1\n";

/// Starts all pods of a run at once, as Kubernetes does, waits for its ranks, and then stops the servers.
#[track_caller]
fn run_pods(objects: &[Value], folder: &Path, meanwhile: impl FnOnce(&[Pod], &Hosts, &Outside<'_>)) -> bool {
    let pods = pods(objects);
    let Some(hosts) = hosts(&pods) else { return false };
    let outside = Outside { objects, folder };
    let (mut servers, mut ranks) = (Ranks::none(), Ranks::none());
    // Ranks come last, because the test waits for them.
    let (of_ranks, of_samplers): (Vec<&Pod>, Vec<&Pod>) = pods.iter().partition(|pod| pod.of.ends_with("ranks"));
    for (pods, processes, said) in [(of_ranks, &mut ranks, "ranks"), (of_samplers, &mut servers, "samplers")] {
        for pod in pods {
            let (first, then) = pod.commands(&hosts, &outside);
            for mut command in first {
                let finished = finish_within(&mut command, LIMIT);
                assert_eq!(finished.code, Some(0), "{}: {}", pod.name, finished.stderr);
            }
            then.into_iter().for_each(|command| processes.add(&folder.join("said").join(said), command));
        }
    }
    meanwhile(&pods, &hosts, &outside);
    let codes = ranks.wait(LIMIT);
    assert!(codes.iter().all(|code| *code == 0), "{codes:?}\n{}{}", ranks.all_said(), servers.all_said());
    let n_servers = pods.len() - codes.len();
    (0..n_servers).for_each(|server| servers.signal(server, "TERM"));
    let codes = servers.wait(LIMIT);
    assert!(codes.iter().all(|code| *code == 0), "{codes:?}\n{}", servers.all_said());
    true
}

#[test]
fn a_printed_world_trains() {
    let made = Made::new();
    let printed = made.print(&["--ranks", "2"]);
    let objects = read(&printed);
    assert_eq!(problems(&objects), Vec::<String>::new());
    let map = find(&objects, "ConfigMap", "my-run-run").expect("named by its file");
    assert_eq!(map["data"]["run.toml"], RUN_FILE, "to the letter");
    if run_pods(&objects, made.temp.path(), |_, _, _| {}) {
        made.assert_same(&made.path("claims/kith-runs/there"));
    }
}

/// Components apply to printed manifests as to the base: shards come from a bucket, all connections are encrypted, the
/// run goes to the bucket, and servers check their own health.
#[test]
fn slow_an_encrypted_world_from_a_bucket_trains() {
    if !is_slow_asked_for() {
        return;
    }
    let made = Made::new();
    let folder = made.path("overlay");
    fs::create_dir_all(&folder).unwrap();
    copy(&manifests().join("components"), &made.path("components"));
    fs::write(folder.join("run.yaml"), made.print(&["--ranks", "2", "--samplers", "4"])).unwrap();
    let urls = "[GRAPH_URL=file:///bucket/graphs/made.shards, RUN_URL=file:///bucket/run, AWS_REGION=here]";
    let components = ["bucket", "client-certificates", "monitoring"]
        .map(|component| format!("../components/{component}"))
        .join(", ");
    let kustomization = format!(
        "resources: [run.yaml]\ncomponents: [{components}]\n\
         configMapGenerator: [{{name: kith-bucket, literals: {urls}}}]\n"
    );
    fs::write(folder.join("kustomization.yaml"), kustomization).unwrap();
    let Some(objects) = build(&folder) else { return };
    assert_eq!(problems(&objects), Vec::<String>::new());
    assert!(!objects.iter().any(|object| format!("{object:?}").contains("persistentVolumeClaim")), "nothing is shared");
    sign(&made.path("secrets"));
    let url = |folder: &str| format!("file://{}/{folder}", made.path("bucket").display());
    kith(["data", "push", &made.cluster, &url("graphs/made.shards")]);
    fs::rename(&made.cluster, made.path("away")).unwrap();
    let is_run = run_pods(&objects, made.temp.path(), |pods, hosts, outside| {
        let started = Instant::now();
        for pod in pods.iter().filter(|pod| pod.of.ends_with("samplers")) {
            loop {
                let probe = pod.probe("readinessProbe", hosts, outside).expect("servers are asked for a page");
                let finished = finish_within(&mut { probe }, LIMIT);
                if finished.code == Some(0) {
                    break;
                }
                assert!(started.elapsed() < LIMIT, "{}: {}", pod.name, finished.stderr);
            }
        }
    });
    if is_run {
        let run = made.path("run");
        kith(["data", "pull", &url("run"), run.to_str().unwrap()]);
        made.assert_same(&run);
    }
}

/// Secrets like cert-manager's: one CA, a certificate for servers and one for ranks.
fn sign(secrets: &Path) {
    let mut params = CertificateParams::new([]).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
    for (secret, name) in [("kith-samplers-tls", "kith-samplers"), ("kith-ranks-tls", "kith-ranks")] {
        let folder = secrets.join(secret);
        fs::create_dir_all(&folder).unwrap();
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new([name.to_owned()]).unwrap();
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        let certificate = params.signed_by(&key, &authority).unwrap();
        fs::write(folder.join("tls.crt"), certificate.pem()).unwrap();
        fs::write(folder.join("tls.key"), key.serialize_pem()).unwrap();
        fs::write(folder.join("ca.crt"), authority.pem()).unwrap();
    }
}

fn copy(from: &Path, to: &Path) {
    let copied = finish(Command::new("cp").arg("-r").args([from, to]));
    assert_eq!(copied.code, Some(0), "{}", copied.stderr);
}

#[test]
fn what_cannot_be_in_pods_is_refused() {
    let temp = tempfile::tempdir().unwrap();
    let run_file = temp.path().join("run.toml");
    fs::write(&run_file, RUN_FILE).unwrap();
    let run_file = run_file.to_str().unwrap();
    let store = temp.path().join("store");
    let store = store.to_str().unwrap();
    kith(["data", "generate", "partition-graph", "--degree", "3", "--homophily", "0.5", "--out", store]);
    for (options, words) in [
        (&["--graph", store][..], "kith partition"),
        (&["--graph", "nowhere"], "no such folder"),
        (&[], "give the partitioned graph with --graph"),
        (&["--samplers", "2", "--tls-ca", "x"], "Secret kith-samplers-tls"),
        (&["--samplers", "2", "--token-file", "x"], "Secret kith-token"),
        (&["--samplers", "2", "--out", "s3://bucket/x"], "component bucket"),
        (&["--samplers", "2", "--preset", "cora/gcn"], "train.mode=mini-batch"),
    ] {
        let run = if options.contains(&"--preset") { &[][..] } else { &[run_file] };
        let finished = run_kith([&["launch", "--print", "kubernetes"], run, options].concat());
        assert!(finished.sentence().contains(words), "{options:?}: {}", finished.stderr);
    }
}

/// Validates with the Kubernetes schemas of the oldest version that has all we use, and of a new one.
#[test]
#[allow(clippy::print_stderr)]
fn slow_manifests_follow_the_schemas() {
    if !is_slow_asked_for() {
        return;
    }
    let python = finish(&mut Command::new(root().join("deploy/kubernetes-validate.sh")));
    if python.code == Some(3) {
        eprintln!("skipped: {}", python.stderr);
        return;
    }
    assert_eq!(python.code, Some(0), "{}", python.stderr);
    let temp = tempfile::tempdir().unwrap();
    let made = Made::new();
    let mut files = vec![("printed".to_owned(), made.print(&["--ranks", "2"]))];
    for folder in FOLDERS {
        let Some(built) = try_build(&manifests().join(folder)) else { return };
        files.push((folder.replace('/', "-"), built.stdout));
    }
    let planted = files[0].1.replace("replicas:", "replicaz:");
    let validate = |version: &str, files: &[(String, String)]| {
        let mut command = Command::new(Path::new(python.stdout.trim()).with_file_name("kubernetes-validate"));
        command.args(["--strict", "--quiet", "-k", version]);
        for (name, text) in files {
            let path = temp.path().join(format!("{name}.yaml"));
            fs::write(&path, text).unwrap();
            command.arg(path);
        }
        finish(&mut command)
    };
    for version in ["1.29", "1.37"] {
        let finished = validate(version, &files);
        assert_eq!(finished.code, Some(0), "{version}: {}{}", finished.stdout, finished.stderr);
    }
    assert_eq!(validate("1.37", &[("planted".to_owned(), planted)]).code, Some(1), "mistakes are found");
}
