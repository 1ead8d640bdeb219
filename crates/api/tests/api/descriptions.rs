//! Every field has a description for `kubectl explain`.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    JSONSchemaProps, JSONSchemaPropsOrArray, JSONSchemaPropsOrBool,
};
use kube::ResourceExt;

fn undescribed(schema: &JSONSchemaProps, path: &str, found: &mut Vec<String>) -> usize {
    let mut fields = 0;
    for (name, property) in schema.properties.iter().flatten() {
        let path = format!("{path}.{name}");
        if property.description.as_deref().is_none_or(|d| d.trim().is_empty()) {
            found.push(path.clone());
        }
        fields += 1 + undescribed(property, &path, found);
    }
    if let Some(JSONSchemaPropsOrArray::Schema(items)) = &schema.items {
        fields += undescribed(items, path, found);
    }
    if let Some(JSONSchemaPropsOrBool::Schema(values)) = &schema.additional_properties {
        fields += undescribed(values, path, found);
    }
    fields
}

#[test]
fn every_field_has_a_description() {
    for crd in sluice_api::all_crds() {
        for version in &crd.spec.versions {
            let schema = version.schema.as_ref().and_then(|s| s.open_api_v3_schema.as_ref()).unwrap();
            let mut found = Vec::new();
            let fields = undescribed(schema, &crd.spec.names.kind, &mut found);
            assert!(
                fields > 20,
                "{} has only {fields} fields: this test no longer finds them",
                crd.name_any()
            );
            // Kubernetes describes the fields of all objects.
            found.retain(|path| !path.ends_with(".metadata"));
            assert_eq!(found, Vec::<String>::new());
        }
    }
}
