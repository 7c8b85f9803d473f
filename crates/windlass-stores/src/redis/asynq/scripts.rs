//! The scripts of this layout, each put together from its files when it is first called.

use std::sync::LazyLock;

use crate::redis::fleet::{DAMAGE_PRELUDE, OVER_LIMIT, PRELUDE};
use crate::redis::script::Script;

const OWN_PRELUDE: &str = include_str!("../../../lua/asynq/prelude.lua");
const CLAIMING: &str = include_str!("../../../lua/asynq/claiming.lua");

macro_rules! scripts {
    ($($name:ident = $($part:ident +)* $file:literal;)*) => {
        $(pub(super) static $name: LazyLock<Script> = LazyLock::new(|| {
            let own = include_str!(concat!("../../../lua/asynq/", $file, ".lua"));
            Script::new($file, &[PRELUDE, OWN_PRELUDE, $($part,)* own])
        });)*
    };
}

// The two that claim share `claiming.lua`.
scripts! {
    APPLY = OVER_LIMIT + CLAIMING + "apply";
    BEAT = OVER_LIMIT + "beat";
    CANCEL = OVER_LIMIT + "cancel";
    CHANGE = OVER_LIMIT + "change";
    CLAIM = OVER_LIMIT + CLAIMING + "claim";
    DAMAGE = DAMAGE_PRELUDE + "damage";
    DUE = "due";
    HELD = OVER_LIMIT + "held";
    INSERT = "insert";
    LIST = "list";
    LOOK = "look";
    MEND = OVER_LIMIT + "mend";
    ORDER = OVER_LIMIT + "order";
    PLACE = OVER_LIMIT + "place";
    POLL = "poll";
    PROMOTE = OVER_LIMIT + "promote";
    PRUNE = OVER_LIMIT + "prune";
    QUEUES = "queues";
    RECOVER = OVER_LIMIT + "recover";
    SHOW = OVER_LIMIT + "show";
    STRAY = OVER_LIMIT + "stray";
    TEND = OVER_LIMIT + "tend";
    WATCH = OVER_LIMIT + "watch";
    WORKERS = "workers";
}
