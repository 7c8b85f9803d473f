//! The tokens of the store, as this server knows them: read at most once a second, believed for 5 s.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Mutex, RwLock};
use tokio::sync::OwnedMutexGuard;
use tokio::time::Instant;
use windlass_core::store::DocQuery;
use windlass_core::{Error, ErrorKind, Result, Store};

use super::bucket::Bucket;
use super::caller::{Arrival, Caller};
use super::token::{CLASS, Presented, Token};
use crate::problem::{Outcome, Problem, Slug};

/// Younger than this, what is known is used as it is.
const FRESH: Duration = Duration::from_secs(1);
/// Older than this, it is used only when the store does not answer; until then it is read anew meanwhile.
const STALE: Duration = Duration::from_secs(4);
/// Older than this, it is not used: a token that was revoked is refused everywhere by then.
const BELIEVED: Duration = Duration::from_secs(5);
/// How long the store may take to tell its tokens.
const LOAD_TIME: Duration = Duration::from_secs(2);
/// How many are read by one call of the store.
const PIECE: usize = 500;

/// All tokens at some time.
#[derive(Debug, Default)]
pub(crate) struct Ring {
    tokens: HashMap<String, Arc<Token>>,
    /// There is a token, be it revoked or unreadable: so one is asked for.
    is_closed: bool,
}

/// The tokens of a store. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Keyring(Arc<Inner>);

struct Inner {
    store: Arc<dyn Store>,
    known: RwLock<Option<Known>>,
    /// Held by whoever reads them.
    reading: Arc<tokio::sync::Mutex<()>>,
    /// When the store was asked last and did not tell, and why.
    failed: Mutex<Option<(Instant, Error)>>,
    buckets: Mutex<HashMap<String, Bucket>>,
}

#[derive(Clone)]
struct Known {
    ring: Arc<Ring>,
    /// When the store was asked.
    asked: Instant,
}

impl Keyring {
    pub(crate) fn new(store: Arc<dyn Store>) -> Self {
        let (known, reading, failed, buckets) = Default::default();
        Self(Arc::new(Inner { store, known, reading, failed, buckets }))
    }

    /// Who calls, by what they present; or why they may not.
    pub(crate) async fn admit(
        &self,
        arrival: Arrival,
        presented: Option<&Presented>,
    ) -> Outcome<Caller> {
        let ring = self.ring().await?;
        match ring.admit(arrival, presented) {
            // It may be new. Wrong ones cannot have the store asked more often than this.
            Err(_) if presented.is_some() && self.is_older_than(FRESH) => {
                self.read_now().await?.admit(arrival, presented)
            }
            admitted => admitted,
        }
    }

    /// The same for what is told also while the store is away, and then tells nothing of it: by the tokens that were
    /// known last.
    pub(crate) async fn admit_meanwhile(
        &self,
        arrival: Arrival,
        presented: Option<&Presented>,
    ) -> Outcome<Caller> {
        match (self.admit(arrival, presented).await, self.known()) {
            (Err(problem), Some(known)) if problem.slug() == Slug::StoreUnavailable => {
                known.ring.admit(arrival, presented)
            }
            (admitted, _) => admitted,
        }
    }

    /// Ends with the reason when a caller that was admitted would not be any more. While the store is away
    /// nobody knows.
    pub(crate) async fn dismissed(
        &self,
        arrival: Arrival,
        presented: Option<&Presented>,
    ) -> Problem {
        loop {
            tokio::time::sleep(FRESH).await;
            if let Err(problem) = self.admit(arrival, presented).await
                && problem.slug() == Slug::Unauthorized
            {
                return problem;
            }
        }
    }

    /// Counts a request against the rate of its token.
    pub(crate) fn count(&self, token: &Token) -> Outcome<()> {
        let (Some(rate), now) = (token.rate, Instant::now()) else { return Ok(()) };
        let mut buckets = self.0.buckets.lock();
        let bucket = buckets.entry(token.id.clone()).or_insert_with(|| Bucket::full(rate, now));
        bucket.take(rate, now).map_err(|wait| {
            let text = format!("this token may send {rate} requests a second");
            Problem::new(Slug::RateLimited, text).retry_after(wait)
        })
    }

    /// True when a token is asked for, as far as is known.
    pub(crate) async fn is_closed(&self) -> bool {
        match self.ring().await {
            Ok(ring) => ring.is_closed,
            Err(_) => self.known().is_some_and(|known| known.ring.is_closed),
        }
    }

    /// True when there is a token that is good for something.
    pub(crate) async fn has_token(&self) -> Result<bool> {
        let ring = self.read_now().await?;
        Ok(ring.tokens.values().any(|token| token.revoked_at.is_none()))
    }

    /// Reads anew what was changed just now, so that it holds here at once. Elsewhere, and if this fails,
    /// it holds within 5 s.
    pub(crate) async fn renew(&self) {
        let _ = self.read_now().await;
    }

    async fn ring(&self) -> Result<Arc<Ring>> {
        match self.known() {
            Some(known) if known.asked.elapsed() < FRESH => Ok(known.ring),
            Some(known) if known.asked.elapsed() < STALE => {
                if let Ok(turn) = self.0.reading.clone().try_lock_owned() {
                    tokio::spawn(self.clone().read(turn));
                }
                Ok(known.ring)
            }
            Some(_) | None => self.read_now().await,
        }
    }

    /// Reads the tokens, unless somebody does so already and is done first.
    async fn read_now(&self) -> Result<Arc<Ring>> {
        let since = Instant::now();
        let turn = self.0.reading.clone().lock_owned().await;
        if let Some(known) = self.known().filter(|known| known.asked >= since) {
            return Ok(known.ring);
        }
        // Who waited for the same need not wait again, one after the other.
        let failed = self.0.failed.lock().clone().filter(|(asked, _)| *asked > since);
        let read = match failed {
            Some((_, error)) => Err(error),
            // To its end: who asks may go away, and a call of the store must not be dropped with it.
            None => {
                let read = tokio::spawn(self.clone().read(turn)).await;
                read.map_err(|ended| Error::internal("read the tokens").because(ended))?
            }
        };
        match (read, self.known()) {
            (Ok(ring), _) => Ok(ring),
            (Err(_), Some(known)) if known.asked.elapsed() < BELIEVED => Ok(known.ring),
            (Err(error), _) => Err(error),
        }
    }

    async fn read(self, _turn: OwnedMutexGuard<()>) -> Result<Arc<Ring>> {
        let asked = Instant::now();
        let late = |_| Error::new(ErrorKind::Unavailable, "read the tokens in time");
        let read = tokio::time::timeout(LOAD_TIME, load(&*self.0.store)).await;
        let ring = match read.map_err(late).flatten() {
            Ok(ring) => Arc::new(ring),
            Err(error) => {
                // The engine has logged an outage of the store, once.
                if !error.is_outage() {
                    tracing::warn!(error = error.chain(), "cannot read the tokens");
                }
                *self.0.failed.lock() = Some((asked, error.clone()));
                return Err(error);
            }
        };
        self.0.buckets.lock().retain(|id, _| ring.tokens.contains_key(id));
        *self.0.known.write() = Some(Known { ring: ring.clone(), asked });
        Ok(ring)
    }

    fn known(&self) -> Option<Known> {
        self.0.known.read().clone()
    }

    fn is_older_than(&self, age: Duration) -> bool {
        self.known().is_none_or(|known| known.asked.elapsed() >= age)
    }
}

impl Ring {
    fn admit(&self, arrival: Arrival, presented: Option<&Presented>) -> Outcome<Caller> {
        let Some(presented) = presented else {
            if self.is_closed || arrival == Arrival::Closed {
                return Err(unauthorized("this needs a token: Authorization: Bearer wl_…"));
            }
            return Ok(Caller::Local);
        };
        let found = self.opened_by(presented);
        found.map(Caller::Token).ok_or_else(|| unauthorized("the token is unknown or revoked"))
    }

    fn opened_by(&self, presented: &Presented) -> Option<Arc<Token>> {
        self.tokens.get(presented.id()).filter(|token| presented.opens(token)).cloned()
    }
}

/// All tokens of a store, by id.
pub(crate) async fn tokens(store: &dyn Store) -> Result<Vec<Result<Token>>> {
    let (mut tokens, mut after) = (Vec::new(), None);
    loop {
        let query = DocQuery::Class { class: CLASS.into(), after: after.take(), limit: PIECE };
        let documents = store.load(query).await?;
        tokens.extend(documents.iter().map(|found| Token::read(&found.key, &found.body)));
        match documents.last() {
            Some(last) if documents.len() == PIECE => after = Some(last.key.clone()),
            Some(_) | None => return Ok(tokens),
        }
    }
}

async fn load(store: &dyn Store) -> Result<Ring> {
    let mut ring = Ring::default();
    for token in tokens(store).await? {
        ring.is_closed = true;
        match token {
            Ok(token) => _ = ring.tokens.insert(token.id.clone(), Arc::new(token)),
            Err(error) => tracing::warn!(error = error.chain(), "a token is of no use"),
        }
    }
    Ok(ring)
}

pub(super) fn unauthorized(text: &str) -> Problem {
    Problem::new(Slug::Unauthorized, text)
}

#[cfg(test)]
mod tests {
    use windlass_core::store::SaveDoc;
    use windlass_testkit::faults::{Faults, FaultyStore, Method};
    use windlass_testkit::fleet;

    use super::super::token::{Scope, Wish};
    use super::*;

    /// A keyring, and a store that others change.
    fn keyring() -> (Keyring, Arc<dyn Store>, Faults) {
        let store = fleet::memory();
        let (faulty, faults) = FaultyStore::around(store.clone());
        (Keyring::new(faulty), store, faults)
    }

    async fn make(store: &dyn Store) -> (Token, Presented) {
        let (name, scopes) = ("n".into(), vec![Scope::Read]);
        let wish = Wish { name, scopes, queues: Vec::new(), rate: None };
        let (token, text) = Token::make(wish, Default::default()).unwrap();
        save(store, &token, None).await;
        (token, Presented::read(&text).unwrap())
    }

    async fn save(store: &dyn Store, token: &Token, expected: Option<u64>) {
        let (key, body) = (token.id.clone(), Some(token.body()));
        store.save(SaveDoc { class: CLASS.into(), key, expected, body }).await.unwrap();
    }

    async fn slug(keyring: &Keyring, presented: Option<&Presented>) -> Option<Slug> {
        keyring.admit(Arrival::Open, presented).await.err().map(|problem| problem.slug())
    }

    #[tokio::test(start_paused = true)]
    async fn what_others_revoke_is_refused_after_5_s_however_often_it_comes() {
        for pause_ms in [10, 900, 3_900, 4_900] {
            let (keyring, store, _) = keyring();
            let (token, presented) = make(&*store).await;
            assert_eq!(slug(&keyring, Some(&presented)).await, None);
            save(&*store, &token.revoked(Default::default()), Some(1)).await;
            let revoked = Instant::now();
            while revoked.elapsed() < BELIEVED {
                tokio::time::sleep(Duration::from_millis(pause_ms)).await;
                let _ = slug(&keyring, Some(&presented)).await;
            }
            assert_eq!(slug(&keyring, Some(&presented)).await, Some(Slug::Unauthorized));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn what_others_make_is_good_after_a_second_and_closes_the_door() {
        let (keyring, store, _) = keyring();
        assert_eq!(slug(&keyring, None).await, None);
        let (_, presented) = make(&*store).await;
        tokio::time::sleep(FRESH).await;
        assert_eq!(slug(&keyring, Some(&presented)).await, None);
        assert_eq!(slug(&keyring, None).await, Some(Slug::Unauthorized));
    }

    #[tokio::test(start_paused = true)]
    async fn a_store_that_is_away_is_believed_for_5_s_and_then_nobody_gets_in() {
        let (keyring, store, faults) = keyring();
        let (_, presented) = make(&*store).await;
        assert_eq!(slug(&keyring, Some(&presented)).await, None);
        faults.go_away();
        tokio::time::sleep(BELIEVED - Duration::from_millis(1)).await;
        assert_eq!(slug(&keyring, Some(&presented)).await, None);
        tokio::time::sleep(Duration::from_millis(1)).await;
        assert_eq!(slug(&keyring, Some(&presented)).await, Some(Slug::StoreUnavailable));
        assert_eq!(slug(&keyring, None).await, Some(Slug::StoreUnavailable));
        assert!(keyring.is_closed().await, "what was closed stays closed");
        faults.come_back();
        assert_eq!(slug(&keyring, Some(&presented)).await, None);
    }

    #[tokio::test(start_paused = true)]
    async fn a_store_that_hangs_holds_nobody_up_for_long() {
        let (keyring, _, faults) = keyring();
        faults.hold(Method::Load);
        let began = Instant::now();
        let asking = std::iter::repeat_with(|| slug(&keyring, None)).take(50);
        for answer in futures_util::future::join_all(asking).await {
            assert_eq!(answer, Some(Slug::StoreUnavailable));
        }
        assert!(began.elapsed() <= LOAD_TIME * 2, "not one after the other");
    }

    #[tokio::test(start_paused = true)]
    async fn while_the_store_is_away_those_who_were_known_last_are_told_what_needs_no_store() {
        let (keyring, store, faults) = keyring();
        let meanwhile = async |presented| {
            let admitted = keyring.admit_meanwhile(Arrival::Open, presented).await;
            admitted.err().map(|problem| problem.slug())
        };
        faults.go_away();
        assert_eq!(meanwhile(None).await, Some(Slug::StoreUnavailable), "nothing is known yet");
        faults.come_back();
        assert_eq!(meanwhile(None).await, None);
        faults.go_away();
        tokio::time::sleep(BELIEVED * 100).await;
        assert_eq!(meanwhile(None).await, None);
        faults.come_back();
        let (token, presented) = make(&*store).await;
        assert_eq!(meanwhile(None).await, Some(Slug::Unauthorized));
        assert_eq!(meanwhile(Some(&presented)).await, None);
        faults.go_away();
        tokio::time::sleep(BELIEVED * 100).await;
        assert_eq!(meanwhile(None).await, Some(Slug::Unauthorized));
        assert_eq!(meanwhile(Some(&presented)).await, None);
        faults.come_back();
        save(&*store, &token.revoked(Default::default()), Some(1)).await;
        assert_eq!(meanwhile(Some(&presented)).await, Some(Slug::Unauthorized));
    }

    #[tokio::test(start_paused = true)]
    async fn wrong_tokens_do_not_have_the_store_asked_each_time() {
        let (keyring, store, faults) = keyring();
        make(&*store).await;
        let wrong = Presented::read(&format!("wl_{}_{}", "0".repeat(12), "0".repeat(64))).unwrap();
        for _ in 0..100 {
            assert_eq!(slug(&keyring, Some(&wrong)).await, Some(Slug::Unauthorized));
        }
        assert_eq!(faults.calls(Method::Load), 1);
    }

    #[tokio::test]
    async fn a_token_that_cannot_be_read_keeps_the_door_closed() {
        let (keyring, store, _) = keyring();
        let (class, key, body) = (CLASS.into(), "001122334455".into(), Some("{}".into()));
        store.save(SaveDoc { class, key, expected: None, body }).await.unwrap();
        assert_eq!(slug(&keyring, None).await, Some(Slug::Unauthorized));
    }
}
