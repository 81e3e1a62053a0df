//! What drawings look like.

use std::sync::Arc;

use expect_test::expect;

use super::*;
use crate::{GraphBuilder, Modality, dynamic_loop, loop_over_stream, step};

/// A language model whose text is spoken in another partition.
fn speaking() -> Arc<Graph> {
    let prefill = step("llm", "prefill").input("prompt").to("token", "llm.decode", "token");
    let decode = step("llm", "decode")
        .back("token", "llm.decode", "token")
        .client("text", Modality::Text)
        .stream_out("text", "text")
        .keep("summary", "said")
        .stop("eos", "generate");
    let cut = step("cutter", "cut").named("cut").stream_in("text", "text").to("sentence", "say", "words");
    let say = step("voice", "say").named("say").kept("tone", "said").client("audio", Modality::Audio);
    GraphBuilder::new()
        .node("llm", "smollm2.llm")
        .node("cutter", "voice.cutter")
        .node("voice", "hibari.voice")
        .partition("think")
        .partition("speak")
        .stream(Stream::new("text", "think", "speak", ChunkPolicy::Fixed(1)))
        .walk("think", "reply", prefill.then(dynamic_loop("generate", Bound::from_request("max_tokens", 512), decode)))
        .walk("speak", "speak", loop_over_stream("sentences", cut.then(say)))
        .build()
        .unwrap_or_else(|problems| panic!("{problems}"))
}

#[test]
fn mermaid_shows_walks_loops_and_streams() {
    expect![[r#"
        flowchart LR
          subgraph walk0["walk reply (partition think)"]
            input0_0(["input prompt"])
            step0["llm.prefill"]
            subgraph loop0["loop generate (max_tokens times, 512 at most, or until stopped)"]
              step1["llm.decode"]
            end
          end
          subgraph walk1["walk speak (partition speak)"]
            subgraph loop1["loop sentences (until its stream ends, or until stopped)"]
              step2["cut: cutter.cut"]
              step3["say: voice.say"]
            end
          end
          stream0[/"stream text: 1 at a time, credit 64"/]
          client1(("client"))
          kept2[("kept said")]
          input0_0 -->|"prompt"| step0
          step0 -->|"token"| step1
          step1 ==>|"text"| stream0
          step1 -.->|"token"| step1
          step1 -->|"text (text)"| client1
          step1 -->|"summary"| kept2
          kept2 -->|"tone"| step3
          stream0 ==>|"text"| step2
          step2 -->|"sentence to words"| step3
          step3 -->|"audio (audio)"| client1
    "#]]
    .assert_eq(&mermaid(&speaking()));
}

#[test]
fn dot_shows_the_same() {
    expect![[r#"
        digraph {
          rankdir=LR;
          subgraph cluster_walk0 {
            label="walk reply (partition think)";
            input0_0 [label="input prompt", shape=plaintext];
            step0 [label="llm.prefill", shape=box];
            subgraph cluster_loop0 {
              label="loop generate (max_tokens times, 512 at most, or until stopped)";
              step1 [label="llm.decode", shape=box];
            }
          }
          subgraph cluster_walk1 {
            label="walk speak (partition speak)";
            subgraph cluster_loop1 {
              label="loop sentences (until its stream ends, or until stopped)";
              step2 [label="cut: cutter.cut", shape=box];
              step3 [label="say: voice.say", shape=box];
            }
          }
          stream0 [label="stream text: 1 at a time, credit 64", shape=parallelogram];
          client1 [label="client", shape=circle];
          kept2 [label="kept said", shape=cylinder];
          input0_0 -> step0 [label="prompt", style=solid];
          step0 -> step1 [label="token", style=solid];
          step1 -> stream0 [label="text", style=bold];
          step1 -> step1 [label="token", style=dashed];
          step1 -> client1 [label="text (text)", style=solid];
          step1 -> kept2 [label="summary", style=solid];
          kept2 -> step3 [label="tone", style=solid];
          stream0 -> step2 [label="text", style=bold];
          step2 -> step3 [label="sentence to words", style=solid];
          step3 -> client1 [label="audio (audio)", style=solid];
        }
    "#]]
    .assert_eq(&dot(&speaking()));
}
