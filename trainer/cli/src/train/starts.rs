//! Counts starts of a run without progress, for job managers that restart it and see no checkpoint.

use std::{fs, path::Path};

use anyhow::bail;
use kith_run::files::{make_folder, publish_bytes};
use serde::{Deserialize, Serialize};

use crate::launch::progress::reached;

/// File of the count, in the run's folder.
const STARTS: &str = "starts.json";

#[derive(Debug, Default, Serialize, Deserialize)]
struct Starts {
    /// Progress at the last start: see [`reached`].
    reached: u64,
    /// Starts since this progress.
    n: u64,
}

/// Counts a start of the run in a folder. Refuses one that follows `most` starts without a newer checkpoint.
pub fn count(out: &Path, most: u64) -> anyhow::Result<()> {
    let path = out.join(STARTS);
    let text = fs::read(&path).unwrap_or_default();
    let mut starts: Starts = serde_json::from_slice(&text).unwrap_or_default();
    let now = reached(Some(out));
    if now > starts.reached {
        starts = Starts { reached: now, n: 0 };
    }
    if starts.n >= most {
        let place = path.display();
        bail!(
            "{}: {most} starts without a newer checkpoint (--max-starts): fix what they ended with and remove {place}",
            out.display()
        );
    }
    starts.n += 1;
    make_folder(out)?;
    publish_bytes(&path, &serde_json::to_vec(&starts)?)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn starts_without_a_newer_checkpoint_come_to_an_end() {
        let temp = tempfile::tempdir().unwrap();
        let out = temp.path().join("run");
        let start = || count(&out, 2).map_err(|error| error.to_string());
        let save = |step: u64| {
            fs::create_dir_all(out.join("checkpoints")).unwrap();
            fs::write(out.join(format!("checkpoints/step-{step}.safetensors")), "").unwrap();
        };
        start().unwrap();
        start().unwrap();
        let refused = start().unwrap_err();
        assert!(refused.contains("run: 2 starts without a newer checkpoint (--max-starts)"), "{refused}");
        // Every new checkpoint resets the count.
        for step in 0..5 {
            save(step);
            start().unwrap();
            start().unwrap();
            assert!(start().is_err() && start().is_err());
        }
        fs::remove_file(out.join(STARTS)).unwrap();
        start().unwrap();
        // A damaged file counts as none.
        fs::write(out.join(STARTS), "{").unwrap();
        start().unwrap();
    }
}
