package main

import (
	"net/http"
	"strings"
	"sync/atomic"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensions "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
)

const protobuf = "application/vnd.kubernetes.protobuf"

// Counts the bodies in protobuf that are sent and received.
type counting struct {
	http.RoundTripper
	sent, received *atomic.Int64
}

func (c counting) RoundTrip(request *http.Request) (*http.Response, error) {
	if request.Header.Get("Content-Type") == protobuf {
		c.sent.Add(1)
	}
	response, err := c.RoundTripper.RoundTrip(request)
	if err == nil && strings.HasPrefix(response.Header.Get("Content-Type"), protobuf) {
		c.received.Add(1)
	}
	return response, err
}

// With the clientset of definitions, which sends protobuf unless it is told otherwise.
func (s *script) definesAKind() {
	var sent, received atomic.Int64
	config := rest.CopyConfig(s.config)
	config.Wrap(func(inner http.RoundTripper) http.RoundTripper { return counting{inner, &sent, &received} })
	client, err := apiextensions.NewForConfig(config)
	must(err)
	definitions := client.ApiextensionsV1().CustomResourceDefinitions()
	kind := definition()
	_, err = definitions.Create(s.ctx, kind, metav1.CreateOptions{})
	must(err)
	s.until("the definition is established", func() bool {
		found, err := definitions.Get(s.ctx, kind.Name, metav1.GetOptions{})
		must(err)
		for _, condition := range found.Status.Conditions {
			if condition.Type == apiextensionsv1.Established && condition.Status == apiextensionsv1.ConditionTrue {
				return true
			}
		}
		return false
	})
	check(sent.Load() > 0 && received.Load() > 1, "expected protobuf, found %d and %d bodies", sent.Load(), received.Load())

	things := dynamic.NewForConfigOrDie(s.config).
		Resource(schema.GroupVersionResource{Group: "client-go.example.com", Version: "v1", Resource: "things"}).
		Namespace(s.namespace)
	_, err = things.Create(s.ctx, thing("good", int64(3)), metav1.CreateOptions{})
	must(err)
	_, err = things.Create(s.ctx, thing("bad", "three"), metav1.CreateOptions{})
	check(apierrors.IsInvalid(err), "expected Invalid, found %v", err)
	found, err := things.Get(s.ctx, "good", metav1.GetOptions{})
	must(err)
	color, _, err := unstructured.NestedString(found.Object, "spec", "color")
	must(err)
	check(color == "red", "expected the default, found %q", color)
	must(definitions.Delete(s.ctx, kind.Name, metav1.DeleteOptions{}))
	s.until("the definition is gone", func() bool {
		_, err := definitions.Get(s.ctx, kind.Name, metav1.GetOptions{})
		return apierrors.IsNotFound(err)
	})
	_, err = things.List(s.ctx, metav1.ListOptions{})
	check(apierrors.IsNotFound(err), "expected NotFound, found %v", err)
	s.done("define a kind")
}

func definition() *apiextensionsv1.CustomResourceDefinition {
	object := func(properties map[string]apiextensionsv1.JSONSchemaProps) apiextensionsv1.JSONSchemaProps {
		return apiextensionsv1.JSONSchemaProps{Type: "object", Properties: properties}
	}
	minimum := 1.0
	root := object(map[string]apiextensionsv1.JSONSchemaProps{
		"spec": object(map[string]apiextensionsv1.JSONSchemaProps{
			"count": {Type: "integer", Minimum: &minimum},
			"color": {Type: "string", Default: &apiextensionsv1.JSON{Raw: []byte(`"red"`)}},
		}),
	})
	return &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: "things.client-go.example.com"},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: "client-go.example.com",
			Names: apiextensionsv1.CustomResourceDefinitionNames{Plural: "things", Kind: "Thing"},
			Scope: apiextensionsv1.NamespaceScoped,
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
				Name: "v1", Served: true, Storage: true,
				Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &root},
			}},
		},
	}
}

func thing(name string, count any) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "client-go.example.com/v1", "kind": "Thing",
		"metadata": map[string]any{"name": name},
		"spec":     map[string]any{"count": count},
	}}
}
