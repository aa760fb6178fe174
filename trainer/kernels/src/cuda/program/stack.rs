//! Linear layers, residuals, norms, activations, dropout and jumping around graph layers: see transition.cu.

mod arrays;
mod backward;
mod forward;
mod plan;
mod second;

pub(super) use self::arrays::Stack;
pub use self::plan::{AdditionPlan, Jumping, LinearPlan, StackLayer, StackPlan, TransitionPlan};
