//! The only reader of environment variables.

use std::path::PathBuf;

use crate::{ApiKey, Deployment};

/// What the environment says. A variable that is empty or no Unicode counts as unset.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Environment {
    /// `MSTAR_CACHE`: the cache folder, above what the file says.
    pub cache: Option<PathBuf>,
    /// `mstar` in `XDG_CACHE_HOME`, else in `.cache` of `HOME`: the cache folder when nobody names one.
    pub user_cache: Option<PathBuf>,
    /// `OTEL_EXPORTER_OTLP_ENDPOINT`: where spans go when the file does not say.
    pub otlp_endpoint: Option<String>,
    /// `OTEL_SERVICE_NAME`: what the server calls itself when the file does not say.
    pub service_name: Option<String>,
    /// `RUST_LOG`: which log lines are shown.
    pub log_filter: Option<String>,
    /// `MSTAR_API_KEY` and the comma-separated `MSTAR_API_KEYS`: keys that a client may show, besides those of the file; the first is
    /// what `mstar run` shows itself.
    pub api_keys: Vec<ApiKey>,
    /// `NO_COLOR`: output stays plain.
    pub no_color: bool,
    /// `SEED`, as it is written: see [`Environment::seed`].
    pub seed: Option<String>,
}

// --- impl Environment ---

impl Environment {
    /// Reads the environment of this process.
    #[expect(clippy::disallowed_methods, reason = "this is the one reader of the environment")]
    pub fn read() -> Self {
        Environment::from(|name| std::env::var(name).ok())
    }

    /// Reads an environment given as a function.
    pub fn from(lookup: impl Fn(&str) -> Option<String>) -> Self {
        let set = |name: &str| lookup(name).filter(|value| !value.trim().is_empty());
        let user_cache = set("XDG_CACHE_HOME")
            .map(PathBuf::from)
            .or_else(|| set("HOME").map(|home| PathBuf::from(home).join(".cache")));
        let keys = [set("MSTAR_API_KEY"), set("MSTAR_API_KEYS")].into_iter().flatten();
        let split = |keys: String| {
            keys.split(',').map(str::trim).filter(|key| !key.is_empty()).map(str::to_owned).collect::<Vec<_>>()
        };
        Environment {
            cache: set("MSTAR_CACHE").map(PathBuf::from),
            user_cache: user_cache.map(|folder| folder.join("mstar")),
            otlp_endpoint: set("OTEL_EXPORTER_OTLP_ENDPOINT"),
            service_name: set("OTEL_SERVICE_NAME"),
            log_filter: set("RUST_LOG"),
            api_keys: keys.flat_map(split).map(ApiKey).collect(),
            no_color: set("NO_COLOR").is_some(),
            seed: set("SEED"),
        }
    }

    /// Returns the one seed that a story replays, from `SEED`; an error says what stands there when it is no number.
    pub fn seed(&self) -> Result<Option<u64>, String> {
        let wrong = |seed: &str| format!("SEED: `{seed}` is not a whole number from 0 to 2^64 - 1");
        self.seed.as_deref().map(|seed| seed.trim().parse().map_err(|_| wrong(seed))).transpose()
    }

    /// Returns the cache folder where no deployment is at hand; nothing when the user has no home.
    pub fn cache_dir(&self) -> Option<PathBuf> {
        self.cache.clone().or_else(|| self.user_cache.clone())
    }
}

// --- impl Deployment ---

impl Deployment {
    /// Returns the cache folder: `MSTAR_CACHE`, else `[cache] dir`, else the user's.
    pub fn cache_dir(&self, environment: &Environment) -> Option<PathBuf> {
        environment.cache.clone().or_else(|| self.cache_dir.clone()).or_else(|| environment.user_cache.clone())
    }

    /// Returns where spans go, if anywhere.
    pub fn otlp_endpoint(&self, environment: &Environment) -> Option<String> {
        self.tracing.endpoint.clone().or_else(|| environment.otlp_endpoint.clone())
    }

    /// Returns what the server calls itself in traces.
    pub fn service_name(&self, environment: &Environment) -> String {
        let named = self.tracing.service_name.clone().or_else(|| environment.service_name.clone());
        named.unwrap_or_else(|| "mstar".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn environment(variables: &[(&str, &str)]) -> Environment {
        Environment::from(|name| variables.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned()))
    }

    #[test]
    fn the_cache_is_the_first_of_those_named() {
        let check = |variables: &[(&str, &str)], expected: Option<&str>| {
            assert_eq!(environment(variables).cache_dir(), expected.map(PathBuf::from));
        };
        check(&[("HOME", "/h")], Some("/h/.cache/mstar"));
        check(&[("HOME", "/h"), ("XDG_CACHE_HOME", "/x")], Some("/x/mstar"));
        check(&[("HOME", "/h"), ("XDG_CACHE_HOME", "/x"), ("MSTAR_CACHE", "/m")], Some("/m"));
        check(&[("MSTAR_CACHE", "  "), ("HOME", "/h")], Some("/h/.cache/mstar"));
        check(&[], None);
    }

    #[test]
    fn keys_come_from_both_variables_and_stay_out_of_debug_output() {
        let environment = environment(&[("MSTAR_API_KEY", "first-key"), ("MSTAR_API_KEYS", "second-key, ,third-key")]);
        let keys: Vec<&str> = environment.api_keys.iter().map(ApiKey::expose).collect();
        assert_eq!(keys, ["first-key", "second-key", "third-key"]);
        assert!(!format!("{environment:?}").contains("-key"));
    }

    #[test]
    fn a_seed_is_a_number_or_an_error_that_shows_it() {
        assert_eq!(environment(&[]).seed(), Ok(None));
        assert_eq!(environment(&[("SEED", " 17 ")]).seed(), Ok(Some(17)));
        assert!(environment(&[("SEED", "seventeen")]).seed().is_err_and(|why| why.contains("seventeen")));
    }

    #[test]
    fn the_process_environment_is_read() {
        assert_eq!(Environment::read(), Environment::read());
    }
}
