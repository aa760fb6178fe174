//! A disk that replays recorded operations, and the states that a loss of power may leave of it.
//!
//! Synced bytes of a file and synced names in a folder survive. Of everything later, any part may survive, with
//! these limits, which file systems keep: changes of names in one folder survive in their order, and a rename survives in
//! both folders or in none.

use std::{
    collections::{BTreeMap, BTreeSet, HashSet},
    mem,
};

use super::recording::{Bytes, Entry, Operation, Tree, is_in};

#[derive(Clone, Debug, PartialEq)]
enum Node {
    Folder(usize),
    File(usize),
    Link(String),
}

#[derive(Debug, Default)]
struct Folder {
    names: BTreeMap<String, Node>,
    synced: BTreeMap<String, Node>,
}

#[derive(Debug)]
struct File {
    bytes: Bytes,
    synced: Bytes,
    is_dirty: bool,
}

/// One operation's changes of names: the folder, the name, and what it names from now on.
type NameChanges = Vec<(usize, String, Option<Node>)>;

/// A disk with everything that was done to it and everything that is safe on it.
#[derive(Debug)]
pub(crate) struct Disk {
    folders: Vec<Folder>,
    files: Vec<File>,
    /// Changes of names that are not synced, in their order.
    pending: Vec<NameChanges>,
}

/// Fate of names that are not synced, after a loss of power.
#[derive(Clone, Debug)]
enum Names {
    /// All changes survive.
    All,
    /// None does.
    None,
    /// The first changes survive.
    First(usize),
    /// Those of one folder survive.
    OfFolder(usize),
}

/// Fate of bytes of files that are not synced.
#[derive(Clone, Copy, Debug)]
enum Lost {
    /// Nothing.
    Nothing,
    /// The bytes, and the file is as long as it was when it was synced.
    Bytes,
    /// The bytes, but not the length: zeros stand in their place.
    Zeros,
    /// The bytes of one file.
    OfFile(usize),
    /// The bytes of one file, but not its length.
    ZerosOfFile(usize),
}

/// A state that a loss of power may leave.
#[derive(Debug)]
pub(crate) struct State {
    /// Number of operations before the loss.
    pub(crate) n_operations: usize,
    /// Names the loss, for messages.
    pub(crate) loss: String,
    /// True if no name survives that is not synced.
    pub(crate) is_strict: bool,
    pub(crate) tree: Tree,
    /// Result of the caller's `promised` after these operations.
    pub(crate) promised: u64,
}

const ROOT: usize = 0;

impl Disk {
    /// A disk on which all of this is safe.
    pub(crate) fn new(tree: &Tree) -> Disk {
        let mut disk = Disk { folders: vec![Folder::default()], files: Vec::new(), pending: Vec::new() };
        for (name, entry) in &tree.0 {
            let node = match entry {
                Entry::Folder => disk.new_folder(),
                Entry::File(bytes) => disk.new_file(bytes.clone()),
                Entry::Link(target) => Node::Link(target.clone()),
            };
            let (folder, own) = disk.place(name);
            disk.folders[folder].names.insert(own.clone(), node.clone());
            disk.folders[folder].synced.insert(own, node);
        }
        disk
    }

    fn new_folder(&mut self) -> Node {
        self.folders.push(Folder::default());
        Node::Folder(self.folders.len() - 1)
    }

    fn new_file(&mut self, bytes: Bytes) -> Node {
        self.files.push(File { synced: bytes.clone(), bytes, is_dirty: false });
        Node::File(self.files.len() - 1)
    }

    fn node(&self, path: &str) -> Option<Node> {
        path.split('/').filter(|part| !part.is_empty()).try_fold(Node::Folder(ROOT), |node, part| match node {
            Node::Folder(folder) => self.folders[folder].names.get(part).cloned(),
            _ => None,
        })
    }

    /// The folder and the name of a path.
    fn place(&self, path: &str) -> (usize, String) {
        let (folder, own) = path.rsplit_once('/').unwrap_or(("", path));
        match self.node(folder) {
            Some(Node::Folder(folder)) => (folder, own.to_owned()),
            other => panic!("{path}: its folder is {other:?}"),
        }
    }

    /// The file at a path. Calls that bypass the C library, such as those of the crate rustix, create files without a record.
    fn file(&mut self, path: &str) -> &mut File {
        if self.node(path).is_none() {
            self.apply(&Operation::Create(path.to_owned()));
        }
        match self.node(path) {
            Some(Node::File(file)) => &mut self.files[file],
            other => panic!("{path}: a file is {other:?}"),
        }
    }

    fn rename(&mut self, changes: NameChanges) {
        for (folder, name, node) in &changes {
            set(&mut self.folders[*folder].names, name, node);
        }
        self.pending.push(changes);
    }

    fn name(&mut self, path: &str, node: Option<Node>) {
        let (folder, own) = self.place(path);
        self.rename(vec![(folder, own, node)]);
    }

    /// Does what a recorded operation did.
    pub(crate) fn apply(&mut self, operation: &Operation) {
        match operation {
            Operation::Create(path) => {
                let node = self.new_file(Bytes::new(Vec::new()));
                self.name(path, Some(node));
            }
            Operation::Truncate(path, length) => {
                let file = self.file(path);
                let mut bytes = file.bytes.to_vec();
                bytes.resize(*length as usize, 0);
                (file.bytes, file.is_dirty) = (Bytes::new(bytes), true);
            }
            Operation::Write(path, offset, written) => {
                let file = self.file(path);
                let (mut bytes, start) = (file.bytes.to_vec(), *offset as usize);
                bytes.resize(bytes.len().max(start + written.len()), 0);
                bytes[start..start + written.len()].copy_from_slice(written);
                (file.bytes, file.is_dirty) = (Bytes::new(bytes), true);
            }
            Operation::Rename(from, to) => {
                let node = self.node(from).unwrap_or_else(|| panic!("{from}: renamed, and not there"));
                let ((old_folder, old), (new_folder, new)) = (self.place(from), self.place(to));
                self.rename(vec![(old_folder, old, None), (new_folder, new, Some(node))]);
            }
            Operation::Link(from, to) => {
                let node = self.node(from).unwrap_or_else(|| panic!("{from}: linked, and not there"));
                self.name(to, Some(node));
            }
            Operation::Symlink(path, target) => self.name(path, Some(Node::Link(target.clone()))),
            Operation::Unlink(path) | Operation::RemoveFolder(path) => self.name(path, None),
            Operation::MakeFolder(path) => {
                let node = self.new_folder();
                self.name(path, Some(node));
            }
            Operation::Sync(path) => match self.node(path) {
                Some(Node::Folder(folder)) => self.sync_folder(folder),
                _ => {
                    let file = self.file(path);
                    (file.synced, file.is_dirty) = (file.bytes.clone(), false);
                }
            },
            Operation::Said(..) | Operation::Failed(_) => {}
        }
    }

    /// The pending changes of a folder, and the earlier ones without which they cannot survive.
    fn changes_of(&self, folder: usize) -> BTreeSet<usize> {
        let (mut folders, mut found) = (BTreeSet::from([folder]), BTreeSet::new());
        for (place, changes) in self.pending.iter().enumerate().rev() {
            if changes.iter().any(|(folder, ..)| folders.contains(folder)) {
                folders.extend(changes.iter().map(|(folder, ..)| *folder));
                found.insert(place);
            }
        }
        found
    }

    fn sync_folder(&mut self, folder: usize) {
        let safe = self.changes_of(folder);
        for (place, changes) in mem::take(&mut self.pending).into_iter().enumerate() {
            if !safe.contains(&place) {
                self.pending.push(changes);
                continue;
            }
            for (folder, name, node) in &changes {
                set(&mut self.folders[*folder].synced, name, node);
            }
        }
    }

    /// Everything that is there, as programs see it.
    pub(crate) fn tree(&self) -> Tree {
        self.left(&Names::All, Lost::Nothing)
    }

    /// The disk after a loss of power.
    fn left(&self, names: &Names, lost: Lost) -> Tree {
        let mut folders: Vec<BTreeMap<String, Node>> = match names {
            Names::All => self.folders.iter().map(|folder| folder.names.clone()).collect(),
            _ => self.folders.iter().map(|folder| folder.synced.clone()).collect(),
        };
        let survives: BTreeSet<usize> = match names {
            Names::All | Names::None => BTreeSet::new(),
            Names::First(n) => (0..*n).collect(),
            Names::OfFolder(folder) => self.changes_of(*folder),
        };
        for (folder, name, node) in survives.into_iter().flat_map(|place| &self.pending[place]) {
            set(&mut folders[*folder], name, node);
        }
        let mut tree = Tree::default();
        let mut waiting = vec![(String::new(), ROOT)];
        while let Some((path, folder)) = waiting.pop() {
            for (name, node) in &folders[folder] {
                let path = if path.is_empty() { name.clone() } else { format!("{path}/{name}") };
                let entry = match node {
                    Node::Folder(folder) => {
                        waiting.push((path.clone(), *folder));
                        Entry::Folder
                    }
                    Node::File(file) => Entry::File(self.bytes(*file, lost)),
                    Node::Link(target) => Entry::Link(target.clone()),
                };
                tree.0.insert(path, entry);
            }
        }
        tree
    }

    fn bytes(&self, number: usize, lost: Lost) -> Bytes {
        let file = &self.files[number];
        let zeros = || {
            let mut bytes = file.synced.to_vec();
            bytes.resize(file.bytes.len(), 0);
            Bytes::new(bytes)
        };
        match lost {
            Lost::Bytes => file.synced.clone(),
            Lost::OfFile(lost) if lost == number => file.synced.clone(),
            Lost::Zeros => zeros(),
            Lost::ZerosOfFile(lost) if lost == number => zeros(),
            _ => file.bytes.clone(),
        }
    }

    /// Everything that a loss of power may do now.
    fn losses(&self) -> Vec<(Names, Lost)> {
        let mut losses = Vec::new();
        let mut names = vec![Names::None, Names::All];
        names.extend((1..self.pending.len()).map(Names::First));
        let changed: BTreeSet<usize> = self.pending.iter().flatten().map(|(folder, ..)| *folder).collect();
        names.extend(changed.into_iter().map(Names::OfFolder));
        for names in names {
            losses.extend([Lost::Nothing, Lost::Bytes, Lost::Zeros].map(|lost| (names.clone(), lost)));
        }
        for (number, _) in self.files.iter().enumerate().filter(|(_, file)| file.is_dirty) {
            losses.extend([Lost::OfFile(number), Lost::ZerosOfFile(number)].map(|lost| (Names::All, lost)));
        }
        losses
    }
}

fn set(names: &mut BTreeMap<String, Node>, name: &str, node: &Option<Node>) {
    match node {
        Some(node) => names.insert(name.to_owned(), node.clone()),
        None => names.remove(name),
    };
}

/// All different states that a loss of power may leave, after every operation and in the middle of every write.
/// `promised` returns the promises that the program has made by these operations; folders in `ignored` are left out.
pub(crate) fn states(
    before: &Tree,
    operations: &[Operation],
    ignored: &[&str],
    promised: impl Fn(&[Operation]) -> u64,
) -> Vec<State> {
    let (mut disk, mut found, mut seen) = (Disk::new(before), Vec::new(), HashSet::new());
    let mut add = |disk: &Disk, n_operations: usize, promised: u64, torn: bool| {
        for (names, lost) in disk.losses() {
            let tree = ignored.iter().fold(disk.left(&names, lost), |tree, folder| tree.without(folder));
            if seen.insert((tree.hash_of(), promised)) {
                let torn = if torn { ", in the middle of a write" } else { "" };
                let loss = format!("names {names:?}, lost {lost:?}{torn}");
                let is_strict = matches!(names, Names::None);
                found.push(State { n_operations, loss, is_strict, tree, promised });
            }
        }
    };
    add(&disk, 0, promised(&[]), false);
    let is_ignored = |path: &str| ignored.iter().any(|folder| is_in(path, folder));
    for (place, operation) in operations.iter().enumerate() {
        let paths = operation.paths();
        if !paths.is_empty() && paths.into_iter().all(is_ignored) {
            continue;
        }
        if let Operation::Write(path, offset, bytes) = operation
            && bytes.len() > 1
        {
            let whole = disk.file(path).bytes.clone();
            let was_dirty = disk.file(path).is_dirty;
            disk.apply(&Operation::Write(path.clone(), *offset, bytes[..bytes.len() / 2].to_vec()));
            add(&disk, place + 1, promised(&operations[..place]), true);
            let file = disk.file(path);
            (file.bytes, file.is_dirty) = (whole, was_dirty);
        }
        disk.apply(operation);
        add(&disk, place + 1, promised(&operations[..place + 1]), false);
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(text: &str) -> Entry {
        Entry::File(Bytes::new(text.into()))
    }

    fn tree<const N: usize>(entries: [(&str, Entry); N]) -> Tree {
        Tree(entries.map(|(name, entry)| (name.to_owned(), entry)).into())
    }

    fn left(before: &Tree, operations: &[Operation]) -> Vec<Tree> {
        states(before, operations, &[], |operations| operations.len() as u64)
            .into_iter()
            .filter(|state| state.promised == operations.len() as u64)
            .map(|state| state.tree)
            .collect()
    }

    fn replace(is_synced: bool) -> Vec<Operation> {
        let sync = Operation::Sync("a.draft".into());
        let mut operations =
            vec![Operation::Create("a.draft".into()), Operation::Write("a.draft".into(), 0, b"new".to_vec()), sync];
        operations.truncate(2 + usize::from(is_synced));
        operations.push(Operation::Rename("a.draft".into(), "a".into()));
        operations
    }

    #[test]
    fn a_file_that_is_synced_before_its_rename_is_old_or_new() {
        let before = tree([("a", file("old"))]);
        let found = left(&before, &replace(true));
        assert!(found.contains(&tree([("a", file("new"))])) && found.contains(&tree([("a", file("old"))])));
        let names = |tree: &Tree| tree.0.get("a") == Some(&file("old")) || tree.0.get("a") == Some(&file("new"));
        assert!(found.iter().all(names), "{found:?}");
        // After a sync of the folder, nothing old may be left.
        let found = left(&before, &[replace(true), vec![Operation::Sync(String::new())]].concat());
        assert_eq!(found, [tree([("a", file("new"))])]);
    }

    #[test]
    fn a_file_that_is_not_synced_may_be_empty_or_zeros_after_its_rename() {
        let before = tree([("a", file("old"))]);
        for lost in ["", "\0\0\0"] {
            assert!(left(&before, &replace(false)).contains(&tree([("a", file(lost))])), "{lost:?}");
        }
        let found = left(&before, &[replace(false), vec![Operation::Sync(String::new())]].concat());
        assert!(!found.contains(&before) && found.contains(&tree([("a", file(""))])));
    }

    #[test]
    fn a_rename_between_folders_survives_in_both_or_in_none() {
        let before = tree([("x", Entry::Folder), ("y", Entry::Folder), ("x/a", file("bytes"))]);
        let moved = Operation::Rename("x/a".into(), "y/a".into());
        let after = tree([("x", Entry::Folder), ("y", Entry::Folder), ("y/a", file("bytes"))]);
        let found = left(&before, std::slice::from_ref(&moved));
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(found.contains(&before) && found.contains(&after));
        assert_eq!(left(&before, &[moved, Operation::Sync("x".into())]), [after]);
    }

    #[test]
    fn a_folder_that_nobody_synced_may_be_lost_with_all_that_is_synced_in_it() {
        let operations = [
            Operation::MakeFolder("x".into()),
            Operation::Create("x/a".into()),
            Operation::Write("x/a".into(), 0, b"bytes".to_vec()),
            Operation::Sync("x/a".into()),
            Operation::Sync("x".into()),
        ];
        assert!(left(&Tree::default(), &operations).contains(&Tree::default()));
        let safe = [&operations[..], &[Operation::Sync(String::new())]].concat();
        assert_eq!(left(&Tree::default(), &safe), [tree([("x", Entry::Folder), ("x/a", file("bytes"))])]);
    }
}
