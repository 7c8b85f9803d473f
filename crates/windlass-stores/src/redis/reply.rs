//! Reading what scripts answer.

use redis::Value;
use windlass_core::{Result, Timestamp};

use crate::redis::error::strange;

/// An answer, taken apart step by step; every wrong step names the script.
pub(crate) struct Reply {
    operation: &'static str,
    value: Value,
}

impl Reply {
    pub(crate) fn new(operation: &'static str, value: Value) -> Self {
        Self { operation, value }
    }

    /// True for this number.
    pub(crate) fn is_number(&self, number: i64) -> bool {
        matches!(self.value, Value::Int(told) if told == number)
    }

    /// True for the 0 by which duties refuse a stale term.
    pub(crate) fn is_zero(&self) -> bool {
        matches!(self.value, Value::Int(0))
    }

    /// True for a list whose first part is exactly these bytes.
    pub(crate) fn begins_with(&self, text: &str) -> bool {
        matches!(&self.value, Value::Array(parts)
            if matches!(parts.first(), Some(Value::BulkString(bytes)) if bytes == text.as_bytes()))
    }

    pub(crate) fn list(self) -> Result<std::vec::IntoIter<Self>> {
        let operation = self.operation;
        let wrap = move |value| Self { operation, value };
        match self.value {
            Value::Array(values) => {
                Ok(values.into_iter().map(wrap).collect::<Vec<_>>().into_iter())
            }
            Value::Nil => Ok(Vec::new().into_iter()),
            _ => Err(strange(operation)),
        }
    }

    pub(crate) fn bytes(self) -> Result<Vec<u8>> {
        match self.value {
            Value::BulkString(bytes) => Ok(bytes),
            Value::SimpleString(text) => Ok(text.into_bytes()),
            Value::Int(number) => Ok(number.to_string().into_bytes()),
            _ => Err(strange(self.operation)),
        }
    }

    /// Bytes, or nothing where there are none.
    pub(crate) fn bytes_if_any(self) -> Result<Option<Vec<u8>>> {
        match self.value {
            Value::Nil => Ok(None),
            _ => self.bytes().map(Some),
        }
    }

    pub(crate) fn text(self) -> Result<String> {
        Ok(String::from_utf8_lossy(&self.bytes()?).into_owned())
    }

    pub(crate) fn number(self) -> Result<i64> {
        match self.value {
            Value::Int(number) => Ok(number),
            _ => {
                let operation = self.operation;
                let text = self.text()?;
                // Scores come as floating numbers.
                let whole = text.split('.').next().unwrap_or_default();
                whole.parse().map_err(|_| strange(operation))
            }
        }
    }

    pub(crate) fn time(self) -> Result<Timestamp> {
        Ok(Timestamp::from_millis(self.number()?))
    }

    /// A time, or nothing where the answer is empty.
    pub(crate) fn time_if_any(self) -> Result<Option<Timestamp>> {
        match &self.value {
            Value::BulkString(bytes) if bytes.is_empty() => Ok(None),
            Value::Nil => Ok(None),
            _ => self.time().map(Some),
        }
    }

    /// What it is: a number, bytes, or a list.
    pub(crate) fn sort(self) -> Result<Sort> {
        let operation = self.operation;
        match self.value {
            Value::Int(number) => Ok(Sort::Number(number)),
            Value::BulkString(bytes) => Ok(Sort::Bytes(bytes)),
            Value::Array(_) => Ok(Sort::List(self.list()?)),
            _ => Err(strange(operation)),
        }
    }
}

/// What an answer can be.
pub(crate) enum Sort {
    Number(i64),
    Bytes(Vec<u8>),
    List(std::vec::IntoIter<Reply>),
}

/// The next part of a list, which must be there.
pub(crate) fn next(list: &mut std::vec::IntoIter<Reply>, operation: &str) -> Result<Reply> {
    list.next().ok_or_else(|| strange(operation))
}
