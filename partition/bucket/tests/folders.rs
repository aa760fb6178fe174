//! Pushes, pulls and mirrors folders. Places are local folders; `tests/object_storage.rs` uses an S3 server.
#![allow(missing_docs)]

use std::{
    collections::BTreeMap,
    fs,
    io::{BufRead, BufReader, Write},
    net::{TcpListener, TcpStream},
    path::{Path, PathBuf},
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    thread,
};

use kith_bucket::{BucketError, LISTING, Mirror, Place, Pull, Pulled, Push, Pushed, Wanted};
use kith_corruption::{Bits, Outcomes, check_file, scratch};

const PIECE: usize = 8 << 20;

struct Ground {
    temp: tempfile::TempDir,
    place: Place,
}

/// A cluster of two shards with one file of three pieces, not pushed yet.
fn ground() -> Ground {
    let temp = scratch();
    let place = Place::parse(&format!("file://{}", temp.path().join("there").display())).unwrap();
    let ground = Ground { temp, place };
    for (name, length) in
        [("manifest.json", 10), ("owner.u8", 0), ("shard-0/manifest.json", 5), ("shard-1/manifest.json", 7)]
    {
        ground.write(name, length);
    }
    ground.write("shard-0/rows.f32", 2 * PIECE + 3);
    ground.write("shard-1/rows.f32", 100);
    ground
}

impl Ground {
    fn path(&self, name: &str) -> PathBuf {
        self.temp.path().join(name)
    }

    fn write(&self, name: &str, length: usize) {
        let path = self.path("here").join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        let bytes: Vec<u8> = (0..length).map(|place| (place * 31 + name.len() + place / 251) as u8).collect();
        fs::write(path, bytes).unwrap();
    }

    fn push(&self) -> Result<Pushed, BucketError> {
        push(&self.path("here"), &self.place, false)
    }

    fn pull(&self, dir: &str, wanted: &Wanted) -> Result<Pulled, BucketError> {
        Pull::new(&self.place, &self.path(dir), wanted)?.run(&|_| ())
    }
}

fn push(dir: &Path, place: &Place, replace: bool) -> Result<Pushed, BucketError> {
    Push::new(dir, place, replace, &|_| ())?.run(&|_| ())
}

/// All files of a folder but the listing, by name.
fn files(dir: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut found = BTreeMap::new();
    let mut folders = vec![dir.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.strip_prefix(dir).unwrap().to_str().unwrap().to_owned();
            if path.is_dir() {
                folders.push(path);
            } else if name != LISTING {
                found.insert(name, fs::read(&path).unwrap());
            }
        }
    }
    found
}

#[test]
fn what_is_pushed_comes_back_and_only_once() {
    let ground = ground();
    let heard = AtomicU64::new(0);
    let push = Push::new(&ground.path("here"), &ground.place, false, &|_| ()).unwrap();
    let n_bytes = push.n_bytes();
    let pushed = push
        .run(&|n| {
            heard.fetch_add(n, Relaxed);
        })
        .unwrap();
    assert_eq!((pushed.n_files, pushed.sent_bytes, heard.into_inner()), (6, n_bytes, n_bytes));
    assert_eq!(ground.push().unwrap(), Pushed { sent_bytes: 0, ..pushed }, "a second push finds all there");

    let pulled = ground.pull("back", &Wanted::All).unwrap();
    assert_eq!((pulled.n_bytes, pulled.received_bytes), (n_bytes, n_bytes));
    assert_eq!(files(&ground.path("back")), files(&ground.path("here")));
    assert_eq!(ground.pull("back", &Wanted::All).unwrap().received_bytes, 0);
    // A pulled folder can be pushed elsewhere, listing included.
    let on = ground.place.inside("../elsewhere").unwrap_err();
    assert!(matches!(on, BucketError::Url { .. }));
    let elsewhere = Place::parse(&format!("file://{}", ground.path("elsewhere").display())).unwrap();
    assert_eq!(self::push(&ground.path("back"), &elsewhere, false).unwrap().n_files, 6);
}

#[test]
fn shards_come_one_by_one() {
    let ground = ground();
    ground.push().unwrap();
    ground.pull("back", &Wanted::Shards([1].into())).unwrap();
    let names: Vec<_> = files(&ground.path("back")).into_keys().collect();
    assert_eq!(names, ["manifest.json", "owner.u8", "shard-1/manifest.json", "shard-1/rows.f32"]);
    // The pod with number 2 of two shards serves shard 0.
    ground.pull("back", &Wanted::ShardByIndex(2)).unwrap();
    assert_eq!(files(&ground.path("back")), files(&ground.path("here")));
    let none = ground.pull("back", &Wanted::Shards([0, 2].into())).unwrap_err().to_string();
    assert!(none.ends_with("there is no shard 2: it has 2, counted from 0"), "{none}");
}

#[test]
fn a_pull_that_was_broken_off_goes_on() {
    let ground = ground();
    ground.push().unwrap();
    // One object is gone: the pull ends, and what makes the folder a store is not there.
    let gone = ground.path("there/shard-1/rows.f32");
    let kept = fs::read(&gone).unwrap();
    fs::remove_file(&gone).unwrap();
    let error = ground.pull("back", &Wanted::All).unwrap_err();
    assert!(error.to_string().contains("shard-1/rows.f32: the object is gone"), "{error}");
    assert!(!ground.path("back/manifest.json").exists());
    fs::write(&gone, kept).unwrap();
    // Of the large file one piece came and one came half.
    let rows = ground.path("back/shard-0/rows.f32");
    let part = ground.path("back/shard-0/rows.f32.part");
    let mut bytes = fs::read(ground.path("here/shard-0/rows.f32")).unwrap();
    bytes.truncate(PIECE + PIECE / 2);
    let _ = fs::remove_file(&rows);
    fs::write(&part, &bytes).unwrap();
    let before: u64 = files(&ground.path("back"))
        .iter()
        .filter(|(name, _)| !name.ends_with(".part"))
        .map(|(_, file)| file.len() as u64)
        .sum();
    let pulled = ground.pull("back", &Wanted::All).unwrap();
    assert_eq!(pulled.received_bytes, pulled.n_bytes - PIECE as u64 - before, "only what is missing is received");
    assert_eq!(files(&ground.path("back")), files(&ground.path("here")));
}

#[test]
fn a_damaged_object_is_caught_and_named() {
    let ground = ground();
    ground.push().unwrap();
    let object = ground.path("there/shard-0/rows.f32");
    let mut bytes = fs::read(&object).unwrap();
    bytes[PIECE + 17] ^= 1;
    fs::write(&object, bytes).unwrap();
    let error = ground.pull("back", &Wanted::All).unwrap_err().to_string();
    assert!(error.contains("shard-0/rows.f32: bytes 8388608 to 16777215 are not what was pushed, 3 times"), "{error}");
    assert!(!ground.path("back/shard-0/rows.f32").exists() && !ground.path("back/manifest.json").exists());
    // A listing that was changed is no listing.
    let listing = ground.path("there").join(LISTING);
    let text = fs::read_to_string(&listing).unwrap();
    fs::write(&listing, text.replace("shard-1", "shard-2")).unwrap();
    let error = ground.pull("other", &Wanted::All).unwrap_err().to_string();
    assert!(error.contains("its digest is not that of its text"), "{error}");
    assert!(!ground.path("other").exists());
}

/// Every damaged copy of a listing, at the place and in a pulled folder, is named by pulls and pushes; nothing is removed.
#[test]
fn every_damaged_listing_is_named() {
    let ground = ground();
    ground.write("shard-0/rows.f32", 9);
    ground.push().unwrap();
    let listing = ground.path("there").join(LISTING);
    let n_bytes = fs::metadata(&listing).unwrap().len();
    let only_the_last = |outcomes: Outcomes| {
        assert_eq!(outcomes.harmless, [format!("cut after {} of {n_bytes}", n_bytes - 1)]);
    };
    let in_words = |error: BucketError| error.to_string();
    only_the_last(check_file(&listing, Bits::Each, || Pull::names_of(&ground.place).map_err(in_words)));
    only_the_last(check_file(&listing, Bits::One, || ground.push().map(|pushed| pushed.n_files).map_err(in_words)));
    assert_eq!(files(&ground.path("there")), files(&ground.path("here")));
    let pulled = ground.pull("back", &Wanted::All).unwrap();
    let again = || ground.pull("back", &Wanted::All).map(|pulled| pulled.n_files).map_err(in_words);
    assert_eq!(pulled.n_files, 6);
    only_the_last(check_file(&ground.path("back").join(LISTING), Bits::One, again));
    assert_eq!(files(&ground.path("back")), files(&ground.path("here")));
}

/// Every damaged object is caught by its checksum, and no file of it appears.
#[test]
fn every_damaged_object_is_named() {
    let ground = ground();
    ground.write("shard-0/rows.f32", 9);
    ground.push().unwrap();
    let n_pulls = AtomicU64::new(0);
    let outcomes = check_file(&ground.path("there/shard-1/rows.f32"), Bits::One, || {
        let to = format!("back-{}", n_pulls.fetch_add(1, Relaxed));
        let pulled = ground.pull(&to, &Wanted::All).map_err(|error| error.to_string());
        let is_there = ground.path(&to).join("shard-1/rows.f32").exists();
        assert_eq!(is_there, pulled.is_ok());
        pulled.map(|_| files(&ground.path(&to)))
    });
    // Of an object that is too long, only what was pushed is read.
    assert_eq!((outcomes.n_refused, outcomes.harmless), (300, vec!["a byte too many".to_owned()]));
}

#[test]
fn nothing_that_was_there_is_lost() {
    let ground = ground();
    let empty = ground.pull("back", &Wanted::All).unwrap_err();
    assert!(matches!(empty, BucketError::NotPushed { .. }), "{empty}");
    ground.push().unwrap();
    // Here: other files, or another pull.
    fs::create_dir(ground.path("back")).unwrap();
    fs::write(ground.path("back/mine"), b"mine").unwrap();
    assert!(matches!(ground.pull("back", &Wanted::All).unwrap_err(), BucketError::Here { .. }));
    ground.pull("copy", &Wanted::All).unwrap();
    // There: another folder.
    ground.write("owner.u8", 1);
    assert!(matches!(ground.push().unwrap_err(), BucketError::Occupied { .. }));
    push(&ground.path("here"), &ground.place, true).unwrap();
    let other = ground.pull("copy", &Wanted::All).unwrap_err().to_string();
    assert!(other.contains("holds what was pulled from elsewhere"), "{other}");
    ground.pull("new", &Wanted::All).unwrap();
    assert_eq!(files(&ground.path("new")), files(&ground.path("here")));
}

#[test]
fn a_push_that_was_broken_off_goes_on() {
    let ground = ground();
    let place = &ground.place;
    // A push that ends before its first file leaves its draft.
    drop(Push::new(&ground.path("here"), place, false, &|_| ()).unwrap());
    fs::create_dir_all(ground.path("there/shard-0")).unwrap();
    fs::copy(ground.path("here/shard-0/rows.f32"), ground.path("there/shard-0/rows.f32")).unwrap();
    assert!(matches!(ground.pull("back", &Wanted::All).unwrap_err(), BucketError::NotPushed { .. }));
    let pushed = ground.push().unwrap();
    assert_eq!(pushed.sent_bytes, pushed.n_bytes - (2 * PIECE + 3) as u64);
    ground.pull("back", &Wanted::All).unwrap();
    assert!(!ground.path("there/kith-files.draft.json").exists());
}

#[test]
fn a_mirror_shows_one_moment_after_the_other() {
    let ground = ground();
    let run = ground.path("run");
    fs::create_dir_all(run.join("checkpoints")).unwrap();
    fs::write(run.join("steps.jsonl"), b"1\n").unwrap();
    fs::write(run.join("checkpoints/step-1"), b"one").unwrap();
    let mirror = Mirror::create(&ground.place).unwrap();
    mirror.keep(&run).unwrap();
    ground.pull("first", &Wanted::All).unwrap();
    assert_eq!(files(&ground.path("first")), files(&run));
    // Steps grow, checkpoints come and go.
    for step in 2..5 {
        fs::write(run.join("steps.jsonl"), format!("{step}\n").repeat(step)).unwrap();
        fs::write(run.join(format!("checkpoints/step-{step}")), format!("{step}")).unwrap();
        fs::remove_file(run.join(format!("checkpoints/step-{}", step - 1))).unwrap();
        mirror.keep(&run).unwrap();
    }
    assert_eq!(files(&ground.path("there")).len(), 2, "earlier moments are removed");
    assert!(matches!(Mirror::create(&ground.place).unwrap_err(), BucketError::Occupied { .. }));
    let back = ground.path("resumed");
    fs::create_dir(&back).unwrap();
    let resumed = Mirror::resume(&ground.place, &back, &|_| ()).unwrap();
    assert_eq!(files(&back), files(&run));
    fs::write(back.join("steps.jsonl"), b"other\n").unwrap();
    resumed.keep(&back).unwrap();
    ground.pull("last", &Wanted::All).unwrap();
    assert_eq!(files(&ground.path("last")), files(&back));
}

/// A process that is not dead spoils nothing of the one that took its place: its listing is refused.
#[test]
fn two_mirrors_do_not_write_to_the_same_objects() {
    let ground = ground();
    let run = ground.path("run");
    fs::create_dir(&run).unwrap();
    fs::write(run.join("steps.jsonl"), b"1\n").unwrap();
    let first = Mirror::create(&ground.place).unwrap();
    first.keep(&run).unwrap();
    let other = ground.path("other");
    fs::create_dir(&other).unwrap();
    let second = Mirror::resume(&ground.place, &other, &|_| ()).unwrap();
    for (dir, text) in [(&run, "1\n2\n"), (&other, "1\n3\n")] {
        fs::write(dir.join("steps.jsonl"), text).unwrap();
        fs::write(dir.join("report.json"), text).unwrap();
    }
    // The first had put an object and was killed before it could list it.
    let writers = writers(&ground.path("there"));
    assert_eq!(writers.len(), 1);
    fs::write(ground.path("there").join(format!("report.json~{}-9", writers[0])), b"left").unwrap();
    second.keep(&other).unwrap();
    let listed = files(&ground.path("there"));
    assert_eq!(listed.len(), 2, "{:?}", listed.keys());
    // The first was only paused, and comes too late.
    assert!(matches!(first.keep(&run).unwrap_err(), BucketError::Contested { .. }));
    let after = files(&ground.path("there"));
    assert!(listed.iter().all(|(name, bytes)| after.get(name) == Some(bytes)), "{:?}", after.keys());
    ground.pull("last", &Wanted::All).unwrap();
    assert_eq!(files(&ground.path("last")), files(&other));
    // The next one cleans up after it.
    let third = Mirror::resume(&ground.place, &ground.path("third"), &|_| ()).unwrap();
    third.keep(&ground.path("third")).unwrap();
    assert_eq!(files(&ground.path("there")), listed);
}

/// Tags of all writers that the listing in a folder names.
fn writers(dir: &Path) -> Vec<String> {
    let listing: serde_json::Value = serde_json::from_slice(&fs::read(dir.join(LISTING)).unwrap()).unwrap();
    let writers = listing["writers"].as_array().unwrap().iter();
    writers.map(|tag| tag.as_str().unwrap().to_owned()).collect()
}

#[test]
fn a_resumed_mirror_deletes_nothing_that_its_run_did_not_put() {
    let ground = ground();
    let variant = ground.place.inside("variant").unwrap();
    let [run, other] = ["run", "other"].map(|name| {
        fs::create_dir_all(ground.path(name).join("checkpoints")).unwrap();
        fs::write(ground.path(name).join("checkpoints/step-1"), name).unwrap();
        ground.path(name)
    });
    Mirror::create(&ground.place).unwrap().keep(&run).unwrap();
    Mirror::create(&variant).unwrap().keep(&other).unwrap();
    // A pushed folder below it, one whose push has not ended, and files of the user's.
    push(&ground.path("here"), &ground.place.inside("store").unwrap(), false).unwrap();
    drop(Push::new(&ground.path("here"), &ground.place.inside("half").unwrap(), false, &|_| ()).unwrap());
    let there = ground.path("there");
    fs::write(there.join("notes.txt~"), "mine").unwrap();
    fs::write(there.join("notes.txt~0123456789abcdef-1"), "mine").unwrap();
    // Even with a tag of this run: below another listing everything is somebody else's.
    let tag = writers(&there).remove(0);
    fs::write(there.join(format!("variant/copy~{tag}-1")), "theirs").unwrap();
    fs::write(there.join(format!("half/copy~{tag}-1")), "theirs").unwrap();
    fs::write(there.join(format!("left~{tag}-1")), "ours").unwrap();
    let before = files(&there);

    let resumed = Mirror::resume(&ground.place, &ground.path("again"), &|_| ()).unwrap();
    fs::write(ground.path("again/checkpoints/step-2"), "two").unwrap();
    fs::remove_file(ground.path("again/checkpoints/step-1")).unwrap();
    resumed.keep(&ground.path("again")).unwrap();
    let after = files(&there);
    let gone: Vec<&String> = before.keys().filter(|name| !after.contains_key(*name)).collect();
    let expected = [format!("checkpoints/step-1~{tag}-1"), format!("left~{tag}-1")];
    assert_eq!(gone, expected.iter().collect::<Vec<_>>());
    Mirror::resume(&variant, &ground.path("variant"), &|_| ()).unwrap();
    assert_eq!(files(&ground.path("variant")), files(&other));
}

#[test]
fn a_mirror_names_itself_before_it_puts_anything() {
    let ground = ground();
    let run = ground.path("run");
    fs::create_dir(&run).unwrap();
    // Its first file cannot be read: all that is there is its announcement, which is no folder yet.
    std::os::unix::fs::symlink("nowhere", run.join("steps.jsonl")).unwrap();
    fs::write(run.join("report.json"), b"1").unwrap();
    let first = Mirror::create(&ground.place).unwrap();
    assert!(!ground.path("there").exists());
    first.keep(&run).unwrap_err();
    fs::remove_file(run.join("steps.jsonl")).unwrap();
    first.keep(&run).unwrap();
    let tag = writers(&ground.path("there")).remove(0);
    assert!(ground.path("there").join(format!("report.json~{tag}-1")).exists());
    assert!(matches!(Mirror::create(&ground.place).unwrap_err(), BucketError::Occupied { .. }));
}

#[test]
fn of_two_pushes_to_one_place_one_is_whole() {
    let ground = ground();
    let other = ground.path("other");
    fs::create_dir(&other).unwrap();
    for name in ["manifest.json", "owner.u8"] {
        fs::write(other.join(name), b"another folder").unwrap();
    }
    let first = Push::new(&ground.path("here"), &ground.place, false, &|_| ()).unwrap();
    assert!(matches!(push(&other, &ground.place, false).unwrap_err(), BucketError::Occupied { .. }));
    // With `replace` the second push wins, and the first one notices.
    push(&other, &ground.place, true).unwrap();
    assert!(matches!(first.run(&|_| ()).unwrap_err(), BucketError::Contested { .. }));
    ground.pull("back", &Wanted::All).unwrap();
    assert_eq!(files(&ground.path("back")), files(&other));
    assert_eq!(files(&ground.path("there")).len(), 2, "{:?}", files(&ground.path("there")).keys());

    // The same folder twice at a time is one folder.
    let again = ground.place.inside("again").unwrap();
    let [one, two] = [(); 2].map(|()| Push::new(&other, &again, false, &|_| ()).unwrap());
    one.run(&|_| ()).unwrap();
    two.run(&|_| ()).unwrap();
    Pull::new(&again, &ground.path("twice"), &Wanted::All).unwrap().run(&|_| ()).unwrap();
    assert_eq!(files(&ground.path("twice")), files(&other));
}

#[test]
fn of_two_pushes_that_replace_a_folder_the_first_to_end_stays() {
    let ground = ground();
    push(&ground.path("here"), &ground.place, false).unwrap();
    let folders = ["one", "two"].map(|name| {
        let dir = ground.path(name);
        fs::create_dir(&dir).unwrap();
        fs::write(dir.join("manifest.json"), name).unwrap();
        fs::write(dir.join("owner.u8"), name).unwrap();
        dir
    });
    let [one, two] = folders.each_ref().map(|dir| Push::new(dir, &ground.place, true, &|_| ()).unwrap());
    two.run(&|_| ()).unwrap();
    assert!(matches!(one.run(&|_| ()).unwrap_err(), BucketError::Contested { .. }));
    ground.pull("back", &Wanted::All).unwrap();
    assert_eq!(files(&ground.path("back")), files(&folders[1]));
    // Nothing is left of the folder before, nor of the other push.
    assert_eq!(files(&ground.path("there")).len(), 2, "{:?}", files(&ground.path("there")).keys());
}

/// Two folders are pushed to one place at the same time, 150 times. Exactly one push succeeds each time, and its folder is
/// complete.
#[test]
fn of_pushes_that_begin_together_one_is_whole() {
    let temp = tempfile::tempdir().unwrap();
    let dirs = ["a", "b"].map(|name| temp.path().join(name));
    for (dir, value) in dirs.iter().zip([b"a", b"b"]) {
        fs::create_dir(dir).unwrap();
        for name in ["manifest.json", "rows.f32"] {
            fs::write(dir.join(name), value).unwrap();
        }
    }
    for round in 0..150 {
        let place = Place::parse(&format!("file://{}", temp.path().join(format!("there-{round}")).display())).unwrap();
        let ends = thread::scope(|scope| {
            let pushes = [0, 1].map(|which| {
                let (dir, place) = (&dirs[which], &place);
                scope.spawn(move || push(dir, place, false))
            });
            pushes.map(|push| push.join().unwrap())
        });
        let losers = ends.iter().filter_map(|end| end.as_ref().err());
        for error in losers {
            assert!(matches!(error, BucketError::Occupied { .. } | BucketError::Contested { .. }), "{error}");
        }
        let winners: Vec<usize> = (0..2).filter(|which| ends[*which].is_ok()).collect();
        assert_eq!(winners.len(), 1, "round {round}: {ends:?}");
        let back = temp.path().join(format!("back-{round}"));
        Pull::new(&place, &back, &Wanted::All).unwrap().run(&|_| ()).unwrap();
        assert_eq!(files(&back), files(&dirs[winners[0]]), "round {round}");
        assert_eq!(files(&temp.path().join(format!("there-{round}"))).len(), 2, "nothing else is left there");
    }
}

/// A push that looked at an empty place, and announced itself only after another had ended, left its announcement there when it
/// was killed. Its objects would have the names of the other's.
#[test]
fn an_announcement_that_came_too_late_spoils_nothing() {
    let ground = ground();
    let (other, elsewhere) = (ground.path("other"), ground.place.inside("elsewhere").unwrap());
    fs::create_dir(&other).unwrap();
    fs::write(other.join("manifest.json"), b"another folder").unwrap();
    let draft = "kith-files.draft.json";
    drop(Push::new(&other, &elsewhere, false, &|_| ()).unwrap());
    ground.push().unwrap();
    fs::rename(ground.path("there/elsewhere").join(draft), ground.path("there").join(draft)).unwrap();
    let late = Push::new(&other, &ground.place, true, &|_| ()).unwrap();
    ground.pull("before", &Wanted::All).unwrap();
    assert_eq!(files(&ground.path("before")), files(&ground.path("here")), "whole until it is replaced");
    late.run(&|_| ()).unwrap();
    ground.pull("after", &Wanted::All).unwrap();
    assert_eq!(files(&ground.path("after")), files(&other));
}

#[test]
fn a_push_overwrites_and_deletes_nothing_of_others() {
    let ground = ground();
    let there = ground.path("there");
    fs::create_dir_all(&there).unwrap();
    fs::write(there.join("owner.u8"), b"mine").unwrap();
    for replace in [false, true] {
        let refused = push(&ground.path("here"), &ground.place, replace).unwrap_err();
        assert!(matches!(&refused, BucketError::Foreign { url } if url.ends_with("/owner.u8")), "{refused}");
    }
    assert_eq!(files(&there).len(), 1);
    fs::remove_file(there.join("owner.u8")).unwrap();
    ground.push().unwrap();
    // Another folder was pushed into it, over a file of the first.
    let inner = ground.place.inside("shard-1").unwrap();
    fs::remove_file(there.join("shard-1/rows.f32")).unwrap();
    fs::remove_file(there.join("shard-1/manifest.json")).unwrap();
    let own = ground.path("own");
    fs::create_dir(&own).unwrap();
    fs::write(own.join("rows.f32"), b"of another store").unwrap();
    push(&own, &inner, false).unwrap();
    ground.write("owner.u8", 3);
    push(&ground.path("here"), &ground.place, true).unwrap();
    assert_eq!(fs::read(there.join("shard-1/rows.f32")).unwrap(), b"of another store");
    Pull::new(&inner, &ground.path("inner"), &Wanted::All).unwrap().run(&|_| ()).unwrap();
    ground.pull("back", &Wanted::All).unwrap();
    assert_eq!(files(&ground.path("back")), files(&ground.path("here")));

    // A pull takes no folder that has files, be they called like parts of a file.
    fs::create_dir(ground.path("mine")).unwrap();
    fs::write(ground.path("mine/owner.u8.part"), b"mine").unwrap();
    assert!(matches!(ground.pull("mine", &Wanted::All).unwrap_err(), BucketError::Here { .. }));
    assert_eq!(fs::read(ground.path("mine/owner.u8.part")).unwrap(), b"mine");
}

#[test]
fn replacing_repairs_a_damaged_object() {
    let ground = ground();
    ground.push().unwrap();
    fs::write(ground.path("there/shard-1/rows.f32"), vec![0; 100]).unwrap();
    ground.push().unwrap();
    assert!(matches!(ground.pull("back", &Wanted::All).unwrap_err(), BucketError::Damaged { .. }));
    push(&ground.path("here"), &ground.place, true).unwrap();
    ground.pull("new", &Wanted::All).unwrap();
    assert_eq!(files(&ground.path("new")), files(&ground.path("here")));
    assert_eq!(files(&ground.path("there")).len(), 6, "{:?}", files(&ground.path("there")).keys());
}

#[test]
fn a_web_server_is_enough_to_pull_from() {
    let ground = ground();
    ground.push().unwrap();
    let root = ground.path("there");
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let root = root.clone();
            thread::spawn(move || answer(stream, &root));
        }
    });
    let place = Place::parse(&format!("http://{address}/")).unwrap();
    Pull::new(&place, &ground.path("back"), &Wanted::All).unwrap().run(&|_| ()).unwrap();
    assert_eq!(files(&ground.path("back")), files(&ground.path("here")));
    let refused = push(&ground.path("here"), &place, false).unwrap_err().to_string();
    assert!(refused.contains("nothing can be pushed over http"), "{refused}");
}

/// Answers requests for ranges of files, one after the other, until the client is gone.
fn answer(stream: TcpStream, root: &Path) -> Option<()> {
    let mut reader = BufReader::new(stream.try_clone().ok()?);
    loop {
        let mut head = Vec::new();
        loop {
            let mut line = String::new();
            reader.read_line(&mut line).ok().filter(|n| *n > 0)?;
            if line == "\r\n" {
                break;
            }
            head.push(line.trim().to_lowercase());
        }
        let path = root.join(head[0].split(' ').nth(1)?.trim_start_matches('/'));
        let range = head.iter().find_map(|line| line.strip_prefix("range: bytes=")?.split_once('-'));
        let mut stream = &stream;
        let Ok(whole) = fs::read(path) else {
            stream.write_all(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n").ok()?;
            continue;
        };
        let (first, last) = match range {
            Some((first, last)) => (first.parse().ok()?, last.parse::<usize>().ok()?.min(whole.len() - 1)),
            None => (0, whole.len().wrapping_sub(1)),
        };
        let status = if range.is_some() { "206 Partial Content" } else { "200 OK" };
        let bytes = if whole.is_empty() { &[] } else { &whole[first..=last] };
        let head = format!(
            "HTTP/1.1 {status}\r\nContent-Length: {}\r\nContent-Range: bytes {first}-{last}/{}\r\nLast-Modified: Thu, 01 Jan 2026 00:00:00 GMT\r\n\r\n",
            bytes.len(),
            whole.len()
        );
        stream.write_all(head.as_bytes()).ok()?;
        stream.write_all(bytes).ok()?;
    }
}
