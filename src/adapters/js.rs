//! JavaScript by name: one way to read members and to call methods, which the bindings share. The
//! typed bindings of `worker` come with a reader and a writer for each of their options.

use serde_json::Value;
use worker::js_sys::{
    Array, Function, JSON, JsString, Object, Promise, Reflect, futures::JsFuture,
};
use worker::wasm_bindgen::{JsCast, JsValue};

/// A member of the Worker's environment, looked up where it is used: most events need few of them.
pub(super) struct Binding {
    env: JsValue,
    name: &'static str,
}

impl Binding {
    pub(super) fn new(env: &JsValue, name: &'static str) -> Self {
        let env = env.clone();
        Self { env, name }
    }

    /// What is bound; `undefined` where nothing is.
    pub(super) fn value(&self) -> JsValue {
        get(&self.env, self.name)
    }
}

/// A member; `undefined` where there is none.
pub(super) fn get(target: &JsValue, name: &str) -> JsValue {
    Reflect::get(target, &JsValue::from_str(name)).unwrap_or(JsValue::UNDEFINED)
}

/// A member that is there.
pub(super) fn found(target: &JsValue, name: &str) -> Option<JsValue> {
    some(get(target, name))
}

/// A value that is neither `null` nor `undefined`.
pub(super) fn some(value: JsValue) -> Option<JsValue> {
    (!value.is_undefined() && !value.is_null()).then_some(value)
}

/// A member that is text.
pub(super) fn text(target: &JsValue, name: &str) -> Option<String> {
    get(target, name).as_string()
}

/// A value by way of JSON, so that all of it crosses to JavaScript at once.
pub(super) fn parsed(value: &Value) -> JsValue {
    JSON::parse(&value.to_string()).unwrap_or(JsValue::UNDEFINED)
}

/// Header fields as a list of pairs, which is a form that `Headers` takes.
pub(super) fn fields(fields: &[(String, String)]) -> JsValue {
    let pair = |(name, value): &(String, String)| {
        Value::Array(vec![name.as_str().into(), value.as_str().into()])
    };
    parsed(&Value::Array(fields.iter().map(pair).collect()))
}

/// A value from JavaScript by way of JSON; `null` where it has none.
pub(super) fn read(value: &JsValue) -> Value {
    serde_json::from_str(&written(value)).unwrap_or(Value::Null)
}

/// An object with these members.
pub(super) fn object(members: &[(&str, JsValue)]) -> JsValue {
    let object = Object::new();
    for (name, value) in members {
        // Setting fails on frozen objects and the like only.
        let _ = Reflect::set(&object, &JsValue::from_str(name), value);
    }
    object.into()
}

/// Calls a method.
pub(super) fn call(target: &JsValue, method: &str, args: &[JsValue]) -> Result<JsValue, JsValue> {
    let list = Array::new();
    for argument in args {
        list.push(argument);
    }
    apply(target, method, &list)
}

/// Calls a method with a list of arguments.
pub(super) fn apply(target: &JsValue, method: &str, args: &Array) -> Result<JsValue, JsValue> {
    let method: Function = get(target, method)
        .dyn_into()
        .map_err(|_| JsValue::from(format!("there is no method `{method}`")))?;
    Reflect::apply(&method, target, args)
}

/// Calls a method and waits for its answer.
pub(super) async fn ask(
    target: &JsValue,
    method: &str,
    args: &[JsValue],
) -> Result<JsValue, JsValue> {
    let answer = call(target, method, args)?;
    JsFuture::from(Promise::resolve(&answer)).await
}

/// What an error says; of one that wraps another, what that one says. Cut to 200 characters.
pub(super) fn message(error: &JsValue) -> String {
    let said = text(&get(error, "cause"), "message").or_else(|| text(error, "message"));
    let said = said.unwrap_or_else(|| written(error));
    said.chars().take(200).collect()
}

/// A value as JSON.
pub(super) fn written(value: &JsValue) -> String {
    JSON::stringify(value)
        .ok()
        .and_then(|text: JsString| text.as_string())
        .unwrap_or_default()
}
