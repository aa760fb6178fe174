//! Repeats attempts of a call until all rows are received, the server refuses, or nothing new arrives for too long.

use std::{future::Future, ops::Range, pin::pin, time::Duration};

use bytes::Bytes;
use kith_proto::Call;
use tokio::time::{Instant, sleep, timeout_at};
use tracing::{Instrument, info_span, warn};

use crate::{
    error::{ClientError, Result},
    remote::{
        answers::Read,
        config::RemoteConfig,
        counts::Counters,
        error::{RemoteError, RemoteProblem},
        jitter::Jitter,
        pace::Pace,
        parts::OfShards,
        progress::Progress,
        transport::{Question, Transport},
    },
    session::session,
};

/// A way to a server, and what is known of it. Calls have no state, so asking twice does no harm.
#[derive(Debug)]
pub(crate) struct Asker<'a> {
    pub(crate) address: &'a str,
    pub(crate) config: &'a RemoteConfig,
    pub(crate) transport: &'a dyn Transport,
    pub(crate) memory: &'a Memory,
}

/// Knowledge of earlier calls that later ones use.
#[derive(Debug)]
pub(crate) struct Memory {
    pub(crate) counters: Counters,
    pace: Pace,
    jitter: Jitter,
}

impl Memory {
    pub(crate) fn new(config: &RemoteConfig) -> Memory {
        Memory { counters: Counters::default(), pace: Pace::new(), jitter: Jitter::new(config.jitter) }
    }
}

/// Rows that are wanted.
pub(crate) struct Wanted<'a> {
    /// All of them; `usize::MAX` if their number is not known before they come.
    pub(crate) n_rows: usize,
    /// The most rows of a request.
    pub(crate) at_once: usize,
    /// Makes the request for some of them.
    pub(crate) request: &'a (dyn Fn(Range<usize>) -> Result<Bytes> + Sync),
}

impl Wanted<'_> {
    fn is_counted(&self) -> bool {
        self.n_rows < usize::MAX
    }
}

impl Asker<'_> {
    /// Asks for rows, and asks again for those that did not come.
    pub(crate) async fn ask(
        &self,
        call: Call,
        shards: Option<OfShards<'_>>,
        wanted: Wanted<'_>,
        answer: &mut (dyn Read + Send),
    ) -> Result<()> {
        let RemoteConfig { max_call, first_wait, max_wait, .. } = *self.config;
        let Memory { counters, pace, jitter } = self.memory;
        let (mut n_whole, mut n_attempts, mut wait) = (0, 0, first_wait);
        let mut last_row = Instant::now();
        // Rows, and what the connection brings for other calls before them.
        let mut last_news = last_row;
        // Replicas can be damaged in different shards: after damage, shards are asked for one by one.
        let mut one_by_one = None;
        while n_whole < wanted.n_rows {
            let at_once = if wanted.is_counted() { wanted.at_once.min(pace.max_rows(call)) } else { usize::MAX };
            let mut rows = n_whole..n_whole.saturating_add(at_once).min(wanted.n_rows);
            if let Some(shards) = one_by_one {
                rows = OfShards::first_of(shards, rows);
            }
            let question = Question { call, request: (wanted.request)(rows.clone())?, rows: rows.clone() };
            answer.begin(rows.clone());
            n_attempts += 1;
            counters.sent(call, question.request.len());
            let progress = Progress::new();
            let span = info_span!(
                "attempt",
                otel.name = call.name(),
                otel.kind = "client",
                server = self.address,
                attempt = n_attempts,
                session = session(),
            );
            let attempt = self.transport.ask(&question, answer, &progress);
            let asked = self.attend(attempt, &progress, after(last_news, max_call)).instrument(span).await;
            counters.received(call, progress.n_received());
            let Err(problem) = asked else {
                pace.was_answered(call, rows.len());
                (n_whole, n_attempts, wait, last_row) = (rows.end, 0, first_wait, Instant::now());
                last_news = last_row;
                continue;
            };
            counters.failed(call);
            if wanted.is_counted() && problem.is_late() {
                pace.was_late(call, rows.len());
            }
            let n_new = answer.n_whole().saturating_sub(n_whole);
            n_whole += n_new;
            if n_new > 0 {
                (wait, last_row) = (first_wait, Instant::now());
            }
            last_news = progress.last_of_connection().unwrap_or(last_news).max(last_row);
            if problem.is_damage() && one_by_one.is_none() && shards.is_some_and(|shards| shards.numbers().len() > 1) {
                one_by_one = shards;
                counters.tries_again(call);
                continue;
            }
            if !problem.may_pass() || Instant::now() + wait >= after(last_news, max_call) {
                return Err(error_of(self.address, shards, call, (n_attempts, last_row.elapsed()), problem));
            }
            counters.tries_again(call);
            warn!(
                reason = problem.kind(),
                server = self.address,
                call = call.name(),
                attempt = n_attempts,
                session = session(),
                %problem,
                "an attempt of a call failed: trying again"
            );
            if n_new > 0 {
                n_attempts = 0;
            }
            sleep(jitter.cut(wait)).await;
            wait = (wait * 2).min(max_wait);
        }
        Ok(())
    }

    /// Waits for an attempt as long as it or its connection makes progress: its answer can stand behind others. Without any,
    /// at most until `end`.
    async fn attend(
        &self,
        attempt: impl Future<Output = Result<(), RemoteProblem>>,
        progress: &Progress,
        end: Instant,
    ) -> Result<(), RemoteProblem> {
        let max_silence = self.config.max_silence;
        let mut attempt = pin!(attempt);
        loop {
            let others = progress.last_of_connection().filter(|_| !progress.is_passed_over());
            let deadline = match progress.last().max(others) {
                Some(last) => after(last, max_silence),
                None => after(progress.started(), max_silence).min(end),
            };
            if deadline <= Instant::now() {
                return Err(RemoteProblem::Late);
            }
            if let Ok(asked) = timeout_at(deadline, &mut attempt).await {
                return asked;
            }
        }
    }
}

/// A moment, or one in the far future if there is none.
pub(crate) fn after(moment: Instant, wait: Duration) -> Instant {
    const FAR: Duration = Duration::from_secs(30 * 365 * 24 * 3600);
    moment.checked_add(wait.min(FAR)).unwrap_or(moment)
}

pub(crate) fn error_of(
    address: &str,
    shards: Option<OfShards<'_>>,
    call: Call,
    (n_attempts, tried): (u32, Duration),
    problem: RemoteProblem,
) -> ClientError {
    let (address, shards) = (address.to_owned(), shards.map(OfShards::numbers).unwrap_or_default());
    ClientError::Remote(Box::new(RemoteError { address, shards, call, n_attempts, tried, problem }))
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use bytes::{BufMut, BytesMut};
    use kith_proto::Message;

    use super::*;
    use crate::{
        remote::{
            dense::{DenseAnswer, Places},
            facts::FeatureDtype,
            numbers::{Numbers, ROW_BYTES},
            replicas::Replicas,
            transport::Attempt,
        },
        rows::FetchedRows,
    };

    /// A server of rows of four bytes, which can be slow and stop.
    #[derive(Debug)]
    struct Slow {
        /// Rows per second.
        rate: usize,
        /// Rows after which a connection breaks, the first time and later.
        breaks_after: Vec<usize>,
        /// Rows after which nothing more comes.
        stalls_after: Vec<usize>,
        /// Bytes that its connection receives.
        connection: Option<Progress>,
        asked: Mutex<Vec<Range<usize>>>,
    }

    impl Slow {
        fn new(rate: usize) -> Slow {
            Slow { rate, breaks_after: Vec::new(), stalls_after: Vec::new(), connection: None, asked: Mutex::default() }
        }
    }

    impl Transport for Slow {
        fn ask<'a>(
            &'a self,
            question: &'a Question,
            answer: &'a mut (dyn Read + Send),
            progress: &'a Progress,
        ) -> Attempt<'a> {
            Box::pin(async move {
                if let Some(connection) = &self.connection {
                    progress.goes_over(connection);
                }
                let number = {
                    let mut asked = self.asked.lock().unwrap();
                    asked.push(question.rows.clone());
                    asked.len() - 1
                };
                for (n_sent, row) in question.rows.clone().enumerate() {
                    if self.breaks_after.get(number) == Some(&n_sent) {
                        return Err(RemoteProblem::Lost("reset".to_owned()));
                    }
                    if self.stalls_after.get(number) == Some(&n_sent) {
                        std::future::pending::<()>().await;
                    }
                    if n_sent.is_multiple_of(self.rate / 10) {
                        sleep(Duration::from_millis(100)).await;
                    }
                    let mut message = BytesMut::new();
                    message.put_u32_le(row as u32);
                    progress.received(ROW_BYTES);
                    answer.read(Message::from(message.freeze()))?;
                }
                Ok(answer.finish()?)
            })
        }
    }

    async fn ask(transport: &Slow, n_rows: usize, config: &RemoteConfig) -> Result<Vec<u32>> {
        let memory = Memory::new(config);
        let asker = Asker { address: "here", config, transport, memory: &memory };
        let mut answer = Numbers::default();
        let wanted = Wanted { n_rows, at_once: usize::MAX, request: &|_| Ok(Bytes::new()) };
        asker.ask(Call::FetchFeatures, Some(OfShards::One(0)), wanted, &mut answer).await?;
        Ok(answer.read)
    }

    fn config() -> RemoteConfig {
        let (max_silence, max_call) = (Duration::from_secs(20), Duration::from_secs(60));
        RemoteConfig { max_silence, max_call, jitter: Some(1), ..RemoteConfig::default() }
    }

    fn asked(transport: &Slow) -> Vec<Range<usize>> {
        transport.asked.lock().unwrap().clone()
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_that_advances_may_take_any_time() {
        let (transport, started) = (Slow::new(100), Instant::now());
        let read = ask(&transport, 40_000, &config()).await.unwrap();
        assert!(read.into_iter().eq(0..40_000));
        assert_eq!(asked(&transport), std::iter::once(0..40_000).collect::<Vec<_>>(), "nothing is asked twice");
        assert!(started.elapsed() > Duration::from_secs(390), "{:?}", started.elapsed());
    }

    #[tokio::test(start_paused = true)]
    async fn a_trickle_is_asked_for_less() {
        // 40 bytes per second: less than 1 KiB in 20 s.
        let transport = Slow::new(10);
        let read = ask(&transport, 1000, &config()).await.unwrap();
        assert!(read.into_iter().eq(0..1000));
        let asked = asked(&transport);
        assert_eq!(asked[..4], [0..1000, 200..700, 400..650, 600..725], "ended after 20 s, and asked for half of it");
        assert!(asked.len() < 12, "{asked:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_retry_goes_on_behind_the_last_row() {
        let transport = Slow { breaks_after: vec![700, 0, 200], ..Slow::new(1000) };
        let read = ask(&transport, 1000, &config()).await.unwrap();
        assert!(read.into_iter().eq(0..1000));
        assert_eq!(asked(&transport), [0..1000, 700..1000, 700..1000, 900..1000]);
    }

    #[tokio::test(start_paused = true)]
    async fn requests_get_smaller_after_a_timeout_and_grow_again() {
        let transport = Slow { stalls_after: vec![500, 0], ..Slow::new(1000) };
        let read = ask(&transport, 2000, &config()).await.unwrap();
        assert!(read.into_iter().eq(0..2000));
        assert_eq!(asked(&transport), [0..2000, 500..1500, 500..1000, 1000..2000]);
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_behind_others_is_waited_for() {
        // Answers of other calls come, one per second, and then no more. The call itself is never answered.
        let silent_call = async |n_others: usize, n_bytes: usize| {
            let (connection, started) = (Progress::new(), Instant::now());
            let transport =
                Slow { stalls_after: vec![0; 100], connection: Some(connection.clone()), ..Slow::new(1000) };
            let others = async {
                for _ in 0..n_others {
                    sleep(Duration::from_secs(1)).await;
                    connection.received(n_bytes);
                }
                std::future::pending::<()>().await;
            };
            let config = config();
            tokio::select! {
                asked = ask(&transport, 1000, &config) => { asked.unwrap_err(); }
                () = others => {}
            }
            (asked(&transport), started.elapsed().as_secs())
        };
        let three = [0..1000, 0..500, 0..250].to_vec();
        assert_eq!(silent_call(0, 0).await, (three.clone(), 60));
        let (asked, seconds) = silent_call(300, 4096).await;
        assert_eq!(asked, three, "the first attempt waits for all the others");
        assert!((360..=361).contains(&seconds), "{seconds} s");
        // After more than a server may send ahead, the answer is not on its way: it is asked for again.
        let (asked, _) = silent_call(300, 1 << 20).await;
        assert!(asked.len() > 4, "{asked:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn silence_ends_a_call_in_its_time() {
        let transport = Slow { stalls_after: vec![0; 100], ..Slow::new(1000) };
        let started = Instant::now();
        let error = ask(&transport, 10, &config()).await.unwrap_err();
        assert!(error.to_string().contains("no answer within --sampler-timeout (3 attempts in 60."), "{error}");
        assert!(started.elapsed() <= Duration::from_secs(61), "{:?}", started.elapsed());
        // Rows that come give it new time.
        let transport = Slow { stalls_after: [vec![3], vec![0; 100]].concat(), ..Slow::new(1000) };
        let started = Instant::now();
        ask(&transport, 10, &config()).await.unwrap_err();
        assert!(started.elapsed() > Duration::from_secs(75), "{:?}", started.elapsed());
        assert!(started.elapsed() <= Duration::from_secs(82), "{:?}", started.elapsed());
    }

    /// A server with damaged rows.
    #[derive(Debug)]
    struct Damaged(Vec<usize>);

    impl Transport for Damaged {
        fn ask<'a>(
            &'a self,
            question: &'a Question,
            answer: &'a mut (dyn Read + Send),
            progress: &'a Progress,
        ) -> Attempt<'a> {
            Box::pin(async move {
                if self.0.iter().any(|row| question.rows.contains(row)) {
                    return Err(RemoteProblem::of_status(&tonic::Status::data_loss("block 7 is damaged")));
                }
                Slow::new(1000).ask(question, answer, progress).await
            })
        }
    }

    #[tokio::test(start_paused = true)]
    async fn replicas_that_are_damaged_in_different_shards_answer_together() {
        let config = config();
        let shards = [(0, 3), (1, 2), (4, 3)];
        let ask = async |replicas: [Vec<usize>; 2]| {
            let ways = replicas.map(|damaged| Arc::new(Damaged(damaged)) as Arc<dyn Transport>);
            let (transport, memory) = (Replicas::new(ways.into(), 0), Memory::new(&config));
            let asker = Asker { address: "here", config: &config, transport: &transport, memory: &memory };
            let request = |_| Ok(Bytes::new());
            let wanted = Wanted { n_rows: 8, at_once: 100, request: &request };
            let mut answer = Numbers::default();
            let asked = asker.ask(Call::FetchFeatures, Some(OfShards::Several(&shards)), wanted, &mut answer).await;
            asked.map(|()| answer.read)
        };
        assert_eq!(ask([vec![1], vec![3, 6]]).await.unwrap(), (0..8).collect::<Vec<_>>());
        let error = ask([vec![4], vec![3]]).await.unwrap_err().to_string();
        assert!(error.contains("block 7 is damaged"), "{error}");
    }

    /// A server of feature vectors of one value, of which some are not finite. A message has two of them.
    #[derive(Debug)]
    struct NotFinite(Vec<usize>);

    impl Transport for NotFinite {
        fn ask<'a>(
            &'a self,
            question: &'a Question,
            answer: &'a mut (dyn Read + Send),
            progress: &'a Progress,
        ) -> Attempt<'a> {
            Box::pin(async move {
                for pair in question.rows.clone().collect::<Vec<_>>().chunks(2) {
                    let value = |row: &usize| if self.0.contains(row) { f32::NAN } else { *row as f32 };
                    let values: Vec<u8> = pair.iter().flat_map(|row| value(row).to_le_bytes()).collect();
                    progress.received(values.len());
                    let field = [&[1 << 3 | 2, values.len() as u8], &values[..]].concat();
                    answer.read(Message::from(Bytes::from(field)))?;
                }
                Ok(answer.finish()?)
            })
        }
    }

    #[tokio::test(start_paused = true)]
    async fn damaged_features_are_never_taken() {
        let (config, nodes) = (config(), [10, 11, 12, 13, 14]);
        let ask = async |replicas: &[Vec<usize>]| {
            let ways = replicas.iter().map(|damaged| Arc::new(NotFinite(damaged.clone())) as Arc<dyn Transport>);
            let (transport, memory) = (Replicas::new(ways.collect(), 0), Memory::new(&config));
            let asker = Asker { address: "here", config: &config, transport: &transport, memory: &memory };
            let request = |_| Ok(Bytes::new());
            let wanted = Wanted { n_rows: nodes.len(), at_once: 100, request: &request };
            let mut rows = FetchedRows { dim: 1, values: vec![-1.0; nodes.len()], ..FetchedRows::default() };
            let guarded = Mutex::new(&mut rows);
            let mut answer = DenseAnswer::new(&nodes, Places::From(0), FeatureDtype::F32, &guarded);
            let of_shards = Some(OfShards::Several(&[(0, 3), (1, 2)]));
            let asked = asker.ask(Call::FetchFeatures, of_shards, wanted, &mut answer).await;
            asked.map(|()| rows.values).map_err(|error| error.to_string())
        };
        for (damaged, node) in nodes.iter().enumerate() {
            let error = ask(&[vec![damaged]]).await.unwrap_err();
            assert!(error.contains(&format!("node {node} is damaged")), "{damaged}: {error}");
        }
        assert_eq!(ask(&[vec![1, 2], vec![4]]).await.unwrap(), [0.0, 1.0, 2.0, 3.0, 4.0]);
    }

    #[tokio::test(start_paused = true)]
    async fn times_without_end_are_far_away() {
        let (max_silence, max_call) = (Duration::MAX, Duration::MAX);
        let config = RemoteConfig { max_silence, max_call, ..config() };
        assert_eq!(ask(&Slow::new(1000), 3, &config).await.unwrap(), [0, 1, 2]);
    }
}
