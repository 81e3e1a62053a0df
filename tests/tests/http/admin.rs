//! The views and switches of operators.

use mstar_tests::House;
use mstar_tests::house::Outcome;
use serde_json::Value;

use crate::wire::header;

#[tokio::test]
async fn the_views_tell_ranks_nodes_and_metrics() -> Outcome {
    let house = House::boot("").await?;
    house.works().await?;
    let view = house.view().await?;
    let names = |list: &Value| -> Vec<String> {
        list.as_array().into_iter().flatten().filter_map(|one| one["name"].as_str()).map(str::to_owned).collect()
    };
    assert_eq!(names(&view["ranks"]), ["cpu0", "gate"]);
    let nodes = view["nodes"].as_array().ok_or("no nodes")?;
    for component in ["fake.llm", "fake.text", "fake.cutter", "fake.vocoder", "scribe.ear", "scribe.door"] {
        let node = nodes.iter().find(|node| node["component"] == component).ok_or(component)?;
        assert_eq!((&node["state"], node["incarnation"].is_u64()), (&"running".into(), true), "{node}");
    }
    let llm = nodes.iter().find(|node| node["component"] == "fake.llm").ok_or("no llm")?;
    assert!(llm["kv"]["pages"].as_u64() > Some(0));
    let metrics = house.get("/metrics").await?.error_for_status()?;
    assert!(header(&metrics, "content-type").starts_with("text/plain"));
    let metrics = metrics.text().await?;
    for name in ["mstar_requests_total", "mstar_steps_total", "mstar_node_up", "mstar_tensors_live", "mstar_batch_rows"]
    {
        assert!(metrics.contains(name), "{name} is missing");
    }
    house.close().await;
    Ok(())
}

#[tokio::test]
async fn health_is_told_in_three_ways() -> Outcome {
    let house = House::boot("").await?;
    for (path, status) in [("/health", "healthy"), ("/healthz", "alive"), ("/readyz", "ready")] {
        let told: Value = house.get(path).await?.error_for_status()?.json().await?;
        assert_eq!(told["status"], status, "{path}");
    }
    house.close().await;
    Ok(())
}
