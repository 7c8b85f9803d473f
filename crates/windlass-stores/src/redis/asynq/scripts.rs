//! The scripts of this layout, each put together from its files when it is first called.

use std::sync::LazyLock;

use crate::redis::fleet::PRELUDE;
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
    APPLY = CLAIMING + "apply";
    BEAT = "beat";
    CANCEL = "cancel";
    CHANGE = "change";
    CLAIM = CLAIMING + "claim";
    DAMAGE = "damage";
    HELD = "held";
    INSERT = "insert";
    LIST = "list";
    LOOK = "look";
    MEND = "mend";
    ORDER = "order";
    PLACE = "place";
    POLL = "poll";
    PROMOTE = "promote";
    PRUNE = "prune";
    QUEUES = "queues";
    RECOVER = "recover";
    SHOW = "show";
    STRAY = "stray";
    TEND = "tend";
    WATCH = "watch";
    WORKERS = "workers";
}
