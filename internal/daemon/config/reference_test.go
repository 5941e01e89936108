// SPDX-License-Identifier: Apache-2.0

package config

import (
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"
	"k8s.io/kube-proxy/config/v1alpha1"

	"github.com/sluice-proxy/sluice/test/doctest"
)

const referencePage = "../../../docs/configuration.md"

// fieldsWithoutFlag are the meanings of the fields that no flag sets. The help of a flag is the
// meaning of every other field.
var fieldsWithoutFlag = map[string]string{
	"clientConnection.acceptContentTypes": "accepted encodings of responses; empty means contentType, or JSON",
	"nftables.masqueradeBit":              "bit of the packet mark that requests source NAT (0 to 31)",
	"portRange":                           noEffect,
	"windowsRunAsService":                 noEffect,
}

// TestConfig_Reference compares the tables of docs/configuration.md with the flags and fields.
func TestConfig_Reference(t *testing.T) {
	f, err := parse()
	if err != nil {
		t.Fatal(err)
	}
	doctest.Generated(t, referencePage, "process flags", processFlags(f))
	doctest.Generated(t, referencePage, "KubeProxyConfiguration", fieldTables(t, f, "", reflect.TypeFor[v1alpha1.KubeProxyConfiguration]()))
	doctest.Generated(t, referencePage, "SluiceConfiguration", fieldTables(t, f, sluicePrefix, reflect.TypeFor[SluiceConfiguration]()))
}

// processFlags returns a table of the flags that set no field, and the deprecated ones.
func processFlags(f *Flags) string {
	var rows [][]string
	f.set.VisitAll(func(flag *pflag.Flag) {
		if f.fields[flag.Name] == "" || flag.Deprecated != "" {
			rows = append(rows, []string{code("--" + flag.Name), code(flag.DefValue), flag.Usage + deprecated(flag)})
		}
	})
	return doctest.Table([]string{"Flag", "Default", "Meaning"}, rows)
}

// fieldTables returns a table of the fields outside of any section, and one for each section.
func fieldTables(t *testing.T, f *Flags, prefix string, document reflect.Type) string {
	rows := map[string][][]string{}
	var sections []string
	for _, path := range pathsOf(document) {
		if path == "apiVersion" || path == "kind" {
			continue
		}
		section, _, nested := strings.Cut(path, ".")
		if !nested {
			section = ""
		}
		if !slices.Contains(sections, section) {
			sections = append(sections, section)
		}
		rows[section] = append(rows[section], fieldRow(t, f, prefix, path))
	}
	slices.Sort(sections) // fields without a section first
	head := []string{"Field", "Flag", "Default", "Meaning"}
	if prefix != "" {
		head = []string{"Field", "Default", "Meaning"}
	}
	var b strings.Builder
	for _, section := range sections {
		title := code(section)
		if section == "" {
			title = "Fields without a section"
		}
		b.WriteString("### " + title + "\n\n" + doctest.Table(head, rows[section]) + "\n")
	}
	return b.String()
}

func fieldRow(t *testing.T, f *Flags, prefix, path string) []string {
	if prefix != "" {
		return ownRow(t, f, path)
	}
	flag := f.set.Lookup(f.flagOf(path))
	if flag == nil {
		meaning := fieldsWithoutFlag[path]
		if strings.HasPrefix(path, "winkernel.") {
			meaning = noEffect
		}
		if meaning == "" {
			t.Errorf("no meaning of the field %s, which has no flag", path)
		}
		return []string{code(path), "", code(defaultOf(t, f, prefix, path)), meaning}
	}
	return []string{code(path), typed(flag), value(flag.DefValue), flag.Usage}
}

// ownRow is the row of a setting of Sluice's table.
func ownRow(t *testing.T, f *Flags, path string) []string {
	leaves := leavesOf(reflect.TypeFor[SluiceConfiguration]())
	one := leaves[slices.IndexFunc(leaves, func(f field) bool { return f.path == path })]
	meaning := one.tag.Get("help")
	if meaning == "" {
		t.Errorf("no meaning of the field %s", path)
	}
	if name := one.tag.Get("flag"); name != "" {
		meaning += " (" + typed(f.set.Lookup(name)) + ")"
	}
	text := one.tag.Get("unset")
	if text == "" {
		text = defaultOf(t, f, sluicePrefix, path)
	}
	return []string{code(path), value(text), meaning}
}

func typed(flag *pflag.Flag) string {
	if len(flag.Name) == 1 {
		return code("-" + flag.Name)
	}
	return code("--" + flag.Name)
}

func value(text string) string {
	if strings.Contains(text, " ") {
		return text
	}
	return code(text)
}

func defaultOf(t *testing.T, f *Flags, prefix, path string) string {
	var document any = &f.base.KubeProxy
	if prefix != "" {
		document = &f.base.Sluice
	}
	text, err := json.Marshal(at(reflect.ValueOf(document).Elem(), path).Interface())
	if err != nil {
		t.Fatal(err)
	}
	return strings.Trim(string(text), `"`)
}

// code returns a text as Markdown prints code; an empty one stays empty.
func code(text string) string {
	if text == "" || text == "[]" {
		return ""
	}
	return "`" + text + "`"
}

func deprecated(flag *pflag.Flag) string {
	if flag.Deprecated == "" {
		return ""
	}
	return " (deprecated: " + flag.Deprecated + ")"
}
