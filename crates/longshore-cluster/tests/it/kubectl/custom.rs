//! Custom resources: from the definition to the explained, validated, listed object.

use super::script::Script;

const DEFINITION: &str = "
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: gadgets.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {plural: gadgets, singular: gadget, kind: Gadget, shortNames: [gd], categories: [all]}
  versions:
  - name: v1beta1
    served: true
    storage: false
    deprecated: true
    deprecationWarning: use v1 of example.com
    schema: &schema
      openAPIV3Schema:
        type: object
        properties:
          spec:
            type: object
            required: [size]
            properties:
              size: {type: integer, minimum: 1, description: How big it is.}
              color: {type: string, default: blue, enum: [blue, edited, green]}
          status: {type: object, properties: {replicas: {type: integer}}}
  - name: v1
    served: true
    storage: true
    subresources:
      status: {}
      scale: {specReplicasPath: .spec.size, statusReplicasPath: .status.replicas}
    schema: *schema
    additionalPrinterColumns:
    - {name: Size, type: integer, jsonPath: .spec.size}
    - {name: Color, type: string, jsonPath: .spec.color, priority: 1}
";

const OBJECT: &str = "
apiVersion: example.com/v1
kind: Gadget
metadata: {name: g}
spec: {size: 3}
";

#[tokio::test(flavor = "multi_thread")]
async fn kubectl_works_with_custom_resources() {
    let Some(script) = Script::start("custom") else {
        return;
    };
    script
        .feed("apply -f -", DEFINITION)
        .await
        .says("gadgets.example.com created");
    script
        .expect(
            "wait --for=condition=Established crd/gadgets.example.com --timeout=60s",
            "condition met",
        )
        .await;
    script.expect("api-versions", "example.com/v1beta1").await;
    script
        .expect("api-resources --api-group=example.com", "gd")
        .await;
    script
        .expect("explain gadgets.spec.size", "How big it is.")
        .await;
    script.expect("explain gadget --recursive", "color").await;
    script
        .feed("apply -f -", OBJECT)
        .await
        .says("gadget.example.com/g created");
    script
        .feed("apply -f -", OBJECT)
        .await
        .says("gadget.example.com/g unchanged");
    script
        .feed("apply -f -", &OBJECT.replace("size: 3", "size: 4"))
        .await
        .says("gadget.example.com/g configured");
    script.expect("get gd", "SIZE").await;
    script.expect("get gadgets -o wide", "blue").await;
    script.expect("get all", "gadget.example.com/g").await;
    script
        .expect(
            "get gadget g -o jsonpath={.spec}",
            r#"{"color":"blue","size":4}"#,
        )
        .await;
    script
        .expect(
            "get gadgets.v1beta1.example.com",
            "Warning: use v1 of example.com",
        )
        .await;
    script.expect("describe gadget g", "Size:").await;
    script.expect("edit gadget g", "edited").await;
    script.expect("scale gadget g --replicas=7", "scaled").await;
    script
        .expect(
            r#"patch gadget g --type=merge -p {"spec":{"size":8}}"#,
            "patched",
        )
        .await;
    script
        .expect(
            r#"patch gadget g --subresource=status --type=merge -p {"status":{"replicas":8}}"#,
            "patched",
        )
        .await;
    refuse_what_the_schema_forbids(&script).await;
    script
        .expect("delete crd gadgets.example.com", "deleted")
        .await;
    script.refuse("get gadgets", "(NotFound)").await;
}

async fn refuse_what_the_schema_forbids(script: &Script) {
    script
        .refuse(r#"patch gadget g -p {"spec":{"size":8}}"#, "")
        .await;
    let typo = OBJECT.replace("size: 3", "size: 3, sice: 4");
    script
        .feed_refused("apply -f -", &typo)
        .await
        .says("unknown field \"spec.sice\"");
    let warned = script.feed("apply --validate=warn -f -", &typo).await;
    warned.says("Warning: unknown field \"spec.sice\"");
    script
        .feed_refused("apply -f -", &OBJECT.replace("size: 3", "size: 0"))
        .await
        .says("should be greater than or equal to 1");
}
