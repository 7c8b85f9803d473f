//! The scripts of this layout, each put together from its files when it is first called.

use std::sync::LazyLock;

use crate::redis::fleet::{DAMAGE_PRELUDE, OVER_LIMIT, PRELUDE};
use crate::redis::script::Script;

const OWN_PRELUDE: &str = include_str!("../../../lua/streams/prelude.lua");
const CLAIMING: &str = include_str!("../../../lua/streams/claiming.lua");
const IDLING: &str = include_str!("../../../lua/streams/idling.lua");
const MENDING: &str = include_str!("../../../lua/streams/mending.lua");
const RECKONING: &str = include_str!("../../../lua/streams/reckoning.lua");

macro_rules! scripts {
    ($($name:ident = $($part:ident +)* $file:literal;)*) => {
        $(pub(super) static $name: LazyLock<Script> = LazyLock::new(|| {
            let own = include_str!(concat!("../../../lua/streams/", $file, ".lua"));
            Script::new($file, &[PRELUDE, OWN_PRELUDE, $($part,)* own])
        });)*
    };
}

// What a queue is asked for; the two that claim share `claiming.lua`.
scripts! {
    APPLY = OVER_LIMIT + CLAIMING + "apply";
    BEAT = OVER_LIMIT + "beat";
    CHANGE = OVER_LIMIT + "change";
    CLAIM = OVER_LIMIT + CLAIMING + "claim";
    DAMAGE = DAMAGE_PRELUDE + "damage";
    FORGET = OVER_LIMIT + IDLING + "forget";
    HELD = OVER_LIMIT + "held";
    INSERT = "insert";
    LOOK = "look";
    MEND = OVER_LIMIT + MENDING + RECKONING + "mend";
    ORDER = OVER_LIMIT + "order";
    PLACE = OVER_LIMIT + "place";
    PROMOTE = OVER_LIMIT + "promote";
    PRUNE = OVER_LIMIT + "prune";
    QUEUES = "queues";
    SIZES = "sizes";
    TEND = OVER_LIMIT + IDLING + "tend";
    WORKERS = "workers";
}
