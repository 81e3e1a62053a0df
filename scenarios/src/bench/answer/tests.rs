//! Answers as servers send them, cut at any place.

use super::*;

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// Hands pieces over, ten milliseconds apart, and ends at a second.
fn read(shape: Shape, pieces: &[&[u8]]) -> Sample {
    let mut answer = Answer::new(shape);
    for (n, piece) in pieces.iter().enumerate() {
        answer.take(ms(10 * (n as u64 + 1)), piece);
    }
    answer.end(ms(1000))
}

#[test]
fn a_chat_is_timed_by_its_pieces_and_counted_by_its_usage() {
    let sample = read(
        Shape::Chat,
        &[
            b"data: {\"choices\":[{\"delta\":{\"role\":\"assistant\",\"content\":\"\"},\"finish_reason\":null}]}\n\n",
            b"data: {\"choices\":[{\"delta\":{\"content\":\"Hel\"},\"finish_reason\":null}]}\n\ndata: {\"choi",
            b"ces\":[{\"delta\":{\"content\":\"lo\"},\"finish_reason\":null}]}\n\n",
            b"data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"stop\"}]}\n\n",
            b"data: {\"choices\":[],\"usage\":{\"completion_tokens\":3}}\n\ndata: [DONE]\n\n",
        ],
    );
    assert_eq!(sample.texts, [ms(20), ms(30)]);
    assert_eq!(sample.gaps().collect::<Vec<_>>(), [ms(10)]);
    assert_eq!((sample.tokens, sample.total, sample.failure), (Some(3), ms(1000), None));
}

#[test]
fn a_chat_without_its_end_has_failed_and_so_has_one_with_an_error() {
    let begun = b"data: {\"choices\":[{\"delta\":{\"content\":\"Hel\"},\"finish_reason\":null}]}\n\n";
    assert_eq!(read(Shape::Chat, &[begun]).failure.as_deref(), Some("no end"));
    let error = b"data: {\"error\":{\"message\":\"node llm died\"}}\n\n";
    assert_eq!(read(Shape::Chat, &[begun, error]).failure.as_deref(), Some("error event"));
}

#[test]
fn a_wav_file_says_itself_how_long_its_pieces_sound() {
    let header = mstar_media::wav_header(24_000, None);
    let mut first = header[10..].to_vec();
    first.extend([0; 480]);
    let sample = read(Shape::Wav, &[&header[..10], &first, &[0; 48_000]]);
    assert_eq!(sample.audio, [Piece { after: ms(20), seconds: 0.01 }, Piece { after: ms(30), seconds: 1.0 }]);
    assert_eq!(sample.failure, None);
    assert_eq!(read(Shape::Wav, &[&[b'x'; 50]]).failure.as_deref(), Some("no wav"));
    assert_eq!(read(Shape::Wav, &[]).failure.as_deref(), Some("no end"));
}

#[test]
fn a_transcription_streams_or_comes_as_a_document() {
    let delta = b"data: {\"type\":\"transcript.text.delta\",\"delta\":\" The\"}\n\n";
    let done = b"data: {\"type\":\"transcript.text.done\",\"text\":\"The\",\"usage\":{\"output_tokens\":1}}\n\n";
    let streamed = read(Shape::Transcript, &[delta, done]);
    assert_eq!((streamed.texts, streamed.tokens, streamed.failure), (vec![ms(10)], Some(1), None));
    let whole = read(Shape::Transcript, &[b"{\"text\": \"The\"}"]);
    assert_eq!((whole.texts, whole.failure), (vec![ms(1000)], None));
}

#[test]
fn native_lines_carry_text_and_audio() {
    let sample = read(
        Shape::Lines,
        &[
            b"{\"modality\":\"detail\",\"data\":\"aGk=\",\"metadata\":{}}\n",
            b"{\"modality\":\"text\",\"data\":\"aGk=\",\"metadata\":{}}\n",
            b"{\"modality\":\"audio\",\"data\":\"AAAAAAAAAAA=\",\"metadata\":{\"sample_rate\":8,\"num_channels\":1}}\n",
        ],
    );
    assert_eq!(sample.texts, [ms(20)]);
    assert_eq!(sample.audio, [Piece { after: ms(30), seconds: 0.5 }]);
    let error = b"{\"modality\":\"error\",\"data\":\"\",\"metadata\":{}}\n";
    assert_eq!(read(Shape::Lines, &[error]).failure.as_deref(), Some("error line"));
}
