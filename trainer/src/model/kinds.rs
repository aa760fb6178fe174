//! All models: one file each, and one line in [`MODELS`]. The run file settings of a model are in
//! `trainer/run/src/model_kind.rs`.

mod cgat;
mod gat;
mod gcn;
mod gin;
mod mlp;
mod sage;
mod supergat;

use kith_run::model_kind::ModelKind;

#[cfg(test)]
pub(super) use self::cgat::largest;
use self::{cgat::Cgat, gat::Gat, gcn::Gcn, gin::Gin, mlp::Mlp, sage::Sage, supergat::Supergat};
use crate::model::spec::ModelSpec;

/// Every model, each once.
static MODELS: [&dyn ModelSpec; 7] = [&Supergat, &Gat, &Gcn, &Sage, &Gin, &Mlp, &Cgat];

/// The model of a kind.
pub(crate) fn spec_of(kind: ModelKind) -> &'static dyn ModelSpec {
    *MODELS.iter().find(|spec| spec.kind() == kind).expect("every kind is registered")
}

#[cfg(test)]
mod tests {
    use kith_run::choice::Choice;

    use super::*;

    #[test]
    fn every_kind_is_registered_once() {
        for (name, kind) in ModelKind::ALL {
            assert_eq!(MODELS.iter().filter(|spec| spec.kind() == *kind).count(), 1, "{name}");
        }
        assert_eq!(MODELS.len(), ModelKind::ALL.len());
    }
}
