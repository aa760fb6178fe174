//! Round trips, and files that do not fit.

use std::path::PathBuf;

use kith_block::Form;
use kith_run::{
    config::{Kernels, ModelConfig, RunConfig, TrainConfig},
    model_kind::ModelKind,
};

use super::*;
use crate::model::oracle::error;

fn model(kind: ModelKind, form: Form, n_layers: usize, run_key: u64) -> Model {
    let config = ModelConfig {
        kind,
        attention: form,
        n_layers,
        heads: 2,
        hidden: 3,
        out_heads: 4,
        dropout: 0.0,
        root_weight: (kind == ModelKind::Sage).then_some(true),
        ..ModelConfig::default()
    };
    of_config(config, run_key)
}

fn of_config(model: ModelConfig, run_key: u64) -> Model {
    crate::engine::device::start();
    let config = RunConfig {
        model,
        train: TrainConfig { kernels: Kernels::Reference, ..TrainConfig::default() },
        edge_loss: None,
        ..RunConfig::default()
    };
    let model = Model::new(&config, 5, 2, run_key, Device::Cpu).unwrap();
    // Biases start at zero, where a mix-up would not be seen.
    let bits = Tensor::arange(model.weights().n_elements() as i64, (Kind::Float, Device::Cpu)).sin() * run_key as f64;
    model.weights().set(&(model.weights().flat() + bits));
    model
}

/// The tensors of a file: shapes and values.
fn tensors(path: &Path) -> BTreeMap<String, Tensor> {
    let bytes = fs::read(path).unwrap();
    let file = SafeTensors::deserialize(&bytes).unwrap();
    file.tensors().iter().map(|(name, view)| (name.clone(), read(view).unwrap())).collect()
}

fn write(path: &Path, tensors: &BTreeMap<String, Tensor>) {
    let tensors: Vec<(&String, &Tensor)> = tensors.iter().collect();
    Tensor::write_safetensors(&tensors, path).unwrap();
}

fn temp() -> (tempfile::TempDir, PathBuf) {
    let temp = tempfile::tempdir().unwrap();
    let path = temp.path().join("weights.safetensors");
    (temp, path)
}

#[test]
fn there_and_back() {
    let (_temp, path) = temp();
    for (kind, form) in [
        (ModelKind::Supergat, Form::Mx),
        (ModelKind::Supergat, Form::Sd),
        (ModelKind::Supergat, Form::Go),
        (ModelKind::Gat, Form::Go),
        (ModelKind::Gat, Form::V2),
        (ModelKind::Gcn, Form::Go),
        (ModelKind::Sage, Form::Go),
        (ModelKind::Gin, Form::Go),
    ] {
        let (from, to) = (model(kind, form, 3, 1), model(kind, form, 3, 2));
        assert_ne!(from.weights().flat(), to.weights().flat());
        save(&from, &path).unwrap();
        load(&to, &path).unwrap();
        assert_eq!(from.weights().flat(), to.weights().flat());
    }
}

#[test]
fn names_and_places() {
    let (_temp, path) = temp();
    for (form, source, destination) in [(Form::Mx, "att_l", "att_r"), (Form::Go, "att_src", "att_dst")] {
        let model = model(ModelKind::Gat, form, 2, 1);
        save(&model, &path).unwrap();
        let file = tensors(&path);
        let names: Vec<&str> = file.keys().map(String::as_str).collect();
        let mut expected = Vec::new();
        for layer in 0..2 {
            expected.extend([source, destination, "bias", "lin.weight"].map(|name| format!("convs.{layer}.{name}")));
        }
        expected.sort();
        assert_eq!(names, expected);

        let ours = |name| model.weights().get(name).unwrap().detach();
        assert_eq!(file["convs.0.lin.weight"], ours("layers.0.weight").tr());
        let halves = ours("layers.1.attention").view([4, 2, 2]);
        assert_eq!(file[&format!("convs.1.{destination}")], halves.select(1, 0).unsqueeze(0));
        assert_eq!(file[&format!("convs.1.{source}")], halves.select(1, 1).unsqueeze(0));
        assert_eq!(file["convs.1.bias"], ours("layers.1.bias"));
    }
    save(&model(ModelKind::Supergat, Form::Sd, 2, 1), &path).unwrap();
    assert_eq!(tensors(&path).len(), 4);
}

#[test]
fn features_of_edges_there_and_back() {
    let (_temp, path) = temp();
    let with_edges = |attention, run_key| {
        let config = ModelConfig {
            kind: ModelKind::Gat,
            attention,
            heads: 2,
            hidden: 3,
            out_heads: 4,
            edge_dim: Some(3),
            edge_weights: Some(true),
            ..ModelConfig::default()
        };
        of_config(config, run_key)
    };
    for form in [Form::Go, Form::V2] {
        let (from, to) = (with_edges(form, 1), with_edges(form, 2));
        save(&from, &path).unwrap();
        load(&to, &path).unwrap();
        assert_eq!(from.weights().flat(), to.weights().flat());
        let (file, ours) = (tensors(&path), |name| from.weights().get(name).unwrap().detach());
        assert_eq!(file["convs.0.lin_edge.weight"], ours("layers.0.edge.weight").tr());
        assert_eq!(file["convs.0.lin_edge.weight"].size(), [6, 4], "the weight and three features");
        if form == Form::Go {
            assert_eq!(file["convs.1.att_edge"], ours("layers.1.edge.attention").unsqueeze(0));
        }
    }
    let refused = save(&with_edges(Form::Mx, 1), &path).unwrap_err().to_string();
    assert!(refused.contains("PyG's SuperGATConv has no features of edges"), "{refused}");
}

/// PyG's second bias of GATv2 goes to the bias in scores and, with heads joined, to the layer's; an ε must be zero.
#[test]
fn biases_and_epsilon_of_others_are_taken_or_refused() {
    let (_temp, path) = temp();
    let (v2, read) = (model(ModelKind::Gat, Form::V2, 2, 1), model(ModelKind::Gat, Form::V2, 2, 2));
    save(&v2, &path).unwrap();
    let mut file = tensors(&path);
    for layer in 0..2 {
        let name = format!("convs.{layer}.lin_l.bias");
        assert_eq!(file[&name].abs().max().double_value(&[]), 0.0, "written as zeros");
        let bias = Tensor::arange(file[&name].numel() as i64, (Kind::Float, Device::Cpu));
        file.insert(name, bias);
    }
    write(&path, &file);
    load(&read, &path).unwrap();
    for (layer, heads, features) in [(0, 2, 3), (1, 4, 2)] {
        let bias = Tensor::arange(heads * features, (Kind::Float, Device::Cpu));
        let joined =
            if layer == 0 { bias.shallow_clone() } else { bias.view([heads, features]).mean_dim(0, false, None) };
        for (name, added) in [("target.bias", bias), ("bias", joined)] {
            let name = format!("layers.{layer}.{name}");
            let [before, after] = [&v2, &read].map(|model| model.weights().get(&name).unwrap().detach());
            assert!(error(&(after - before), &added) < 1e-5, "{name}");
        }
    }
    let gin = model(ModelKind::Gin, Form::Go, 2, 1);
    save(&gin, &path).unwrap();
    let mut file = tensors(&path);
    file.insert("convs.1.eps".to_owned(), Tensor::from_slice(&[0.5f32]));
    write(&path, &file);
    let refused = load(&gin, &path).unwrap_err().to_string();
    assert!(refused.contains("convs.1.eps: expected 0, found 0.5: train it in PyG with eps=0"), "{refused}");
}

#[test]
fn layers_without_biases_go_there_and_back() {
    let (_temp, path) = temp();
    for (kind, form) in [(ModelKind::Gat, Form::V2), (ModelKind::Gin, Form::Go), (ModelKind::Gcn, Form::Go)] {
        let plain = model(kind, form, 2, 1);
        let config = ModelConfig { bias: Some(false), ..plain.config().clone() };
        let (from, to) = (of_config(config.clone(), 1), of_config(config, 2));
        save(&from, &path).unwrap();
        assert!(!tensors(&path).keys().any(|name| name.ends_with("bias")));
        load(&to, &path).unwrap();
        assert_eq!(from.weights().flat(), to.weights().flat());
    }
}

/// Layers are ordered by their numbers, for any names of layers.
#[test]
fn layers_are_found_by_number() {
    let (_temp, path) = temp();
    let (from, to) = (model(ModelKind::Gat, Form::Go, 12, 1), model(ModelKind::Gat, Form::Go, 12, 2));
    save(&from, &path).unwrap();
    let saved = tensors(&path);
    // The second prefix is also that of Kith's own names.
    for (place, prefix) in ["gnn.conv", "layers."].into_iter().enumerate() {
        let rename = |name: &String| {
            let (layer, name) = name.strip_prefix("convs.").unwrap().split_once('.').unwrap();
            format!("{prefix}{}.{name}", layer.parse::<usize>().unwrap() + 1 - place)
        };
        let renamed = saved.iter().map(|(name, tensor)| (rename(name), tensor.shallow_clone())).collect();
        write(&path, &renamed);
        to.weights().set(&to.weights().flat().zeros_like());
        load(&to, &path).unwrap();
        assert!(error(to.weights().flat(), from.weights().flat()) == 0.0);
    }
}

/// Kith's own names are those of any model.
#[test]
fn every_model_is_written_and_read_by_name() {
    for (kind, form) in [(ModelKind::Gcn, Form::Go), (ModelKind::Supergat, Form::Dp), (ModelKind::Mlp, Form::Go)] {
        let (_temp, path) = temp();
        let (from, to) = (model(kind, form, 2, 1), model(kind, form, 2, 2));
        save_named(&from, &path).unwrap();
        assert!(tensors(&path).contains_key("layers.1.bias"));
        assert!(error(to.weights().flat(), from.weights().flat()) > 0.0);
        load(&to, &path).unwrap();
        assert!(error(to.weights().flat(), from.weights().flat()) == 0.0);
        let deeper = load(&model(kind, form, 3, 1), &path).unwrap_err().to_string();
        assert!(deeper.contains("layers.1.weight: expected the shape") || deeper.ends_with("is missing"), "{deeper}");
    }
}

#[test]
fn what_does_not_fit_is_named() {
    let (_temp, path) = temp();
    let mx = model(ModelKind::Supergat, Form::Mx, 2, 1);
    let before = mx.weights().flat().copy();
    let refusal = |model: &Model| load(model, &path).unwrap_err().to_string();
    let problem = |model: &Model| refusal(model).rsplit_once("safetensors: ").unwrap().1.to_owned();

    assert!(refusal(&mx).contains("No such file"), "{}", refusal(&mx));
    fs::write(&path, b"no tensors").unwrap();
    assert!(problem(&mx).starts_with("not a safetensors file"), "{}", problem(&mx));

    save(&mx, &path).unwrap();
    assert_eq!(
        problem(&model(ModelKind::Supergat, Form::Mx, 3, 1)),
        "expected 3 layers with lin.weight, found 2: the model must be of the kind and depth of the file"
    );
    assert_eq!(problem(&model(ModelKind::Gat, Form::Go, 2, 1)), "convs.0.att_dst is missing");
    assert_eq!(problem(&model(ModelKind::Supergat, Form::Sd, 2, 1)), "convs.0.att_l is not a weight of this model");
    let whole = tensors(&path);
    let change = |name: &str, tensor: Tensor| {
        let mut changed: BTreeMap<String, Tensor> =
            whole.iter().map(|(name, tensor)| (name.clone(), tensor.shallow_clone())).collect();
        changed.insert(name.to_owned(), tensor);
        write(&path, &changed);
    };
    change("convs.1.bias", Tensor::zeros([3], (Kind::Float, Device::Cpu)));
    assert_eq!(problem(&mx), "convs.1.bias: expected the shape [2], found [3]");
    change("convs.1.bias", Tensor::zeros([2], (Kind::Double, Device::Cpu)));
    assert_eq!(problem(&mx), "convs.1.bias: expected F32, found F64");

    assert_eq!(mx.weights().flat(), &before, "a refused file changes nothing");
    let dp = model(ModelKind::Supergat, Form::Dp, 2, 1);
    assert_eq!(problem(&dp), "PyG has no layer with plain dot products: use Kith's names (kith export --to kith)");
    let mlp = model(ModelKind::Mlp, Form::Go, 2, 1);
    assert_eq!(problem(&mlp), "an MLP has no graph layers: use Kith's names (kith export --to kith)");
    assert!(save(&mlp, &path).is_err());
    let own = ModelConfig { output_linear: Some(true), ..mx.config().clone() };
    let with_output = of_config(own, 1);
    let sentence = "PyG's layers have no tensor for output.weight: use Kith's names (kith export --to kith)";
    assert_eq!(problem(&with_output), sentence);
}
