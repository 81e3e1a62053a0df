//! The admin view of the cluster, as JSON.

use std::time::Duration;

use mstar_actors::messages::NodeMsg;
use mstar_actors::{INGRESS, NodeIx, NodeSnapshot, Route};
use mstar_supervisor::{ChildSnapshot, Snapshot};
use ractor::rpc::CallResult;
use serde_json::{Value, json};

use crate::operations::{ClusterOperations, USAGE_WITHIN};
use crate::placement::PlacedNode;

/// How long an actor may take to say how it stands.
const ANSWER_WITHIN: Duration = Duration::from_secs(1);

/// Returns ranks, nodes, models and requests as they stand.
pub(crate) async fn cluster(operations: &ClusterOperations) -> Value {
    let children = operations.supervisor.snapshot(ANSWER_WITHIN).await.ok();
    let mut nodes = Vec::new();
    for (node, placed) in operations.routes.nodes().zip(&operations.table.nodes) {
        let child = children.as_ref().and_then(|all| all.child(&placed.name));
        let mut snapshot = ask(operations, node).await;
        if let (Some(snapshot), Some(usage)) = (&mut snapshot, operations.usage(node, USAGE_WITHIN).await) {
            snapshot.usage = usage;
        }
        nodes.push(node_view(placed, child, snapshot, digest(operations, placed)));
    }
    json!({
        "draining": operations.routes.draining(),
        "requests": requests(operations).await,
        "ingress": ingress(children.as_ref()),
        "ranks": operations.ranks.iter().map(|rank| json!({
            "name": rank.name,
            "device": "cpu",
            "threads": rank.cx.pool().threads(),
            "tier": format!("{:?}", rank.cx.tier()).to_lowercase(),
            "tensors": {"live": rank.gauge.live(), "bytes": rank.gauge.bytes()},
        })).collect::<Vec<_>>(),
        "nodes": nodes,
        "models": models(operations),
    })
}

async fn ask(operations: &ClusterOperations, node: NodeIx) -> Option<NodeSnapshot> {
    let Route::Live(actor, _) = operations.routes.route(node) else { return None };
    match actor.call(NodeMsg::Snapshot, Some(ANSWER_WITHIN)).await {
        Ok(CallResult::Success(snapshot)) => Some(snapshot),
        _ => None,
    }
}

fn digest(operations: &ClusterOperations, placed: &PlacedNode) -> Option<String> {
    let ready = operations.weights.get(placed.weights.as_ref()?)?;
    Some(ready.dir.digest().chars().take(12).collect())
}

fn node_view(
    placed: &PlacedNode,
    child: Option<&ChildSnapshot>,
    snapshot: Option<NodeSnapshot>,
    digest: Option<String>,
) -> Value {
    let held = snapshot.as_ref().map(|s| {
        json!({
            "steps": s.steps, "queued": s.queued, "busy": s.busy, "streams": s.streams, "buffered": s.buffered,
            "outgoing": s.outgoing, "requests": s.requests,
        })
    });
    let kv = snapshot.as_ref().filter(|s| s.usage.kv_pages > 0);
    json!({
        "name": placed.name,
        "component": placed.component.as_str(),
        "precision": format!("{:?}", placed.precision).to_lowercase(),
        "weights": digest,
        "rank": placed.rank,
        "state": child.map(|child| child.state.as_str()),
        "incarnation": child.map(|child| child.incarnation.0),
        "restarts": child.map(|child| child.restarts),
        "last_reason": child.and_then(|child| child.last_reason.clone()),
        "queue": held,
        "kv": kv.map(|s| json!({
            "pages_used": s.usage.kv_pages_used, "pages_cached": s.usage.kv_pages_cached, "pages": s.usage.kv_pages,
            "prompt_tokens": s.usage.prompt_tokens, "reused_tokens": s.usage.reused_tokens,
        })),
        "sequences": snapshot.as_ref().map(|s| s.usage.sequences),
        "max_batch_rows": placed.limits.max_rows,
        "max_batch_tokens": placed.limits.max_tokens,
    })
}

async fn requests(operations: &ClusterOperations) -> Value {
    let Ok(now) = operations.ingress.snapshot().await else { return Value::Null };
    json!({
        "running": now.running.iter().map(|request| json!({
            "id": &*request.id, "model": request.model.as_str(), "attempt": request.key.attempt,
        })).collect::<Vec<_>>(),
        "queued": now.queued,
        "max_running": now.max_running,
        "max_queued": now.max_queued,
        "admitted": now.admitted,
        "refused": now.refused,
    })
}

fn ingress(children: Option<&Snapshot>) -> Value {
    let child = children.and_then(|all| all.child(INGRESS));
    json!({
        "state": child.map(|child| child.state.as_str()),
        "incarnation": child.map(|child| child.incarnation.0),
        "restarts": child.map(|child| child.restarts),
    })
}

fn models(operations: &ClusterOperations) -> Vec<Value> {
    let name = |node: &NodeIx| operations.routes.name(*node).to_owned();
    let models = operations.table.models.iter().map(|model| {
        let served = model.bindings.iter().filter(|binding| !binding.replicas.is_empty());
        let nodes: Vec<Value> = served
            .map(|binding| {
                let walks: Vec<&str> = binding.walks.iter().map(|walk| walk.as_str()).collect();
                let replicas: Vec<String> = binding.replicas.iter().map(name).collect();
                json!({"node": binding.node.as_str(), "walks": walks, "replicas": replicas})
            })
            .collect();
        json!({"id": model.id.as_str(), "walks": model.walks, "nodes": nodes})
    });
    models.collect()
}
