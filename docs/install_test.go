// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"encoding/json"
	"regexp"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/sluice-proxy/sluice/test/doctest"
)

// schema is a part of values.schema.json.
type schema struct {
	Properties map[string]*schema `json:"properties"`
}

// TestHelm_Reference compares the table of values in install.md with values.yaml, where each value has its description
// in a comment, and with the schema, which contains each value.
func TestHelm_Reference(t *testing.T) {
	var values yaml.Node
	if err := yaml.Unmarshal([]byte(read(t, "../deploy/chart/values.yaml")), &values); err != nil {
		t.Fatal(err)
	}
	var all schema
	if err := json.Unmarshal([]byte(read(t, "../deploy/chart/values.schema.json")), &all); err != nil {
		t.Fatal(err)
	}
	rows := describeValues(t, "", values.Content[0], &all)
	doctest.Generated(t, "install.md", "values", doctest.Table([]string{"Value", "Default", "Meaning"}, rows))
}

// describeValues returns a row for each value under a prefix. A group of values whose children have comments has rows
// for these.
func describeValues(t *testing.T, prefix string, of *yaml.Node, known *schema) (rows [][]string) {
	t.Helper()
	for i := 0; i < len(of.Content); i += 2 {
		key, value := of.Content[i], of.Content[i+1]
		name := prefix + key.Value
		part := known.Properties[key.Value]
		if part == nil {
			t.Errorf("values.schema.json does not contain %s", name)
			continue
		}
		described := value.Kind == yaml.MappingNode && len(value.Content) > 0 && value.Content[0].HeadComment != ""
		comment := strings.Join(strings.Fields(strings.ReplaceAll(key.HeadComment, "#", " ")), " ")
		switch {
		case described && comment != "":
			rows = append(rows, []string{"`" + name + "`", "", comment})
		case !described && comment == "":
			t.Errorf("values.yaml: %s has no comment", name)
		case !described:
			rows = append(rows, []string{"`" + name + "`", defaultText(t, value), comment})
		}
		if described {
			rows = append(rows, describeValues(t, name+".", value, part)...)
		}
	}
	return rows
}

func defaultText(t *testing.T, value *yaml.Node) string {
	t.Helper()
	if value.Kind == yaml.ScalarNode {
		if value.Value == "" {
			return ""
		}
		return "`" + value.Value + "`"
	}
	var plain any
	if err := value.Decode(&plain); err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(plain)
	if err != nil {
		t.Fatal(err)
	}
	return "`" + strings.NewReplacer(`"`, "", ":", ": ", ",", ", ").Replace(string(text)) + "`"
}

var yamlBlock = regexp.MustCompile("(?s)```yaml\n(.*?)```")

// TestInstall_GitOpsExamples checks that the examples of install.md are YAML and set only values that the chart has.
func TestInstall_GitOpsExamples(t *testing.T) {
	var known map[string]any
	if err := yaml.Unmarshal([]byte(read(t, "../deploy/chart/values.yaml")), &known); err != nil {
		t.Fatal(err)
	}
	kinds := map[string]int{}
	for _, block := range yamlBlock.FindAllStringSubmatch(read(t, "install.md"), -1) {
		for document := range strings.SplitSeq(block[1], "\n---\n") {
			var object struct {
				APIVersion string `yaml:"apiVersion"`
				Kind       string
				Spec       struct {
					Values map[string]any
					Source struct {
						Helm struct {
							ValuesObject map[string]any `yaml:"valuesObject"`
						}
					}
				}
			}
			if err := yaml.Unmarshal([]byte(document), &object); err != nil {
				t.Errorf("%v in:\n%s", err, document)
			}
			kinds[object.Kind]++
			checkValues(t, object.Kind, object.Spec.Values, known)
			checkValues(t, object.Kind, object.Spec.Source.Helm.ValuesObject, known)
		}
	}
	for _, kind := range []string{"Kustomization", "Application", "GitRepository", "HelmRelease"} {
		if kinds[kind] != 1 {
			t.Errorf("%d examples of kind %s, want one", kinds[kind], kind)
		}
	}
}

func checkValues(t *testing.T, where string, values, known map[string]any) {
	t.Helper()
	for name, value := range values {
		of, exists := known[name]
		if !exists {
			t.Errorf("%s: the chart has no value %s", where, name)
		}
		if group, ok := value.(map[string]any); ok {
			inner, _ := of.(map[string]any)
			checkValues(t, where+"."+name, group, inner)
		}
	}
}
