package main

import (
	"fmt"

	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/component-base/featuregate"
)

// setFeatures sets feature gates and returns a function that restores them.
func setFeatures(wanted map[string]bool) (restore func(), err error) {
	gates := utilfeature.DefaultMutableFeatureGate
	known := gates.GetAll()
	before := map[string]bool{}
	for name := range wanted {
		if _, exists := known[featuregate.Feature(name)]; !exists {
			return nil, fmt.Errorf("there is no feature gate %q", name)
		}
		before[name] = gates.Enabled(featuregate.Feature(name))
	}
	restore = func() {
		if err := gates.SetFromMap(before); err != nil {
			panic(err)
		}
	}
	if err := gates.SetFromMap(wanted); err != nil {
		restore()
		return nil, fmt.Errorf("set the feature gates: %w", err)
	}
	return restore, nil
}
