//! Requests of the scripted model, and what comes back.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use mstar_actors::{ClientStream, Submit};
use mstar_contract::{
    ClientEvent, Failure, FailureKind, Message, Part, Request, Role, Sampling, Summary, Task, TraceContext, Value,
};
use mstar_graph::Modality;

use crate::world::{World, unique};

/// What a client has in the end.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Reply {
    pub(crate) text: String,
    pub(crate) audio: Vec<u32>,
    pub(crate) emissions: usize,
}

/// A request of the fake model.
pub(crate) fn request(walk: &str, text: &str) -> Request {
    let message = Message { role: Role::User, parts: vec![Part::Text(text.into())] };
    Request {
        id: format!("r{}", unique()).into(),
        tenant: Default::default(),
        model: "fake".into(),
        task: Task::Generate,
        messages: vec![message],
        media: Vec::new(),
        outputs: BTreeSet::from([Modality::Text, Modality::Audio]),
        sampling: Sampling::default(),
        seed: 42,
        options: BTreeMap::from([("walk".to_owned(), serde_json::json!(walk))]),
    }
}

impl World {
    pub(crate) async fn submit(&self, request: Request) -> Result<ClientStream, Failure> {
        let (request, served) = (Arc::new(request), Arc::clone(&self.served));
        self.ingress.submit(Submit { request, served, deadline: None, trace: TraceContext::default() }).await
    }

    /// Serves a request to its end.
    pub(crate) async fn ask(&self, request: Request) -> Result<(Reply, Summary), Failure> {
        read(self.submit(request).await?).await
    }

    /// Serves a walk that ends well.
    pub(crate) async fn reply(&self, walk: &str, text: &str) -> Reply {
        self.ask(request(walk, text)).await.expect("the request ends well").0
    }

    /// Serves a request that fails.
    pub(crate) async fn failure(&self, request: Request) -> FailureKind {
        self.ask(request).await.expect_err("the request fails").kind
    }
}

/// Reads a stream to its end.
pub(crate) async fn read(mut stream: ClientStream) -> Result<(Reply, Summary), Failure> {
    let mut reply = Reply::default();
    loop {
        match stream.next().await.expect("the last event is an end") {
            ClientEvent::Emitted(emission) => reply.take(&emission.value),
            ClientEvent::Done(summary) => {
                assert!(stream.next().await.is_none(), "nothing follows the end");
                return Ok((reply, summary));
            }
            ClientEvent::Failed(failure) => {
                assert!(stream.next().await.is_none(), "nothing follows the end");
                return Err(failure);
            }
        }
    }
}

impl Reply {
    pub(crate) fn take(&mut self, value: &Value) {
        self.emissions += 1;
        match value {
            Value::Text(text) => self.text += text,
            Value::Audio { samples, .. } => {
                let samples = samples.tensor().f32s().expect("audio is float32");
                self.audio.extend(samples.iter().map(|sample| sample.to_bits()));
            }
            other => panic!("an emission of {other:?}"),
        }
    }

    /// The same without what depends on timing.
    pub(crate) fn bytes(self) -> (String, Vec<u32>) {
        (self.text, self.audio)
    }
}
