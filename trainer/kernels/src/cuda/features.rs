//! Dense features of all nodes of a store, as they are stored: 16-bit numbers stay so. All are on the GPU, or in pinned memory
//! that it reads itself, with those of some nodes on the GPU.

use bytemuck::{Pod, Zeroable};

use super::{
    args::args,
    compile::Constants,
    error::GpuError,
    graph_lists::GraphLists,
    machine::{Gpu, ModuleId},
    memory::{Address, Array},
    pinned::Pinned,
};

/// Threads of a block.
const N_THREADS: u32 = 256;
/// A node without features on the GPU; NO_HOT in features.cu.
const NO_HOT: u32 = u32::MAX;
const WHAT: &str = "features";

/// Type of stored features; ROW_… in features.cu.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FeatureType {
    /// 32 bits.
    F32,
    /// 16 bits, IEEE.
    F16,
    /// The upper 16 of 32 bits.
    Bf16,
}

impl FeatureType {
    /// Bytes of a number.
    pub fn n_bytes(self) -> usize {
        match self {
            FeatureType::F32 => 4,
            FeatureType::F16 | FeatureType::Bf16 => 2,
        }
    }
}

/// As `struct StoredRows` in features.cu.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
struct StoredRows {
    all: Address,
    hot: Address,
    slots: Address,
    dim: u32,
    kind: u32,
}

/// Features of all nodes.
#[derive(Debug)]
pub struct Features {
    gpu: Gpu,
    module: ModuleId,
    n_nodes: usize,
    dim: usize,
    kind: FeatureType,
    place: Place,
    hot: Option<Hot>,
}

#[derive(Debug)]
enum Place {
    Device(Array<u8>),
    Pinned(Pinned),
}

/// Features of some nodes on the GPU.
#[derive(Debug)]
struct Hot {
    n_nodes: usize,
    rows: Array<u8>,
    /// Of each node of the graph.
    slots: Array<u32>,
}

impl Features {
    /// Room on the GPU or in pinned memory, to be written in parts.
    pub fn room(
        gpu: &Gpu,
        (n_nodes, dim): (usize, usize),
        kind: FeatureType,
        is_pinned: bool,
    ) -> Result<Features, GpuError> {
        let n_bytes = n_nodes * dim * kind.n_bytes();
        let place = match is_pinned {
            true => Place::Pinned(Pinned::new(gpu, n_bytes)?),
            false => Place::Device(Array::zeros(gpu, n_bytes, WHAT)?),
        };
        let module = gpu.machine().compile(&[Constants::NO_LAYER])?[0];
        Ok(Features { gpu: gpu.clone(), module, n_nodes, dim, kind, place, hot: None })
    }

    /// Bytes of a node's features.
    pub fn row_bytes(&self) -> usize {
        self.dim * self.kind.n_bytes()
    }

    /// Writes the features of nodes from one on: `fill` gets their bytes.
    pub fn write<E: From<GpuError>>(
        &mut self,
        first: usize,
        n: usize,
        fill: impl FnOnce(&mut [u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        let row_bytes = self.row_bytes();
        let (start, n_bytes) = (first * row_bytes, n * row_bytes);
        match &mut self.place {
            Place::Pinned(memory) => fill(&mut memory.bytes()?[start..start + n_bytes]),
            Place::Device(all) => {
                let mut bytes = vec![0; n_bytes];
                fill(&mut bytes)?;
                Ok(all.write_part(start, &bytes)?)
            }
        }
    }

    /// Keeps the features of as many nodes on the GPU as fit into `most` bytes: those that are drawn most often from these lists
    /// with this fanout.
    pub fn keep_hot(&mut self, lists: &GraphLists, fanout: Option<u32>, most: u64) -> Result<(), GpuError> {
        let slot_bytes = size_of::<u32>() * self.n_nodes;
        let n_hot = (most.saturating_sub(slot_bytes as u64) / self.row_bytes().max(1) as u64) as usize;
        let n_hot = n_hot.min(self.n_nodes);
        let row_bytes = self.row_bytes();
        let Place::Pinned(memory) = &mut self.place else { return Ok(()) };
        if n_hot == 0 {
            return Ok(());
        }
        let counts = lists.count_draws(&self.gpu, fanout.unwrap_or(u32::MAX))?;
        let mut order: Vec<u32> = (0..self.n_nodes as u32).collect();
        order.select_nth_unstable_by_key(n_hot - 1, |node| (std::cmp::Reverse(counts[*node as usize]), *node));
        let mut slots = vec![NO_HOT; self.n_nodes];
        let rows = Array::zeros(&self.gpu, n_hot * row_bytes, WHAT)?;
        const TOGETHER: usize = 1 << 16;
        let all = memory.bytes()?;
        for (part, nodes) in order[..n_hot].chunks(TOGETHER).enumerate() {
            let mut bytes = Vec::with_capacity(nodes.len() * row_bytes);
            for (place, node) in nodes.iter().enumerate() {
                slots[*node as usize] = (part * TOGETHER + place) as u32;
                bytes.extend_from_slice(&all[*node as usize * row_bytes..][..row_bytes]);
            }
            rows.write_part(part * TOGETHER * row_bytes, &bytes)?;
        }
        self.hot = Some(Hot { n_nodes: n_hot, rows, slots: Array::of(&self.gpu, &slots, WHAT)? });
        Ok(())
    }

    /// Share of nodes whose features are on the GPU.
    pub fn share_on_gpu(&self) -> f64 {
        match (&self.place, &self.hot) {
            (Place::Device(_), _) => 1.0,
            (Place::Pinned(_), Some(hot)) => hot.n_nodes as f64 / self.n_nodes.max(1) as f64,
            (Place::Pinned(_), None) => 0.0,
        }
    }

    /// Features of a node.
    pub(super) fn dim(&self) -> usize {
        self.dim
    }

    /// Nodes of the graph.
    pub(super) fn n_nodes(&self) -> usize {
        self.n_nodes
    }

    /// Address of all, if kernels can read them as they are.
    pub(super) fn on_device(&self) -> Option<Address> {
        match &self.place {
            Place::Device(all) if self.kind == FeatureType::F32 => Some(all.at()),
            _ => None,
        }
    }

    /// Copies the features of nodes, in the lane of `gpu`: those with these ids or, without ids, those from `first` on.
    pub(super) fn gather(
        &self,
        gpu: &Gpu,
        (ids, first): (Address, u64),
        n: usize,
        to: &Array<f32>,
    ) -> Result<(), GpuError> {
        assert!(n * self.dim <= to.len(), "room for the features");
        let all = match &self.place {
            Place::Device(all) => all.at(),
            Place::Pinned(memory) => memory.address(),
        };
        let hot = self.hot.as_ref();
        let stored = StoredRows {
            all,
            hot: hot.map_or(Address::NONE, |hot| hot.rows.at()),
            slots: hot.map_or(Address::NONE, |hot| hot.slots.at()),
            dim: self.dim as u32,
            kind: self.kind as u32,
        };
        let mut args = args![stored, ids, first, n as u32, to.at()];
        gpu.launch(self.module, "kith_gather_rows", [(n as u32).div_ceil(N_THREADS / 32), 1, 1], N_THREADS, &mut args)
    }
}
