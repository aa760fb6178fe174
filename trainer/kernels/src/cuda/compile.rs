//! Source code of all kernels, and the constants it is compiled with.

use kith_draw::cuda_header;

use super::layer::{Layer, LayerKind, LayerPlan};

type File = (&'static str, &'static str);

/// Types that all kernels know.
const TYPES: File = ("layer.cuh", include_str!("layer.cuh"));

/// Kernels that know no layer.
const COMMON: &[File] = &[
    ("step.cu", include_str!("step.cu")),
    ("sample.cu", include_str!("sample.cu")),
    ("by_source.cu", include_str!("by_source.cu")),
    ("inference.cu", include_str!("inference.cu")),
    ("transition.cu", include_str!("transition.cu")),
    ("norm.cu", include_str!("norm.cu")),
    ("residual.cu", include_str!("residual.cu")),
    ("jumping.cu", include_str!("jumping.cu")),
    ("features.cu", include_str!("features.cu")),
];

/// Kernels of every layer, and of layers with attention and without.
const PRODUCTS: &[File] = &[("multiply.cu", include_str!("multiply.cu"))];
const LOSSES: &[File] = &[("sums.cu", include_str!("sums.cu")), ("loss.cu", include_str!("loss.cu"))];
const ATTENTION: &[File] =
    &[("attend.cu", include_str!("attend.cu")), ("attend_back.cu", include_str!("attend_back.cu"))];
const PAIRS: &[File] = &[("pairs.cu", include_str!("pairs.cu"))];
const AGGREGATE: &[File] = &[("aggregate.cu", include_str!("aggregate.cu"))];

/// Names of the kernels in a source.
pub(super) fn kernels(source: &str) -> impl Iterator<Item = &str> {
    source.split("KERNEL void ").skip(1).filter_map(|rest| rest.split('(').next())
}

/// Numbers of a layer that its kernels know when they are compiled: registers and loops depend on them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Constants {
    heads: u32,
    lanes: u32,
    vec: u32,
    padded: u32,
    form: u32,
    leaves_out: u32,
}

impl Constants {
    /// For kernels that know no layer.
    pub const NO_LAYER: Constants = Constants { heads: 0, lanes: 0, vec: 0, padded: 0, form: 0, leaves_out: 0 };

    /// Those of a layer.
    pub fn of_plan(plan: &LayerPlan) -> Constants {
        Constants::of(&plan.layer(0, 0))
    }

    pub(super) fn of(layer: &Layer) -> Constants {
        let Layer { heads, lanes, vec, padded, form, leaves_out, .. } = *layer;
        Constants { heads, lanes, vec, padded, form, leaves_out }
    }

    /// The sources of the kernels that need them, each to be compiled on its own, at the same time. Errors name the files.
    pub(super) fn sources(&self) -> Vec<String> {
        let parts: &[&[File]] = match LayerKind::is_attention(self.form) {
            _ if *self == Constants::NO_LAYER => &[COMMON],
            true => &[ATTENTION, PRODUCTS, LOSSES, PAIRS],
            false => &[AGGREGATE, PRODUCTS, LOSSES],
        };
        let source = |part: &&[File]| {
            let mut text = cuda_header();
            for (name, part) in std::iter::once(&TYPES).chain(*part) {
                text.push_str(&format!("\n#line 1 \"{name}\"\n{part}"));
            }
            text
        };
        parts.iter().map(source).collect()
    }

    /// As options of a compiler.
    pub fn options(&self) -> Vec<String> {
        if *self == Constants::NO_LAYER {
            return Vec::new();
        }
        let Constants { heads, lanes, vec, padded, form, leaves_out } = self;
        let layer = [("HEADS", heads), ("LANES", lanes), ("VEC", vec), ("PADDED", padded), ("FORM", form)];
        let all = layer.into_iter().chain([("LEAVES_OUT", leaves_out)]);
        all.map(|(name, value)| format!("-DKITH_{name}={value}")).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kernel_is_compiled_where_it_is_needed() {
        let with_form = |form| Constants { heads: 1, lanes: 1, vec: 1, padded: 4, form, leaves_out: 0 };
        let all = |constants: Constants| {
            let sources = constants.sources();
            sources.iter().flat_map(|source| kernels(source)).map(str::to_owned).collect::<Vec<_>>()
        };
        let (common, attention, sums) = (all(Constants::NO_LAYER), all(with_form(3)), all(with_form(4)));
        let has = |names: &[String], name: &str| names.iter().any(|own| own == name);
        assert!(has(&common, "kith_update") && has(&common, "kith_relabel") && !has(&common, "kith_attend"));
        assert!(
            has(&attention, "kith_pull") && has(&attention, "kith_sort_pairs") && !has(&attention, "kith_aggregate")
        );
        assert!(has(&sums, "kith_aggregate_join") && has(&sums, "kith_node_loss") && !has(&sums, "kith_pull"));
        assert!(attention.iter().chain(&sums).all(|name| !has(&common, name)), "one home for each");
    }
}
