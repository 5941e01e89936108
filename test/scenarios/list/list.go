// SPDX-License-Identifier: Apache-2.0

// Package list holds the scenarios: what a node's service proxy must do, as clients see it, one
// file per subject.
package list

import (
	"embed"
	"fmt"

	"github.com/sluice-proxy/sluice/test/scenarios/script"
)

//go:embed *.txt
var files embed.FS

// All reads every scenario. Two with one number are an error.
func All() ([]script.Scenario, error) {
	entries, err := files.ReadDir(".")
	if err != nil {
		return nil, err
	}
	var all []script.Scenario
	first := make(map[string]script.Scenario)
	for _, entry := range entries {
		text, err := files.ReadFile(entry.Name())
		if err != nil {
			return nil, err
		}
		read, err := script.Parse(entry.Name(), string(text))
		if err != nil {
			return nil, err
		}
		for _, s := range read {
			if other, twice := first[s.ID]; twice {
				return nil, fmt.Errorf("%v and %v have the same number", other, s)
			}
			first[s.ID] = s
		}
		all = append(all, read...)
	}
	return all, nil
}
