//! Every target reads its packed corpus and drawn mutations of it, within a limit of memory.
#![allow(missing_docs)]

use std::time::{Duration, Instant};

use kith_corruption::mutate;
use kith_draw::{Draws, Name, Purpose};
use kith_fuzz::{TARGETS, Target, inputs, target};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Address space of the process: a length in an input that is reserved without a look at the input ends the test.
const MEMORY_BYTES: u64 = 6 << 30;

/// Time for mutations of a target, in every run of the tests and in the slow ones. `KITH_FUZZ_SECONDS` changes the second.
const BRIEFLY: Duration = Duration::from_millis(500);
const SLOWLY: Duration = Duration::from_secs(60);

fn limit_memory() {
    let Rlimit { maximum, .. } = getrlimit(Resource::As);
    setrlimit(Resource::As, Rlimit { current: Some(MEMORY_BYTES), maximum }).expect("less than there was");
}

fn replay(name: &str) {
    limit_memory();
    let Target { run, .. } = target(name);
    let inputs = inputs(name);
    assert!(inputs.len() >= 3, "{name}: {} inputs", inputs.len());
    inputs.iter().for_each(|(_, bytes)| run(bytes));
    mutated(name, &inputs, BRIEFLY);
}

/// Mutates inputs until the time is over; each mutation is drawn by its number.
fn mutated(name: &str, inputs: &[(String, Vec<u8>)], time: Duration) -> u64 {
    let Target { run, .. } = target(name);
    let stream = Name { run_key: 1, purpose: Purpose::Fault, step: 0, layer: 0 }.stream();
    let started = Instant::now();
    let mut n_inputs = 0;
    while started.elapsed() < time {
        let mut draws = stream.draws(n_inputs, 0, 0);
        run(&mutation(inputs, &mut draws));
        n_inputs += 1;
    }
    n_inputs
}

/// One input, or the begin of one and the end of another, with some bytes changed.
fn mutation(inputs: &[(String, Vec<u8>)], draws: &mut Draws) -> Vec<u8> {
    let one = |draws: &mut Draws| &inputs[draws.below(inputs.len() as u64) as usize].1;
    let place = |draws: &mut Draws, bytes: &[u8]| draws.below(bytes.len() as u64 + 1) as usize;
    let mut bytes = one(draws).clone();
    if draws.below(4) == 0 {
        let other = one(draws);
        bytes.truncate(place(draws, &bytes));
        bytes.extend_from_slice(&other[place(draws, other)..]);
    }
    for _ in 0..=draws.below(6) {
        mutate(&mut bytes, draws);
    }
    bytes
}

#[test]
fn every_target_has_a_corpus_and_a_program() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    let names = |inner: &str, ending: &str| {
        let files = std::fs::read_dir(folder.join(inner)).unwrap().map(|file| file.unwrap().file_name());
        let mut names: Vec<String> = files.map(|name| name.to_string_lossy().replace(ending, "")).collect();
        names.sort();
        names
    };
    let expected = TARGETS.map(|target| target.name);
    assert_eq!(names("corpus", ".tar.gz"), expected);
    assert_eq!(names("libfuzzer/fuzz_targets", ".rs"), expected);
}

/// The slow variant: `KITH_SLOW=1 KITH_FUZZ_SECONDS=600 cargo nextest run --release -p kith-fuzz --profile slow -E 'test(slow_)'`.
fn slowly(name: &str) {
    if std::env::var_os("KITH_SLOW").is_none_or(|value| value != "1") {
        return;
    }
    let seconds = std::env::var("KITH_FUZZ_SECONDS").ok().and_then(|seconds| seconds.parse().ok());
    limit_memory();
    let n_inputs = mutated(name, &inputs(name), seconds.map_or(SLOWLY, Duration::from_secs));
    assert!(n_inputs > 0, "{name}: no input was read");
}

macro_rules! targets {
    ($($name:ident $slow:ident),* $(,)?) => {
        $(
            #[test]
            fn $name() {
                replay(stringify!($name));
            }

            #[test]
            fn $slow() {
                slowly(stringify!($name));
            }
        )*

        #[test]
        fn every_target_is_tested() {
            assert_eq!([$(stringify!($name)),*], TARGETS.map(|target| target.name));
        }
    };
}

targets! {
    answers slow_answers,
    checkpoint slow_checkpoint,
    column slow_column,
    csv slow_csv,
    frames slow_frames,
    html slow_html,
    http2 slow_http2,
    lines slow_lines,
    listing slow_listing,
    manifest slow_manifest,
    messages slow_messages,
    npy slow_npy,
    npz slow_npz,
    parquet slow_parquet,
    pickle slow_pickle,
    pieces slow_pieces,
    report slow_report,
    requests slow_requests,
    run_file slow_run_file,
    tar slow_tar,
    zip slow_zip,
}
