//! All models.

use kith_run::config::ModelKind;

use crate::model::{cgat::Cgat, gat::Gat, gcn::Gcn, mlp::Mlp, sage::Sage, spec::ModelSpec, supergat::Supergat};

/// Every model, each once.
static MODELS: [&dyn ModelSpec; 6] = [&Supergat, &Gat, &Gcn, &Sage, &Mlp, &Cgat];

/// The model of a kind.
pub(crate) fn spec_of(kind: ModelKind) -> &'static dyn ModelSpec {
    *MODELS.iter().find(|spec| spec.kind() == kind).expect("every kind is registered")
}

#[cfg(test)]
mod tests {
    use kith_run::config::Choice;

    use super::*;

    #[test]
    fn every_kind_is_registered_once() {
        for (name, kind) in ModelKind::ALL {
            assert_eq!(MODELS.iter().filter(|spec| spec.kind() == *kind).count(), 1, "{name}");
        }
        assert_eq!(MODELS.len(), ModelKind::ALL.len());
    }
}
