//! Chat templates: minijinja set up to behave as transformers' jinja2 environment does.
//!
//! Known differences that need a change inside minijinja: a loop over none is empty instead of an error, and
//! `loop.last` is not known while looping over the characters of a string.

use std::error::Error as _;
use std::fmt;
use std::str::FromStr;

use minijinja::syntax::SyntaxConfig;
use minijinja::value::{from_args, Kwargs, Rest, Tuple, ValueKind, ValueOrKwargs};
use minijinja::{Environment, Error, ErrorKind, State, Value};

use crate::{generation, json, python};

const NAME: &str = "chat template";
/// What a message's reasoning is called; the first is the standard name (transformers 5.24).
const REASONING_FIELDS: [&str; 3] = ["reasoning_content", "thinking", "reasoning"];

/// The entries of one message, in order.
type Fields = Vec<(Value, Value)>;

/// A template that trims its messages takes the space at the end away, and so shows that it trims.
const CONTINUE_MARK: &str = "CONTINUE_FINAL_MESSAGE_TAG ";

/// Why a template could not be compiled or rendered.
pub enum Failure {
    /// The template itself called raise_exception with this message.
    Raised(String),
    /// A fault in the template, or in how it meets these messages.
    Template(String),
    /// The input is not what the interface asks for.
    Input(String),
}

pub struct Template {
    environment: Environment<'static>,
    has_generation: bool,
    reads_content: bool,
}

/// What a template is rendered with; all but `now` are JSON texts.
pub struct Input<'a> {
    pub messages: &'a str,
    pub tools: Option<&'a str>,
    /// An object; its entries become variables and win over `special_tokens`.
    pub extra: Option<&'a str>,
    /// An object such as {"bos_token": "<s>"}.
    pub special_tokens: Option<&'a str>,
    pub add_generation_prompt: bool,
    /// The text ends with the last message's content, so that a model goes on writing it.
    pub continue_final_message: bool,
    /// What strftime_now shows, as 2026-01-31T12:00:00; none: the present local time.
    pub now: Option<&'a str>,
}

#[derive(Debug)]
pub struct Rendered {
    pub text: String,
    /// Code points (start, end) that the template marked as written by the assistant.
    pub spans: Vec<(u64, u64)>,
}

impl Template {
    pub fn new(source: &str) -> Result<Self, Failure> {
        // jinja2 reads every kind of line end as \n.
        let source = source.replace("\r\n", "\n").replace('\r', "\n");
        let (rewritten, has_generation) = generation::rewrite(&source);
        if has_generation && generation::has_mark(&source) {
            return Err(Failure::Template(reserved("the template")));
        }
        let mut environment = environment().map_err(describe)?;
        environment.add_template_owned(NAME, rewritten).map_err(describe)?;
        Ok(Template { environment, has_generation, reads_content: source.contains("content") })
    }

    pub fn has_generation(&self) -> bool {
        self.has_generation
    }

    pub fn render(&self, input: &Input) -> Result<Rendered, Failure> {
        let context = self.context(input)?;
        let template = self.environment.get_template(NAME).map_err(describe)?;
        let mut text = template.render(Value::from_pairs(context)).map_err(describe)?;
        if input.continue_final_message {
            text = cut_after_final_message(text)?;
        }
        if !self.has_generation {
            return Ok(Rendered { text, spans: Vec::new() });
        }
        let (text, spans) = generation::take_spans(&text).ok_or_else(|| {
            Failure::Template("the text of a generation block was cut apart before it was printed".into())
        })?;
        Ok(Rendered { text, spans })
    }

    fn context(&self, input: &Input) -> Result<Vec<(String, Value)>, Failure> {
        let parse = |what: &str, text: &str| {
            let value = json::parse(text).map_err(|e| Failure::Input(format!("{what}: {e}")))?;
            if self.has_generation && holds_mark(&value) {
                return Err(Failure::Input(reserved(what)));
            }
            Ok(value)
        };
        let mut context = Vec::new();
        for (what, text) in [("special tokens", input.special_tokens), ("template arguments", input.extra)] {
            let Some(text) = text else { continue };
            let object = parse(what, text)?;
            if object.kind() != ValueKind::Map {
                return Err(Failure::Input(format!("{what}: expected a JSON object, got {}", object.kind())));
            }
            for key in object.try_iter().map_err(describe)? {
                context.push((key.to_string(), object.get_item(&key).map_err(describe)?));
            }
        }
        for name in ["messages", "tools", "documents", "add_generation_prompt"] {
            if name != "documents" && context.iter().any(|(key, _)| key == name) {
                return Err(Failure::Input(format!("template arguments: {name} cannot be given this way")));
            }
        }
        if !context.iter().any(|(key, _)| key == "documents") {
            context.push(("documents".into(), Value::from(())));
        }
        let tools = input.tools.map_or(Ok(Value::from(())), |text| parse("tools", text))?;
        let mut messages = prepare_messages(&parse("messages", input.messages)?)?;
        if input.continue_final_message {
            if input.add_generation_prompt {
                return Err(Failure::Input("a final message cannot be continued after a generation prompt".into()));
            }
            if !self.reads_content {
                return Err(Failure::Template("it reads no message content, so none can be continued".into()));
            }
            mark_final_message(&mut messages)?;
        }
        context.push(("messages".into(), Value::from_iter(messages.into_iter().map(Value::from_pairs))));
        context.push(("tools".into(), tools));
        context.push(("add_generation_prompt".into(), Value::from(input.add_generation_prompt)));
        context.push(("strftime_now".into(), strftime_now(input.now)?));
        Ok(context)
    }
}

fn reserved(where_: &str) -> String {
    format!("{where_}: contains U+FDD0 or U+FDD1, noncharacters that lockstep uses to mark generation blocks")
}

fn holds_mark(value: &Value) -> bool {
    match value.kind() {
        ValueKind::String => value.as_str().is_some_and(generation::has_mark),
        ValueKind::Seq => value.try_iter().is_ok_and(|mut items| items.any(|item| holds_mark(&item))),
        ValueKind::Map => value.try_iter().is_ok_and(|mut keys| {
            keys.any(|key| holds_mark(&key) || value.get_item(&key).is_ok_and(|item| holds_mark(&item)))
        }),
        _ => false,
    }
}

/// What transformers 5.24 does to messages before it renders them: entries that are none are dropped, and the
/// reasoning is given under the names that templates read.
fn prepare_messages(messages: &Value) -> Result<Vec<Fields>, Failure> {
    if messages.kind() != ValueKind::Seq {
        return Err(Failure::Input(format!("messages: expected a JSON array, got {}", messages.kind())));
    }
    let mut prepared = Vec::new();
    for (i, message) in messages.try_iter().map_err(describe)?.enumerate() {
        if message.kind() != ValueKind::Map {
            return Err(Failure::Input(format!("messages[{i}]: expected a JSON object, got {}", message.kind())));
        }
        let mut fields = Fields::new();
        for key in message.try_iter().map_err(describe)? {
            let value = message.get_item(&key).map_err(describe)?;
            if !value.is_none() {
                fields.push((key, value));
            }
        }
        let named =
            |name: &str| fields.iter().find(|(key, _)| key.as_str() == Some(name)).map(|(_, value)| value.clone());
        if let Some(reasoning) = REASONING_FIELDS.into_iter().find_map(named) {
            // Of two entries with one name the first gives the place and the last the value.
            fields.insert(0, ("thinking".into(), reasoning.clone()));
            fields.push(("reasoning_content".into(), reasoning));
        }
        prepared.push(fields);
    }
    Ok(prepared)
}

/// Puts a mark behind the text of the last message (of its last text block), as transformers does.
fn mark_final_message(messages: &mut [Fields]) -> Result<(), Failure> {
    let nothing = || Failure::Input("messages: the final message has no text content to continue".into());
    let fields = messages.last_mut().ok_or_else(nothing)?;
    let (_, content) = fields.iter_mut().find(|(key, _)| key.as_str() == Some("content")).ok_or_else(nothing)?;
    if let Some(text) = content.as_str() {
        *content = Value::from(format!("{text}{CONTINUE_MARK}"));
        return Ok(());
    }
    let mut blocks: Vec<Value> = content.try_iter().map_err(|_| nothing())?.collect();
    for block in blocks.iter_mut().rev() {
        let Ok(text) = block.get_attr("text") else { continue };
        let Some(text) = text.as_str().map(|text| format!("{text}{CONTINUE_MARK}")) else { continue };
        let keys = block.try_iter().map_err(describe)?;
        let mut pairs: Vec<(Value, Value)> =
            keys.map(|key| (key.clone(), block.get_item(&key).unwrap_or_default())).collect();
        pairs.push(("text".into(), text.into()));
        *block = Value::from_pairs(pairs);
        *content = Value::from(blocks);
        return Ok(());
    }
    Err(nothing())
}

fn cut_after_final_message(mut text: String) -> Result<String, Failure> {
    let position = text.rfind(CONTINUE_MARK.trim_end()).ok_or_else(|| {
        Failure::Template("the final message does not appear in the rendered text, so it cannot be continued".into())
    })?;
    let kept_spaces = text[position..].starts_with(CONTINUE_MARK);
    text.truncate(position);
    Ok(if kept_spaces { text } else { text.trim_end().into() })
}

fn strftime_now(now: Option<&str>) -> Result<Value, Failure> {
    let fixed = now
        .map(|text| jiff::civil::DateTime::from_str(text).map_err(|e| Failure::Input(format!("date {text:?}: {e}"))))
        .transpose()?;
    Ok(Value::from_function(move |format: &str| {
        let now = fixed.unwrap_or_else(|| jiff::Zoned::now().datetime());
        jiff::fmt::strtime::format(format, now)
            .map_err(|e| Error::new(ErrorKind::InvalidOperation, format!("strftime_now({format:?}): {e}")))
    }))
}

fn environment() -> Result<Environment<'static>, Error> {
    let mut env = Environment::new();
    env.set_syntax(SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build()?);
    env.set_auto_escape_callback(|_| minijinja::AutoEscape::None);
    env.set_formatter(|out, _, value| match value.as_str() {
        Some(text) => out.write_str(text).map_err(Error::from),
        None => out.write_str(&python::str(value)).map_err(Error::from),
    });
    env.set_unknown_method_callback(python_methods);
    env.add_function("raise_exception", |message: &Value| -> Result<Value, Error> {
        let message = python::str(message);
        Err(Error::new(ErrorKind::InvalidOperation, message.clone()).with_source(Raised(message)))
    });
    // In Python a string, a dict and jinja2's undefined have a length and an index operator; none is no iterable.
    env.add_test("sequence", |value: &Value| {
        value.is_undefined() || matches!(value.kind(), ValueKind::Seq | ValueKind::String | ValueKind::Map)
    });
    env.add_test("iterable", |value: &Value| !value.is_none() && (value.is_undefined() || value.try_iter().is_ok()));
    env.add_filter("string", |value: &Value| python::str(value));
    env.add_filter("tojson", to_json);
    env.add_filter("indent", indent);
    env.add_filter("int", int);
    env.add_filter("float", float);
    env.add_filter(generation::FILTER, |text: &str| generation::wrap(text));
    Ok(env)
}

/// A filter's arguments: those by position and those by name.
fn split_arguments(args: Rest<ValueOrKwargs>) -> Result<(Vec<Value>, Kwargs), Error> {
    let mut args = args.into_values();
    if !args.last().is_some_and(Value::is_kwargs) {
        return Ok((args, Kwargs::from_iter([] as [(&str, Value); 0])));
    }
    let kwargs = Kwargs::try_from(args.pop().unwrap_or_default())?;
    Ok((args, kwargs))
}

/// The positional or named argument `name` of a filter.
fn argument(args: &[Value], kwargs: &Kwargs, position: usize, name: &str) -> Result<Option<Value>, Error> {
    let value = match args.get(position) {
        Some(value) => Some(value.clone()),
        None => kwargs.get::<Option<Value>>(name)?,
    };
    Ok(value.filter(|value| !value.is_none()))
}

/// transformers' tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False).
fn to_json(value: &Value, args: Rest<ValueOrKwargs>) -> Result<String, Error> {
    let (args, kwargs) = split_arguments(args)?;
    let indent = argument(&args, &kwargs, 1, "indent")?;
    let separators = match argument(&args, &kwargs, 2, "separators")? {
        Some(pair) => Some((separator(&pair, 0)?, separator(&pair, 1)?)),
        None => None,
    };
    let flag = |position, name| Ok::<_, Error>(argument(&args, &kwargs, position, name)?.is_some_and(|v| v.is_true()));
    let default_item = if indent.is_some() { "," } else { ", " };
    let (item_separator, key_separator) = separators.unwrap_or((default_item.into(), ": ".into()));
    let style = python::JsonStyle {
        ensure_ascii: flag(0, "ensure_ascii")?,
        indent: indent.map(|width| indention(&width)).transpose()?,
        item_separator,
        key_separator,
        sort_keys: flag(3, "sort_keys")?,
    };
    kwargs.assert_all_used()?;
    python::to_json(value, &style)
}

fn separator(pair: &Value, index: usize) -> Result<String, Error> {
    let part = pair.get_item_by_index(index)?;
    part.as_str()
        .map(String::from)
        .ok_or_else(|| Error::new(ErrorKind::InvalidOperation, "tojson: separators must be two strings"))
}

/// A width in spaces, or the text to indent by.
fn indention(width: &Value) -> Result<String, Error> {
    if let Some(text) = width.as_str() {
        return Ok(text.into());
    }
    Ok(" ".repeat(i64::try_from(width.clone())?.clamp(0, 1 << 10) as usize))
}

/// jinja2's indent(s, width=4, first=False, blank=False).
fn indent(value: &Value, args: Rest<ValueOrKwargs>) -> Result<String, Error> {
    let (args, kwargs) = split_arguments(args)?;
    let width = argument(&args, &kwargs, 0, "width")?.unwrap_or_else(|| Value::from(4));
    let first = argument(&args, &kwargs, 1, "first")?.is_some_and(|v| v.is_true());
    let blank = argument(&args, &kwargs, 2, "blank")?.is_some_and(|v| v.is_true());
    kwargs.assert_all_used()?;
    Ok(python::indent(&python::str(value), &indention(&width)?, first, blank))
}

/// jinja2's int(value, default=0, base=10): what is no number becomes the default.
fn int(value: &Value, args: Rest<ValueOrKwargs>) -> Result<Value, Error> {
    let (args, kwargs) = split_arguments(args)?;
    let default = argument(&args, &kwargs, 0, "default")?.unwrap_or_else(|| Value::from(0));
    let base = argument(&args, &kwargs, 1, "base")?.map_or(Ok(10), u32::try_from)?;
    kwargs.assert_all_used()?;
    reject_undefined(value)?;
    if value.is_integer() {
        return Ok(value.clone());
    }
    let whole = value.as_str().and_then(|text| python::parse_int(text, base));
    let whole = whole.or_else(|| to_float(value).filter(|x| x.abs() < 2f64.powi(127)).map(|x| x as i128));
    Ok(whole.map_or(default, |whole| i64::try_from(whole).map_or(Value::from(whole), Value::from)))
}

/// jinja2's float(value, default=0.0).
fn float(value: &Value, args: Rest<ValueOrKwargs>) -> Result<Value, Error> {
    let (args, kwargs) = split_arguments(args)?;
    let default = argument(&args, &kwargs, 0, "default")?.unwrap_or_else(|| Value::from(0.0));
    kwargs.assert_all_used()?;
    reject_undefined(value)?;
    Ok(to_float(value).map_or(default, Value::from))
}

fn reject_undefined(value: &Value) -> Result<(), Error> {
    if value.is_undefined() {
        return Err(Error::from(ErrorKind::UndefinedError));
    }
    Ok(())
}

fn to_float(value: &Value) -> Option<f64> {
    match value.kind() {
        ValueKind::String => value.as_str().and_then(python::parse_float),
        ValueKind::Bool => Some(if value.is_true() { 1.0 } else { 0.0 }),
        ValueKind::Number => f64::try_from(value.clone()).ok(),
        _ => None,
    }
}

/// Methods of Python's str, dict and list: minijinja-contrib's, and those it lacks.
fn python_methods(state: &mut State, value: &Value, method: &str, args: &[Value]) -> Result<Value, Error> {
    let Some(text) = value.as_str() else {
        return minijinja_contrib::pycompat::unknown_method_callback(state, value, method, args);
    };
    match method {
        "removeprefix" => {
            let (prefix,): (&str,) = from_args(args)?;
            Ok(Value::from(text.strip_prefix(prefix).unwrap_or(text)))
        }
        "removesuffix" => {
            let (suffix,): (&str,) = from_args(args)?;
            Ok(Value::from(text.strip_suffix(suffix).unwrap_or(text)))
        }
        "partition" => {
            let (separator,): (&str,) = from_args(args)?;
            Ok(match text.split_once(separator) {
                Some((before, after)) => three(before, separator, after),
                None => three(text, "", ""),
            })
        }
        "rpartition" => {
            let (separator,): (&str,) = from_args(args)?;
            Ok(match text.rsplit_once(separator) {
                Some((before, after)) => three(before, separator, after),
                None => three("", "", text),
            })
        }
        "rsplit" => {
            let (separator, most): (Option<&str>, Option<i64>) = from_args(args)?;
            Ok(strings(python::split_from_right(text, separator, most.unwrap_or(-1))))
        }
        "splitlines" if args.is_empty() => Ok(strings(python::split_lines(text))),
        _ => minijinja_contrib::pycompat::unknown_method_callback(state, value, method, args),
    }
}

fn three(before: &str, separator: &str, after: &str) -> Value {
    Value::from(Tuple::from([before, separator, after].map(Value::from)))
}

fn strings<'a>(items: impl IntoIterator<Item = &'a str>) -> Value {
    items.into_iter().map(Value::from).collect()
}

/// Rides along with an error to tell a template's own refusal from a fault in it.
#[derive(Debug)]
struct Raised(String);

impl fmt::Display for Raised {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Raised {}

fn describe(error: Error) -> Failure {
    let mut source = error.source();
    while let Some(cause) = source {
        if let Some(raised) = cause.downcast_ref::<Raised>() {
            return Failure::Raised(raised.0.clone());
        }
        source = cause.source();
    }
    let mut text = match error.line() {
        Some(line) => format!("line {line}: {}", error.kind()),
        None => error.kind().to_string(),
    };
    if let Some(detail) = error.detail() {
        text += &format!(": {detail}");
    }
    Failure::Template(text)
}
