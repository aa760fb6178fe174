//! The kinds of models, and what run files may say of each. A new kind is a variant, a name and a row here; what it computes
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
        ("mlp", Self::Mlp),
        ("cgat", Self::Cgat),
    ];
}

/// How a kind scores neighbors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Attention {
    /// Not at all: `model.form`, `model.heads` and `model.out_heads` mean nothing.
    None,
    /// By GO alone.
    Go,
    /// By GO, unless the run file says another form.
    GoUnlessSaid,
    /// By the form that the run file says.
    Said,
}

/// What run files may say of a kind.
#[derive(Debug)]
pub(crate) struct Traits {
    about: &'static str,
    pub(crate) attention: Attention,
    /// `model.features` unless said.
    pub(crate) features: u64,
    /// The section of the run file that this kind needs, and no other kind has.
    pub(crate) section: Option<&'static str>,
    pub(crate) has_fused_kernels: bool,
    pub(crate) trains_in_batches: bool,
}

/// A kind without attention.
const PLAIN: Traits = Traits {
    about: "",
    attention: Attention::None,
    features: 64,
    section: None,
    has_fused_kernels: true,
    trains_in_batches: true,
};

/// A kind with attention.
const ATTENTIVE: Traits = Traits { attention: Attention::GoUnlessSaid, features: 8, ..PLAIN };

impl ModelKind {
    pub(crate) fn traits(self) -> Traits {
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
            ModelKind::Mlp => Traits { about: "a multilayer perceptron: no neighbors", ..PLAIN },
            ModelKind::Cgat => Traits {
                about: "CGAT: graph attention that must score edges above other pairs, by a margin",
                attention: Attention::Go,
                section: Some("cgat"),
                has_fused_kernels: false,
                trains_in_batches: false,
                ..ATTENTIVE
            },
        }
    }

    /// Its full name and what it computes.
    pub fn about(self) -> &'static str {
        self.traits().about
    }

    /// Whether its layers weigh neighbors by attention.
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
