//! How `get` reads: what is shown decides what the API server is asked for. Lists come out of its
//! cache, as those of controllers do: that costs the cluster little, and is an instant behind at most.

use std::fmt::Debug;

use kube::api::{DynamicObject, GetParams, ListParams, ObjectMeta};
use kube::core::{NamespaceScope, Request};
use kube::{Api, Resource};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer};
use serde_json::Value;

use super::{Listing, View};
use crate::connect::Connection;
use crate::exit::{Exit, Failure, Outcome};
use crate::find;
use crate::server::is_missing;

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
        let objects = api.list(&ListParams::default().match_any()).await;
        return Ok(objects.map_err(|e| connection.explain(e))?.items);
    };
    let found = match view.all_namespaces {
        true => {
            let params = ListParams::default().match_any().fields(&format!("metadata.name={name}"));
            api.list(&params).await.map(|list| list.items)
        }
        false => match api.get_with(name, &GetParams::any()).await {
            Err(kube::Error::Api(status)) if is_missing(&status) => Ok(vec![]),
            answer => answer.map(|object| vec![object]),
        },
    };
    let found = found.map_err(|e| connection.explain(e))?;
    if found.is_empty() {
        return Err(find::missing::<L::Seen>(connection, name, view.all_namespaces).await);
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

/// An object as it is printed, without the bookkeeping of field managers, and as it is seen.
pub(super) fn whole<L: Listing>(mut object: DynamicObject) -> Outcome<(Value, L::Seen)> {
    object.metadata.managed_fields = None;
    let unreadable = |e: serde_json::Error| {
        Failure::new(Exit::Error, format!("the cluster's answer cannot be read: {e}"))
            .hinted("the definitions in the cluster may be of another version: compare with `sluice crds`")
    };
    let value = serde_json::to_value(&object).map_err(unreadable)?;
    let seen = L::Seen::deserialize(&value).map_err(unreadable)?;
    Ok((value, seen))
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

/// Reads a list by the server's own table, which holds all that a plain table shows. For 2,000
/// pipelines that is a fifth of the time of the whole objects. None where the definition in the
/// cluster has other columns.
pub(super) async fn columns<L: Listing>(
    connection: &Connection,
    view: &View,
) -> Outcome<Option<Vec<L::Seen>>> {
    let namespace = (!view.all_namespaces).then_some(connection.namespace.as_str());
    let url = L::Seen::url_path(&(), namespace);
    let built = Request::new(url).list(&ListParams::default().match_any());
    let mut request = built.map_err(|e| connection.explain(kube::Error::BuildRequest(e)))?;
    if let Ok(table) = "application/json;as=Table;v=v1;g=meta.k8s.io".parse() {
        request.headers_mut().insert("accept", table);
    }
    let text = connection.client.request_text(request).await.map_err(|e| connection.explain(e))?;
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
