//! The description of the API, made from the types that the routes use.

use std::sync::LazyLock;

use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, SchemaGenerator};
use serde_json::{Map, Value, json};

use crate::change_stream::{ChangesQuery, GonePipeline, Listed};
use crate::check_route::{CheckAnswer, CheckQuery};
use crate::event_routes::{AllEventsQuery, Events, EventsQuery};
use crate::person_action::PersonAction;
use crate::pipeline_routes::{
    ActionRequest, ExplainQuery, Explanations, History, HistoryQuery, PipelineAnswer, PipelineList,
    PipelinesQuery, PromotionAnswer, Tree, TreeQuery,
};
use crate::problem::Problem;
use crate::reconcile_route::ReconcileRequest;
use crate::trace_query::TraceQuery;
use crate::versions_query::VersionsQuery;
use sluice_view::fleet::observed_clusters::Clusters;
use sluice_view::fleet::trace::Trace;
use sluice_view::fleet::versions::Versions;
use sluice_view::reconcile::ReconcileReport;
use sluice_view::triggers::Triggers;

/// The description as JSON. Anybody may read it, so it is made once.
pub(crate) static TEXT: LazyLock<String> = LazyLock::new(|| document().to_string());

/// Returns the description, in OpenAPI 3.1.
pub fn document() -> Value {
    let settings = SchemaSettings::draft2020_12().with(|settings| {
        settings.definitions_path = "/components/schemas".into();
    });
    let mut schemas = settings.into_generator();
    let paths = paths(&mut schemas);
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Sluice",
            "version": "v1",
            "description": "What runs on all clusters, and what is promoted. Pipelines and promotions are shown to those who may get them. Objects of a cluster are shown to those who may get its GitopsCluster on \
                the hub, objects of the hub to those who may get them there.",
        },
        "security": [{"token": []}],
        "paths": paths,
        "components": {
            "schemas": schemas.take_definitions(true),
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer", "description": "A token of the hub"}},
        },
    })
}

/// Returns the routes by their paths.
fn paths(schemas: &mut SchemaGenerator) -> Value {
    let clusters = route::<Clusters>(schemas, "The clusters that you may see", json!([]));
    let charts = versions(schemas, "Which charts run on which clusters");
    let images = versions(schemas, "Which images run on which clusters");
    let of_object = parameters::<TraceQuery>(schemas);
    let trace = route::<Trace>(schemas, "Where something that runs comes from", of_object);
    let of_all = parameters::<PipelinesQuery>(schemas);
    let pipelines = route::<PipelineList>(schemas, "The pipelines that you may see", of_all);
    let pipeline = route::<PipelineAnswer>(schemas, "One pipeline on one screen", named(json!([])));
    let of_one = named(parameters::<ExplainQuery>(schemas));
    let explanations =
        route::<Explanations>(schemas, "Why an environment gets a revision or does not", of_one);
    let of_one = named(parameters::<HistoryQuery>(schemas));
    let history = route::<History>(schemas, "What was promoted into the environments of a pipeline", of_one);
    let of_one = named(parameters::<TreeQuery>(schemas));
    let tree = route::<Tree>(schemas, "The objects that a pipeline consists of, with their images", of_one);
    let triggers = route::<Triggers>(schemas, "What starts a pipeline", named(json!([])));
    let promotion = route::<PromotionAnswer>(schemas, "A promotion and its whole story", named(json!([])));
    let of_events = parameters::<AllEventsQuery>(schemas);
    let events = events_route(schemas, "The events of pipelines and promotions", of_events);
    let of_one = named(parameters::<EventsQuery>(schemas));
    let own_events = events_route(schemas, "The events of a pipeline and its promotions", of_one);
    let of_check = parameters::<CheckQuery>(schemas);
    let what = "What is wrong with the pipelines and clusters that you may see, and how to fix it";
    let check = route::<CheckAnswer>(schemas, what, of_check);
    let changes = changes_route(schemas);
    let mut paths = json!({
        "/api/v1/check": check,
        "/api/v1/events": events,
        "/api/v1/pipelines/{namespace}/{name}/events": own_events,
        "/api/v1/pipelines/{namespace}/{name}/reconcile": reconcile_route(schemas),
        "/api/v1/clusters": clusters,
        "/api/v1/charts": charts,
        "/api/v1/images": images,
        "/api/v1/trace": trace,
        "/api/v1/pipelines": pipelines,
        "/api/v1/pipelines/{namespace}/{name}": pipeline,
        "/api/v1/pipelines/{namespace}/{name}/explain": explanations,
        "/api/v1/pipelines/{namespace}/{name}/history": history,
        "/api/v1/pipelines/{namespace}/{name}/tree": tree,
        "/api/v1/pipelines/{namespace}/{name}/triggers": triggers,
        "/api/v1/promotions/{namespace}/{name}": promotion,
        "/api/v1/changes": changes,
    });
    for kind in ["pipelines", "promotions"] {
        for action in PersonAction::of(kind) {
            let path = format!("/api/v1/{kind}/{{namespace}}/{{name}}/{}", action.word());
            paths[path] = action_route(schemas, *action);
        }
    }
    paths
}

fn versions(schemas: &mut SchemaGenerator, summary: &str) -> Value {
    let parameters = parameters::<VersionsQuery>(schemas);
    route::<Versions>(schemas, summary, parameters)
}

/// Returns these parameters, and those of the path that name an object.
fn named(parameters: Value) -> Value {
    let in_path = |name: &str, description: &str| json!({"name": name, "in": "path", "required": true, "description": description, "schema": {"type": "string"}});
    let path = [in_path("namespace", "The namespace"), in_path("name", "The name")];
    path.into_iter().chain(parameters.as_array().cloned().unwrap_or_default()).collect()
}

/// Describes the stream of changes. OpenAPI 3.1 has no form for the events of a stream, so the text names their types.
fn changes_route(schemas: &mut SchemaGenerator) -> Value {
    let parameters = parameters::<ChangesQuery>(schemas);
    let mut route =
        route::<String>(schemas, "The pipelines that you may see, and each change of them", parameters);
    // Readers find the types among the components.
    let _ = (schemas.subschema_for::<GonePipeline>(), schemas.subschema_for::<Listed>());
    let last = json!({"name": "Last-Event-ID", "in": "header", "schema": {"type": "string"},
        "description": "The id of the last event of an earlier stream: only what has changed since is sent"});
    if let Some(parameters) = route["get"]["parameters"].as_array_mut() {
        parameters.push(last);
    }
    route["get"]["responses"]["200"] = json!({
        "description": "Server-sent events. `pipeline` has a PipelineScreen, and replaces an earlier one of the same namespace \
            and name. `gone` has a GonePipeline. `listed` has a Listed, after the pipelines that exist at the start.",
        "content": {"text/event-stream": {"schema": {"type": "string"}}},
    });
    if let Some(responses) = route["get"]["responses"].as_object_mut() {
        responses.retain(|status, _| !["304", "404"].contains(&status.as_str()));
    }
    route
}

/// Describes a route of events, which the API server may refuse to list.
fn events_route(schemas: &mut SchemaGenerator, summary: &str, parameters: Value) -> Value {
    let mut route = route::<Events>(schemas, summary, parameters);
    route["get"]["responses"]["403"] = problem(schemas, "You may not list these events");
    route
}

/// Describes the action `reconcile`, which is about objects of Flux and says what became of each.
fn reconcile_route(schemas: &mut SchemaGenerator) -> Value {
    let mut route = post_route::<ReconcileRequest>(
        schemas,
        "Let Flux reconcile its objects on the hub now, in your own name",
    );
    let report = schemas.subschema_for::<ReconcileReport>();
    let responses = &mut route["post"]["responses"];
    responses["200"] = json!({"description": "What Flux was asked, and what to run on other clusters",
        "content": {"application/json": {"schema": report}}});
    if let Some(responses) = responses.as_object_mut() {
        responses.retain(|status, _| !["204", "409"].contains(&status.as_str()));
    }
    route
}

fn action_route(schemas: &mut SchemaGenerator, action: PersonAction) -> Value {
    post_route::<ActionRequest>(schemas, &format!("{}, in your own name", action.title()))
}

/// Describes an answer of a problem.
fn problem(schemas: &mut SchemaGenerator, description: &str) -> Value {
    let schema = schemas.subschema_for::<Problem>();
    json!({"description": description, "content": {"application/problem+json": {"schema": schema}}})
}

fn post_route<B: JsonSchema>(schemas: &mut SchemaGenerator, summary: &str) -> Value {
    let body = schemas.subschema_for::<B>();
    let mut problem = |description: &str| problem(schemas, description);
    json!({"post": {
        "summary": summary,
        "parameters": named(json!([])),
        "requestBody": {"required": true, "content": {"application/json": {"schema": body}}},
        "responses": {
            "204": {"description": "It is recorded"},
            "400": problem("The body is wrong"),
            "401": problem("There is no token, or the hub does not accept it"),
            "403": problem("You may not do it, or the controller runs without --api-actions"),
            "404": problem("There is no such object, or you may not see it"),
            "409": problem("It has changed since you read it, or it cannot be done now"),
            "413": problem("The body is too large"),
            "429": problem("Too many requests: ask again after the seconds of Retry-After"),
            "503": problem("The hub cannot be asked now"),
        },
    }})
}

fn route<T: JsonSchema>(schemas: &mut SchemaGenerator, summary: &str, parameters: Value) -> Value {
    let answer = schemas.subschema_for::<T>();
    let mut problem = |description: &str| problem(schemas, description);
    json!({"get": {
        "summary": summary,
        "parameters": parameters,
        "responses": {
            "200": {"description": "The answer", "content": {"application/json": {"schema": answer}}},
            "304": {"description": "The answer has the ETag of If-None-Match"},
            "400": problem("A parameter is wrong"),
            "401": problem("There is no token, or the hub does not accept it"),
            "404": problem("There is no such object, or you may not see it"),
            "429": problem("Too many requests: ask again after the seconds of Retry-After"),
            "503": problem("The hub or the cluster cannot be asked now"),
        },
    }})
}

/// Returns the parameters of a request, from the fields of its type.
fn parameters<T: JsonSchema>(schemas: &mut SchemaGenerator) -> Value {
    let schema = schemas.root_schema_for::<T>();
    let fields = schema.as_value()["properties"].as_object().cloned().unwrap_or_else(Map::new);
    let parameter = |(name, mut schema): (String, Value)| {
        let description = schema["description"].take();
        if let Some(schema) = schema.as_object_mut() {
            schema.remove("description");
        }
        json!({"name": name, "in": "query", "description": description, "schema": schema})
    };
    fields.into_iter().map(parameter).collect()
}
