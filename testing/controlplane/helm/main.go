// Command helm renders and lints a chart with Helm's packages. The whole of Helm would take minutes
// to build.
//
//	helm CHART RELEASE NAMESPACE KUBERNETES < values.json
//
// prints a JSON object: each template's output by its path, and what the linter says.
package main

import (
	"encoding/json"
	"fmt"
	"os"

	"helm.sh/helm/v4/pkg/chart/common"
	"helm.sh/helm/v4/pkg/chart/common/util"
	"helm.sh/helm/v4/pkg/chart/v2/lint"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"helm.sh/helm/v4/pkg/engine"
)

type answer struct {
	Templates map[string]string `json:"templates"`
	Lint      []string          `json:"lint"`
}

func main() {
	answer, err := run(os.Args[1:])
	if err == nil {
		err = json.NewEncoder(os.Stdout).Encode(answer)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(args []string) (*answer, error) {
	if len(args) != 4 {
		return nil, fmt.Errorf("usage: helm CHART RELEASE NAMESPACE KUBERNETES < values.json")
	}
	folder, release, namespace := args[0], args[1], args[2]
	version, err := common.ParseKubeVersion(args[3])
	if err != nil {
		return nil, err
	}
	values := map[string]any{}
	if err := json.NewDecoder(os.Stdin).Decode(&values); err != nil {
		return nil, fmt.Errorf("values: %w", err)
	}
	chart, err := loader.Load(folder)
	if err != nil {
		return nil, err
	}
	capabilities := common.DefaultCapabilities.Copy()
	capabilities.KubeVersion = *version
	options := common.ReleaseOptions{Name: release, Namespace: namespace, Revision: 1, IsInstall: true}
	all, err := util.ToRenderValues(chart, values, options, capabilities)
	if err != nil {
		return nil, err
	}
	templates, err := engine.Render(chart, all)
	if err != nil {
		return nil, err
	}
	said := []string{}
	for _, message := range lint.RunAll(folder, values, namespace, lint.WithKubeVersion(version)).Messages {
		said = append(said, message.Error())
	}
	return &answer{Templates: templates, Lint: said}, nil
}
