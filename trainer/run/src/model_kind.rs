//! Kinds of models, and the run file settings of each. A new kind is a variant, a name and a row here; its computation
//! is a file in `trainer/src/model/kinds/`.

use kith_block::Form;

use crate::choice::Choice;

/// The kinds of models.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ModelKind {
    /// Attention that also learns from edges.
    Supergat,
    /// Attention alone.
    Gat,
    /// Means weighted by degrees.
    Gcn,
    /// Plain means.
    Sage,
    /// Sums, and a perceptron.
    Gin,
    /// Every node for itself.
    Mlp,
    /// Attention that is to score edges above other pairs, by a margin.
    Cgat,
}

impl Choice for ModelKind {
    const ALL: &'static [(&'static str, Self)] = &[
        ("supergat", Self::Supergat),
        ("gat", Self::Gat),
        ("gcn", Self::Gcn),
        ("sage", Self::Sage),
        ("gin", Self::Gin),
        ("mlp", Self::Mlp),
        ("cgat", Self::Cgat),
    ];
}

/// Attention of a kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Attention {
    /// None: `model.attention`, `model.heads` and `model.out_heads` do not apply.
    None,
    /// GO only.
    Go,
    /// GO, unless the run file sets another.
    GoUnlessSaid,
    /// The run file's.
    Said,
}

/// Properties of a kind that decide what its run files may set.
#[derive(Debug)]
struct Traits {
    about: &'static str,
    attention: Attention,
    /// The section of the run file that belongs to this kind alone.
    section: Option<&'static str>,
    has_fused_kernels: bool,
    trains_in_mini_batches: bool,
}

/// A kind without attention.
const PLAIN: Traits = Traits {
    about: "",
    attention: Attention::None,
    section: None,
    has_fused_kernels: true,
    trains_in_mini_batches: true,
};

/// A kind with attention.
const ATTENTIVE: Traits = Traits { attention: Attention::GoUnlessSaid, ..PLAIN };

impl ModelKind {
    fn traits(self) -> Traits {
        match self {
            ModelKind::Supergat => Traits {
                about: "SuperGAT: graph attention that is also trained to predict edges",
                attention: Attention::Said,
                section: Some("edge_loss"),
                ..ATTENTIVE
            },
            ModelKind::Gat => Traits { about: "GAT: graph attention", ..ATTENTIVE },
            ModelKind::Gcn => Traits { about: "GCN: the sum over neighbors, normalized by degrees", ..PLAIN },
            ModelKind::Sage => Traits { about: "GraphSAGE: the mean over neighbors", ..PLAIN },
            ModelKind::Gin => Traits { about: "GIN: a perceptron of two layers on the sum over neighbors", ..PLAIN },
            ModelKind::Mlp => Traits { about: "a multilayer perceptron: no neighbors", ..PLAIN },
            ModelKind::Cgat => Traits {
                about: "CGAT: graph attention that must score edges above other pairs, by a margin",
                attention: Attention::Go,
                section: Some("cgat"),
                has_fused_kernels: false,
                trains_in_mini_batches: false,
            },
        }
    }

    /// Its full name and what it computes.
    pub fn about(self) -> &'static str {
        self.traits().about
    }

    pub(crate) fn attention(self) -> Attention {
        self.traits().attention
    }

    /// The section of the run file that belongs to this kind alone.
    pub(crate) fn section(self) -> Option<&'static str> {
        self.traits().section
    }

    /// True if it has fused kernels.
    pub(crate) fn has_fused_kernels(self) -> bool {
        self.traits().has_fused_kernels
    }

    /// True if it can be trained in mini-batches.
    pub(crate) fn trains_in_mini_batches(self) -> bool {
        self.traits().trains_in_mini_batches
    }

    /// True if its layers weight neighbors by attention.
    pub fn has_attention(self) -> bool {
        self.traits().attention != Attention::None
    }

    /// Sections of a run file that belong to one kind, and the kind.
    pub fn sections() -> impl Iterator<Item = (&'static str, ModelKind)> {
        ModelKind::ALL.iter().filter_map(|(_, kind)| Some((kind.traits().section?, *kind)))
    }

    /// Its name with its form of attention, as presets are called.
    pub fn name_with(self, form: Form) -> String {
        match self.traits().attention {
            Attention::Said => format!("{}-{}", self.name(), form.name()),
            Attention::GoUnlessSaid if form != Form::Go => format!("{}-{}", self.name(), form.name()),
            _ => self.name().to_owned(),
        }
    }
}
