//! Generates YAML files: each byte of the input is one choice. A generated file is kept in pieces, so that a test
//! records which bytes are values to set, and where a YAML reader must find these values.

/// A part of a file.
#[derive(Debug)]
pub enum Piece {
    /// A text that an edit must not change.
    Fixed(String),
    /// A value with one of our markers after it, as written in the file.
    Slot(String),
}

/// The kind of value that is set in a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The source's revision.
    Version,
    /// An image reference.
    Image,
}

/// Where a reader finds a value: the number of the document, and a JSON pointer in it.
#[derive(Clone, Debug)]
pub struct Path {
    pub document: usize,
    pub pointer: String,
}

/// A value to set, and all places where a reader finds it (aliases of its anchor too).
#[derive(Debug)]
pub struct Slot {
    pub kind: Kind,
    /// The value as written in the file.
    pub old: String,
    pub paths: Vec<Path>,
}

/// A generated file.
#[derive(Debug, Default)]
pub struct Drawn {
    pub pieces: Vec<Piece>,
    pub slots: Vec<Slot>,
}

impl Drawn {
    pub fn text(&self) -> String {
        let text = |piece: &Piece| match piece {
            Piece::Fixed(text) | Piece::Slot(text) => text.clone(),
        };
        self.pieces.iter().map(text).collect()
    }
}

/// Beginnings, middles and ends of lines of YAML that rarely fit together.
#[rustfmt::skip]
pub const SOUP: [&[&str]; 3] = [
    &[
        "", "", "k: ", "k: ", "k: ", "k:", "  k: ", "  k: ", "  ", "- ", "- ", "-", "  - ", "- - ", "? ", ": ", "  ? ",
        "k: [", "k: {", "[", "{", "]", "}", ", ", "k: &x ", "&x ", "- !!str ", "k: !t ", "--- ", "...", "\u{feff}",
        "# {\"$promotion\": \"ns:app:prod\", \"value\": \"source\"}\n", "  # {\"$promotion\": \"ns:app:prod\", \"value\": \"source\"}\n  ",
        "%YAML 1.1\n", "k: |", "k: >-", "\"k\": ", "{{ ", "# ", "k: &x !t ", "[k: ", "{a: 1, k: ", "<<: ",
    ],
    &[
        "", "v", "v", "v", "1.10", "1.10", "'v'", "'v'", "\"v\"", "\"v\"", "~", "\"\"", "*x", "|", ">-", "a: b", "[a, b]",
        "{a: b}", "{a: b", "a, b", "[a,", "\"", "'", "é", "v\u{85}", "v\tw", "ghcr.io/x/app:1", "}}", "v]", "v}", "v,", "v:",
    ],
    &[
        "\n", "\n", "\r\n", "\r", " # v\n", ",\n", " # {\"$promotion\": \"ns:app:prod\", \"value\": \"source\"}\n",
        " # {\"$promotion\": \"ns:app:prod\", \"value\": \"source\"}\n",
        " # {\"$promotion\": \"ns:app:prod\", \"value\": \"source\"}\n",
        " # {\"$promotion\": \"ns:app:prod\", \"value\": \"source\"}\r\n",
        " # {\"$promotion\": \"ns:app:prod\", \"value\": \"source\"}\r",
        ", # {\"$promotion\": \"ns:app:prod\", \"value\": \"source\"}\n",
        " # {\"$promotion\":\"ns:app:prod\",\"value\":\"image:ghcr.io/x/app\"}\n",
        "#{\"$promotion\":\"ns:app:prod\",\"value\":\"source\"}\n",
    ],
];

#[rustfmt::skip]
const OLD: &[&str] = &[
    "1.0.0", "1.10", "'1.0'", "\"1.0\"", "~", "null", "true", "''", "\"\"", "'it''s'", "\"\\u00e9\\\"\\\\ \"", "a b",
    "é", "'x # y'", "a#b", "a:b", "!!str 1.0", "!!str '1'", "-1", "12:30", "2024-01-01", "v1",
];

#[rustfmt::skip]
const OTHER: &[&str] = &[
    "1", "1.50", "'x'", "\"y # {\\\"$promotion\\\": \\\"ns:app:prod\\\"}\"", "true", "~", "é 日本 😀", "a  b", "x#y", "[]",
    "{}", "[1, 'a', {b: c}]", "{a: [1], \"b\": ~}", "0x1F", "''", "!!str 7", "&free z",
];

const FOREIGN: &[&str] = &[
    "# {\"$promotion\": \"ns:app:staging\"}",
    "# {\"$promotion\": \"ns:app:prod-eu\", \"value\": \"source\"}",
    "# {\"$imagepolicy\": \"ns:app:prod\"}",
    "#\ttabs\tand é",
    "# {$promotion: other}",
];

struct Pen<'b> {
    choices: &'b [u8],
    next: usize,
    drawn: Drawn,
    newline: &'static str,
    document: usize,
    /// The last number of a key or anchor. Each number is used once.
    names: usize,
    /// The anchors of this document by number, each with the index of its slot.
    anchors: Vec<(usize, usize)>,
    depth: usize,
}

/// Generates the file for these choices.
pub fn file(choices: &[u8]) -> Drawn {
    let mut pen = Pen {
        choices,
        next: 0,
        drawn: Drawn::default(),
        newline: "\n",
        document: 0,
        names: 0,
        anchors: Vec::new(),
        depth: 0,
    };
    pen.newline = if pen.pick(3) == 0 { "\r\n" } else { "\n" };
    if pen.pick(5) == 0 {
        pen.write("\u{feff}");
    }
    pen.between(0);
    if pen.pick(3) == 0 {
        pen.write("---");
        pen.end_of_line();
    }
    for document in 0..=pen.pick(3) {
        pen.document = document;
        pen.anchors.clear();
        if document > 0 {
            let end = ["...\n---", "---", "---"][pen.pick(3)];
            pen.write(end);
            pen.end_of_line();
        }
        let indent = pen.pick(3);
        pen.block(indent, "");
    }
    if pen.pick(3) == 0 {
        pen.write("# the end, without a line break");
    }
    pen.drawn
}

impl Pen<'_> {
    /// Returns a choice below `n`, and 0 when all bytes are used.
    fn pick(&mut self, n: usize) -> usize {
        let choice = self.choices.get(self.next).copied().unwrap_or_default();
        self.next += 1;
        usize::from(choice) % n
    }

    fn done(&self) -> bool {
        self.next >= self.choices.len()
    }

    fn write(&mut self, text: &str) {
        let text = text.replace('\n', self.newline);
        match self.drawn.pieces.last_mut() {
            Some(Piece::Fixed(last)) => last.push_str(&text),
            _ => self.drawn.pieces.push(Piece::Fixed(text)),
        }
    }

    fn name(&mut self) -> usize {
        self.names += 1;
        self.names
    }

    fn end_of_line(&mut self) {
        match self.pick(6) {
            0 => {
                let foreign = FOREIGN[self.pick(FOREIGN.len())];
                self.write(&format!("  {foreign}\n"));
            }
            1 => self.write("  \n"),
            _ => self.write("\n"),
        }
    }

    /// Writes what may be between two lines: nothing, an empty line or a comment.
    fn between(&mut self, indent: usize) {
        match self.pick(10) {
            0 => self.write("\n\n"),
            1 => {
                let foreign = FOREIGN[self.pick(FOREIGN.len())];
                self.write(&format!("{}{foreign}\n", " ".repeat(indent)));
            }
            2 => self.write("#  v: 1 # {\"$promotion\": \"ns:app:prod\"}\n"),
            _ => {}
        }
    }

    /// Writes a block mapping or sequence, from the start of a line.
    fn block(&mut self, indent: usize, pointer: &str) {
        let sequence = self.pick(3) == 0;
        let entries = 1 + self.pick(4);
        self.depth += 1;
        for entry in 0..entries {
            self.between(indent);
            self.write(&" ".repeat(indent));
            let above = (self.pick(5) == 0).then(|| self.marker_above(indent));
            let pointer = match sequence {
                true => {
                    let space = [" ", "   "][self.pick(2)];
                    self.write(&format!("-{space}"));
                    format!("{pointer}/{entry}")
                }
                false => self.key(pointer, ": "),
            };
            match above {
                Some(image) => self.value_below(&pointer, image),
                None => self.node(indent, &pointer),
            }
        }
        self.depth -= 1;
    }

    /// Writes a marker on a line of its own, and the indentation of the next line. Returns whether it is for
    /// an image.
    fn marker_above(&mut self, indent: usize) -> bool {
        let image = self.pick(6) == 0;
        let asks = if image { "image:ghcr.io/x/app" } else { "source" };
        let pad = " ".repeat(indent);
        self.write(&format!("# {{\"$promotion\": \"ns:app:prod\", \"value\": \"{asks}\"}}\n{pad}"));
        image
    }

    /// Writes a value whose marker is on the line above.
    fn value_below(&mut self, pointer: &str, image: bool) {
        let number = self.name();
        self.scalar(pointer, number, image);
        self.write(&format!("  # {number}\n"));
    }

    fn key(&mut self, pointer: &str, colon: &str) -> String {
        let name = format!("k{}", self.name());
        let quote = ["", "", "\"", "'"][self.pick(4)];
        self.write(&format!("{quote}{name}{quote}{colon}"));
        format!("{pointer}/{name}")
    }

    /// Writes the node after `key:` or `-`, to the end of its line or lines.
    fn node(&mut self, indent: usize, pointer: &str) {
        let deep = self.depth > 5 || self.done();
        match self.pick(if deep { 7 } else { 12 }) {
            0..=3 => self.slot(pointer, "\n"),
            4 => {
                let other = OTHER[self.pick(OTHER.len())];
                self.write(other);
                self.end_of_line();
            }
            5 => match self.anchors.get(self.next % 3).copied() {
                Some((anchor, slot)) => {
                    self.write(&format!("*a{anchor}"));
                    self.end_of_line();
                    self.drawn.slots[slot]
                        .paths
                        .push(Path { document: self.document, pointer: pointer.into() });
                }
                None => self.write("none\n"),
            },
            6 => self.lines(indent),
            7 | 8 => self.flow(indent, pointer),
            _ => {
                let more = [1, 2, 4][self.pick(3)];
                self.end_of_line();
                self.block(indent + more, pointer);
            }
        }
    }

    /// Writes a scalar over several lines that contains text which looks like YAML.
    fn lines(&mut self, indent: usize) {
        let pad = " ".repeat(indent + 2);
        let text = match self.pick(6) {
            0 => format!("|\n{pad}some: text\n\n{pad}  - [ of # many lines\n"),
            1 => format!(">-\n{pad}some: text\n{pad}# {{}}\n"),
            2 => format!("|2 # v\n{pad}  some\n{pad}text\n\n"),
            3 => format!("\"some: # text\n\n{pad}of: lines\"\n"),
            4 => format!("'some # text\n{pad}{{ ''of lines'\n"),
            _ => format!("some text\n{pad}of#many\n\n{pad}lines\n"),
        };
        self.write(&text);
    }

    /// Writes a flow collection over several lines, with slots in it.
    fn flow(&mut self, indent: usize, pointer: &str) {
        let sequence = self.pick(2) == 0;
        let pad = " ".repeat(indent + 1 + self.pick(3));
        self.write(if sequence { "[ " } else { "{ " });
        for entry in 0..1 + self.pick(3) {
            let pointer = match (sequence, self.pick(4)) {
                (true, _) => format!("{pointer}/{entry}"),
                (false, 0) => {
                    let name = format!("k{}", self.name());
                    self.write(&format!("\"{name}\":"));
                    format!("{pointer}/{name}")
                }
                (false, _) => self.key(pointer, ": "),
            };
            match self.pick(4) {
                0 => self.write(&format!("'x', \n{pad}")),
                1 => {
                    self.slot(&pointer, &format!("\n{pad}"));
                    self.write(", ");
                }
                2 if self.depth < 6 => {
                    self.depth += 1;
                    self.flow_within(&pointer, &pad);
                    self.depth -= 1;
                }
                _ => self.slot_and_comma(&pointer, &format!("\n{pad}")),
            }
        }
        self.write(if sequence { "]" } else { "}" });
        self.end_of_line();
    }

    fn flow_within(&mut self, pointer: &str, pad: &str) {
        self.write("[");
        self.slot(&format!("{pointer}/0"), &format!("\n{pad}"));
        self.write("], ");
    }

    fn slot_and_comma(&mut self, pointer: &str, end: &str) {
        self.value(pointer, ",", end);
    }

    fn slot(&mut self, pointer: &str, end: &str) {
        self.value(pointer, "", end);
    }

    /// Writes a value to set and its marker, with `comma` between them and `end` after them.
    fn value(&mut self, pointer: &str, comma: &str, end: &str) {
        let number = self.name();
        let image = self.pick(6) == 0;
        self.scalar(pointer, number, image);
        let gap = [" ", " ", "   ", "\t", " \t "][self.pick(5)];
        let asks = if image { "image:ghcr.io/x/app" } else { "source" };
        let (foreign, hash) =
            (["", r#""$imagepolicy": "x:y:tag", "#][self.pick(2)], ["# ", "#", "#\t "][self.pick(3)]);
        self.write(&format!(
            r#"{comma}{gap}{hash}{{{foreign}"$promotion": "ns:app:prod", "n": "{number}", "value": "{asks}"}}{end}"#
        ));
    }

    /// Writes a value to set, as a slot.
    fn scalar(&mut self, pointer: &str, number: usize, image: bool) {
        if self.pick(6) == 0 {
            self.write(&format!("&a{number} "));
            self.anchors.push((number, self.drawn.slots.len()));
        }
        let old = match image {
            true => {
                ["ghcr.io/x/app:1", "'ghcr.io/x/app:1-0@sha256:00ff'", "\"ghcr.io/x/app:2\""][self.pick(3)]
            }
            false => OLD[self.pick(OLD.len())],
        };
        let (tag, old) = match old.strip_prefix("!!str ") {
            Some(old) => ("!!str ", old),
            None => ("", old),
        };
        self.write(tag);
        self.drawn.pieces.push(Piece::Slot(old.into()));
        let kind = if image { Kind::Image } else { Kind::Version };
        let path = Path { document: self.document, pointer: pointer.into() };
        self.drawn.slots.push(Slot { kind, old: old.into(), paths: vec![path] });
    }
}
