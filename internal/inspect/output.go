// SPDX-License-Identifier: Apache-2.0

package inspect

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"reflect"
	"strings"
	"time"

	jsonutil "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/client-go/util/jsonpath"

	"github.com/sluice-proxy/sluice/internal/terminal"
)

// Outputs are the values of --output, for help texts. The user supplies the text after a "=".
var Outputs = []string{"wide", "json", "yaml", "name", outputPath + "="}

const outputPath = "jsonpath"

// Output describes how a command prints its answers. All commands of sluice and kubectl sluice use it.
type Output struct {
	// Format is the value of --output; empty and "table" stand for tables for people.
	Format    string
	NoHeaders bool
	// SortBy is the header of a column. Numbers, sizes and durations sort in descending order, and texts in ascending
	// order. Reverse reverses the order.
	SortBy  string
	Reverse bool
	// Color is set on terminals.
	Color bool
	// Notes is standard error, where a sentence replaces an empty table; Within is the namespace that the sentence names.
	Notes  io.Writer
	Within string
	// Every is the pause after which Watch prints all of an answer again; 0 means that it prints what changes.
	Every time.Duration
	// Stream is set for an answer that has no end. Own is a format that the command itself prints; empty for none.
	Stream bool
	Own    string
}

// Answer is what a command prints.
type Answer interface {
	// Print prints the answer for people.
	Print(to *terminal.Page)
}

// List is an answer whose table may have no rows.
type List interface {
	// None returns the sentence for an empty table without its period, such as "No Services".
	None() string
}

// Check returns an error if there is no such format. The error begins with the name of the flag.
func (o *Output) Check() error {
	format, text, templated := strings.Cut(o.Format, "=")
	var err error
	switch {
	case o.Table() || o.Format == "json" || o.Format == "yaml" || o.Own != "" && o.Format == o.Own:
	case o.Stream:
		err = errors.New("must be wide, json or yaml, because the answer has no end")
	case templated && format == outputPath:
		_, err = parsePath(text)
	case o.Format == "name":
	default:
		err = fmt.Errorf("must be wide, json, yaml, name or %s=TEMPLATE", outputPath)
	}
	if err != nil {
		return fmt.Errorf("output %q: %w", o.Format, err)
	}
	return nil
}

// Table reports whether the output is a table for people.
func (o *Output) Table() bool { return o.Format == "" || o.Format == "table" || o.Format == "wide" }

// Wide reports whether tables have all columns.
func (o *Output) Wide() bool { return o.Format == "wide" }

// Print prints an answer. A list of answers is one object. The text is written in one piece, so that no warning comes
// between parts of a line. Texts of the answer are escaped in place; see terminal.Clean.
func (o *Output) Print(to io.Writer, answer Answer) error {
	p := newPage(o)
	var object map[string]any
	var err error
	if !o.Table() || o.SortBy != "" {
		object, err = document(answer)
	}
	if err == nil && o.SortBy != "" {
		err = p.sort(object, answer)
	}
	switch {
	case err != nil:
	case o.Table():
		terminal.Clean(answer)
		answer.Print(&p.Page)
		if list, is := answer.(List); is && p.empty() {
			if p.others == 0 { // otherwise, the page names nodes that did not answer
				p.Reset()
			}
			err = o.none(list)
		}
	default:
		p.order = nil // the items of the object are sorted
		err = o.encode(&p.Page, object)
	}
	if err != nil {
		return err
	}
	_, err = to.Write(p.Bytes())
	return err
}

// none prints on standard error that a list is empty, as kubectl does.
func (o *Output) none(list List) error {
	if o.Notes == nil {
		return nil
	}
	text := list.None()
	if o.Within != "" {
		text += " in namespace " + terminal.Text(o.Within)
	}
	_, err := fmt.Fprintln(o.Notes, text+".")
	return err
}

// encode writes an object in a format other than tables.
func (o *Output) encode(to *terminal.Page, object map[string]any) error {
	format, text, _ := strings.Cut(o.Format, "=")
	switch format {
	case "yaml":
		made, err := terminal.YAML(object)
		if err != nil || !terminal.Printable(made) {
			return encodeJSON(to, object) // JSON is also YAML, and can escape all characters
		}
		_, err = to.Write(made)
		return err
	case "name":
		terminal.Clean(&object)
		for _, item := range itemsOf(object) {
			name := nameOf(item)
			if name == "" {
				return errors.New("--output name: the answer has no names; use --output jsonpath=TEMPLATE")
			}
			_, _ = fmt.Fprintln(to, name) // a page accepts everything
		}
		return nil
	case outputPath:
		path, err := parsePath(text)
		if err == nil {
			terminal.Clean(&object)
			err = path.Execute(to, object)
		}
		return err
	default:
		return encodeJSON(to, object)
	}
}

func encodeJSON(to io.Writer, object any) error {
	text, err := json.MarshalIndent(object, "", "  ")
	if err == nil {
		_, err = to.Write(append(terminal.JSON(text), '\n'))
	}
	return err
}

// EncodeLine writes an answer in one line of JSON.
func EncodeLine(to io.Writer, answer any) error {
	text, err := json.Marshal(answer)
	if err == nil {
		_, err = to.Write(append(terminal.JSON(text), '\n'))
	}
	return err
}

// parsePath reads a JSONPath template, or a path without braces.
func parsePath(text string) (*jsonpath.JSONPath, error) {
	if !strings.Contains(text, "{") {
		text = "{." + strings.TrimPrefix(text, ".") + "}"
	}
	path := jsonpath.New("output").AllowMissingKeys(true)
	return path, path.Parse(text)
}

// document returns an answer as a Kubernetes object: with apiVersion and kind, which is the name of the type, and with
// metadata of everything that has a name.
func document(answer any) (map[string]any, error) {
	value := reflect.Indirect(reflect.ValueOf(answer))
	if value.Kind() == reflect.Slice {
		items := make([]any, value.Len())
		for i := range items {
			item, err := document(value.Index(i).Interface())
			if err != nil {
				return nil, err
			}
			items[i] = item
		}
		return map[string]any{"apiVersion": Version, "kind": "List", "items": items}, nil
	}
	text, err := json.Marshal(answer)
	if err != nil {
		return nil, err
	}
	var object map[string]any
	if err := jsonutil.Unmarshal(text, &object); err != nil { // unlike encoding/json, it keeps integers
		return nil, err
	}
	name := value.Type().Name()
	describe(object, strings.ToUpper(name[:1])+name[1:])
	return object, nil
}

// describe adds what every Kubernetes object has.
func describe(object map[string]any, kind string) {
	object["apiVersion"], object["kind"] = Version, kind
	if name, named := object["name"]; named {
		metadata := map[string]any{"namespace": object["namespace"], "name": name, "creationTimestamp": object["created"]}
		maps.DeleteFunc(metadata, func(_ string, value any) bool { return value == nil })
		object["metadata"] = metadata
	}
	if items, ok := object["items"].([]any); ok {
		for _, item := range items {
			if object, ok := item.(map[string]any); ok {
				describe(object, strings.TrimSuffix(kind, "List"))
			}
		}
	}
}

// listIn returns the items of a list, and the field that contains them: "nodes" in a report about all nodes.
func listIn(object map[string]any) (field string, items []any) {
	for _, field := range []string{"items", "nodes"} {
		if items, isList := object[field].([]any); isList {
			return field, items
		}
	}
	return "", nil
}

// itemsOf returns the items of a list, or the object itself.
func itemsOf(object map[string]any) (all []map[string]any) {
	field, items := listIn(object)
	if field == "" {
		return []map[string]any{object}
	}
	for _, item := range items {
		if item, ok := item.(map[string]any); ok {
			all = append(all, item)
		}
	}
	return all
}

// nameOf returns the name of an object with its namespace, or nothing.
func nameOf(object map[string]any) string {
	name, named := object["name"].(string)
	if !named {
		name, _ = object["node"].(string)
	}
	if namespace, _ := object["namespace"].(string); namespace != "" && name != "" {
		name = namespace + "/" + name
	}
	return name
}
