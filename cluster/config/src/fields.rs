//! Reads the keys of a table one by one, remembers which were asked for, and reports what does not fit.

use std::cell::RefCell;
use std::ops::{Range, RangeInclusive};

use toml_edit::{Item, TableLike, Value};

use crate::problem::{Problem, Report, position};
use crate::suggest::nearest;
use crate::units;

/// A place in the file.
pub(crate) type Span = Range<usize>;

/// A value with its place.
#[derive(Clone, Debug)]
pub(crate) struct At<T> {
    pub(crate) value: T,
    pub(crate) span: Span,
}

/// The file and what was found wrong with it so far.
pub(crate) struct Source<'a> {
    file: &'a str,
    text: &'a str,
    problems: RefCell<Vec<Problem>>,
}

/// Something wrong, with what would be right.
#[derive(Default)]
pub(crate) struct Complaint {
    pub(crate) what: String,
    pub(crate) allowed: Option<String>,
    pub(crate) meant: Option<String>,
}

/// The keys of one table.
pub(crate) struct Fields<'a> {
    source: &'a Source<'a>,
    path: String,
    table: &'a dyn TableLike,
    span: Span,
    known: Vec<&'static str>,
}

/// A kind of value: its name, and what TOML calls those that may be of it.
#[derive(Clone, Copy)]
struct Kind {
    name: &'static str,
    toml: &'static [&'static str],
}

const TEXT: Kind = Kind { name: "a string", toml: &["string"] };
const FLAG: Kind = Kind { name: "a boolean", toml: &["boolean"] };
const WHOLE: Kind = Kind { name: "a whole number", toml: &["integer"] };
const NUMBER: Kind = Kind { name: "a number", toml: &["integer", "float"] };
const SIZE: Kind = Kind { name: "a size", toml: &["integer", "string"] };
const LIST: Kind = Kind { name: "a list", toml: &[] };
const TABLE: Kind = Kind { name: "a table", toml: &[] };
const TABLES: Kind = Kind { name: "a list of tables", toml: &[] };

// --- impl Source ---

impl<'a> Source<'a> {
    pub(crate) fn new(file: &'a str, text: &'a str) -> Self {
        Source { file, text, problems: RefCell::default() }
    }

    pub(crate) fn complain(&self, span: &Span, path: impl Into<String>, complaint: Complaint) {
        let (line, column) = position(self.text, span.start);
        let Complaint { what, allowed, meant } = complaint;
        self.problems.borrow_mut().push(Problem { line, column, path: path.into(), what, allowed, meant });
    }

    /// Returns the line a place lies in.
    pub(crate) fn line(&self, span: &Span) -> usize {
        position(self.text, span.start).0
    }

    /// Returns the report, unless all is well.
    pub(crate) fn report(self) -> Option<Report> {
        let mut problems = self.problems.into_inner();
        problems.sort_by_key(|problem| (problem.line, problem.column));
        (!problems.is_empty()).then(|| Report { file: self.file.to_owned(), problems })
    }
}

// --- impl Complaint ---

impl Complaint {
    pub(crate) fn new(what: impl Into<String>) -> Self {
        Complaint { what: what.into(), ..Complaint::default() }
    }

    pub(crate) fn allowed(mut self, allowed: impl Into<String>) -> Self {
        self.allowed = Some(allowed.into());
        self
    }

    /// Complains about a word that is none of the known ones.
    pub(crate) fn unknown<'k>(what: impl Into<String>, word: &str, known: impl IntoIterator<Item = &'k str>) -> Self {
        let mut words: Vec<&str> = Vec::new();
        for candidate in known {
            if !words.contains(&candidate) {
                words.push(candidate);
            }
        }
        let meant = nearest(word, words.iter().copied()).map(str::to_owned);
        let allowed = (!words.is_empty()).then(|| words.join(", "));
        Complaint { what: what.into(), allowed, meant }
    }
}

// --- impl Fields ---

impl<'a> Fields<'a> {
    pub(crate) fn new(source: &'a Source<'a>, path: String, table: &'a dyn TableLike, span: Span) -> Self {
        Fields { source, path, table, span, known: Vec::new() }
    }

    pub(crate) fn source(&self) -> &'a Source<'a> {
        self.source
    }

    /// Returns where the table stands.
    pub(crate) fn span(&self) -> &Span {
        &self.span
    }

    /// Returns where a key's value stands; where the table does, when the key is missing.
    pub(crate) fn place(&self, key: &str) -> Span {
        self.table.get(key).and_then(Item::span).unwrap_or(self.span.clone())
    }

    pub(crate) fn path(&self, key: &str) -> String {
        match (self.path.is_empty(), key.is_empty()) {
            (true, _) => key.to_owned(),
            (_, true) => self.path.clone(),
            _ => format!("{}.{key}", self.path),
        }
    }

    pub(crate) fn complain(&self, span: &Span, key: &str, complaint: Complaint) {
        self.source.complain(span, self.path(key), complaint);
    }

    /// Complains about every key that nobody asked for.
    pub(crate) fn finish(self) {
        for (key, item) in self.table.iter().filter(|(key, _)| !self.known.contains(key)) {
            let span =
                self.table.key(key).and_then(|key| key.span()).or_else(|| item.span()).unwrap_or(self.span.clone());
            self.complain(&span, key, Complaint::unknown("unknown key", key, self.known.iter().copied()));
        }
    }

    /// Complains that a key is missing.
    pub(crate) fn missing(&self, key: &str, what: &str) {
        self.complain(&self.span, key, Complaint::new(format!("missing: {what}")));
    }

    pub(crate) fn text(&mut self, key: &'static str) -> Option<At<&'a str>> {
        self.typed(key, TEXT, |item| item.as_str().filter(|text| !text.trim().is_empty()), "a string that is not empty")
    }

    pub(crate) fn flag(&mut self, key: &'static str) -> Option<bool> {
        self.typed(key, FLAG, Item::as_bool, "true or false").map(|at| at.value)
    }

    pub(crate) fn whole<T: TryFrom<i64>>(&mut self, key: &'static str, range: RangeInclusive<i64>) -> Option<T> {
        let allowed = format!("a whole number from {} to {}", range.start(), range.end());
        let read = |item: &Item| {
            item.as_integer().filter(|number| range.contains(number)).and_then(|number| T::try_from(number).ok())
        };
        self.typed(key, WHOLE, read, &allowed).map(|at| at.value)
    }

    pub(crate) fn number(&mut self, key: &'static str, range: RangeInclusive<f64>) -> Option<At<f64>> {
        let allowed = format!("a number from {} to {}", range.start(), range.end());
        let read = |item: &Item| {
            let number = item.as_float().or_else(|| item.as_integer().map(|whole| whole as f64));
            number.filter(|number| range.contains(number))
        };
        self.typed(key, NUMBER, read, &allowed)
    }

    /// Reads a size between 1 byte and `most`.
    pub(crate) fn size(&mut self, key: &'static str, most: u64) -> Option<At<u64>> {
        let read = |item: &Item| {
            let written = item.as_integer().and_then(|whole| u64::try_from(whole).ok());
            written.or_else(|| item.as_str().and_then(units::size)).filter(|bytes| (1..=most).contains(bytes))
        };
        self.typed(key, SIZE, read, &format!("{}; from 1 to {most} bytes", units::SIZE_FORMS))
    }

    /// Reads one of a few words.
    pub(crate) fn choice<T: Copy>(&mut self, key: &'static str, choices: &[(&'static str, T)]) -> Option<T> {
        let At { value, span } = self.text(key)?;
        let found = choices.iter().find(|(word, _)| *word == value);
        if found.is_none() {
            let words = choices.iter().map(|(word, _)| *word);
            self.complain(&span, key, Complaint::unknown(format!("`{value}` is not known here"), value, words));
        }
        found.map(|(_, choice)| *choice)
    }

    /// Reads a list; `read` returns nothing for an element that does not fit.
    pub(crate) fn list<T>(
        &mut self,
        key: &'static str,
        read: impl Fn(&'a Value) -> Option<T>,
        allowed: &str,
    ) -> Option<Vec<At<T>>> {
        let array = self.typed(key, LIST, Item::as_array, &format!("a list of {allowed}"))?;
        let mut list = Vec::new();
        for (index, element) in array.value.iter().enumerate() {
            let span = element.span().unwrap_or(array.span.clone());
            match read(element) {
                Some(value) => list.push(At { value, span }),
                None => self.source.complain(
                    &span,
                    format!("{}[{index}]", self.path(key)),
                    Complaint::new(format!("{} does not fit", shown(element))).allowed(allowed),
                ),
            }
        }
        Some(list)
    }

    /// Returns the keys of an inner table.
    pub(crate) fn table(&mut self, key: &'static str) -> Option<Fields<'a>> {
        let at = self.typed(key, TABLE, Item::as_table_like, &format!("a table: [{key}]"))?;
        Some(Fields::new(self.source, self.path(key), at.value, at.span))
    }

    /// Returns the keys of every table of a list of tables.
    pub(crate) fn tables(&mut self, key: &'static str) -> Vec<Fields<'a>> {
        let tables = self.typed(key, TABLES, tables_of, &format!("tables: [[{key}]]"));
        let found = tables.map(|at| at.value).unwrap_or_default();
        let place = |(index, (table, span)): (usize, (&'a dyn TableLike, Option<Span>))| {
            Fields::new(self.source, format!("{}[{index}]", self.path(key)), table, span.unwrap_or(self.span.clone()))
        };
        found.into_iter().enumerate().map(place).collect()
    }

    /// Returns the inner tables of a table whose keys are names.
    pub(crate) fn named_tables(&self) -> Vec<(At<&'a str>, Fields<'a>)> {
        let mut named = Vec::new();
        for (key, item) in self.table.iter() {
            let span =
                self.table.key(key).and_then(|key| key.span()).or_else(|| item.span()).unwrap_or(self.span.clone());
            match item.as_table_like() {
                Some(table) => named.push((
                    At { value: key, span: span.clone() },
                    Fields::new(self.source, self.path(key), table, item.span().unwrap_or(span)),
                )),
                None => self.complain(&span, key, Complaint::new(format!("is {}", kind(item))).allowed("a table")),
            }
        }
        named
    }

    fn typed<T>(
        &mut self,
        key: &'static str,
        wanted: Kind,
        read: impl FnOnce(&'a Item) -> Option<T>,
        allowed: &str,
    ) -> Option<At<T>> {
        self.known.push(key);
        let item = self.table.get(key)?;
        let key_span = self.table.key(key).and_then(|key| key.span());
        let span = item.span().or(key_span).unwrap_or(self.span.clone());
        match read(item) {
            Some(value) => Some(At { value, span }),
            None => {
                // A value of another kind is not shown: it may be a misplaced secret.
                let what = match item.as_value().filter(|value| wanted.toml.contains(&value.type_name())) {
                    Some(value) => format!("{} is not allowed", shown(value)),
                    None => format!("is {}, not {}", kind(item), wanted.name),
                };
                self.complain(&span, key, Complaint::new(what).allowed(allowed));
                None
            }
        }
    }
}

/// Returns the tables of `[[key]]`, or of a list of inline tables.
fn tables_of(item: &Item) -> Option<Vec<(&dyn TableLike, Option<Span>)>> {
    if let Some(tables) = item.as_array_of_tables() {
        return Some(tables.iter().map(|table| (table as &dyn TableLike, table.span())).collect());
    }
    let inline = |value: &'_ Value| value.is_inline_table();
    let list = item.as_array().filter(|list| list.iter().all(inline))?;
    Some(
        list.iter()
            .filter_map(|value| value.as_inline_table().map(|table| (table as &dyn TableLike, table.span())))
            .collect(),
    )
}

/// Returns a value as one would write it.
fn shown(value: &Value) -> String {
    match value {
        Value::String(text) => format!("`{:?}`", text.value()),
        Value::Integer(number) => format!("`{}`", number.value()),
        Value::Float(number) => format!("`{}`", number.value()),
        Value::Boolean(flag) => format!("`{}`", flag.value()),
        other => format!("this {}", other.type_name()),
    }
}

fn kind(item: &Item) -> String {
    let name = item.type_name();
    let article = if name.starts_with(['a', 'i']) { "an" } else { "a" };
    format!("{article} {name}")
}
