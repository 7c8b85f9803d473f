//! What operators do to a Cluster: move a slot from node to node, add replicas, lose a master.

use std::time::Duration;

use super::redis::{NODES, RedisCluster, RedisServer, await_that};

/// Longest that a node may be silent before its replica takes over.
const NODE_TIMEOUT: Duration = Duration::from_secs(1);

/// A slot that is being moved: its keys lie on two nodes.
pub struct OpenSlot<'a> {
    cluster: &'a RedisCluster,
    slot: String,
    from: &'a RedisServer,
    to: &'a RedisServer,
}

impl RedisCluster {
    /// Starts a Cluster of three masters with a replica each.
    pub fn start_with_replicas() -> Self {
        let cluster = Self::start_nodes(2 * NODES, NODE_TIMEOUT);
        let (masters, replicas) = cluster.nodes.split_at(NODES as usize);
        for (master, replica) in masters.iter().zip(replicas) {
            replica.order(&["CLUSTER", "REPLICATE", &id_of(master)]);
        }
        let is_replica = |node: &RedisServer| {
            node.operate(&["INFO", "replication"]).unwrap_or_default().contains("role:slave")
        };
        await_that("replicas are known as such", || replicas.iter().all(is_replica));
        cluster.await_health();
        cluster
    }

    /// The node that has a key's slot.
    pub fn owner_of(&self, key: &str) -> &RedisServer {
        let has_it = |node: &&RedisServer| {
            let reply = node.operate(&["EXISTS", key]).unwrap_or_default();
            reply.starts_with(':')
        };
        self.nodes.iter().find(has_it).expect("some node has every slot")
    }

    /// Waits until another node has the slot of a key than the one that was lost.
    pub fn await_new_owner(&self, key: &str, lost: &RedisServer) {
        let has_it = |node: &RedisServer| {
            let reply = node.operate(&["EXISTS", key]).unwrap_or_default();
            node.port() != lost.port() && reply.starts_with(':')
        };
        await_that("a replica takes over", || self.nodes.iter().any(has_it));
    }

    /// Waits until all nodes are there and each replica follows its master.
    pub fn await_health(&self) {
        let is_well = |node: &RedisServer| {
            let cluster = node.operate(&["CLUSTER", "INFO"]).unwrap_or_default();
            let replication = node.operate(&["INFO", "replication"]).unwrap_or_default();
            let is_fed = replication.contains("master_link_status:up");
            cluster.contains("cluster_state:ok") && (replication.contains("role:master") || is_fed)
        };
        await_that("the Cluster is well again", || self.nodes.iter().all(is_well));
    }

    /// Opens the slot of a key, to be moved to the next master.
    pub fn open_slot(&self, key: &str) -> OpenSlot<'_> {
        let from = self.owner_of(key);
        let at = self.nodes.iter().position(|node| node.port() == from.port()).unwrap_or(0);
        let to = &self.nodes[(at + 1) % NODES as usize];
        let reply = from.operate(&["CLUSTER", "KEYSLOT", key]).unwrap();
        let slot = reply.trim_matches([':', '\r', '\n']).to_owned();
        to.order(&["CLUSTER", "SETSLOT", &slot, "IMPORTING", &id_of(from)]);
        from.order(&["CLUSTER", "SETSLOT", &slot, "MIGRATING", &id_of(to)]);
        OpenSlot { cluster: self, slot, from, to }
    }
}

impl OpenSlot<'_> {
    /// Moves one key; its name, or nothing when none is left.
    pub fn move_key(&self) -> Option<String> {
        let reply = self.from.operate(&["CLUSTER", "GETKEYSINSLOT", &self.slot, "1"]).unwrap();
        let key = reply.split("\r\n").nth(2).filter(|key| !key.is_empty())?;
        let port = self.to.port().to_string();
        let moved = self.from.operate(&["MIGRATE", "127.0.0.1", &port, key, "0", "2000"]).unwrap();
        // One that is gone meanwhile, for example a bell that was heard, has nothing to be moved.
        assert!(["+OK\r\n", "+NOKEY\r\n"].contains(&&*moved), "{key}: {moved}");
        Some(key.to_owned())
    }

    /// Gives the slot to the node that has all of its keys now.
    pub fn close(self) {
        let words = ["CLUSTER", "SETSLOT", &self.slot, "NODE", &id_of(self.to)];
        self.to.order(&words);
        self.from.order(&words);
        let others = self.cluster.nodes.iter().take(NODES as usize);
        others.for_each(|node| node.order(&words));
    }
}

/// What a node is called by the others.
fn id_of(node: &RedisServer) -> String {
    let reply = node.operate(&["CLUSTER", "MYID"]).unwrap();
    reply.split("\r\n").nth(1).expect("a node has an id").to_owned()
}
