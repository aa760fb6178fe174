//! One attention layer on hidden rows, fused and in tensor operations, against the oracle in doubles: outputs, edge
//! loss, and the gradients of rows and weights.

use std::sync::Arc;

use kith_block::{Block, BlockError, Form, PairConfig, Pairs, Subset};
use kith_draw::{Name, Purpose, Stream};
use kith_kernels::{AttentionLayer, AttentionWeights, Dropout, LayerDraws, LayerInput};
use kith_trainer::model::{
    LayerShape,
    oracle::{Answer, AttentionCase, differentiate, error},
    reference::{Edges, ReferenceStep, attend, product},
};
use tch::{Device, Kind, Tensor};

const OUTPUT_ERROR: f64 = 5e-6;
const GRADIENT_ERROR: f64 = 2e-5;
const FORMS: [Form; 5] = Form::ALL;
const EDGE_LOSS_GRADIENT: f64 = 2.0;
const RUN_KEY: u64 = 5;
const STEP: u64 = 3;
const LAYER: u32 = 1;

fn stream(purpose: Purpose) -> Stream {
    Name { run_key: RUN_KEY, purpose, step: STEP, layer: LAYER }.stream()
}

fn normal(tensor: u64, shape: &[i64], scale: f64) -> Tensor {
    let n = shape.iter().product::<i64>() as u64;
    let value = |element| (stream(Purpose::Generator).draws(tensor, element, 0).normal() * scale) as f32;
    Tensor::from_slice(&(0..n).map(value).collect::<Vec<f32>>()).view(shape)
}

/// Node 0 is a hub, the last tenth have no neighbors, some edges are doubled, some are self-loops.
fn block(n_nodes: u64, hub: u64) -> Arc<Block> {
    let draw = |a, b, n| stream(Purpose::Neighbor).draws(a, b, 0).below(n);
    let lists: Vec<Vec<u64>> = (0..n_nodes)
        .map(|node| {
            let n_neighbors = match node {
                0 => hub,
                _ if node >= n_nodes - n_nodes / 10 => 0,
                _ => draw(node, 0, 9),
            };
            let mut list: Vec<u64> = (0..n_neighbors).map(|k| draw(node, k + 1, n_nodes)).collect();
            list.extend(list.first().copied().filter(|_| node % 7 == 1));
            list.extend((node % 5 == 2).then_some(node));
            list.sort_unstable();
            list
        })
        .collect();
    let n_edges = lists.iter().map(|list| list.len() as u64).sum();
    let of = |node: u64| Ok::<_, BlockError>(lists[node as usize].iter().copied());
    Arc::new(Block::full(n_nodes, n_edges, of).unwrap())
}

fn step<'a>(factors: &Tensor, pairs: &'a Pairs) -> ReferenceStep<'a> {
    ReferenceStep { factors: Some(factors.shallow_clone()), in_sums: None, pairs: Some(pairs), edge_terms: None }
}

/// A layer with everything it reads and everything that comes back.
struct Layer {
    block: Arc<Block>,
    shape: LayerShape,
    form: Form,
    dropout: f64,
    rows: Tensor,
    weights: Vec<Tensor>,
    rows_gradient: Tensor,
}

impl Layer {
    fn new(block: &Arc<Block>, form: Form, shape: LayerShape, dropout: f64) -> Layer {
        let LayerShape { dim, heads, features, .. } = shape;
        let [n_nodes, dim, heads, features] = [block.n_sources(), dim, heads, features].map(|size| size as i64);
        let width = shape.width() as i64;
        let mut weights = vec![normal(1, &[dim, heads * features], 1.0 / (dim as f64).sqrt())];
        if form.has_halves() {
            weights.push(normal(2, &[heads, 2 * features], 0.4));
        }
        if form.is_dynamic() {
            weights.push(normal(2, &[heads, features], 0.4));
            weights.push(normal(6, &[n_nodes, heads * features], 1.0));
        }
        weights.push(normal(3, &[width], 0.3));
        let [rows, rows_gradient] =
            [(4, dim), (5, width)].map(|(tensor, width)| normal(tensor, &[n_nodes, width], 1.0));
        Layer { block: block.clone(), shape, form, dropout, rows, weights, rows_gradient }
    }

    fn pairs(&self) -> Pairs {
        let config = PairConfig { negatives: 0.5, kept: 0.8, subset: Subset::Union, excludes_reverse: true };
        let block = &*self.block;
        let is_edge = |source, destination| block.has_edge(source, destination);
        Pairs::draw(RUN_KEY, STEP, LAYER, block, config, is_edge)
    }

    fn row_factors(&self) -> Tensor {
        let mut factors = vec![0.0; self.block.n_sources() * self.shape.dim];
        for (position, out) in factors.chunks_mut(self.shape.dim).enumerate() {
            Dropout::new(self.dropout).row_factors(stream(Purpose::HiddenDropout), position as u64, out);
        }
        Tensor::from_slice(&factors).view_as(&self.rows)
    }

    fn attention_factors(&self) -> Tensor {
        let heads = self.shape.heads;
        let mut factors = vec![0.0; self.block.n_edges() * heads];
        for destination in 0..self.block.n_destinations() {
            for edge in self.block.edges_into(destination) {
                let source = self.block.sources()[edge].into();
                let out = &mut factors[edge * heads..][..heads];
                let stream = stream(Purpose::AttentionDropout);
                Dropout::new(self.dropout).edge_factors(stream, destination as u64, source, out);
            }
        }
        Tensor::from_slice(&factors).view([-1, heads as i64])
    }

    /// Expected result; the layer begins with the ELU of its input.
    fn expected(&self) -> Answer {
        let (row_factors, attention_factors, pairs) = (self.row_factors(), self.attention_factors(), self.pairs());
        let edges = Edges::new(&self.block, Device::Cpu);
        let [row_factors, attention_factors] = [row_factors, attention_factors].map(|t| t.to_kind(Kind::Double));
        self.differentiate(|rows, weights| {
            let rows = rows.elu() * &row_factors;
            let shape = (self.shape, self.form);
            let weights = self.named(weights);
            let products = product(&rows, weights.weight);
            let attended = attend(&products, &edges, weights, shape, &step(&attention_factors, &pairs));
            (attended.rows, attended.edge_loss)
        })
    }

    fn differentiate(&self, layer: impl FnOnce(&Tensor, &[Tensor]) -> (Tensor, Option<Tensor>)) -> Answer {
        let weights: Vec<&Tensor> = self.weights.iter().collect();
        differentiate(&self.rows, &weights, (&self.rows_gradient, EDGE_LOSS_GRADIENT), layer)
    }

    fn named<'a>(&self, weights: &'a [Tensor]) -> AttentionWeights<'a> {
        AttentionWeights {
            weight: &weights[0],
            attention: (self.form.has_halves() || self.form.is_dynamic()).then(|| &weights[1]),
            targets: self.form.is_dynamic().then(|| &weights[2]),
            bias: weights.last().unwrap(),
        }
    }

    /// Result of the fused layer: it computes in floats, for any type of input and output.
    fn fused(&self) -> Answer {
        let LayerShape { heads, features, concat, .. } = self.shape;
        let layer = AttentionLayer { form: self.form, heads, features, is_mean: !concat };
        let draws = LayerDraws {
            run_key: RUN_KEY,
            step: STEP,
            layer: LAYER,
            input_dropout: self.dropout,
            reads_features: false,
            attention_dropout: self.dropout,
        };
        self.differentiate(|rows, weights| {
            let rows = rows.to_kind(Kind::Float);
            let weights: Vec<Tensor> = weights.iter().map(|weight| weight.to_kind(Kind::Float)).collect();
            let input = LayerInput::Hidden(&rows);
            let step = kith_kernels::AttentionStep { draws: Some(draws), pairs: Some(self.pairs()), left_out: None };
            layer.forward(input, self.named(&weights), &self.block, step).unwrap()
        })
    }

    /// The same by tensor operations in floats.
    fn reference(&self) -> Answer {
        let (row_factors, attention_factors, pairs) = (self.row_factors(), self.attention_factors(), self.pairs());
        let edges = Edges::new(&self.block, Device::Cpu);
        self.differentiate(|rows, weights| {
            let rows = rows.to_kind(Kind::Float).elu() * &row_factors;
            let weights: Vec<Tensor> = weights.iter().map(|weight| weight.to_kind(Kind::Float)).collect();
            let shape = (self.shape, self.form);
            let weights = self.named(&weights);
            let products = product(&rows, weights.weight);
            let attended = attend(&products, &edges, weights, shape, &step(&attention_factors, &pairs));
            (attended.rows, attended.edge_loss)
        })
    }

    #[track_caller]
    fn check(&self) {
        let expected = self.expected();
        for (name, found) in [("reference", self.reference()), ("fused", self.fused())] {
            let within = |what: &str, found: &Tensor, expected: &Tensor, limit: f64| {
                let error = error(found, expected);
                assert!(
                    error < limit,
                    "{name}, {what}: {error:e}: {:?} {:?} dropout {}",
                    self.form,
                    self.shape,
                    self.dropout
                );
            };
            within("rows", &found.rows, &expected.rows, OUTPUT_ERROR);
            let edge_losses = [found.edge_loss, expected.edge_loss.as_ref().map(Tensor::shallow_clone)];
            let [found_loss, expected_loss] = edge_losses.map(|loss| loss.expect("there are pairs").view([1]));
            within("edge loss", &found_loss, &expected_loss, OUTPUT_ERROR);
            within("gradient of rows", &found.rows_gradient, &expected.rows_gradient, GRADIENT_ERROR);
            for (place, expected) in expected.weight_gradients.iter().enumerate() {
                within(
                    &format!("gradient of weight {place}"),
                    &found.weight_gradients[place],
                    expected,
                    GRADIENT_ERROR,
                );
            }
        }
    }
}

#[test]
fn every_form_with_and_without_dropout() {
    kith_trainer::engine::device::start();
    let block = block(200, 50);
    for form in FORMS {
        for dropout in [0.0, 0.6] {
            for concat in [true, false] {
                Layer::new(&block, form, LayerShape { dim: 17, heads: 8, features: 8, concat }, dropout).check();
            }
        }
    }
}

#[test]
fn every_width_and_number_of_heads() {
    kith_trainer::engine::device::start();
    let block = block(90, 30);
    for (heads, features, dim) in [
        (1, 1, 1),
        (1, 7, 3),
        (2, 3, 64),
        (3, 5, 5),
        (5, 16, 8),
        (7, 2, 31),
        (8, 16, 128),
        (8, 121, 9),
        (11, 3, 4),
        (16, 9, 16),
        (17, 4, 6),
        (1, 256, 12),
        (4, 256, 12),
        (1, 40, 256),
    ] {
        for form in [Form::Go, Form::Sd, Form::Mx, Form::V2] {
            for concat in [true, false] {
                Layer::new(&block, form, LayerShape { dim, heads, features, concat }, 0.3).check();
            }
        }
    }
}

/// Rows of more than one piece: a hub of 5,000, and more nodes than one piece of 4,096.
#[test]
fn long_rows() {
    kith_trainer::engine::device::start();
    let block = block(6000, 5000);
    for form in FORMS {
        Layer::new(&block, form, LayerShape { dim: 6, heads: 3, features: 4, concat: true }, 0.2).check();
    }
}

/// [`AttentionCase`] equals the closure above, for callers that have only a layer's parts.
#[test]
fn a_case_is_a_layer() {
    kith_trainer::engine::device::start();
    let layer = Layer::new(&block(50, 20), Form::Mx, LayerShape { dim: 6, heads: 3, features: 4, concat: true }, 0.2);
    let (row_factors, attention_factors, pairs) = (layer.row_factors(), layer.attention_factors(), layer.pairs());
    let case = AttentionCase {
        block: &layer.block,
        rows: &layer.rows,
        row_factors: Some(&row_factors),
        weights: layer.named(&layer.weights),
        shape: layer.shape,
        form: layer.form,
        attention_factors: Some(&attention_factors),
        pairs: Some(&pairs),
    };
    let found = case.answer(&layer.rows_gradient, EDGE_LOSS_GRADIENT);
    let edges = Edges::new(&layer.block, Device::Cpu);
    let double = |tensor: &Tensor| tensor.to_kind(Kind::Double);
    let expected = layer.differentiate(|rows, weights| {
        let rows = rows * double(&row_factors);
        let factors = double(&attention_factors);
        let shape = (layer.shape, layer.form);
        let weights = layer.named(weights);
        let products = product(&rows, weights.weight);
        let attended = attend(&products, &edges, weights, shape, &step(&factors, &pairs));
        (attended.rows, attended.edge_loss)
    });
    assert_eq!(found.rows, expected.rows);
    assert_eq!(found.edge_loss, expected.edge_loss);
    assert_eq!(found.rows_gradient, expected.rows_gradient);
    assert_eq!(found.weight_gradients, expected.weight_gradients);
}
