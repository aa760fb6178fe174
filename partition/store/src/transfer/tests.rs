use std::{
    collections::BTreeMap,
    fs,
    os::unix::fs::symlink,
    sync::{Mutex, atomic::AtomicU64},
};

use super::*;
use crate::{
    cluster_writer::{Cut, write_cluster},
    graph::Graph,
    item::Dtype,
    manifest::{Contents, FeatureLayout, FeaturesEntry, Provenance},
    verify::verify,
    writer::StoreWriter,
};

const N_NODES: u64 = 2048;

/// Features of more than one block in every shard.
const DIM: u64 = 512;

/// A partitioned graph of three shards, and folders beside it.
struct Ground {
    temp: tempfile::TempDir,
}

/// A ring of nodes with features; another `seed` is another graph.
fn write_graph(dir: &Path, seed: u16) {
    let store = dir.with_extension("store");
    let mut writer = StoreWriter::create(&store).unwrap();
    writer.write("indptr", &(0..=N_NODES).map(|row| 2 * row).collect::<Vec<_>>()).unwrap();
    let beside = |node: u64| {
        let mut both = [(node + N_NODES - 1) % N_NODES, (node + 1) % N_NODES];
        both.sort_unstable();
        both.map(|id| id as u32)
    };
    writer.write("indices", &(0..N_NODES).flat_map(beside).collect::<Vec<_>>()).unwrap();
    writer.write("features", &(0..N_NODES * DIM).map(|k| k as f32).collect::<Vec<_>>()).unwrap();
    let contents = Contents {
        n_nodes: N_NODES,
        n_edges: 2 * N_NODES,
        is_symmetric: true,
        features: Some(FeaturesEntry { dim: DIM, layout: FeatureLayout::Dense, dtype: Dtype::F32 }),
        ..Contents::default()
    };
    writer.finish(contents, Provenance::default()).unwrap();
    let owner: Vec<u16> = (0..N_NODES as u16).map(|node| (node / 7 + seed) % 3).collect();
    let inclusion = vec![0.5; N_NODES as usize];
    let cut = Cut {
        owner: &owner,
        n_shards: 3,
        inclusion: Some(&inclusion),
        method: "by hand".to_owned(),
        provenance: Provenance::default(),
    };
    write_cluster(&Graph::open(&store).unwrap(), &cut, dir, &|_| ()).unwrap();
}

impl Ground {
    fn new() -> Ground {
        let ground = Ground { temp: tempfile::tempdir().unwrap() };
        write_graph(&ground.path("a"), 0);
        ground
    }

    fn path(&self, name: &str) -> PathBuf {
        self.temp.path().join(name)
    }

    fn transfer(&self, from: &str, to: &str, shards: &[u32], kind: TransferKind) -> Result<Vec<Transferred>> {
        let shards = shards.iter().copied().collect();
        Transfer::new(&self.path(from), &self.path(to), &shards, kind)?.run(&Seen::default())
    }

    fn copy(&self, from: &str, to: &str, shards: &[u32]) -> Result<Vec<Outcome>> {
        let done = self.transfer(from, to, shards, TransferKind::Copy)?;
        Ok(done.into_iter().map(|shard| shard.outcome).collect())
    }

    fn moved(&self, from: &str, to: &str, shards: &[u32]) -> Result<Vec<Outcome>> {
        let done = self.transfer(from, to, shards, TransferKind::Move)?;
        Ok(done.into_iter().map(|shard| shard.outcome).collect())
    }

    /// Shards that a folder holds, each of them verified; the folder has nothing unexpected.
    #[track_caller]
    fn held(&self, name: &str) -> Vec<u32> {
        let dir = self.path(name);
        let cluster = Cluster::open_with(&dir, Verify::Open).unwrap();
        let held: Vec<u32> = cluster.shards_here().into_iter().collect();
        for shard in &held {
            assert!(verify(&cluster.shard_dir(*shard), &|_| ()).unwrap().findings.is_empty(), "{name}: shard {shard}");
            assert_eq!(cluster.open_shard(*shard).unwrap().shard(), *shard);
        }
        let unexpected: Vec<String> = names(&dir).into_iter().filter(|name| name.ends_with(".draft")).collect();
        assert_eq!(unexpected, Vec::<String>::new());
        held
    }
}

fn names(dir: &Path) -> Vec<String> {
    let mut names: Vec<String> =
        fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// All files below a folder.
fn files(dir: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(files(&path));
        } else {
            found.insert(path.clone(), fs::read(&path).unwrap());
        }
    }
    found
}

/// Steps that were reported, and their bytes.
#[derive(Default)]
struct Seen {
    steps: Mutex<Vec<(Step, u32, u64)>>,
    n_bytes: AtomicU64,
}

impl Watch for Seen {
    fn begin(&self, step: Step, shard: u32, n_bytes: u64) {
        self.steps.lock().unwrap().push((step, shard, n_bytes));
    }

    fn advance(&self, n: u64) {
        self.n_bytes.fetch_add(n, std::sync::atomic::Ordering::Relaxed);
    }

    fn end(&self) {}
}

fn damage(path: &Path, at: usize) {
    let mut bytes = fs::read(path).unwrap();
    bytes[at] ^= 4;
    fs::write(path, bytes).unwrap();
}

use Outcome::{AlreadyThere, Copied, Renamed};

#[test]
fn a_copy_has_the_same_bytes_and_more_shards_can_follow() {
    let ground = Ground::new();
    let before = files(&ground.path("a"));
    assert_eq!(ground.copy("a", "new/folders/b", &[0, 2]).unwrap(), [Copied, Copied]);
    assert_eq!(ground.held("new/folders/b"), [0, 2]);
    assert_eq!(ground.copy("a", "new/folders/b", &[0, 1]).unwrap(), [AlreadyThere, Copied]);
    assert_eq!(ground.held("new/folders/b"), [0, 1, 2]);
    let copied = files(&ground.path("new/folders/b"));
    let relative = |files: BTreeMap<PathBuf, Vec<u8>>, dir: &str| -> BTreeMap<PathBuf, Vec<u8>> {
        files.into_iter().map(|(path, bytes)| (path.strip_prefix(ground.path(dir)).unwrap().into(), bytes)).collect()
    };
    assert!(relative(copied, "new/folders/b") == relative(files(&ground.path("a")), "a"));
    assert!(files(&ground.path("a")) == before, "the source is unchanged");
    // Part of a partitioned graph is a source, too.
    fs::remove_dir_all(ground.path("new/folders/b/shard-1")).unwrap();
    assert_eq!(ground.copy("new/folders/b", "c", &[2]).unwrap(), [Copied]);
    assert_eq!(ground.held("c"), [2]);
    assert!(matches!(Cluster::open(&ground.path("c")).unwrap().open_shard(0), Err(StoreError::AbsentShard { .. })));
}

#[test]
fn progress_counts_every_byte() {
    let ground = Ground::new();
    let seen = Seen::default();
    let shards = BTreeSet::from([1]);
    let copy = |seen: &Seen| {
        Transfer::new(&ground.path("a"), &ground.path("b"), &shards, TransferKind::Copy).unwrap().run(seen).unwrap()
    };
    let n_bytes = copy(&seen)[0].n_bytes;
    assert_eq!(*seen.steps.lock().unwrap(), [(Step::Copy, 1, n_bytes), (Step::Verify, 1, n_bytes)]);
    let n_seen = seen.n_bytes.into_inner();
    // The manifest and the checksums are small and not counted twice.
    assert!((2 * n_bytes - 16_384..=2 * n_bytes).contains(&n_seen), "{n_seen} of {n_bytes}");
    let again = Seen::default();
    assert_eq!(copy(&again)[0].outcome, AlreadyThere);
    assert_eq!(*again.steps.lock().unwrap(), [(Step::Verify, 1, n_bytes)]);
}

#[test]
fn a_move_leaves_the_shard_at_the_destination_only() {
    let ground = Ground::new();
    let open = Cluster::open(&ground.path("a")).unwrap().open_shard(1).unwrap();
    assert_eq!(ground.moved("a", "b", &[1]).unwrap(), [Renamed]);
    assert_eq!((ground.held("a"), ground.held("b")), (vec![0, 2], vec![1]));
    // Again: nothing is left to do.
    assert_eq!(ground.moved("a", "b", &[1]).unwrap(), [AlreadyThere]);
    // The destination has a replica: the source's is removed.
    assert_eq!(ground.copy("a", "b", &[0]).unwrap(), [Copied]);
    assert_eq!(ground.moved("a", "b", &[0, 1]).unwrap(), [AlreadyThere, AlreadyThere]);
    assert_eq!((ground.held("a"), ground.held("b")), (vec![2], vec![0, 1]));
    // A process that had the shard open reads it to its end.
    assert_eq!(open.lists().of(0).unwrap().len(), 2);
    for row in 0..open.n_owned() {
        open.features().unwrap().read(row, &mut vec![0.0; DIM as usize]).unwrap();
    }
    assert!(matches!(ground.moved("a", "c", &[1]), Err(StoreError::AbsentShard { shard: 1, .. })));
    assert!(!ground.path("c").exists());
}

/// A file system other than that of temporary folders, if this machine has one.
fn elsewhere() -> Option<tempfile::TempDir> {
    let device = |dir: &Path| fs::metadata(dir).unwrap().dev();
    let other = tempfile::tempdir_in("/dev/shm").ok()?;
    (device(other.path()) != device(&std::env::temp_dir())).then_some(other)
}

#[test]
fn a_move_to_another_file_system_copies_and_removes() {
    let ground = Ground::new();
    let Some(elsewhere) = elsewhere() else { return };
    let (from, to) = (ground.path("a"), elsewhere.path().join("b"));
    let shards = BTreeSet::from([0, 1]);
    let done = Transfer::new(&from, &to, &shards, TransferKind::Move).unwrap().run(&Seen::default()).unwrap();
    assert_eq!(done.iter().map(|shard| shard.outcome).collect::<Vec<_>>(), [Copied, Copied]);
    assert_eq!(ground.held("a"), [2]);
    let cluster = Cluster::open(&to).unwrap();
    assert_eq!(cluster.shards_here(), shards);
    assert!(verify(&cluster.shard_dir(1), &|_| ()).unwrap().findings.is_empty());
}

#[test]
fn a_damaged_source_is_neither_copied_nor_moved() {
    let ground = Ground::new();
    damage(&ground.path("a/shard-1/features.f32"), (1 << 20) + 5);
    for kind in [TransferKind::Copy, TransferKind::Move] {
        let error = ground.transfer("a", "b", &[0, 1], kind).unwrap_err();
        assert!(matches!(&error, StoreError::Checksum { column, block: 1, .. } if column == "features"), "{error}");
        assert_eq!(ground.held("b"), [0], "the shard before it is complete");
    }
    assert!(ground.path("a/shard-1/features.f32").exists());
    // Checksums that contradict the manifest, and files that are too short.
    damage(&ground.path("a/shard-2/checksums.u32"), 1);
    let error = ground.copy("a", "b", &[2]).unwrap_err();
    assert!(matches!(&error, StoreError::Checksum { column, .. } if column == "checksums"), "{error}");
    fs::write(ground.path("a/shard-2/indices.u32"), b"short").unwrap();
    let error = ground.copy("a", "b", &[2]).unwrap_err();
    assert!(matches!(&error, StoreError::Checksum { .. } | StoreError::Length { .. }), "{error}");
    assert_eq!(ground.held("b"), [0]);
}

#[test]
fn a_damaged_copy_is_named_and_kept() {
    let ground = Ground::new();
    ground.copy("a", "b", &[1]).unwrap();
    damage(&ground.path("b/shard-1/features.f32"), 77);
    for kind in [TransferKind::Copy, TransferKind::Move] {
        let error = ground.transfer("a", "b", &[1], kind).unwrap_err().to_string();
        assert!(error.contains("b/shard-1: expected a copy of the source, found another"), "{error}");
        assert!(error.contains("block 0 of column features differs"), "{error}");
    }
    assert_eq!(ground.held("a"), [0, 1, 2], "the good one stays");
    // Half a shard that somebody copied by hand.
    fs::remove_file(ground.path("b/shard-1/manifest.json")).unwrap();
    let error = ground.copy("a", "b", &[1]).unwrap_err().to_string();
    assert!(error.contains("it has no manifest.json"), "{error}");
    assert!(ground.path("b/shard-1/features.f32").exists(), "it is not removed");
}

#[test]
fn folders_of_others_are_refused() {
    let ground = Ground::new();
    write_graph(&ground.path("other"), 1);
    let before = files(&ground.path("other"));
    let error = ground.copy("a", "other", &[0]).unwrap_err();
    assert!(matches!(error, StoreError::OtherGraph { .. }), "{error}");
    assert!(matches!(ground.copy("a", "a.store", &[0]), Err(StoreError::OtherGraph { .. })));
    assert!(files(&ground.path("other")) == before);
    fs::create_dir(ground.path("mine")).unwrap();
    fs::write(ground.path("mine/thesis.tex"), "mine").unwrap();
    assert!(matches!(ground.copy("a", "mine", &[0]), Err(StoreError::NotEmpty { .. })));
    assert_eq!(names(&ground.path("mine")), ["thesis.tex"]);
    // Also one that looks like ours.
    fs::create_dir_all(ground.path("draft/shards.draft")).unwrap();
    fs::write(ground.path("draft/shards.draft/thesis.tex"), "mine").unwrap();
    assert!(matches!(ground.copy("a", "draft", &[0]), Err(StoreError::Foreign { .. })));
    assert_eq!(names(&ground.path("draft/shards.draft")), ["thesis.tex"]);
    // A top-level file that is not the source's.
    fs::create_dir(ground.path("half")).unwrap();
    fs::write(ground.path("half/owner.u8"), "mine").unwrap();
    assert!(matches!(ground.copy("a", "half", &[0]), Err(StoreError::BadCopy { .. })));
    assert_eq!(fs::read(ground.path("half/owner.u8")).unwrap(), b"mine");
    // The source must be a partitioned graph, and its shards must be its own.
    assert!(matches!(ground.copy("a.store", "b", &[0]), Err(StoreError::NotACluster { .. })));
    assert!(matches!(ground.copy("a", "b", &[3]), Err(StoreError::NoShard { shard: 3, n_shards: 3 })));
    fs::remove_dir_all(ground.path("a/shard-0")).unwrap();
    fs::rename(ground.path("other/shard-0"), ground.path("a/shard-0")).unwrap();
    assert!(matches!(ground.copy("a", "b", &[1, 0]), Err(StoreError::ForeignShard { shard: 0, .. })));
    assert!(!ground.path("b").exists(), "nothing was begun");
    let presence = Cluster::open(&ground.path("a")).unwrap().presence(0);
    assert!(matches!(presence, Presence::Unusable { problem } if problem.contains("another partitioned graph")));
}

#[test]
fn one_folder_under_two_names_is_refused() {
    let ground = Ground::new();
    symlink(ground.path("a"), ground.path("link")).unwrap();
    symlink(ground.path("nowhere"), ground.path("dangling")).unwrap();
    for to in ["a", "link", "a/", "a/../a", "a/inner/b", "link/inner/b", "."] {
        for kind in [TransferKind::Copy, TransferKind::Move] {
            let error = ground.transfer("a", to, &[0], kind).unwrap_err();
            assert!(matches!(error, StoreError::Overlap { .. }), "{to}: {error}");
        }
    }
    assert!(matches!(ground.copy("link", "a", &[0]), Err(StoreError::Overlap { .. })));
    assert!(ground.copy("a", "dangling", &[0]).is_err() && ground.copy("a", "no/../b", &[0]).is_err());
    assert_eq!(ground.held("a"), [0, 1, 2]);
    assert!(!ground.path("a/inner").exists() && !ground.path("no").exists());
}

#[test]
fn a_new_file_shows_that_two_folders_are_one() {
    let ground = Ground::new();
    for name in ["one", "other"] {
        fs::create_dir(ground.path(name)).unwrap();
    }
    symlink(ground.path("one"), ground.path("name")).unwrap();
    assert!(shows_in(&ground.path("one"), &ground.path("name")).unwrap());
    assert!(!shows_in(&ground.path("one"), &ground.path("other")).unwrap());
    assert!(!shows_in(&ground.path("one"), &ground.path("none")).unwrap());
    assert_eq!(names(&ground.path("one")), [""; 0], "nothing is left");
}

/// Removing the source's files would lose the destination's.
#[test]
fn links_are_no_copies() {
    let ground = Ground::new();
    ground.copy("a", "b", &[0]).unwrap();
    symlink(ground.path("a/shard-1"), ground.path("b/shard-1")).unwrap();
    let error = ground.moved("a", "b", &[1]).unwrap_err().to_string();
    assert!(error.contains("the folder of the source under another name"), "{error}");
    fs::remove_file(ground.path("b/shard-0/features.f32")).unwrap();
    symlink(ground.path("a/shard-0/features.f32"), ground.path("b/shard-0/features.f32")).unwrap();
    let error = ground.moved("a", "b", &[0]).unwrap_err().to_string();
    assert!(error.contains("features.f32: expected a copy") && error.contains("it is a link"), "{error}");
    // A shard of the source that is a link would be lost by a rename of the link.
    fs::rename(ground.path("a/shard-2"), ground.path("elsewhere")).unwrap();
    symlink("../elsewhere", ground.path("a/shard-2")).unwrap();
    assert!(matches!(ground.moved("a", "c", &[2]), Err(StoreError::NotMovable { .. })));
    assert_eq!(ground.copy("a", "c", &[2]).unwrap(), [Copied], "a copy follows links");
    assert!(!ground.path("c/shard-2").is_symlink());
    assert_eq!(ground.held("a"), [0, 1, 2]);
}

#[test]
fn a_move_removes_no_file_that_is_not_the_shards() {
    let ground = Ground::new();
    fs::write(ground.path("a/shard-1/notes.txt"), "mine").unwrap();
    let error = ground.moved("a", "b", &[0, 1]).unwrap_err();
    assert!(matches!(&error, StoreError::NotMovable { path, .. } if path.ends_with("shard-1/notes.txt")), "{error}");
    assert!(!ground.path("b").exists());
    assert_eq!(ground.copy("a", "b", &[1]).unwrap(), [Copied]);
    assert!(!ground.path("b/shard-1/notes.txt").exists());
    assert!(ground.moved("a", "b", &[1]).is_err());
    assert_eq!(ground.held("a"), [0, 1, 2]);
}

/// States that a kill leaves, made by hand: the draft with its marker, and what was published before it.
#[test]
fn the_same_command_goes_on_after_a_kill() {
    let ground = Ground::new();
    ground.copy("a", "b", &[0]).unwrap();
    let draft = |dir: &str| {
        let draft = ground.path(dir).join(DRAFT);
        fs::create_dir_all(&draft).unwrap();
        fs::write(draft.join(MARKER), DRAFT).unwrap();
        draft
    };
    // In the middle of a shard.
    fs::create_dir(draft("b").join("shard-1")).unwrap();
    fs::write(draft("b").join("shard-1/indices.u32"), "half").unwrap();
    assert_eq!(ground.copy("a", "b", &[0, 1]).unwrap(), [AlreadyThere, Copied]);
    assert_eq!(ground.held("b"), [0, 1]);
    // In the middle of the top-level files.
    fs::create_dir(ground.path("c")).unwrap();
    fs::write(draft("c").join("inclusion.f32"), "half").unwrap();
    fs::copy(ground.path("a/owner.u8"), ground.path("c/owner.u8")).unwrap();
    assert!(matches!(Cluster::open(&ground.path("c")), Err(StoreError::NotAStore { .. })));
    assert_eq!(ground.copy("a", "c", &[2]).unwrap(), [Copied]);
    assert_eq!(ground.held("c"), [2]);
    // In the middle of removing the source's shard.
    fs::rename(ground.path("a/shard-0"), draft("a").join("shard-0")).unwrap();
    fs::remove_file(draft("a").join("shard-0/indices.u32")).unwrap();
    assert_eq!(ground.moved("a", "b", &[0]).unwrap(), [AlreadyThere]);
    assert_eq!((ground.held("a"), ground.held("b")), (vec![1, 2], vec![0, 1]));
    // Between the rename and the end, and before anything.
    draft("a");
    draft("b");
    assert_eq!(ground.moved("a", "b", &[1, 2]).unwrap(), [AlreadyThere, Renamed]);
    assert_eq!((ground.held("a"), ground.held("b")), (vec![], vec![0, 1, 2]));
}

#[test]
fn one_process_at_a_time_writes_to_a_folder() {
    let ground = Ground::new();
    ground.copy("a", "b", &[0]).unwrap();
    let held = WorkFolder::claim(&ground.path("b").join(DRAFT)).unwrap();
    assert!(matches!(ground.copy("a", "b", &[1]), Err(StoreError::Busy { .. })));
    assert!(matches!(ground.moved("b", "c", &[0]), Err(StoreError::Busy { .. })));
    assert_eq!(ground.copy("b", "c", &[0]).unwrap(), [Copied], "reading needs no lock");
    drop(held);
    assert_eq!(ground.copy("a", "b", &[1]).unwrap(), [Copied]);
}

/// Another first copy to the same folder may have ended just before this one got the lock.
#[test]
fn the_top_level_files_are_looked_for_under_the_lock() {
    let ground = Ground::new();
    ground.copy("a", "b", &[0]).unwrap();
    let (source, late) = (Cluster::open(&ground.path("a")).unwrap(), ground.path("c"));
    let another = |to: &Path| {
        for name in names(&ground.path("b")).iter().filter(|name| !name.starts_with("shard")) {
            fs::copy(ground.path("b").join(name), to.join(name)).unwrap();
        }
        Ok(())
    };
    drop(Destination::open(&late, &source, another).unwrap());
    assert_eq!(ground.copy("a", "c", &[1]).unwrap(), [Copied]);
    assert_eq!(ground.held("c"), [1]);
}

#[test]
fn an_empty_folder_is_a_destination() {
    let ground = Ground::new();
    fs::create_dir_all(ground.path("disk/lost+found")).unwrap();
    assert_eq!(ground.copy("a", "disk", &[1]).unwrap(), [Copied]);
    assert_eq!(ground.held("disk"), [1]);
    assert!(ground.path("disk/lost+found").exists());
}

#[test]
fn space_is_compared_before_anything_is_copied() {
    let ground = Ground::new();
    check_space(&ground.path("a"), 1).unwrap();
    let error = check_space(&ground.path("a"), u64::MAX / 2).unwrap_err().to_string();
    assert!(error.contains("MiB needed") && error.contains("MiB free"), "{error}");
}
