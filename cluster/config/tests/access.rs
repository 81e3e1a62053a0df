//! Keys and open addresses, from file, environment and command line together.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::path::Path;

use mstar_config::{AccessError, ApiKey, Catalogue, Component, Deployment, Environment, Model, Walk};

fn deployment(head: &str) -> Deployment {
    let components = vec![Component { id: "echo.say".to_owned(), gpu: false, kv: false, page: None }];
    let walks = vec![Walk { name: "main".to_owned(), components: vec!["echo.say".to_owned()] }];
    let catalogue = Catalogue { models: vec![Model { id: "echo".to_owned(), components, walks, ..Model::default() }] };
    Deployment::parse("a.toml", &format!("{head}\n[model.echo]\n"), &catalogue).unwrap()
}

fn environment(keys: &str) -> Environment {
    Environment::from(|name| (name == "MSTAR_API_KEYS").then(|| keys.to_owned()))
}

#[test]
fn an_open_address_needs_a_key_from_somewhere() {
    let check = |head: &str, keys: &str, open: bool| {
        let deployment = deployment(head);
        let keys = deployment.all_keys(Path::new("."), &environment(keys)).unwrap();
        let checked = deployment.check_exposure("192.168.1.2:80".parse().unwrap(), &keys);
        assert_eq!(checked.is_ok(), open, "{head:?}");
        deployment.check_exposure(deployment.listen, &keys).unwrap();
    };
    check("", "", false);
    check("", "a-key-of-mine", true);
    check("api_keys = ['a-key-of-mine']", "", true);
    check("allow_unauthenticated = true", "", true);
}

#[test]
fn keys_are_gathered_from_file_and_environment() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/config");
    let with_file = deployment("api_keys = ['in-the-file-itself']\napi_keys_file = 'keys.txt'");
    let keys = with_file.all_keys(&folder, &environment("from-outside, in-a-key-file")).unwrap();
    let keys: Vec<&str> = keys.iter().map(ApiKey::expose).collect();
    assert_eq!(keys, ["from-outside", "in-a-key-file", "in-the-file-itself"]);
}

#[test]
fn keys_that_are_promised_and_not_there_are_an_error() {
    let missing = deployment("api_keys_file = 'nowhere.txt'").all_keys(Path::new("/"), &environment("a-key-of-mine"));
    assert!(matches!(missing, Err(AccessError::File { .. })));
    let unset = deployment("api_keys_env = true").all_keys(Path::new("/"), &environment(""));
    assert!(matches!(unset, Err(AccessError::NoEnvironment)));
}
