//! `kith devices --warm`: compiles the GPU kernels of models into the kernel cache.

use std::path::Path;

use anyhow::{anyhow, bail};
use kith_cli::{
    answer::{print, print_json},
    devices::Args,
    train::{Named, find},
};
use kith_partition::dataset::catalog;
use kith_run::config::{Kernels, Mode};
use kith_store::Manifest;
use kith_trainer::engine::{
    device::{CudaReport, devices},
    gpu::{Constants, Warmed, compiler_version, kernels_of, warm},
};
use serde_json::{Value, json};

/// A set of kernels that is compiled together.
struct Set {
    /// As in: cora/gat, layer 1.
    name: String,
    constants: Constants,
}

/// Counts of a graph.
#[derive(Clone, Copy)]
struct Counts {
    dim: usize,
    n_classes: usize,
}

pub(super) fn run(args: &Args) -> anyhow::Result<()> {
    let sets = sets(args)?;
    let architectures = architectures(args)?;
    let compiler = compiler_version()?;
    let width = sets.iter().map(|set| set.name.len()).max().unwrap_or(0);
    let (mut folders, mut kernels) = (Vec::new(), Vec::new());
    for architecture in &architectures {
        for Set { name, constants } in &sets {
            let warmed = warm(architecture, constants)?;
            if args.json {
                kernels.push(object(architecture, name, &warmed));
            } else {
                print(&format!("{architecture}  {name:width$}  {}\n", outcome(&warmed)))?;
            }
            if !folders.contains(&warmed.folder) {
                folders.push(warmed.folder);
            }
        }
    }
    if args.json {
        return print_json(&json!({ "compiler": compiler, "kernels": kernels }));
    }
    let folders: Vec<String> = folders.iter().map(|folder| folder.display().to_string()).collect();
    print(&format!("kernel cache: {} (CUDA {compiler})\n", folders.join(", ")))
}

fn outcome(warmed: &Warmed) -> String {
    match warmed.is_new {
        true => format!("compiled in {:.1} s", warmed.took.as_secs_f64()),
        false => "already there".to_owned(),
    }
}

fn object(architecture: &str, name: &str, warmed: &Warmed) -> Value {
    json!({
        "architecture": architecture,
        "name": name,
        "compiled": warmed.is_new,
        "seconds": warmed.took.as_secs_f64(),
        "folder": warmed.folder,
    })
}

/// Architectures to compile for: those asked for, or those of this machine's GPUs.
fn architectures(args: &Args) -> anyhow::Result<Vec<String>> {
    let mut all = match devices_if(args.arch.is_empty()) {
        None => args.arch.clone(),
        Some(CudaReport::Devices(devices)) => devices.into_iter().map(|device| device.architecture).collect(),
        Some(CudaReport::Missing(_)) => {
            bail!("no GPU was found, `kith devices` says why: give an architecture, as in --arch sm_90")
        }
    };
    all.sort();
    all.dedup();
    Ok(all)
}

fn devices_if(is_asked: bool) -> Option<CudaReport> {
    is_asked.then(|| devices().cuda)
}

/// The kernels of all models, and those of each layer of each run.
fn sets(args: &Args) -> anyhow::Result<Vec<Set>> {
    let graph = args.graph.as_deref().map(counts_of_graph).transpose()?;
    let mut sets = vec![Set { name: "all models".to_owned(), constants: Constants::NO_LAYER }];
    for run in &args.warm {
        let (mut file, dataset) = match find(run)? {
            Named::Preset(preset) => (preset.run_file()?, catalog::find(preset.dataset())),
            Named::File(file) => (file, None),
        };
        let published = dataset.map(|dataset| Counts {
            dim: dataset.published.dim as usize,
            n_classes: dataset.published.n_classes as usize,
        });
        let Some(Counts { dim, n_classes }) = graph.or(published) else {
            bail!("{run}: the number of classes is not known: give the graph with --graph");
        };
        file.set_mode_if_open(Mode::FullBatch); // Kernels are the same in mini-batches.
        let config = file.resolve()?;
        let layers =
            kernels_of(&config, dim, n_classes).map_err(|sentence| anyhow!("{run}: {sentence}: leave it out"))?;
        if config.train.kernels == Kernels::Reference {
            bail!("{run}: train.kernels = \"reference\" uses no GPU kernels of Kith: leave it out");
        }
        let named = |(layer, constants)| Set { name: format!("{run}, layer {}", layer + 1), constants };
        sets.extend(layers.into_iter().enumerate().map(named));
    }
    Ok(sets)
}

fn counts_of_graph(dir: &Path) -> anyhow::Result<Counts> {
    if !dir.is_dir() {
        bail!("{}: no such folder: give a store or a partitioned graph with --graph", dir.display());
    }
    let contents = Manifest::read(dir)?.contents;
    let Some(labels) = contents.labels else {
        bail!("{}: the graph has no labels: import it with --labels", dir.display());
    };
    let dim = contents.features.map_or(1, |rows| rows.dim as usize);
    Ok(Counts { dim, n_classes: labels.n_classes as usize })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(warm: &[&str], graph: Option<&Path>) -> Args {
        let warm = warm.iter().map(|run| (*run).to_owned()).collect();
        Args { warm, arch: vec!["sm_90".to_owned()], graph: graph.map(Path::to_owned), json: false }
    }

    fn sentence(warm: &[&str], graph: Option<&Path>) -> String {
        sets(&args(warm, graph)).err().expect("refused").to_string()
    }

    #[test]
    fn every_layer_of_a_preset_has_its_kernels() {
        let sets = sets(&args(&["cora/gat", "ppi/sage", "cora-ml/gat", "cora-full/gat"], None)).unwrap();
        let names: Vec<&str> = sets.iter().map(|set| set.name.as_str()).collect();
        assert_eq!(names[..3], ["all models", "cora/gat, layer 1", "cora/gat, layer 2"]);
        assert!(names.contains(&"ppi/sage, layer 1"));
        let of = |name: &str| sets.iter().find(|set| set.name == name).unwrap().constants;
        assert_eq!(of("cora/gat, layer 2"), of("cora-ml/gat, layer 2"), "both have 7 classes");
        assert_ne!(of("cora/gat, layer 2"), of("cora-full/gat, layer 2"), "7 and 70 classes");
    }

    #[test]
    fn runs_without_kernels_are_refused() {
        assert!(sentence(&["cora/cgat"], None).starts_with("cora/cgat: cgat has no kernels for GPUs: leave it out"));
        let unknown = "the number of classes is not known: give the graph with --graph";
        for run in ["gat", "partition-graph/gat"] {
            assert_eq!(sentence(&[run], None), format!("{run}: {unknown}"));
        }
        assert!(sentence(&["cora/gta"], None).contains("did you mean cora/gat?"));
        assert!(sentence(&["gat"], Some(Path::new("/nowhere"))).contains("/nowhere: no such folder: give a store"));
    }
}
