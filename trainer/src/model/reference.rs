//! Every layer in plain tensor operations, on any device and with any float type: the reference for kernels.
//!
//! Shapes: N sources, M destinations, E edges, D width of the input, K heads, F features per head, P pairs.
//!
//! Rows are selected with `index` and added with `index_put`: unlike with `index_select` and `index_add`, sums have one
//! order on every device.

use kith_block::{Block, Form, Pairs};
use kith_kernels::{AttentionWeights, EdgeMask, sum_of_weights};
use tch::{Device, Tensor};

use crate::{
    loss::pair_loss,
    model::{block_edges::destination_of_edges, layer_shape::LayerShape},
};

/// Negative slope of leakyReLU.
pub const SLOPE: f64 = 0.2;

/// Added to the sum that attention weights are divided by.
pub const EPSILON: f64 = 1e-16;

/// Rows of a product whose part of the weights' gradient is summed before the next piece starts.
const PIECE_ROWS: i64 = 4096;

/// The edges of a block as tensors.
#[derive(Debug)]
pub struct Edges {
    /// Positions of sources, E.
    pub sources: Tensor,
    /// Positions of destinations, E, ascending.
    pub destinations: Tensor,
    /// Out-degree of each node, N.
    pub out_degrees: Tensor,
    /// Edges into each destination, M.
    pub degrees: Tensor,
    /// Weight of each edge, E; degrees are sums of them.
    pub weights: Option<Tensor>,
}

impl Edges {
    /// The edges of a block on a device.
    pub fn new(block: &Block, device: Device) -> Edges {
        let differences = |indptr: &[usize]| {
            let degrees: Vec<i64> = indptr.windows(2).map(|pair| (pair[1] - pair[0]) as i64).collect();
            Tensor::from_slice(&degrees).to_device(device)
        };
        Edges {
            sources: positions(block.sources().iter().copied(), device),
            destinations: positions(destination_of_edges(block), device),
            out_degrees: differences(block.out_indptr()),
            degrees: differences(block.indptr()),
            weights: None,
        }
    }

    /// The same edges: tensors are shared.
    pub(super) fn copy(&self) -> Edges {
        let Edges { sources, destinations, out_degrees, degrees, weights } = self;
        Edges {
            sources: sources.shallow_clone(),
            destinations: destinations.shallow_clone(),
            out_degrees: out_degrees.shallow_clone(),
            degrees: degrees.shallow_clone(),
            weights: weights.as_ref().map(Tensor::shallow_clone),
        }
    }

    /// The edges of a block that a layer does not leave out.
    pub fn in_sums(block: &Block, left_out: &EdgeMask, device: Device) -> Edges {
        let is_in = |edge: &usize| !left_out.leaves_out(*edge);
        let degrees = |n: usize, degree: &dyn Fn(usize) -> usize| {
            Tensor::from_slice(&(0..n).map(|node| degree(node) as i64).collect::<Vec<_>>()).to_device(device)
        };
        let destinations = destination_of_edges(block);
        let of = |ends: &[u32]| positions((0..block.n_edges()).filter(is_in).map(|edge| ends[edge]), device);
        Edges {
            sources: of(block.sources()),
            destinations: of(&destinations),
            out_degrees: degrees(block.n_sources(), &|node| EdgeMask::n_from(Some(left_out), block, node)),
            degrees: degrees(block.n_destinations(), &|node| EdgeMask::n_into(Some(left_out), block, node)),
            weights: None,
        }
    }

    /// The same with the weights of the block's edges that are not left out, and sums of them as degrees.
    pub fn with_weights(self, block: &Block, left_out: Option<&EdgeMask>) -> Edges {
        let device = self.sources.device();
        let all = block.known_weights();
        let is_in = |edge: &usize| left_out.is_none_or(|left_out| !left_out.leaves_out(*edge));
        let weights: Vec<f32> =
            (0..block.n_edges()).filter(is_in).map(|edge| all.map_or(1.0, |all| all[edge])).collect();
        let from = |node: usize| block.out_edges()[block.out_indptr()[node]..block.out_indptr()[node + 1]].iter();
        let out_degrees: Vec<f32> = (0..block.n_sources())
            .map(|node| sum_of_weights(left_out, block, from(node).map(|edge| *edge as usize)).degree())
            .collect();
        let degrees: Vec<f32> = (0..block.n_destinations())
            .map(|node| sum_of_weights(left_out, block, block.edges_into(node)).degree())
            .collect();
        let on_device = |values: &[f32]| Tensor::from_slice(values).to_device(device);
        Edges {
            out_degrees: on_device(&out_degrees),
            degrees: on_device(&degrees),
            weights: Some(on_device(&weights)),
            ..self
        }
    }

    /// Messages times the weights of their edges, if they have some.
    fn weighted(&self, messages: Tensor) -> Tensor {
        match &self.weights {
            None => messages,
            Some(weights) => weights.to_kind(messages.kind()).unsqueeze(-1) * messages,
        }
    }

    /// The same with degrees of sources from elsewhere, by position.
    pub fn with_out_degrees(self, degree: impl Fn(usize) -> f32) -> Edges {
        let n_sources = self.out_degrees.size()[0] as usize;
        let degrees: Vec<f32> = (0..n_sources).map(degree).collect();
        let out_degrees = Tensor::from_slice(&degrees).to_device(self.out_degrees.device());
        Edges { out_degrees, ..self }
    }

    fn n_destinations(&self) -> i64 {
        self.degrees.size()[0]
    }

    /// The sum of each destination's edges: E × … → M × ….
    pub(super) fn sum_by_destination(&self, values: &Tensor) -> Tensor {
        let mut shape = values.size();
        shape[0] = self.n_destinations();
        let zeros = Tensor::zeros(shape, (values.kind(), values.device()));
        zeros.index_put(&[Some(&self.destinations)], values, true)
    }

    /// The largest of each destination's edges: E × K → M × K.
    pub(super) fn max_by_destination(&self, values: &Tensor) -> Tensor {
        let shape = [self.n_destinations(), values.size()[1]];
        let lowest = Tensor::full(shape, f64::NEG_INFINITY, (values.kind(), values.device()));
        lowest.internal_scatter_reduce(0, &self.destinations.unsqueeze(1).expand_as(values), values, "amax", true)
    }
}

pub(super) fn positions(positions: impl IntoIterator<Item = u32>, device: Device) -> Tensor {
    Tensor::from_slice(&positions.into_iter().map(i64::from).collect::<Vec<_>>()).to_device(device)
}

pub(super) fn pick(values: &Tensor, positions: &Tensor) -> Tensor {
    values.index(&[Some(positions)])
}

/// Rows × weight, cut by rows so that the weight's gradient is a sum of pieces in order.
pub fn product(rows: &Tensor, weight: &Tensor) -> Tensor {
    let n_rows = rows.size()[0];
    if n_rows <= PIECE_ROWS {
        return rows.matmul(weight);
    }
    let pieces: Vec<Tensor> = (0..n_rows)
        .step_by(PIECE_ROWS as usize)
        .map(|start| rows.narrow(0, start, PIECE_ROWS.min(n_rows - start)).matmul(weight))
        .collect();
    Tensor::cat(&pieces, 0)
}

/// Output of an attention layer.
#[derive(Debug)]
pub struct Attended {
    /// M × width.
    pub rows: Tensor,
    /// Attention weights before dropout, E × K.
    pub attention: Tensor,
    /// The mean loss of the pairs, where there are some.
    pub edge_loss: Option<Tensor>,
}

/// Draws of an attention layer in one step.
#[derive(Debug, Default)]
pub struct ReferenceStep<'a> {
    /// Dropout factors of the attention weights, E × K.
    pub factors: Option<Tensor>,
    /// 1 for edges that get attention, 0 for the others, E × 1; `None` if all get it.
    pub in_sums: Option<Tensor>,
    /// Pairs of the edge loss.
    pub pairs: Option<&'a Pairs>,
    /// The edges' own part of their scores.
    pub edge_terms: Option<EdgeTerms>,
}

/// The edges' own part of their scores.
#[derive(Debug)]
pub struct EdgeTerms {
    /// r·U, E × K × F.
    pub products: Tensor,
    /// b, K × F; `None` for a dynamic attention.
    pub attention: Option<Tensor>,
}

/// An attention layer on products N × (K · F): scores, softmax by destination, weighted sum.
pub fn attend(
    products: &Tensor,
    edges: &Edges,
    weights: AttentionWeights<'_>,
    (shape, form): (LayerShape, Form),
    step: &ReferenceStep<'_>,
) -> Attended {
    let hidden = products.view([-1, shape.heads as i64, shape.features as i64]);
    let scorer = Scorer::of_targets(&hidden, (weights.attention, weights.targets), form);
    let Scores { scores, logits } = scorer.score_with(&edges.sources, &edges.destinations, step.edge_terms.as_ref());
    let bent = if form.is_dynamic() { scores } else { leaky_relu(&scores) };
    let attention = softmax(edges, &bent, step.in_sums.as_ref());
    let dropped = step.factors.as_ref().map(|factors| &attention * factors);
    let rows = listen(&hidden, edges, dropped.as_ref().unwrap_or(&attention), weights.bias, shape);
    let edge_loss = step.pairs.map(|pairs| edge_loss(&scorer, &logits, pairs));
    Attended { rows, attention, edge_loss }
}

/// The sum of the neighbors, N × K × F, each times what dropout left of its attention weights, E × K; heads side by side
/// or averaged, and the bias.
pub(super) fn listen(hidden: &Tensor, edges: &Edges, attention: &Tensor, bias: &Tensor, shape: LayerShape) -> Tensor {
    let summed = edges.sum_by_destination(&(pick(hidden, &edges.sources) * attention.unsqueeze(-1)));
    let joined = if shape.concat { summed.flatten(1, 2) } else { mean_of_heads(&summed) };
    joined + bias
}

/// M × K × … → M × ….
fn mean_of_heads(values: &Tensor) -> Tensor {
    values.mean_dim(1, false, values.kind())
}

pub(super) fn leaky_relu(values: &Tensor) -> Tensor {
    values.where_self(&values.gt(0.0), &(values * SLOPE))
}

/// Of each destination's edges; those that `kept`, E × K or E × 1, does not keep get nothing.
pub(super) fn softmax(edges: &Edges, scores: &Tensor, kept: Option<&Tensor>) -> Tensor {
    // Below every score, and yet finite.
    let lowest = |kept: &Tensor| scores.masked_fill(&kept.eq(0.0), -1e30);
    let scores = kept.map_or_else(|| scores.shallow_clone(), lowest);
    // The largest score only keeps exponents small; it needs no gradient.
    let largest = edges.max_by_destination(&scores.detach());
    let exps = (&scores - pick(&largest, &edges.destinations)).exp();
    let exps = kept.map_or_else(|| exps.shallow_clone(), |kept| &exps * kept);
    let sums = edges.sum_by_destination(&exps) + EPSILON;
    exps / pick(&sums, &edges.destinations)
}

/// Scores pairs of rows by a form.
pub(super) struct Scorer<'a> {
    hidden: &'a Tensor,
    /// a₁·h and a₂·h of each row, N × K.
    halves: Option<(Tensor, Tensor)>,
    /// a, K × F, and t of each destination, M × K × F, of a dynamic attention.
    dynamic: Option<(Tensor, Tensor)>,
    form: Form,
}

/// Attention scores and edge loss logits of some pairs: both P × K.
pub(super) struct Scores {
    pub(super) scores: Tensor,
    logits: Tensor,
}

impl Scorer<'_> {
    /// Of rows N × K × F.
    pub(super) fn new<'a>(hidden: &'a Tensor, attention: Option<&Tensor>, form: Form) -> Scorer<'a> {
        Scorer::of_targets(hidden, (attention, None), form)
    }

    /// The same with t of each destination, M × (K · F), of a dynamic attention.
    fn of_targets<'a>(
        hidden: &'a Tensor,
        (attention, targets): (Option<&Tensor>, Option<&Tensor>),
        form: Form,
    ) -> Scorer<'a> {
        let features = hidden.size()[2];
        let halves = form.has_halves().then(|| {
            let attention = attention.expect("the form has attention weights");
            let half =
                |start| (hidden * attention.narrow(1, start, features)).sum_dim_intlist(-1, false, hidden.kind());
            (half(0), half(features))
        });
        let dynamic = form.is_dynamic().then(|| {
            let attention = attention.expect("the form has attention weights").shallow_clone();
            let targets = targets.expect("the form has targets");
            (attention, targets.view([-1, hidden.size()[1], features]))
        });
        Scorer { hidden, halves, dynamic, form }
    }

    pub(super) fn score(&self, sources: &Tensor, destinations: &Tensor) -> Scores {
        self.score_with(sources, destinations, None)
    }

    /// The same of edges that may have a part of their own in scores, and have none in logits.
    fn score_with(&self, sources: &Tensor, destinations: &Tensor, terms: Option<&EdgeTerms>) -> Scores {
        let kind = self.hidden.kind();
        let linear = |terms: &EdgeTerms| {
            let attention = terms.attention.as_ref().expect("only a dynamic attention has none");
            (&terms.products * attention).sum_dim_intlist(-1, false, kind)
        };
        let plus_terms = |scores: &Tensor| terms.map_or_else(|| scores.shallow_clone(), |terms| scores + linear(terms));
        let products = || {
            let products = pick(self.hidden, destinations) * pick(self.hidden, sources);
            products.sum_dim_intlist(-1, false, self.hidden.kind())
        };
        let halves = || {
            let (of_destination, of_source) = self.halves.as_ref().expect("the form has attention weights");
            pick(of_destination, destinations) + pick(of_source, sources)
        };
        let both = |logits: Tensor| Scores { scores: plus_terms(&logits), logits };
        match self.form {
            Form::Go => both(halves()),
            Form::Dp => both(products()),
            Form::Sd => both(products() / (self.hidden.size()[2] as f64).sqrt()),
            Form::Mx => {
                let products = products();
                Scores { scores: plus_terms(&halves()) * products.sigmoid(), logits: products }
            }
            Form::V2 => {
                let (attention, targets) = self.dynamic.as_ref().expect("the form has targets");
                let sums = pick(targets, destinations) + pick(self.hidden, sources);
                let score = |sums: &Tensor| (leaky_relu(sums) * attention).sum_dim_intlist(-1, false, kind);
                let logits = score(&sums);
                let scores = terms.map_or_else(|| logits.shallow_clone(), |terms| score(&(&sums + &terms.products)));
                Scores { scores, logits }
            }
        }
    }

    /// Edge loss logits of some pairs, P: GO's scores and dot products need no gate.
    fn logits(&self, sources: &Tensor, destinations: &Tensor) -> Tensor {
        let copy = |both: &(Tensor, Tensor)| (both.0.shallow_clone(), both.1.shallow_clone());
        let plain = Scorer {
            hidden: self.hidden,
            halves: self.halves.as_ref().map(copy),
            dynamic: self.dynamic.as_ref().map(copy),
            form: if self.form == Form::Mx { Form::Dp } else { self.form },
        };
        mean_of_heads(&plain.score(sources, destinations).logits)
    }
}

/// Edge loss logits of pairs, P, from products N × K × F; `weights` are a and, for a dynamic attention, t of each node.
pub fn pair_logits(
    hidden: &Tensor,
    weights: (Option<&Tensor>, Option<&Tensor>),
    form: Form,
    (sources, destinations): (&Tensor, &Tensor),
) -> Tensor {
    Scorer::of_targets(hidden, weights, form).logits(sources, destinations)
}

/// `logits` are those of all edges, E × K.
fn edge_loss(scorer: &Scorer<'_>, logits: &Tensor, pairs: &Pairs) -> Tensor {
    let (n_edges, device) = (logits.size()[0] as usize, logits.device());
    let kept = (0..n_edges).filter(|edge| pairs.keeps(*edge)).map(|edge| edge as u32);
    let edges = pick(&mean_of_heads(logits), &positions(kept, device));
    let ends = |ends: &[u32]| positions(ends.iter().copied(), device);
    let others = scorer.logits(&ends(&pairs.negatives().sources), &ends(&pairs.negatives().destinations));
    pair_loss(&edges, &others)
}

/// GCN on products N × F: the sum of the neighbors, each divided by the root of both degrees. Degrees are counted on the side
/// of the source for both ends, as the published numbers were made.
pub fn convolve(products: &Tensor, edges: &Edges, bias: &Tensor) -> Tensor {
    let roots = edges.out_degrees.to_kind(products.kind()).rsqrt().masked_fill(&edges.out_degrees.eq(0), 0.0);
    let norms = pick(&roots, &edges.sources) * pick(&roots, &edges.destinations);
    let messages = pick(products, &edges.sources) * norms.unsqueeze(-1);
    edges.sum_by_destination(&edges.weighted(messages)) + bias
}

/// GraphSAGE on products N × F: the mean of the neighbors, itself included. The mean of products is the product of the
/// mean, over fewer numbers.
pub fn average(products: &Tensor, edges: &Edges, bias: &Tensor) -> Tensor {
    let sums = edges.sum_by_destination(&edges.weighted(pick(products, &edges.sources)));
    // Without edges there is nothing to divide.
    let degrees = edges.degrees.masked_fill(&edges.degrees.eq(0), 1.0);
    sums / degrees.to_kind(products.kind()).unsqueeze(-1) + bias
}

/// GIN's first layer on products N × F: the sum of the neighbors, itself included.
pub fn add_up(products: &Tensor, edges: &Edges, bias: &Tensor) -> Tensor {
    edges.sum_by_destination(&edges.weighted(pick(products, &edges.sources))) + bias
}

#[cfg(test)]
mod tests;
