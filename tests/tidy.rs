//! Rules the tree must obey, checked by a machine: arrows, homes of `unsafe`, words, sizes.

mod imports;

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use crate::kith::{finish, root};

/// (package, packages it must not pull in, however far away)
const ARROWS: &[(&str, &[&str])] = &[
    ("kith-store", &["kith-draw", "kith-partition", "kith-trainer", "reqwest", "tch", "tokio", "tonic"]),
    ("kith-bucket", &["kith-partition", "kith-store", "kith-trainer", "tch", "tonic"]),
    ("kith-partition", &["kith-trainer", "tch", "tokio", "tonic"]),
    ("kith-fetch", &["kith-bucket", "kith-trainer", "tch", "tonic"]),
    ("kith-proto", &["kith-draw", "kith-sampler", "kith-store", "tch"]),
    ("kith-log", &["kith-draw", "kith-proto", "kith-store", "tch"]),
    ("kith-block", &["kith-store", "kith-trainer", "tch", "tokio", "tonic"]),
    ("kith-sampler", &["kith-block", "kith-client", "kith-partition", "kith-trainer", "tch"]),
    ("kith-client", &["kith-kernels", "kith-partition", "kith-trainer", "tch"]),
    ("kith-python", &["kith-kernels", "kith-run", "kith-trainer", "tch"]),
    ("kith-kernels", &["kith-store", "kith-partition", "kith-trainer", "tokio", "tonic"]),
    ("kith-run", &["kith-client", "kith-kernels", "kith-partition", "kith-trainer", "tch"]),
    ("kith-report", &["kith-client", "kith-kernels", "kith-lab", "kith-trainer", "tch"]),
    ("kith", &["kith-kernels", "kith-lab", "kith-trainer", "tch"]),
    ("kith-trainer", &["kith-lab", "kith-partition", "kith-report", "kith"]),
];

const UNSAFE_HOMES: &[&str] = &[
    "partition/store/src/exit.rs",
    "partition/store/src/mapped.rs",
    "proto/draw/src/vectorized.rs",
    "sampler/client/src/cache/slots.rs",
    "sampler/python/src/memory.rs",
    "trainer/cuda-emulator/src/lib.rs",
    "trainer/kernels/src/bridge.rs",
    "trainer/kernels/src/cuda/driver.rs",
    "trainer/kernels/src/cuda/driver/machine.rs",
    "trainer/kernels/src/cuda/machine.rs",
    "trainer/kernels/src/cuda/nvrtc.rs",
    "trainer/kernels/src/cuda/pinned.rs",
    "trainer/kernels/src/simd.rs",
    "trainer/src/distributed/collective/nccl.rs",
    "trainer/src/distributed/collective/nccl/library.rs",
    "trainer/src/distributed/collective/nccl/posts.rs",
    "trainer/src/engine/cuda_library.rs",
];

/// Words we do not use, and the one we use instead. Names fixed by others stand in backticks or quotes: see `is_ours`.
const STRAYS: &[(&str, &str)] = &[
    ("vertex", "node"),
    ("vertices", "nodes"),
    ("rowptr", "indptr"),
    ("xadj", "indptr"),
    ("adjncy", "indices"),
    ("num_nodes", "n_nodes"),
    ("num_edges", "n_edges"),
    ("num_neighbors", "fanout"),
    ("num_classes", "n_classes"),
    ("local_rank", "rank"),
    ("ckpt", "checkpoint"),
    ("neighbour", "neighbor"),
    ("random_state", "seed"),
    ("labelled", "labeled"),
    ("colour", "color"),
    ("behaviour", "behavior"),
    ("normalise", "normalize"),
    ("initialise", "initialize"),
    ("serialise", "serialize"),
    ("symmetrise", "symmetrize"),
    ("recognise", "recognize"),
];

/// Phrases of 0.1.0 that readers had to learn, and the field's words. They are found in documents, help texts, messages and comments.
const PHRASES: &[(&str, &str)] = &[
    ("run key", "seed"),
    ("feature row", "features"),
    (" in batches ", "in mini-batches"),
    ("hears itself", "a self-loop"),
    ("the way back", "backward"),
    ("unless said", "(default: …)"),
    ("so many", "a number with a name"),
    ("whoever", "the process or person by name"),
];

const MAX_LINES: usize = 400;

#[test]
fn dependencies_point_one_way() {
    for (package, banned) in ARROWS {
        let names = tree(package);
        for name in &names {
            assert!(!banned.contains(&name.as_str()), "{package} must not depend on {name}");
        }
    }
    assert_eq!(tree("kith-draw"), ["kith-draw"], "draws depend on nothing");
    let group = tree("kith-group");
    let of_kith: Vec<&String> = group.iter().filter(|name| name.starts_with("kith")).collect();
    assert_eq!(of_kith, ["kith-group"], "a process group's state machines know no other package");
}

/// Each promise of the page about reliability names tests that exist.
#[test]
fn promises_name_their_tests() {
    let page = std::fs::read_to_string(root().join("docs/RELIABILITY.md")).unwrap();
    let sources = files(&["rs", "py"]);
    let rows = page.lines().filter(|line| line.starts_with("| ") && line.contains('`'));
    let mut n_tests = 0;
    for row in rows {
        let cell = row.trim_end_matches('|').rsplit('|').next().unwrap_or_default();
        for name in cell.split('`').skip(1).step_by(2) {
            let (rust, python) = (format!("fn {name}()"), format!("def {name}("));
            let is_there = sources.iter().any(|(_, text)| text.contains(&rust) || text.contains(&python));
            assert!(is_there, "docs/RELIABILITY.md names the test {name}, and there is none");
            n_tests += 1;
        }
    }
    assert!(n_tests > 30, "{n_tests} tests");
}

#[test]
fn state_machines_touch_nothing() {
    let outside =
        ["std::net", "std::fs", "std::io", "std::thread", "std::process", "std::env", "Instant", "SystemTime"];
    let machines: Vec<_> =
        files(&["rs"]).into_iter().filter(|(path, _)| path.starts_with("trainer/group/src/")).collect();
    assert!(machines.len() > 15, "{} files", machines.len());
    for (path, text) in machines {
        for word in outside {
            assert!(!text.contains(word), "{path} has {word}: events and the time come from the caller");
        }
    }
}

/// All packages that a package pulls in for normal builds, itself included.
fn tree(package: &str) -> Vec<String> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let args = ["tree", "--locked", "--offline", "-p", package, "-e", "normal", "--prefix", "none", "--format", "{p}"];
    let finished = finish(Command::new(cargo).args(args).current_dir(root()));
    assert_eq!(finished.code, Some(0), "{}", finished.stderr);
    let mut names: Vec<String> =
        finished.stdout.lines().filter_map(|line| line.split(' ').next()).map(String::from).collect();
    names.sort();
    names.dedup();
    names
}

/// No file imports from a file that imports from it, directly or through others.
#[test]
fn files_import_one_way() {
    let files = files(&["rs"]);
    for (manifest, _) in self::files(&["toml"]).iter().filter(|(path, _)| path.ends_with("Cargo.toml")) {
        let folder = manifest.replace("Cargo.toml", "src/");
        let circle = imports::circle(&imports::arrows(&folder, &files));
        assert_eq!(circle, None, "these files import from each other");
    }
}

#[test]
fn a_circle_of_imports_is_found() {
    let files = |b: &str| {
        let file = |name: &str, text: &str| (format!("p/src/{name}.rs"), text.to_owned());
        vec![
            file("lib", "mod a;\nmod b;\nmod c;\npub use crate::a::A;\n"),
            file("a", "use crate::{\n    b::{B, C as Other},\n    c,\n};\npub struct A;\n"),
            file("b", b),
            file(
                "c",
                "// use crate::a::A;\nconst T: &str = \"\\\nuse crate::a::A; // \\\" \";\n#[cfg(test)]\nmod tests {\n    use crate::a::A;\n}\n",
            ),
        ]
    };
    let open = imports::arrows("p/src/", &files("pub struct B;\n"));
    assert_eq!(open["p/src/a.rs"].iter().collect::<Vec<_>>(), ["p/src/b.rs", "p/src/c.rs"]);
    assert_eq!(imports::circle(&open), None);
    for closing in
        ["use crate::A;", "use super::a::A;", "fn f(a: crate::a::A) {}", "pub(crate) fn f() -> super::A { todo() }"]
    {
        let circle = imports::circle(&imports::arrows("p/src/", &files(closing)));
        assert_eq!(circle.unwrap_or_default().len(), 2, "{closing}");
    }
}

#[test]
fn unsafe_has_few_homes() {
    let mut homes = Vec::new();
    for (path, text) in files(&["rs"]) {
        if text.contains("allow(unsafe_code)") && path != "tests/tidy.rs" {
            homes.push(path);
        }
    }
    homes.sort();
    assert_eq!(homes, UNSAFE_HOMES);
}

#[test]
fn one_word_per_concept() {
    let mut found = Vec::new();
    for (path, text) in files(&["rs", "md", "sh", "toml", "proto", "py"]) {
        if path == "tests/tidy.rs" {
            continue;
        }
        for (number, line) in text.lines().enumerate() {
            let line = line.to_lowercase();
            for (stray, ours) in STRAYS.iter().filter(|(stray, _)| !is_pygs(&path, stray)) {
                if line.match_indices(stray).any(|(place, _)| is_ours(&line, place)) {
                    found.push(format!("{path}:{}: {stray}: we say {ours}", number + 1));
                }
            }
        }
    }
    assert_eq!(found, Vec::<String>::new());
}

/// True for names of PyG where the Python package, which has PyG's interface, is written or shown.
fn is_pygs(path: &str, stray: &str) -> bool {
    let is_python = path.starts_with("sampler/python/") || ["README.md", "docs/use/python.md"].contains(&path);
    is_python && stray.starts_with("num_")
}

#[test]
fn the_words_are_the_fields_words() {
    let mut found = Vec::new();
    for (path, text) in files(&["rs", "md", "sh", "toml", "proto", "py", "cu", "cpp", "h"]) {
        // A list of English stop words has one of them.
        if !["tests/tidy.rs", "CHANGELOG.md", "partition/src/raw/tfidf.rs"].contains(&&*path) {
            found.extend(stray_phrases(&text).map(|(line, problem)| format!("{path}:{line}: {problem}")));
        }
    }
    assert_eq!(found, Vec::<String>::new());
}

/// Lines with a phrase that is not the field's.
pub(crate) fn stray_phrases(text: &str) -> impl Iterator<Item = (usize, String)> {
    text.lines().enumerate().flat_map(|(number, line)| {
        let line = line.to_lowercase();
        let found = PHRASES.iter().filter(move |(stray, _)| {
            line.match_indices(stray).any(|(place, _)| line[..place].matches('`').count() % 2 == 0)
        });
        found.map(move |(stray, ours)| (number + 1, format!("{stray}: the field says {ours}"))).collect::<Vec<_>>()
    })
}

#[test]
fn a_stray_phrase_is_found_anywhere() {
    for planted in [
        "Each Run Key gives a run.",
        "    /// Bytes to hold; 64 unless said.",
        "#[error(\"the store has no feature rows\")]",
        "// Whoever asks waits.",
        "    --memory SIZE   for a run in batches that evaluates",
    ] {
        assert_eq!(
            stray_phrases(&format!("fine\n{planted}\n")).map(|(line, _)| line).collect::<Vec<_>>(),
            [2],
            "{planted}"
        );
    }
    assert_eq!(stray_phrases("`run key` is an old name; mini-batches are fine\n").count(), 0);
}

/// Doc comments say what a thing is or does, instead of asking.
#[test]
fn headers_are_statements() {
    let questions = ["What ", "Who ", "Where ", "How ", "Which "];
    let mut found = Vec::new();
    for (path, text) in files(&["rs"]) {
        let header = text.lines().next().and_then(|line| line.strip_prefix("//! ")).unwrap_or_default();
        if questions.iter().any(|question| header.starts_with(question)) {
            found.push(format!("{path}: {header}"));
        }
    }
    assert_eq!(found, Vec::<String>::new());
}

/// Names that others fixed (members of a file, environment variables) stand in quotes or backticks.
fn is_ours(line: &str, place: usize) -> bool {
    let before = &line[..place];
    let is_quoted = |mark: char| before.matches(mark).count() % 2 == 1;
    !(is_quoted('"') || is_quoted('`'))
}

#[test]
fn files_are_read_in_one_sitting() {
    let mut long = Vec::new();
    for (path, text) in files(&["rs"]) {
        let is_test = path.contains("/tests/") || path.ends_with("/tests.rs") || path.starts_with("tests/");
        let n_lines = lines_before_tests(&text);
        if n_lines > MAX_LINES && !is_test {
            long.push(format!("{path}: {n_lines} lines before its tests; split it by noun"));
        }
    }
    assert_eq!(long, Vec::<String>::new());
}

/// Tests end a file; what stands before their module counts, whatever attributes that has.
fn lines_before_tests(text: &str) -> usize {
    let lines: Vec<&str> = text.lines().collect();
    let tests = lines.iter().rposition(|line| line.ends_with("mod tests {")).unwrap_or(lines.len());
    lines[..tests].iter().rposition(|line| !line.starts_with("#[")).map_or(0, |last| last + 1)
}

#[test]
fn every_package_takes_the_lints_of_the_workspace() {
    for (path, text) in files(&["toml"]) {
        if path.ends_with("/Cargo.toml") && !path.contains("libfuzzer/") {
            assert!(text.contains("[lints]\nworkspace = true"), "{path} has no [lints] workspace = true");
        }
    }
}

/// Visiting every package for doc tests takes longer than running them: `make test` names the package that has some.
#[test]
fn doc_tests_are_where_they_are_run() {
    let makefile = fs::read_to_string(root().join("Makefile")).expect("there is a Makefile");
    assert!(makefile.contains("--doc --locked --package kith-draw)"));
    for (path, text) in files(&["rs"]) {
        let mut is_open = false;
        for line in text.lines() {
            let doc = line.trim_start().strip_prefix("//!").or_else(|| line.trim_start().strip_prefix("///"));
            let Some(language) = doc.and_then(|doc| doc.trim().strip_prefix("```")) else { continue };
            let is_test = !is_open && (language.is_empty() || language.starts_with("rust"));
            is_open = !is_open;
            assert!(
                !is_test || path.starts_with("proto/draw/"),
                "{path}: `make test` runs doc tests of kith-draw alone"
            );
        }
    }
}

/// Text files of the repository with these endings, by their path from the root.
pub(crate) fn files(endings: &[&str]) -> Vec<(String, String)> {
    let mut found = Vec::new();
    collect(root(), endings, &mut found);
    assert!(found.len() > 2, "the repository has files");
    found.sort();
    found
}

fn collect(dir: &Path, endings: &[&str], found: &mut Vec<(String, String)>) {
    for entry in fs::read_dir(dir).expect("a folder can be read") {
        let path: PathBuf = entry.expect("a folder can be read").path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if name.starts_with('.') || name == "target" {
            continue;
        }
        if path.is_dir() {
            collect(&path, endings, found);
        } else if endings.contains(&path.extension().unwrap_or_default().to_string_lossy().as_ref())
            && let Ok(text) = fs::read_to_string(&path)
        {
            let from_root = path.strip_prefix(root()).expect("found below the root").to_string_lossy().into_owned();
            found.push((from_root, text));
        }
    }
}

/// Where a running job's messages are; those about raw files and run files explain themselves by file, line and key.
const MESSAGES: [&str; 8] = [
    "partition/bucket/src/error.rs",
    "partition/store/src/error.rs",
    "sampler/client/src/error.rs",
    "sampler/client/src/remote/error.rs",
    "sampler/src/seeds.rs",
    "sampler/src/server/error.rs",
    "trainer/src/error.rs",
    "trainer/src/distributed/world/error.rs",
];

#[test]
fn operations_explain_every_message() {
    let guide = std::fs::read_to_string(root().join("docs/trust/failures.md")).unwrap();
    let mut missing = Vec::new();
    let mut n_found = 0;
    for path in MESSAGES {
        let text = std::fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"));
        for message in text.split("#[error(").skip(1).filter_map(|rest| quoted(rest.trim_start())) {
            let fixed = longest_fixed_part(&message);
            if fixed.len() >= 8 {
                n_found += 1;
                if !guide.contains(&fixed) {
                    missing.push(format!("{path}: {message}"));
                }
            }
        }
    }
    assert!(n_found > 60, "only {n_found} messages were found");
    assert_eq!(missing, Vec::<String>::new(), "docs/trust/failures.md should say what to do");
}

/// Value of the string literal that a piece of code begins with, if it begins with one.
pub(crate) fn quoted(code: &str) -> Option<String> {
    let mut text = String::new();
    let mut characters = code.strip_prefix('"')?.chars().peekable();
    loop {
        match characters.next()? {
            '"' => return Some(text),
            // A line that ends with a backslash continues after the spaces of the next line.
            '\\' if characters.peek() == Some(&'\n') => while characters.next_if(|c| c.is_whitespace()).is_some() {},
            '\\' => text.push(characters.next()?),
            character => text.push(character),
        }
    }
}

/// Longest part of a message without placeholders, without backticks: the guide has it in backticks already.
pub(crate) fn longest_fixed_part(message: &str) -> String {
    let message = message.replace('`', "");
    let parts = message.split('{').flat_map(|part| part.split_once('}').map_or([part, ""], |(_, rest)| [rest, ""]));
    let longest = parts.max_by_key(|part| part.len()).unwrap_or_default();
    longest.trim_matches(|c: char| !c.is_alphanumeric()).to_owned()
}
