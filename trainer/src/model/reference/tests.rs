//! The layers against numbers that were computed independently.

use kith_block::{BlockError, Negatives};
use kith_draw::{Name, Purpose, Stream};
use tch::Kind;

use super::*;
use crate::model::oracle::error;

const FORMS: [Form; 4] = [Form::Go, Form::Dp, Form::Sd, Form::Mx];

fn block(lists: &[&[u64]]) -> Block {
    let n_edges = lists.iter().map(|list| list.len() as u64).sum();
    Block::full(lists.len() as u64, n_edges, |node| Ok::<_, BlockError>(lists[node as usize].iter().copied())).unwrap()
}

fn doubles(values: &[f64], shape: &[i64]) -> Tensor {
    Tensor::from_slice(values).view(shape)
}

#[track_caller]
fn assert_near(found: &Tensor, expected: &[f64], tolerance: f64) {
    let found = Vec::<f64>::try_from(found.flatten(0, -1)).unwrap();
    assert_eq!(found.len(), expected.len());
    for (found_one, expected_one) in found.iter().zip(expected) {
        assert!((found_one - expected_one).abs() <= tolerance, "{found:?} instead of {expected:?}");
    }
}

/// The golden micro-example: three nodes, two heads of two features, every number to the printed six digits.
struct Golden {
    block: Block,
    /// Block order → printed order.
    order: Tensor,
    rows: Tensor,
    attention: Tensor,
    pairs: Pairs,
}

impl Golden {
    fn new() -> Golden {
        let negatives = Negatives { sources: vec![0, 2], destinations: vec![2, 0], n_left_out: 0 };
        let block = block(&[&[1], &[0, 2], &[1]]);
        Golden {
            // Printed: 0→1, 1→0, 1→2, 2→1, then loops.
            order: Tensor::from_slice(&[2i64, 0, 5, 3, 1, 4, 6]),
            rows: doubles(&[1.0, 0.0, 0.5, 0.5, 0.5, -1.0, 1.0, 0.0, -1.0, 2.0, 0.0, -0.5], &[3, 4]),
            attention: doubles(&[0.1, 0.2, -0.3, 0.4, 0.5, -0.5, 0.25, 1.0], &[2, 4]),
            pairs: Pairs::all(&block, negatives),
            block,
        }
    }

    fn attend(&self, form: Form, concat: bool) -> Attended {
        let shape = LayerShape { dim: 4, heads: 2, features: 2, concat };
        let weights = AttentionWeights {
            weight: &Tensor::eye(4, (Kind::Double, Device::Cpu)),
            attention: form.has_halves().then_some(&self.attention),
            targets: None,
            bias: &Tensor::zeros([shape.width() as i64], (Kind::Double, Device::Cpu)),
        };
        let step = ReferenceStep { pairs: Some(&self.pairs), ..ReferenceStep::default() };
        attend(&product(&self.rows, weights.weight), &self.edges(), weights, (shape, form), &step)
    }

    fn edges(&self) -> Edges {
        Edges::new(&self.block, Device::Cpu)
    }
}

fn stream() -> Stream {
    Name { run_key: 1, purpose: Purpose::Generator, step: 0, layer: 0 }.stream()
}

/// Half of the last printed digit.
const PRINTED: f64 = 5.1e-7;

#[test]
fn golden_attention() {
    let expected: [[[f64; 7]; 2]; 4] = [
        [
            [0.209185, 0.487503, 0.190002, 0.591831, 0.512497, 0.198983, 0.809998],
            [0.497032, 0.407333, 0.634136, 0.161363, 0.592667, 0.341605, 0.365864],
        ],
        [
            [0.286954, 0.377541, 0.004070, 0.105564, 0.622459, 0.607482, 0.995930],
            [0.307196, 0.500000, 0.437823, 0.186324, 0.500000, 0.506480, 0.562177],
        ],
        [
            [0.313228, 0.412521, 0.020054, 0.154443, 0.587479, 0.532329, 0.979946],
            [0.319866, 0.500000, 0.455921, 0.224606, 0.500000, 0.455527, 0.544079],
        ],
        [
            [0.324126, 0.493306, 0.198703, 0.368418, 0.506694, 0.307456, 0.801297],
            [0.424545, 0.441908, 0.569083, 0.210766, 0.558092, 0.364689, 0.430917],
        ],
    ];
    let golden = Golden::new();
    for (form, heads) in FORMS.into_iter().zip(expected) {
        let attention = pick(&golden.attend(form, true).attention, &golden.order);
        for (head, expected) in heads.iter().enumerate() {
            assert_near(&attention.select(1, head as i64), expected, PRINTED);
        }
    }
}

#[test]
fn golden_outputs() {
    let concatenated = [
        [-0.283154, 0.984679, 0.590121, 0.167835],
        [0.485130, -0.396353, 0.660078, 0.060436],
        [0.424950, -0.223443, 0.615461, 0.047630],
        [0.109436, 0.429381, 0.576961, 0.106889],
    ];
    let means = [[0.153484, 0.576257], [0.572604, -0.167958], [0.520205, -0.087907], [0.343198, 0.268135]];
    let golden = Golden::new();
    for (place, form) in FORMS.into_iter().enumerate() {
        assert_near(&golden.attend(form, true).rows.select(0, 1), &concatenated[place], PRINTED);
        assert_near(&golden.attend(form, false).rows.select(0, 1), &means[place], PRINTED);
    }
}

#[test]
fn golden_edge_losses() {
    let golden = Golden::new();
    let go = ([0.3375, -0.1, 0.125, 0.475, 0.2125, 0.025, 0.575, 0.4375, 0.35], 0.659761);
    let dp = ([0.5, 0.5, -1.25, -1.25, 0.75, 1.125, 2.625, -0.625, -0.625], 0.616375);
    let sd = (dp.0.map(|logit| logit / 2f64.sqrt()), 0.610722);
    let hidden = golden.rows.view([3, 2, 2]);
    let edges = golden.edges();
    let join =
        |edges: &Tensor, others: &[i64]| Tensor::cat(&[pick(edges, &golden.order), Tensor::from_slice(others)], 0);
    let (sources, destinations) = (join(&edges.sources, &[0, 2]), join(&edges.destinations, &[2, 0]));
    for (form, (logits, loss)) in FORMS.into_iter().zip([go, dp, sd, dp]) {
        let scorer = Scorer::new(&hidden, Some(&golden.attention), form);
        assert_near(&scorer.logits(&sources, &destinations), &logits, 1e-12);
        let found = golden.attend(form, true).edge_loss.unwrap();
        assert_near(&found.view([1]), &[loss], PRINTED);
    }
}

#[test]
fn attention_weights_of_a_destination_sum_to_one() {
    let golden = Golden::new();
    for form in FORMS {
        let sums = golden.edges().sum_by_destination(&golden.attend(form, true).attention);
        assert!(error(&sums, &sums.ones_like()) < 1e-15, "{form:?}: {sums}");
    }
}

#[test]
fn large_scores_stay_finite() {
    let golden = Golden::new();
    let hidden = golden.rows.view([3, 2, 2]) * 1e3;
    for form in FORMS {
        let scorer = Scorer::new(&hidden, Some(&golden.attention), form);
        let edges = golden.edges();
        let attention = softmax(&edges, &scorer.score(&edges.sources, &edges.destinations).scores, None);
        assert!(
            error(&edges.sum_by_destination(&attention), &Tensor::ones([3, 2], (Kind::Double, Device::Cpu))) < 1e-15
        );
    }
}

/// Zero rows make scores of exactly zero, where the slope of the activation is the one below zero.
#[test]
fn the_activation_has_one_slope_at_zero() {
    let values = doubles(&[-2.0, 0.0, 3.0], &[3]).set_requires_grad(true);
    let activated = leaky_relu(&values);
    activated.sum(Kind::Double).backward();
    assert_near(&activated, &[-0.4, 0.0, 3.0], 1e-15);
    assert_near(&values.grad(), &[0.2, 0.2, 1.0], 1e-15);
}

/// 0 → 1 twice, 0 → 2, 1 → 2: seen from the source, nodes have 4, 2 and 1 edges with their loops.
#[test]
fn gcn_counts_degrees_by_source() {
    let edges = Edges::new(&block(&[&[], &[0, 0], &[0, 1]]), Device::Cpu);
    let rows = doubles(&[1.0, 2.0, 4.0], &[3, 1]);
    let found = convolve(&product(&rows, &doubles(&[3.0], &[1, 1])), &edges, &doubles(&[0.5], &[1]));
    let first = 3.0 / 4.0;
    let second = 3.0 * (2.0 / 8f64.sqrt() + 2.0 / 2.0);
    let third = 3.0 * (1.0 / 2.0 + 2.0 / 2f64.sqrt() + 4.0);
    assert_near(&found, &[first + 0.5, second + 0.5, third + 0.5], 1e-12);
}

#[test]
fn sage_is_the_mean_with_oneself() {
    let edges = Edges::new(&block(&[&[], &[0, 0, 1], &[0, 1]]), Device::Cpu);
    let rows = doubles(&[1.0, 10.0, 2.0, 20.0, 6.0, 60.0], &[3, 2]);
    let found = average(&product(&rows, &doubles(&[1.0, 0.0, 0.0, 0.1], &[2, 2])), &edges, &doubles(&[0.0, 0.5], &[2]));
    assert_near(&found, &[1.0, 1.5, 4.0 / 3.0, 4.0 / 3.0 + 0.5, 3.0, 3.5], 1e-12);
}

#[test]
fn a_product_is_the_same_in_pieces() {
    let n_rows = 2 * PIECE_ROWS + 5;
    let rows = Tensor::arange(n_rows * 3, (Kind::Double, Device::Cpu)).sin().view([n_rows, 3]);
    let weight = doubles(&[0.5, -1.0, 2.0, 0.25, 1.0, 3.0], &[3, 2]);
    let (whole, pieces) = (weight.copy().set_requires_grad(true), weight.set_requires_grad(true));
    let gradient = Tensor::arange(n_rows * 2, (Kind::Double, Device::Cpu)).cos().view([n_rows, 2]);
    let outputs = [rows.matmul(&whole), product(&rows, &pieces)];
    outputs.iter().for_each(|output| (output * &gradient).sum(Kind::Double).backward());
    assert!(error(&outputs[1], &outputs[0]) < 1e-14);
    assert!(error(&pieces.grad(), &whole.grad()) < 1e-12);
}

/// Proposition 1: how far the scores of fresh weights spread. Heads are independent trials of one layer.
mod proposition {
    use super::*;

    const DIM: usize = 5;
    const FEATURES: usize = 4;

    struct Trial {
        rows: Tensor,
        weight_variance: f64,
        attention_variance: f64,
        go: Tensor,
        dp: Tensor,
    }

    /// Scores of the pairs (0 ← 1), (2 ← 3), …: pairs × heads.
    fn trial(rows: Tensor, heads: usize) -> Trial {
        let (weight_bound, attention_bound) = (0.7, 0.4);
        let uniform = |tensor: u64, n: usize, bound: f64| -> Vec<f64> {
            let mut name = (0..n as u64).map(|element| stream().draws(tensor, element, 0));
            (0..n).map(|_| (2.0 * name.next().unwrap().uniform() - 1.0) * bound).collect()
        };
        let weight = doubles(&uniform(1, DIM * heads * FEATURES, weight_bound), &[DIM as i64, -1]);
        let attention = doubles(&uniform(2, heads * 2 * FEATURES, attention_bound), &[heads as i64, -1]);
        let hidden = product(&rows, &weight).view([-1, heads as i64, FEATURES as i64]);
        let destinations = Tensor::arange_start_step(0, rows.size()[0], 2, (Kind::Int64, Device::Cpu));
        let score =
            |form| Scorer::new(&hidden, Some(&attention), form).score(&(&destinations + 1), &destinations).scores;
        let (go, dp) = (score(Form::Go), score(Form::Dp));
        Trial {
            rows,
            weight_variance: weight_bound.powi(2) / 3.0,
            attention_variance: attention_bound.powi(2) / 3.0,
            go,
            dp,
        }
    }

    fn variance(values: &Tensor) -> f64 {
        (values - values.mean(Kind::Double)).square().mean(Kind::Double).double_value(&[])
    }

    /// Two given rows: the variances are known exactly.
    #[test]
    fn of_given_rows() {
        let (left, right) = ([1.0, -2.0, 0.5, 0.0, 1.5], [0.5, 1.0, -1.0, 2.0, 1.0]);
        let trial = trial(doubles(&[left, right].concat(), &[2, DIM as i64]), 200_000);
        let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
        let norms = dot(&left, &left) + dot(&right, &right);
        let features = FEATURES as f64;
        let go = features * trial.weight_variance * trial.attention_variance * norms;
        let squares: f64 = left.iter().zip(&right).map(|(a, b)| (a * b).powi(2)).sum();
        let product = dot(&left, &right);
        let dp = features
            * trial.weight_variance.powi(2)
            * (dot(&left, &left) * dot(&right, &right) - 1.2 * squares + product.powi(2));
        let (found_go, found_dp) = (variance(&trial.go), variance(&trial.dp));
        assert!((found_go / go - 1.0).abs() < 0.02, "GO: {found_go} instead of {go}");
        assert!((found_dp / dp - 1.0).abs() < 0.02, "DP: {found_dp} instead of {dp}");
        let bound = features * trial.weight_variance.powi(2) * 0.8 * product.powi(2);
        assert!(found_dp >= bound, "DP: {found_dp} below {bound}");
    }

    /// Random rows: GO's variance is known, DP's is at least the bound.
    #[test]
    fn of_random_rows() {
        let n_pairs = 100;
        let mut draws = stream().draws(3, 0, 0);
        let rows: Vec<f64> = (0..2 * n_pairs * DIM).map(|_| draws.normal() + 0.3).collect();
        let trial = trial(doubles(&rows, &[2 * n_pairs as i64, DIM as i64]), 20_000);
        let square_norms = trial.rows.square().sum_dim_intlist(1, false, Kind::Double);
        let features = FEATURES as f64;
        let go = 2.0
            * features
            * trial.weight_variance
            * trial.attention_variance
            * square_norms.mean(Kind::Double).double_value(&[]);
        let found_go = variance(&trial.go);
        assert!((found_go / go - 1.0).abs() < 0.02, "GO: {found_go} instead of {go}");

        let pairs = trial.rows.view([n_pairs as i64, 2, DIM as i64]);
        let products = (pairs.select(1, 0) * pairs.select(1, 1)).sum_dim_intlist(1, false, Kind::Double);
        let bound = features
            * trial.weight_variance.powi(2)
            * (0.8 * products.square().mean(Kind::Double).double_value(&[]) + variance(&products));
        let found_dp = variance(&trial.dp);
        assert!(found_dp >= bound, "DP: {found_dp} below {bound}");
        assert!(found_dp < 20.0 * bound, "DP: {found_dp} far above {bound}");
    }
}
