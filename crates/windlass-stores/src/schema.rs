//! How the schema of a store stands: what was applied to it, and what this windlass knows.

/// One step of a schema.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Migration {
    /// Its number and what it is about.
    pub name: &'static str,
    /// What it does.
    pub sql: &'static str,
}

/// How far a store has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SchemaStatus {
    /// How many of the migrations were applied.
    pub applied: usize,
    /// Every migration, in order; none where a store has no schema.
    pub migrations: &'static [Migration],
}
