//! The broker's scripts, each put together from its files when it is first called.

use std::sync::LazyLock;

use crate::redis::script::Script;

const PRELUDE: &str = include_str!("../../lua/hybrid/prelude.lua");

macro_rules! scripts {
    ($($name:ident = $file:literal;)*) => {
        $(pub(super) static $name: LazyLock<Script> = LazyLock::new(|| {
            let own = include_str!(concat!("../../lua/hybrid/", $file, ".lua"));
            Script::new($file, &[PRELUDE, own])
        });)*
    };
}

scripts! {
    ALIVE = "alive";
    COUNT = "count";
    FETCH = "fetch";
    GIVE_BACK = "give_back";
    PAUSE = "pause";
    PUSH = "push";
    RECLAIM = "reclaim";
    TAKE = "take";
}
