//! The binary as a user meets it: exit codes, one line per mistake, a server that answers and ends when it is asked.

#![expect(clippy::unwrap_used, reason = "a test that cannot begin has failed")]

use std::io::BufReader;
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
        let line = next_with(&mut log, "listens on http://");
        let url = line.split_whitespace().find(|word| word.starts_with("http://")).unwrap().to_owned();
        Self { child, log, url }
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
fn a_port_that_is_taken_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let config = deployment(folder.path(), FAKE);
    let served = Served::start(&config);
    let address = served.url.trim_start_matches("http://");
    check(&["--fake", "serve", "--config", &config, "--listen", address], 1, &format!("cannot listen on {address}"));
}
