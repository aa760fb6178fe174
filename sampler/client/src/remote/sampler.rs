//! A sampling server as a trainer sees it.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use bytes::{Buf, Bytes};
use kith_proto::{Call, FRAME_HEAD_BYTES, IdWidth, Message, frame_message, pack_ids, v1};
use kith_sampler::{Direction, Drawn, Fanout, Hop, Id, Replacement, Seeds};
use kith_store::{RowsForm, SplitPart};
use tokio::time::{Instant, sleep, timeout_at};

use crate::{
    error::{ClientError, Result},
    remote::{
        answers::{AnswerError, EdgesAnswer, HopAnswer, Packed, Read, begin_drawn},
        config::RemoteConfig,
        connection::Connection,
        counts::{Counters, RemoteCounts},
        dense::{DenseAnswer, Places},
        error::{RemoteError, RemoteProblem},
        facts::{Facts, InclusionAnswer, InfoAnswer, RemoteOwners},
        own_ids::{OwnIds, OwnIdsAnswer},
        replicas::Replicas,
        seeds::SeedsAnswer,
        sparse::SparseAnswer,
        transport::Transport,
    },
    rows::FetchedRows,
};

/// A server, or several that stand in for each other, and the shards served there. Methods may be called side by side: all
/// calls to a server go over one connection.
#[derive(Debug)]
pub struct RemoteSampler {
    address: String,
    config: RemoteConfig,
    transport: Arc<dyn Transport>,
    facts: Facts,
    counters: Counters,
}

/// Bytes of rows that are asked for at once: what is lost with a connection is asked for again.
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
        let counters = Counters::default();
        let request = v1::InfoRequest { cluster: cluster.unwrap_or_default().to_owned(), ..v1::InfoRequest::default() };
        let mut answer = InfoAnswer::new(false);
        let asker = Asker { address, config: &config, transport: &*transport, counters: &counters };
        asker.ask(Call::Info, None, frame_message(&request), &mut answer).await?;
        let failed = |error: AnswerError| error_of(address, None, Call::Info, (1, Duration::ZERO), error.into());
        let (facts, _) = answer.into_parts().map_err(failed)?;
        Ok(RemoteSampler { address: address.to_owned(), config, transport, facts, counters })
    }

    /// Servers of the same shards as if they were one: while one is away, another is asked; the first is the one with this
    /// number, counted on from the last.
    pub(crate) fn stand_in(servers: &[&RemoteSampler], first: usize) -> RemoteSampler {
        let addresses: Vec<&str> = servers.iter().map(|server| server.address()).collect();
        let max_frontier = servers.iter().map(|server| server.facts.max_frontier).min().unwrap_or(1);
        let ways = servers.iter().map(|server| Arc::clone(&server.transport)).collect();
        RemoteSampler {
            address: addresses.join(" or "),
            config: servers[0].config.clone(),
            transport: Arc::new(Replicas::new(ways, first)),
            facts: Facts { max_frontier, ..servers[0].facts.clone() },
            counters: Counters::default(),
        }
    }

    /// The owner of every node: for a trainer that has no file of the cluster.
    pub async fn owners(&self) -> Result<RemoteOwners> {
        let mut answer = InfoAnswer::new(true);
        self.ask_info(v1::InfoRequest { with_owners: true, ..v1::InfoRequest::default() }, &mut answer).await?;
        let failed = |error: AnswerError| error_of(&self.address, None, Call::Info, (1, Duration::ZERO), error.into());
        Ok(answer.into_parts().map_err(failed)?.1.expect("they were asked for"))
    }

    /// How probably each node is in a batch, if the cluster knows.
    pub async fn inclusion(&self) -> Result<Option<Vec<f32>>> {
        let mut answer = InclusionAnswer::new(self.facts.info.n_nodes);
        self.ask_info(v1::InfoRequest { with_inclusion: true, ..v1::InfoRequest::default() }, &mut answer).await?;
        Ok(Some(answer.inclusion).filter(|inclusion| !inclusion.is_empty()))
    }

    /// What the user calls each node, unless that is its number.
    pub async fn own_ids(&self) -> Result<Option<OwnIds>> {
        let mut answer = OwnIdsAnswer::new(self.facts.info.n_nodes);
        self.ask_info(v1::InfoRequest { with_own_ids: true, ..v1::InfoRequest::default() }, &mut answer).await?;
        let failed = |error: AnswerError| error_of(&self.address, None, Call::Info, (1, Duration::ZERO), error.into());
        answer.into_ids().map_err(failed)
    }

    async fn ask_info(&self, request: v1::InfoRequest, answer: &mut (dyn Read + Send)) -> Result<()> {
        let request = v1::InfoRequest { cluster: self.cluster(), ..request };
        let RemoteSampler { address, config, transport, counters, .. } = self;
        let asker = Asker { address, config, transport: &**transport, counters };
        asker.ask(Call::Info, None, frame_message(&request), answer).await
    }

    /// Where it is.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// What it says of the cluster and itself.
    pub fn facts(&self) -> &Facts {
        &self.facts
    }

    /// What was asked so far.
    pub fn counts(&self, call: Call) -> RemoteCounts {
        self.counters.of(call)
    }

    /// The labeled nodes of a shard in one part of a split, the store's first split if none is named.
    pub async fn seeds(&self, shard: u32, split: Option<&str>, part: SplitPart) -> Result<Seeds> {
        let info = &self.facts.info;
        let request = v1::SeedsRequest {
            cluster: self.cluster(),
            shard,
            split: split.unwrap_or_default().to_owned(),
            part: match part {
                SplitPart::None => v1::SplitPart::None.into(),
                SplitPart::Train => v1::SplitPart::Train.into(),
                SplitPart::Valid => v1::SplitPart::Valid.into(),
                SplitPart::Test => v1::SplitPart::Test.into(),
            },
        };
        let mut answer = SeedsAnswer::new(self.facts.ids, info.n_nodes, info.n_classes, info.is_multi_label);
        self.ask(Call::Seeds, shard, frame_message(&request), &mut answer).await?;
        answer.into_seeds().map_err(|error| self.nonsense(Call::Seeds, shard, error))
    }

    /// The neighbors that a frontier of a shard's nodes draws, in its order; what was in `drawn` goes.
    pub async fn sample_hop(&self, shard: u32, hop: &Hop, frontier: &[u64], drawn: &mut Drawn) -> Result<()> {
        match self.facts.ids {
            IdWidth::Narrow => self.sample_hop_as::<u32>(shard, hop, frontier, drawn).await,
            IdWidth::Wide => self.sample_hop_as::<u64>(shard, hop, frontier, drawn).await,
        }
    }

    async fn sample_hop_as<I: Id + Packed>(
        &self,
        shard: u32,
        hop: &Hop,
        frontier: &[u64],
        drawn: &mut Drawn,
    ) -> Result<()> {
        let (counts, neighbors) = begin_drawn::<I>(drawn);
        counts.reserve(frontier.len());
        for frontier in frontier.chunks(self.facts.max_frontier) {
            let Hop { run_key, step, hop: number, fanout, replacement } = *hop;
            let request = v1::SampleHopRequest {
                cluster: self.cluster(),
                shard,
                run_key,
                step,
                hop: number,
                with_replacement: replacement == Replacement::With,
                frontier: self.pack(Call::SampleHop, shard, frontier)?,
                most: Some(match fanout {
                    Fanout::AtMost(fanout) => v1::sample_hop_request::Most::Fanout(fanout.get()),
                    Fanout::All => v1::sample_hop_request::Most::All(true),
                }),
            };
            let mut answer = HopAnswer::new(hop, frontier.len(), counts, neighbors);
            self.ask(Call::SampleHop, shard, frame_message(&request), &mut answer).await?;
        }
        Ok(())
    }

    /// The feature rows of a shard's nodes, in their order; what was in `rows` goes.
    pub async fn fetch_rows(&self, shard: u32, nodes: &[u64], rows: &mut FetchedRows) -> Result<()> {
        match self.facts.info.rows {
            None => Err(ClientError::NoRows),
            Some(RowsForm::Sparse) => self.fetch_sparse(shard, nodes, rows).await,
            Some(RowsForm::Dense) => {
                rows.begin_dense(nodes.len(), self.facts.info.dim);
                self.fetch_dense(shard, nodes, Places::From(0), &Mutex::new(rows)).await
            }
        }
    }

    /// Dense rows of a shard's nodes into their places, for which there must be room (see `FetchedRows`). Several
    /// servers may be asked for rows of the same memory side by side.
    pub async fn fetch_dense(
        &self,
        shard: u32,
        nodes: &[u64],
        places: Places<'_>,
        rows: &Mutex<&mut FetchedRows>,
    ) -> Result<()> {
        let (dim, dtype) = (self.facts.info.dim, self.facts.rows_dtype);
        let most = self.max_rows(dim * dtype.bytes());
        for (piece, nodes) in nodes.chunks(most).enumerate() {
            let places = match places {
                Places::From(first) => Places::From(first + piece * most),
                Places::At(places) => Places::At(&places[piece * most..][..nodes.len()]),
            };
            let mut answer = DenseAnswer::new(nodes, places, dtype, rows);
            self.ask(Call::FetchRows, shard, self.rows_request(shard, nodes)?, &mut answer).await?;
        }
        Ok(())
    }

    async fn fetch_sparse(&self, shard: u32, nodes: &[u64], rows: &mut FetchedRows) -> Result<()> {
        rows.begin_sparse(self.facts.info.dim, std::iter::empty());
        for nodes in nodes.chunks(self.facts.max_frontier) {
            let request = self.rows_request(shard, nodes)?;
            self.ask(Call::FetchRows, shard, request, &mut SparseAnswer::new(nodes, rows)).await?;
        }
        Ok(())
    }

    /// For each (source, destination) with a destination that the shard owns, whether the whole graph has the edge.
    pub async fn has_edges(
        &self,
        shard: u32,
        pairs: &[(u64, u64)],
        direction: Direction,
        found: &mut [bool],
    ) -> Result<()> {
        assert_eq!(pairs.len(), found.len(), "one answer per pair");
        let most = self.facts.max_frontier;
        for (pairs, found) in pairs.chunks(most).zip(found.chunks_mut(most)) {
            // Candidates of one destination stand together.
            let by_destination = || pairs.chunk_by(|one, other| one.1 == other.1);
            let destinations: Vec<u64> = by_destination().map(|pairs| pairs[0].1).collect();
            let counts: Vec<u32> = by_destination().map(|pairs| pairs.len() as u32).collect();
            let sources: Vec<u64> = pairs.iter().map(|(source, _)| *source).collect();
            let request = v1::HasEdgesRequest {
                cluster: self.cluster(),
                shard,
                direction: match direction {
                    Direction::Forward => v1::EdgeDirection::Forward.into(),
                    Direction::Either => v1::EdgeDirection::Either.into(),
                },
                destinations: self.pack(Call::HasEdges, shard, &destinations)?,
                counts: counts.iter().flat_map(|count| count.to_le_bytes()).collect::<Vec<u8>>().into(),
                sources: self.pack(Call::HasEdges, shard, &sources)?,
            };
            self.ask(Call::HasEdges, shard, frame_message(&request), &mut EdgesAnswer::new(found)).await?;
        }
        Ok(())
    }

    fn rows_request(&self, shard: u32, nodes: &[u64]) -> Result<Bytes> {
        let nodes = self.pack(Call::FetchRows, shard, nodes)?;
        Ok(frame_message(&v1::FetchRowsRequest { cluster: self.cluster(), shard, nodes }))
    }

    /// Rows of so many bytes that are asked for at once.
    fn max_rows(&self, row_bytes: usize) -> usize {
        (MAX_ROWS_BYTES / row_bytes.max(1)).clamp(1, self.facts.max_frontier)
    }

    fn cluster(&self) -> String {
        self.facts.cluster.clone()
    }

    fn pack(&self, call: Call, shard: u32, ids: &[u64]) -> Result<Bytes> {
        pack_ids(ids.iter().copied(), self.facts.ids).map_err(|error| self.nonsense(call, shard, error.into()))
    }

    fn nonsense(&self, call: Call, shard: u32, error: AnswerError) -> ClientError {
        error_of(&self.address, Some(shard), call, (1, Duration::ZERO), error.into())
    }

    async fn ask(&self, call: Call, shard: u32, request: Bytes, answer: &mut (dyn Read + Send)) -> Result<()> {
        let RemoteSampler { address, config, transport, counters, .. } = self;
        Asker { address, config, transport: &**transport, counters }.ask(call, Some(shard), request, answer).await
    }
}

/// Asks until there is an answer, a refusal, or no time left. Calls have no state, so asking twice does no harm.
struct Asker<'a> {
    address: &'a str,
    config: &'a RemoteConfig,
    transport: &'a dyn Transport,
    counters: &'a Counters,
}

impl Asker<'_> {
    async fn ask(&self, call: Call, shard: Option<u32>, request: Bytes, answer: &mut (dyn Read + Send)) -> Result<()> {
        let RemoteConfig { max_attempt, max_call, first_wait, max_wait, .. } = *self.config;
        let started = Instant::now();
        let end = started + max_call;
        let mut wait = first_wait;
        for n_attempts in 1.. {
            answer.restart();
            let deadline = end.min(Instant::now() + max_attempt);
            self.counters.sent(call, request.len());
            let mut counted = Counted { answer, call, counters: self.counters };
            let asked = timeout_at(deadline, self.transport.ask(call, request.clone(), &mut counted, deadline)).await;
            let asked = asked.unwrap_or(Err(RemoteProblem::Late));
            if asked.is_err() {
                self.counters.failed(call);
            }
            let Err(problem) = asked else { return Ok(()) };
            if !problem.may_pass() || Instant::now() + wait >= end {
                return Err(error_of(self.address, shard, call, (n_attempts, started.elapsed()), problem));
            }
            sleep(wait).await;
            wait = (wait * 2).min(max_wait);
        }
        unreachable!("attempts end when time does")
    }
}

/// An answer whose bytes are counted as they come.
struct Counted<'a> {
    answer: &'a mut (dyn Read + Send),
    call: Call,
    counters: &'a Counters,
}

impl Read for Counted<'_> {
    fn restart(&mut self) {
        self.answer.restart();
    }

    fn read(&mut self, message: Message) -> Result<(), AnswerError> {
        self.counters.received(self.call, FRAME_HEAD_BYTES + message.remaining());
        self.answer.read(message)
    }

    fn finish(&mut self) -> Result<(), AnswerError> {
        self.answer.finish()
    }
}

fn error_of(
    address: &str,
    shard: Option<u32>,
    call: Call,
    (n_attempts, tried): (u32, Duration),
    problem: RemoteProblem,
) -> ClientError {
    let address = address.to_owned();
    ClientError::Remote(Box::new(RemoteError { address, shard, call, n_attempts, tried, problem }))
}
