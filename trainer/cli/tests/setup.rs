//! `deploy/setup.sh`, on small wheels made here and served from a folder instead of a package index.
#![allow(clippy::print_stderr)]

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use tempfile::TempDir;

/// Makes wheels with the members that set-up looks for, and the files that name them with their hashes; `spoiled` gives one member a
/// checksum that is not its own.
const MAKE_WHEELS: &str = r#"
import base64, hashlib, pathlib, sys, zipfile

def wheel(name, version, members, requires=()):
    info = f"{name}-{version}.dist-info"
    headers = [f"Metadata-Version: 2.1\nName: {name.replace('_', '-')}\nVersion: {version}"]
    headers += [f"Requires-Dist: {line}" for line in requires]
    texts = {member: f"this is {member}" for member in members} | {
        f"{info}/METADATA": "\n".join(headers) + "\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: false\nTag: py3-none-any\n",
    }
    record = ""
    for member, text in texts.items():
        lie = "!" if sys.argv[2] == member else ""
        checksum = base64.urlsafe_b64encode(hashlib.sha256((text + lie).encode()).digest()).rstrip(b"=").decode()
        record += f"{member},sha256={checksum},{len(text)}\n"
    path = pathlib.Path(sys.argv[1], f"{name}-{version}-py3-none-any.whl")
    with zipfile.ZipFile(path, "w") as archive:
        for member, text in (texts | {f"{info}/RECORD": record + f"{info}/RECORD,,\n"}).items():
            archive.writestr(member, text)
    return f"{name}=={version} --hash=sha256:{hashlib.sha256(path.read_bytes()).hexdigest()}\n"

torch = ["libtorch_cpu.so", "libc10.so", "libgomp.so.1", "libtorch.so", "libtorch_python.so", "libtorch_cuda.so",
         "libtorch_cuda_linalg.so", "libtorch_nvshmem.so", "libc10_cuda.so", "libcaffe2_nvrtc.so"]
base = wheel("torch", "2.11.0", [f"torch/lib/{name}" for name in torch] + ["torch/include/torch/torch.h"], ["nobody-has-this"])
base += wheel("nvidia_cuda_runtime", "13.0.96", ["nvidia/cu13/lib/libcudart.so.13", "nvidia/cu13/include/cuda.h"])
base += wheel("nvidia_cuda_cupti", "13.0.85", ["nvidia/cu13/lib/libcupti.so.13"])
nccl = wheel("nvidia_nccl", "2.28.9", ["nvidia/nccl/lib/libnccl.so.2"])
pathlib.Path(sys.argv[1], "libtorch.txt").write_text(base)
pathlib.Path(sys.argv[1], "libtorch-cuda.txt").write_text(base + nccl)
"#;

/// A cache and wheels of its own, and as many clones as a test asks for.
struct Machine(TempDir);

impl Machine {
    /// None, with a line that says so, where set-up itself could not fetch anything.
    fn new(spoiled: &str) -> Option<Machine> {
        let pip = Command::new("python3").args(["-c", "import pip"]).output();
        if !pip.is_ok_and(|output| output.status.success()) {
            eprintln!("skipped: python3 with pip is not here");
            return None;
        }
        let machine = Machine(TempDir::new().expect("a temporary folder"));
        let wheels = machine.path("wheels");
        fs::create_dir(&wheels).expect("a new folder");
        let made = Command::new("python3").args(["-c", MAKE_WHEELS]).arg(&wheels).arg(spoiled).status();
        assert!(made.is_ok_and(|status| status.success()));
        fs::create_dir(machine.path("hashes")).expect("a new folder");
        for file in ["libtorch.txt", "libtorch-cuda.txt"] {
            fs::rename(wheels.join(file), machine.path("hashes").join(file)).expect("moved");
        }
        Some(machine)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn start(&self, clone: &str, set: &[(&str, &str)]) -> Child {
        let clone = self.path(clone);
        let repository = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        fs::create_dir_all(clone.join("deploy/wheels")).expect("a folder");
        for file in ["Cargo.toml", "deploy/setup.sh", "deploy/pip.sh", "deploy/unpack.py"] {
            fs::copy(repository.join(file), clone.join(file)).expect("a file of the repository");
        }
        for file in ["libtorch.txt", "libtorch-cuda.txt"] {
            let made = fs::read(self.path("hashes").join(file)).expect("made with the wheels");
            fs::write(clone.join("deploy/wheels").join(file), made).expect("written");
        }
        let mut command = Command::new(clone.join("deploy/setup.sh"));
        command.env_remove("LIBTORCH").env("KITH_CUDA", "0").env("XDG_CACHE_HOME", self.path("cache"));
        command.env("PIP_NO_INDEX", "1").env("PIP_FIND_LINKS", self.path("wheels")).envs(set.iter().copied());
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("bash is here")
    }

    /// Whether it succeeded, and all it said.
    fn setup(&self, clone: &str, set: &[(&str, &str)]) -> (bool, String) {
        finish(self.start(clone, set))
    }

    fn libtorch(&self) -> PathBuf {
        self.path("cache/kith/libtorch-2.11.0")
    }
}

fn finish(child: Child) -> (bool, String) {
    let output = child.wait_with_output().expect("set-up ends");
    let said = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8(said).expect("text"))
}

fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry").file_name());
    let mut names: Vec<String> = entries.map(|name| name.into_string().expect("a plain name")).collect();
    names.sort();
    names
}

#[test]
fn clones_share_one_checked_libtorch() {
    let Some(machine) = Machine::new("") else { return };
    let both = [machine.start("a", &[]), machine.start("b", &[])].map(finish);
    assert!(both.iter().all(|(succeeded, _)| *succeeded), "{both:?}");
    assert_eq!(both.iter().filter(|(_, said)| said.contains("unpacking")).count(), 1, "{both:?}");
    assert_eq!(fs::read_link(machine.path("b/.libtorch")).expect("a link"), machine.libtorch());

    let libraries = ["libc10.so", "libcudart.so.13", "libcupti.so.13", "libgomp.so", "libgomp.so.1", "libtorch.so"];
    assert_eq!(names(&machine.libtorch().join("lib")), [&libraries[..], &["libtorch_cpu.so"]].concat());
    assert_eq!(fs::read_to_string(machine.libtorch().join("build-version")).expect("text"), "2.11.0\n");
    assert!(machine.libtorch().join("include/torch/torch.h").exists());
    assert_eq!(names(&machine.path("cache/kith")), ["libtorch-2.11.0", "libtorch-2.11.0.lock"]);

    fs::remove_dir_all(machine.path("wheels")).expect("it was there");
    assert_eq!(machine.setup("a", &[]), (true, String::new()), "nothing to do, nothing to say");
}

#[test]
fn a_damaged_libtorch_is_replaced() {
    let Some(machine) = Machine::new("") else { return };
    assert!(machine.setup("a", &[]).0);
    let library = machine.libtorch().join("lib/libc10.so");
    let whole = fs::read(&library).expect("a library");
    fs::write(&library, "cut").expect("written");
    let (succeeded, said) = machine.setup("a", &[]);
    assert!(succeeded && said.contains("is damaged (lib/libc10.so has 3 bytes, not 27)"), "{said}");
    assert_eq!(fs::read(&library).expect("a library"), whole);
}

#[test]
fn cuda_is_added_later_without_touching_the_rest() {
    let Some(machine) = Machine::new("") else { return };
    assert!(machine.setup("a", &[]).0);
    let stamp = machine.libtorch().join("stamp");
    let before = fs::metadata(&stamp).and_then(|stamp| stamp.modified()).expect("a stamp");
    let (succeeded, said) = machine.setup("a", &[("KITH_CUDA", "1")]);
    assert!(succeeded && said.contains("cuda is ready"), "{said}");
    assert_eq!(fs::metadata(&stamp).and_then(|stamp| stamp.modified()).expect("a stamp"), before);
    let cuda = machine.libtorch().join("cuda");
    assert_eq!(fs::read_link(cuda.join("libnccl.so")).expect("a link"), Path::new("libnccl.so.2"));
    assert!(cuda.join("libcudart.so").exists() && cuda.join("libtorch_cuda.so").exists());
    assert!(!machine.libtorch().join("lib/libtorch_cuda.so").exists(), "torch-sys would link it");
    assert_eq!(machine.setup("a", &[("KITH_CUDA", "1")]), (true, String::new()));
}

#[test]
fn a_wheel_that_does_not_keep_its_checksums_is_refused() {
    let Some(machine) = Machine::new("torch/lib/libc10.so") else { return };
    let (succeeded, said) = machine.setup("a", &[]);
    assert!(!succeeded && said.contains("torch/lib/libc10.so does not have the checksum the wheel lists"), "{said}");
    assert_eq!(names(&machine.path("cache/kith")), ["libtorch-2.11.0.lock"]);
    assert!(!machine.path("a/.libtorch").is_symlink());
}

#[test]
fn refuses_a_wheel_with_another_hash() {
    let Some(machine) = Machine::new("") else { return };
    let file = machine.path("wheels/nvidia_cuda_cupti-13.0.85-py3-none-any.whl");
    let mut wheel = fs::read(&file).expect("a wheel");
    // A comment of one byte: the wheel still unpacks, with every checksum that it lists.
    let length_of_comment = wheel.len() - 2;
    wheel[length_of_comment] = 1;
    wheel.push(b' ');
    fs::write(&file, wheel).expect("written");
    let (succeeded, said) = machine.setup("a", &[]);
    let sentence = "error: pip was offered a wheel with another SHA-256 than deploy/wheels/libtorch.txt says ";
    assert!(!succeeded && said.lines().last().is_some_and(|line| line.starts_with(sentence)), "{said}");
    assert_eq!(names(&machine.path("cache/kith")), ["libtorch-2.11.0.lock"]);
    assert!(!machine.path("a/.libtorch").is_symlink());
}

/// The files of `deploy/wheels` as they stand in the repository.
#[test]
fn every_wheel_of_the_repository_has_a_version_and_a_hash() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/wheels");
    let files: Vec<String> = names(&folder).into_iter().filter(|name| name.ends_with(".txt")).collect();
    assert!(files.len() >= 8, "{files:?}");
    for file in files {
        let text = fs::read_to_string(folder.join(&file)).expect("text");
        let lines = text.replace("\\\n", " ");
        let (comments, wheels): (Vec<&str>, Vec<&str>) = lines.lines().partition(|line| line.starts_with('#'));
        assert!(comments.len() <= 1 && !wheels.is_empty(), "{file}");
        for wheel in wheels {
            let (named, hashes) = wheel.split_once(" --hash=").unwrap_or_else(|| panic!("{file}: no hash in {wheel}"));
            assert!(named.contains("=="), "{file}: no version in {wheel}");
            let hashes: Vec<&str> = hashes.split("--hash=").map(str::trim).collect();
            let is_sha256 = |hash: &&str| {
                hash.strip_prefix("sha256:")
                    .is_some_and(|hex| hex.len() == 64 && hex.bytes().all(|b| b.is_ascii_hexdigit()))
            };
            assert!(hashes.iter().all(is_sha256), "{file}: {wheel}");
            // Libraries are taken out of wheels for one Python: one wheel each.
            assert!(hashes.len() == 1 || !file.starts_with("libtorch"), "{file}: {wheel}");
        }
    }
}

#[test]
fn what_is_missing_is_said_in_one_sentence() {
    let Some(machine) = Machine::new("") else { return };
    let cases = [
        (("LIBTORCH", "/nonexistent"), "error: LIBTORCH=/nonexistent has no include/ and lib/libtorch_cpu.so: "),
        (("LIBTORCH", "libtorch"), "error: LIBTORCH=libtorch is a relative path: "),
        (("CXX", "no-such-compiler"), "error: Kith needs a C++17 compiler (install g++, "),
        (("PATH", "/usr/bin:/bin"), "error: Kith needs cargo 1.95 or newer (install Rust with rustup, "),
        (("KITH_CUDA", "yes"), "error: KITH_CUDA=yes means nothing: "),
    ];
    for (set, sentence) in cases {
        if set.0 == "PATH" && ["/usr/bin/cargo", "/bin/cargo"].iter().any(|path| Path::new(path).exists()) {
            continue;
        }
        let (succeeded, said) = machine.setup("a", &[set]);
        assert!(!succeeded && said.starts_with(sentence) && said.lines().count() == 1, "{set:?}: {said}");
    }
}
