// Prints how the objects of the Kubernetes API are written in protobuf and in JSON, read from the
// struct tags of k8s.io/api. SOURCE.md says how to run it.
package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"

	apiextensions "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes/scheme"
	apiregistration "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
)

// Field is one field of a message.
type Field struct {
	Number int    `json:"number"`
	Name   string `json:"name"`
	When   string `json:"when"`
	Shape  any    `json:"shape"`
}

// Catalog is what is printed. Kinds are "apiVersion Kind"; their values, and {"message": n}, are
// places in Messages.
type Catalog struct {
	Kinds    map[string]int `json:"kinds"`
	Messages [][]Field      `json:"messages"`
	places   map[reflect.Type]int
}

// Messages that are something else in JSON.
var special = map[reflect.Type]string{
	reflect.TypeFor[metav1.Time]():          "time",
	reflect.TypeFor[metav1.MicroTime]():     "microTime",
	reflect.TypeFor[resource.Quantity]():    "quantity",
	reflect.TypeFor[intstr.IntOrString]():   "intOrString",
	reflect.TypeFor[runtime.RawExtension](): "json",
	reflect.TypeFor[metav1.FieldsV1]():      "json",
	reflect.TypeFor[apiextensions.JSON]():   "json",
}

// Messages that are a schema or something else in JSON.
var schemas = map[reflect.Type]string{
	reflect.TypeFor[apiextensions.JSONSchemaPropsOrBool]():        "schemaOrBoolean",
	reflect.TypeFor[apiextensions.JSONSchemaPropsOrArray]():       "schemaOrList",
	reflect.TypeFor[apiextensions.JSONSchemaPropsOrStringArray](): "schemaOrTexts",
}

// Kinds of other modules, and those of the machinery that are sent.
var others = []struct {
	kind   string
	goType reflect.Type
}{
	{"apiextensions.k8s.io/v1 ConversionReview", reflect.TypeFor[apiextensions.ConversionReview]()},
	{"apiextensions.k8s.io/v1 CustomResourceDefinition", reflect.TypeFor[apiextensions.CustomResourceDefinition]()},
	{"apiregistration.k8s.io/v1 APIService", reflect.TypeFor[apiregistration.APIService]()},
	{"meta.k8s.io/v1 PartialObjectMetadata", reflect.TypeFor[metav1.PartialObjectMetadata]()},
	{"v1 Status", reflect.TypeFor[metav1.Status]()},
}

func main() {
	catalog := &Catalog{Kinds: map[string]int{}, places: map[reflect.Type]int{}}
	for _, version := range os.Args[1:] {
		parsed, err := schema.ParseGroupVersion(version)
		if err != nil {
			panic(err)
		}
		known := scheme.Scheme.KnownTypes(parsed)
		for _, kind := range slices.Sorted(maps.Keys(known)) {
			// Lists are never sent, and the types of the machinery are the same in every version.
			isOwn := strings.HasPrefix(known[kind].PkgPath(), "k8s.io/api/") && !strings.HasSuffix(kind, "List")
			if isOwn || version == "v1" && kind == "DeleteOptions" {
				catalog.Kinds[version+" "+kind] = catalog.message(known[kind])
			}
		}
	}
	for _, other := range others {
		catalog.Kinds[other.kind] = catalog.message(other.goType)
	}
	if err := json.NewEncoder(os.Stdout).Encode(catalog); err != nil {
		panic(err)
	}
}

func (catalog *Catalog) message(goType reflect.Type) int {
	if place, isKnown := catalog.places[goType]; isKnown {
		return place
	}
	place := len(catalog.Messages)
	catalog.places[goType] = place
	catalog.Messages = append(catalog.Messages, nil)
	fields := []Field{}
	for i := range goType.NumField() {
		goField := goType.Field(i)
		tag := goField.Tag.Get("protobuf")
		if tag == "" || tag == "-" {
			continue
		}
		number, err := strconv.Atoi(strings.Split(tag, ",")[1])
		if err != nil {
			panic(err)
		}
		name, options, _ := strings.Cut(goField.Tag.Get("json"), ",")
		when := presence(goField, name, options)
		fields = append(fields, Field{number, name, when, catalog.shape(goField.Type)})
	}
	slices.SortFunc(fields, func(a, b Field) int { return a.Number - b.Number })
	catalog.Messages[place] = fields
	return place
}

// When a field is in the JSON that Go writes.
func presence(field reflect.StructField, name, options string) string {
	kind := field.Type.Kind()
	switch {
	case name == "" && (field.Anonymous || strings.Contains(options, "inline")):
		return "inline"
	case name == "":
		panic("no name: " + field.Name)
	case strings.Contains(options, "omitzero"):
		return "nonzero"
	// omitempty keeps every struct.
	case !strings.Contains(options, "omitempty") || kind == reflect.Struct:
		return "always"
	case kind == reflect.Pointer:
		return "present"
	default:
		return "nonzero"
	}
}

func (catalog *Catalog) shape(goType reflect.Type) any {
	if name, isSpecial := special[goType]; isSpecial {
		return name
	}
	if name, isSchema := schemas[goType]; isSchema {
		return map[string]any{name: catalog.message(reflect.TypeFor[apiextensions.JSONSchemaProps]())}
	}
	if _, isMessage := reflect.PointerTo(goType).MethodByName("Unmarshal"); isMessage && goType.Kind() == reflect.Slice {
		return "texts" // A list of strings in a message of its own.
	}
	switch goType.Kind() {
	case reflect.Pointer:
		shape := catalog.shape(goType.Elem())
		return map[string]any{"pointer": shape}
	case reflect.String:
		return "text"
	case reflect.Bool:
		return "boolean"
	case reflect.Int, reflect.Int32, reflect.Int64:
		return "integer"
	case reflect.Float64:
		return "double"
	case reflect.Slice:
		if goType.Elem().Kind() == reflect.Uint8 {
			return "bytes"
		}
		return map[string]any{"list": catalog.shape(goType.Elem())}
	case reflect.Map:
		return map[string]any{"map": catalog.shape(goType.Elem())}
	case reflect.Struct:
		return map[string]any{"message": catalog.message(goType)}
	default:
		panic(fmt.Sprint("no shape for ", goType))
	}
}
