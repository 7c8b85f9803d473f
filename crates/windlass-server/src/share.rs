//! Shares of what there is only so much of: how many all callers may have, and how many one token.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::access::Caller;

/// Things of which all callers together, and each token alone, may have so many. The same thing counts once.
pub(crate) struct Shares<T> {
    all_max: usize,
    token_max: usize,
    held: Arc<Mutex<Held<T>>>,
}

struct Held<T> {
    all: usize,
    /// By the token's id: how often each thing is held.
    by_token: HashMap<String, HashMap<T, usize>>,
}

/// Who has too many.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TooMany {
    All,
    Token,
}

impl<T: Clone + Eq + Hash> Shares<T> {
    pub(crate) fn new(all_max: usize, token_max: usize) -> Self {
        let held = Held { all: 0, by_token: HashMap::new() };
        Self { all_max, token_max, held: Arc::new(Mutex::new(held)) }
    }

    /// Takes a thing for a caller. Those without a token share with everybody, not among each other.
    pub(crate) fn take(&self, caller: &Caller, thing: T) -> Result<Share<T>, TooMany> {
        let mut held = self.held.lock();
        let token = caller.token_id().to_owned();
        let things = held.by_token.get(&token);
        let is_new = things.is_none_or(|things| !things.contains_key(&thing));
        let count = things.map_or(0, HashMap::len);
        if is_new && held.all >= self.all_max {
            return Err(TooMany::All);
        }
        if is_new && !token.is_empty() && count >= self.token_max {
            return Err(TooMany::Token);
        }
        held.all += usize::from(is_new);
        *held.by_token.entry(token.clone()).or_default().entry(thing.clone()).or_default() += 1;
        Ok(Share { held: self.held.clone(), token, thing })
    }
}

/// A thing that is held until this is dropped.
pub(crate) struct Share<T: Eq + Hash> {
    held: Arc<Mutex<Held<T>>>,
    token: String,
    thing: T,
}

impl<T: Eq + Hash> Drop for Share<T> {
    fn drop(&mut self) {
        let mut held = self.held.lock();
        let Some(things) = held.by_token.get_mut(&self.token) else { return };
        let Some(count) = things.get_mut(&self.thing) else { return };
        *count -= 1;
        if *count > 0 {
            return;
        }
        things.remove(&self.thing);
        if things.is_empty() {
            held.by_token.remove(&self.token);
        }
        held.all -= 1;
    }
}

#[cfg(test)]
mod tests {
    use windlass_core::Timestamp;

    use super::*;
    use crate::access::token::{Scope, Token, Wish};

    fn caller() -> Caller {
        let (name, scopes) = ("n".into(), vec![Scope::Read]);
        let wish = Wish { name, scopes, queues: Vec::new(), rate: None };
        Caller::Token(Arc::new(Token::make(wish, Timestamp::default()).unwrap().0))
    }

    #[test]
    fn a_token_gets_its_share_and_all_get_the_rest() {
        let shares = Shares::new(3, 2);
        let (ann, bob) = (caller(), caller());
        let first = shares.take(&ann, 1).unwrap();
        let again = shares.take(&ann, 1).unwrap();
        let _second = shares.take(&ann, 2).unwrap();
        assert_eq!(shares.take(&ann, 3).err(), Some(TooMany::Token));
        let _third = shares.take(&bob, 1).unwrap();
        assert_eq!(shares.take(&bob, 2).err(), Some(TooMany::All));
        assert_eq!(shares.take(&Caller::Local, 2).err(), Some(TooMany::All));
        drop(first);
        assert_eq!(shares.take(&Caller::Local, 2).err(), Some(TooMany::All), "it is held twice");
        drop(again);
        let _local = shares.take(&Caller::Local, 2).unwrap();
        assert_eq!(shares.take(&ann, 3).err(), Some(TooMany::All));
    }
}
