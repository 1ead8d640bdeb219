//! Reads a table of facts. A line without indentation begins an operation (`GET /path/{part}`), a type (`Name`, or
//! `Name: Parent` with the fields of another type too) or the part `every operation`.
//!
//! Indented lines of an operation: `? state: (open|all)` for parameters, `body Type`, and `200: Type` for an answer.
//! A status without a type has no documented body. Indented lines of a type are fields: `number!: integer, body: string?`.
//! `!` says that the field is always there, `?` that it may be null, `(a|b)` that it is one of these texts.

use super::description::{ApiDescription, Field, Kind, Operation, Slot};
use anyhow::{Context, Result, bail, ensure};

/// What the indented lines belong to.
enum Part {
    Operation(Operation),
    Type(String, Vec<Field>),
    Every,
}

impl ApiDescription {
    /// Reads a table of facts.
    ///
    /// # Errors
    /// A line is not in the form above, or a type is missing.
    pub fn parse(text: &str) -> Result<ApiDescription> {
        let mut description = ApiDescription::default();
        let mut part = Part::Every;
        for (line, number) in text.lines().zip(1..) {
            let words = line.trim();
            if words.is_empty() || words.starts_with('#') {
                continue;
            }
            let read = if line.starts_with(' ') {
                description.read_indented(&mut part, words)
            } else {
                description.add(std::mem::replace(&mut part, Part::Every));
                description.begin(words).map(|next| part = next)
            };
            read.with_context(|| format!("line {number}: {words}"))?;
        }
        description.add(part);
        description.check_names()?;
        Ok(description)
    }

    fn begin(&self, words: &str) -> Result<Part> {
        if words == "every operation" {
            return Ok(Part::Every);
        }
        if let Some((method, path)) = words.split_once(" /") {
            let path = path.split('/').map(String::from).collect();
            return Ok(Part::Operation(Operation { method: method.into(), path, ..Operation::default() }));
        }
        let Some((name, parent)) = words.split_once(": ") else {
            return Ok(Part::Type(words.into(), Vec::new()));
        };
        let fields = self.types.get(parent).with_context(|| format!("{parent} is not above"))?;
        Ok(Part::Type(name.into(), fields.clone()))
    }

    fn add(&mut self, part: Part) {
        match part {
            Part::Operation(operation) => self.operations.push(operation),
            Part::Type(name, fields) => drop(self.types.insert(name, fields)),
            Part::Every => {}
        }
    }

    fn read_indented(&mut self, part: &mut Part, words: &str) -> Result<()> {
        match part {
            Part::Type(_, fields) => fields.extend(read_fields(words)?),
            Part::Every => self.every.extend([read_answer(words)?]),
            Part::Operation(operation) => {
                if let Some(parameters) = words.strip_prefix("? ") {
                    operation.query.extend(read_fields(parameters)?);
                } else if let Some(kind) = words.strip_prefix("body ") {
                    operation.body = Some(read_slot(kind)?);
                } else {
                    operation.answers.extend([read_answer(words)?]);
                }
            }
        }
        Ok(())
    }

    /// Checks that all named types are there.
    fn check_names(&self) -> Result<()> {
        let of_types = self.types.values().flatten().map(|field| &field.slot);
        let of_calls =
            self.operations.iter().flat_map(|call| call.answers.values().flatten().chain(&call.body));
        let mut open: Vec<&Slot> = of_types.chain(of_calls).chain(self.every.values().flatten()).collect();
        while let Some(slot) = open.pop() {
            match &slot.kind {
                Kind::List(of) => open.push(of),
                Kind::Object(fields) => open.extend(fields.iter().map(|field| &field.slot)),
                Kind::Named(names) => {
                    let missing = names.iter().find(|name| !self.types.contains_key(*name));
                    ensure!(missing.is_none(), "the type {missing:?} is missing");
                }
                _ => {}
            }
        }
        Ok(())
    }
}

fn read_answer(words: &str) -> Result<(u16, Option<Slot>)> {
    let (status, kind) = words.split_once(':').map_or((words, None), |(status, kind)| (status, Some(kind)));
    Ok((status.parse()?, kind.map(read_slot).transpose()?))
}

fn read_slot(text: &str) -> Result<Slot> {
    let mut rest = text;
    let slot = take_slot(&mut rest)?;
    ensure!(rest.trim().is_empty(), "{rest:?} is left over");
    Ok(slot)
}

fn read_fields(text: &str) -> Result<Vec<Field>> {
    let mut rest = text;
    let fields = take_fields(&mut rest)?;
    ensure!(rest.trim().is_empty(), "{rest:?} is left over");
    Ok(fields)
}

/// Takes fields with commas in between.
fn take_fields(rest: &mut &str) -> Result<Vec<Field>> {
    let mut fields = vec![take_field(rest)?];
    while take(rest, ",") {
        fields.push(take_field(rest)?);
    }
    Ok(fields)
}

fn take_field(rest: &mut &str) -> Result<Field> {
    let name = take_until(rest, &['(', '!', ':']);
    let arguments = if take(rest, "(") { take_words(rest, ',')? } else { Vec::new() };
    let is_required = take(rest, "!");
    ensure!(!name.is_empty() && take(rest, ":"), "a field is `name: type`, not {rest:?}");
    Ok(Field { name, is_required, arguments, slot: take_slot(rest)? })
}

fn take_slot(rest: &mut &str) -> Result<Slot> {
    let kind = if take(rest, "(") {
        Kind::Words(take_words(rest, '|')?)
    } else if take(rest, "[") {
        let of = take_slot(rest)?;
        ensure!(take(rest, "]"), "a list ends with ]");
        Kind::List(Box::new(of))
    } else if take(rest, "{") {
        let fields = take_fields(rest)?;
        ensure!(take(rest, "}"), "an object ends with }}");
        Kind::Object(fields)
    } else {
        let name = take_until(rest, &['?', ']', '}', ',']);
        match name.as_str() {
            "string" => Kind::Text,
            "integer" => Kind::Integer,
            "number" => Kind::Number,
            "boolean" => Kind::Boolean,
            "any" => Kind::Any,
            name if name.starts_with(char::is_uppercase) => {
                Kind::Named(name.split('|').map(String::from).collect())
            }
            other => bail!("{other:?} is no type"),
        }
    };
    Ok(Slot { kind, may_be_null: take(rest, "?") })
}

/// Takes the rest of a list of words, up to its `)`.
fn take_words(rest: &mut &str, separator: char) -> Result<Vec<String>> {
    let words = take_until(rest, &[')']);
    ensure!(take(rest, ")"), "a list of words ends with )");
    Ok(words.split(separator).map(|word| word.trim().to_owned()).collect())
}

/// Takes a mark, if it is next.
fn take(rest: &mut &str, mark: &str) -> bool {
    let next = rest.trim_start().strip_prefix(mark);
    *rest = next.unwrap_or(rest);
    next.is_some()
}

/// Takes the text before one of these characters.
fn take_until(rest: &mut &str, ends: &[char]) -> String {
    let end = rest.find(ends).unwrap_or(rest.len());
    let (text, after) = rest.split_at(end);
    *rest = after;
    text.trim().to_owned()
}
