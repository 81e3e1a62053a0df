//! Reads JSON objects field by field, so that every complaint names the field, and unknown fields are refused.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::ops::RangeInclusive;

use serde_json::{Map, Value};

use crate::ApiError;

/// A JSON object being read. [`Fields::finish`] refuses what nobody asked for.
pub(crate) struct Fields<'a> {
    path: String,
    map: &'a Map<String, Value>,
    asked: RefCell<BTreeSet<&'static str>>,
}

impl<'a> Fields<'a> {
    /// Returns a reader over the object at `path`, or the complaint that it is no object.
    pub(crate) fn new(path: &str, value: &'a Value) -> Result<Self, ApiError> {
        match value {
            Value::Object(map) => Ok(Self { path: path.to_owned(), map, asked: RefCell::default() }),
            other => {
                let field = if path.is_empty() { "body" } else { path };
                Err(ApiError::field(field, format!("must be an object, not {}", kind_of(other))))
            }
        }
    }

    /// Returns the path of a field.
    pub(crate) fn path(&self, name: &str) -> String {
        if self.path.is_empty() { name.to_owned() } else { format!("{}.{name}", self.path) }
    }

    /// Returns a field as it is; null counts as absent.
    pub(crate) fn raw(&self, name: &'static str) -> Option<&'a Value> {
        self.asked.borrow_mut().insert(name);
        self.map.get(name).filter(|value| !value.is_null())
    }

    /// Accepts fields that mean nothing here.
    pub(crate) fn ignore(&self, names: &[&'static str]) {
        self.asked.borrow_mut().extend(names);
    }

    /// Returns the complaint that a field is of the wrong type.
    fn wrong(&self, name: &str, expected: &str, value: &Value) -> ApiError {
        ApiError::field(self.path(name), format!("must be {expected}, not {}", kind_of(value)))
    }

    /// Returns a text.
    pub(crate) fn text(&self, name: &'static str) -> Result<Option<&'a str>, ApiError> {
        match self.raw(name) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(other) => Err(self.wrong(name, "a string", other)),
        }
    }

    /// Returns a text that must be there.
    pub(crate) fn required_text(&self, name: &'static str) -> Result<&'a str, ApiError> {
        self.text(name)?.ok_or_else(|| ApiError::field(self.path(name), "is required"))
    }

    /// Returns one of the allowed words.
    pub(crate) fn word(&self, name: &'static str, allowed: &[&str]) -> Result<Option<&'a str>, ApiError> {
        match self.text(name)? {
            Some(word) if !allowed.contains(&word) => {
                Err(ApiError::field(self.path(name), format!("{word:?} is not one of {}", allowed.join(", "))))
            }
            word => Ok(word),
        }
    }

    /// Returns a boolean.
    pub(crate) fn flag(&self, name: &'static str) -> Result<Option<bool>, ApiError> {
        match self.raw(name) {
            None => Ok(None),
            Some(Value::Bool(flag)) => Ok(Some(*flag)),
            Some(other) => Err(self.wrong(name, "true or false", other)),
        }
    }

    /// Returns a number within a range.
    pub(crate) fn number(&self, name: &'static str, range: RangeInclusive<f64>) -> Result<Option<f32>, ApiError> {
        let Some(value) = self.raw(name) else { return Ok(None) };
        let number = value.as_f64().ok_or_else(|| self.wrong(name, "a number", value))?;
        if range.contains(&number) {
            Ok(Some(number as f32))
        } else {
            let (low, high) = (range.start(), range.end());
            Err(ApiError::field(self.path(name), format!("{number} is outside {low} to {high}")))
        }
    }

    /// Returns a whole number within a range.
    pub(crate) fn whole(&self, name: &'static str, range: RangeInclusive<u64>) -> Result<Option<u64>, ApiError> {
        let Some(value) = self.raw(name) else { return Ok(None) };
        let Some(number) = value.as_u64() else {
            return Err(self.wrong(name, "a whole number, not negative", value));
        };
        if range.contains(&number) {
            Ok(Some(number))
        } else {
            let (low, high) = (range.start(), range.end());
            Err(ApiError::field(self.path(name), format!("{number} is outside {low} to {high}")))
        }
    }

    /// Returns a list.
    pub(crate) fn list(&self, name: &'static str) -> Result<Option<&'a [Value]>, ApiError> {
        match self.raw(name) {
            None => Ok(None),
            Some(Value::Array(list)) => Ok(Some(list)),
            Some(other) => Err(self.wrong(name, "a list", other)),
        }
    }

    /// Returns an object to read field by field.
    pub(crate) fn object(&self, name: &'static str) -> Result<Option<Fields<'a>>, ApiError> {
        self.raw(name).map(|value| Fields::new(&self.path(name), value)).transpose()
    }

    /// Returns the fields as they are, marking all as asked for.
    pub(crate) fn into_map(self) -> &'a Map<String, Value> {
        self.map
    }

    /// Refuses fields that nobody asked for.
    pub(crate) fn finish(self) -> Result<(), ApiError> {
        let asked = self.asked.borrow();
        match self.map.keys().find(|key| !asked.contains(key.as_str())) {
            None => Ok(()),
            Some(stranger) => {
                let known: Vec<&str> = asked.iter().copied().collect();
                let message = format!("unknown field; known here: {}", known.join(", "));
                Err(ApiError { code: "unknown_field", ..ApiError::field(self.path(stranger), message) })
            }
        }
    }
}

/// Returns the name of a JSON value's type.
pub(crate) fn kind_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}

/// Parses a JSON body; the complaint tells line and column.
pub(crate) fn parse_json(body: &[u8]) -> Result<Value, ApiError> {
    if std::str::from_utf8(body).is_err() {
        return Err(ApiError::body("is not valid UTF-8"));
    }
    serde_json::from_slice(body).map_err(|error| ApiError::body(format!("is not JSON: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[track_caller]
    fn check(value: Value, expected: &str) {
        let read = || -> Result<(), ApiError> {
            let fields = Fields::new("", &value)?;
            fields.number("temperature", 0.0..=2.0)?;
            fields.whole("n", 1..=8)?;
            fields.word("format", &["wav", "pcm"])?;
            if let Some(audio) = fields.object("audio")? {
                audio.text("voice")?;
                audio.finish()?;
            }
            fields.finish()
        };
        let told = match read() {
            Ok(()) => "fine".to_owned(),
            Err(error) => format!("{} {}", error.param.unwrap_or_default(), error.message),
        };
        assert_eq!(told, expected);
    }

    #[test]
    fn every_complaint_names_its_field() {
        check(json!({"temperature": 1, "n": 2, "format": "wav", "audio": {"voice": null}}), "fine");
        check(json!([1]), "body must be an object, not a list");
        check(json!({"temperature": "hot"}), "temperature must be a number, not a string");
        check(json!({"temperature": 3}), "temperature 3 is outside 0 to 2");
        check(json!({"n": -1}), "n must be a whole number, not negative, not a number");
        check(json!({"format": "mp9"}), "format \"mp9\" is not one of wav, pcm");
        check(json!({"audio": {"vioce": "x"}}), "audio.vioce unknown field; known here: voice");
        check(json!({"x": 1}), "x unknown field; known here: audio, format, n, temperature");
    }
}
