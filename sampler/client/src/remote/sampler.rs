//! Remote sampling server, as used by a trainer.

use std::{
    ops::Range,
    sync::{Arc, Mutex},
    time::Duration,
};

use bytes::Bytes;
use kith_proto::{Call, IdWidth, frame_message, pack_ids, v2};
use kith_sampler::{Direction, Drawn, Fanout, Hop, Id, Sampling, Seeds};
use kith_store::{FeatureLayout, SplitPart};

use crate::{
    error::{ClientError, Result},
    remote::{
        answers::{AnswerError, EdgesAnswer, HopAnswer, Packed, Read, begin_drawn},
        asker::{Asker, Memory, Wanted, error_of},
        columns::{InclusionAnswer, OwnersAnswer, RemoteOwners},
        config::RemoteConfig,
        connection::Connection,
        counts::RemoteCounts,
        dense::{DenseAnswer, Places},
        facts::{Facts, InfoAnswer},
        hedge::HedgeCounts,
        own_ids::{OwnIds, OwnIdsAnswer},
        parts::OfShards,
        replicas::Replicas,
        seeds::SeedsAnswer,
        sparse::SparseAnswer,
        transport::Transport,
    },
    rows::FetchedRows,
    shards::Info,
};

/// A server, or several that stand in for each other, and the shards served there. Methods may be called side by side: all
/// calls to a server go over one connection.
#[derive(Debug)]
pub struct RemoteSampler {
    address: String,
    config: RemoteConfig,
    transport: Arc<dyn Transport>,
    facts: Facts,
    memory: Memory,
    /// The servers, if there are several.
    replicas: Option<Arc<Replicas>>,
}

/// Bytes of rows that are asked for at once.
const MAX_ROWS_BYTES: usize = 256 << 20;

impl RemoteSampler {
    /// Connects to `HOST:PORT` and learns what is served there; refuses a server of another cluster than `cluster`, if
    /// one is named. To be used within a tokio runtime, as everything here.
    pub async fn connect(address: &str, cluster: Option<&str>, config: RemoteConfig) -> Result<RemoteSampler> {
        let failed = |problem| error_of(address, None, Call::Info, (1, Duration::ZERO), problem);
        let transport = Arc::new(Connection::new(address, &config).map_err(failed)?);
        RemoteSampler::open(transport, address, cluster, config).await
    }

    /// The same over any transport; `address` is for messages.
    pub(crate) async fn open(
        transport: Arc<dyn Transport>,
        address: &str,
        cluster: Option<&str>,
        config: RemoteConfig,
    ) -> Result<RemoteSampler> {
        let memory = Memory::new(&config);
        let request = v2::InfoRequest { graph: cluster.unwrap_or_default().to_owned(), ..v2::InfoRequest::default() };
        let request = frame_message(&request);
        let mut answer = InfoAnswer::new();
        let asker = Asker { address, config: &config, transport: &*transport, memory: &memory };
        let wanted = Wanted { n_rows: usize::MAX, at_once: usize::MAX, request: &|_| Ok(request.clone()) };
        asker.ask(Call::Info, None, wanted, &mut answer).await?;
        let failed = |error: AnswerError| error_of(address, None, Call::Info, (1, Duration::ZERO), error.into());
        let facts = answer.into_facts().map_err(failed)?;
        Ok(RemoteSampler { address: address.to_owned(), config, transport, facts, memory, replicas: None })
    }

    /// Servers of the same shards as if they were one: while one is away, another is asked; the first is the one with this
    /// number, counted on from the last.
    pub(crate) fn stand_in(servers: &[&RemoteSampler], first: usize) -> RemoteSampler {
        let addresses: Vec<&str> = servers.iter().map(|server| server.address()).collect();
        let max_frontier = servers.iter().map(|server| server.facts.max_frontier).min().unwrap_or(1);
        let resumes = servers.iter().all(|server| server.facts.resumes);
        let ways = servers.iter().map(|server| Arc::clone(&server.transport)).collect();
        let (replicas, config) = (Arc::new(Replicas::new(ways, first)), servers[0].config.clone());
        RemoteSampler {
            address: addresses.join(" or "),
            memory: Memory::new(&config),
            config,
            transport: Arc::clone(&replicas) as Arc<dyn Transport>,
            facts: Facts { max_frontier, resumes, ..servers[0].facts.clone() },
            replicas: Some(replicas),
        }
    }

    /// The owner of every node: for a trainer that has no file of the cluster.
    pub async fn owners(&self) -> Result<RemoteOwners> {
        let mut answer = OwnersAnswer::new(&self.facts);
        self.ask_info(v2::InfoRequest { with_owners: true, ..v2::InfoRequest::default() }, &mut answer).await?;
        answer.into_owners().map_err(|error| self.nonsense(Call::Info, None, error))
    }

    /// Probability that each node is in a mini-batch, if the partitioned graph has it.
    pub async fn inclusion(&self) -> Result<Option<Vec<f32>>> {
        let mut answer = InclusionAnswer::new(&self.facts);
        self.ask_info(v2::InfoRequest { with_inclusion: true, ..v2::InfoRequest::default() }, &mut answer).await?;
        Ok(Some(answer.inclusion).filter(|inclusion| !inclusion.is_empty()))
    }

    /// Users' own ids of all nodes; `None` if ids are node numbers.
    pub async fn own_ids(&self) -> Result<Option<OwnIds>> {
        let mut answer = OwnIdsAnswer::new(self.facts.info.n_nodes, self.facts.resumes);
        self.ask_info(v2::InfoRequest { with_own_ids: true, ..v2::InfoRequest::default() }, &mut answer).await?;
        answer.into_ids().map_err(|error| self.nonsense(Call::Info, None, error))
    }

    /// Asks for columns of all nodes; a retry leaves out the bytes that are here.
    async fn ask_info(&self, request: v2::InfoRequest, answer: &mut (dyn Read + Send)) -> Result<()> {
        let request = v2::InfoRequest { graph: self.cluster(), ..request };
        let behind =
            |rows: Range<usize>| Ok(frame_message(&v2::InfoRequest { first: rows.start as u64, ..request.clone() }));
        let wanted = Wanted { n_rows: usize::MAX, at_once: usize::MAX, request: &behind };
        self.asker().ask(Call::Info, None, wanted, answer).await
    }

    /// Address of the server.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// Facts that it reports about the partitioned graph and itself.
    pub fn facts(&self) -> &Facts {
        &self.facts
    }

    /// Refuses a server that says something else of the graph than the graph's folder or other servers do.
    pub(crate) fn expect_info(&self, info: &Info) -> Result<()> {
        if self.facts.info == *info {
            return Ok(());
        }
        let differs = AnswerError::Other("its facts are not those of the graph's folder or of other servers");
        Err(self.nonsense(Call::Info, None, differs))
    }

    /// Requests so far.
    pub fn counts(&self, call: Call) -> RemoteCounts {
        self.memory.counters.of(call)
    }

    /// Counts of hedged calls; zero with a single server.
    pub fn hedge_counts(&self) -> HedgeCounts {
        self.replicas.as_ref().map(|replicas| replicas.counts()).unwrap_or_default()
    }

    /// The labeled nodes of a shard in one part of a split, the store's first split if none is named.
    pub async fn seeds(&self, shard: u32, split: Option<&str>, part: SplitPart) -> Result<Seeds> {
        let request = v2::SeedsRequest {
            graph: self.cluster(),
            shard,
            split: split.unwrap_or_default().to_owned(),
            part: match part {
                SplitPart::None => v2::SplitPart::None.into(),
                SplitPart::Train => v2::SplitPart::Train.into(),
                SplitPart::Valid => v2::SplitPart::Valid.into(),
                SplitPart::Test => v2::SplitPart::Test.into(),
            },
            first: 0,
        };
        let behind =
            |rows: Range<usize>| Ok(frame_message(&v2::SeedsRequest { first: rows.start as u64, ..request.clone() }));
        let wanted = Wanted { n_rows: usize::MAX, at_once: usize::MAX, request: &behind };
        let mut answer = SeedsAnswer::new(&self.facts);
        self.asker().ask(Call::Seeds, Some(shard.into()), wanted, &mut answer).await?;
        answer.into_seeds().map_err(|error| self.nonsense(Call::Seeds, Some(shard.into()), error))
    }

    /// The neighbors that a frontier of nodes of one or several shards draws, in its order; what was in `drawn` goes.
    pub async fn sample_hop(
        &self,
        shards: impl Into<OfShards<'_>>,
        hop: &Hop,
        frontier: &[u64],
        drawn: &mut Drawn,
    ) -> Result<()> {
        let shards = shards.into();
        match self.facts.ids {
            IdWidth::Narrow => self.sample_hop_as::<u32>(shards, hop, frontier, drawn).await,
            IdWidth::Wide => self.sample_hop_as::<u64>(shards, hop, frontier, drawn).await,
        }
    }

    async fn sample_hop_as<I: Id + Packed>(
        &self,
        shards: OfShards<'_>,
        hop: &Hop,
        frontier: &[u64],
        drawn: &mut Drawn,
    ) -> Result<()> {
        let (counts, neighbors, edge_data) = begin_drawn::<I>(drawn);
        counts.reserve(frontier.len());
        let Hop { run_key, step, hop: number, fanout, sampling, edge_data: wanted } = *hop;
        let request = |rows: Range<usize>| {
            Ok(frame_message(&v2::SampleHopRequest {
                graph: self.cluster(),
                parts: shards.pack(rows.clone(), |nodes| nodes.len()),
                seed: run_key,
                step,
                hop: number,
                with_replacement: sampling == Sampling::WithReplacement,
                by_weight: sampling == Sampling::Weighted,
                with_weights: wanted.weights,
                with_edge_features: wanted.features,
                frontier: self.pack(Call::SampleHop, shards, &frontier[rows])?,
                most: Some(match fanout {
                    Fanout::AtMost(fanout) => v2::sample_hop_request::Most::Fanout(fanout.get()),
                    Fanout::All => v2::sample_hop_request::Most::All(true),
                }),
            }))
        };
        let wanted = Wanted { n_rows: frontier.len(), at_once: self.facts.max_frontier, request: &request };
        let Info { n_edges, edge_dim, .. } = self.facts.info;
        let mut answer = HopAnswer::new(hop, (n_edges, edge_dim), (counts, neighbors, edge_data));
        self.asker().ask(Call::SampleHop, Some(shards), wanted, &mut answer).await
    }

    /// The features of nodes of one or several shards, in their order; what was in `rows` goes.
    pub async fn fetch_features(
        &self,
        shards: impl Into<OfShards<'_>>,
        nodes: &[u64],
        rows: &mut FetchedRows,
    ) -> Result<()> {
        match self.facts.info.rows {
            None => Err(ClientError::NoRows),
            Some(FeatureLayout::Sparse) => {
                rows.begin_sparse(self.facts.info.dim, std::iter::empty());
                let mut answer = SparseAnswer::new(nodes, rows);
                self.ask_rows(shards.into(), nodes, self.facts.max_frontier, &mut answer).await
            }
            Some(FeatureLayout::Dense) => {
                rows.begin_dense(nodes.len(), self.facts.info.dim);
                self.fetch_dense(shards, nodes, Places::From(0), &Mutex::new(rows)).await
            }
        }
    }

    /// Dense rows of nodes into their places, for which there must be room (see `FetchedRows`). Several servers may be asked
    /// for rows of the same memory side by side.
    pub async fn fetch_dense(
        &self,
        shards: impl Into<OfShards<'_>>,
        nodes: &[u64],
        places: Places<'_>,
        rows: &Mutex<&mut FetchedRows>,
    ) -> Result<()> {
        let (dim, dtype) = (self.facts.info.dim, self.facts.rows_dtype);
        let at_once = (MAX_ROWS_BYTES / (dim * dtype.bytes()).max(1)).clamp(1, self.facts.max_frontier);
        let mut answer = DenseAnswer::new(nodes, places, dtype, rows);
        self.ask_rows(shards.into(), nodes, at_once, &mut answer).await
    }

    async fn ask_rows(
        &self,
        shards: OfShards<'_>,
        nodes: &[u64],
        at_once: usize,
        answer: &mut (dyn Read + Send),
    ) -> Result<()> {
        let request = |rows: Range<usize>| {
            let parts = shards.pack(rows.clone(), |nodes| nodes.len());
            let nodes = self.pack(Call::FetchFeatures, shards, &nodes[rows])?;
            Ok(frame_message(&v2::FetchFeaturesRequest { graph: self.cluster(), parts, nodes }))
        };
        let wanted = Wanted { n_rows: nodes.len(), at_once, request: &request };
        self.asker().ask(Call::FetchFeatures, Some(shards), wanted, answer).await
    }

    /// For each (source, destination), whether the whole graph has the edge. Destinations are nodes of one or several shards.
    pub async fn has_edges(
        &self,
        shards: impl Into<OfShards<'_>>,
        pairs: &[(u64, u64)],
        direction: Direction,
        found: &mut [bool],
    ) -> Result<()> {
        assert_eq!(pairs.len(), found.len(), "one answer per pair");
        let shards = shards.into();
        let request = |rows: Range<usize>| {
            // Candidates of one destination stand together.
            let of = |rows: Range<usize>| pairs[rows].chunk_by(|one, other| one.1 == other.1);
            let parts = shards.pack(rows.clone(), |rows| of(rows).count());
            let by_destination = || of(rows.clone());
            let destinations: Vec<u64> = by_destination().map(|pairs| pairs[0].1).collect();
            let counts: Vec<u32> = by_destination().map(|pairs| pairs.len() as u32).collect();
            let sources: Vec<u64> = pairs[rows.clone()].iter().map(|(source, _)| *source).collect();
            Ok(frame_message(&v2::HasEdgesRequest {
                graph: self.cluster(),
                parts,
                direction: match direction {
                    Direction::Forward => v2::EdgeDirection::Forward.into(),
                    Direction::Either => v2::EdgeDirection::Either.into(),
                },
                destinations: self.pack(Call::HasEdges, shards, &destinations)?,
                counts: counts.iter().flat_map(|count| count.to_le_bytes()).collect::<Vec<u8>>().into(),
                sources: self.pack(Call::HasEdges, shards, &sources)?,
            }))
        };
        let wanted = Wanted { n_rows: pairs.len(), at_once: self.facts.max_frontier, request: &request };
        self.asker().ask(Call::HasEdges, Some(shards), wanted, &mut EdgesAnswer::new(found)).await
    }

    fn cluster(&self) -> String {
        self.facts.cluster.clone()
    }

    fn pack(&self, call: Call, shards: OfShards<'_>, ids: &[u64]) -> Result<Bytes> {
        pack_ids(ids.iter().copied(), self.facts.ids).map_err(|error| self.nonsense(call, Some(shards), error.into()))
    }

    fn nonsense(&self, call: Call, shards: Option<OfShards<'_>>, error: AnswerError) -> ClientError {
        error_of(&self.address, shards, call, (1, Duration::ZERO), error.into())
    }

    fn asker(&self) -> Asker<'_> {
        let RemoteSampler { address, config, transport, memory, .. } = self;
        Asker { address, config, transport: &**transport, memory }
    }
}
