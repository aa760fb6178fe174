//! Products of rows and weights, and the gradients of both.

use super::{
    Program,
    raw::Input,
    tiles::{TILE_COLUMNS, TILE_ROWS, TILE_THREADS, pieces_of, sparse_pieces, weight_tiles},
};
use crate::cuda::{
    args::args,
    error::GpuError,
    layer::{Layer, LayerKind, N_THREADS, WARPS},
    machine::ModuleId,
    memory::Address,
    rows::SparseRows,
    sum::SUM_THREADS,
};

/// Rows times weights.
#[derive(Clone, Copy, Debug)]
pub(super) struct Product {
    pub(super) layer: Layer,
    pub(super) module: ModuleId,
    pub(super) input: ProductInput,
    pub(super) is_dropped: bool,
    pub(super) weights: Address,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum ProductInput {
    Dense(Input),
    /// Sparse rows of a whole graph, which are multiplied as they are.
    Sparse(SparseRows),
}

impl Product {
    fn n_rows(&self) -> u32 {
        match self.input {
            ProductInput::Dense(input) => input.n_rows,
            ProductInput::Sparse(sparse) => sparse.n_rows(),
        }
    }
}

impl Program {
    pub(super) fn multiply(&self, product: &Product, rows: Address) -> Result<(), GpuError> {
        let Product { layer, module, input, is_dropped, weights } = *product;
        let (settings, streams, n_streams) = (self.settings.at(), self.streams.at(), self.n_streams());
        let (is_dropped, n_rows) = (u32::from(is_dropped), product.n_rows());
        match input {
            ProductInput::Sparse(sparse) => {
                let mut args = args![layer, sparse, weights, settings, streams, n_streams, is_dropped, rows];
                self.launch(module, "kith_multiply_sparse", n_rows.div_ceil(WARPS), N_THREADS, &mut args)
            }
            ProductInput::Dense(input) => {
                let n_tiles = n_rows.div_ceil(TILE_ROWS) * layer.stride.div_ceil(TILE_COLUMNS);
                let mut args = args![layer, input, weights, settings, streams, n_streams, is_dropped, rows];
                self.launch(module, "kith_multiply", n_tiles, TILE_THREADS, &mut args)
            }
        }
    }

    /// The gradient of the weights, at each of `places`, from that of the products.
    pub(super) fn weight_gradient(
        &self,
        product: &Product,
        gradients: Address,
        places: &[usize],
    ) -> Result<(), GpuError> {
        let Product { layer, module, input, is_dropped, weights } = *product;
        let (settings, streams, n_streams) = (self.settings.at(), self.streams.at(), self.n_streams());
        let (is_dropped, n_runs, pieces) =
            (u32::from(is_dropped), self.plan.runs.len() as u32, self.shared.pieces.at());
        let n_pieces = match input {
            ProductInput::Sparse(sparse) => {
                let n_pieces = sparse_pieces(layer.dim);
                let mut args =
                    args![layer, sparse, settings, streams, n_streams, is_dropped, gradients, pieces, n_pieces];
                let grid = [layer.dim.div_ceil(WARPS), n_runs, n_pieces];
                self.gpu.launch(module, "kith_weight_gradient_sparse", grid, N_THREADS, &mut args)?;
                n_pieces
            }
            ProductInput::Dense(input) => {
                let (n_tiles, piece_rows) = weight_tiles(&layer, input.n_rows);
                let n_pieces = input.n_rows.div_ceil(piece_rows);
                let mut args = args![
                    layer, input, weights, settings, streams, n_streams, is_dropped, gradients, pieces, piece_rows,
                    n_pieces
                ];
                let grid = [n_tiles, n_runs, n_pieces];
                self.gpu.launch(module, "kith_weight_gradient", grid, TILE_THREADS, &mut args)?;
                n_pieces
            }
        };
        let n = (layer.dim * layer.heads * layer.features) as usize;
        places.iter().try_for_each(|place| self.sum_pieces(n_pieces, n, *place))
    }

    /// The gradient of dense rows from that of the products; adds to `to` if `is_added`.
    pub(super) fn input_gradient(
        &self,
        product: &Product,
        gradients: Address,
        to: Address,
        is_added: bool,
    ) -> Result<(), GpuError> {
        let Product { layer, module, input, is_dropped, weights } = *product;
        let ProductInput::Dense(input) = input else { unreachable!("features have no gradient") };
        let n_tiles = input.n_rows.div_ceil(TILE_ROWS) * layer.dim.div_ceil(TILE_COLUMNS);
        let mut args = args![
            layer,
            input,
            weights,
            self.settings.at(),
            self.streams.at(),
            self.n_streams(),
            u32::from(is_dropped),
            gradients,
            to,
            u32::from(is_added)
        ];
        self.launch(module, "kith_input_gradient", n_tiles, TILE_THREADS, &mut args)
    }

    /// The gradient of a bias, at each of `places`, from that of outputs.
    pub(super) fn bias_gradient(
        &self,
        (layer, module, kind): (Layer, ModuleId, LayerKind),
        n_rows: u32,
        gradients: Address,
        places: impl IntoIterator<Item = usize>,
    ) -> Result<(), GpuError> {
        let mut places = places.into_iter().peekable();
        if places.peek().is_none() {
            return Ok(());
        }
        let (n_pieces, piece_nodes) = pieces_of(kind, n_rows);
        let mut args = args![layer, n_rows, gradients, self.shared.pieces.at(), n_pieces, piece_nodes];
        self.launch(module, "kith_bias_gradient", n_pieces, SUM_THREADS, &mut args)?;
        let n_outputs = if layer.is_mean == 1 { layer.features } else { layer.heads * layer.features };
        places.try_for_each(|place| self.sum_pieces(n_pieces, n_outputs as usize, place))
    }
}
