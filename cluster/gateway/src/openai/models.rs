//! `GET /v1/models` and `/v1/models/{id}`.

use std::sync::Arc;

use axum::Json;
use axum::extract::{Path, State};
use mstar_actors::Served;
use serde_json::{Value, json};

use crate::{ApiError, Gateway};

/// Lists the served models.
pub(crate) async fn list(State(gateway): State<Arc<Gateway>>) -> Json<Value> {
    let data: Vec<Value> = gateway.models.values().map(|served| describe(&gateway, served)).collect();
    Json(json!({"object": "list", "data": data}))
}

/// Describes one served model.
pub(crate) async fn one(State(gateway): State<Arc<Gateway>>, Path(id): Path<String>) -> Result<Json<Value>, ApiError> {
    Ok(Json(describe(&gateway, gateway.served(Some(&id))?)))
}

fn describe(gateway: &Gateway, served: &Served) -> Value {
    let (id, card) = (served.model().id(), served.model().card());
    let names = |list: &[mstar_graph::Modality]| list.iter().map(ToString::to_string).collect::<Vec<_>>();
    json!({
        "id": id.as_str(),
        "object": "model",
        "created": 0,
        "owned_by": "mstar",
        "description": card.summary,
        "default": id == gateway.default_model,
        "input_modalities": names(&card.inputs),
        "output_modalities": names(&card.outputs),
        "voices": card.voices,
        "options": card.options,
        "context_length": card.context,
    })
}
