//! Structs as JSON: an object with a member per field, for what Oncepress writes for itself.
//!
//! Serde's derives compile a reader and a writer for each struct in each format and nesting, which
//! made a seventh of the Worker; these share theirs. A reader goes through all fields and says at
//! the end whether something was amiss, so that no field needs a way out of its own.

use serde_json::{Map, Value};

use crate::time::Timestamp;

/// A value with a form in JSON.
pub trait JsonForm {
    /// The form.
    fn to_json(&self) -> Value;

    /// Reads the form of a member, `None` where it is absent; where it is not as it should be,
    /// `sound` becomes false and the value is a blank.
    fn read_json(value: Option<&Value>, sound: &mut bool) -> Self
    where
        Self: Sized;
}

/// Writes a value as compact JSON.
pub fn write(value: &dyn JsonForm) -> String {
    value.to_json().to_string()
}

/// Reads what [`write()`] wrote; `None` for anything else.
pub fn read<T: JsonForm>(text: &str) -> Option<T> {
    let value: Value = serde_json::from_str(text).ok()?;
    let mut sound = true;
    let read = T::read_json(Some(&value), &mut sound);
    sound.then_some(read)
}

/// An object with these members.
pub fn object(members: &[(&str, &dyn JsonForm)]) -> Value {
    let mut object = Map::new();
    for (name, value) in members {
        object.insert((*name).to_owned(), value.to_json());
    }
    Value::Object(object)
}

/// Reads a member of an object.
pub fn member<T: JsonForm>(value: Option<&Value>, name: &str, sound: &mut bool) -> T {
    T::read_json(value.and_then(|value| value.get(name)), sound)
}

/// Gives a struct its form; fields under `without` are not written, and read as their defaults.
macro_rules! json_form {
    ($name:ident { $($field:ident),+ $(,)? } $(without { $($left:ident),+ })?) => {
        impl $crate::json_form::JsonForm for $name {
            fn to_json(&self) -> serde_json::Value {
                $crate::json_form::object(&[$((stringify!($field), &self.$field)),+])
            }

            fn read_json(value: Option<&serde_json::Value>, sound: &mut bool) -> Self {
                Self {
                    $($field: $crate::json_form::member(value, stringify!($field), sound),)+
                    $($($left: Default::default(),)+)?
                }
            }
        }
    };
}
pub(crate) use json_form;

/// What was read, or a blank and a fault.
fn or_blank<T: Default>(read: Option<T>, sound: &mut bool) -> T {
    *sound &= read.is_some();
    read.unwrap_or_default()
}

impl JsonForm for String {
    fn to_json(&self) -> Value {
        Value::String(self.clone())
    }

    fn read_json(value: Option<&Value>, sound: &mut bool) -> Self {
        or_blank(value.and_then(Value::as_str), sound).to_owned()
    }
}

impl JsonForm for bool {
    fn to_json(&self) -> Value {
        Value::Bool(*self)
    }

    fn read_json(value: Option<&Value>, sound: &mut bool) -> Self {
        or_blank(value.and_then(Value::as_bool), sound)
    }
}

impl JsonForm for i64 {
    fn to_json(&self) -> Value {
        Value::from(*self)
    }

    fn read_json(value: Option<&Value>, sound: &mut bool) -> Self {
        or_blank(value.and_then(Value::as_i64), sound)
    }
}

impl JsonForm for u64 {
    fn to_json(&self) -> Value {
        Value::from(*self)
    }

    fn read_json(value: Option<&Value>, sound: &mut bool) -> Self {
        or_blank(value.and_then(Value::as_u64), sound)
    }
}

impl JsonForm for u16 {
    fn to_json(&self) -> Value {
        Value::from(*self)
    }

    fn read_json(value: Option<&Value>, sound: &mut bool) -> Self {
        let read = value.and_then(Value::as_u64);
        or_blank(read.and_then(|value| Self::try_from(value).ok()), sound)
    }
}

impl JsonForm for Timestamp {
    fn to_json(&self) -> Value {
        Value::from(self.millis())
    }

    fn read_json(value: Option<&Value>, sound: &mut bool) -> Self {
        Self::from_millis(i64::read_json(value, sound))
    }
}

impl<T: JsonForm> JsonForm for Option<T> {
    fn to_json(&self) -> Value {
        self.as_ref().map_or(Value::Null, T::to_json)
    }

    fn read_json(value: Option<&Value>, sound: &mut bool) -> Self {
        match value {
            None | Some(Value::Null) => None,
            some => Some(T::read_json(some, sound)),
        }
    }
}

impl<T: JsonForm> JsonForm for Box<T> {
    fn to_json(&self) -> Value {
        T::to_json(self)
    }

    fn read_json(value: Option<&Value>, sound: &mut bool) -> Self {
        Self::new(T::read_json(value, sound))
    }
}

impl<T: JsonForm> JsonForm for Vec<T> {
    fn to_json(&self) -> Value {
        let mut list = Vec::with_capacity(self.len());
        for item in self {
            list.push(item.to_json());
        }
        Value::Array(list)
    }

    fn read_json(value: Option<&Value>, sound: &mut bool) -> Self {
        let list = or_blank(value.and_then(Value::as_array).map(Vec::as_slice), sound);
        let mut read = Self::with_capacity(list.len());
        for item in list {
            read.push(T::read_json(Some(item), sound));
        }
        read
    }
}

impl<A: JsonForm, B: JsonForm> JsonForm for (A, B) {
    fn to_json(&self) -> Value {
        Value::Array(vec![self.0.to_json(), self.1.to_json()])
    }

    fn read_json(value: Option<&Value>, sound: &mut bool) -> Self {
        let pair = value.and_then(Value::as_array);
        *sound &= pair.is_some_and(|pair| pair.len() == 2);
        let half = |index: usize| pair.and_then(|pair| pair.get(index));
        (A::read_json(half(0), sound), B::read_json(half(1), sound))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Clone, Debug, PartialEq, Eq)]
    struct Sample {
        name: String,
        sizes: Vec<(u16, i64)>,
        note: Option<String>,
        body: String,
    }

    json_form!(Sample { name, sizes, note } without { body });

    fn sample(note: Option<&str>) -> Sample {
        Sample {
            name: "a\n日".to_owned(),
            sizes: vec![(1, -2), (u16::MAX, i64::MIN)],
            note: note.map(str::to_owned),
            body: String::new(),
        }
    }

    #[test]
    fn a_struct_comes_back_as_it_was_written() {
        let text = write(&sample(None));
        let expected =
            r#"{"name":"a\n日","sizes":[[1,-2],[65535,-9223372036854775808]],"note":null}"#;
        assert_eq!(text, expected);
        for note in [None, Some("x")] {
            assert_eq!(read(&write(&sample(note))), Some(sample(note)));
        }
    }

    #[test]
    fn an_absent_option_is_none_and_an_unknown_member_is_passed_over() {
        let found: Option<Sample> = read(r#"{"name":"a","sizes":[],"later":1}"#);
        assert_eq!(found.map(|sample| sample.note), Some(None));
    }

    #[test]
    fn what_is_absent_or_of_another_type_is_refused() {
        for text in [
            "",
            "null",
            "[]",
            r#"{"sizes":[]}"#,
            r#"{"name":1,"sizes":[]}"#,
            r#"{"name":"a","sizes":{}}"#,
            r#"{"name":"a","sizes":[[1]]}"#,
            r#"{"name":"a","sizes":[[1,2,3]]}"#,
            r#"{"name":"a","sizes":[[65536,2]]}"#,
            r#"{"name":"a","sizes":[[1,2.5]]}"#,
            r#"{"name":"a","sizes":[],"note":7}"#,
        ] {
            assert_eq!(read::<Sample>(text), None, "{text}");
        }
    }
}
