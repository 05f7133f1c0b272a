package main

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"fmt"
	"os"
	"reflect"

	"k8s.io/apimachinery/pkg/runtime"
)

type message interface {
	runtime.Object
	Unmarshal([]byte) error
}

// decode prints what Go makes of protobuf.
func decode() {
	objects := map[string]reflect.Type{}
	for _, root := range roots() {
		objects[root.apiVersion+" "+root.object.Name()] = root.object
	}
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 1<<30)
	for lines.Scan() {
		body, err := base64.StdEncoding.DecodeString(lines.Text())
		check(err)
		raw, found := bytes.CutPrefix(body, []byte("k8s\x00"))
		if !found {
			panic("the prefix is missing")
		}
		var unknown runtime.Unknown
		check(unknown.Unmarshal(raw))
		known := objects[unknown.APIVersion+" "+unknown.Kind]
		if known == nil {
			panic("no type for " + unknown.APIVersion + " " + unknown.Kind)
		}
		object := reflect.New(known).Interface().(message)
		check(object.Unmarshal(unknown.Raw))
		object.GetObjectKind().SetGroupVersionKind(unknown.GroupVersionKind())
		fmt.Println(encode(object))
	}
	check(lines.Err())
}
