//! The binary as a user meets it: exit codes, one line per mistake, a server that answers and ends when it is asked.

#![expect(clippy::unwrap_used, reason = "a test that cannot begin has failed")]

use std::io::{BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, ChildStderr, Command, Output, Stdio};

const FAKE: &str = "listen = '127.0.0.1:0'\n[model.fake]\n[limits]\ndrain_s = 5\n";

fn mstar(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_mstar"));
    command.args(args).env_remove("MSTAR_API_KEY").env_remove("MSTAR_API_KEYS").env_remove("RUST_LOG");
    command
}

#[track_caller]
fn check(args: &[&str], code: i32, told: &str) -> Output {
    let output = mstar(args).output().unwrap();
    let text = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert_eq!(output.status.code(), Some(code), "{args:?}: {text}");
    assert!(text.contains(told), "{args:?}: {text}");
    output
}

/// Writes a deployment file and returns its path.
fn deployment(folder: &Path, text: &str) -> String {
    let path = folder.join("deployment.toml");
    std::fs::write(&path, text).unwrap();
    path.to_str().unwrap().to_owned()
}

#[test]
fn mistakes_end_with_one_line_and_their_code() {
    let folder = tempfile::tempdir().unwrap();
    let cuda = deployment(folder.path(), "[model.fake]\n[[rank]]\nname = 'gpu'\ndevice = 'cuda:99'\n");
    check(&[], 2, "Usage: mstar");
    check(&["serve", "--bogus"], 2, "--bogus");
    check(&["graph", "nobody"], 1, "no model \"nobody\" in this build");
    check(&["serve", "--config", "/nowhere.toml"], 1, "cannot read /nowhere.toml");
    check(&["serve", "--listen", "0.0.0.0:0"], 1, "can be reached by others and nobody needs a key");
    check(&["verify", "real", "/nowhere"], 1, "/nowhere is not a folder");
    check(&["run", "voice"], 1, "nothing to send");
    let output = check(&["--fake", "serve", "--config", &cuda, "--log", "off"], 1, "rank gpu wants cuda:99: ");
    assert_eq!(String::from_utf8_lossy(&output.stderr).lines().count(), 1);
}

#[test]
fn graphs_and_models_are_shown() {
    check(&["graph", "voice"], 0, "llm.decode");
    check(&["graph", "voice", "--dot"], 0, "digraph");
    check(&["models"], 0, "voice  (the default model)");
}

#[test]
fn a_reader_that_left_ends_a_command_without_a_word() {
    let folder = tempfile::tempdir().unwrap();
    let good = deployment(folder.path(), FAKE);
    for args in [&["models"][..], &["graph", "voice"], &["--fake", "check", &good], &["--help"]] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let output = mstar(args).stdout(writer).stderr(Stdio::piped()).output().unwrap();
        let told = String::from_utf8_lossy(&output.stderr);
        assert_eq!((output.status.code(), told.as_ref()), (Some(0), ""), "{args:?}");
    }
    // Nor does a command fall over that has nobody to complain to.
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let status = mstar(&["graph", "nobody"]).stderr(writer).status().unwrap();
    assert_eq!(status.code(), Some(1));
}

#[test]
fn what_a_deployment_names_on_disk_is_looked_at() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    std::fs::write(at("a_file"), "# no keys\n").unwrap();
    let text =
        "api_keys_file = 'a_file'\n[model.smollm2]\nweights = 'nowhere'\n[model.hibari]\n[cache]\ndir = 'a_file'\n";
    let bad =
        deployment(folder.path(), &text.replace("dir = 'a_file'", &format!("dir = '{}'", at("a_file").display())));
    let output = mstar(&["check", &bad]).env_remove("MSTAR_CACHE").output().unwrap();
    let told = String::from_utf8(output.stderr).unwrap();
    assert_eq!((output.status.code(), told.lines().count()), (Some(1), 4), "{told}");
    for (line, what) in told.lines().zip([
        format!("{bad}:1:17: api_keys_file: api_keys_file {} has no keys", at("a_file").display()),
        format!("{bad}:3:11: model.smollm2.weights: "),
        format!("{bad}:6:7: cache.dir: {} is not a folder", at("a_file").display()),
        format!("3 problems in {bad}"),
    ]) {
        assert!(line.starts_with(&what), "{line}\n{what}");
    }
    // Weights that are yet to be fetched keep no deployment from booting.
    let good = deployment(folder.path(), "[model.hibari]\n");
    let output = mstar(&["check", &good]).env("MSTAR_CACHE", at("cache")).output().unwrap();
    let told = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success() && told.starts_with(&format!("{good}: warning: cache.dir: ")), "{told}");
    assert!(!at("cache").exists(), "looking makes nothing");
}

#[test]
fn a_deployment_is_checked_offline() {
    let folder = tempfile::tempdir().unwrap();
    let good = deployment(folder.path(), FAKE);
    check(&["--fake", "check", &good], 0, "ok: serves fake with 4 nodes on 1 rank");
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/config");
    let bad = fixtures.join("bad/misspelt.toml");
    check(&["check", bad.to_str().unwrap()], 1, "12 problems in");
    let shipped = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deployments/voice.toml");
    check(&["check", shipped.to_str().unwrap()], 0, "ok: serves hibari, smollm2, voice, whisper");
}

/// A server in a process of its own, killed when a test ends early.
struct Served {
    child: Child,
    log: BufReader<ChildStderr>,
    url: String,
}

impl Served {
    fn start(config: &str) -> Self {
        let mut child = mstar(&["--fake", "serve", "--config", config]).stderr(Stdio::piped()).spawn().unwrap();
        let mut log = BufReader::new(child.stderr.take().unwrap());
        // What GPUs there are, or why none: one line, and the server goes on.
        next_with(&mut log, "CUDA");
        let line = next_with(&mut log, "listens on http://");
        let url = line.split_whitespace().find(|word| word.starts_with("http://")).unwrap().to_owned();
        Self { child, log, url }
    }

    /// Begins an exchange of bytes.
    fn send(&self, request: &str) -> TcpStream {
        let mut stream = TcpStream::connect(self.url.trim_start_matches("http://")).unwrap();
        stream.write_all(request.as_bytes()).unwrap();
        stream
    }

    /// Returns the whole answer to a request without a body.
    fn ask(&self, method_and_path: &str) -> String {
        let head = format!("{method_and_path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: 0\r\n\r\n");
        let mut answer = String::new();
        self.send(&head).read_to_string(&mut answer).unwrap();
        answer
    }

    fn terminate(&self) {
        let killed = Command::new("kill").args(["-TERM", &self.child.id().to_string()]).status().unwrap();
        assert!(killed.success());
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Reads lines up to one with these words.
fn next_with(log: &mut impl std::io::BufRead, words: &str) -> String {
    let mut line = String::new();
    loop {
        line.clear();
        assert!(log.read_line(&mut line).unwrap() > 0, "the log ended before {words:?}");
        if line.contains(words) {
            return line;
        }
    }
}

#[test]
fn a_server_answers_and_ends_when_it_is_asked() {
    let folder = tempfile::tempdir().unwrap();
    let mut served = Served::start(&deployment(folder.path(), FAKE));
    let spoken = folder.path().join("reply.wav");
    let run = ["run", "fake", "--text", "hello there", "--server", &served.url];
    // The likeliest reply: one that is drawn may end before its first word.
    let options = ["-o", "walk=converse", "-o", "temperature=0", "-o", "seed=7"];
    let output = mstar(&run).args(options).args(["--out", spoken.to_str().unwrap()]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(!String::from_utf8_lossy(&output.stdout).trim().is_empty());
    assert!(std::fs::read(&spoken).unwrap().starts_with(b"RIFF"));

    served.terminate();
    next_with(&mut served.log, "SIGTERM: no new requests");
    assert_eq!(served.child.wait().unwrap().code(), Some(0));
    check(&["run", "fake", "--text", "hello", "--server", &served.url], 1, "no answer from http://");
}

#[test]
fn log_lines_are_objects_where_the_deployment_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let config = deployment(folder.path(), &format!("{FAKE}[log]\nformat = 'json'\n"));
    let mut served = Served::start(&config);
    served.terminate();
    let line = next_with(&mut served.log, "SIGTERM: no new requests");
    let line: serde_json::Value = serde_json::from_str(&line).unwrap();
    assert_eq!(line["level"], "INFO", "{line}");
}

#[test]
fn a_server_is_measured_in_this_process_and_from_outside() {
    let folder = tempfile::tempdir().unwrap();
    let config = deployment(folder.path(), FAKE);
    let asked = ["--fake", "bench", "chat", "--model", "fake", "--config", &config, "--requests", "4", "--json"];
    let output = mstar(&asked).args(["--concurrency", "1,2"]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let told = String::from_utf8_lossy(&output.stdout);
    assert_eq!(told.matches("\"errors\": 0").count(), 2, "{told}");
    let served = Served::start(&config);
    let asked = ["bench", "speak", "--model", "fake", "--requests", "2", "--concurrency", "1", "--server", &served.url];
    check(&asked, 0, "first audio ms");
    check(&["bench", "chat", "--server", "ftp://x"], 1, "it must begin with http://");
    check(&["bench", "transcribe", "--text"], 1, "a transcription needs a recording");
}

#[test]
fn a_port_that_is_taken_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let config = deployment(folder.path(), FAKE);
    let served = Served::start(&config);
    let address = served.url.trim_start_matches("http://");
    check(&["--fake", "serve", "--config", &config, "--listen", address], 1, &format!("cannot listen on {address}"));
}

#[test]
fn a_file_that_cannot_be_written_is_noticed_before_anything_is_asked() {
    let folder = tempfile::tempdir().unwrap();
    // Nobody listens there: the file is complained about first.
    let ask = ["run", "fake", "--text", "hello", "--server", "http://127.0.0.1:9", "--out"];
    let nowhere = folder.path().join("nowhere/reply.wav");
    check(&[&ask[..], &[nowhere.to_str().unwrap()]].concat(), 1, "cannot write");
    let unused = folder.path().join("reply.wav");
    check(&[&ask[..], &[unused.to_str().unwrap()]].concat(), 1, "no answer from http://");
    assert!(!unused.exists(), "nothing came, so nothing is left behind");
}

#[test]
fn no_audio_is_no_file_and_no_success() {
    let folder = tempfile::tempdir().unwrap();
    let served = Served::start(&deployment(folder.path(), FAKE));
    let out = folder.path().join("reply.wav");
    let ask = ["run", "fake", "--text", "hello there", "-o", "walk=echo", "--outputs", "text", "--server", &served.url];
    check(&[&ask[..], &["--out", out.to_str().unwrap()]].concat(), 1, "no audio came");
    assert!(!out.exists());
}

/// Begins a request that stays until its client reads, or leaves.
fn flood(served: &Served) -> TcpStream {
    let form = "text=a+word&output_modalities=audio&model_kwargs=%7B%22walk%22%3A%22flood%22%2C%22items%22%3A65536%7D";
    let head = "POST /generate HTTP/1.1\r\nhost: x\r\ncontent-type: application/x-www-form-urlencoded\r\n";
    let mut client = served.send(&format!("{head}content-length: {}\r\n\r\n{form}", form.len()));
    let mut begun = [0; 12];
    client.read_exact(&mut begun).unwrap();
    assert_eq!(&begun, b"HTTP/1.1 200");
    client
}

#[test]
fn a_server_that_is_asked_to_end_says_so_until_its_requests_have_ended() {
    let folder = tempfile::tempdir().unwrap();
    let patient = FAKE.replace("drain_s = 5", "drain_s = 600\nretry_after_s = 8\n[http]\nreader_stall_s = 600");
    let mut served = Served::start(&deployment(folder.path(), &patient));
    let running = flood(&served);
    served.terminate();
    next_with(&mut served.log, "SIGTERM: no new requests");
    // The signal was heard; the drain begins right after.
    let mut ready = served.ask("GET /readyz");
    while ready.starts_with("HTTP/1.1 200") {
        ready = served.ask("GET /readyz");
    }
    for told in [ready, served.ask("POST /v1/audio/speech")] {
        assert!(told.starts_with("HTTP/1.1 503") && told.contains("retry-after: 8\r\n"), "{told}");
    }
    assert!(served.ask("GET /healthz").starts_with("HTTP/1.1 200"));
    drop(running);
    assert_eq!(served.child.wait().unwrap().code(), Some(0));
}

#[test]
fn a_drained_server_ends_when_it_is_asked() {
    let folder = tempfile::tempdir().unwrap();
    let mut served = Served::start(&deployment(folder.path(), FAKE));
    assert!(served.ask("POST /admin/drain").starts_with("HTTP/1.1 200"));
    next_with(&mut served.log, "drained: all requests ended");
    assert!(served.ask("GET /healthz").starts_with("HTTP/1.1 200"), "it stays");
    served.terminate();
    assert_eq!(served.child.wait().unwrap().code(), Some(0));
}
