//! One hop of neighbor sampling: draws the neighbors of a frontier.
//!
//! A stored self-loop is never drawn: a node draws from its neighbor list without itself. Parallel edges are separate
//! slots. Drawn neighbors keep the order of the draw; if all are taken, the order of the list. Draws by weight are in
//! `weighted.rs`.

mod by_weight;
mod edge_data;

use kith_draw::{Name, Purpose, Stream, prefetch, vectorized};
use kith_store::{Lists, Neighbors, Result, StoreError};
use rayon::prelude::*;

pub(crate) use self::edge_data::data_of_list;
use self::edge_data::{EdgeColumns, EdgeOutput};
use crate::{
    drawn::{Drawn, Id},
    fanout::{EdgeData, Fanout, Sampling},
    frontier::Frontier,
    graph::SampledGraph,
    lanes::{DrawRows, MAX_FANOUT, N_LANES, WordSource},
    loops::KnownLoops,
    slots::draw_slots,
    weighted::WeightedDraws,
};

/// Names the draws of a hop, and says how many.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hop {
    /// Names all randomness of the run.
    pub run_key: u64,
    /// Weight updates so far.
    pub step: u64,
    /// 0 expands the roots.
    pub hop: u32,
    /// The most neighbors per node.
    pub fanout: Fanout,
    /// Sampling of a node's neighbors.
    pub sampling: Sampling,
    /// Data of drawn edges that are wanted.
    pub edge_data: EdgeData,
}

impl Hop {
    /// The draws of this hop; a = node.
    pub fn stream(&self) -> Stream {
        self.stream_of(Purpose::Neighbor)
    }

    /// Keys of this hop's weighted draws.
    fn keys(&self) -> Stream {
        self.stream_of(Purpose::WeightedNeighbor)
    }

    fn stream_of(&self, purpose: Purpose) -> Stream {
        let Hop { run_key, step, hop, .. } = *self;
        Name { run_key, purpose, step, layer: hop }.stream()
    }

    /// True if the hop needs the weights of edges.
    pub fn needs_weights(&self) -> bool {
        self.edge_data.weights || self.sampling == Sampling::Weighted && self.fanout != Fanout::All
    }
}

/// Nodes that go through the stages of a hop together: enough to hide the way to memory, few enough to stay near.
const PIECE: usize = 128;

/// Nodes per task when a frontier is shared among threads.
const TASK: usize = 4096;

/// Draws the neighbors of a frontier. Long frontiers are shared among the threads of the current rayon pool; what
/// comes out does not depend on how many there are.
pub fn sample_hop(graph: SampledGraph<'_>, hop: &Hop, frontier: Frontier<'_>, drawn: &mut Drawn) -> Result<()> {
    if frontier.len() <= TASK || rayon::current_num_threads() == 1 {
        return sample_hop_with(&mut hop.stream(), graph, hop, frontier, drawn);
    }
    let parts: Vec<Drawn> = frontier
        .nodes
        .par_chunks(TASK)
        .zip(frontier.rows.par_chunks(TASK))
        .map(|(nodes, rows)| {
            let frontier = Frontier { nodes, rows };
            let mut part = Drawn::default();
            sample_hop_with(&mut hop.stream(), graph, hop, frontier, &mut part)?;
            Ok(part)
        })
        .collect::<Result<_>>()?;
    drawn.counts.clear();
    drawn.edge_data.clear();
    drawn.edge_ids.clear();
    for part in &parts {
        drawn.counts.extend(&part.counts);
        drawn.edge_data.extend(&part.edge_data);
        drawn.edge_ids.extend(&part.edge_ids);
    }
    match graph.lists.indices() {
        Neighbors::Narrow(_) => join::<u32>(parts, drawn),
        Neighbors::Wide(_) => join::<u64>(parts, drawn),
    }
    Ok(())
}

fn join<I: Id>(parts: Vec<Drawn>, drawn: &mut Drawn) {
    let ids = I::ids_of(&mut drawn.neighbors);
    parts.into_iter().for_each(|part| ids.extend(part.neighbors.iter().map(I::narrow)));
}

/// The same on this thread alone, with words from anywhere; `words` must be the hop's stream for draws with a name.
pub fn sample_hop_with<W: WordSource>(
    words: &mut W,
    graph: SampledGraph<'_>,
    hop: &Hop,
    frontier: Frontier<'_>,
    drawn: &mut Drawn,
) -> Result<()> {
    let SampledGraph { lists, loops, .. } = graph;
    let Drawn { counts, neighbors, edge_data: numbers, edge_ids: ids } = drawn;
    counts.clear();
    numbers.clear();
    ids.clear();
    let data = &mut EdgeOutput { numbers, ids };
    let edges = EdgeColumns::of(graph, hop.needs_weights(), hop.edge_data)?;
    match lists.indices() {
        Neighbors::Narrow(ids) => {
            Pieces { lists, ids, loops, edges, hop, words }.sample(frontier, counts, u32::ids_of(neighbors), data)
        }
        Neighbors::Wide(ids) => {
            Pieces { lists, ids, loops, edges, hop, words }.sample(frontier, counts, u64::ids_of(neighbors), data)
        }
    }
}

/// Start and end of a node's neighbor list among all edges.
#[derive(Clone, Copy, Default)]
struct Bounds {
    row: u64,
    start: usize,
    end: usize,
    /// True if the list is known to have no self-loop.
    has_no_loop: bool,
}

/// The slots that a node may draw: its list from `start`, without the loops.
#[derive(Clone, Copy, Default)]
struct Candidates {
    start: usize,
    n: usize,
    /// The slot of the first loop, or beyond the list.
    loop_at: usize,
    n_loops: usize,
}

impl Candidates {
    /// Position of a slot among all edges.
    #[inline(always)]
    fn place(self, slot: usize) -> usize {
        self.start + slot + if slot >= self.loop_at { self.n_loops } else { 0 }
    }
}

struct Pieces<'a, I, W> {
    lists: &'a Lists,
    ids: &'a [I],
    loops: &'a KnownLoops,
    edges: EdgeColumns<'a>,
    hop: &'a Hop,
    words: &'a mut W,
}

/// Memory of a piece, used again by the next.
#[derive(Default)]
struct Scratch {
    /// Nodes that take all their candidates, and where these go in the output.
    taking: Vec<(Candidates, usize)>,
    /// Nodes that draw side by side, and where their neighbors go.
    drawing: Vec<(Candidates, usize)>,
    drawing_nodes: Vec<u64>,
    drawing_n: Vec<u32>,
    /// Nodes that draw one by one, where their neighbors go, and how many.
    alone: Vec<(u64, Candidates, usize, usize)>,
    slots: Vec<u32>,
    doubtful: Vec<u32>,
    is_repeated: Vec<u32>,
    /// Positions of the neighbors of `drawing` among all edges.
    places: Vec<usize>,
    /// Slots of one node.
    plain: Vec<u64>,
    /// Weights of one node's candidates, and the slots drawn by them.
    candidate_weights: Vec<f32>,
    weighted: WeightedDraws,
    weighted_slots: Vec<u32>,
}

impl<I: Id, W: WordSource> Pieces<'_, I, W> {
    fn sample(
        &mut self,
        frontier: Frontier<'_>,
        counts: &mut Vec<u32>,
        out: &mut Vec<I>,
        data: &mut EdgeOutput<'_>,
    ) -> Result<()> {
        if let Fanout::AtMost(fanout) = self.hop.fanout {
            out.reserve(frontier.len().saturating_mul((fanout.get() as usize).min(MAX_FANOUT)));
        }
        counts.reserve(frontier.len());
        let mut scratch = Scratch::default();
        let mut bounds = [Bounds::default(); PIECE];
        let mut next = [Bounds::default(); PIECE];
        let rows = |piece: usize| frontier.rows.chunks(PIECE).nth(piece).unwrap_or(&[]);
        self.ask_for_bounds(rows(0));
        self.ask_for_bounds(rows(1));
        self.read_bounds(rows(0), &mut next)?;
        for (piece, nodes) in frontier.nodes.chunks(PIECE).enumerate() {
            self.ask_for_bounds(rows(piece + 2));
            bounds.copy_from_slice(&next);
            self.read_bounds(rows(piece + 1), &mut next)?;
            match (self.hop.sampling, self.hop.fanout) {
                (Sampling::Weighted, Fanout::AtMost(k)) => {
                    self.sample_weighted(nodes, &bounds, k.get() as usize, counts, out, data, &mut scratch)?;
                }
                _ => self.sample_piece(nodes, &bounds, counts, out, data, &mut scratch)?,
            }
        }
        Ok(())
    }

    fn ask_for_bounds(&self, rows: &[u64]) {
        for row in rows {
            self.lists.place_of(*row).inspect(|bound| prefetch(*bound));
            self.loops.ask_for(*row);
        }
    }

    /// Reads where lists begin and end, and asks for those that will be read: short ones as a whole; of long ones that
    /// may hold a loop the middle, where the search for it begins.
    fn read_bounds(&self, rows: &[u64], bounds: &mut [Bounds; PIECE]) -> Result<()> {
        const LINE: usize = 16;
        const SHORT: usize = 2 * LINE;
        // Longer lists are drawn from at a few places.
        const ALL_ASKED_FOR: usize = 1 << 12;
        for (row, bounds) in rows.iter().zip(bounds) {
            let (start, end) = self.lists.bounds(*row)?;
            self.lists.touch(start, end)?;
            self.edges.touch(start, end)?;
            let list = self.ids.get(start..end).ok_or_else(|| StoreError::damaged("indptr", *row))?;
            if list.len() <= ALL_ASKED_FOR || self.hop.fanout == Fanout::All {
                self.lists.will_need(start, end);
            }
            let has_no_loop = self.loops.has_none(*row);
            *bounds = Bounds { row: *row, start, end, has_no_loop };
            if self.hop.sampling == Sampling::Weighted {
                self.edges.ask_for_weights(start, end);
            }
            if list.len() <= SHORT {
                list.first().inspect(|id| prefetch(*id));
                list.last().inspect(|id| prefetch(*id));
            } else if !has_no_loop {
                prefetch(&list[list.len() / 2]);
            }
        }
        Ok(())
    }

    #[inline]
    fn candidates(&self, node: u64, Bounds { row, start, end, has_no_loop }: Bounds) -> Candidates {
        if has_no_loop {
            return Candidates { start, n: end - start, loop_at: usize::MAX, n_loops: 0 };
        }
        let list = &self.ids[start..end];
        let own = I::narrow(node);
        let loop_at = list.partition_point(|id| *id < own);
        let n_loops = list[loop_at..].iter().take_while(|id| **id == own).count();
        self.loops.learn(row, n_loops > 0);
        Candidates { start, n: list.len() - n_loops, loop_at: if n_loops > 0 { loop_at } else { usize::MAX }, n_loops }
    }

    fn sample_piece(
        &mut self,
        nodes: &[u64],
        bounds: &[Bounds; PIECE],
        counts: &mut Vec<u32>,
        out: &mut Vec<I>,
        data: &mut EdgeOutput<'_>,
        scratch: &mut Scratch,
    ) -> Result<()> {
        let Hop { fanout, sampling, .. } = *self.hop;
        scratch.taking.clear();
        scratch.drawing.clear();
        scratch.drawing_nodes.clear();
        scratch.drawing_n.clear();
        let mut end = out.len();
        for (node, bounds) in nodes.iter().zip(bounds) {
            let own = self.candidates(*node, *bounds);
            let k = match (fanout, sampling) {
                (Fanout::AtMost(k), Sampling::Uniform) => own.n.min(k.get() as usize),
                (Fanout::AtMost(k), Sampling::WithReplacement) if own.n > 0 => k.get() as usize,
                (Fanout::AtMost(_), Sampling::WithReplacement) => 0,
                (Fanout::AtMost(_), Sampling::Weighted) => unreachable!("drawn by `sample_weighted`"),
                (Fanout::All, _) => own.n,
            };
            counts.push(u32::try_from(k).map_err(|_| StoreError::damaged("indptr", *node))?);
            if k == 0 {
                continue;
            } else if k == own.n && (sampling == Sampling::Uniform || fanout == Fanout::All) {
                scratch.taking.push((own, end));
            } else if k > MAX_FANOUT || u32::try_from(own.n).is_err() {
                scratch.alone.push((*node, own, end, k));
            } else {
                scratch.drawing_nodes.push(*node);
                scratch.drawing_n.push(own.n as u32);
                scratch.drawing.push((own, end));
            }
            end += k;
        }
        out.resize(end, I::default());
        self.edges.make_room(end, data);
        for (own, at) in &scratch.taking {
            self.take_all(*own, &mut out[*at..]);
            self.edges.put((0..own.n).map(|slot| own.place(slot)), *at, data)?;
        }
        if !scratch.drawing.is_empty() {
            self.draw_side_by_side(out, data, scratch)?;
        }
        for (node, own, at, k) in scratch.alone.drain(..) {
            self.places_of(node, own, k, &mut scratch.plain, &mut scratch.places);
            scratch.places.iter().zip(&mut out[at..]).for_each(|(place, out)| *out = self.ids[*place]);
            self.edges.put(scratch.places.iter().copied(), at, data)?;
        }
        Ok(())
    }

    /// Writes all candidates to the front of `out`. May write beyond them: what comes behind is written later.
    #[inline]
    fn take_all(&self, own: Candidates, out: &mut [I]) {
        const SHORT: usize = 16;
        let list = &self.ids[own.start..];
        if own.n <= SHORT
            && own.n_loops == 0
            && let (Some(list), Some(out)) = (list.first_chunk::<SHORT>(), out.first_chunk_mut::<SHORT>())
        {
            *out = *list;
            return;
        }
        let before = own.loop_at.min(own.n);
        out[..before].copy_from_slice(&list[..before]);
        out[before..own.n].copy_from_slice(&list[before + own.n_loops..][..own.n - before]);
    }

    /// Positions, among all edges, of the neighbors that one node draws.
    fn places_of(&self, node: u64, own: Candidates, k: usize, slots: &mut Vec<u64>, places: &mut Vec<usize>) {
        slots.clear();
        draw_slots(self.hop.stream(), node, own.n as u64, k, self.hop.sampling, slots);
        places.clear();
        places.extend(slots.iter().map(|slot| own.place(*slot as usize)));
    }

    fn draw_side_by_side(&mut self, out: &mut [I], data: &mut EdgeOutput<'_>, scratch: &mut Scratch) -> Result<()> {
        let Fanout::AtMost(k) = self.hop.fanout else { return Ok(()) };
        let k = k.get() as usize;
        let Scratch { drawing, drawing_nodes, drawing_n, slots, doubtful, is_repeated, places, plain, .. } = scratch;
        // Spare lanes draw for nobody.
        let width = drawing.len().next_multiple_of(N_LANES);
        drawing_nodes.resize(width, drawing_nodes[0]);
        drawing_n.resize(width, drawing_n[0]);
        let sampling = self.hop.sampling;
        vectorized(DrawRows {
            words: self.words,
            k,
            sampling,
            nodes: drawing_nodes,
            n: drawing_n,
            slots,
            doubtful,
            is_repeated,
        });
        places.resize(drawing.len() * k, 0);
        for (lane, ((own, _), places)) in drawing.iter().zip(places.chunks_exact_mut(k)).enumerate() {
            for (row, place) in slots.chunks_exact(width).zip(places) {
                *place = own.place(row[lane] as usize);
                self.ids.get(*place).inspect(|id| prefetch(*id));
            }
        }
        for ((_, at), places) in drawing.iter().zip(places.chunks_exact(k)) {
            for (out, place) in out[*at..].iter_mut().zip(places) {
                *out = self.ids[*place];
            }
            self.edges.put(places.iter().copied(), *at, data)?;
        }
        for (lane, (own, at)) in drawing.iter().enumerate() {
            if doubtful[lane] != 0 {
                self.places_of(drawing_nodes[lane], *own, k, plain, places);
                out[*at..].iter_mut().zip(&*places).for_each(|(out, place)| *out = self.ids[*place]);
                self.edges.put(places.iter().copied(), *at, data)?;
            }
        }
        Ok(())
    }
}
