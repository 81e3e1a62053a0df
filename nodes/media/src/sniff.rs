//! Telling what a file is: by its first bytes, else by what its sender says.

/// The container of an audio file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum AudioKind {
    /// RIFF WAVE.
    Wav,
    /// FLAC.
    Flac,
    /// MPEG audio.
    Mp3,
    /// Ogg.
    Ogg,
}

/// What a file is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum MediaKind {
    /// Sound.
    Audio(AudioKind),
    /// A still picture.
    Image,
    /// Moving pictures.
    Video,
    /// Text.
    Text,
}

/// What a file is: its first bytes decide; where they say nothing, its content type; else its name;
/// and what reads as text is text.
pub fn sniff(bytes: &[u8], content_type: Option<&str>, file_name: Option<&str>) -> Option<MediaKind> {
    by_magic(bytes)
        .or_else(|| by_content_type(content_type?))
        .or_else(|| by_extension(file_name?.rsplit_once('.')?.1))
        .or_else(|| reads_as_text(bytes).then_some(MediaKind::Text))
}

fn by_magic(bytes: &[u8]) -> Option<MediaKind> {
    use AudioKind::{Flac, Mp3, Ogg, Wav};
    let at = |offset: usize, magic: &[u8]| bytes.get(offset..).is_some_and(|rest| rest.starts_with(magic));
    if at(0, b"RIFF") {
        return match bytes.get(8..12)? {
            b"WAVE" => Some(MediaKind::Audio(Wav)),
            b"WEBP" => Some(MediaKind::Image),
            b"AVI " => Some(MediaKind::Video),
            _ => None,
        };
    }
    let starts: [(&[u8], MediaKind); 10] = [
        (b"fLaC", MediaKind::Audio(Flac)),
        (b"OggS", MediaKind::Audio(Ogg)),
        (b"ID3", MediaKind::Audio(Mp3)),
        (b"\x89PNG\r\n\x1a\n", MediaKind::Image),
        (b"\xff\xd8\xff", MediaKind::Image),
        (b"GIF87a", MediaKind::Image),
        (b"GIF89a", MediaKind::Image),
        (b"II*\0", MediaKind::Image),
        (b"MM\0*", MediaKind::Image),
        (b"\x1aE\xdf\xa3", MediaKind::Video),
    ];
    if let Some((_, kind)) = starts.into_iter().find(|(magic, _)| at(0, magic)) {
        return Some(kind);
    }
    if at(4, b"ftyp") {
        let still = [b"avif", b"heic", b"mif1"].into_iter().any(|brand| at(8, brand));
        return Some(if still { MediaKind::Image } else { MediaKind::Video });
    }
    is_mpeg_frame(bytes).then_some(MediaKind::Audio(Mp3))
}

/// A frame header of MPEG audio layer III with no reserved values.
fn is_mpeg_frame(bytes: &[u8]) -> bool {
    let [0xff, version, rates, ..] = *bytes else { return false };
    let synced = version & 0xe0 == 0xe0 && version >> 3 & 3 != 1;
    let layer_three = version >> 1 & 3 == 1;
    synced && layer_three && rates >> 4 != 15 && rates >> 2 & 3 != 3
}

fn by_content_type(content_type: &str) -> Option<MediaKind> {
    let essence = content_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    match essence.split_once('/')? {
        ("audio", kind) => by_extension(kind.trim_start_matches("x-").trim_start_matches("vnd.")),
        ("image", _) => Some(MediaKind::Image),
        ("video", _) => Some(MediaKind::Video),
        ("text", _) | ("application", "json") => Some(MediaKind::Text),
        _ => None,
    }
}

fn by_extension(extension: &str) -> Option<MediaKind> {
    Some(match extension.to_ascii_lowercase().as_str() {
        "wav" | "wave" => MediaKind::Audio(AudioKind::Wav),
        "flac" => MediaKind::Audio(AudioKind::Flac),
        "mp3" | "mpeg" | "mpga" => MediaKind::Audio(AudioKind::Mp3),
        "ogg" | "oga" | "vorbis" => MediaKind::Audio(AudioKind::Ogg),
        "png" | "jpg" | "jpeg" | "gif" | "webp" | "bmp" | "tif" | "tiff" | "avif" | "heic" => MediaKind::Image,
        "mp4" | "m4v" | "mov" | "webm" | "mkv" | "avi" => MediaKind::Video,
        "txt" | "md" | "json" | "jsonl" | "csv" => MediaKind::Text,
        _ => return None,
    })
}

fn reads_as_text(bytes: &[u8]) -> bool {
    let text = std::str::from_utf8(bytes);
    text.is_ok_and(|text| !text.is_empty() && !text.chars().any(|c| c.is_control() && !c.is_whitespace()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(bytes: &[u8], content_type: &str, name: &str, expected: Option<MediaKind>) {
        let some = |text: &'static str| (!text.is_empty()).then_some(text);
        let leaked = |text: &str| some(text.to_string().leak());
        assert_eq!(sniff(bytes, leaked(content_type), leaked(name)), expected, "{bytes:?} {content_type} {name}");
    }

    #[test]
    fn first_bytes_decide() {
        let audio = |kind| Some(MediaKind::Audio(kind));
        check(b"RIFF\0\0\0\0WAVEfmt ", "image/png", "a.txt", audio(AudioKind::Wav));
        check(b"RIFF\0\0\0\0WEBPVP8 ", "", "", Some(MediaKind::Image));
        check(b"fLaC\0", "", "", audio(AudioKind::Flac));
        check(b"OggS\0", "", "", audio(AudioKind::Ogg));
        check(b"ID3\x04", "", "", audio(AudioKind::Mp3));
        check(b"\xff\xfb\x90\x00", "", "", audio(AudioKind::Mp3));
        check(b"\xff\xd8\xff\xe0", "audio/mp3", "a.mp3", Some(MediaKind::Image));
        check(b"\0\0\0\x20ftypisom", "", "", Some(MediaKind::Video));
        check(b"\x1aE\xdf\xa3", "", "", Some(MediaKind::Video));
    }

    #[test]
    fn then_the_sender_then_the_name_then_the_text() {
        check(b"\0\x01", "audio/x-wav", "a.png", Some(MediaKind::Audio(AudioKind::Wav)));
        check(b"\0\x01", "Audio/MPEG; q=1", "", Some(MediaKind::Audio(AudioKind::Mp3)));
        check(b"\0\x01", "application/octet-stream", "Photo.JPG", Some(MediaKind::Image));
        check(b"\0\x01", "", "", None);
        check("naïve text\n".as_bytes(), "", "noextension", Some(MediaKind::Text));
        check(b"", "", "", None);
    }
}
