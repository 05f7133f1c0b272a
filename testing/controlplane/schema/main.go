// Command schema prints the table of API types in testing/apiserver/src/schema.json. The Go types
// provide fields with JSON names, protobuf numbers and patch strategies. The generated OpenAPI
// definitions provide required fields, defaults, and the merge rules of server-side apply.
//
// With an argument, it answers each line of its input with a line:
//
//	decode    an object in protobuf and base64: as JSON
//	read      an object in JSON: what the API server's decoder says of it, and as it is after storage
//	quantity  a quantity in JSON: in its canonical form, or what is wrong with it
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"reflect"
	"sort"
	"strconv"
	"strings"

	"k8s.io/kube-openapi/pkg/common"
	"k8s.io/kube-openapi/pkg/validation/spec"
	"k8s.io/kubernetes/pkg/generated/openapi"
)

// Field is one line of a type's table; see schema.rs for what each means.
type Field struct {
	Name     string   `json:"name"`
	Number   int      `json:"number,omitempty"`
	Inside   int      `json:"inside,omitempty"`
	Within   string   `json:"within,omitempty"`
	Shape    string   `json:"shape"`
	Go       string   `json:"go,omitempty"`
	Pointer  bool     `json:"pointer,omitempty"`
	Omit     bool     `json:"omit,omitempty"`
	Required bool     `json:"required,omitempty"`
	Default  any      `json:"default,omitempty"`
	Patch    string   `json:"patch,omitempty"`
	MergeKey string   `json:"mergeKey,omitempty"`
	Merge    string   `json:"merge,omitempty"`
	Keys     []string `json:"keys,omitempty"`
}

// Type is an object type.
type Type struct {
	Name   string  `json:"name"`
	Atomic bool    `json:"atomic,omitempty"`
	Fields []Field `json:"fields"`
}

type modelNamer interface{ OpenAPIModelName() string }

// Types with their own JSON form.
var special = map[string]string{
	"io.k8s.apimachinery.pkg.apis.meta.v1.Time":                                             "time",
	"io.k8s.apimachinery.pkg.apis.meta.v1.MicroTime":                                        "microtime",
	"io.k8s.apimachinery.pkg.apis.meta.v1.FieldsV1":                                         "any",
	"io.k8s.apimachinery.pkg.api.resource.Quantity":                                         "quantity",
	"io.k8s.apimachinery.pkg.util.intstr.IntOrString":                                       "intorstring",
	"io.k8s.apimachinery.pkg.runtime.RawExtension":                                          "any",
	"io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSON":                         "any",
	"io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaPropsOrArray":       "any",
	"io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaPropsOrBool":        "any",
	"io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaPropsOrStringArray": "any",
}

// Those whose protobuf message is not one field of bytes.
func hasNoMessage(name string) bool { return strings.Contains(name, "JSONSchemaPropsOr") }

type generator struct {
	definitions map[string]common.OpenAPIDefinition
	types       map[string]*Type
}

func main() {
	if len(os.Args) == 2 {
		answer(map[string]func(string) any{"decode": decode, "read": read, "quantity": canonical}[os.Args[1]])
		return
	}
	reference := func(name string) spec.Ref { return spec.MustCreateRef(name) }
	g := generator{openapi.GetOpenAPIDefinitions(reference), map[string]*Type{}}
	kinds := map[string]string{}
	for _, root := range roots() {
		name := g.object(root.object)
		kinds[root.apiVersion+" "+root.object.Name()] = name
	}
	print(kinds, g.types)
}

// print writes one kind or type per line.
func print(kinds map[string]string, types map[string]*Type) {
	out := bufio.NewWriter(os.Stdout)
	defer out.Flush()
	lines := func(names []string, text func(string) string) {
		sort.Strings(names)
		for i, name := range names {
			end := ",\n"
			if i == len(names)-1 {
				end = "\n"
			}
			fmt.Fprint(out, text(name), end)
		}
	}
	fmt.Fprintln(out, `{"kinds":{`)
	lines(keys(kinds), func(name string) string { return encode(name) + ":" + encode(kinds[name]) })
	fmt.Fprintln(out, `},"types":[`)
	lines(keys(types), func(name string) string { return encode(types[name]) })
	fmt.Fprintln(out, `]}`)
}

func keys[V any](values map[string]V) []string {
	var names []string
	for name := range values {
		names = append(names, name)
	}
	return names
}

func encode(value any) string {
	text, err := json.Marshal(value)
	check(err)
	return string(text)
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}

// object adds a struct with everything it reaches, and returns its name.
func (g *generator) object(t reflect.Type) string {
	name := modelName(t)
	if g.types[name] != nil {
		return name
	}
	definition, known := g.definitions[name]
	if !strings.HasSuffix(name, "."+t.Name()) {
		panic(t.String() + " has another name in OpenAPI")
	}
	made := &Type{Name: name, Atomic: definition.Schema.Extensions["x-kubernetes-map-type"] == "atomic"}
	g.types[name] = made
	made.Fields = g.fields(t, definition.Schema, known, 0)
	return name
}

func modelName(t reflect.Type) string {
	if namer, ok := reflect.Zero(t).Interface().(modelNamer); ok {
		return namer.OpenAPIModelName()
	}
	return strings.ReplaceAll(t.PkgPath(), "/", ".") + "." + t.Name()
}

// fields lists the fields of a struct with those of inlined structs, which are nested messages in
// protobuf.
func (g *generator) fields(t reflect.Type, schema spec.Schema, known bool, inside int) []Field {
	fields := []Field{}
	for i := range t.NumField() {
		field := t.Field(i)
		name, options, _ := strings.Cut(field.Tag.Get("json"), ",")
		number := number(field)
		if strings.Contains(options, "inline") || (field.Anonymous && name == "") {
			if inside != 0 && number != 0 {
				panic(fmt.Sprintf("%s.%s: a message inside a message inside", t, field.Name))
			}
			inlined := field.Type
			if inlined.Kind() == reflect.Pointer {
				panic(fmt.Sprintf("%s.%s: an inlined pointer", t, field.Name))
			}
			inner := g.fields(inlined, schema, known, number)
			for i := range inner {
				if number == 0 {
					inner[i].Number = 0
				}
				inner[i].Within = strings.Trim(field.Name+"."+inner[i].Within, ".")
			}
			fields = append(fields, inner...)
			continue
		}
		if name == "-" || name == "" {
			continue
		}
		made := g.field(field, name, options, schema.Properties[name])
		made.Number, made.Inside = number, inside
		if hasNoMessage(modelNameOfItem(field.Type)) {
			made.Number = 0
		}
		for _, required := range schema.Required {
			made.Required = made.Required || required == name
		}
		if _, listed := schema.Properties[name]; known && !listed {
			panic(fmt.Sprintf("%s.%s: OpenAPI does not have it", t, name))
		}
		fields = append(fields, made)
	}
	return fields
}

func (g *generator) field(field reflect.StructField, name, options string, schema spec.Schema) Field {
	shape := g.shape(field.Type)
	made := Field{
		Name:     name,
		Shape:    shape,
		Go:       g.named(field.Type, shape),
		Pointer:  field.Type.Kind() == reflect.Pointer,
		Default:  schema.Default,
		Patch:    field.Tag.Get("patchStrategy"),
		MergeKey: field.Tag.Get("patchMergeKey"),
	}
	made.Omit = strings.Contains(options, "omitzero") ||
		strings.Contains(options, "omitempty") && field.Type.Kind() != reflect.Struct
	for _, extension := range []string{"x-kubernetes-list-type", "x-kubernetes-map-type"} {
		if text, ok := schema.Extensions[extension].(string); ok && text != "granular" {
			made.Merge = text
		}
	}
	if list, ok := schema.Extensions["x-kubernetes-list-map-keys"].([]any); ok {
		for _, key := range list {
			made.Keys = append(made.Keys, key.(string))
		}
	}
	if referred := g.types[shape]; referred != nil && referred.Atomic {
		made.Merge = "atomic"
	}
	return made
}

// named is the Go type in messages about wrong JSON, unless the shape implies it.
func (g *generator) named(t reflect.Type, shape string) string {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	plain := map[reflect.Kind]bool{reflect.Struct: true, reflect.Slice: t.Name() == "", reflect.Map: t.Name() == ""}
	switch elem := t; {
	case plain[t.Kind()] && t.Kind() == reflect.Struct:
		return ""
	case plain[t.Kind()] && shape != "bytes":
		elem = t.Elem()
		if t.Kind() == reflect.Map && t.Key().Name() != "string" || g.named(elem, shape[2:]) != "" {
			return t.String()
		}
		return ""
	case t.Name() == t.Kind().String() || shape == "bytes":
		return ""
	}
	return t.String()
}

func number(field reflect.StructField) int {
	parts := strings.Split(field.Tag.Get("protobuf"), ",")
	if len(parts) < 2 {
		return 0
	}
	number, err := strconv.Atoi(parts[1])
	check(err)
	return number
}

func modelNameOfItem(t reflect.Type) string {
	for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice || t.Kind() == reflect.Map {
		t = t.Elem()
	}
	if t.Kind() == reflect.Struct {
		return modelName(t)
	}
	return ""
}

// shape is the type of a field: lists as `[]x`, maps as `{}x`.
func (g *generator) shape(t reflect.Type) string {
	switch t.Kind() {
	case reflect.Bool:
		return "bool"
	case reflect.Int32:
		return "int32"
	case reflect.Int64:
		return "int64"
	case reflect.Float64:
		return "double"
	case reflect.String:
		return "string"
	case reflect.Pointer:
		return g.shape(t.Elem())
	case reflect.Slice:
		if t.Elem().Kind() == reflect.Uint8 {
			return "bytes"
		}
		return "[]" + g.shape(t.Elem())
	case reflect.Map:
		return "{}" + g.shape(t.Elem())
	case reflect.Struct:
		if name := special[modelName(t)]; name != "" {
			return name
		}
		return g.object(t)
	}
	panic("no shape for " + t.String())
}
