//! Output of a run: a folder, or a bucket that mirrors a temporary folder.

use std::{path::Path, sync::Arc};

use kith_bucket::{BucketError, Mirror, Place, Pull, Wanted, is_url};
use kith_cli::{temporary::Temporary, train::Args};
use kith_run::report::RUN_FILE;
use kith_trainer::{error::TrainError, output::keeper::Keeper};

/// Mirror and folders that must live as long as the run.
#[derive(Default)]
pub(super) struct RunMirror {
    mirrored: Option<(Arc<Mirror>, Arc<Temporary>)>,
    /// Folder of the run file on the other ranks, which keep nothing.
    _read: Option<Temporary>,
}

impl RunMirror {
    /// Makes `--out` a folder of this machine, whatever was typed: what a bucket holds of the run is in it.
    pub(super) fn open(args: &mut Args, rank: usize) -> anyhow::Result<RunMirror> {
        let Some(url) = args.out.as_deref().and_then(Path::to_str).filter(|text| is_url(text)) else {
            return Ok(RunMirror::default());
        };
        let place = Place::parse(url)?;
        let folder = Temporary::new("kith-run-")?;
        // Mirrors and pulls want folders of their own making.
        let dir = folder.path().join("run");
        args.out = Some(dir.clone());
        if rank > 0 {
            if args.resume {
                read_run_file(&place, &dir)?;
            }
            return Ok(RunMirror { _read: Some(folder), ..RunMirror::default() });
        }
        std::fs::create_dir(&dir).map_err(TrainError::io(&dir))?;
        let mirror = if args.resume { Mirror::resume(&place, &dir, &|_| {}) } else { Mirror::create(&place) };
        let mirror = mirror.map_err(|error| match error {
            BucketError::Occupied { url } => {
                anyhow::anyhow!("{url}: holds a run already: resume it with --resume, or choose another place")
            }
            error => error.into(),
        })?;
        Ok(RunMirror { mirrored: Some((Arc::new(mirror), Arc::new(folder))), ..RunMirror::default() })
    }

    /// Keeper that mirrors changes in the run's folder, or in those of its seeds.
    pub(super) fn keeper(&self) -> Keeper {
        let Some((mirror, folder)) = self.mirrored.clone() else { return Keeper::default() };
        Keeper::new(move || keep(&mirror, &folder))
    }

    /// Keeps what was written after the last run ended.
    pub(super) fn end(&self) -> Result<(), TrainError> {
        self.mirrored.as_ref().map_or(Ok(()), |(mirror, folder)| keep(mirror, folder))
    }
}

fn keep(mirror: &Mirror, folder: &Temporary) -> Result<(), TrainError> {
    mirror
        .keep(&folder.path().join("run"))
        .map_err(|error| TrainError::NotKept { is_passing: error.is_passing(), problem: error.to_string() })
}

/// Fetches the run file: a rank that starts with `--resume` alone reads its settings there.
fn read_run_file(place: &Place, dir: &Path) -> anyhow::Result<()> {
    match Pull::new(place, dir, &Wanted::Chosen(|name| name == RUN_FILE)) {
        Ok(pull) => pull.run(&|_| {}).map(drop).map_err(Into::into),
        Err(BucketError::NotPushed { .. }) => Ok(()),
        Err(error) => Err(error.into()),
    }
}
