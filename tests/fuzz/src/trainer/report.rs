//! A report and records of arbitrary bytes make a page or are refused. The first byte says where the records begin, in 64ths.

use std::fs;

use kith_partition::progress::Quiet;
use kith_report::folder_page::{EventsPlace, Question, report};

use kith_corruption::scratch;

pub(crate) fn run(bytes: &[u8]) {
    let Some((share, bytes)) = bytes.split_first() else { return };
    let (first, second) = bytes.split_at(bytes.len() * usize::from(*share % 65) / 64);
    let place = scratch();
    if !first.is_empty() {
        fs::write(place.path().join("report.json"), first).expect("our own file");
    }
    fs::write(place.path().join("steps.jsonl"), second).expect("our own file");
    let paper = |_: &str, _: &str| None;
    let (dir, events) = (place.path(), EventsPlace::Nowhere);
    let made = report(&Question { dir, out: None, events, store: None, paper: &paper, progress: &Quiet });
    match made {
        Ok(written) => {
            let html = fs::read_to_string(written.page).expect("the page is there");
            assert!(!html.to_lowercase().contains("<script src") && html.ends_with("</html>\n"), "{}", html.len());
        }
        Err(error) => assert!(error.to_string().contains(&dir.display().to_string()), "{error}"),
    }
}
