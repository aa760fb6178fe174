//! Nodes that inference reads and computes: all of a graph, or some of them, numbered in the order of their ids.

use crate::cuda::{
    error::GpuError,
    machine::Gpu,
    memory::{Address, Array},
};

const WHAT: &str = "nodes to evaluate";

/// Nodes whose features are read, or that a layer computes.
#[derive(Debug)]
pub(super) struct Nodes {
    n_nodes: usize,
    listed: Option<Listed>,
}

/// Some nodes of a graph.
#[derive(Debug)]
struct Listed {
    ids: Vec<u32>,
    on_gpu: Array<u64>,
    /// Place of each of them, by id. Made if a layer reads them through lists that are on the GPU.
    places: Option<Array<u32>>,
}

impl Nodes {
    /// Nodes with these ids, ascending; without ids, all nodes of a graph.
    pub(super) fn new(gpu: &Gpu, n_all: usize, ids: Option<Vec<u32>>) -> Result<Nodes, GpuError> {
        let Some(ids) = ids else { return Ok(Nodes { n_nodes: n_all, listed: None }) };
        assert!(
            ids.is_sorted() && ids.last().is_none_or(|last| (*last as usize) < n_all),
            "nodes of the graph, in order"
        );
        let wide: Vec<u64> = ids.iter().map(|id| u64::from(*id)).collect();
        let on_gpu = Array::of(gpu, &wide, WHAT)?;
        Ok(Nodes { n_nodes: ids.len(), listed: Some(Listed { ids, on_gpu, places: None }) })
    }

    pub(super) fn len(&self) -> usize {
        self.n_nodes
    }

    pub(super) fn are_all(&self) -> bool {
        self.listed.is_none()
    }

    /// Ids; `None` for all nodes.
    pub(super) fn ids(&self) -> Option<&[u32]> {
        self.listed.as_ref().map(|listed| &listed.ids[..])
    }

    /// Address of the ids from a place on; none for all nodes.
    pub(super) fn ids_on_gpu(&self, first: usize) -> Address {
        self.listed.as_ref().map_or(Address::NONE, |listed| Address(listed.on_gpu.at().0 + 8 * first as u64))
    }

    /// Makes the places of nodes by id.
    pub(super) fn make_places(&mut self, gpu: &Gpu, n_all: usize) -> Result<(), GpuError> {
        let Some(listed) = self.listed.as_mut().filter(|listed| listed.places.is_none()) else { return Ok(()) };
        let mut places = vec![u32::MAX; n_all];
        listed.ids.iter().zip(0..).for_each(|(id, place)| places[*id as usize] = place);
        listed.places = Some(Array::of(gpu, &places, WHAT)?);
        Ok(())
    }

    /// Address of the places by id; none for all nodes, whose ids are their places.
    pub(super) fn places(&self) -> Address {
        let Some(listed) = &self.listed else { return Address::NONE };
        listed.places.as_ref().expect("places are made with the chunks").at()
    }
}
