//! Which tasks a change is for, as bodies say it.

use windlass_core::store::Filter;
use windlass_core::{Kind, QueueName, Tag};

use crate::fields::Field;
use crate::form::Form;
use crate::problem::Outcome;
use crate::query::{FILTERS, FILTERS_BUT_STATE, states};

/// Which tasks.
pub(crate) const FILTER: Form = Form::new("Filter", &FILTERS);
/// Which dead letters.
pub(crate) const FILTER_OF_DEAD: Form = Form::new("DeadLetterFilter", FILTERS_BUT_STATE);

/// Reads a filter of this form.
pub(crate) fn read(field: &Field<'_>, form: &Form) -> Outcome<Filter> {
    let mut object = field.object(form)?;
    let mut filter = Filter::default();
    if let Some(field) = object.take("state") {
        filter.states = match field.sort() {
            "an array" => {
                let mut named = Vec::new();
                for item in field.list()? {
                    named.push(item.text()?.parse().map_err(|error| item.refused(error))?);
                }
                named
            }
            _ => states(&field.text()?).map_err(|error| field.refused(error))?,
        };
        if filter.states.is_empty() {
            return Err(field.refused("name at least one state, or leave the field out"));
        }
    }
    // Names in a store may be older than our rules for names.
    let mut text = |name| object.take(name).map(plain).transpose();
    filter.queue = text("queue")?.map(|name| QueueName::stored(&name));
    filter.kind = text("type")?.map(|name| Kind::stored(&name));
    filter.tag = text("tag")?.map(|name| Tag::stored(&name));
    filter.priority = object.take("priority").map(|field| field.priority()).transpose()?;
    filter.created_after = object.take("created_after").map(|field| field.time()).transpose()?;
    filter.created_before = object.take("created_before").map(|field| field.time()).transpose()?;
    Ok(filter)
}

/// A name to look for. None is empty or has a NUL in it, and not every store could look for one that has.
fn plain(field: Field<'_>) -> Outcome<String> {
    let text = field.text()?;
    if text.is_empty() {
        return Err(field.refused("is empty: name one, or leave it out for all"));
    }
    match text.contains('\0') {
        true => Err(field.refused("must not have a NUL in it")),
        false => Ok(text),
    }
}
