//! The same private Redis as in [`super::redis`], with tasks on the keys of Go's asynq.

use std::path::Path;

use windlass_testkit::RedisServer;
use windlass_testkit::servers::redis::Keeping;

use super::super::ground::{Ground, Server};

struct OnAsynqsKeys(RedisServer);

pub(in super::super) fn lay(_folder: &Path) -> Box<dyn Ground> {
    Box::new(OnAsynqsKeys(RedisServer::start(Keeping::Always)))
}

impl Ground for OnAsynqsKeys {
    fn url(&self) -> String {
        format!("redis+asynq://127.0.0.1:{}/", self.0.port())
    }

    fn has_priorities(&self) -> bool {
        false
    }

    fn server(&self) -> Option<&dyn Server> {
        Some(&self.0)
    }
}
