//! How `get` reads: what is shown decides what the API server is asked for. Lists come out of its
//! cache, as those of controllers do: that costs the cluster little, and is an instant behind at most.

use std::fmt::Debug;

use kube::api::{DynamicObject, GetParams, ListParams, ObjectMeta};
use kube::core::{ApiResource, NamespaceScope, Request};
use kube::{Api, Resource};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use serde_json::value::RawValue;
use sluice_api::lenient::is_missing_object;

use super::listing::Listing;
use super::view::View;
use crate::connection::Connection;
use crate::exit::{Exit, Failure, Outcome};
use crate::find;

/// The API of a kind in the namespaces that are meant.
pub(super) fn api<K>(connection: &Connection, view: &View, resource: &K::DynamicType) -> Api<K>
where
    K: Resource<Scope: NamespaceScope>,
{
    let everywhere = Api::all_with(connection.client.clone(), resource);
    match view.all_namespaces {
        true => everywhere,
        false => everywhere.constrain(&connection.namespace),
    }
}

/// Reads what is asked for, in full.
pub(super) async fn read<K, L: Listing>(
    connection: &Connection,
    listing: &L,
    view: &View,
    resource: &K::DynamicType,
) -> Outcome<Vec<K>>
where
    K: Resource<Scope: NamespaceScope> + Clone + Debug + DeserializeOwned,
{
    let api: Api<K> = api(connection, view, resource);
    let Some(name) = listing.name() else {
        let objects = api.list(&view.params()).await;
        return Ok(objects.map_err(|e| connection.explain(e))?.items);
    };
    let found = match view.all_namespaces {
        true => {
            let params = ListParams::default().match_any().fields(&format!("metadata.name={name}"));
            api.list(&params).await.map(|list| list.items)
        }
        false => match api.get_with(name, &GetParams::any()).await {
            Err(kube::Error::Api(status)) if is_missing_object(&status) => Ok(vec![]),
            answer => answer.map(|object| vec![object]),
        },
    };
    let found = found.map_err(|e| connection.explain(e))?;
    if found.is_empty() {
        return Err(find::missing::<L::Item>(connection, name, view.all_namespaces).await);
    }
    Ok(found)
}

/// Reads of an object's metadata only what tables show: the bookkeeping of field managers is most
/// of it, and nobody looks at that.
pub(super) fn lean_metadata<'de, D: Deserializer<'de>>(deserializer: D) -> Result<ObjectMeta, D::Error> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Lean {
        name: Option<String>,
        namespace: Option<String>,
        generation: Option<i64>,
        creation_timestamp: Option<k8s_openapi::apimachinery::pkg::apis::meta::v1::Time>,
    }
    let Lean { name, namespace, generation, creation_timestamp } = Lean::deserialize(deserializer)?;
    Ok(ObjectMeta { name, namespace, generation, creation_timestamp, ..ObjectMeta::default() })
}

fn unreadable(error: serde_json::Error) -> Failure {
    Failure::new(Exit::Error, format!("the cluster's answer cannot be read: {error}"))
        .hinted("the definitions in the cluster may be of another version: compare with `sluice crds`")
}

/// An object as it is printed, without the bookkeeping of field managers.
pub(super) fn whole(mut object: DynamicObject) -> Outcome<Value> {
    object.metadata.managed_fields = None;
    serde_json::to_value(&object).map_err(unreadable)
}

/// An object as it is seen. One that cannot be read is seen too, with the error.
pub(super) fn item_from<L: Listing>(object: &Value) -> Outcome<L::Item> {
    let error = match L::Item::deserialize(object) {
        Ok(seen) => return Ok(seen),
        Err(error) => error,
    };
    if let Ok(read) = sluice_api::lenient::from_value::<L::Item>(object.clone()) {
        return Ok(read.object);
    }
    let metadata = lean_metadata(&object["metadata"]).map_err(unreadable)?;
    let error = format!("cannot be read: {error}; compare the definition in the cluster with `sluice crds`");
    Ok(L::unreadable(metadata, error))
}

/// Reads what is asked for as it is printed. A list is read as it stands there: by way of a type,
/// each object would be made three times.
pub(super) async fn objects<L: Listing>(
    connection: &Connection,
    listing: &L,
    view: &View,
) -> Outcome<Vec<Value>> {
    #[derive(Deserialize)]
    struct List {
        items: Vec<Value>,
    }
    if listing.name().is_some() {
        let resource = ApiResource::erase::<L::Item>(&());
        let found: Vec<DynamicObject> = read(connection, listing, view, &resource).await?;
        return found.into_iter().map(whole).collect();
    }
    let mut list: List =
        serde_json::from_str(&list_text::<L>(connection, view, None).await?).map_err(unreadable)?;
    for metadata in list.items.iter_mut().filter_map(|object| object["metadata"].as_object_mut()) {
        metadata.remove("managedFields");
    }
    Ok(list.items)
}

/// Reads all objects as they are shown, one by one. An object that cannot be read is shown with its error.
pub(super) async fn all<L: Listing>(connection: &Connection, view: &View) -> Outcome<Vec<L::Item>> {
    #[derive(Deserialize)]
    struct List<'a> {
        #[serde(borrow)]
        items: Vec<&'a RawValue>,
    }
    let text = list_text::<L>(connection, view, None).await?;
    let list: List<'_> = serde_json::from_str(&text).map_err(unreadable)?;
    let seen = list.items.into_iter().map(|item| match serde_json::from_str(item.get()) {
        Ok(seen) => Ok(seen),
        Err(_) => item_from::<L>(&serde_json::from_str(item.get()).map_err(unreadable)?),
    });
    seen.collect()
}

/// What the API server says when it is asked for a list, in the form that `accept` names.
async fn list_text<L: Listing>(
    connection: &Connection,
    view: &View,
    accept: Option<&'static str>,
) -> Outcome<String> {
    let namespace = (!view.all_namespaces).then_some(connection.namespace.as_str());
    let built = Request::new(L::Item::url_path(&(), namespace)).list(&view.params());
    let mut request = built.map_err(|e| connection.explain(kube::Error::BuildRequest(e)))?;
    if let Some(form) = accept.and_then(|form| form.parse().ok()) {
        request.headers_mut().insert("accept", form);
    }
    connection.client.request_text(request).await.map_err(|e| connection.explain(e))
}

/// A list as the API server itself makes a table of it, with the columns of the definition.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ServerTable {
    column_definitions: Vec<Column>,
    rows: Vec<ServerRow>,
}

#[derive(Deserialize)]
struct Column {
    name: String,
}

#[derive(Deserialize)]
struct ServerRow {
    cells: Vec<Value>,
    object: RowObject,
}

#[derive(Deserialize)]
struct RowObject {
    #[serde(deserialize_with = "lean_metadata")]
    metadata: ObjectMeta,
}

const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io";

/// Reads a list by the server's own table, which holds all that a table shows. For 2,000
/// pipelines that is a fifth of the time of the whole objects. None where the definition in the
/// cluster has other columns.
pub(super) async fn columns<L: Listing>(
    connection: &Connection,
    view: &View,
) -> Outcome<Option<Vec<L::Item>>> {
    let text = list_text::<L>(connection, view, Some(TABLE)).await?;
    let Ok(table) = serde_json::from_str::<ServerTable>(&text) else { return Ok(None) };
    let place = |wanted: &&str| table.column_definitions.iter().position(|c| c.name == **wanted);
    let Some(places) = L::CELLS.iter().map(place).collect::<Option<Vec<usize>>>() else { return Ok(None) };
    let seen = table.rows.into_iter().map(|row| {
        let cells = places.iter().map(|n| text_of(row.cells.get(*n))).collect();
        L::from_cells(row.object.metadata, cells)
    });
    Ok(seen.collect())
}

fn text_of(cell: Option<&Value>) -> String {
    match cell {
        None | Some(Value::Null) => String::new(),
        Some(Value::String(text)) => text.clone(),
        Some(other) => other.to_string(),
    }
}
