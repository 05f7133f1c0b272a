package main

import (
	"context"
	"fmt"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apiserver/pkg/cel/environment"
	"k8s.io/dynamic-resource-allocation/cel"
)

// request asks about one expression.
type request struct {
	Expression string   `json:"expression"`
	Devices    []device `json:"devices"`
}

// device is what a selector sees; the fields are the API's.
type device struct {
	Driver                   string                                                    `json:"driver"`
	AllowMultipleAllocations *bool                                                     `json:"allowMultipleAllocations"`
	Attributes               map[resourceapi.QualifiedName]resourceapi.DeviceAttribute `json:"attributes"`
	Capacity                 map[resourceapi.QualifiedName]resourceapi.DeviceCapacity  `json:"capacity"`
}

// answer has a compile error or one evaluation per device.
type answer struct {
	CompileError string       `json:"compileError,omitempty"`
	CompilePanic string       `json:"compilePanic,omitempty"`
	Evaluations  []evaluation `json:"evaluations,omitempty"`
}

// evaluation is the outcome for one device. Without a cost, upstream did not evaluate.
type evaluation struct {
	Match bool    `json:"match"`
	Error string  `json:"error,omitempty"`
	Cost  *uint64 `json:"cost,omitempty"`
}

// evaluate answers a request as the scheduler would: in the environment of stored expressions.
func evaluate(asked request) (result answer) {
	defer func() {
		if cause := recover(); cause != nil {
			result = answer{CompilePanic: fmt.Sprint(cause)}
		}
	}()
	stored := environment.StoredExpressions
	options := cel.Options{EnvType: &stored, DisableCostEstimation: true}
	program := cel.GetCompiler(cel.Features{}).CompileCELExpression(asked.Expression, options)
	if program.Error != nil {
		return answer{CompileError: program.Error.Error()}
	}
	for _, device := range asked.Devices {
		result.Evaluations = append(result.Evaluations, match(program, device))
	}
	return result
}

func match(program cel.CompilationResult, device device) evaluation {
	matches, details, err := program.DeviceMatches(context.Background(), cel.Device{
		Driver:                   device.Driver,
		AllowMultipleAllocations: device.AllowMultipleAllocations,
		Attributes:               device.Attributes,
		Capacity:                 device.Capacity,
	})
	result := evaluation{Match: matches, Cost: details.ActualCost()}
	if err != nil {
		result.Error = cel.EnhanceRuntimeError(err).Error()
	}
	return result
}
