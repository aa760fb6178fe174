//! Whole records at the beginning of a file of steps.

use std::io::{self, BufRead};

use kith_run::seal;
use serde::de::IgnoredAny;

/// Number and bytes of the whole records at the beginning of a text, `most` records at most. A damaged record ends them.
pub(super) fn whole_records(mut text: impl BufRead, most: u64) -> io::Result<(u64, u64)> {
    let (mut n, mut n_bytes, mut line) = (0, 0, Vec::new());
    while n < most {
        line.clear();
        text.read_until(b'\n', &mut line)?;
        if !is_whole(&line) {
            break;
        }
        n += 1;
        n_bytes += line.len() as u64;
    }
    Ok((n, n_bytes))
}

fn is_whole(line: &[u8]) -> bool {
    let Some(Ok(text)) = line.strip_suffix(b"\n").map(str::from_utf8) else { return false };
    serde_json::from_str::<IgnoredAny>(text).is_ok() && seal::check(text).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_records_end_at_the_first_that_is_damaged_or_cut_off() {
        let record = |step: u64| seal::seal(&format!("{{\"step\":{step}}}")) + "\n";
        let text: String = (0..5).map(record).collect();
        let n_bytes = record(0).len() as u64;
        assert_eq!(whole_records(text.as_bytes(), 9).unwrap(), (5, 5 * n_bytes));
        assert_eq!(whole_records(text.as_bytes(), 2).unwrap(), (2, 2 * n_bytes));
        assert_eq!(whole_records(&text.as_bytes()[..text.len() - 1], 9).unwrap().0, 4, "the last is cut off");
        // A page of zeros that swallows the ends of two records, with others behind it.
        let mut zeroed = text.clone().into_bytes();
        let at = n_bytes as usize;
        zeroed[at + 5..3 * at + 5].fill(0);
        assert_eq!(whole_records(&*zeroed, 3).unwrap(), (1, n_bytes));
        assert_eq!(whole_records(&b"{\"step\":0}\n{\"step\":1}\n"[..], 9).unwrap().0, 2, "records without checksums");
    }
}
