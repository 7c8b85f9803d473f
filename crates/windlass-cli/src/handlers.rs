//! What the workers of the binary run: built-in kinds, or a command for every kind.

mod builtin;
mod demo;
mod exec;
#[cfg(test)]
mod testing;
mod webhook;

use windlass::{Unknown, WorkerBuilder};

pub(crate) use self::builtin::Untyped;
pub(crate) use self::demo::demo;
pub(crate) use self::exec::{Exec, settled};
pub(crate) use self::webhook::Webhook;

/// Gives a worker its handlers: the built-in kinds, or with `exec` that command for all kinds.
///
/// Whoever uses `exec` calls [`settled`] after the worker has ended.
pub(crate) fn register(
    builder: WorkerBuilder<()>,
    exec: Option<Exec>,
    webhook: Webhook,
    untyped: Untyped,
) -> WorkerBuilder<()> {
    match exec {
        Some(exec) => register_exec(builder, exec),
        // An application's own worker, which knows them, may start later.
        None => webhook.add(builtin::add(builder, untyped)).unknown(Unknown::GivenBack),
    }
}

/// Gives a worker a command for all kinds. The caller awaits [`settled`] after the worker has ended.
pub(crate) fn register_exec(builder: WorkerBuilder<()>, exec: Exec) -> WorkerBuilder<()> {
    exec::add(builder, exec)
}
