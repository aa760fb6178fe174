//! The compose file: consistent with itself, with the images and with the programs, and its services train.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
    process::Command,
    time::Duration,
};

use serde_yaml_ng::Value;

use crate::{
    kith::{finish_within, kith, program, root, run_kith},
    whole_path::{report, steps},
    worlds::{Ranks, free_port},
};

const LIMIT: Duration = Duration::from_secs(60);

/// A service of the file.
struct Service {
    name: String,
    /// Its whole definition.
    value: Value,
    /// Its stage of the Dockerfile.
    target: String,
    command: Vec<String>,
    environment: BTreeMap<String, String>,
}

impl Service {
    /// Value of an option in its command.
    #[track_caller]
    fn option(&self, name: &str) -> &str {
        let place = self.command.iter().position(|word| word == name);
        &self.command[place.unwrap_or_else(|| panic!("{}: no {name}", self.name)) + 1]
    }

    fn is_sampler(&self) -> bool {
        self.target == "sampler"
    }

    fn is_rank(&self) -> bool {
        self.environment.contains_key("RANK")
    }

    /// Its mounts: volume, folder, and whether it is writable.
    fn mounts(&self) -> Vec<(String, String, bool)> {
        let mount = |text: String| {
            let mut parts = text.split(':').map(String::from);
            let (volume, folder) = (parts.next().unwrap(), parts.next().expect("VOLUME:FOLDER"));
            (volume, folder, parts.next().as_deref() != Some("ro"))
        };
        texts(&self.value["volumes"]).into_iter().map(mount).collect()
    }
}

fn texts(value: &Value) -> Vec<String> {
    let text = |value: &Value| value.as_str().unwrap_or_else(|| panic!("{value:?} is no text")).to_owned();
    value.as_sequence().map(|values| values.iter().map(text).collect()).unwrap_or_default()
}

fn compose() -> (Value, Vec<Service>) {
    let text = fs::read_to_string(root().join("deploy/compose.yaml")).unwrap();
    let mut file: Value = serde_yaml_ng::from_str(&text).unwrap();
    // One call merges one level of nested merge keys.
    for _ in 0..3 {
        file.apply_merge().unwrap();
    }
    let services = file["services"].as_mapping().unwrap().iter().map(|(name, value)| Service {
        name: name.as_str().unwrap().to_owned(),
        target: value["build"]["target"].as_str().unwrap().to_owned(),
        command: texts(&value["command"]),
        environment: serde_yaml_ng::from_value(value["environment"].clone()).unwrap_or_default(),
        value: value.clone(),
    });
    let services = services.collect();
    (file, services)
}

fn dockerfile() -> String {
    fs::read_to_string(root().join("deploy/images/Dockerfile")).unwrap()
}

/// Lines of a stage, with continuation lines joined.
fn stage(name: &str) -> Vec<String> {
    let text = dockerfile().replace("\\\n", " ");
    let end = format!(" AS {name}");
    let lines = text.lines().skip_while(|line| !(line.starts_with("FROM ") && line.ends_with(&end)));
    let own = lines.enumerate().take_while(|(number, line)| *number == 0 || !line.starts_with("FROM "));
    let own: Vec<String> = own.map(|(_, line)| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
    assert!(!own.is_empty(), "the Dockerfile has no stage {name}");
    own
}

/// Arguments of an instruction that a stage has once.
#[track_caller]
fn instruction(stage: &[String], name: &str) -> String {
    let found: Vec<&str> = stage.iter().filter_map(|line| line.strip_prefix(name)?.strip_prefix(' ')).collect();
    assert_eq!(found.len(), 1, "{name} in {stage:?}");
    found[0].to_owned()
}

fn version() -> String {
    let said = kith(["--version"]).stdout;
    said.trim().strip_prefix("kith ").unwrap().to_owned()
}

/// Checks that a program accepts the options of its command.
#[track_caller]
fn assert_known(who: &str, command: &[String]) {
    let name = &command[0];
    let mut helped = Command::new(program().with_file_name(name));
    helped.args(command[1..].iter().take_while(|word| !word.starts_with(['-', '/']) && !word.contains(['/', ':'])));
    let help = finish_within(helped.arg("--help"), LIMIT);
    assert_eq!(help.code, Some(0), "{who}: {helped:?}: {}", help.stderr);
    for option in command.iter().filter(|word| word.starts_with("--")) {
        let known = help.stdout.split([' ', '\n', ',', '=']).any(|word| word == option);
        assert!(known, "{who}: {name} has no {option}:\n{}", help.stdout);
    }
}

#[test]
fn the_compose_file_agrees_with_itself_and_the_images() {
    let (file, services) = compose();
    let version = version();
    assert_eq!(dockerfile().matches(&format!("ARG VERSION={version}\n")).count(), 2);
    let base = stage("base");
    let names: BTreeSet<&str> = services.iter().map(|service| service.name.as_str()).collect();
    for service in &services {
        let name = &service.name;
        let value = &service.value;
        let own = stage(&service.target);
        assert_eq!(value["image"], Value::from(format!("kith-{}:{version}", service.target)), "{name}");
        assert_eq!(value["user"], Value::from(instruction(&own, "USER")), "{name}");
        assert_eq!(value["read_only"], Value::from(true), "{name}");
        assert_eq!(texts(&value["tmpfs"]), ["/tmp"], "{name}");
        assert_eq!(texts(&value["cap_drop"]), ["ALL"], "{name}");
        assert_eq!(texts(&value["security_opt"]), ["no-new-privileges:true"], "{name}");
        for (volume, folder, _) in service.mounts() {
            assert!(file["volumes"].get(&volume).is_some(), "{name}: volume {volume} is not declared");
            // A new volume inherits its owner from the image.
            let owner = instruction(&own, "USER").replace(':', " --group=");
            let made =
                instruction(&base, "RUN").rsplit_once(&format!("--owner={owner} ")).expect("folders").1.to_owned();
            assert!(made.split(' ').any(|own| own == folder), "{name}: {folder} is not in the image");
        }
        for (other, condition) in value["depends_on"].as_mapping().into_iter().flatten() {
            let other = other.as_str().unwrap();
            assert!(names.contains(other), "{name}: there is no {other}");
            let other = services.iter().find(|service| service.name == other).unwrap();
            let condition = condition["condition"].as_str().unwrap();
            let is_served = other.is_sampler();
            assert_eq!(condition, if is_served { "service_healthy" } else { "service_completed_successfully" });
            assert_eq!(is_served, other.value.get("healthcheck").is_some(), "{}", other.name);
        }
        let entry: Vec<String> = serde_json::from_str(&instruction(&own, "ENTRYPOINT")).unwrap();
        assert!(entry[0].starts_with("tini") && entry[1] == "--", "{entry:?}");
        let program = entry[2].as_str();
        if value.get("entrypoint").is_none() {
            assert_known(name, &[&[program.to_owned()], &service.command[..]].concat());
        }
        let exposed = instruction(&own, "EXPOSE");
        let ports =
            ["--listen", "--metrics"].iter().filter(|option| service.command.iter().any(|word| word == *option));
        for port in ports.map(|option| service.option(option).rsplit_once(':').unwrap().1) {
            assert!(exposed.split(' ').any(|number| number == port), "{name}: {port} is not exposed");
        }
    }
}

#[test]
fn servers_and_ranks_of_the_compose_file_find_each_other() {
    let (_, services) = compose();
    let prepare = services.iter().find(|service| service.name == "prepare").unwrap();
    let script = &prepare.command[0];
    for line in script.lines() {
        let (_, command) = line.split_once(" || ").expect("nothing is made twice");
        assert_known("prepare", &command.split(' ').map(String::from).collect::<Vec<_>>());
    }
    let names = script.split("--names ").nth(1).unwrap().split([' ', '\n']).next().unwrap();
    let n_shards: usize = script.split("--shards ").nth(1).unwrap().split(' ').next().unwrap().parse().unwrap();

    let samplers: Vec<&Service> = services.iter().filter(|service| service.is_sampler()).collect();
    let ranks: Vec<&Service> = services.iter().filter(|service| service.is_rank()).collect();
    let shards: Vec<usize> =
        samplers.iter().flat_map(|own| own.option("--shards").split(',')).map(|shard| shard.parse().unwrap()).collect();
    assert_eq!(shards, (0..n_shards).collect::<Vec<_>>());
    let port = |own: &Service| own.option("--listen").rsplit_once(':').unwrap().1.to_owned();
    let addresses: Vec<String> = samplers.iter().map(|own| format!("{}:{}", own.name, port(own))).collect();
    for sampler in &samplers {
        assert!(script.contains(&format!("--out {}", sampler.option("--graph"))), "{}", sampler.name);
        assert!(names.split(',').any(|name| name == sampler.name), "the certificate is for others: {names}");
        let made = Path::new(sampler.option("--token-file")).parent().unwrap().to_str().unwrap();
        assert!(script.contains(&format!("kith secrets {made} ")), "nobody makes {made}");
        assert_eq!(sampler.option("--tls-cert"), format!("{made}/tls.crt"));
        assert_eq!(sampler.option("--tls-key"), format!("{made}/tls.key"));
        assert!(!sampler.command.iter().any(|word| word == "--insecure"));
        let health = texts(&sampler.value["healthcheck"]["test"]);
        assert_eq!(health[0], "CMD");
        let metrics = sampler.option("--metrics").rsplit_once(':').unwrap().1;
        assert_eq!(*health.last().unwrap(), format!("http://127.0.0.1:{metrics}"));
        assert_known(&sampler.name, &health[1..]);
        // The image's health check uses the servers' port.
        let asked = format!("[\"kith-sampler\", \"health\", \"127.0.0.1:{}\"]", port(sampler));
        assert!(stage("sampler").iter().any(|line| line.ends_with(&asked)));
    }

    assert_eq!(samplers.len(), 2);
    assert_eq!(ranks.len(), 2);
    for (number, rank) in ranks.iter().enumerate() {
        let said = |name: &str| rank.environment[name].as_str();
        assert_eq!(said("RANK"), number.to_string());
        assert_eq!(said("WORLD_SIZE"), ranks.len().to_string());
        assert_eq!(said("MASTER_ADDR"), ranks[0].name);
        assert!(instruction(&stage("trainer"), "EXPOSE").contains(said("MASTER_PORT")));
        assert!(said("KITH_TOKEN").starts_with("${KITH_TOKEN:?"), "there must be a token, and not in the file");
        assert_eq!(rank.option("--graph"), format!("grpc://{}", addresses.join(",")));
        assert!(rank.command.contains(&format!("train.slices={}", ranks.len())));
        assert_eq!(rank.command, ranks[0].command);
        assert_eq!(rank.option("--token-file"), samplers[0].option("--token-file"));
        assert_eq!(rank.option("--tls-ca"), samplers[0].option("--tls-cert").replace("tls.crt", "ca.crt"));
        let written = Path::new(rank.option("--out"));
        assert!(rank.mounts().iter().any(|(_, folder, may_write)| *may_write && written.starts_with(folder)));
    }
    for (_, folder, may_write) in samplers.iter().flat_map(|own| own.mounts()) {
        assert!(["/graph", "/secrets"].contains(&folder.as_str()) && !may_write, "servers change nothing");
    }
}

/// Runs every command of the file with its environment on this host; folders and service names are replaced by local
/// paths and addresses.
#[test]
fn the_compose_file_trains() {
    let (_, services) = compose();
    let temp = tempfile::tempdir().unwrap();
    let here = temp.path().to_str().unwrap();
    let mut places: Vec<(String, String)> =
        ["graph", "runs", "secrets"].map(|volume| (format!("/{volume}/"), format!("{here}/{volume}/"))).into();
    for volume in ["graph", "runs", "secrets"] {
        fs::create_dir(temp.path().join(volume)).unwrap();
    }
    let mut ports = BTreeMap::new();
    for sampler in services.iter().filter(|service| service.is_sampler()) {
        let port = free_port();
        places.push((format!("{}:7000", sampler.name), format!("127.0.0.1:{port}")));
        ports.insert(sampler.name.clone(), (port, free_port()));
    }
    let elsewhere = |text: &str| places.iter().fold(text.to_owned(), |text, (from, to)| text.replace(from, to));
    // A smaller graph, to be fast.
    let path = format!("{}:{}", program().parent().unwrap().display(), std::env::var("PATH").unwrap_or_default());
    let prepare = services.iter().find(|service| service.name == "prepare").unwrap();
    // Services on this host have addresses instead of names.
    let script = elsewhere(&prepare.command[0]).replace("--nodes 20000", "--nodes 2000");
    let script = script.replace("--names sampler-0,sampler-1", "--names 127.0.0.1");
    assert!(script.contains("--names 127.0.0.1"));
    assert!(script.contains("--nodes 2000 "));
    for _ in 0..2 {
        let entry = texts(&prepare.value["entrypoint"]);
        let mut command = Command::new(&entry[0]);
        let finished = finish_within(command.args(&entry[1..]).arg(&script).env("PATH", &path), LIMIT);
        assert_eq!(finished.code, Some(0), "{}", finished.stderr);
    }

    let said = temp.path().join("said");
    let mut samplers = Ranks::none();
    let mut ranks = Ranks::none();
    let master_port = free_port().to_string();
    let few = ["--set", "train.epochs=3", "--set", "train.batch_size=100"];
    for service in &services {
        if service.is_sampler() {
            let mut command = Command::new(program().with_file_name("kith-sampler"));
            let own = |word: &String| match word.as_str() {
                "0.0.0.0:7000" => format!("127.0.0.1:{}", ports[&service.name].0),
                "0.0.0.0:7001" => format!("127.0.0.1:{}", ports[&service.name].1),
                word => elsewhere(word),
            };
            command.args(service.command.iter().map(own));
            samplers.add(&said.join("samplers"), command);
        } else if service.is_rank() {
            let mut command = Command::new(program());
            command.args(service.command.iter().map(|word| elsewhere(word))).args(few).env("RAYON_NUM_THREADS", "1");
            for (name, value) in &service.environment {
                command.env(name, value);
            }
            // Variables that only Docker sets.
            command
                .env("MASTER_ADDR", "127.0.0.1")
                .env("MASTER_PORT", &master_port)
                .env("KITH_TOKEN", "a secret of this test");
            ranks.add(&said.join("ranks"), command);
        }
    }
    assert_eq!(ranks.wait(LIMIT), [0, 0], "{}{}", ranks.all_said(), samplers.all_said());
    assert!(!samplers.have_ended(), "{}", samplers.all_said());
    for service in services.iter().filter(|service| service.is_sampler()) {
        let health = texts(&service.value["healthcheck"]["test"]);
        let mut command = Command::new(program().with_file_name(&health[1]));
        let own = health[2..].iter().map(|word| word.replace(":7001", &format!(":{}", ports[&service.name].1)));
        let finished = finish_within(command.args(own), LIMIT);
        assert_eq!(finished.code, Some(0), "{}", finished.stderr);
    }

    // One process with the same options.
    let rank = services.iter().find(|service| service.is_rank()).unwrap();
    let place = rank.command.iter().position(|word| word == "--graph").unwrap();
    let mut alone: Vec<String> = rank.command.clone();
    // Without servers, without their CA and token.
    alone.splice(place..place + 6, ["--graph".to_owned(), "/graph/store".to_owned()]);
    let alone: Vec<String> = alone.iter().map(|word| elsewhere(word).replace("/made", "/alone")).collect();
    let finished = run_kith(alone.iter().map(String::as_str).chain(few));
    assert_eq!(finished.code, Some(0), "{}", finished.stderr);
    let (together, alone) = (temp.path().join("runs/made"), temp.path().join("runs/alone"));
    assert_eq!(steps(&together), steps(&alone));
    assert_eq!(report(&together)["results"], report(&alone)["results"]);
}

/// An image stage builds the packages of all programs that it installs.
#[test]
fn every_program_of_an_image_is_built_for_it() {
    let packages = [("kith", "kith"), ("kith-trainer", "kith-trainer-program"), ("kith-sampler", "kith-sampler")];
    let text = fs::read_to_string(root().join("deploy/images/Dockerfile")).unwrap();
    let mut n_installed = 0;
    for stage in text.split("\nFROM ").filter(|stage| stage.contains("cargo build")) {
        let words: Vec<&str> = stage.split_whitespace().collect();
        let built: Vec<&str> = words.windows(2).filter(|pair| pair[0] == "--package").map(|pair| pair[1]).collect();
        for program in words.iter().filter_map(|word| word.strip_prefix("target/release/")) {
            let package = packages.iter().find(|(name, _)| *name == program).expect("a program of ours").1;
            assert!(built.contains(&package), "{program} is installed, and {package} is not built: {built:?}");
            n_installed += 1;
        }
    }
    assert_eq!(n_installed, packages.len());
}
