//! `kith bench kernels`: time of a training step on this machine's GPU, and of PyG's with `--peers`.

use std::{fs, path::Path, process::Command};

use anyhow::{anyhow, bail};
use kith_cli::{bench::kernels::Args, progress::say, temporary::Temporary};
use kith_lab::speed::{Arrays, Benched, CASES, Case, Size, Timed, Timing, measure};
use kith_trainer::engine::{device, gpu::open};
use serde_json::{Value, json};

/// Python script that runs PyG: takes its arguments from the command line, and answers in JSON.
const PEER: &str = include_str!("kernels.py");

/// A case, Kith's timing, and PyG's.
struct Line {
    case: Case,
    found: Timing,
    peer: Option<Value>,
}

pub(super) fn run(args: &Args) -> anyhow::Result<u8> {
    let number = device::number_of(&args.device).map_err(anyhow::Error::msg)?;
    let Some(number) = number else { bail!("--device {}: expected a GPU, such as cuda:0", args.device) };
    let cases: Vec<&Case> = CASES.iter().filter(|case| is_meant(case, args.only.as_deref())).collect();
    if cases.is_empty() {
        bail!(
            "--only {:?}: expected a part of a case's name, such as {:?}",
            args.only.as_deref().unwrap_or_default(),
            CASES[0].name
        );
    }
    device::check(&args.device).map_err(anyhow::Error::msg)?;
    device::start();
    let gpu = open(number).map_err(|error| anyhow!("--device {}: {error}", args.device))?;
    let folder = Temporary::new("kith-bench-")?;
    let mut made: Option<Arrays> = None;
    let mut lines = Vec::new();
    for case in cases {
        say(case.name);
        let arrays = match made.take().filter(|arrays| arrays.size == case.size) {
            Some(arrays) => arrays,
            // Only lists are drawn from, which are made in place.
            None if case.asked == Timed::Sampling => Arrays::empty(case.size),
            None => Arrays::new(case.size),
        };
        let found = measure(&gpu, case, &arrays, args.steps as usize, folder.path())?;
        let peer = match &args.peers {
            Some(python) if case.asked == Timed::Step => Some(time_peer(python, case, &arrays)?),
            _ => None,
        };
        lines.push(Line { case: *case, found, peer });
        made = Some(arrays).filter(|arrays| !arrays.classes.is_empty());
    }
    print(args.json, &gpu.name(), &lines)?;
    Ok(0)
}

fn is_meant(case: &Case, only: Option<&str>) -> bool {
    only.is_none_or(|text| case.name.to_lowercase().contains(&text.to_lowercase()))
}

/// PyG's step on the same graph.
fn time_peer(python: &str, case: &Case, arrays: &Arrays) -> anyhow::Result<Value> {
    let folder = Temporary::new("kith-bench-")?;
    write(folder.path(), arrays)?;
    let Size { n_nodes, dim, n_classes, .. } = case.size;
    let (heads, features, out_heads) = case.shape;
    // A step of SuperGAT takes PyG seconds on large graphs.
    let n_steps = if case.model == Benched::Mx && case.size.n_edges > 500_000 { 5 } else { 20 };
    let numbers = [n_nodes, dim, n_classes].map(|number| number.to_string());
    let output = Command::new(python)
        .args(["-c", PEER])
        .arg(folder.path())
        .args(numbers)
        .arg(case.model.name())
        .args([heads, features, out_heads].map(|number| number.to_string()))
        .args([case.dropout.to_string(), n_steps.to_string()])
        .output()
        .map_err(|error| anyhow!("--peers {python}: {error}; give a Python that has PyG"))?;
    if !output.status.success() {
        let text = String::from_utf8_lossy(&output.stderr);
        bail!("--peers {python}: {}; give a Python that has PyG", text.lines().last().unwrap_or("it failed"));
    }
    serde_json::from_slice(&output.stdout).map_err(|error| anyhow!("--peers {python}: expected JSON, {error}"))
}

fn write(folder: &Path, arrays: &Arrays) -> anyhow::Result<()> {
    let edges: Vec<u8> = arrays.edges.iter().flatten().flat_map(|end| end.to_le_bytes()).collect();
    let rows: Vec<u8> = arrays.rows.iter().flat_map(|value| value.to_le_bytes()).collect();
    let classes: Vec<u8> = arrays.classes.iter().flat_map(|class| class.to_le_bytes()).collect();
    fs::write(folder.join("edges.u32"), edges)?;
    fs::write(folder.join("rows.f32"), rows)?;
    fs::write(folder.join("classes.i64"), classes)?;
    Ok(())
}

#[allow(clippy::print_stdout)]
fn print(is_json: bool, device: &str, lines: &[Line]) -> anyhow::Result<()> {
    if is_json {
        let case = |line: &Line| {
            json!({
                "case": line.case.name,
                "milliseconds": line.found.milliseconds,
                "measure_milliseconds": line.found.measure_milliseconds,
                "memory_bytes": line.found.memory_bytes,
                "peer": line.peer,
            })
        };
        let cases: Vec<Value> = lines.iter().map(case).collect();
        println!("{}", serde_json::to_string(&json!({ "device": device, "cases": cases }))?);
        return Ok(());
    }
    println!("on {device}");
    let heading = ["case", "Kith, ms", "evaluation", "memory, MiB", "PyG, ms", "memory, MiB", "PyG's form"];
    println!("{}", row(&heading.map(str::to_owned)));
    for Line { case, found, peer } in lines {
        let of_peer = |name: &str, scale: f64| {
            let value = peer.as_ref().and_then(|peer| peer[name].as_f64());
            value.map_or_else(|| "-".to_owned(), |value| format!("{:.1}", value * scale))
        };
        let mib = 1.0 / (1u64 << 20) as f64;
        println!(
            "{}",
            row(&[
                case.name.to_owned(),
                format!("{:.3}", found.milliseconds),
                format!("{:.3}", found.measure_milliseconds),
                format!("{:.0}", found.memory_bytes as f64 * mib),
                of_peer("milliseconds", 1.0),
                of_peer("memory_bytes", mib),
                peer.as_ref().and_then(|peer| peer["form"].as_str()).unwrap_or("-").to_owned(),
            ])
        );
    }
    Ok(())
}

fn row(cells: &[String; 7]) -> String {
    let [name, rest @ ..] = cells;
    let cells: String = rest.iter().map(|cell| format!("{cell:>13}")).collect();
    format!("{name:<40}{cells}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cases_are_chosen_by_their_names() {
        let n = |only| CASES.iter().filter(|case| is_meant(case, only)).count();
        assert_eq!((n(None), n(Some("Arxiv")), n(Some("runs of")), n(Some("nothing"))), (20, 8, 3, 0));
    }
}
