//! Runs pods as processes: on their own hosts, with the variables, files and users of their manifests.

use std::{
    collections::BTreeMap,
    ffi::OsString,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use serde_yaml_ng::Value;

use super::{
    objects::{expand, find, items, name, template, text},
    restricted::quantity,
};
use crate::{hosts::Hosts, kith::program};

/// Executes a program with a read-only root that holds the machine's programs and some folders: triples of source,
/// destination, and `ro` or `rw`. Runs as the pods' user if other users exist.
const CONTAINER: &str = r#"
set -e
root=$1
shift
mount -t tmpfs -o mode=755 root "$root"
cd "$root"
for place in bin etc lib lib64 sbin usr; do
    if [ -L /$place ]; then
        ln -s "$(readlink /$place)" $place
    elif [ -d /$place ]; then
        mkdir $place
        mount --rbind /$place $place
    fi
done
mkdir dev proc
mount --rbind /dev dev
mount --rbind /proc proc
user="setpriv --reuid=10001 --regid=10001 --clear-groups --no-new-privs --inh-caps=-all --bounding-set=-all"
while [ "$1" != -- ]; do
    mkdir -p "./$2"
    mount --bind "$1" "./$2"
    if [ "$3" = ro ]; then
        mount -o remount,bind,ro "./$2"
    elif ! chown 10001:10001 "./$2" 2>/dev/null; then
        user=
    fi
    shift 3
done
shift
mount -o remount,ro "$root"
exec chroot "$root" $user "$@"
"#;

/// Folder of the images' programs.
const PROGRAMS: &str = "/programs";

/// One pod of a run.
pub(super) struct Pod {
    /// Its name, which is also its hostname.
    pub(super) name: String,
    /// Name of its job or set, and its index.
    pub(super) of: String,
    pub(super) index: usize,
    /// Its DNS name in its service.
    service: String,
    template: Value,
    is_indexed: bool,
}

/// Resources outside of manifests: claims, secrets and a bucket, as folders.
pub(super) struct Outside<'a> {
    pub(super) objects: &'a [Value],
    pub(super) folder: &'a Path,
}

/// All pods of jobs and sets.
pub(super) fn pods(objects: &[Value]) -> Vec<Pod> {
    let mut pods = Vec::new();
    for object in objects {
        let (spec, of) = (&object["spec"], name(object).to_owned());
        let (n_pods, service) = match text(&object["kind"]) {
            "StatefulSet" => (&spec["replicas"], &spec["serviceName"]),
            "Job" => (&spec["completions"], &spec["template"]["spec"]["subdomain"]),
            _ => continue,
        };
        let template = template(object).expect("it has pods").clone();
        pods.extend((0..n_pods.as_u64().expect("a count") as usize).map(|index| Pod {
            name: format!("{of}-{index}"),
            of: of.clone(),
            index,
            service: text(service).to_owned(),
            template: template.clone(),
            is_indexed: spec["completionMode"] == "Indexed",
        }));
    }
    pods
}

/// One host per pod; they resolve each other by the names of their services.
pub(super) fn hosts(pods: &[Pod]) -> Option<Hosts> {
    let names: Vec<String> = pods.iter().map(|pod| format!("{0} {0}.{1}", pod.name, pod.service)).collect();
    Hosts::new(&names.iter().map(String::as_str).collect::<Vec<_>>())
}

impl Pod {
    /// Its init containers and containers, as commands on its host.
    pub(super) fn commands(&self, hosts: &Hosts, outside: &Outside<'_>) -> (Vec<Command>, Vec<Command>) {
        let spec = &self.template["spec"];
        let of = |containers: &Value| -> Vec<Command> {
            items(containers).iter().map(|container| self.command(container, hosts, outside)).collect()
        };
        (of(&spec["initContainers"]), of(&spec["containers"]))
    }

    /// A command that requests the page of a probe.
    pub(super) fn probe(&self, probe: &str, hosts: &Hosts, outside: &Outside<'_>) -> Option<Command> {
        let container = &items(&self.template["spec"]["containers"])[0];
        let page = &container[probe]["httpGet"];
        assert_eq!(page["path"], "/health", "the one that `kith-sampler health` asks for");
        let port =
            items(&container["ports"]).iter().find(|port| port["name"] == page["port"])?["containerPort"].as_u64()?;
        let mut command = self.enter(container, hosts, outside, "kith-sampler");
        command.args(["health", &format!("http://127.0.0.1:{port}")]);
        Some(command)
    }

    fn command(&self, container: &Value, hosts: &Hosts, outside: &Outside<'_>) -> Command {
        // Entry points of the images.
        let image = text(&container["image"]).rsplit('/').next().unwrap_or_default();
        let program = match image.split(':').next() {
            Some("kith-sampler") => "kith-sampler",
            Some("kith-trainer" | "kith-trainer-cuda") => "kith",
            _ => panic!("no image is called {image}"),
        };
        assert!(container.get("command").is_none(), "images know their programs");
        let variables = self.variables(container, outside);
        let mut command = self.enter(container, hosts, outside, program);
        let value = |name: &str| variables.get(name).cloned();
        command.args(items(&container["args"]).iter().map(|argument| expand(text(argument), value)));
        command.envs(variables.iter());
        command
    }

    /// A program of an image, with the container's files and none of our variables.
    fn enter(&self, container: &Value, hosts: &Hosts, outside: &Outside<'_>, program_name: &str) -> Command {
        let root = outside.folder.join("roots").join(format!("{}-{}", self.name, text(&container["name"])));
        fs::create_dir_all(&root).unwrap();
        let mut command = hosts.command(&self.name, "unshare");
        command.args(["--mount", "sh", "-c", CONTAINER, "container"]).arg(root);
        let programs = program().parent().expect("a folder").to_owned();
        command.arg(&programs).args([PROGRAMS, "ro"]);
        // At the images' paths: a volume may cover their paths on this machine.
        let mut places = Vec::new();
        for (number, folder) in libraries().iter().enumerate() {
            places.push(format!("/opt/kith/{number}"));
            command.arg(folder).args([&places[number], "ro"]);
        }
        // The bucket stands for the network and is always visible.
        let bucket = outside.folder.join("bucket");
        if bucket.exists() {
            command.arg(bucket).args(["/bucket", "rw"]);
        }
        for mount in items(&container["volumeMounts"]) {
            let folder = self.volume(text(&mount["name"]), outside);
            let mode = if mount["readOnly"] == true { "ro" } else { "rw" };
            command.arg(folder).args([text(&mount["mountPath"]), mode]);
        }
        command.args(["--", &format!("{PROGRAMS}/{program_name}")]);
        command.env_clear().env("PATH", std::env::var_os("PATH").unwrap_or_else(|| OsString::from("/usr/bin:/bin")));
        command.env("LD_LIBRARY_PATH", places.join(":"));
        command
    }

    /// Folder of a volume.
    fn volume(&self, called: &str, outside: &Outside<'_>) -> PathBuf {
        let volume = items(&self.template["spec"]["volumes"]).iter().find(|volume| volume["name"] == called);
        let volume = volume.unwrap_or_else(|| panic!("{} has no volume {called}", self.name));
        let folder = if let Some(claim) = volume.get("persistentVolumeClaim") {
            outside.folder.join("claims").join(text(&claim["claimName"]))
        } else if let Some(secret) = volume.get("secret") {
            self.secret(secret, called, outside)
        } else if let Some(map) = volume.get("configMap") {
            let folder = outside.folder.join("maps").join(text(&map["name"]));
            fs::create_dir_all(&folder).unwrap();
            let map = find(outside.objects, "ConfigMap", text(&map["name"])).expect("the map is there");
            for (key, value) in map["data"].as_mapping().expect("a map has data") {
                fs::write(folder.join(text(key)), text(value)).unwrap();
            }
            folder
        } else {
            outside.folder.join("scratch").join(&self.name).join(called)
        };
        fs::create_dir_all(&folder).unwrap();
        folder
    }

    /// Folder of a secret, or of its selected keys.
    fn secret(&self, secret: &Value, called: &str, outside: &Outside<'_>) -> PathBuf {
        let whole = outside.folder.join("secrets").join(text(&secret["secretName"]));
        let taken = items(&secret["items"]);
        if taken.is_empty() {
            return whole;
        }
        let folder = outside.folder.join("taken").join(&self.name).join(called);
        fs::create_dir_all(&folder).unwrap();
        for item in taken {
            fs::copy(whole.join(text(&item["key"])), folder.join(text(&item["path"]))).unwrap();
        }
        folder
    }

    /// Variables of a container, with Kubernetes' own.
    fn variables(&self, container: &Value, outside: &Outside<'_>) -> BTreeMap<String, String> {
        let mut variables = BTreeMap::new();
        if self.is_indexed {
            variables.insert("JOB_COMPLETION_INDEX".to_owned(), self.index.to_string());
        }
        for source in items(&container["envFrom"]) {
            if let Some(map) = find(outside.objects, "ConfigMap", text(&source["configMapRef"]["name"])) {
                let data = map["data"].as_mapping().into_iter().flatten();
                variables.extend(data.map(|(key, value)| (text(key).to_owned(), text(value).to_owned())));
            }
        }
        for variable in items(&container["env"]) {
            let known = variables.clone();
            let source = &variable["valueFrom"];
            let value = if source.is_null() {
                expand(text(&variable["value"]), |name| known.get(name).cloned())
            } else if let Some(reference) = source.get("secretKeyRef") {
                let secret = outside.folder.join("secrets").join(text(&reference["name"]));
                fs::read_to_string(secret.join(text(&reference["key"]))).expect("the secret has the key")
            } else if let Some(reference) = source.get("configMapKeyRef") {
                let map = find(outside.objects, "ConfigMap", text(&reference["name"])).expect("the map is there");
                text(&map["data"][text(&reference["key"])]).to_owned()
            } else if let Some(reference) = source.get("resourceFieldRef") {
                let (amount, resource) = text(&reference["resource"]).split_once('.').expect("an amount of something");
                quantity(&container["resources"][amount][resource]).ceil().to_string()
            } else {
                assert_eq!(source["fieldRef"]["fieldPath"], "metadata.labels['apps.kubernetes.io/pod-index']");
                self.index.to_string()
            };
            variables.insert(text(&variable["name"]).to_owned(), value);
        }
        variables
    }
}

/// Folders of our programs' libraries that are not part of the system.
fn libraries() -> Vec<PathBuf> {
    let listed = Command::new("ldd").arg(program().with_file_name("kith-trainer")).output().expect("ldd is there");
    let mut folders: Vec<PathBuf> = String::from_utf8_lossy(&listed.stdout)
        .lines()
        .filter_map(|line| line.split_once("=> ")?.1.split_whitespace().next())
        .filter(|path| path.starts_with('/') && !["/lib", "/usr"].iter().any(|own| path.starts_with(own)))
        .flat_map(|path| {
            // A library may be a symbolic link.
            let real = fs::canonicalize(path).expect("a library is a file");
            [Path::new(path), real.as_path()].map(|path| path.parent().expect("in a folder").to_owned())
        })
        .collect();
    folders.sort();
    folders.dedup();
    folders
}
