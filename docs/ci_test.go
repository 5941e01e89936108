// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// timed is a command of a script that runs tiers. The command beside runs two at the same time.
var timed = regexp.MustCompile(`(?m)^timed (beside )?(.*?)(?: \|\| status=1)?$`)

// TestWorkflow_RunsEachTier compares the jobs of the workflow with the commands of .ci/run and hack/test-all.
func TestWorkflow_RunsEachTier(t *testing.T) {
	var workflow struct {
		Jobs struct {
			Tier struct {
				Strategy struct {
					Matrix struct {
						Run []string `json:"run"`
					} `json:"matrix"`
				} `json:"strategy"`
			} `json:"tier"`
		} `json:"jobs"`
	}
	if err := yaml.Unmarshal([]byte(read(t, "../.github/workflows/ci.yaml")), &workflow); err != nil {
		t.Fatal(err)
	}
	var tiers []string
	for _, script := range []string{"../.ci/run", "../hack/test-all"} {
		for _, match := range timed.FindAllStringSubmatch(read(t, script), -1) {
			command := strings.TrimSuffix(match[2], " --offline-ok")
			switch {
			case strings.HasPrefix(command, "apt-get"), strings.HasPrefix(command, "make -s build"), command == "hack/test-all":
			case match[1] != "":
				tiers = append(tiers, strings.Fields(command)...)
			default:
				tiers = append(tiers, command)
			}
		}
	}
	jobs := workflow.Jobs.Tier.Strategy.Matrix.Run
	slices.Sort(tiers)
	if slices.Sort(jobs); len(tiers) < 10 || !slices.Equal(tiers, jobs) {
		t.Errorf("the workflow runs %q, want %q", jobs, tiers)
	}
}
