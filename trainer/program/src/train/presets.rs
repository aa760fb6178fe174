//! `kith train --list-presets`: names and descriptions of the presets.

use kith_cli::answer::{print_json, print_table};
use kith_run::preset::PRESETS;
use serde_json::json;

pub(super) fn list(as_json: bool) -> anyhow::Result<()> {
    if as_json {
        let entries: Vec<_> = PRESETS
            .iter()
            .map(|preset| json!({ "name": preset.name, "about": preset.about(), "run_file": preset.text }))
            .collect();
        return print_json(&entries);
    }
    let mut rows = vec![["name", "about"].map(String::from).to_vec()];
    rows.extend(PRESETS.iter().map(|preset| vec![preset.name.to_owned(), preset.about().to_owned()]));
    print_table(&rows)
}
