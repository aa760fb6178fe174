//! Pushes, pulls and mirrors of several processes at one place in simulated storage: requests in an order that draws
//! decide, some of which fail, lose their answers or are the last of a process that is killed. The code is the real one.

pub(crate) mod storage;

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    ops::Range,
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    path::Path,
    sync::{Arc, Mutex},
    thread,
};

use futures_util::FutureExt;
use kith_draw::{Draws, Name, Purpose};
use object_store::{ObjectStoreExt, PutPayload, path};

use self::storage::{Fate, Killed, Order, Storage, contents};
use crate::{BucketError, FileEntry, LISTING, Listing, Mirror, Place, Pull, Push, Wanted};

/// Files of a folder, by name.
type Files = BTreeMap<String, Vec<u8>>;

/// Objects of others at the place: such names are Kith's, or stand in a folder of somebody else.
const FOREIGN: [&str; 4] =
    ["run/notes.txt", "run/plot.png~0123456789abcdef-1", "run/other/kith-files.json", "run/other/x~0000000100000001-1"];

const FAULTS: [Fate; 5] = [Fate::Fails, Fate::AnswerLost, Fate::Repeated, Fate::KilledBefore, Fate::KilledAfter];

/// Program of a simulated process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Program {
    /// Pushes the folder of this number, and tries again if it fails.
    Push { folder: u64, replace: bool },
    /// Pulls what is there.
    Pull,
    /// Keeps a run that goes on, from what is there.
    Mirror,
}

/// Results of all processes.
#[derive(Debug, Default)]
struct Done {
    /// Pushes that ended well: the folder, in the order of their ends.
    pushed: Vec<u64>,
    /// Pulls that ended well.
    pulled: Vec<Files>,
    /// Steps that mirrors were told are kept.
    kept: Vec<u64>,
    log: Vec<String>,
    wrong: Vec<String>,
}

fn draws(key: u64, step: u64) -> Draws {
    Name { run_key: key, purpose: Purpose::Fault, step, layer: 0 }.stream().draws(0, 0, 0)
}

fn below(draws: &mut Draws, n: u64) -> u64 {
    (u64::from(draws.word()) * n) >> 32
}

/// The files of a folder that is pushed. Two folders share a file's name, and each has one of its own.
fn folder(number: u64) -> Files {
    let text = |name: &str| format!("{name} of folder {number}").repeat(number as usize + 1).into_bytes();
    ["a.txt", "deep/b.txt", &format!("only-{number}.txt")].map(|name| (name.to_owned(), text(name))).into()
}

/// The files of a run after a step: a growing file, and its two newest checkpoints.
fn run_at(step: u64) -> Files {
    let records = (0..=step).map(|step| format!("{{\"step\": {step}}}\n")).collect::<String>();
    let mut files = Files::from([("steps.jsonl".to_owned(), records.into_bytes())]);
    for checkpoint in step.saturating_sub(1)..=step {
        files.insert(format!("checkpoints/step-{checkpoint}"), format!("weights {checkpoint}").into_bytes());
    }
    files
}

/// The step that a run folder is at, if it is whole.
fn step_of(files: &Files) -> Option<u64> {
    let step = String::from_utf8_lossy(files.get("steps.jsonl")?).lines().count().checked_sub(1)? as u64;
    (*files == run_at(step)).then_some(step)
}

fn write(dir: &Path, files: &Files) {
    if dir.exists() {
        fs::remove_dir_all(dir).unwrap();
    }
    for (name, bytes) in files {
        let path = dir.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    }
}

fn read(dir: &Path) -> Files {
    let mut files = Files::new();
    let mut folders = vec![dir.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.strip_prefix(dir).unwrap().to_str().unwrap().to_owned();
            if path.is_dir() {
                folders.push(path);
            } else if name != LISTING {
                files.insert(name, fs::read(&path).unwrap());
            }
        }
    }
    files
}

/// A process, which starts again when it was killed or the storage did not answer.
struct Process<'a> {
    program: Program,
    place: &'a Place,
    dir: std::path::PathBuf,
    done: &'a Mutex<Done>,
    n_starts: u64,
}

impl Process<'_> {
    fn run(mut self) {
        for start in 0..self.n_starts {
            let dir = self.dir.join(start.to_string());
            match catch_unwind(AssertUnwindSafe(|| self.start(&dir))) {
                Ok(Ok(())) => return,
                Ok(Err(error)) => {
                    self.done.lock().unwrap().log.push(format!("{:?}: {error}", self.program));
                    // A process that fails for good is not started again; a pull may come before there is something.
                    if !error.is_passing() && !matches!(error, BucketError::NotPushed { .. }) {
                        return;
                    }
                }
                Err(panic) if panic.is::<Killed>() => {
                    self.done.lock().unwrap().log.push(format!("{:?} was killed", self.program));
                }
                Err(panic) => resume_unwind(panic),
            }
        }
    }

    fn start(&mut self, dir: &Path) -> Result<(), BucketError> {
        match self.program {
            Program::Push { folder: number, replace } => {
                write(dir, &folder(number));
                Push::new(dir, self.place, replace, &|_| {})?.run(&|_| {})?;
                self.done.lock().unwrap().pushed.push(number);
            }
            Program::Pull => {
                Pull::new(self.place, dir, &Wanted::All)?.run(&|_| {})?;
                self.done.lock().unwrap().pulled.push(read(dir));
            }
            Program::Mirror => {
                let before = self.done.lock().unwrap().kept.iter().max().copied();
                let mirror = Mirror::resume(self.place, dir, &|_| {})?;
                let begun = if dir.exists() { step_of(&read(dir)) } else { None };
                if before > begun {
                    let sentence = format!("step {before:?} was kept, and {begun:?} is there");
                    self.done.lock().unwrap().wrong.push(sentence);
                }
                let first = begun.map_or(0, |step| step + 1);
                for step in first..first + 3 {
                    write(dir, &run_at(step));
                    mirror.keep(dir)?;
                    self.done.lock().unwrap().kept.push(step);
                }
            }
        }
        Ok(())
    }
}

/// The first broken promise about the objects that are there.
fn wrong_with(objects: &Files) -> Option<String> {
    for name in FOREIGN {
        if objects.get(name).is_none_or(|bytes| bytes != name.as_bytes()) {
            return Some(format!("{name} belongs to somebody else, and was changed"));
        }
    }
    let bytes = objects.get(&format!("run/{LISTING}"))?;
    let listing = match Listing::from_bytes(bytes) {
        Ok(listing) => listing,
        Err(error) => return Some(format!("the listing cannot be read: {error}")),
    };
    let missing = listing.files().iter().find(|file| {
        let object = objects.get(&format!("run/{}", file.object()));
        object.is_none_or(|bytes| bytes.len() as u64 != file.n_bytes || crc32c::crc32c(bytes) != first_sum(file))
    });
    missing.map(|file| format!("the listing names {}, which is not whole", file.object()))
}

fn first_sum(file: &FileEntry) -> u32 {
    file.checksums.first().copied().unwrap_or(0)
}

/// Runs the processes of a key; what was wrong, with the log.
fn run(key: u64) -> (Done, Vec<Program>, Files) {
    let mut drawn = draws(key, 0);
    let is_run = below(&mut drawn, 2) == 0;
    let programs: Vec<Program> = (0..1 + below(&mut drawn, 3))
        .map(|_| match below(&mut drawn, 3) {
            0 => Program::Pull,
            _ if is_run => Program::Mirror,
            _ => Program::Push { folder: below(&mut drawn, 2), replace: below(&mut drawn, 2) == 0 },
        })
        .collect();
    let percent = [0, 2, 8][below(&mut drawn, 3) as usize];
    let storage = Arc::new(Storage::default());
    for name in FOREIGN {
        let path = path::Path::parse(name).unwrap();
        storage.objects.put(&path, PutPayload::from(name.as_bytes())).now_or_never().unwrap().unwrap();
    }
    let place = Place::simulated(storage.clone(), "run");
    let (temp, order, done) = (tempfile::tempdir().unwrap(), Order::new(key), Mutex::new(Done::default()));
    (0..programs.len()).for_each(|number| order.begin(number));
    thread::scope(|scope| {
        for (number, program) in programs.iter().enumerate() {
            let (order, place, done, dir) = (order.clone(), &place, &done, temp.path().join(number.to_string()));
            let process = Process {
                program: *program,
                place,
                dir,
                done,
                n_starts: if *program == Program::Pull { 100 } else { 12 },
            };
            scope.spawn(move || {
                order.enter(number);
                let ended = catch_unwind(AssertUnwindSafe(|| process.run()));
                order.end(number);
                if let Err(panic) = ended {
                    resume_unwind(panic);
                }
            });
        }
        let fate = |draws: &mut Draws, _writer: usize| match below(draws, 100) {
            place if place >= percent => Fate::Done,
            _ => FAULTS[below(draws, 5) as usize],
        };
        while let Some(line) = order.next(fate) {
            // The request is carried out when its writer is polled: it is looked at before the next one.
            order.settle();
            let objects = contents(&storage.objects).now_or_never().expect("memory does not wait");
            let mut done = done.lock().unwrap();
            done.log.push(line);
            if let Some(sentence) = wrong_with(&objects) {
                done.log.push(format!("WRONG: {sentence}"));
                done.wrong.push(sentence);
            }
        }
    });
    let objects = contents(&storage.objects).now_or_never().expect("memory does not wait");
    (done.into_inner().unwrap(), programs, objects)
}

/// Broken promises of a key, and its results.
fn judge(key: u64) -> (Vec<String>, Done) {
    let (mut done, programs, objects) = run(key);
    let mut wrong = std::mem::take(&mut done.wrong);
    let there: Files = match objects.get(&format!("run/{LISTING}")).map(|bytes| Listing::from_bytes(bytes).unwrap()) {
        None => Files::new(),
        Some(listing) => {
            let object = |file: &FileEntry| objects[&format!("run/{}", file.object())].clone();
            listing.files().iter().map(|file| (file.name.clone(), object(file))).collect()
        }
    };
    for files in &done.pulled {
        if step_of(files).is_none() && ![0, 1].map(folder).contains(files) {
            wrong.push(format!("a pull gave {:?}", files.keys().collect::<BTreeSet<_>>()));
        }
    }
    if let Some(step) = done.kept.iter().max()
        && step_of(&there).is_none_or(|found| found < *step)
    {
        wrong.push(format!("step {step} was kept, and {:?} is there", step_of(&there)));
    }
    let is_replaced = programs.iter().any(|program| matches!(program, Program::Push { replace: true, .. }));
    if !done.pushed.is_empty() && ![0, 1].map(folder).contains(&there) {
        wrong.push("a push ended well, and no folder is there".to_owned());
    }
    if let (Some(first), false) = (done.pushed.first(), is_replaced)
        && there != folder(*first)
    {
        wrong.push(format!("folder {first} was pushed first, and another one is there"));
    }
    (wrong, done)
}

#[test]
fn what_is_listed_is_whole_and_nothing_foreign_is_touched() {
    check(0..250);
}

#[test]
fn slow_what_is_listed_is_whole_with_many_keys() {
    if std::env::var_os("KITH_SLOW").is_some() {
        check(250..5_000);
    }
}

fn check(keys: Range<u64>) {
    let (mut n_kept, mut n_pushed, mut n_pulled) = (0, 0, 0);
    for key in keys {
        let (wrong, done) = judge(key);
        assert!(wrong.is_empty(), "key {key}:\n{}\nwrong: {wrong:#?}", done.log.join("\n"));
        (n_kept, n_pushed, n_pulled) =
            (n_kept + done.kept.len(), n_pushed + done.pushed.len(), n_pulled + done.pulled.len());
    }
    assert!(n_kept > 200 && n_pushed > 60 && n_pulled > 40, "{n_kept} {n_pushed} {n_pulled}");
}

#[test]
fn a_key_is_one_order_of_requests() {
    for key in 0..20 {
        assert_eq!(run(key).0.log, run(key).0.log, "key {key}");
    }
}
