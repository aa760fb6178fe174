//! File operations of a program, recorded by `recorder.c`, which is preloaded into it.

use std::{
    collections::BTreeMap,
    env, fs,
    hash::{DefaultHasher, Hash, Hasher},
    io,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::Command,
    sync::Arc,
};

use crate::kith::{Finished, finish, root};

/// Bytes of a file with their hash.
#[derive(Clone, Debug)]
pub(crate) struct Bytes {
    hash: u64,
    bytes: Arc<Vec<u8>>,
}

impl Bytes {
    pub(crate) fn new(bytes: Vec<u8>) -> Bytes {
        let mut hasher = DefaultHasher::new();
        bytes.hash(&mut hasher);
        Bytes { hash: hasher.finish(), bytes: Arc::new(bytes) }
    }
}

impl std::ops::Deref for Bytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}

impl PartialEq for Bytes {
    fn eq(&self, other: &Bytes) -> bool {
        self.hash == other.hash && self.bytes == other.bytes
    }
}

impl Hash for Bytes {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.hash.hash(state);
    }
}

/// A name in a folder.
#[derive(Clone, Debug, Hash, PartialEq)]
pub(crate) enum Entry {
    Folder,
    File(Bytes),
    Link(String),
}

/// Everything below a folder, by path.
#[derive(Clone, Debug, Default, Hash, PartialEq)]
pub(crate) struct Tree(pub(crate) BTreeMap<String, Entry>);

impl Tree {
    /// Reads a folder.
    pub(crate) fn read(dir: &Path) -> Tree {
        let mut tree = Tree::default();
        let mut folders = vec![String::new()];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(dir.join(&folder)).unwrap() {
                let entry = entry.unwrap();
                let own = entry.file_name().into_string().unwrap();
                let name = if folder.is_empty() { own } else { format!("{folder}/{own}") };
                let kind = entry.file_type().unwrap();
                let found = if kind.is_dir() {
                    folders.push(name.clone());
                    Entry::Folder
                } else if kind.is_symlink() {
                    Entry::Link(fs::read_link(entry.path()).unwrap().to_str().unwrap().to_owned())
                } else {
                    Entry::File(Bytes::new(fs::read(entry.path()).unwrap()))
                };
                tree.0.insert(name, found);
            }
        }
        tree
    }

    /// Writes all of it into an empty folder.
    pub(crate) fn write(&self, dir: &Path) {
        for (name, entry) in &self.0 {
            let path = dir.join(name);
            match entry {
                Entry::Folder => fs::create_dir(path).unwrap(),
                Entry::File(bytes) => fs::write(path, &**bytes).unwrap(),
                Entry::Link(target) => symlink(target, path).unwrap(),
            }
        }
    }

    /// The entries outside a folder.
    pub(crate) fn without(mut self, folder: &str) -> Tree {
        self.0.retain(|name, _| !is_in(name, folder));
        self
    }

    pub(crate) fn hash_of(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        self.hash(&mut hasher);
        hasher.finish()
    }
}

/// True for a folder and everything in it.
pub(crate) fn is_in(path: &str, folder: &str) -> bool {
    path.strip_prefix(folder).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// A recorded operation. Paths are relative to the folder that is watched; its own path is empty.
#[derive(Clone, Debug)]
pub(crate) enum Operation {
    Create(String),
    Truncate(String, u64),
    Write(String, u64, Vec<u8>),
    Rename(String, String),
    Link(String, String),
    Symlink(String, String),
    Unlink(String),
    RemoveFolder(String),
    MakeFolder(String),
    Sync(String),
    /// Output: 1 for stdout, 2 for stderr.
    Said(u64),
    /// An operation on this file was made to fail.
    Failed(String),
}

impl Operation {
    /// Paths that it changes or syncs.
    pub(crate) fn paths(&self) -> Vec<&str> {
        match self {
            Operation::Rename(from, to) | Operation::Link(from, to) => vec![from, to],
            Operation::Said(..) => Vec::new(),
            Operation::Create(path)
            | Operation::Truncate(path, _)
            | Operation::Write(path, ..)
            | Operation::Symlink(path, _)
            | Operation::Unlink(path)
            | Operation::RemoveFolder(path)
            | Operation::MakeFolder(path)
            | Operation::Sync(path)
            | Operation::Failed(path) => vec![path],
        }
    }

    /// The operation without the bytes.
    pub(crate) fn shown(&self) -> String {
        match self {
            Operation::Write(path, offset, bytes) => format!("Write({path:?}, {} bytes at {offset})", bytes.len()),
            other => format!("{other:?}"),
        }
    }
}

/// A fault: operations number `first` to `last`, counted from 0, end with an error.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fault {
    pub(crate) kind: FaultKind,
    pub(crate) first: u64,
    pub(crate) last: u64,
    pub(crate) errno: i32,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum FaultKind {
    /// Operations that change files and folders, and syncs.
    Changes,
    /// Opening and reading files.
    Reads,
}

/// A program's run: its operations, and the folder before and after.
pub(crate) struct Recording {
    pub(crate) before: Tree,
    pub(crate) operations: Vec<Operation>,
    pub(crate) finished: Finished,
    pub(crate) after: Tree,
    /// Numbers of changes and of reads.
    pub(crate) counts: [u64; 2],
}

/// The compiled library.
pub(crate) struct Recorder {
    temp: tempfile::TempDir,
}

impl Recorder {
    pub(crate) fn new() -> Recorder {
        let temp = tempfile::tempdir().unwrap();
        let compiler = env::var_os("CC").unwrap_or_else(|| "cc".into());
        let mut compile = Command::new(compiler);
        compile.args(["-shared", "-fPIC", "-O1", "-Wall", "-Wextra", "-Werror", "-pthread", "-o"]);
        compile.arg(temp.path().join("recorder.so")).arg(root().join("tests/crash/recorder.c")).arg("-ldl");
        let compiled = finish(&mut compile);
        assert_eq!(compiled.code, Some(0), "{}", compiled.stderr);
        Recorder { temp }
    }

    /// Runs a command to its end and records its operations below `watched`.
    pub(crate) fn record(&self, watched: &Path, command: &mut Command, fault: Option<Fault>) -> Recording {
        let watched = watched.canonicalize().unwrap();
        let before = Tree::read(&watched);
        let own = |name: &str| self.temp.path().join(name);
        fs::write(own("log"), b"").unwrap();
        fs::write(own("count"), [0; 16]).unwrap();
        command.env("LD_PRELOAD", own("recorder.so")).env("KITH_RECORDER_ROOT", &watched);
        command.env("KITH_RECORDER_LOG", own("log")).env("KITH_RECORDER_COUNT", own("count"));
        if let Some(Fault { kind, first, last, errno }) = fault {
            let kind = if kind == FaultKind::Reads { "reads" } else { "changes" };
            command.env("KITH_RECORDER_FAIL", format!("{kind} {first} {last} {errno}"));
        }
        let finished = finish(command);
        let operations = read_log(&own("log"));
        let counted = fs::read(own("count")).unwrap();
        let count = |place: usize| u64::from_le_bytes(counted[place..place + 8].try_into().unwrap());
        Recording { before, operations, finished, after: Tree::read(&watched), counts: [count(0), count(8)] }
    }
}

fn read_log(path: &PathBuf) -> Vec<Operation> {
    let log = fs::read(path).unwrap();
    let mut rest = &log[..];
    let mut operations = Vec::new();
    while !rest.is_empty() {
        operations.push(read_record(&mut rest).unwrap_or_else(|error| panic!("a record of the log: {error}")));
    }
    operations
}

fn read_record(rest: &mut &[u8]) -> io::Result<Operation> {
    let mut take = |n: usize| -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; n];
        io::Read::read_exact(rest, &mut bytes)?;
        Ok(bytes)
    };
    let header = take(24)?;
    let number = |place: usize| u32::from_le_bytes(header[place..place + 4].try_into().expect("four bytes")) as usize;
    let offset = u64::from_le_bytes(header[16..24].try_into().expect("eight bytes"));
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    let (first, second) = (text(take(number(4))?), text(take(number(8))?));
    let data = take(number(12))?;
    Ok(match number(0) {
        1 => Operation::Create(first),
        2 => Operation::Truncate(first, offset),
        3 => Operation::Write(first, offset, data),
        4 => Operation::Rename(first, second),
        5 => Operation::Link(first, second),
        6 => Operation::Symlink(first, text(data)),
        7 => Operation::Unlink(first),
        8 => Operation::RemoveFolder(first),
        9 => Operation::MakeFolder(first),
        10 => Operation::Sync(first),
        11 => Operation::Said(offset),
        12 => Operation::Failed(first),
        _ => return Err(io::Error::other(format!("the recorder has no record for: {}", text(data)))),
    })
}
