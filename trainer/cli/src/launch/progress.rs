//! Progress of a run from one attempt to the next: the steps of its newest checkpoints, and its reports.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use kith_bucket::{Place, Pull, is_url};
use kith_run::report::{CHECKPOINTS, REPORT};

/// Sum of the steps of every run's newest checkpoint in a folder or at a URL, plus one per report. Grows with every new
/// checkpoint; 0 if nothing can be read.
pub(crate) fn reached(out: Option<&Path>) -> u64 {
    let Some(out) = out else { return 0 };
    match out.to_str().filter(|text| is_url(text)) {
        Some(url) => Place::parse(url).and_then(|place| Pull::names_of(&place)).map_or(0, |names| count(names.iter())),
        None => count(names_in(out).iter()),
    }
}

/// Checkpoints and reports in a run's folder; those of several runs are one folder deeper.
fn names_in(out: &Path) -> Vec<String> {
    let names = |dir: &Path| -> Vec<(String, PathBuf)> {
        let entries = fs::read_dir(dir).into_iter().flatten().flatten();
        entries.map(|entry| (entry.file_name().to_string_lossy().into_owned(), entry.path())).collect()
    };
    let mut found = Vec::new();
    for (name, path) in names(out) {
        if name == CHECKPOINTS {
            found.extend(names(&path).into_iter().map(|(file, _)| format!("{name}/{file}")));
        } else if path.is_dir() {
            found.extend(names_in_run(&path).into_iter().map(|file| format!("{name}/{file}")));
        } else {
            found.push(name);
        }
    }
    found
}

fn names_in_run(run: &Path) -> Vec<String> {
    let files = |dir: &Path| -> Vec<String> {
        let entries = fs::read_dir(dir).into_iter().flatten().flatten();
        entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
    };
    let checkpoints = files(&run.join(CHECKPOINTS)).into_iter().map(|file| format!("{CHECKPOINTS}/{file}"));
    files(run).into_iter().chain(checkpoints).collect()
}

fn count<'a>(names: impl Iterator<Item = &'a String>) -> u64 {
    let (mut newest, mut n_reports) = (BTreeMap::new(), 0);
    for name in names {
        let (folder, file) = name.rsplit_once('/').unwrap_or(("", name));
        n_reports += u64::from(file == REPORT);
        let step = file.strip_prefix("step-").and_then(|name| name.strip_suffix(".safetensors"));
        if let Some(step) = step.and_then(|step| step.parse::<u64>().ok())
            && (folder == CHECKPOINTS || folder.ends_with(&format!("/{CHECKPOINTS}")))
        {
            let most = newest.entry(folder).or_insert(0);
            *most = step.saturating_add(1).max(*most);
        }
    }
    newest.into_values().fold(n_reports, u64::saturating_add)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn newer_checkpoints_and_reports_are_progress() {
        let temp = tempfile::tempdir().unwrap();
        let put = |name: &str| {
            let path = temp.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "").unwrap();
            reached(Some(temp.path()))
        };
        assert_eq!((reached(Some(temp.path())), reached(None), reached(Some(Path::new("/nowhere")))), (0, 0, 0));
        assert_eq!([put("run.toml"), put("checkpoints/step-3.safetensors")], [0, 4]);
        assert_eq!([put("checkpoints/step-12.safetensors"), put("checkpoints/step-20.safetensors.draft")], [13, 13]);
        assert_eq!([put("report.json"), put("other/step-99.safetensors")], [14, 14]);
        assert_eq!([put("run-42/checkpoints/step-0.safetensors"), put("run-42/report.json")], [15, 16]);
        let url = format!("file://{}", temp.path().display());
        assert_eq!(reached(Some(Path::new(&url))), 0, "nothing was kept there");
    }
}
