//! The scripts of this layout, each put together from its files when it is first called.

use std::sync::LazyLock;

use crate::redis::fleet::PRELUDE;
use crate::redis::script::Script;

const OWN_PRELUDE: &str = include_str!("../../../lua/streams/prelude.lua");
const CLAIMING: &str = include_str!("../../../lua/streams/claiming.lua");
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
    APPLY = CLAIMING + "apply";
    BEAT = "beat";
    CHANGE = "change";
    CLAIM = CLAIMING + "claim";
    HELD = "held";
    INSERT = "insert";
    LOOK = "look";
    MEND = MENDING + RECKONING + "mend";
    ORDER = "order";
    PLACE = "place";
    PROMOTE = "promote";
    PRUNE = "prune";
    QUEUES = "queues";
    SIZES = "sizes";
    TEND = "tend";
    WORKERS = "workers";
}
