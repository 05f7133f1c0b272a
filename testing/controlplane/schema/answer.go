package main

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os"
	"reflect"

	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime"
	kubejson "sigs.k8s.io/json"
)

type message interface {
	runtime.Object
	Marshal() ([]byte, error)
	Unmarshal([]byte) error
}

// answer prints a line for each line of the input.
func answer(one func(string) any) {
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 1<<30)
	for lines.Scan() {
		fmt.Println(encode(one(lines.Text())))
	}
	check(lines.Err())
}

// object is an empty object of a kind.
func object(apiVersion, kind string) message {
	for _, root := range roots() {
		if root.apiVersion == apiVersion && root.object.Name() == kind {
			return reflect.New(root.object).Interface().(message)
		}
	}
	panic("no type for " + apiVersion + " " + kind)
}

// decode is Go's result for protobuf.
func decode(line string) any {
	body, err := base64.StdEncoding.DecodeString(line)
	check(err)
	raw, found := bytes.CutPrefix(body, []byte("k8s\x00"))
	if !found {
		panic("the prefix is missing")
	}
	var unknown runtime.Unknown
	check(unknown.Unmarshal(raw))
	made := object(unknown.APIVersion, unknown.Kind)
	check(made.Unmarshal(unknown.Raw))
	made.GetObjectKind().SetGroupVersionKind(unknown.GroupVersionKind())
	return made
}

// read is Go's result for JSON, and the object after storage in protobuf.
func read(line string) any {
	var kind struct{ APIVersion, Kind string }
	check(json.Unmarshal([]byte(line), &kind))
	made := object(kind.APIVersion, kind.Kind)
	strict, err := kubejson.UnmarshalStrict([]byte(line), made)
	if err != nil {
		return map[string]any{"error": err.Error()}
	}
	unknown := []string{}
	for _, err := range strict {
		unknown = append(unknown, err.Error())
	}
	raw, err := made.Marshal()
	check(err)
	stored := object(kind.APIVersion, kind.Kind)
	check(stored.Unmarshal(raw))
	stored.GetObjectKind().SetGroupVersionKind(made.GetObjectKind().GroupVersionKind())
	return map[string]any{"unknown": unknown, "object": stored}
}

func canonical(line string) any {
	var text string
	check(json.Unmarshal([]byte(line), &text))
	quantity, err := resource.ParseQuantity(text)
	if err != nil {
		return err.Error()
	}
	return quantity.String()
}
