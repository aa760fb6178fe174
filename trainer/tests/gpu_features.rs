//! Features that a GPU reads as they are stored, on the GPU or in pinned memory: the numbers of the store, exactly.

use half::{bf16, f16};
use kith_draw::{Name, Purpose};
use kith_kernels::cuda::{
    self, FeatureType, Features, Gpu, GpuError, GraphLists, Inference, LayerKind, LayerPlan, LeftOut, ProgramPlan,
    Settings, TrainingPlan,
};

const N_NODES: usize = 300;

/// An emulated GPU, and the one of this machine if there is one.
#[allow(clippy::print_stderr)]
fn devices() -> Vec<Gpu> {
    let real = cuda::open(0).inspect_err(|error| eprintln!("only the emulated GPU is tested: {error}")).ok();
    std::iter::once(kith_cuda_emulator::gpu()).chain(real).collect()
}

/// Large, small and very small numbers, both signs.
fn numbers(dim: usize) -> Vec<f32> {
    let stream = Name { run_key: 3, purpose: Purpose::Generator, step: 0, layer: 0 }.stream();
    let number = |place: usize| {
        let mut draws = stream.draws(place as u64, 0, 0);
        let scale = [1.0, 6e4, 1e-3, 6e-5, 3e-6, 0.0][draws.below(6) as usize];
        ((2.0 * draws.normal()).clamp(-1.0, 1.0) * scale) as f32
    };
    (0..N_NODES * dim).map(number).collect()
}

/// Bytes as they are stored, and what they mean.
fn stored(kind: FeatureType, numbers: &[f32]) -> (Vec<u8>, Vec<f32>) {
    let (bytes, values): (Vec<Vec<u8>>, Vec<f32>) = numbers
        .iter()
        .map(|number| match kind {
            FeatureType::F32 => (number.to_le_bytes().to_vec(), *number),
            FeatureType::F16 => {
                let value = f16::from_f32(*number);
                (value.to_le_bytes().to_vec(), value.to_f32())
            }
            FeatureType::Bf16 => {
                let value = bf16::from_f32(*number);
                (value.to_le_bytes().to_vec(), value.to_f32())
            }
        })
        .unzip();
    (bytes.concat(), values)
}

/// Lists in which node `k` is drawn the oftener the larger it is.
fn lists(gpu: &Gpu) -> GraphLists {
    let list = |node: usize| (node..N_NODES).filter(move |other| *other != node).map(|other| other as u32);
    let (mut indptr, mut sources) = (vec![0], Vec::new());
    for node in 0..N_NODES {
        sources.extend(list(node));
        indptr.push(sources.len() as u64);
    }
    GraphLists::new(gpu, &indptr, &sources).unwrap()
}

/// Outputs of a layer whose weights are the identity matrix: the features of all nodes, or of some.
fn read_back(gpu: &Gpu, features: &Features, lists: &GraphLists, dim: usize, some: Option<&[u32]>) -> Vec<f32> {
    let (heads, kind, is_mean) = (1, LayerKind::Own, true);
    let layer = LayerPlan {
        dim,
        heads,
        features: dim,
        kind,
        is_mean,
        weight: 0,
        attention: 0,
        bias: Some(dim * dim),
        targets: None,
        left_out: LeftOut::default(),
    };
    let (n_weights, runs, training) = (dim * dim + dim, vec![Settings::default()], TrainingPlan::default());
    let plan =
        ProgramPlan { layers: vec![layer], stack: None, n_weights, n_trained: n_weights, pairs: None, runs, training };
    let mut weights = vec![0.0; plan.n_weights];
    (0..dim).for_each(|place| weights[place * dim + place] = 1.0);
    let sets = vec![some.map(<[u32]>::to_vec); 2];
    let mut inference = Inference::of_nodes(gpu, &plan, N_NODES, sets).unwrap();
    inference.begin(&weights).unwrap();
    inference.multiply_known(features).unwrap();
    inference.make_chunks(lists).unwrap();
    inference.begin_layer(0).unwrap();
    let mut outputs = Vec::new();
    for chunk in 0..inference.n_chunks(0) {
        inference.compute_known(0, lists, chunk).unwrap();
        outputs.extend(inference.outputs(0).unwrap());
    }
    outputs
}

#[test]
fn features_are_read_as_they_are_stored() {
    for gpu in devices() {
        let lists = lists(&gpu);
        for kind in [FeatureType::F32, FeatureType::F16, FeatureType::Bf16] {
            for dim in [1, 2, 5, 8, 33, 70] {
                let (bytes, expected) = stored(kind, &numbers(dim));
                let row_bytes = dim * kind.n_bytes();
                for (is_pinned, n_hot) in [(false, 0), (true, 0), (true, 1), (true, 100), (true, N_NODES)] {
                    let mut features = Features::room(&gpu, (N_NODES, dim), kind, is_pinned).unwrap();
                    for first in [0, 128, 256] {
                        let n = 128.min(N_NODES - first);
                        let own = &bytes[first * row_bytes..][..n * row_bytes];
                        let fill = |to: &mut [u8]| -> Result<(), GpuError> {
                            to.copy_from_slice(own);
                            Ok(())
                        };
                        features.write(first, n, fill).unwrap();
                    }
                    let most = 4 * N_NODES + n_hot * row_bytes;
                    features.keep_hot(&lists, Some(1), if n_hot > 0 { most as u64 } else { 0 }).unwrap();
                    let share = if is_pinned { n_hot as f64 / N_NODES as f64 } else { 1.0 };
                    assert_eq!(features.share_on_gpu(), share);
                    let found = read_back(&gpu, &features, &lists, dim, None);
                    let differing = found.iter().zip(&expected).position(|(found, expected)| found != expected);
                    assert_eq!(differing, None, "{kind:?}, {dim} wide, pinned: {is_pinned}, {n_hot} on the GPU");
                    assert_eq!(found.len(), expected.len());
                    let some = [0, 3, 4, 129, N_NODES as u32 - 1];
                    let rows = some.iter().flat_map(|node| &expected[*node as usize * dim..][..dim]);
                    let found = read_back(&gpu, &features, &lists, dim, Some(&some));
                    assert!(found.iter().eq(rows), "some nodes: {kind:?}, {dim} wide, pinned: {is_pinned}, {n_hot}");
                }
            }
        }
    }
}
