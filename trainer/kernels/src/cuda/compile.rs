//! Source code of all kernels, and the constants it is compiled with.

use kith_draw::cuda_header;

use super::layer::Layer;

/// Names of all kernels.
pub(super) const KERNELS: [&str; 47] = [
    "kith_attend",
    "kith_attend_join",
    "kith_draw_mask",
    "kith_pull",
    "kith_join",
    "kith_push",
    "kith_negatives",
    "kith_attention_gradient",
    "kith_multiply",
    "kith_weight_gradient",
    "kith_input_gradient",
    "kith_spread_rows",
    "kith_multiply_sparse",
    "kith_weight_gradient_sparse",
    "kith_draw_subset",
    "kith_draw_negatives",
    "kith_count_pairs",
    "kith_scan_blocks",
    "kith_scan_add",
    "kith_group_pairs",
    "kith_sort_pairs",
    "kith_pair_gradients",
    "kith_sum_pieces",
    "kith_sum",
    "kith_edge_losses",
    "kith_negative_losses",
    "kith_bias_gradient",
    "kith_node_loss",
    "kith_measure",
    "kith_begin_step",
    "kith_adam",
    "kith_end_step",
    "kith_place_roots",
    "kith_count_neighbors",
    "kith_draw_neighbors",
    "kith_take_neighbors",
    "kith_count_new",
    "kith_place_new",
    "kith_relabel",
    "kith_forget_positions",
    "kith_copy",
    "kith_source_keys",
    "kith_count_digits",
    "kith_sum_tiles",
    "kith_scan_tiles",
    "kith_sort_digits",
    "kith_place_by_source",
];

const FILES: [(&str, &str); 10] = [
    ("layer.cuh", include_str!("layer.cuh")),
    ("attend.cu", include_str!("attend.cu")),
    ("attend_back.cu", include_str!("attend_back.cu")),
    ("multiply.cu", include_str!("multiply.cu")),
    ("pairs.cu", include_str!("pairs.cu")),
    ("sums.cu", include_str!("sums.cu")),
    ("loss.cu", include_str!("loss.cu")),
    ("step.cu", include_str!("step.cu")),
    ("sample.cu", include_str!("sample.cu")),
    ("by_source.cu", include_str!("by_source.cu")),
];

/// The source of all kernels as one text. Errors name the files.
pub(super) fn source() -> String {
    let mut text = cuda_header();
    for (name, part) in FILES {
        text.push_str(&format!("\n#line 1 \"{name}\"\n{part}"));
    }
    text
}

/// Numbers of a layer that its kernels know when they are compiled: registers and loops depend on them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Constants {
    heads: u32,
    lanes: u32,
    vec: u32,
    padded: u32,
    form: u32,
}

impl Constants {
    /// For kernels that know no layer: any would do.
    pub(super) const NO_LAYER: Constants = Constants { heads: 1, lanes: 1, vec: 1, padded: 4, form: 0 };

    pub(super) fn of(layer: &Layer) -> Constants {
        let Layer { heads, lanes, vec, padded, form, .. } = *layer;
        Constants { heads, lanes, vec, padded, form }
    }

    /// As options of a compiler.
    pub fn options(&self) -> Vec<String> {
        let Constants { heads, lanes, vec, padded, form } = self;
        [("HEADS", heads), ("LANES", lanes), ("VEC", vec), ("PADDED", padded), ("FORM", form)]
            .map(|(name, value)| format!("-DKITH_{name}={value}"))
            .to_vec()
    }
}
